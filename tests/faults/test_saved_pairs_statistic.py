"""A party of a pairwise statistic dies, forks or is set back: one message a step, one evaluation a pair."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from smpc_dp import database
from smpc_dp.capabilities.pairs.statistics.compiled import operation_of
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import states as states
from smpc_dp.capabilities.pairs.ustatistic.pairs import EndedPair
from smpc_dp.capabilities.pairs.ustatistic.party import Evaluating
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.events import Cancellation, Event, Message, Report, Start
from smpc_dp.engine.run import Run
from smpc_dp.engine.saved import SavedRun
from smpc_dp.engine.state import State
from smpc_dp.errors import LocalError, PrivacyError, SmpcError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from tests.faults.saved_scene import Crash, Faults, Media, Wire
from tests.faults.test_pairs_statistic import AGGREGATOR, KERNEL, Table
from tests.faults.test_saved_states import refusal
from tests.faults.virtual import Stream

PARTY = "ada"
# Saved after the first one: hello, start, begin, begun, matched, done, estimate.
STATES = 8


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


@pytest.fixture(autouse=True)
def _same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same matchings in every run of a test."""
    monkeypatch.setattr(SystemRandomness, "bytes", partial(Stream.bytes, Stream(1)))


class Hall:
    """The others of one run, and all that any process of the party sends and is handed to evaluate.

    Evaluations are played by the aggregator's word: the party's own partners report theirs as done.
    """

    codec = Codec.of_party(states.PARTY)
    input = b"the record"

    def __init__(self) -> None:
        self._table = Table()
        self.wire = Wire()
        self.mail: list[Event] = [Start()]
        self.handed: list[tuple[tuple[int, str, str], ...]] = []
        others = [run for name, run in self._table.parties.items() if name != PARTY]
        self.aggregator: Run[Any] = self._table.aggregator
        self._carry([envelope for run in others for envelope in run.handle(Start())])

    def saving(self, media: Media, faults: Faults | None = None, **changed: Any) -> Any:
        scene: Any = self
        return media.saving(scene, faults, **changed)

    def process(self) -> tuple[Any, Any, State]:
        table = self._table
        operation = operation_of(KERNEL, table.plan, "laplace")
        run = states.party(table.context, table.signers[PARTY], table.plan, operation)
        return run.role, run.member, run.state

    def begin(self, media: Media, faults: Faults | None = None) -> SavedRun[Any]:
        run: SavedRun[Any] = SavedRun.begin(*self.process(), self.saving(media, faults))
        return run

    def restore(self, media: Media, faults: Faults | None = None, **changed: Any) -> SavedRun[Any]:
        """Restore as a new process, connect, and send again what the newest state has sent."""
        role, member, _ = self.process()
        run: SavedRun[Any] = SavedRun.restore(role, member, self.saving(media, faults, **changed))
        self._send(run, run.resend(), faults)
        # What only a process says to its own run, and was said.
        first, evaluates = type(run.state) is role.first, type(run.state) is Evaluating
        if self.mail and {Start: not first, Report: not evaluates}.get(type(self.mail[0]), False):
            self.mail.pop(0)
        return run

    def step(self, run: SavedRun[Any], faults: Faults | None = None) -> bool:
        """Give a run the next event, and do the work that it leaves; return whether it goes on."""
        if type(run.state) is Evaluating and not self.mail:
            self.mail.append(Report([]))
        if run.finished or not self.mail:
            return False
        try:
            self._send(run, run.handle(self.mail[0]), faults)
        except PrivacyError as error:
            self._send(run, run.handle(Cancellation(error)), faults)
            return False
        self.mail.pop(0)
        if type(run.state) is Evaluating and run.state.evaluations:
            self.handed.append(run.state.evaluations)
        return not run.finished

    def execute(self, run: SavedRun[Any], faults: Faults | None = None) -> None:
        while self.step(run, faults):
            pass

    def _send(self, run: SavedRun[Any], messages: Sequence[Envelope], faults: Faults | None) -> None:
        self.wire.send(run, messages, faults)
        self._carry(messages)

    def _carry(self, envelopes: Sequence[Envelope]) -> None:
        """Carry messages among the others; those for the party wait for it."""
        waiting = list(envelopes)
        while waiting:
            envelope = waiting.pop(0)
            if envelope.receiver == PARTY:
                self.mail.append(Message(envelope))
                continue
            run: Run[Any] = (
                self.aggregator if envelope.receiver == AGGREGATOR else self._table.parties[envelope.receiver]
            )
            with suppress(SmpcError):
                waiting += run.handle(Message(envelope))
                if type(run.state) is Evaluating:
                    waiting += run.handle(Report([]))
            if envelope.step == m.MATCHED:
                state = self.aggregator.state
                for matching, drawn in enumerate(state.drawn.pairs):
                    state.ended.extend(EndedPair(matching, pair, 1) for pair in drawn if PARTY not in pair)

    def check(self, run: SavedRun[Any]) -> None:
        """Check the estimate, and that no evaluation was handed out twice."""
        assert run.result.value == self.aggregator.result.value
        assert len(self.handed) <= 1
        self.wire.assert_one_for_each_step()

    @property
    def attested(self) -> bool:
        return any(step.startswith("attest-") for step in self.wire.steps)


