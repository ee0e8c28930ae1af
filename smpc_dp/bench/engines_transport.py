"""What our channels cost mpyc: one program over them, and over mpyc's own plain sockets, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from smpc_dp.bench.engines_worker import Work
from smpc_dp.errors import LocalError
from smpc_dp.protocols.mpyc.params import threshold_of
from smpc_dp.protocols.mpyc.sharing import split, unpack
from smpc_dp.protocols.mpyc.terms import ProgramTerms
from smpc_dp.runtime.local import create_local_session, free_port
from smpc_dp.runtime.servers.child import Answer
from smpc_dp.runtime.servers.engine import ENVIRONMENT
from smpc_dp.runtime.session_file import Timeouts

WORKER_SECONDS = 600
LIMIT = 1.5
"""Times that a program may take over our channels, of its time over plain sockets."""


@dataclass(frozen=True, slots=True)
class Carried:
    """One program, both ways: medians over turns of the slowest server's seconds, start-up left out.

    `cpu` is of all mpyc processes together, without those of our channels; `bytes` of all mpyc messages.
    """

    servers: int
    bridged: float
    plain: float
    bridged_cpu: float
    plain_cpu: float
    bytes: int
    values: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """Seconds over our channels, as a multiple of those over plain sockets."""
        return self.bridged / self.plain


def carry(
    terms: ProgramTerms, records: Sequence[Sequence[int]], *, servers: int = 3, turns: int = 3
) -> Carried:
    """Compute `terms` on `records`, shape (users, length), among that many server processes, both ways.

    Each time in processes of their own, `turns` times in turns. Raises LocalError if a worker fails or they
    open different exact values.
    """
    shares = [split(row, terms.prime, threshold_of(servers), servers) for row in records]
    works = [
        Work(
            terms,
            [[f"{share:x}" for share in unpack(row[place], terms.length, terms.prime, "")] for row in shares],
        )
        for place in range(servers)
    ]
    found: dict[str, list[list[Answer]]] = {"plain": [], "bridged": []}
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        names = [f"user{number}" for number in range(2)]
        session = create_local_session(
            Path(folder), names, {}, protocol="mpyc", servers=servers, timeouts=Timeouts(60.0, 120.0, 60.0)
        )
        for _ in range(turns):
            port = _free_ports(servers)
            commands = {
                "plain": [["plain", str(place), str(servers), str(port)] for place in range(servers)],
                "bridged": [["bridged", str(session), f"server{place + 1}"] for place in range(servers)],
            }
            for way, arguments in commands.items():
                found[way].append(_together(way, arguments, works))
    values = {way: {tuple(a.values) for answers in runs for a in answers} for way, runs in found.items()}
    if not terms.noise and len(values["plain"] | values["bridged"]) != 1:
        raise LocalError("mpyc opened different values over different connections")
    return Carried(
        servers=servers,
        bridged=median(max(answer.wall for answer in answers) for answers in found["bridged"]),
        plain=median(max(answer.wall for answer in answers) for answers in found["plain"]),
        bridged_cpu=median(sum(answer.cpu for answer in answers) for answers in found["bridged"]),
        plain_cpu=median(sum(answer.cpu for answer in answers) for answers in found["plain"]),
        bytes=sum(answer.sent for answer in found["plain"][-1]),
        values=tuple(map(int, found["bridged"][-1][0].values)),
    )


def _together(way: str, arguments: Sequence[Sequence[str]], works: Sequence[Work]) -> list[Answer]:
    """Run one worker for each server; return the answers of all."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "smpc_dp.bench.engines_worker", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | ENVIRONMENT,
        )
        for given in arguments
    ]
    try:
        for process, work in zip(processes, works, strict=True):
            if process.stdin is not None:
                process.stdin.write(msgspec.json.encode(work))
                process.stdin.close()
                process.stdin = None
        answers = []
        for process in processes:
            out, errors = process.communicate(timeout=WORKER_SECONDS)
            if process.returncode:
                said = errors.decode("utf-8", "replace").strip().splitlines()
                raise LocalError(f"a worker of mpyc, {way}: {said[-1] if said else 'ended without a word'}")
            answers.append(msgspec.json.decode(out, type=Answer))
    except subprocess.TimeoutExpired:
        raise LocalError(f"mpyc, {way}, took more than {WORKER_SECONDS} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return answers


def _free_ports(count: int) -> int:
    """Return the first of `count` ports in a row, of which the first is free now and not below 20000."""
    while True:
        port = free_port()
        if 20_000 <= port <= 65_535 - count:
            return port
