"""A party that dies, forks or is set back at any moment never says two things in one step, and loses no run.

The scenes are in `SCENES`: each test runs over all of them, and at every state and write of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from smpc_dp import database
from smpc_dp.engine import party, peers
from smpc_dp.engine.events import Cancellation, Deadline, Event, Message, PeersLost
from smpc_dp.engine.keyring import KeyRing
from smpc_dp.engine.party import PartyState, Stopped
from smpc_dp.engine.peers import PeerRole
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import HeldResult
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.saved import SavedRun, abandon, is_retained
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, LocalError, PeerFault, PrivacyError, SmpcError, VerificationError
from smpc_dp.session.exchange import messages as exchange
from smpc_dp.wire.abort import LEAVE
from smpc_dp.wire.envelope import Envelope
from tests.faults.saved_gopa_direct import CoordinatorScene, DirectScene
from tests.faults.saved_scene import (
    AwaitCount,
    Crash,
    Faults,
    Media,
    Scene,
    SmallScene,
    Wire,
    begin,
    execute,
    kind_of,
    restore,
    states_on_the_way,
    step,
)
from tests.faults.saved_sums import ExchangeScene, GopaScene, SumScene, VerifiableScene

SCENES: dict[str, Callable[[], Scene]] = {
    "small": SmallScene,
    "secagg": SumScene,
    "gopa": GopaScene,
    "exchange": ExchangeScene,
    "direct": DirectScene,
    "coordinator": CoordinatorScene,
    "verifiable": VerifiableScene,
}
# Those that wait for letters of several parties.
PEERS = ("direct", "coordinator")
STOPPED = (party.Stopped, peers.Stopped)

T = TypeVar("T")

ALL = ("store", "keys", "counter")
# Without a counter nothing is restored after these steps.
FINAL = ("attest-", exchange.SEND)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


# Of the others, which are slower than the small one, `make test` plays every fifth case; with every third
# of the verifiable one each test plays another one, too.
THINNED: dict[str, Any] = {"small": (), "verifiable": pytest.mark.thin(3)}


@pytest.fixture(params=[pytest.param(name, marks=THINNED.get(name, pytest.mark.thin(5))) for name in SCENES])
def scene(request: pytest.FixtureRequest) -> Scene:
    return SCENES[request.param]()


@pytest.fixture(params=[True, False], ids=["counter", "no counter"])
def media(request: pytest.FixtureRequest, tmp_path: Path) -> Media:
    return Media(tmp_path / "media", counted=request.param)


def attested(wire: Wire) -> bool:
    return any(name.startswith(FINAL) for name in wire.steps)


def thinned(scene: Scene, indices: Sequence[T], stride: int, first: int = 0) -> Sequence[T]:
    """Return a fifth of the places of the small protocol, fewer of a slower one, or with --all all.

    `first` is below `stride`: the cases of a test begin at different places.
    """
    if stride == 1:
        return indices
    if isinstance(scene, SmallScene):
        return indices[first % 5 :: 5]
    # All parties of these play, and each letter is a write.
    every = stride * (5 if isinstance(scene, DirectScene) else 4)
    return indices[first * every // stride :: every]


def all_writes(scene: Scene, folder: Path, counted: bool = True) -> list[str]:
    """Return what a run without faults does to its media, in order."""
    faults = Faults()
    run = begin(scene, Media(folder / f"dry {counted}", counted=counted), wire := Wire(), faults)
    execute(scene, run, wire, faults)
    scene.check(run)
    return faults.done


def test_a_run_is_restored_at_every_state(scene: Scene, media: Media, tmp_path: Path) -> None:
    """After each step another process goes on; it sends what was sent last again, and nothing else."""
    wire = Wire()
    begin(scene, media, wire)
    for _ in range(scene.states):
        last = wire.sent[-1]
        if not media.counted and attested(wire):
            with pytest.raises(LocalError, match="without a counter no state is restored"):
                restore(scene, media, wire)
            assert wire.sent[-1] is last
            break
        run = restore(scene, media, wire)
        if not run.finished:
            # Also of a state into which nothing is sent.
            assert run.resend()
            assert wire.sent[-1] == last
        step(scene, run, wire)
        wire.assert_one_for_each_step()
    else:
        scene.check(restore(scene, media, wire))
    assert len(media.charges) == (media.counted or exchange.SEND in wire.steps)


# With --all, minutes on an idle machine where all parties play.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fails", [False, True], ids=["crash", "error"])
def test_a_crash_at_every_write(
    scene: Scene, media: Media, tmp_path: Path, stride: int, first: int, before: bool, fails: bool
) -> None:
    """The process dies, or its device fails, before and after each write, charge and sending."""
    writes = all_writes(scene, tmp_path, media.counted)
    for at in thinned(scene, range(len(writes)), stride, first):
        crash_once(
            scene=type(scene)(),
            media=Media(tmp_path / f"crash {at}", counted=media.counted),
            faults=Faults(at, before, fails),
            reason=f"{at}: {writes[at]}",
        )


def refusal(action: Callable[[], object]) -> str:
    """Return what a LocalError says, or nothing."""
    try:
        action()
    except LocalError as error:
        return str(error)
    return ""


def last_answer(scene: Scene, run: SavedRun[Any]) -> Envelope:
    """Return the message that ends the step of a run, which takes those before it."""
    *before, last = scene.answer(run.resend())
    for answer in before:
        assert isinstance(answer, Envelope)
        assert not run.handle(Message(answer))
    assert isinstance(last, Envelope)
    return last


def stopping(run: SavedRun[Any]) -> Event:
    """Return an event that stops a run in any state: a party waits in vain."""
    if not isinstance(run.role, PeerRole):
        return Deadline()
    return PeersLost(tuple(name for name in run.member.context.names if name != run.name))


def crash_once(scene: Scene, media: Media, faults: Faults, reason: str) -> None:
    wire = Wire()
    try:
        run = begin(scene, media, wire, faults)
        execute(scene, run, wire, faults)
    except (Crash, LocalError):
        pass
    assert len(faults.done) > (faults.at or 0), reason
    stopped = wire.steps[-1:] == [LEAVE]
    try:
        run = restore(scene, media, wire)
    except LocalError as error:
        refused = str(error)
    else:
        refused = ""
        execute(scene, run, wire)
        if not stopped and not isinstance(run.state, STOPPED):
            scene.check(run)
            assert len(media.charges) == 1, reason
        run.finish()
    wire.assert_one_for_each_step()
    if "without a counter" in refused:
        abandon(scene.process()[1], media.saving(scene))
    elif "no saved run" in refused:
        # Nothing was saved, so nothing was sent; or an end was saved that is not restored without a counter.
        assert not wire.sent or not media.counted, reason
    elif "was taken" in refused:
        pytest.fail(reason)
    elif refused:
        pytest.fail(f"{reason}: {refused}")
    # In each case the request can be begun anew, as another attempt.
    again = begin(scene, media, Wire())
    assert not again.finished


def test_a_crash_while_the_result_is_taken(scene: Scene, tmp_path: Path, stride: int) -> None:
    for at in range(3):
        # Of the slower protocols one of both at each write, or with --all both.
        both = stride == 1 or isinstance(scene, SmallScene)
        for before in (True, False) if both else [at % 2 == 0]:
            media, wire = Media(tmp_path / f"{at} {before}", counted=True), Wire()
            run = begin(scene, media, wire)
            execute(scene, run, wire)
            role, member, _ = scene.process()
            run = kind_of(role).restore(role, member, media.saving(scene, Faults(2 + at, before)))
            with pytest.raises(Crash):
                run.finish()
            if refused := refusal(partial(restore, scene, media, wire)):
                assert "was taken" in refused or "no saved run" in refused
            else:
                scene.check(restore(scene, media, wire))
            begin(scene, media, Wire())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "shared", [(), ("store",), ("keys",), ("counter",), ALL], ids=lambda s: "+".join(s) or "none"
)
def test_a_fork_at_every_state(
    scene: Scene, media: Media, tmp_path: Path, stride: int, first: int, shared: tuple[str, ...]
) -> None:
    """Two processes restore one state and are told different things, at each point of the other's step."""
    if not shared or (shared == ("counter",) and not media.counted):
        pytest.skip("nothing in common: the copies are all that each has")
    copied = [part for part in ALL if part not in shared]
    indices = [(number, at) for number in range(1, scene.states) for at in range(8)]
    for number, at in thinned(scene, indices, stride, first):
        fork_once(type(scene)(), tmp_path / f"{number} {at}", media.counted, number, at, copied)


