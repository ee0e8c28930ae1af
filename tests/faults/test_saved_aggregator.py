"""An aggregator that dies, forks or is set back at any moment sends nobody two things in one step."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from smpc_dp import database
from smpc_dp.capabilities.gopa import states as gopa
from smpc_dp.capabilities.gopa.verifiable import states as verifiable
from smpc_dp.capabilities.gopa.verifiable.counting import CollectExclusions, CollectOpen
from smpc_dp.engine import saved_collector
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.collector import CollectorState
from smpc_dp.engine.events import Cancellation, Conviction, Deadline, Event, Message, PeersLost, Start
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import ENTRY_BYTES, SentResults
from smpc_dp.engine.registry import make_aggregator
from smpc_dp.engine.run import Run
from smpc_dp.engine.saved import abandon
from smpc_dp.engine.saved_collector import SavedCollection
from smpc_dp.engine.saved_inbox import SavedError
from smpc_dp.errors import Check, Code, LocalError, PeerFault, SmpcError, TimeoutFault, VerificationError
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.secagg import states as secagg
from smpc_dp.session.exchange import states as exchange
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import encode_envelope
from smpc_dp_lab.vectors import runs
from tests.faults.saved_scene import Crash, Faults, Faulty, Media
from tests.faults.saved_sums import EXCHANGE, VERIFIABLE, GopaScene

SCENARIO = runs.SCENARIOS[0]
DAVE = SCENARIO.names[3]
CODEC = Codec.of_collector(secagg.AGGREGATOR)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


@pytest.fixture(params=[True, False], ids=["counter", "no counter"])
def media(request: pytest.FixtureRequest, tmp_path: Path) -> Media:
    return Media(tmp_path / "media", counted=request.param)


class Hall:
    """The parties of one run, all that any process of the aggregator sends them, and what they have to say.

    `lose`: before the message with this number is handled, dave is lost; he says nothing any more.
    """

    scenario: ClassVar[runs.Scenario] = SCENARIO
    codec = CODEC
    input = b""
    # Without a counter nothing is restored after this step.
    final = "participants"

    def __init__(self, lose: int | None = None) -> None:
        self._roles = runs.new_run(self.scenario)
        self.parties = self._roles.parties
        self.mail: deque[Event] = deque()
        self.sent: dict[tuple[bytes, str, str], bytes] = {}
        self.lose, self._handled, self._lost = lose, 0, False
        # Events that were handled and are on no disk: another process is given them again.
        self._unsettled: list[Event] = []
        for run in self.parties.values():
            self._say(run.handle(Start()))

    def process(self, _faults: Faults | None = None) -> tuple[Any, Any, Any]:
        """Return role, member and first state as a new process of the aggregator makes them."""
        signer = self._roles.signers[runs.AGGREGATOR]
        last = SentResults(SeededRandomnessForSimulation(1, "nonce of the aggregator"))
        run = make_aggregator(self._roles.context, self.scenario.parameters, signer, last=last)
        return run.role, run.member, run.state

    @property
    def collections(self) -> list[type[CollectorState]]:
        """The states in which messages are taken, in order."""
        return [simulated.state for simulated in self.process()[0].rows]

    def begin(self, media: Media, faults: Faults | None = None) -> SavedCollection[Any]:
        """Begin a run."""
        run: SavedCollection[Any] = SavedCollection.begin(*self.process(faults), self.saving(media, faults))
        run.handle(Start())
        return run

    def restore(self, media: Media, faults: Faults | None = None) -> SavedCollection[Any]:
        """Restore as a new process, connect, and send again what the newest state has sent."""
        faults = faults or Faults()
        role, member, _ = self.process(faults)
        run: SavedCollection[Any] = SavedCollection.restore(role, member, self.saving(media, faults))
        self.mail.extendleft(reversed(self._unsettled))
        self._handled -= len(self._unsettled)
        self._unsettled.clear()
        self.send(faults, run.resend())
        return run

    def saving(self, media: Media, faults: Faults | None = None) -> Any:
        scene: Any = self
        return media.saving(scene, faults)

    def step(self, run: Run[Any], faults: Faults | None = None) -> bool:
        """Give a run the next event; return whether it goes on. Mail is kept until it was handled."""
        faults = faults or Faults()
        if self._handled == self.lose and not self._lost:
            self._lost = True
            retained = [e for e in self.mail if not (isinstance(e, Message) and e.envelope.sender == DAVE)]
            self.mail = deque([PeersLost((DAVE,)), *retained])
        if run.finished or not self.mail:
            return False
        self.send(faults, handled(run, self.mail[0]))
        self._unsettled.append(self.mail.popleft())
        if not isinstance(run, SavedCollection) or run.is_settled:
            self._unsettled.clear()
        self._handled += 1
        return not run.finished

    def execute(self, run: Run[Any], faults: Faults | None = None) -> None:
        """Play a run to its end."""
        while self.step(run, faults):
            pass

    def execute_in_bursts(self, run: SavedCollection[Any], faults: Faults) -> None:
        """Play a run whose events come in threes."""
        run.defers = True
        while self.step(run, faults):
            if self._handled % 3 == 0:
                run.settle()
                self._unsettled.clear()

    def send(self, faults: Faults, messages: Sequence[Envelope]) -> None:
        faults.around("send", self._deliver)(messages)

    def _deliver(self, messages: Sequence[Envelope]) -> None:
        for envelope in messages:
            key = (envelope.run_id, envelope.step, envelope.receiver)
            content = encode_envelope(envelope)
            assert self.sent.setdefault(key, content) == content, key
            party = self.parties[envelope.receiver]
            if not (self._lost and envelope.receiver == DAVE):
                with suppress(SmpcError):
                    self._say(party.handle(Message(envelope)))

    def _say(self, claimed: Sequence[Envelope]) -> None:
        self.mail.extend(Message(envelope) for envelope in claimed)

    @property
    def steps(self) -> set[str]:
        return {step for _, step, _ in self.sent}

    def check(self, run: Run[Any]) -> None:
        """Check that the sum is that of a run without faults, for all that have not been lost."""
        undisturbed = type(self)(self.lose)
        plain: Run[Any] = Run(*undisturbed.process())
        undisturbed.execute(plain)
        assert undisturbed.sent == self.sent
        self.check_result(plain.result, run.result)
        assert plain.result.faults == run.result.faults

    def check_result(self, plain: Any, result: Any) -> None:
        """Check that all have the sum of the plain run."""
        assert plain.total.tolist() == result.total.tolist()
        for name, party in self.parties.items():
            if not (self._lost and name == DAVE):
                assert party.result.total.tolist() == result.total.tolist()


class GopaHall(Hall):
    """GOPA where noise of lost parties stays in."""

    scenario = GopaScene.scenario
    codec = Codec.of_collector(gopa.AGGREGATOR)


class ExchangeHall(Hall):
    """An exchange, whose aggregator has no sum, and no step after which nothing is restored."""

    scenario = EXCHANGE
    codec = Codec.of_collector(exchange.AGGREGATOR)
    final = "none"

    def check_result(self, plain: Any, result: Any) -> None:
        assert (plain.survivors, plain.absent) == (result.survivors, result.absent)
        for name, party in self.parties.items():
            if not (self._lost and name == DAVE):
                assert party.result.survivors == result.survivors


class VerifiableHall(Hall):
    """Verifiable GOPA: the logs outlive the aggregator's processes. Without a coin the run stops."""

    scenario = VERIFIABLE
    codec = Codec.of_collector(verifiable.AGGREGATOR)
    final = m.BEGIN

    def __init__(self, lose: int | None = None) -> None:
        self.board = MemoryBoard("")
        super().__init__(lose)

    def process(self, faults: Faults | None = None) -> tuple[Any, Any, Any]:
        signer, faults = self._roles.signers[runs.AGGREGATOR], faults or Faults()
        board: Any = Faulty(self.board, faults, ("begin", "append"))
        run = make_aggregator(self._roles.context, self.scenario.parameters, signer, board=board)
        logs: Any = Faulty(run.member.runs, faults, ("keep",))
        return run.role, dataclasses.replace(run.member, runs=logs), run.state

    @staticmethod
    @cache
    def _plain(lose: int | None) -> tuple[VerifiableHall, Run[Any]]:
        hall = VerifiableHall(lose)
        plain: Run[Any] = Run(*hall.process())
        hall.execute(plain)
        return hall, plain

    @property
    def collections(self) -> list[type[CollectorState]]:
        """See `Hall.collections`; nobody says anything false."""
        return [kind for kind in super().collections if kind not in (CollectExclusions, CollectOpen)]

    @property
    def session_log(self) -> bytes:
        """The session log."""
        context = self._roles.context
        return self.board.runs(context.session_digest, context.scope).export()

    def check(self, run: Run[Any]) -> None:
        undisturbed, plain = self._plain(self.lose)
        assert undisturbed.sent == self.sent
        assert (undisturbed.board.lines, undisturbed.session_log) == (self.board.lines, self.session_log)
        if plain.state.outcome is None:
            assert plain.state.code == run.state.code
        else:
            self.check_result(plain.result, run.result)
            assert plain.result.faults == run.result.faults


