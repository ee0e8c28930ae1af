"""Simulated sessions with saved states, whose members crash and are started again.

`python -m tests.faults.saved_session_schedules --runs 1000 --kind gopa` plays so many in simulated time.
A member crashes when any member is about to send a drawn message: its tasks are cancelled, its channels are
cut, and what it has is what its folders have. Or before or after one of its own writes beside the states: to
a ledger, a session log and the log of a run, `NAME.runs`, and what a session keeps. Crashes between two
writes of a step are in `test_saved_states.py`.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
import pytest

import smpc_dp
from smpc_dp import database
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.committing import AwaitCoinsCertificate, on_coins_certificate
from smpc_dp.capabilities.gopa.verifiable.follow import VerifiableMember
from smpc_dp.engine.phases.parameters import CheckableParameters
from smpc_dp.engine.phases.run_log import LoggingAggregator
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.run import Run
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Code, PeerFault, SmpcError, TimeoutFault
from smpc_dp.logs.seen import SeenRuns
from smpc_dp.privacy.accountant.ledger import Ledger
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
from smpc_dp.session.session_state import SessionState
from smpc_dp.session.stored_requests import Requests
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_verify.verify import HOLDS, Wanted, verify

PARTIES, REQUESTS = 3, 2
EXACT: dict[str, object] = {
    "length": 1,
    "kind": "integer",
    "lower": 0,
    "upper": 9999,
    "dropout": 0,
    "corrupt": 0,
}
NOISY: dict[str, object] = {
    "length": 1,
    "lower": 0.0,
    "upper": 8.0,
    "epsilon": 8.0,
    "delta": 1e-3,
    "dropout": 0,
    "corrupt": 0,
}


class Kind(NamedTuple):
    """Sessions of one kind; a run has about `messages` messages and `writes` writes.

    `has_liar`: whether the last party publishes something false in the first request, and is out then;
    `of_records`: whether requests are for statistics of records.
    """

    protocol: str
    variants: tuple[dict[str, object], ...]
    messages: int = 100
    writes: int = 25
    parties: int = PARTIES
    is_exact: bool = False
    has_checkers: bool = False
    has_liar: bool = False
    of_records: bool = False


UNCHECKED = {"total": "unchecked"}
VERIFIABLE = NOISY | {"verifiable": True, "precision": 4.0}
RECORDS: dict[str, object] = {
    "epsilon": 8.0,
    "delta": 1e-3,
    "records": {"max_rows": 9, "columns": {"age": {"lower": 0, "upper": 99}}},
    "ask": ["mean(age)"],
    "dropout": 0,
    "corrupt": 0,
}
KINDS: Mapping[str, Kind] = {
    "exact": Kind(
        "secagg", (EXACT, EXACT | UNCHECKED, EXACT | UNCHECKED | {"same_survivors": False}), is_exact=True
    ),
    "checkers": Kind("secagg", (EXACT,), is_exact=True, has_checkers=True),
    "gopa": Kind(
        "gopa",
        (
            NOISY,
            NOISY | {"on_dropout": "roll-back"},
            NOISY | {"on_dropout": "roll-back"} | UNCHECKED,
        ),
    ),
    "verifiable": Kind("gopa", (VERIFIABLE,), 140, 55),
    "liar": Kind("gopa", (VERIFIABLE | {"dropout": 0.2},), 220, 70, 5, has_liar=True),
    "records": Kind("gopa", (RECORDS, RECORDS | {"on_dropout": "roll-back"}), of_records=True),
    "verifiable-records": Kind("gopa", (RECORDS | {"verifiable": True},), 140, 55, of_records=True),
}
CRASHES = 3
TIMEOUTS = Timeouts(connect=60.0, step=60.0, gather=60.0)


C = TypeVar("C", bound="Crashing")


class Crashed(Exception):
    """A member's process ends in the middle of its work."""


def publish_another(member: VerifiableMember, state: AwaitCoinsCertificate, body: bytes) -> Transition:
    """Publish another value than the party has committed to."""
    after = on_coins_certificate(member, state, body)
    [honest] = after.messages
    message = decode(honest.body, v.Publish, member.name)
    false = bytes([message.x_hat[0] ^ 1]) + message.x_hat[1:]
    entry = member.write(state.run_id, v.PUBLISH, msgspec.structs.replace(message, x_hat=false))
    return Transition(msgspec.structs.replace(after.state, entry=entry), (entry,))


def lying(*given: Any, **named: Any) -> Run[Any]:
    """Return the role of a party that publishes something false."""
    run = make_party(*given, **named)
    return Run(run.role.with_row(AwaitCoinsCertificate, publish_another), run.member, run.state)