def fork_once(scene: Scene, folder: Path, counted: bool, number: int, at: int, copied: list[str]) -> None:
    media, wire = Media(folder / "media", counted=counted), Wire()
    for _ in zip(range(number), states_on_the_way(scene, media, wire, folder / "unused"), strict=False):
        pass
    if not counted and attested(wire):
        return
    one, other = media, media.copy(folder / "other", *copied)
    second = restore(scene, other, wire)
    ended: list[str] = []

    def meanwhile() -> None:
        try:
            step(scene, second, wire, variant=1)
        except SmpcError as error:
            ended.append(str(error))

    faults = Faults(at + len(restored(scene, one)), meanwhile=meanwhile)
    try:
        first = restore(scene, one, wire, faults)
        step(scene, first, wire, faults)
    except SmpcError as error:
        ended.append(str(error))
    wire.assert_one_for_each_step()
    # Whoever starts again after that, on either copy: the line is one.
    for where in (one, other):
        for variant in (0, 1):
            try:
                run = restore(scene, where, wire)
                step(scene, run, wire, variant=variant)
            except SmpcError as error:
                ended.append(str(error))
            wire.assert_one_for_each_step()


def restored(scene: Scene, media: Media) -> list[str]:
    """Return what a restoration does to its media before it steps."""
    faults = Faults()
    restore(scene, media, Wire(), faults)
    return faults.done


