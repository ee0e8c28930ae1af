"""The aggregator of a statistic dies, forks or is set back: one message a step, each pair evaluated once."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from smpc_dp import database
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import states
from smpc_dp.capabilities.pairs.ustatistic.pairs import CollectDone
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.events import Deadline, Event, Message, Report, Start
from smpc_dp.engine.phases.messages import BEGIN
from smpc_dp.engine.saved_collector import SavedCollection
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.logs.log import Chain, Entry, decode_line, read_header
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, encode_envelope
from smpc_dp_lab.vectors import statistic_runs
from smpc_dp_lab.vectors.runs import Recording
from tests.faults.saved_scene import Crash, Faults, Faulty, Media
from tests.faults.test_saved_aggregator import handled

# What may be sent several times within a step.
BESIDE = (m.RELAY, m.RELAY_END)
# The entries that depend on which pairs have failed.
LAST = (m.DONE.encode(), m.OUTCOME.encode())


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


@pytest.fixture(params=[True, False], ids=["counter", "no counter"])
def media(request: pytest.FixtureRequest, tmp_path: Path) -> Media:
    return Media(tmp_path / "media", counted=request.param)


class Aggregator:
    """The aggregator's processes, one after the other; `hall` has all that they send.

    `restores`: before the events with these numbers another process goes on. `ended`: the pairs' outputs,
    from event `first_end` on.
    """

    def __init__(self, hall: Hall, media: Media, faults: Faults, restores: Iterable[int]) -> None:
        self._hall, self._media, self._faults, self._restores = hall, media, faults, {0, *restores}
        self.events = 0
        self.ended: dict[tuple[int, tuple[str, str]], int] = {}
        self.first_end = 0
        self.live: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.live, name)

    def restore(self) -> Sequence[Envelope]:
        """Begin, or go on as another process; return what it sends first."""
        self.live = self.process()
        return self.live.resend()  # type: ignore[no-any-return]

    def process(self) -> SavedCollection[Any]:
        """Return a run that begins, or another process that goes on."""
        run, scene = self._hall.new_aggregator(), self._hall
        board: Any = Faulty(scene.board, self._faults, ("begin", "append"))
        logs: Any = Faulty(run.member.runs, self._faults, ("keep",))
        member = dataclasses.replace(run.member, board=board, runs=logs)
        saving, context = self._media.saving(scene, self._faults), run.member.context  # type: ignore[arg-type]
        if saving.store.find(context.scope, context.request, run.name) is None:
            return SavedCollection.begin(run.role, member, run.state, saving)
        return SavedCollection.restore(run.role, member, saving)

    def handle(self, event: Event) -> Sequence[Envelope]:
        """Handle an event, in as many processes as it takes; return what they send."""
        sent: list[Envelope] = []
        again, self.events = self.events in self._restores, self.events + 1
        while True:
            try:
                if again:
                    sent += self.restore()
                sent += handled(self.live, event)
            except (Crash, LocalError):
                if self._faults.at is None:
                    raise
                again = True
            else:
                break
        if isinstance(self.live.state, CollectDone):
            self.ended = self.live.state.outputs
            self.first_end = self.first_end or (self.events if self.ended else 0)
        self._hall.note(sent)
        return sent


class Hall(statistic_runs.Run):
    """One run of a statistic, whose pairs are garbled and evaluated."""

    codec = Codec.of_collector(states.AGGREGATOR)
    input = b""

    def __init__(
        self, name: str, media: Media, faults: Faults | None = None, restores: Iterable[int] = ()
    ) -> None:
        super().__init__(statistic_runs.find(name))
        self.told: dict[tuple[Any, ...], bytes] = {}
        self.failed: dict[str, list[int]] = {}
        self.aggregator: Any = Aggregator(self, media, faults or Faults(), restores)

    def new_aggregator(self) -> Any:
        """Return the aggregator as a new process makes it; the board outlives it."""
        return states.aggregator(
            self.context,
            self.signers[statistic_runs.AGGREGATOR],
            lambda _: self.plan,
            Recording(self.source(statistic_runs.AGGREGATOR, "run")),
            board=self.board,
        )

    def note(self, sent: Sequence[Envelope]) -> None:
        """Check that nobody is sent two things in one step."""
        for envelope in sent:
            if envelope.step in BESIDE:
                continue
            key: tuple[Any, ...] = (envelope.run_id, envelope.step, envelope.receiver)
            if envelope.step == m.PAIR:
                message = decode(envelope.body, m.Pair, envelope.sender)
                key = (*key, message.matching, message.number)
            content = encode_envelope(envelope)
            assert self.told.setdefault(key, content) == content, key

    def _evaluate(self, matching: int, pair: tuple[str, str]) -> None:
        try:
            super()._evaluate(matching, pair)
        except (RuntimeError, SmpcError):
            # The aggregator has no part in it any more, and both wait until their deadline.
            assert not evaluates(self)
            for name in pair:
                self.failed.setdefault(name, []).append(matching)

    def execute(self) -> Hall:
        self.deliver([e for party in self.parties.values() for e in party.handle(Start())])
        while self.aggregator.step in m.COINS:
            self.deliver(self.aggregator.handle(Deadline()))
        for matching in range(self.plan.partners):
            for pair in self.pairs[matching]:
                self._evaluate(matching, pair)
        for name in self._present:
            self.deliver(self.parties[name].handle(Report(self.failed.get(name, []))))
        return self

    def check(self) -> None:
        """Check that the outputs are those of the undisturbed run, and that each entry is logged once."""
        whole = undisturbed(self.scenario.name)
        chain = Chain(read_header(self.board.lines[0]))
        for line in self.board.lines[1:]:
            chain.follow(decode_line(line, Entry))
        before = [
            line for line in self.board.lines if not any(b'"kind":"%s"' % kind in line for kind in LAST)
        ]
        assert before == whole.board.lines[: len(before)]
        assert self.aggregator.ended.items() <= whole.aggregator.ended.items()
        run = self.aggregator.live
        if run.state.outcome is None:
            assert not self.aggregator.ended
            return
        done, drawn = len(self.aggregator.ended), sum(map(len, self.pairs))
        assert (run.result.pairs, run.result.failed) == (done, drawn - done)
        assert run.result.evidence.log.head == chain.head
        for party in self.parties.values():
            assert party.state.outcome is None or party.result.value == run.result.value
        run.finish()


@cache
def undisturbed(name: str) -> Hall:
    """Return a run without faults."""
    with tempfile.TemporaryDirectory() as folder:
        return Hall(name, Media(Path(folder) / "media", counted=True)).execute()


def evaluates(hall: Hall) -> bool:
    """Tell whether the aggregator takes part in evaluations."""
    state = hall.aggregator.live.state
    return isinstance(state, CollectDone) and state.pairs is not None


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["matchings", "again", "relayed"])
def test_an_aggregator_is_restored_once_before_any_event(name: str, tmp_path: Path, stride: int) -> None:
    """Up to the draw nothing is lost; later the pairs that had ended count, and no other is evaluated."""
    whole = undisturbed(name)
    counted: set[int] = set()
    for at in range(0, whole.aggregator.events, max(1, stride // 2)):
        hall = Hall(name, Media(tmp_path / str(at), counted=True), restores=[at]).execute()
        hall.check()
        counted.add(len(hall.aggregator.ended))
    # None, some, all.
    assert {0, len(whole.aggregator.ended)} <= counted
    assert name != "matchings" or len(counted) > 2


@pytest.mark.thin(4)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fails", [False, True], ids=["crash", "error"])
def test_an_aggregator_crashes_at_every_write(tmp_path: Path, stride: int, before: bool, fails: bool) -> None:
    dry = Faults()
    hall = Hall("again", Media(tmp_path / "dry", counted=True), dry).execute()
    writes = len(dry.done)
    hall.check()
    assert {"MemoryBoard.append", "MemorySessionLog.keep", "Store.append"} <= set(dry.done)
    for at in range(2 * fails + before, writes, stride):
        faults = Faults(at, before, fails)
        hall = Hall("again", Media(tmp_path / str(at), counted=True), faults).execute()
        assert len(faults.done) > at
        hall.check()


class Pause(Exception):
    """The run is looked at before an event."""


def paused(name: str, media: Media, at: int) -> Hall:
    """Return a run before the aggregator's event `at`."""
    hall = Hall(name, media)
    handle = hall.aggregator.handle

    def pause(event: Event) -> Sequence[Envelope]:
        if hall.aggregator.events == at:
            raise Pause
        sent: Sequence[Envelope] = handle(event)
        return sent

    hall.aggregator.handle = pause
    with suppress(Pause):
        hall.execute()
    hall.aggregator.handle = handle
    return hall