@pytest.fixture(params=[True, False], ids=["counter", "no counter"])
def media(request: pytest.FixtureRequest, tmp_path: Path) -> Media:
    return Media(tmp_path / "media", counted=request.param)


def test_a_party_is_restored_before_every_event(media: Media) -> None:
    """It is in the matchings with all others, evaluates nothing, and reports all its pairs as failed."""
    hall = Hall()
    hall.begin(media)
    while True:
        if not media.counted and hall.attested:
            with pytest.raises(LocalError, match="without a counter no state is restored"):
                hall.restore(media)
            return
        run = hall.restore(media)
        assert type(run.state) is not Evaluating or not run.state.evaluations
        if not hall.step(run):
            break
    run = hall.restore(media)
    hall.check(run)
    [handed] = hall.handed
    [done] = [envelope for envelope in hall.wire.sent if envelope.step == m.DONE][:1]
    assert decode(done.body, m.Done, PARTY).failed == [matching for matching, _, _ in handed]
    assert run.result.failed == len(handed)
    assert len(media.charges) == 1


@pytest.mark.thin(3)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fails", [False, True], ids=["crash", "error"])
def test_a_party_crashes_at_every_write(
    media: Media, tmp_path: Path, stride: int, first: int, before: bool, fails: bool
) -> None:
    dry, hall = Faults(), Hall()
    hall.execute(hall.begin(Media(tmp_path / "dry", counted=media.counted), dry), dry)
    for at in range(first, len(dry.done), stride):
        hall, here = Hall(), Media(tmp_path / str(at), counted=media.counted)
        faults = Faults(at, before, fails)
        with suppress(Crash, LocalError):
            hall.execute(hall.begin(here, faults), faults)
        assert len(faults.done) > at
        if refused := refusal(partial(hall.restore, here)):
            hall.wire.assert_one_for_each_step()
            assert "without a counter" in refused or "no saved run" in refused
            continue
        run = hall.restore(here)
        hall.execute(run)
        hall.check(run)
        assert len(here.charges) == 1


def test_two_processes_evaluate_once(tmp_path: Path) -> None:
    """While one evaluates another one is restored: it evaluates nothing, and one of them reports."""
    for first in (True, False):
        hall, media = Hall(), Media(tmp_path / str(first), counted=True)
        run = hall.begin(media)
        while type(run.state) is not Evaluating:
            hall.step(run)
        other = hall.restore(media)
        assert len(run.state.evaluations) > 0
        assert (len(run.state.evaluations), other.state.evaluations) == (len(other.state.failed), ())
        failed = [] if first else [*other.state.failed]
        winner, loser = (run, other) if first else (other, run)
        done = winner.handle(Report([]))
        with pytest.raises(LocalError, match=r"another process has (gone on|restored it)"):
            loser.handle(Report([]))
        assert loser.resend() == ()
        assert decode(done[0].body, m.Done, PARTY).failed == failed


@pytest.mark.parametrize("parts", [("store",), ("store", "keys")], ids="+".join)
def test_a_party_that_is_set_back(media: Media, tmp_path: Path, parts: tuple[str, ...]) -> None:
    """From every state to every earlier one: refused, so no coin is opened twice and no pair is evaluated."""
    if not media.counted and "keys" in parts:
        pytest.skip("then nothing notices")
    for last in range(2, STATES):
        folder = tmp_path / str(last)
        hall, here = Hall(), Media(folder / "media", counted=media.counted)
        run = hall.begin(here)
        number = 0
        while run._row.position.counter < last:
            if run._row.position.counter == number:
                here.take(folder / str(number))
                number += 1
            hall.step(run)
        for earlier in range(number):
            here.set_back(folder / str(earlier), *parts)
            sent, handed = len(hall.wire.sent), len(hall.handed)
            with pytest.raises(LocalError, match=r"set back|without a counter"):
                hall.restore(here)
            assert (len(hall.wire.sent), len(hall.handed)) == (sent, handed)


def test_a_refused_charge_hands_out_no_evaluation(tmp_path: Path) -> None:
    hall, media = Hall(), Media(tmp_path / "media", counted=True)
    media.refuses = True
    hall.execute(hall.begin(media))
    assert not hall.handed
    assert hall.wire.steps[-1] == "leave"
    media.refuses = False
    assert hall.restore(media).finished
    assert not media.charges
    hall.wire.assert_one_for_each_step()


def test_a_record_is_forgotten_before_it_is_evaluated(tmp_path: Path) -> None:
    """Until then another one is refused; from then on nothing in the store depends on it."""
    hall, media = Hall(), Media(tmp_path / "media", counted=True)
    run = hall.begin(media)
    while type(run.state) is not Evaluating:
        with pytest.raises(LocalError, match="another input"):
            hall.restore(media, input=b"another record")
        hall.step(run)
    assert not run._input
    hall.restore(media, input=b"another record")