@pytest.mark.parametrize("parts", [("store",), ("store", "keys")], ids="+".join)
def test_a_rollback_to_every_earlier_state(
    scene: Scene, media: Media, tmp_path: Path, stride: int, parts: tuple[str, ...]
) -> None:
    """From every state back to every earlier one; the counter, or without one the key, is not set back."""
    if not media.counted and "keys" in parts:
        pytest.skip("then nothing notices: see the test below")
    # Unless all is wanted, from every third state of the others, the last one included.
    every = 1 if stride == 1 or isinstance(scene, SmallScene) else 3
    for last in range(scene.states - 1, 1, -every):
        folder = tmp_path / str(last)
        here, wire = Media(folder / "media", counted=media.counted), Wire()
        scene = type(scene)()
        on_the_way = states_on_the_way(scene, here, wire, folder)
        for _ in zip(range(last), on_the_way, strict=False):
            pass
        for earlier in range(1, last):
            here.set_back(folder / str(earlier), *parts)
            for variant in (0, 1):
                sent = len(wire.sent)
                with pytest.raises(LocalError, match=r"set back|no saved run|without a counter"):
                    step(scene, restore(scene, here, wire), wire, variant=variant)
                assert len(wire.sent) == sent
        wire.assert_one_for_each_step()


def test_a_live_process_in_a_snapshot(scene: Scene, media: Media, tmp_path: Path, stride: int) -> None:
    """A process that was copied with its memory goes on from an earlier state, over media that went on."""
    # Unless all is wanted, every third state of the others: not the same ones with the two sets of parts.
    every = 1 if stride == 1 or isinstance(scene, SmallScene) else 3
    for index, parts in enumerate([("store",), ("store", "keys")] if media.counted else [("store",), ()]):
        for number in range(1 + index * (every > 1), scene.states - 1, every):
            folder = tmp_path / f"{number} {'+'.join(parts)}"
            here, wire = Media(folder / "media", counted=media.counted), Wire()
            scene = type(scene)()
            on_the_way = states_on_the_way(scene, here, wire, folder)
            for _ in zip(range(number), on_the_way, strict=False):
                pass
            if not media.counted and attested(wire):
                break
            copied = restore(scene, here, wire)
            list(on_the_way)
            here.set_back(folder / str(number), *parts)
            for variant in (0, 1):
                sent = len(wire.sent)
                with suppress(SmpcError):
                    step(scene, copied, wire, variant=variant)
                assert len(wire.sent) == sent
            wire.assert_one_for_each_step()


def test_without_a_counter_a_rollback_of_all_is_not_noticed(tmp_path: Path) -> None:
    """What the specification says of it: before `attest-*` such a party contradicts itself."""
    scene, media, wire = SmallScene(), Media(tmp_path / "media", counted=False), Wire()
    list(states_on_the_way(scene, media, wire, tmp_path))
    media.set_back(tmp_path / "2", "store", "keys")
    step(scene, restore(scene, media, wire), wire, variant=1)
    with pytest.raises(AssertionError, match=r"attest-set"):
        wire.assert_one_for_each_step()
    media.set_back(tmp_path / "3", "store", "keys")
    with pytest.raises(LocalError, match="without a counter no state is restored"):
        restore(scene, media, wire)


@pytest.mark.parametrize("kind", [kind for name, kind in SCENES.items() if name not in PEERS])
def test_the_answer_cannot_be_made_again(kind: Callable[[], Scene], tmp_path: Path) -> None:
    """The state after each answer is given another message of the step that was answered."""
    scene = kind()
    folder = tmp_path / "copies"
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    reported: list[Any] = []
    for run in states_on_the_way(scene, media, wire, tmp_path):
        number = len(reported)
        reported.append(run.resend())
        if number:
            copy = media.copy(folder / str(number), *ALL)
            again = restore(scene, copy, wire)
            sent = len(wire.sent)
            [other, *_] = scene.answer(reported[number - 1], 1)
            assert isinstance(other, Envelope)
            if again.finished:
                assert again.handle(Message(other)) == ()
                continue
            with pytest.raises(SmpcError):
                again.handle(Message(other))
            assert len(wire.sent) == sent