@dataclass
class Crashing:
    """The members of one run.

    Attributes:
        with_counter: whether they have counters.
        crashes: that are left: at which message, of whom, and for how many seconds it is down.
        writes: as `crashes`, of who makes a write; whether it is made before the crash, in the place of a
            name.
        down: the members that have crashed, and for how long.
        crashed: how often each has.
    """

    with_counter: ClassVar[bool] = True

    simulated: SimulatedSession
    folder: Path
    kind: Kind
    crashes: list[tuple[int, str, float]]
    writes: list[tuple[int, bool, float]] = field(default_factory=list)
    sent: int = 0
    written: int = 0
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
                self._fall(name, seconds)
                self.tasks[name].cancel()

    def on_write(self, name: str, write: Callable[[], Any]) -> Any:
        """Write, and crash before or after it if that is its turn."""
        self.written += 1
        if not self.writes or self.writes[0][0] > self.written or name in self.down:
            return write()
        _, is_made, seconds = self.writes.pop(0)
        if is_made:
            write()
        self._fall(name, seconds)
        raise Crashed

    def _fall(self, name: str, seconds: float) -> None:
        self.down[name] = seconds
        self.crashed[name] += 1

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count the writes of all members, while the block is run."""
        named: dict[Any, tuple[str, Callable[[Any], str]]] = {
            LoggingAggregator: ("write_log", lambda member: member.name),
            SeenRuns: ("put", lambda file: file.path.stem),
            Ledger: ("charge", lambda ledger: ledger.terms.party),
            Requests: ("keep_last_results", lambda requests: requests.path.parent.name),
        }
        with pytest.MonkeyPatch.context() as patch:
            for kind, (method, name_of) in named.items():
                patch.setattr(kind, method, self._counted(getattr(kind, method), name_of))
            yield

    def _counted(self, method: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
        def counted(medium: Any, *given: Any, **named: Any) -> Any:
            return self.on_write(name_of(medium), lambda: method(medium, *given, **named))

        return counted

    @property
    def liars(self) -> tuple[str, ...]:
        """The party that says something false, if there is one."""
        return self.simulated.parties[-1:] if self.kind.has_liar else ()

    @property
    def honest(self) -> tuple[str, ...]:
        """The other parties."""
        return tuple(name for name in self.simulated.parties if name not in self.liars)

    @property
    def became(self) -> str:
        """What became of a run that went on, in words."""
        return "all results"

    def ledger(self, name: str) -> Path:
        """Return the path of a party's ledger."""
        return self.folder / f"{name}.ledger"

    def state(self, name: str) -> SessionState:
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
            await asyncio.gather(self.tasks[name], return_exceptions=True)
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

    async def _compute(self, name: str) -> None:
        membership, state = self.simulated.membership(name, self.folder), self.state(name)
        ledger = Ledger.open(self.ledger(name)) if self.ledger(name).exists() else None
        session: Session | None = None
        try:
            role = lying if name in self.liars else None
            connection = await open_connection(membership, ignore, role=role, state=state)
            session = Session(membership, connection, ignore, ledger)
            await self.calls(session, self.results.setdefault(name, []))
            await session.close()
        except SmpcError as error:
            self.results.setdefault(name, []).append(error)
        finally:
            if session is not None:
                # As a process that ends: without a goodbye.
                session._requests.connection.connections.abort()
            state.close()

    async def calls(self, session: Session, got: list[Any]) -> None:
        """Make the calls of a party whose results are not there yet, and add these."""
        for number in range(len(got) + 1, REQUESTS + 1):
            label = f"round {number}"
            if self.kind.of_records:
                result: Any = await session.statistics({"age": np.array([9.0 * number])}, label=label)
                values = [one.value for one in result.answers.estimates]
            else:
                result = await session.sum([number], label=label)
                values = result.value.tolist()
            log = result.evidence.log
            head = None if log is None else log.head.hex()
            got.append((values, result.survivors, head))

    def check(self) -> None:
        """Raise AssertionError unless all have all totals, the same ones, each charged once and logged."""
        shown = f"{self.crashed}: {self.results}"
        honest = self.honest
        first = self.results[honest[0]]
        assert all(self.results[name] == first for name in honest), shown
        assert [survivors for _, survivors, _ in first] == [honest] * REQUESTS, shown
        if self.kind.is_exact:
            assert [value for value, _, _ in first] == [[PARTIES * n] for n in range(1, REQUESTS + 1)], shown
        else:
            # The false statement of the first request is charged too.
            charges = REQUESTS + len(self.liars)
            for name in honest:
                assert len(Ledger.open(self.ledger(name)).entries()) == charges, f"{name}: {shown}"
        if self.simulated.session.is_logged:
            self._check_logs()

    def _check_logs(self) -> None:
        """See `check_log`; of all requests."""
        for number, (_, _, head) in enumerate(self.results[self.honest[0]], 1):
            self.check_log(number, head)

    def check_log(self, number: int, head: str) -> None:
        """Let both auditors judge the log of one request, and the session log."""
        session, board = self.simulated.session.digest.hex(), self.folder / "board"
        [runs] = board.glob("session-*.jsonl")
        [log] = board.glob(f"request-{number}-*.jsonl")
        wanted: dict[str, Any] = {"head": head, "request": number, "session_log": runs}
        report = smpc_dp.audit(log, session=session, **wanted, threads=1)
        assert report.ok, report.conclusion
        opinion = verify(log, Wanted(session, **wanted))
        assert opinion.code == HOLDS, opinion.reason