def test_an_aggregator_that_is_set_back(media: Media, tmp_path: Path) -> None:
    """From every state to every earlier one: refused, so nothing is drawn or evaluated again."""
    last = undisturbed("again").aggregator.events
    hall = Hall("again", media)
    handle, states = hall.aggregator.handle, dict[int, Path]()

    def note(event: Event) -> Sequence[Envelope]:
        sent: Sequence[Envelope] = handle(event)
        counter = hall.aggregator.live._row.position.counter
        if counter not in states:
            states[counter] = tmp_path / str(counter)
            media.take(states[counter])
            refuse_earlier(counter)
        return sent

    def refuse_earlier(newest: int) -> None:
        for parts in (("store",), ("store", "keys"))[: 1 + media.counted]:
            for number in range(newest):
                media.set_back(states[number], *parts)
                with pytest.raises(LocalError, match=r"set back|without a counter"):
                    hall.aggregator.process()
                media.set_back(states[newest], "store", "keys")

    hall.aggregator.handle = note
    hall.execute()
    assert hall.aggregator.events == last
    # hello, begin, three draws, the pairs, the estimate.
    assert [*states] == [*range(7)]
    hall.check()


def test_without_a_counter_nothing_is_restored_from_begin_on(tmp_path: Path) -> None:
    for at in range(1, undisturbed("matchings").aggregator.events, 3):
        hall = paused("matchings", Media(tmp_path / str(at), counted=False), at)
        if BEGIN not in {step for _, step, *_ in hall.told}:
            hall.aggregator.restore()
            continue
        with pytest.raises(LocalError, match="without a counter no state is restored"):
            hall.aggregator.restore()


