"""Members of a session of many parties: the aggregator, or some hundred clients in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import time
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.engine.phases.messages import PARTICIPANTS, START
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.result import Result
from smpc_dp.engine.run import Run
from smpc_dp.engine.session_protocol import MakeParty
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.identity.address import split_address
from smpc_dp.session.connection import AggregatorConnection, Connection
from smpc_dp.session.events import Event
from smpc_dp.session.member import Membership
from smpc_dp.session.memory.simulated_run import RememberingVerifier
from smpc_dp.session.opening import open_connection
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import SessionFile
from smpc_dp.wire.signing import Context
from smpc_dp_lab.bench.many_trouble import SlowLine, call_as_strangers, flood
from smpc_dp_lab.bench.resident import peak_bytes

# Values are whole multiples of a step in [-1, 1]: their sums are exact in float64 too.
STEP_BITS = 20
# Clients that connect at a time, of all processes: of one host an aggregator admits twice as many.
CONNECTING = 64
# Seconds between two looks for the files of other processes.
LOOK_SECONDS = 0.1


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does: the aggregator (no `parties`), or clients.

    Attributes:
        session: path of the session file.
        length: of a vector.
        seed: of all vectors.
        requests: how many sums.
        processes: how many processes of clients connect before any asks for the sum.
        number: of this process.
        seconds: the most that the process may take.
        parties: names of its clients.
        killed: of a client whose connection is cut, request and step.
        slow: the client whose masked vector is sent slowly in `slow_seconds`; empty for none.
        flooding: the client that sends wrong messages, from its step in `killed` on; empty for none.
        strangers: whether strangers connect from this process.
        shared: whether what is public is checked once for all clients of this process.
        leaving: clients that leave and come back in the first request, and after it.
    """

    session: str
    length: int
    seed: int
    requests: int
    processes: int
    number: int
    seconds: float
    parties: tuple[str, ...] = ()
    killed: Mapping[str, tuple[int, str]] = {}
    slow: str = ""
    slow_seconds: float = 0.0
    flooding: str = ""
    strangers: bool = False
    shared: bool = False
    leaving: frozenset[str] = frozenset()


class Spent(msgspec.Struct, frozen=True):
    """Time on the machine's clock and processor time of this process, in seconds."""

    clock: float
    processor: float


class Taken(msgspec.Struct, kw_only=True):
    """Measurements of one process: times by the event that had just ended, and sizes in bytes.

    Attributes:
        results: of each request, by member, the digest of its result.
        survivors: of each request, as the first result of the process names them.
        descriptors: the most that the aggregator had open, without those that it inherited.
        sent, received: of each connection.
        failed: the errors of clients that were not cut, and have not left.
        refused: connections that the aggregator has refused, or that ended by an error.
        strangers: connections of strangers from this process.
    """

    moments: dict[str, Spent]
    results: list[dict[str, str]]
    survivors: dict[int, tuple[str, ...]] = {}
    peak: int = 0
    descriptors: int = 0
    sent: list[int] = []
    received: list[int] = []
    failed: dict[str, str] = {}
    refused: int = 0
    strangers: int = 0


def vector_of(name: str, length: int, seed: int) -> NDArray[np.float64]:
    """Return a party's vector: whole multiples of 2^-20 in [-1, 1], drawn by seed and name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    most = 1 << STEP_BITS
    drawn = np.random.default_rng([seed, number]).integers(-most, most, length, endpoint=True)
    return drawn / most


def digest_of(result: Result) -> str:
    """Return a digest of what all survivors must agree on: the value, the survivors and the absent."""
    names = msgspec.json.encode([result.survivors, result.absent])
    return hashlib.sha256(names + result.value.tobytes()).hexdigest()


def spent() -> Spent:
    """Return the time now, and the processor time of this process so far."""
    return Spent(time.clock_gettime(time.CLOCK_MONOTONIC), time.process_time())


def raise_limit(needed: int) -> None:
    """Raise the soft limit of open descriptors to `needed`; raise LocalError if the hard one is below."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise LocalError(
            f"{needed:,} descriptors are needed, this system allows {hard:,} of a process: raise the hard "
            "limit of open files (ulimit -Hn), or take fewer parties"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def open_descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def value_file(session: str, request: int) -> Path:
    """Return the file in which the first process of clients stores the value of a request."""
    return Path(session).with_name(f"value{request}.npy")


