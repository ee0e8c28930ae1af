"""Simulated sessions with saved states, whose members crash before drawn messages and are started again.

`python -m tests.faults.saved_session_schedules --runs 10000` plays so many in simulated time. A member
crashes when any member is about to send a drawn message: its tasks are cancelled, its channels are cut, and
what it has is what its folders have. Crashes between two writes of a step are in `test_saved_states.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from smpc_dp import database
from smpc_dp.errors import SmpcError
from smpc_dp.session.aggregator import log_folder, open_aggregator, serve_requests
from smpc_dp.session.events import ignore
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import SimulatedSession, simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.session.opening import open_connection
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.wire.envelope import Envelope

PARTIES, REQUESTS = 3, 2
# A sum of three parties has about 60 messages.
MESSAGES, CRASHES = 120, 3
EXACT: dict[str, object] = {
    "length": 1,
    "kind": "integer",
    "lower": 0,
    "upper": 9999,
    "dropout": 0,
    "corrupt": 0,
}
KINDS = (EXACT, EXACT | {"total": "unchecked"}, EXACT | {"same_survivors": False, "total": "unchecked"})
TIMEOUTS = Timeouts(connect=60.0, step=60.0, gather=60.0)


@dataclass
class Crashing:
    """The members of one run.

    Attributes:
        with_counter: whether they have counters.
        crashes: that are left: at which message, of whom, and for how many seconds it is down.
        down: the members that have crashed, and for how long.
        crashed: how often each has.
    """

    with_counter: ClassVar[bool] = True

    simulated: SimulatedSession
    folder: Path
    crashes: list[tuple[int, str, float]]
    sent: int = 0
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    down: dict[str, float] = field(default_factory=dict)
    results: dict[str, list[Any]] = field(default_factory=dict)
    crashed: Counter[str] = field(default_factory=Counter)

    def on_message(self, _envelope: Envelope, _size: int) -> None:
        """Crash whose turn it is, before the message is sent."""
        self.sent += 1
        while self.crashes and self.crashes[0][0] <= self.sent:
            _, name, seconds = self.crashes.pop(0)
            if name in self.tasks and not self.tasks[name].done() and name not in self.down:
                self.down[name] = seconds
                self.crashed[name] += 1
                self.tasks[name].cancel()

    def state(self, name: str) -> SavedSessionState:
        """Open the folders of a member."""
        membership, folder = self.simulated.membership(name, self.folder), self.folder / "states" / name
        if not self.with_counter:
            return SavedSessionState(membership, folder)
        counter = self.folder / "counters" / name
        counter.mkdir(parents=True, exist_ok=True)
        return SavedSessionState(membership, folder, counter)

    async def member(self, name: str) -> None:
        """Let a member take part, in as many processes as it needs."""
        while True:
            work = self.serve(name) if name == AGGREGATOR else self._compute(name)
            self.tasks[name] = asyncio.ensure_future(work)
            await asyncio.wait([self.tasks[name]])
            if name not in self.down:
                self.tasks[name].result()
                return
            await asyncio.sleep(self.down[name])
            del self.down[name]

    async def serve(self, name: str) -> None:
        """Serve all requests as the aggregator, in one process."""
        membership, state = self.simulated.membership(name, self.folder), self.state(name)
        try:
            logs = log_folder(membership, self.folder / "session.toml", None)
            opening = open_aggregator(membership, logs=logs, is_endless=True, state=state)
            await serve_requests(membership, opening, 0)
        finally:
            state.close()

    async def calls(self, session: Session, got: list[Any]) -> None:
        """Make the calls of a party whose results are not there yet, and add these."""
        for number in range(len(got) + 1, REQUESTS + 1):
            result = await session.sum([number], label=f"round {number}")
            got.append((result.value.tolist(), result.survivors))

    async def _compute(self, name: str) -> None:
        membership, state = self.simulated.membership(name, self.folder), self.state(name)
        session: Session | None = None
        try:
            session = Session(membership, await open_connection(membership, ignore, state=state), ignore)
            await self.calls(session, self.results.setdefault(name, []))
            await session.close()
        except SmpcError as error:
            self.results.setdefault(name, []).append(error)
        finally:
            if session is not None and not session.closed:
                # As a process that ends: without a goodbye.
                session._requests.connection.connections.abort()
            state.close()


def drawn_crashes(
    drawn: random.Random, members: Sequence[str], messages: int
) -> list[tuple[int, str, float]]:
    """Return crashes of members before some of the first messages."""
    return sorted(
        (drawn.randrange(1, messages), drawn.choice(members), drawn.uniform(0.0, 20.0))
        for _ in range(drawn.randint(1, CRASHES))
    )


def play(seed: int, folder: Path) -> Crashing:
    """Play one run; raise AssertionError unless all go on to all totals."""
    drawn = random.Random(seed)
    (folder / "keys").mkdir(parents=True)
    connections = MemoryConnections()
    simulated = simulated_session(
        "secagg",
        drawn.choice(KINDS),
        PARTIES,
        seed_for_simulation=seed,
        shared=OneProcess(connections),
        timeouts=TIMEOUTS,
    )
    crashes = drawn_crashes(drawn, (AGGREGATOR, *simulated.parties), MESSAGES)
    run = Crashing(simulated, folder, crashes)
    run_crashing(run, connections)
    everyone = tuple(simulated.parties)
    wanted = [([PARTIES * number], everyone) for number in range(1, REQUESTS + 1)]
    assert all(got == wanted for got in run.results.values()), f"seed {seed}: {run.crashed}: {run.results}"
    return run


def run_crashing(run: Crashing, connections: MemoryConnections) -> None:
    """Run all members until the parties have ended."""
    connections.on_message = run.on_message

    async def members() -> None:
        serving = asyncio.ensure_future(run.member(AGGREGATOR))
        try:
            parties = (run.member(name) for name in run.simulated.parties)
            await asyncio.wait_for(asyncio.gather(*parties), 3600.0)
        finally:
            run.down.clear()
            run.crashes.clear()
            if AGGREGATOR in run.tasks:
                run.tasks[AGGREGATOR].cancel()
            serving.cancel()
            await asyncio.gather(serving, run.tasks[AGGREGATOR], return_exceptions=True)

    run_simulation(members)


def without_syncs(patch: pytest.MonkeyPatch) -> None:
    """Nobody takes the power away."""
    patch.setattr(os, "fsync", lambda _descriptor: None)
    patch.setattr(database, "SYNCHRONOUS", "OFF")


def main() -> None:
    """Play seeded runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    chosen = parser.parse_args()
    crashed: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        for seed in range(chosen.first, chosen.first + chosen.runs):
            folder = Path(tempfile.mkdtemp())
            try:
                crashed += play(seed, folder / "session").crashed
            finally:
                shutil.rmtree(folder)
    print(f"{chosen.runs} runs went on, with {crashed.total()} crashes: {dict(crashed)}")
    sys.exit(0)


if __name__ == "__main__":
    main()
