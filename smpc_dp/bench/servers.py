"""A program on shares among servers that are processes of this machine, over plain sockets on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from smpc_dp.errors import LocalError
from smpc_dp.protocols.mpyc.params import threshold_of
from smpc_dp.protocols.mpyc.sharing import field_bytes, split, unpack
from smpc_dp.protocols.mpyc.terms import ProgramTerms
from smpc_dp.statistics.shared.kernels import Way

WORKER_SECONDS = 900
# Of every message, where rounds are counted: far above what a small program computes in a round.
DELAY = 0.4


@dataclass(frozen=True, slots=True)
class Measured:
    """What was opened, alike at all servers; for each run seconds by the clock, of the slowest server, of
    processor time and bytes sent, of all servers together."""

    opened: list[int]
    wall: list[float]
    cpu: list[float]
    sent: list[int]
    rounds: int
    """Counted where messages are delayed, else 0."""


def run_servers(
    terms: ProgramTerms,
    records: Sequence[Sequence[int]],
    servers: int,
    runs: int = 1,
    *,
    way: Way | None = None,
    delay: float = 0.0,
    shares: Sequence[Sequence[Sequence[int]]] | None = None,
) -> Measured:
    """Share records, or take `shares` (server, user, value), and run the program `runs` times after once.

    `delay` is added to every message, for counting rounds. Raises LocalError where a server fails.
    """
    held = split_records(terms, records, servers) if shares is None else shares
    links = _mesh(servers)
    started = []
    try:
        for place in range(servers):
            own = [0 if end is None else end.fileno() for end in links[place]]
            process = subprocess.Popen(
                [sys.executable, "-m", "smpc_dp.bench.servers_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[end.fileno() for end in links[place] if end is not None],
            )
            started.append(process)
            asked = {
                "terms": msgspec.to_builtins(terms),
                "sockets": own,
                "place": place,
                "shares": [[f"{share:x}" for share in row] for row in held[place]],
                "runs": runs,
                "way": way,
                "delay": delay,
            }
            if process.stdin is not None:
                process.stdin.write(json.dumps(asked))
                process.stdin.close()
                process.stdin = None
        for end in (end for row in links for end in row if end is not None):
            end.close()
        ended = [process.communicate(timeout=WORKER_SECONDS) for process in started]
    except subprocess.TimeoutExpired:
        raise LocalError(f"a server took more than {WORKER_SECONDS} s") from None
    finally:
        for process in started:
            process.kill()
            process.wait()
    failed = [errors for process, (_, errors) in zip(started, ended, strict=True) if process.returncode]
    if failed:
        lines = failed[0].strip().splitlines() or ["no message"]
        raise LocalError(f"a server failed: {lines[-1]}")
    told = [json.loads(output.splitlines()[-1]) for output, _ in ended]
    return Measured(
        opened=[int(value) for value in told[0]["opened"]],
        wall=[max(each["seconds"][run][0] for each in told) for run in range(runs)],
        cpu=[sum(each["seconds"][run][1] for each in told) for run in range(runs)],
        sent=[sum(each["bytes"][run] for each in told) for run in range(runs)],
        # A pause in the middle of a round, on a busy machine, makes some server count one more.
        rounds=min((count for each in told for count in each["rounds"]), default=0),
    )


def split_records(
    terms: ProgramTerms, records: Sequence[Sequence[int]], servers: int
) -> list[list[list[int]]]:
    """Return Shamir's shares of records: by server, user and value."""
    held: list[list[list[int]]] = [[] for _ in range(servers)]
    for number, record in enumerate(records):
        packed = split(record, terms.prime, threshold_of(servers), servers)
        for own, row in zip(held, packed, strict=True):
            own.append(unpack(row, len(row) // field_bytes(terms.prime), terms.prime, f"user {number}"))
    return held


def _mesh(servers: int) -> list[list[socket.socket | None]]:
    """Return TCP connections on loopback: row i has server i's ends, by peer."""
    links: list[list[socket.socket | None]] = [[None] * servers for _ in range(servers)]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for first in range(servers):
            for second in range(first + 1, servers):
                links[first][second] = socket.create_connection(listening.getsockname())
                links[second][first], _ = listening.accept()
    return links