def test_of_two_processes_one_ends_the_pairs(tmp_path: Path) -> None:
    """One evaluates; another is restored, evaluates nothing, and the first takes the end of no pair more."""
    hall = paused(
        "matchings", Media(tmp_path / "media", counted=True), undisturbed("matchings").aggregator.first_end
    )
    first = hall.aggregator.live
    assert evaluates(hall)
    hall.aggregator.restore()
    assert not evaluates(hall)
    assert hall.aggregator.live.state.outputs == first.state.outputs != {}
    sent = hall.aggregator.handle(Deadline())
    assert m.RESULT in {envelope.step for envelope in sent}
    lines = [*hall.board.lines]
    with pytest.raises(LocalError, match="another process has"):
        first.handle(Deadline())
    assert (first.resend(), hall.board.lines) == ((), lines)


def test_an_exclusion_for_a_message_of_a_pair_stays(tmp_path: Path) -> None:
    """It is told to the party once more, and nobody else's output is lost."""
    media = Media(tmp_path / "media", counted=True)
    hall = paused("matchings", media, undisturbed("matchings").aggregator.first_end)
    [name, *_] = hall._present
    forged = hall.wires[name].write_pair(hall.aggregator.run_id, 0, b"")
    sent = hall.aggregator.handle(Message(msgspec.structs.replace(forged, signature=bytes(64))))
    assert {(envelope.step, envelope.receiver) for envelope in sent} >= {("abort", name)}
    before = hall.aggregator.live
    told = hall.aggregator.restore()
    hall.note(told)
    state = hall.aggregator.live.state
    assert [*state.inbox.excluded] == [*before.state.inbox.excluded] == [statistic_runs.NAMES.index(name) + 1]
    assert state.outputs == before.state.outputs
    assert ("abort", name) in {(envelope.step, envelope.receiver) for envelope in told}
