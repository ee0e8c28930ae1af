"""Simulated sessions of GOPA without an aggregator, whose parties crash and are started again.

`python -m tests.faults.saved_direct_schedules --runs 1000` plays so many in simulated time, and prints why
parties have stopped. Crashes are as in `saved_session_schedules`, also of two parties at once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.engine.phases.messages import HELLO, Hello
from smpc_dp.errors import OtherRequestError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.connection import IN_NO_TOTAL, IN_TOTAL
from smpc_dp.session.events import ignore
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import SimulatedSession, simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import party_names
from smpc_dp.session.opening import open_connection
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.session.session_state import SessionState
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.wire.abort import ABORT, LEAVE
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from tests.faults.saved_session_schedules import TIMEOUTS, without_syncs

REQUESTS = 2
GIVEN: dict[str, object] = {
    "topology": "direct",
    "length": 1,
    "lower": 0.0,
    "upper": 9.0,
    "epsilon": 9.0,
    "delta": 1e-6,
}
# Of four parties no one can be lost, of five one.
PARTIES = (3, 4, 5)
CRASHES = 3
# Seconds that a crashed party is down, and the longest that a party waits between two calls.
DOWN, BETWEEN = 20.0, 5.0
# How often a program is started that ends since too few are there.
TRIES = 5


# Which parties crash before a message is sent, and for how many seconds they are down; None: none.
Crash = tuple[tuple[str, ...], float]
Rule = Callable[[int, Envelope], Crash | None]


def drawn_rule(crashes: list[tuple[int, Crash]]) -> Rule:
    """Return the rule of crashes before messages of these numbers."""

    def crash(sent: int, _envelope: Envelope) -> Crash | None:
        return crashes.pop(0)[1] if crashes and crashes[0][0] <= sent else None

    return crash


@dataclass
class Played:
    """What became of one session.

    Attributes:
        rule: who crashes.
        stateless: the parties without a state.
        down: the parties that have crashed, and for how long.
        crashed, alone: how often a party has, and how often its program has ended since too few were there.
        results, errors: by party and request; 0: of a program that has ended so in its last try.
        bodies: by sender, run, step and, of what is signed for one party, receiver, what was sent.
    """

    simulated: SimulatedSession
    folder: Path
    rule: Rule
    drawn: random.Random
    with_counter: bool = True
    stateless: tuple[str, ...] = ()
    requests: int = REQUESTS
    sent: int = 0
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    down: dict[str, float] = field(default_factory=dict)
    crashed: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    results: dict[str, dict[int, Any]] = field(default_factory=lambda: defaultdict(dict))
    errors: dict[str, dict[int, SmpcError]] = field(default_factory=lambda: defaultdict(dict))
    bodies: dict[tuple[object, ...], set[tuple[bytes, bytes]]] = field(
        default_factory=lambda: defaultdict(set)
    )

    def on_message(self, envelope: Envelope, _size: int) -> None:
        """Note a message that is sent, and crash whose turn it is."""
        self.sent += 1
        apart: object = envelope.receiver if envelope.step in d.TO_ONE else ""
        if envelope.step == HELLO:
            apart = decode(envelope.body, Hello, envelope.sender).request
        if envelope.step not in (ABORT, LEAVE, d.WITNESS):
            key = (envelope.sender, envelope.run_id, envelope.step, apart)
            self.bodies[key].add((bytes(envelope.body), bytes(envelope.signature)))
        if (crash := self.rule(self.sent, envelope)) is not None:
            names, seconds = crash
            for name in names:
                if name in self.tasks and not self.tasks[name].done() and name not in self.down:
                    self.down[name] = seconds
                    self.crashed[name] += 1
                    self.tasks[name].cancel()

    def ledger(self, name: str) -> Path:
        return self.folder / f"{name}.ledger"

    def _state(self, name: str) -> SessionState:
        if name in self.stateless:
            return SessionState()
        counter = self.folder / "counters" / name
        counter.mkdir(parents=True, exist_ok=True)
        membership = self.simulated.membership(name, self.folder)
        folder = self.folder / "states" / name
        return SavedSessionState(membership, folder, counter if self.with_counter else None)

    async def party(self, name: str) -> None:
        """Let a party take part, in as many processes as it needs."""
        Ledger.create(
            self.ledger(name), party=name, dataset="d", relation="substitution", epsilon=99.0, delta=1e-4
        )
        tries = TRIES
        while tries:
            self.errors[name].pop(0, None)
            self.tasks[name] = asyncio.ensure_future(self._process(name))
            await asyncio.wait([self.tasks[name]])
            if name in self.down:
                await asyncio.sleep(self.down[name])
                del self.down[name]
                continue
            self.tasks[name].result()
            if 0 not in self.errors[name]:
                return
            # Nobody was there: its program is started again.
            tries -= 1
            self.alone[name] += 1
            await asyncio.sleep(DOWN)

    async def _process(self, name: str) -> None:
        """Take part in the requests that have ended for no earlier process of the party."""
        results, errors = self.results[name], self.errors[name]
        membership = self.simulated.membership(name, self.folder)
        state, connection = self._state(name), None
        try:
            connection = await open_connection(membership, ignore, state=state)
            session = Session(membership, connection, ignore, Ledger.open(self.ledger(name)))
            number = max([0, *results, *errors]) + 1
            while number <= self.requests:
                try:
                    results[number] = await session.sum(
                        [float(number)], label=f"round {number}", number=number
                    )
                    number += 1
                except OtherRequestError as error:
                    errors[number] = error
                    number = error.next
                except SmpcError as error:
                    if isinstance(error, TimeoutFault) and error.step == "connect":
                        raise
                    errors[number] = error
                    number += 1
                await asyncio.sleep(self.drawn.uniform(0.0, BETWEEN))
            await session.close()
        except SmpcError as error:
            errors[0] = error
        finally:
            if connection is not None:
                # As a process that ends: without a goodbye.
                await connection._stop()  # type: ignore[attr-defined]
            state.close()

    @property
    def went_on(self) -> bool:
        """Whether each party has each total, of the vectors of all."""
        everyone = self.simulated.parties
        return all(
            [one.survivors for one in self.results[name].values()] == [everyone] * self.requests
            for name in everyone
        )

    def check(self) -> None:
        """Raise AssertionError for totals that differ, two messages of a step, wrong charges and errors."""
        faults = [one for errors in self.errors.values() for one in errors.values()]
        assert not any(isinstance(one, PeerFault) for one in faults), faults
        for number in range(1, self.requests + 1):
            got = {name: one[number] for name, one in self.results.items() if number in one}
            totals = {(one.value.tobytes(), one.survivors) for one in got.values()}
            assert len(totals) <= 1, self.results
            for one in got.values():
                # Seven standard errors: a false alarm in 4e11 requests.
                off = one.value[0] - number * len(one.survivors)
                assert abs(off) < 7 * one.standard_error, (number, one)
            # A party without a state does not know of its vectors in earlier processes.
            for name in self.errors.keys() - {*self.stateless}:
                error = self.errors[name].get(number)
                text, told = str(error or IN_TOTAL), isinstance(error, OtherRequestError)
                assert told or text.endswith(("that others have", IN_NO_TOTAL)), text
                counted = any(name in one.survivors for one in got.values())
                assert not counted or not (told or text.endswith(IN_NO_TOTAL)), (name, text)
        kept = [each for (sender, *_), each in self.bodies.items() if sender not in self.stateless]
        assert all(len(each) == 1 for each in kept), kept
        for name in self.simulated.parties:
            published = {run for sender, run, step, _ in self.bodies if (sender, step) == (name, PUBLISH)}
            charged = [bytes.fromhex(entry.run) for entry in Ledger.open(self.ledger(name)).entries()]
            # Nothing is released uncharged, nothing is charged twice.
            assert published <= set(charged), (name, published, charged)
            assert len(charged) == len(set(charged)), (name, charged)
            assert len(charged) <= self.requests or name in self.stateless, (name, charged)


def session(
    seed: int, folder: Path, parties: int, rule: Rule, *, timeouts: Timeouts = TIMEOUTS, **options: Any
) -> Played:
    """Play one session of so many parties, and check it; `options`: fields of `Played`."""
    (folder / "keys").mkdir(parents=True)
    connections = MemoryConnections()
    shared = OneProcess(connections)
    simulated = simulated_session(
        "gopa", GIVEN, parties, seed_for_simulation=seed, shared=shared, timeouts=timeouts
    )
    played = Played(simulated, folder, rule, random.Random(seed), **options)
    connections.on_message = played.on_message

    async def members() -> None:
        await asyncio.wait_for(asyncio.gather(*map(played.party, simulated.parties)), 36_000.0)

    run_simulation(members)
    try:
        played.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {played.crashed}: {error}") from error
    return played


def play(
    seed: int,
    folder: Path,
    *,
    with_counter: bool = True,
    stateless: int = 0,
    crashes: int = CRASHES,
    down: float = DOWN,
) -> Played:
    """Play one session with up to so many drawn crashes, each for up to `down` seconds.

    `stateless`: how many parties, which are drawn, have no state.
    """
    drawn = random.Random(seed)
    parties = drawn.choice(PARTIES)
    # Letters of each party to each other in seven steps of each request.
    messages = 7 * parties * (parties - 1) * REQUESTS
    due = [
        (
            drawn.randrange(1, messages),
            (tuple(drawn.sample(party_names(parties), drawn.choice((1, 1, 2)))), drawn.uniform(0.0, down)),
        )
        for _ in range(drawn.randint(1, crashes))
    ]
    without = tuple(drawn.sample(party_names(parties), min(stateless, parties)))
    return session(
        seed, folder, parties, drawn_rule(sorted(due)), with_counter=with_counter, stateless=without
    )


def reason(error: SmpcError) -> str:
    """Return the text of an error without names and numbers."""
    return re.sub(
        r"\d+", "#", re.sub(r"party-\d+(, party-\d+)*", "PARTY", f"{type(error).__name__}: {error}")
    )


def main() -> None:
    """Play seeded sessions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--no-counter", action="store_true")
    parser.add_argument("--stateless", type=int, default=0)
    parser.add_argument("--crashes", type=int, default=CRASHES)
    parser.add_argument("--down", type=float, default=DOWN)
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    crashes, reasons, went_on, resumed, refuted = 0, Counter[str](), 0, 0, 0
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        for seed in range(chosen.first, chosen.first + chosen.runs):
            folder = Path(tempfile.mkdtemp())
            try:
                played = play(
                    seed,
                    folder / "session",
                    with_counter=not chosen.no_counter,
                    stateless=chosen.stateless,
                    crashes=chosen.crashes,
                    down=chosen.down,
                )
            except (AssertionError, TimeoutError) as error:
                refuted += 1
                print(f"seed {seed}: {error!r}", flush=True)
                continue
            finally:
                shutil.rmtree(folder)
            crashes += played.crashed.total()
            went_on += played.went_on
            resumed += sum(one.resumed for got in played.results.values() for one in got.values())
            if not played.went_on:
                stopped = [reason(error) for errors in played.errors.values() for error in errors.values()]
                reasons.update(stopped or ["without some party"])
                if chosen.verbose:
                    print(f"seed {seed}: {dict(played.crashed)}: {dict(played.errors)}", flush=True)
    print(f"{went_on} of {chosen.runs} sessions went on, {crashes} crashes, {resumed} results resumed")
    for text, count in reasons.most_common():
        print(f"{count:5} {text}")
    sys.exit(int(refuted > 0))


if __name__ == "__main__":
    main()