def test_a_repeated_message_is_ignored(scene: Scene, media: Media, tmp_path: Path) -> None:
    wire = Wire()
    run = begin(scene, media, wire)
    answer = last_answer(scene, run)
    wire.send(run, run.handle(Message(answer)))
    assert not run.finished
    row = run._row
    assert run.handle(Message(answer)) == ()
    assert run._row is row
    if media.counted or not attested(wire):
        assert restore(scene, media, wire).handle(Message(answer)) == ()
    wire.assert_one_for_each_step()


def test_a_tombstone_is_saved_before_leave_is_sent(
    scene: Scene, media: Media, tmp_path: Path, stride: int
) -> None:
    """At each state the deadline passes; a crash at each write of the tombstone."""
    every = stride == 1 or isinstance(scene, SmallScene)
    # Every state and write of the small protocol; of the others one write at each second state.
    for number in range(1, scene.states - 2, 1 if every else 2):
        for at in range(5) if every else [number % 5]:
            folder = tmp_path / f"{number} {at}"
            here, wire = Media(folder / "media", counted=media.counted), Wire()
            scene = type(scene)()
            for _ in zip(range(number), states_on_the_way(scene, here, wire, folder), strict=False):
                pass
            if not media.counted and attested(wire):
                break
            faults = Faults()
            run = restore(scene, here, Wire(), faults)
            with pytest.raises(SmpcError) as raised:
                run.handle(stopping(run))
            faults.at = len(faults.done) + at
            with suppress(Crash):
                wire.send(run, run.handle(Cancellation(raised.value)), faults)
            # A process that has seen no tombstone goes on, one that has seen it leaves; never both.
            again = restore(scene, here, wire)
            execute(scene, again, wire)
            assert isinstance(again.state, STOPPED) == (LEAVE in wire.steps)
            if LEAVE in wire.steps:
                leave = [e for e in wire.sent if e.step == LEAVE]
                assert {(e.body, e.signature) for e in leave} == {(leave[0].body, leave[0].signature)}
                assert again.handle(Cancellation(raised.value)) == ()
            else:
                scene.check(again)
            wire.assert_one_for_each_step()


def test_what_is_fixed(scene: Scene, media: Media) -> None:
    """Other terms, another question, another input or another counter are refused, and change nothing."""
    wire = Wire()
    begin(scene, media, wire)
    sent = len(wire.sent)
    with pytest.raises(LocalError, match="other terms"):
        restore(scene, media, wire, terms=b"other")
    with pytest.raises(LocalError, match="another input"):
        restore(scene, media, wire, input=b"other")
    media.counted = not media.counted
    with pytest.raises(LocalError, match="was begun with"):
        restore(scene, media, wire)
    media.counted = not media.counted
    if isinstance(scene, SmallScene):
        with pytest.raises(LocalError, match="for another question"):
            restore(SmallScene("other"), media, wire)
    assert len(wire.sent) == sent
    with pytest.raises(LocalError, match="restore or abandon it"):
        begin(scene, media, wire)
    restore(scene, media, wire)


def test_an_input_is_forgotten_with_its_release(scene: Scene, tmp_path: Path) -> None:
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    for run in states_on_the_way(scene, media, wire, tmp_path):
        assert bool(run._input) != bool(media.charges)
        if media.charges:
            restore(scene, media, wire, input=b"whatever")
            return
    pytest.fail("never released")


def test_a_refused_charge_ends_the_run(scene: Scene, tmp_path: Path) -> None:
    """The bytes are in the store, and never leave it; nor are they charged later."""
    for dies in (False, True):
        media, wire = Media(tmp_path / str(dies), counted=True), Wire()
        media.refuses = True
        scene = type(scene)()
        run = begin(scene, media, wire)
        released: list[str] = []
        while not run.finished:
            before = list(wire.steps)
            if run.state.releases:
                answers = scene.answer(run.resend()) if isinstance(run.state, PartyState) else []
                with pytest.raises(PrivacyError):
                    step(scene, run, Wire(), reports=False)
                assert run.resend() == ()
                released = before
                if dies:
                    with pytest.raises(PrivacyError):
                        restore(scene, media, wire)
                    role, member, _ = scene.process()
                    run = kind_of(role).restore(role, member, media.saving(scene))
                    with pytest.raises(PrivacyError):
                        run.resend()
                # A refusal is final: what is never sent is not charged, whatever happens to the budget.
                media.refuses = False
                assert run.handle(Deadline()) == ()
                for answer in answers:
                    if isinstance(answer, Envelope):
                        assert run.handle(Message(answer)) == ()
                assert run.resend() == ()
                assert not media.charges
                wire.send(run, run.handle(Cancellation(PrivacyError("the budget is spent"))))
                break
            step(scene, run, wire)
        media.refuses = False
        # Of a run whose last message is the release, a restored party cannot know that it was not sent.
        is_told = not dies or getattr(run.role, "last", "") not in run.releases
        assert wire.steps == [*released, *([LEAVE] if is_told else [])]
        again = restore(scene, media, wire)
        assert isinstance(again.state, STOPPED)
        assert not media.charges
        # Only the process that was refused first knows that it has sent nothing.
        assert run.has_released == again.has_released == dies
        wire.assert_one_for_each_step()