HALLS = (Hall, GopaHall, ExchangeHall, VerifiableHall)


@pytest.fixture(params=HALLS, ids=lambda hall: hall.scenario.parameters.protocol)
def kind(request: pytest.FixtureRequest) -> type[Hall]:
    result: type[Hall] = request.param
    return result


def handled(run: Run[Any], event: Event) -> Sequence[Envelope]:
    """Return what a run sends after an event, or after it has stopped because of it."""
    try:
        return run.handle(event)
    except SmpcError as error:
        if isinstance(error, LocalError):
            raise
        return run.handle(Cancellation(error))


@pytest.mark.thin(5)
@pytest.mark.parametrize("lose", [None, 0, 3, 9, 14, 17, 22, 26, 30], ids=lambda at: f"lost at {at}")
def test_an_aggregator_is_restored_after_every_event(
    media: Media, kind: type[Hall], lose: int | None
) -> None:
    hall = kind(lose)
    hall.begin(media)
    while True:
        if not media.counted and hall.final in hall.steps:
            with pytest.raises(LocalError, match="without a counter no state is restored from 'participants"):
                hall.restore(media)
            return
        run = hall.restore(media)
        if not hall.step(run):
            break
    hall.check(hall.restore(media))


@pytest.mark.thin(5)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fails", [False, True], ids=["crash", "error"])
@pytest.mark.parametrize("play", [Hall.execute, Hall.execute_in_bursts], ids=["alone", "in bursts"])
def test_an_aggregator_crashes_at_every_write(
    media: Media,
    kind: type[Hall],
    tmp_path: Path,
    stride: int,
    first: int,
    play: Callable[[Hall, SavedCollection[Any], Faults], None],
    before: bool,
    fails: bool,
) -> None:
    lose = 20 if kind is Hall else 6
    dry = Faults()
    hall = kind(lose)
    play(hall, hall.begin(Media(tmp_path / "dry", counted=media.counted), dry), dry)
    every = 1 if stride == 1 else 4 * stride
    for_case = 0 if stride == 1 else stride * (2 * fails + before) + first
    indices = range(for_case, len(dry.done), every)
    for at in indices:
        here = Media(tmp_path / f"crash {at}", counted=media.counted)
        hall, faults = kind(lose), Faults(at, before, fails)
        with suppress(Crash, LocalError):
            play(hall, hall.begin(here, faults), faults)
        assert len(faults.done) > at
        refused = ""
        try:
            run = hall.restore(here)
        except LocalError as error:
            refused = str(error)
        if "without a counter" in refused:
            abandon(hall.process()[1], hall.saving(here))
        elif refused:
            # Nothing was saved, so nothing was sent; or the end was saved, and is not restored.
            assert "no saved run" in refused
            assert not hall.sent or not media.counted
        else:
            hall.execute(run)
            hall.check(run)
            run.finish()
        again = hall.begin(here)
        assert not again.finished


