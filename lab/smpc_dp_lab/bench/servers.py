"""A program on shares among processes of this host, over mpyc's own sockets or our channels."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from smpc_dp.capabilities.servers.requests.engine import ENVIRONMENT
from smpc_dp.capabilities.servers.secret_sharing.params import threshold_of
from smpc_dp.capabilities.servers.secret_sharing.sharing import field_bytes, split, unpack
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.statistics.kernels import Way
from smpc_dp.errors import LocalError
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp_lab.bench.servers_worker import Reported, Work
from smpc_dp_lab.bench.workers import together

WORKER_SECONDS = 900
# Of every message, where rounds are counted: far above what a small program computes in a round.
DELAY = 0.4


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of runs: the opened result, equal at all servers, and each run's time without start-up.

    Seconds by the clock, of the slowest server; of processor time, and bytes of mpyc's messages, of all
    servers together. Processor time is with that of the channels, where they are used.
    """

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
    warm: bool = True,
    channels: bool = False,
    shares: Sequence[Sequence[Sequence[int]]] | None = None,
) -> Measured:
    """Share records, or take `shares` (server, party, value), and run the program `runs` times.

    Args:
        terms, records, servers: what is computed, shape (parties, length), and among how many.
        way: how a statistic's sum is computed, if not in the cheapest way; not over channels.
        delay: seconds, added to every message for counting rounds; not over channels.
        warm: run the program once before, in the same processes; over channels each run is a process's first.
        channels: as in a session, mpyc in processes of its own behind mutual TLS; else over mpyc's own
            sockets, on loopback.

    Raises LocalError where a server fails, or opens something else than another one.
    """
    held = split_records(terms, records, servers) if shares is None else shares
    works = [
        Work(
            terms=terms,
            shares=[[f"{share:x}" for share in row] for row in held[index]],
            runs=runs,
            index=index,
            warm=warm,
            way=way,
            delay=delay,
        )
        for index in range(servers)
    ]
    reported = _over_channels(works) if channels else _over_own_sockets(works)
    if any(each.opened != reported[0].opened for each in reported):
        raise LocalError("servers opened different values")
    busy = [[answer.cpu + more for answer, more in zip(t.answers, t.carrying, strict=True)] for t in reported]
    answers = [each.answers for each in reported]
    return Measured(
        opened=[int(value) for value in reported[0].opened],
        wall=[max(answer.wall for answer in run) for run in zip(*answers, strict=True)],
        cpu=[sum(run) for run in zip(*busy, strict=True)],
        sent=[sum(answer.sent for answer in run) for run in zip(*answers, strict=True)],
        # A pause in the middle of a round, on a busy machine, makes some server count one more.
        rounds=min((count for each in reported for count in each.rounds), default=0),
    )


def split_records(
    terms: ProgramTerms, records: Sequence[Sequence[int]], servers: int
) -> list[list[list[int]]]:
    """Return Shamir shares of all records, indexed by server, party and value."""
    held: list[list[list[int]]] = [[] for _ in range(servers)]
    for number, record in enumerate(records):
        packed = split(record, terms.prime, threshold_of(servers), servers)
        for own, row in zip(held, packed, strict=True):
            own.append(unpack(row, len(row) // field_bytes(terms.prime), terms.prime, f"user {number}"))
    return held


def _over_own_sockets(works: Sequence[Work]) -> list[Reported]:
    with _listening(len(works)) as sockets:
        ports = [each.getsockname()[1] for each in sockets]
        ready = [
            msgspec.structs.replace(work, ports=ports, listening=own.fileno())
            for work, own in zip(works, sockets, strict=True)
        ]
        return _together(ready)


def _over_channels(works: Sequence[Work]) -> list[Reported]:
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        session = create_local_session(
            Path(folder),
            ["alice", "bob"],
            {},
            protocol="mpyc",
            servers=len(works),
            timeouts=Timeouts(60.0, 120.0, 60.0),
        )
        return _together(
            [
                msgspec.structs.replace(work, session=str(session), name=f"server{work.index + 1}")
                for work in works
            ]
        )


@contextmanager
def _listening(servers: int) -> Iterator[list[socket.socket]]:
    """Open a listening socket on loopback for each server, so that no other process takes its port."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(servers):
            sockets.append(socket.create_server(("127.0.0.1", 0)))
        yield sockets
    finally:
        for each in sockets:
            each.close()


def _together(works: Sequence[Work]) -> list[Reported]:
    """Run one worker process for each server, all at once; return their reports."""
    count = len(works)
    printed = together(
        "servers_worker",
        [[]] * count,
        "a server",
        WORKER_SECONDS,
        [msgspec.json.encode(work) for work in works],
        env=[os.environ | ENVIRONMENT] * count,
        pass_fds=[() if work.listening < 0 else (work.listening,) for work in works],
        # As mpyc behind channels: the scheduler shares a busy machine out among sessions.
        start_new_session=[True] * count,
    )
    return [msgspec.json.decode(reported, type=Reported) for reported in printed]