def check_no_blame(run: Crashing) -> None:
    """Raise AssertionError if anybody has an error that blames another member."""
    for one in (one for got in run.results.values() for one in got):
        assert not isinstance(one, PeerFault), f"{run.crashed}: {one}"
        assert not (isinstance(one, TimeoutFault) and Code.FAULT in one.why.values()), f"{run.crashed}: {one}"


def drawn_crashes(
    drawn: random.Random, members: Sequence[str], messages: int
) -> list[tuple[int, str, float]]:
    """Return crashes of members before some of the first messages."""
    return sorted(
        (drawn.randrange(1, messages), drawn.choice(members), drawn.uniform(0.0, 20.0))
        for _ in range(drawn.randint(1, CRASHES))
    )


def play(seed: int, folder: Path, name: str = "exact") -> Crashing:
    """Play one run of a kind; raise AssertionError unless all go on to all totals."""
    return play_kind(seed, folder, KINDS[name], Crashing)


def play_all(play: Callable[[int, Path], Crashing], folder: Path, first: int, runs: int) -> None:
    """Play so many seeded runs; raise AssertionError unless all go on, after crashes."""
    crashed = sum(play(seed, folder / str(seed)).crashed.total() for seed in range(first, first + runs))
    assert crashed > runs


def play_kind(seed: int, folder: Path, kind: Kind, crashing: Callable[..., C]) -> C:
    """Play one run of these members; raises as their `check`."""
    drawn = random.Random(seed)
    (folder / "keys").mkdir(parents=True)
    connections = MemoryConnections()
    simulated = simulated_session(
        kind.protocol,
        drawn.choice(kind.variants),
        kind.parties,
        seed_for_simulation=seed,
        shared=OneProcess(connections),
        timeouts=TIMEOUTS,
    )
    crashes = drawn_crashes(drawn, (AGGREGATOR, *simulated.parties), kind.messages)
    writes = sorted(
        (drawn.randrange(1, kind.writes), drawn.random() < 0.5, drawn.uniform(0.0, 20.0))
        for _ in range(drawn.randint(0, CRASHES))
    )
    run = crashing(simulated, folder, kind, crashes, writes)
    for party in () if kind.is_exact else simulated.parties:
        Ledger.create(
            run.ledger(party),
            party=party,
            dataset="d",
            relation="add-remove" if kind.of_records else "substitution",
            epsilon=99.0,
            delta=0.1,
            unit="record" if kind.of_records else "party",
        )
    with pytest.MonkeyPatch.context() as patch, run.watched():
        if kind.has_checkers:
            checked = property(lambda parameters: parameters.is_checked)
            patch.setattr(CheckableParameters, "has_checkers", checked)
        run_crashing(run, connections)
        run.check()
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
            run.writes.clear()
            if AGGREGATOR in run.tasks:
                run.tasks[AGGREGATOR].cancel()
            serving.cancel()
            await asyncio.gather(serving, run.tasks[AGGREGATOR], return_exceptions=True)

    run_simulation(members)


def without_syncs(patch: pytest.MonkeyPatch) -> None:
    """Nobody takes the power away."""
    patch.setattr(os, "fsync", lambda _descriptor: None)
    patch.setattr(database, "SYNCHRONOUS", "OFF")


def main(players: Mapping[str, Callable[[int, Path], Crashing]]) -> None:
    """Play seeded runs of a kind; say of each that has stopped why, and what became of the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--kind", choices=players, default=next(iter(players)))
    chosen = parser.parse_args()
    crashed, became, stopped = Counter[str](), Counter[str](), 0
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        for seed in range(chosen.first, chosen.first + chosen.runs):
            folder = Path(tempfile.mkdtemp())
            try:
                run = players[chosen.kind](seed, folder / "session")
                crashed += run.crashed
                became[run.became] += 1
            except (AssertionError, TimeoutError) as error:
                stopped += 1
                print(f"seed {seed}: {error!r}", flush=True)
            finally:
                shutil.rmtree(folder)
    went_on = f"{chosen.runs - stopped} of {chosen.runs} runs went on"
    print(f"{went_on}, with {crashed.total()} crashes: {dict(crashed)}; {dict(became)}")
    sys.exit(int(stopped > 0))


if __name__ == "__main__":
    main({name: partial(play, name=name) for name in KINDS})
