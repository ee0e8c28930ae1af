"""One server of the measurements of `smpc-dp bench engines`: `python -m smpc_dp_lab.bench.servers_worker`.

It reads its work from standard input, as JSON, and answers on standard output. mpyc is in this process and
connects by itself, over TCP on 127.0.0.1; or, given a session, in a process of its own behind its channels.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from functools import partial
from typing import Any

import msgspec

from smpc_dp.capabilities.servers.requests.child import Answer, cpu_seconds, run_timed_program, wait_for_peers
from smpc_dp.capabilities.servers.requests.computing_server import ComputingServer
from smpc_dp.capabilities.servers.secret_sharing.params import threshold_of
from smpc_dp.capabilities.servers.secret_sharing.server import Job
from smpc_dp.capabilities.servers.secret_sharing.sharing import mpyc_arguments
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.statistics.kernels import Way
from smpc_dp.session.events import ignore
from smpc_dp.session.member import Membership


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Input of one server's worker process: program, shares, number of runs, and connections.

    `shares` are in hex. Without a `session`, `ports` are those of all servers and `listening` a descriptor of
    the own one's socket; with `warm` there is one more computation first; `delay` is added to each message.
    With a session, every computation is the first of a process, and `name` is the server's.
    """

    terms: ProgramTerms
    shares: list[list[str]]
    runs: int
    index: int
    ports: list[int] = []
    listening: int = -1
    warm: bool = True
    way: Way | None = None
    delay: float = 0.0
    session: str = ""
    name: str = ""

    @property
    def job(self) -> Job:
        """The program's terms with this server's shares as integers."""
        return Job(self.terms, [[int(share, 16) for share in row] for row in self.shares])


class Reported(msgspec.Struct, frozen=True):
    """The last opened result, in decimal; for each run the time and its number of rounds, 0: not counted.

    `carrying` is the processor time, in seconds, that this process spent on the channels in each run.
    """

    opened: list[str]
    answers: list[Answer]
    rounds: list[int]
    carrying: list[float]


def main() -> None:
    """Run the work that standard input describes, and print the report as JSON."""
    work = msgspec.json.decode(sys.stdin.buffer.read(), type=Work)
    reported = asyncio.run(_over_channels(work)) if work.session else _over_own_sockets(work)
    sys.stdout.buffer.write(msgspec.json.encode(reported))


async def _over_channels(work: Work) -> Reported:
    membership = Membership.load(work.session, work.name, role="server")
    aggregator = await ComputingServer.open(membership, ignore)
    answers, carrying = [], []
    try:
        for _ in range(work.runs):
            busy = cpu_seconds()
            answers.append(await aggregator.compute(work.job))
            carrying.append(cpu_seconds() - busy)
        await aggregator.close()
    finally:
        await aggregator.stop()
    return Reported(answers[-1].values, answers, [0] * len(answers), carrying)


def _over_own_sockets(work: Work) -> Reported:
    addresses = [f"-P127.0.0.1:{port}" for port in work.ports]
    threshold = threshold_of(len(work.ports))
    with mpyc_arguments(*addresses, f"-I{work.index}", f"-K{work.terms.security}", f"-T{threshold}"):
        from mpyc.runtime import mpc
    reported: Reported = mpc.run(_compute(mpc, work))
    return reported


async def _compute(mpc: Any, work: Work) -> Reported:
    loop: Any = asyncio.get_running_loop()
    # By itself mpyc listens on every interface.
    loop.create_server = partial(_listen, loop.create_server, work.listening)
    await mpc.start()
    shares = work.job.shares
    bursts = _Bursts(work.delay) if work.delay else None
    answers, rounds = [], []
    opened: list[str] = []
    for run in range(work.runs + work.warm):
        await wait_for_peers(mpc, work.terms)
        first = bursts.count if bursts else 0
        answer = await run_timed_program(mpc, work.terms, shares, work.way)
        opened = answer.values
        if run >= work.warm:
            answers.append(answer)
            rounds.append(bursts.count - first if bursts else 0)
    await mpc.shutdown()
    return Reported(opened, answers, rounds, [0.0] * len(answers))


async def _listen(create_server: Any, listening: int, factory: Any, **_: Any) -> Any:
    return await create_server(factory, sock=socket.socket(fileno=listening))


class _Bursts:
    """Delays every message, and counts how often messages follow a pause: the rounds."""

    def __init__(self, delay: float) -> None:
        from mpyc.asyncoro import MessageExchanger

        loop = asyncio.get_running_loop()
        at_once = MessageExchanger.data_received
        self.count = 0
        self._last = loop.time()

        def arrive(exchanger: Any, data: bytes) -> None:
            now = loop.time()
            self.count += now - self._last > delay / 2
            self._last = now
            at_once(exchanger, data)

        def later(exchanger: Any, data: bytes) -> None:
            loop.call_later(delay, arrive, exchanger, data)

        MessageExchanger.data_received = later


if __name__ == "__main__":
    main()