def test_a_release_that_may_have_been_sent_counts_as_sent(tmp_path: Path) -> None:
    """The ledger of a process that goes on is another one, or cannot be read."""
    scene, media, wire = SmallScene(), Media(tmp_path / "media", counted=True), Wire()
    assert on_the_way(scene, media, wire, tmp_path, 4).state.progress.sent[-1] == "masked"
    media.refuses = True
    role, member, _ = scene.process()
    again: SavedRun[Any] = SavedRun.restore(role, member, media.saving(scene))
    with pytest.raises(PrivacyError) as raised:
        again.resend()
    again.handle(Cancellation(raised.value))
    assert isinstance(again.state, Stopped)
    assert "masked" in again.state.progress.sent
    third: SavedRun[Any] = SavedRun.restore(role, member, media.saving(scene))
    assert again.has_released
    assert third.has_released


def test_damage_is_refused(scene: Scene, tmp_path: Path) -> None:
    """Any file cut off or changed anywhere: the same state and the same bytes, or an error."""
    folder = tmp_path / "on the way"
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    for _ in zip(range(3), states_on_the_way(scene, media, wire, folder), strict=False):
        pass
    expected = restore(scene, media, wire).resend()
    outcomes = {"same": 0, "refused": 0}
    files = [path for part in ALL for path in sorted((media.folder / part).iterdir()) if path.stat().st_size]
    assert len(files) == 3
    for path in files:
        content = path.read_bytes()
        indices = sorted({*range(0, len(content), max(1, len(content) // 150)), len(content) - 1})
        damaged = [content[:position] for position in indices]
        damaged += [content[:p] + bytes([content[p] ^ 0x41]) + content[p + 1 :] for p in indices]
        for broken in damaged:
            path.write_bytes(broken)
            try:
                outcome = "same" if restore(scene, media, Wire()).resend() == expected else "other"
            except (LocalError, VerificationError):
                outcome = "refused"
            outcomes[outcome] += 1
            for leftover in path.parent.glob("*-journal"):
                leftover.unlink()
            path.write_bytes(content)
    assert outcomes["refused"] > 200
    assert restore(scene, media, Wire()).resend() == expected


@pytest.mark.parametrize("call", ["fsync", "pread", "pwrite", "open"])
def test_the_system_fails(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int, call: str
) -> None:
    """The n-th call of the system fails, for each n below 60: the party goes on after a restart."""
    real = getattr(os, call)
    # The last place is beyond all calls, where this ends the loop.
    for at in sorted({*thinned(scene, range(60), stride), 59}):
        scene = type(scene)()
        media, wire = Media(tmp_path / str(at), counted=True), Wire()
        calls = [0]

        def failing(*arguments: Any, calls: list[int] = calls, at: int = at, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == at + 1:
                raise OSError(5, "Input/output error")
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            with suppress(LocalError):
                execute(scene, begin(scene, media, wire), wire)
        if calls[0] <= at:
            assert at, f"{call} is never called"
            break
        if "no saved run" in refusal(partial(restore, scene, media, wire)):
            assert not wire.sent
            begin(scene, media, wire)
        run = restore(scene, media, wire)
        execute(scene, run, wire)
        wire.assert_one_for_each_step()
        if LEAVE not in wire.steps:
            scene.check(run)
    else:
        assert call != "pwrite"
    assert at, "never called"


@pytest.mark.parametrize("call", ["fsync", "pread", "pwrite", "open"])
def test_the_system_fails_while_a_run_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Of a state that is in the store alone: what has to follow is there after the next start."""
    real, scene = getattr(os, call), SmallScene()
    writes = all_writes(scene, tmp_path)
    # The third state: its row is written, and not counted.
    [_, _, swap, *_] = [at for at, name in enumerate(writes) if name == "Store.swap"]
    refused = 0
    for at in range(20):
        scene, media, wire = SmallScene(), Media(tmp_path / str(at), counted=True), Wire()
        faults, calls = Faults(swap, before=False), iter(range(1000))
        with suppress(Crash):
            execute(scene, begin(scene, media, wire, faults), wire, faults)

        def failing(*arguments: Any, calls: Iterator[int] = calls, at: int = at, **options: Any) -> Any:
            if next(calls) == at:
                raise OSError(5, "Input/output error")
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            said = refusal(partial(restore, scene, media, wire))
        refused += bool(said)
        if not said:
            break
        assert "Input/output error" in said
        run = restore(scene, media, wire)
        execute(scene, run, wire)
        wire.assert_one_for_each_step()
        scene.check(run)
    else:
        pytest.fail(f"{call} is called all the time")
    assert refused


def test_nothing_is_readable(scene: Scene, tmp_path: Path) -> None:
    """No file holds the input in the clear, and after the end no file holds a key."""
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    run = begin(scene, media, wire)
    for part in ALL:
        for path in (media.folder / part).iterdir():
            assert scene.input not in path.read_bytes()
            assert path.stat().st_mode & 0o077 == 0
    execute(scene, run, wire)
    faults = Faults()
    run = restore(scene, media, Wire(), faults)
    done = len(faults.done)
    run.finish()
    assert faults.done[done:] == ["Store.swap", "KeyRing.remove", "Store.swap"]
    assert not [path for path in (media.folder / "keys").iterdir() if path.stat().st_size]
    with pytest.raises(LocalError, match="no saved run"):
        restore(scene, media, wire)
    assert run.handle(Deadline()) == ()


def on_the_way(scene: Scene, media: Media, wire: Wire, folder: Path, number: int) -> SavedRun[Any]:
    """Play a run up to a state, with a snapshot of each before it, and of this one."""
    states = states_on_the_way(scene, media, wire, folder)
    [*_, run] = [run for _, run in zip(range(number), states, strict=False)]
    return run


def test_a_process_that_cannot_save_is_finished(scene: Scene, media: Media) -> None:
    """A driver does not wait for it; another process goes on. Each write of a step fails once."""
    begin(scene, media, Wire())
    faults = Faults()
    run = restore(scene, media, Wire(), faults)
    answer, done = last_answer(scene, run), len(faults.done)
    retained = is_retained(run._row.position.flags)
    run.handle(Message(answer))
    # The first state that is not restored has no key, and destroys the last one.
    is_unrestored = retained != is_retained(run._row.position.flags)
    last = "KeyRing.end" if is_unrestored else "KeyRing.commit"
    writes = faults.done[done : faults.done.index(last, done) + 1]
    counted = ["FileCounter.advance"] if media.counted else []
    # Other steps take the key that the step before has proposed.
    is_first = "Store.swap" not in faults.done[:done]
    proposed = ["KeyRing.propose"] if is_first and not is_unrestored else []
    assert writes == [*proposed, "Store.swap", *counted, last]
    abandon(scene.process()[1], media.saving(scene))
    for at in range(len(writes)):
        wire = Wire()
        begin(scene, media, wire)
        faults = Faults(fails=True)
        run = restore(scene, media, wire, faults)
        answer = last_answer(scene, run)
        faults.at = len(faults.done) + at
        with pytest.raises(LocalError, match="input/output error"):
            run.handle(Message(answer))
        assert run.finished
        assert not run.waiting_for
        assert run.handle(Message(answer)) == run.resend() == ()
        if refused := refusal(partial(restore, scene, media, wire)):
            assert "without a counter" in refused
            # Its second message attests, or releases.
            assert scene.states < 5 or isinstance(scene, VerifiableScene)
        abandon(scene.process()[1], media.saving(scene))


def test_a_state_that_is_not_restored_has_no_key(tmp_path: Path) -> None:
    """A key was proposed before it was known that the state is one: it is destroyed with the last one."""
    scene, media, wire = SmallScene(), Media(tmp_path / "media", counted=False), Wire()
    ring, retained = KeyRing(media.folder / "keys"), []
    for run in states_on_the_way(scene, media, wire, tmp_path):
        row = run._row
        retained.append(is_retained(row.position.flags))
        assert bool(ring.get(run.attempt, row.key)) == bool(row.sealed) == retained[-1]
        assert ring.has(run.attempt) == retained[-1]
    assert {*retained} == {True, False}


def test_a_restored_result_has_the_total_of_its_signed_message(tmp_path: Path) -> None:
    """The last state is saved without the total."""
    scene, media, wire = SumScene(), Media(tmp_path / "media", counted=True), Wire()
    run = begin(scene, media, wire)
    execute(scene, run, wire)
    total = run.result.total.tolist()
    assert len(total) > 1
    assert run.state.restorable.outcome.total.size == 0
    assert restore(scene, media, Wire()).result.total.tolist() == total


def test_an_error_that_is_not_saved_sends_nothing(scene: Scene, tmp_path: Path) -> None:
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    for run in states_on_the_way(scene, media, wire, tmp_path):
        if run.finished:
            break
        again = restore(scene, media, Wire())
        with pytest.raises(SmpcError):
            again.handle(stopping(again))
        assert again.resend() == ()


class Refused(PartyState, frozen=True, kw_only=True, eq=False):
    """The run has failed for the party in this state, which is none that is saved."""

    over: ClassVar[bool] = True
    error: SmpcError


def test_a_state_with_an_error_is_saved_as_its_tombstone(tmp_path: Path) -> None:
    def refuse(_member: Any, state: AwaitCount, _body: bytes) -> Transition:
        error = PeerFault("hub", "lied", check=Check.OTHER_RUN)
        return Transition(Refused(run_id=state.run_id, false_count=3, error=error))

    scene, media, wire = SmallScene(), Media(tmp_path / "media", counted=True), Wire()
    run = on_the_way(scene, media, wire, tmp_path, scene.states - 3)
    assert isinstance(run.state, AwaitCount)
    run.role = run.role.with_row(AwaitCount, refuse)
    row = run._row
    with pytest.raises(PeerFault) as raised:
        run.handle(Message(scene.answer(run.resend())[0]))
    assert run.finished
    assert (run._row, run.resend()) == (row, ())
    assert isinstance(restore(scene, media, Wire()).state, AwaitCount)
    [leave] = run.handle(Cancellation(raised.value))
    assert leave.step == LEAVE
    again = restore(scene, media, wire)
    assert isinstance(again.state, Stopped)
    assert again.state.false_count == 3


def test_an_error_after_the_last_message_is_saved(tmp_path: Path) -> None:
    """Nothing is left to say then; the run is over all the same, also for a second cancellation."""
    scene, media, wire = SmallScene(), Media(tmp_path / "media", counted=True), Wire()
    run = on_the_way(scene, media, wire, tmp_path, scene.states - 2)
    assert run.state.step == "total"
    with pytest.raises(SmpcError) as raised:
        run.handle(Deadline())
    assert run.handle(Cancellation(raised.value)) == ()
    row = run._row
    assert run.handle(Cancellation(raised.value)) == ()
    assert run._row is row
    assert isinstance(restore(scene, media, wire).state, STOPPED)
    assert LEAVE not in wire.steps


def test_a_result_outlives_an_absent_key(scene: Scene, tmp_path: Path) -> None:
    """The folder of the keys is empty, or an old one, when the result is restored: nothing is destroyed."""
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    list(states_on_the_way(scene, media, wire, tmp_path))
    media.take(tmp_path / "newest")
    (tmp_path / "empty" / "keys").mkdir(parents=True)
    # A copy of the keys opens its own state and the next one; an exchange has three states alone.
    for other in ("empty", "1"):
        media.set_back(tmp_path / other, "keys")
        for refused in (
            partial(restore, scene, media, wire),
            partial(abandon, scene.process()[1], media.saving(scene)),
        ):
            with pytest.raises(LocalError, match="has no key"):
                refused()
    media.set_back(tmp_path / "newest", "keys")
    scene.check(restore(scene, media, wire))


def test_an_abandoned_run_is_not_restored(scene: Scene, tmp_path: Path) -> None:
    """Nor after store and key file were set back: the counter has moved."""
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    last = min(3, scene.states - 2)
    on_the_way(scene, media, wire, tmp_path, last)
    abandon(scene.process()[1], media.saving(scene))
    with pytest.raises(LocalError, match="no saved run"):
        restore(scene, media, wire)
    for number in (last - 1, last):
        media.set_back(tmp_path / str(number), "store", "keys")
        for refused in (
            partial(restore, scene, media, wire),
            partial(abandon, scene.process()[1], media.saving(scene)),
        ):
            with pytest.raises(LocalError, match="set back"):
                refused()


def test_a_crash_while_a_run_is_abandoned(scene: Scene, media: Media, tmp_path: Path, stride: int) -> None:
    """It is abandoned or restored afterwards, never both; called again, it goes on and leaves no key."""
    dry = Faults()
    begin(scene, media, Wire())
    abandon(scene.process()[1], media.saving(scene, dry))
    for at in range(len(dry.done)):
        both = stride == 1 or isinstance(scene, SmallScene)
        for before in (True, False) if both else [at % 2 == 0]:
            here, wire = Media(tmp_path / f"{at} {before}", counted=media.counted), Wire()
            on_the_way(scene, here, wire, tmp_path / f"copies {at} {before}", min(2, scene.states - 3))
            with pytest.raises(Crash):
                abandon(scene.process()[1], here.saving(scene, Faults(at, before)))
            refused = refusal(partial(restore, scene, here, wire))
            assert refused == "" or "abandon it again" in refused or "no saved run" in refused
            if "no saved run" not in refused:
                abandon(scene.process()[1], here.saving(scene))
            secrets = [path.read_bytes() for path in (here.folder / "keys").glob("*.keys")]
            # Of each slot after the header the key, which comes after number and name.
            for content in secrets:
                keys = [content[place + 24 : place + 56] for place in range(64, len(content), 64)]
                assert not b"".join(keys).strip(b"\0")
            begin(scene, here, Wire())


def test_a_result_is_not_abandoned(scene: Scene, tmp_path: Path) -> None:
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    execute(scene, begin(scene, media, wire), wire)
    with pytest.raises(LocalError, match="is over: restore it"):
        abandon(scene.process()[1], media.saving(scene))
    scene.check(restore(scene, media, wire))


def test_an_old_store_abandons_no_newer_state(scene: Scene, media: Media, tmp_path: Path) -> None:
    wire = Wire()
    on_the_way(scene, media, wire, tmp_path, 3)
    if not media.counted and attested(wire):
        return
    media.set_back(tmp_path / "2", "store")
    with pytest.raises(LocalError, match="set back"):
        abandon(scene.process()[1], media.saving(scene))
    media.set_back(tmp_path / "3", "store")
    restore(scene, media, wire)


def test_without_a_counter_nothing_is_restored_from_a_release_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a protocol without attestations."""
    monkeypatch.setattr(SavedRun, "final", "none-")
    scene, media, wire = SmallScene(), Media(tmp_path / "media", counted=False), Wire()
    run = begin(scene, media, wire)
    while "masked" not in wire.steps:
        run = restore(scene, media, wire)
        step(scene, run, wire)
    with pytest.raises(LocalError, match="without a counter no state is restored"):
        restore(scene, media, wire)
    abandon(scene.process()[1], media.saving(scene))
    begin(scene, media, wire)


def test_two_messages_of_one_attempt_in_two_runs_are_noticed(tmp_path: Path) -> None:
    """By this file's tests: the run id is not what tells steps apart."""
    scene, media, wire = SmallScene(), Media(tmp_path / "media", counted=False), Wire()
    on_the_way(scene, media, wire, tmp_path, 2)
    media.set_back(tmp_path / "1", "store", "keys")
    step(scene, restore(scene, media, wire), wire, variant=1)
    with pytest.raises(AssertionError, match="advertise"):
        wire.assert_one_for_each_step()


@pytest.mark.parametrize("again", [True, False], ids=["restored", "not restored"])
def test_the_rule_against_differences_outlives_a_restart(tmp_path: Path, again: bool) -> None:
    """A process that restores a party which has attested survivors refuses others in the next request."""
    first = SumScene(fixed=None if again else FixedSurvivors())
    media, wire = Media(tmp_path / "media", counted=True), Wire()
    run = begin(first, media, wire)
    while m.ATTEST_SURVIVORS not in wire.steps:
        step(first, run, wire)
    if again:
        first.fixed = FixedSurvivors()
        run = restore(first, media, wire)
    assert first.fixed is not None
    assert first.fixed.inside({1, 2}) == [1, 2]
    execute(first, run, wire)
    first.check(run)
    run.finish()
    second, later = SumScene(2, first.fixed), Wire()
    run = begin(second, media, later)
    while m.MASKED not in later.steps:
        step(second, run, later)
    [survivors] = second.answer(run.resend(), 1)
    with pytest.raises(PrivacyError, match="same_survivors"):
        run.handle(Message(survivors))
    assert run.resend() == ()
    assert m.ATTEST_SURVIVORS not in later.steps


def test_a_restored_party_holds_the_result_that_it_has_accepted(tmp_path: Path) -> None:
    """Another process of it compares the next start with that result."""
    first, again = HeldResult(), HeldResult()
    scene, media, wire = SumScene(last=first), Media(tmp_path / "media", counted=True), Wire()
    execute(scene, begin(scene, media, wire), wire)
    scene.last = again
    restore(scene, media, wire).finish()
    assert again.held == first.held is not None
    second, later = SumScene(2, last=again), Wire()
    # The aggregator of this scene has forgotten.
    run = begin(second, media, later)
    step(second, run, later)
    assert run.state.warning == "relay does not name the run whose result this party holds"
    assert restore(second, media, later).state.warning == run.state.warning