def at_step(hall: Hall, media: Media, number: int) -> SavedCollection[Any]:
    """Play a run until so many steps are over."""
    run = hall.begin(media)
    while not run.finished and type(run.state) is not hall.collections[number]:
        hall.step(run)
    return run


@pytest.mark.thin(5)
@pytest.mark.parametrize("parts", [(), ("store",), ("keys",), ("store", "keys")], ids="+".join)
def test_a_fork_of_an_aggregator_at_every_step(
    media: Media, kind: type[Hall], tmp_path: Path, stride: int, parts: tuple[str, ...]
) -> None:
    """Of two processes with one state one loses a party; whatever each does, no party is told two things."""
    if not media.counted and parts == ("store", "keys"):
        pytest.skip("nothing in common: the copies are all that each has")
    for number in range(len(kind().collections)):
        for ahead in range(0, 4, 1 if stride == 1 else 3):
            fork_once(kind(), tmp_path / f"{number} {ahead}", media.counted, number, ahead, parts)


def fork_once(
    hall: Hall, folder: Path, counted: bool, number: int, ahead: int, parts: tuple[str, ...]
) -> None:
    """Let one process go `ahead` events, then the other, which loses dave, to its end, then the first."""
    one = Media(folder / "media", counted=counted)
    at_step(hall, one, number)
    if not counted and hall.final in hall.steps:
        return
    other = one.copy(folder / "other", *parts)
    first, second = hall.restore(one), hall.restore(other)
    mail = list(hall.mail)
    with suppress(LocalError):
        for _ in range(ahead):
            hall.step(first)
    left = list(hall.mail)
    hall.mail = deque([PeersLost((DAVE,)), *mail])
    with suppress(LocalError):
        hall.execute(second)
    hall.mail = deque([*left, *mail, *hall.mail])
    with suppress(LocalError):
        hall.execute(first)
    for where in (one, other):
        with suppress(LocalError):
            hall.execute(hall.restore(where))