def shared_checks() -> MakeParty:
    """Return a function that makes parties' roles that share a cache of checks of public messages."""
    memo: dict[tuple[Hashable, ...], Any] = {}
    verifier = RememberingVerifier()

    def make(context: Context, *arguments: Any, **named: Any) -> Run[Any]:
        return make_party(replace(context, verify=verifier, memo=memo), *arguments, **named)

    return make


class Clients:
    """Clients of one process, which share the session file and the event loop."""

    def __init__(self, job: Job, session: SessionFile) -> None:
        self._job = job
        self._session = session
        self.taken = Taken(moments={"loaded": spent()}, results=[{} for _ in range(job.requests)])

    async def run(self) -> None:
        """Connect all clients, wait for those of other processes, and compute the sums."""
        role = shared_checks() if self._job.shared else None
        clients = [Client(name, self._job, self._session, self.taken, role) for name in self._job.parties]
        limit = asyncio.Semaphore(max(1, CONNECTING // self._job.processes))
        await asyncio.gather(*(client.connect(limit) for client in clients))
        self.taken.moments["connected"] = spent()
        await self._meet("connected")
        self.taken.moments["begun"] = spent()
        calling = asyncio.ensure_future(self._call_as_strangers())
        for request in range(1, self._job.requests + 1):
            await asyncio.gather(*(client.sum(request) for client in clients))
            if request < self._job.requests:
                await asyncio.gather(*(client.come_back() for client in clients))
                await self._meet(f"request{request}")
        self.taken.moments["done"] = spent()
        await asyncio.gather(*(client.close() for client in clients))
        self.taken.strangers = await calling

    async def _call_as_strangers(self) -> int:
        """Call as strangers do, if this process is to; return how many have called."""
        aggregator = self._session.roster.aggregator
        if not self._job.strangers or aggregator is None:
            return 0
        return await call_as_strangers(split_address(aggregator.address or ""))

    async def _meet(self, point: str) -> None:
        """Wait until all processes of clients have reached this named point."""
        folder = Path(self._job.session).parent / point
        folder.mkdir(exist_ok=True)
        (folder / str(self._job.number)).touch()
        while len(os.listdir(folder)) < self._job.processes:
            await asyncio.sleep(LOOK_SECONDS)


class Client:
    """One simulated client: its session, and when it is cut off, leaves, floods or is slow."""

    def __init__(
        self, name: str, job: Job, session: SessionFile, taken: Taken, role: MakeParty | None
    ) -> None:
        self._job, self._taken, self._role = job, taken, role
        self._member = Membership.load(job.session, name, loaded=session)
        # Request and step in which the connection is cut next; `over`: it was, for good.
        self._cut_at = job.killed.get(name)
        self._over = False
        self._leaves = name in job.leaving
        self._line: SlowLine | None = None
        self._flood: asyncio.Future[None] | None = None

    async def connect(self, limit: asyncio.Semaphore) -> None:
        """Connect as `smpc_dp.connect` does, a few at a time, with a session file that is read already."""
        async with limit:
            await self._connect()

    async def _connect(self) -> None:
        """Open the client's connection, over a slow line if the job says so, and its session."""
        self._connection: Connection
        if self._member.name == self._job.slow:
            self._line = SlowLine(self._member)
            self._connection = await AggregatorConnection.open(
                self._member, self._line, self._on_event, self._role
            )
        else:
            self._connection = await open_connection(self._member, self._on_event, role=self._role)
        self._session = Session(self._member, self._connection, self._on_event)

    async def sum(self, request: int) -> None:
        """Take part in one sum, unless the client was cut off; record the result's digest, or the error."""
        if self._over:
            return
        vector = vector_of(self._member.name, self._job.length, self._job.seed + request)
        try:
            if self._leaves and request == 1:
                await self._leave_and_come_back(vector)
            result = await self._session.sum(vector, number=request)
        except SmpcError as error:
            # Who comes back may be too late for the request under way.
            if not self._over and not self._leaves:
                self._taken.failed[self._member.name] = f"{type(error).__name__}: {error}"
            return
        self._taken.results[request - 1][self._member.name] = digest_of(result)
        if request not in self._taken.survivors:
            self._taken.survivors[request] = result.survivors
            if self._job.number == 1:
                np.save(value_file(self._job.session, request), result.value)

    async def _leave_and_come_back(self, vector: NDArray[np.float64]) -> None:
        """Ask for the first sum, be cut, and connect as a new process would."""
        self._cut_at = (1, START)
        with contextlib.suppress(SmpcError):
            await self._session.sum(vector, number=1)
        self._over, self._cut_at = False, None
        await self._connect()

    async def come_back(self) -> None:
        """Leave after a request and connect again, if this client does so."""
        if self._leaves:
            await self._session.close()
            await self._connect()

    async def close(self) -> None:
        """Leave the session, unless the connection was cut; end the flood."""
        if self._flood is not None:
            # The aggregator may be gone, and would be called for long.
            self._flood.cancel()
            await asyncio.gather(self._flood, return_exceptions=True)
        if not self._over:
            await self._session.close()

    def _on_event(self, event: Event) -> None:
        """Count a connection's bytes; at the planned step, slow down, cut or flood the connection."""
        if event.kind == "traffic":
            self._taken.sent.append(event.sent)
            self._taken.received.append(event.received)
        if event.kind != "step" or self._over:
            return
        if self._line is not None and event.step == PARTICIPANTS:
            self._line.slow_down(
                self._job.length * self._member.encoding.element_bytes, self._job.slow_seconds
            )
        if (event.request, event.step) == self._cut_at:
            self._over = True
            channels = [one.channel for one in self._connection.connections.connections.values()]
            if self._member.name == self._job.flooding:
                self._flood = asyncio.ensure_future(flood(self._member, channels[0]))
                return
            for channel in channels:
                channel.abort()


async def serve(job: Job) -> Taken:
    """Serve a job's sums as aggregator; return times and sizes, with each step of the first sum."""
    taken = Taken(moments={}, results=[])
    # A forked process has descriptors of its parent, too.
    inherited = open_descriptors()

    def on_event(event: Event) -> None:
        if event.kind == "refused":
            taken.refused += 1
        elif event.kind == "connected" and not taken.results:
            taken.moments.setdefault("listening", spent())
            taken.moments["connected"] = spent()
            taken.descriptors = max(taken.descriptors, open_descriptors() - inherited)
        elif event.kind == "step":
            taken.moments.setdefault(f"{event.request} {event.step}", spent())

    taken.moments["begun"] = spent()
    served = await smpc_dp.serve(job.session, requests=job.requests, on_event=on_event)
    taken.moments["done"] = spent()
    for request, ended in enumerate(served, 1):
        if isinstance(ended, SmpcError):
            raise ended
        if not isinstance(ended, Result):
            raise LocalError("another result than that of a sum")
        taken.survivors[request] = ended.survivors
        taken.results.append({"aggregator": digest_of(ended)})
    return taken


def run_clients(job: Job, session: SessionFile, file: Path) -> None:
    """Run the clients of a job, within its time limit; write their measurements to a file."""

    async def main() -> Taken:
        async with asyncio.timeout(job.seconds):
            clients = Clients(job, session)
            await clients.run()
            return clients.taken

    _write(asyncio.run(main()), file)


def run_aggregator(job: Job, file: Path) -> None:
    """Run the aggregator of a job, within its time limit; write its measurements to a file."""

    async def main() -> Taken:
        async with asyncio.timeout(job.seconds):
            return await serve(job)

    _write(asyncio.run(main()), file)


def _write(taken: Taken, file: Path) -> None:
    taken.peak = peak_bytes()
    file.write_bytes(msgspec.json.encode(taken))
