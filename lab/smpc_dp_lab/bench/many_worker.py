"""Members of a session of many parties: the aggregator, or some hundred clients in one event loop.

`python -m smpc_dp_lab.bench.many_worker` reads its `Job` as JSON, and prints what it has measured as JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.engine.result import Result
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.session.events import Event
from smpc_dp.session.member import Membership
from smpc_dp.session.opening import open_connection
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp_lab.bench.resident import peak_bytes

# Values are whole multiples of a step in [-1, 1]: their sums are exact in float64 too.
STEP_BITS = 20
# Seconds between two looks for the files of other processes.
LOOK_SECONDS = 0.1


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does: the aggregator (no `parties`), or clients.

    Attributes:
        session: path of the session file.
        length: of a vector.
        seed: of all vectors.
        processes: how many processes of clients connect before any asks for the sum.
        number: of this process.
        parties: names of its clients.
        killed: the step in which a client's connection is cut.
        seconds: the most that the process may take.
    """

    session: str
    length: int
    seed: int
    processes: int
    number: int
    seconds: float
    parties: tuple[str, ...] = ()
    killed: Mapping[str, str] = {}


class Spent(msgspec.Struct, frozen=True):
    """Time on the machine's clock and processor time of this process, in seconds."""

    clock: float
    processor: float


class Taken(msgspec.Struct, kw_only=True):
    """What a process has measured: `marks` by the name of what had just ended, sizes in bytes."""

    marks: dict[str, Spent]
    peak: int
    descriptors: int
    results: dict[str, str]
    survivors: tuple[str, ...] = ()
    sent: list[int] = []
    received: list[int] = []
    failed: dict[str, str] = {}


def vector_of(name: str, length: int, seed: int) -> NDArray[np.float64]:
    """Return a party's vector: whole multiples of 2^-20 in [-1, 1], drawn by seed and name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    most = 1 << STEP_BITS
    drawn = np.random.default_rng([seed, number]).integers(-most, most, length, endpoint=True)
    return drawn / most


def digest_of(result: Result) -> str:
    """Return a digest of what all survivors must agree on: the value, the survivors and the absent."""
    said = msgspec.json.encode([result.survivors, result.absent])
    return hashlib.sha256(said + result.value.tobytes()).hexdigest()


def spent() -> Spent:
    """Return the time now, and the processor time of this process so far."""
    return Spent(time.clock_gettime(time.CLOCK_MONOTONIC), time.process_time())


def raise_limit(needed: int) -> None:
    """Raise the soft limit of open descriptors to the hard one; raise LocalError if that is below `needed`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise LocalError(
            f"{needed:,} descriptors are needed, this system allows {hard:,} of a process: raise the hard limit "
            "of open files (ulimit -Hn), or take fewer parties"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def open_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


class Clients:
    """Clients of one process, which share the session file and the event loop."""

    def __init__(self, job: Job, session: SessionFile) -> None:
        self._job = job
        self._session = session
        self.taken = Taken(marks={"loaded": spent()}, peak=0, descriptors=0, results={})

    async def run(self) -> None:
        """Connect all clients, wait for those of other processes, and compute the sum."""
        opened = await asyncio.gather(*(self._connect(name) for name in self._job.parties))
        self.taken.marks["connected"] = spent()
        self.taken.descriptors = open_descriptors()
        await self._meet("connected")
        self.taken.marks["begun"] = spent()
        await asyncio.gather(*(client.sum() for client in opened))
        self.taken.marks["done"] = spent()
        await asyncio.gather(*(client.close() for client in opened))

    async def _connect(self, name: str) -> Client:
        client = Client(name, self._job, self.taken)
        await client.connect(self._session)
        return client

    async def _meet(self, what: str) -> None:
        """Wait until all processes of clients have come so far."""
        folder = Path(self._job.session).parent / what
        folder.mkdir(exist_ok=True)
        (folder / str(self._job.number)).touch()
        while len(os.listdir(folder)) < self._job.processes:
            await asyncio.sleep(LOOK_SECONDS)


class Client:
    """One client: its session, and the step in which its connection is cut, if it is."""

    def __init__(self, name: str, job: Job, taken: Taken) -> None:
        self._name, self._job, self._taken = name, job, taken
        self._cut_at = job.killed.get(name)
        self._cut = False

    async def connect(self, session: SessionFile) -> None:
        """Connect as `smpc_dp.connect` does, with a session file that is read already."""
        membership = Membership.load(self._job.session, self._name, loaded=session)
        self._connection = await open_connection(membership, self._on_event)
        self._session = Session(membership, self._connection, self._on_event)

    async def sum(self) -> None:
        """Take part in the sum; record the result's digest, or the error of a client that was not cut."""
        vector = vector_of(self._name, self._job.length, self._job.seed)
        try:
            result = await self._session.sum(vector)
        except SmpcError as error:
            if not self._cut:
                self._taken.failed[self._name] = f"{type(error).__name__}: {error}"
            return
        if self._cut:
            return
        self._taken.results[self._name] = digest_of(result)
        if not self._taken.survivors:
            self._taken.survivors = result.survivors
            if self._job.number == 0:
                np.save(Path(self._job.session).parent / "value.npy", result.value)

    async def close(self) -> None:
        """Leave the session, unless the connection was cut."""
        if not self._cut:
            await self._session.close()

    def _on_event(self, event: Event) -> None:
        """Cut the connection, without goodbye, in the step of the kill; count the bytes of connections."""
        if event.kind == "traffic":
            self._taken.sent.append(event.sent)
            self._taken.received.append(event.received)
        if event.kind == "step" and event.step == self._cut_at and not self._cut:
            self._cut = True
            for connection in self._connection.connections.connections.values():
                connection.channel.abort()


async def serve(job: Job) -> Taken:
    """Serve one sum; measure each step."""
    taken = Taken(marks={}, peak=0, descriptors=0, results={})

    def on_event(event: Event) -> None:
        if event.kind == "connected":
            taken.marks["connected"] = spent()
            taken.descriptors = max(taken.descriptors, open_descriptors())
        elif event.kind == "step":
            taken.marks.setdefault(f"step {event.step}", spent())

    taken.marks["begun"] = spent()
    [ended] = await smpc_dp.serve(job.session, requests=1, on_event=on_event)
    taken.marks["done"] = spent()
    if isinstance(ended, SmpcError):
        raise ended
    if not isinstance(ended, Result):
        raise LocalError("another result than that of a sum")
    taken.survivors = ended.survivors
    taken.results = {"aggregator": digest_of(ended)}
    return taken


async def main(job: Job) -> Taken:
    """Do a job in the time that it may take."""
    async with asyncio.timeout(job.seconds):
        if not job.parties:
            return await serve(job)
        clients = Clients(job, await asyncio.to_thread(load_session, job.session))
        await clients.run()
        return clients.taken


if __name__ == "__main__":
    read = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    measured = asyncio.run(main(read))
    measured.peak = peak_bytes()
    sys.stdout.buffer.write(msgspec.json.encode(measured))