def test_an_excluded_party_is_told_after_a_crash(tmp_path: Path) -> None:
    """The process dies at each point of a loss within a step: the party is told, and the same."""
    for at in range(4):
        hall, media = Hall(lose=17), Media(tmp_path / str(at), counted=True)
        run = hall.begin(media)
        while hall._handled < 17:
            hall.step(run)
        faults = Faults()
        run = hall.restore(media, faults)
        faults.at = len(faults.done) + at // 2
        faults.before = at % 2 == 0
        with suppress(Crash):
            hall.step(run, faults)
        assert faults.done[-2:] == ["Store.append", "send"] or at < 2
        run = hall.restore(media)
        hall.execute(run)
        assert ("abort", DAVE) in {(step, receiver) for _, step, receiver in hall.sent}
        hall.check(run)


def test_a_deferred_event_is_on_disk_when_it_is_settled(media: Media) -> None:
    """A process that ends before has not taken the message, and is given it again."""
    for settled in (False, True):
        hall = Hall()
        run = at_step(hall, media, 1) if settled else hall.begin(media)
        run.defers = True
        hall.step(run)
        if settled:
            run.settle()
        assert run.is_settled == settled
        run = hall.restore(media)
        assert run._entries == settled
        hall.execute(run)
        hall.check(run)
        run.finish()


def test_deferred_events_of_a_step_that_ends_are_not_written(media: Media) -> None:
    hall, faults = Hall(), Faults()
    run = hall.begin(media, faults)
    run.defers = True
    hall.execute(run, faults)
    assert "Store.append" not in faults.done
    hall.check(run)


def test_of_a_burst_no_more_bytes_are_kept_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large message that was taken is a file on disk until its event is saved."""
    hall, media = Hall(), Media(tmp_path / "media", counted=True)
    run = at_step(hall, media, 5)
    run.defers = True
    first, second = (len(e.envelope.body) for e in list(hall.mail)[:2] if isinstance(e, Message))
    monkeypatch.setattr(saved_collector, "UNSETTLED_BYTES", first + second)
    retained = []
    for _ in range(2):
        hall.step(run)
        retained.append(sum(len(e.envelope.body) for e in run._unsettled if isinstance(e, Message)))
    assert retained == [first, 0]
    run = hall.restore(media)
    assert run._entries == 2
    hall.execute(run)
    hall.check(run)


def test_events_of_a_state_that_is_not_restored_are_not_kept(tmp_path: Path) -> None:
    hall = Hall()
    run = hall.begin(Media(tmp_path / "media", counted=False))
    run.defers = True
    retained = set()
    while hall.step(run):
        retained.add((hall.final in hall.steps, run.is_settled))
    assert retained >= {(False, False), (True, True)}
    assert (True, False) not in retained
    hall.check(run)


def test_a_deferred_exclusion_is_on_disk_before_it_is_told(media: Media) -> None:
    hall, faults = Hall(lose=17), Faults()
    run = hall.begin(media, faults)
    run.defers = True
    while hall._handled < 18:
        assert hall.step(run, faults)
    assert faults.done[-2:] == ["Store.append", "send"]
    hall.execute(run, faults)
    hall.check(run)


def test_a_step_does_not_end_beside_events_of_another_process(media: Media) -> None:
    """One process has taken a message that the other, which stops, does not know."""
    hall = Hall()
    at_step(hall, media, 2)
    first, second = hall.restore(media), hall.restore(media)
    hall.step(second)
    sent = len(hall.sent)
    with pytest.raises(LocalError, match="no longer the newest"):
        first.handle(Cancellation(LocalError("stopped")))
    assert first.resend() == ()
    assert len(hall.sent) == sent
    hall.execute(second)
    hall.check(second)


@pytest.mark.thin(3)
@pytest.mark.parametrize("parts", [("store",), ("store", "keys")], ids="+".join)
def test_an_aggregator_that_is_set_back(
    media: Media, kind: type[Hall], tmp_path: Path, parts: tuple[str, ...]
) -> None:
    """From every step to every earlier one: refused."""
    if not media.counted and "keys" in parts:
        pytest.skip("then nothing notices")
    for last in range(1, len(kind().collections)):
        folder = tmp_path / str(last)
        hall, here = kind(), Media(folder / "media", counted=media.counted)
        run = hall.begin(here)
        for number in range(last):
            here.take(folder / str(number))
            while type(run.state) is hall.collections[number]:
                hall.step(run)
        for number in range(last):
            here.set_back(folder / str(number), *parts)
            sent = len(hall.sent)
            with pytest.raises(LocalError, match=r"set back|without a counter"):
                hall.restore(here)
            assert len(hall.sent) == sent


def test_a_deadline_within_a_step_stays_passed(tmp_path: Path) -> None:
    """Who was late stays late, who was convicted stays convicted, with the same words."""
    for event in (
        Deadline(),
        Conviction(DAVE, PeerFault(DAVE, "lied", Check.OTHER_STATEMENT, {"first": b"x"}, accuser="bob")),
    ):
        hall, media = Hall(), Media(tmp_path / type(event).__name__, counted=True)
        run = at_step(hall, media, 5)
        dave = next(e for e in hall.mail if isinstance(e, Message) and e.envelope.sender == DAVE)
        hall.mail.remove(dave)
        hall.step(run)
        if isinstance(event, Conviction):
            hall.mail.insert(1, event)
        else:
            hall.mail.insert(2, event)
        while hall.step(run) and type(run.state) is hall.collections[5]:
            run = hall.restore(media)
        reported = {party: str(error) for party, error in run.state.inbox.excluded.items()}
        run = hall.restore(media)
        assert {party: str(error) for party, error in run.state.inbox.excluded.items()} == reported
        assert list(reported) == [4]
        # He comes too late, and is told nothing new.
        hall.mail.append(dave)
        hall.execute(run)
        assert DAVE not in run.result.survivors


def test_too_few_parties_stop_a_saved_aggregator(tmp_path: Path) -> None:
    """The tombstone is saved before `abort` is sent, and is restored with the same messages."""
    for at in range(6):
        hall, media = Hall(), Media(tmp_path / str(at), counted=True)
        at_step(hall, media, 4)
        faults = Faults()
        run = hall.restore(media, faults)
        hall.mail.appendleft(PeersLost(SCENARIO.names[2:]))
        faults.at = len(faults.done) + at
        with suppress(Crash):
            hall.step(run, faults)
        again = hall.restore(media)
        hall.execute(again)
        assert again.finished
        assert again.state.code == Code.FEW
        assert hall.restore(media).finished


def test_a_damaged_inbox_is_refused(tmp_path: Path) -> None:
    hall, media = Hall(), Media(tmp_path / "media", counted=True)
    run = at_step(hall, media, 5)
    hall.step(run)
    hall.step(run)
    assert run._entries == 2
    path = media.folder / "store" / "states"
    content = path.read_bytes()
    [_, last] = run._saving.store.entries(run._row)
    for broken in (last[:-1] + bytes([last[-1] ^ 1]), last[::-1]):
        path.write_bytes(content.replace(last, broken))
        with pytest.raises((VerificationError, LocalError)):
            hall.restore(media)
    path.write_bytes(content)
    hall.execute(hall.restore(media))
    hall.check(hall.restore(media))


@pytest.mark.parametrize(
    "error",
    [
        PeerFault(
            "bob",
            "lied",
            Check.OTHER_STATEMENT,
            {"first": b"1", "second": b"2"},
            accuser="carol",
            code=Code.OPERATION,
        ),
        TimeoutFault({"bob", "carol"}, "masked", "gone", code=Code.LATE, why={"bob": Code.LEFT}, number=3),
        LocalError("a full disk"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_saved(error: SmpcError) -> None:
    again = SavedError.of(error).error()
    assert (str(again), again.code) == (str(error), error.code)
    assert SavedError.of(again) == SavedError.of(error)
    if not isinstance(error, LocalError):
        assert type(again) is type(error)
        assert vars(again) == vars(error)


@pytest.mark.thin(5)
@pytest.mark.parametrize("parts", [(), ("store",), ("keys",), ("store", "keys")], ids="+".join)
def test_a_fork_before_the_last_message_of_a_step(
    media: Media, kind: type[Hall], tmp_path: Path, parts: tuple[str, ...]
) -> None:
    """One process takes the message that ends the step, the other loses its sender instead."""
    if not media.counted and parts == ("store", "keys"):
        pytest.skip("nothing in common: the copies are all that each has")
    for number in range(1, len(kind().collections)):
        for lost_first in (False, True):
            folder = tmp_path / f"{number} {lost_first}"
            hall, one = kind(), Media(folder / "media", counted=media.counted)
            run = at_step(hall, one, number)
            if not media.counted and hall.final in hall.steps:
                return
            [last] = [e for e in hall.mail if isinstance(e, Message) and e.envelope.sender == DAVE]
            hall.mail.remove(last)
            while hall.mail:
                hall.step(run)
            other = one.copy(folder / "other", *parts)
            events: list[Event] = [PeersLost((DAVE,)), last]
            forks = [hall.restore(one), hall.restore(other)]
            for fork, event in zip(forks, events if lost_first else events[::-1], strict=True):
                hall.mail = deque([event])
                with suppress(LocalError):
                    hall.step(fork)
            for fork in forks:
                with suppress(LocalError):
                    hall.execute(fork)


def contents(hall: VerifiableHall) -> tuple[list[bytes], bytes]:
    return [*hall.board.lines], hall.session_log


def test_logs_that_are_set_back(tmp_path: Path) -> None:
    """The lines of the newest state are written again; logs that lack more, or have others, are refused."""
    hall, media = VerifiableHall(), Media(tmp_path / "media", counted=True)
    run = hall.begin(media)
    boards = [copy.deepcopy(hall.board)]
    refused = 0
    while not run.finished:
        kind, step = type(run.state), run.step
        while (type(run.state), run.step) == (kind, step) and not run.finished:
            hall.step(run)
        newest, whole = hall.board, contents(hall)
        before = whole[0][: len(boards[-1].lines)], boards[-1]
        assert before[0] == before[1].lines
        for number, earlier in enumerate(boards):
            hall.board = copy.deepcopy(earlier)
            there, sent = contents(hall), len(hall.sent)
            if number == len(boards) - 1 or there in (whole, contents_of(hall, boards[-1])):
                hall.restore(media)
                assert contents(hall) == whole
                continue
            refused += 1
            with pytest.raises(LocalError, match=r"set back|has no log of this run"):
                hall.restore(media)
            assert (contents(hall), len(hall.sent)) == (there, sent)
        hall.board = newest
        boards.append(copy.deepcopy(newest))
        run = hall.restore(media)
    assert refused > 20
    hall.check(run)


def contents_of(hall: VerifiableHall, board: MemoryBoard) -> tuple[list[bytes], bytes]:
    now, hall.board = hall.board, board
    try:
        return contents(hall)
    finally:
        hall.board = now


def test_a_run_after_which_another_one_was_begun_is_not_gone_on_with(tmp_path: Path) -> None:
    """The other run has the head of its log; only a run that is over is restored, for its result."""
    for number, kind in enumerate(VerifiableHall().collections[1:], 1):
        hall, media = VerifiableHall(), Media(tmp_path / kind.__name__, counted=True)
        at_step(hall, media, number)
        log, sent = hall.process()[1].runs, len(hall.sent)
        log.begin(2, b"r" * 32, hall.board.head_of(log.lines[-1]))
        lines = contents(hall)
        with pytest.raises(LocalError, match="another run has begun"):
            hall.restore(media)
        assert (contents(hall), len(hall.sent)) == (lines, sent)
        abandon(hall.process()[1], hall.saving(media))
    for whole in (False, True):
        hall, media = VerifiableHall(), Media(tmp_path / f"over {whole}", counted=True)
        run, before = hall.begin(media), hall.board
        while not run.finished:
            before = copy.deepcopy(hall.board)
            hall.step(run)
        # The lines of its end cannot be written any more, if they are missing.
        hall.board = hall.board if whole else before
        log = hall.process()[1].runs
        log.begin(2, b"r" * 32, hall.board.head_of(log.lines[-1]))
        lines = contents(hall)
        if whole:
            assert hall.restore(media).result.survivors == hall.scenario.names
        else:
            with pytest.raises(LocalError, match="another run has begun"):
                hall.restore(media)
        assert contents(hall) == lines


def test_copies_with_one_log_end_one_run(tmp_path: Path) -> None:
    """They have nothing else in common, and no counter: the later one begins the next run."""
    hall = VerifiableHall()
    one = Media(tmp_path / "one", counted=False)
    first = hall.begin(one)
    while len(hall.mail) > 1:
        hall.step(first)
    second = hall.restore(one.copy(tmp_path / "other", "store", "keys"))
    [last] = hall.mail
    assert isinstance(last, Message)
    hall.step(first)
    attested = list(hall.mail)
    hall.mail = deque([PeersLost((last.envelope.sender,))])
    hall.step(second)
    lines, sent = contents(hall), len(hall.sent)
    assert hall.session_log.count(b'"number"') == 2
    hall.mail = deque(attested)
    with pytest.raises(LocalError, match="the session log has 2 runs, and the line of run 1 cannot follow"):
        hall.execute(first)
    assert first.resend() == ()
    assert (contents(hall), len(hall.sent)) == (lines, sent)


@pytest.mark.parametrize("kind", [Hall, GopaHall])
def test_an_aggregator_that_is_restored_at_its_end_names_the_result(tmp_path: Path, kind: type[Hall]) -> None:
    """Also where the process ended when the result was on disk, and sent to nobody."""
    hall, media = kind(), Media(tmp_path / "media", counted=True)
    run = hall.begin(media)
    step = hall.collections[-1].expects
    while not (run.step == step and run.waiting_count == 1):
        hall.step(run)
    assert run.member.last.named(hall.parties) == b""
    assert handled(run, hall.mail[0])
    restored = hall.restore(media)
    named = run.member.last.named(hall.parties)
    assert restored.member.last.named(hall.parties) == named
    assert len(named) == ENTRY_BYTES
    hall.check(restored)
