"""Within a phase of GOPA without an aggregator: rows of letters, an earlier inbox, forks, a witness."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from smpc_dp import database
from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_agreement import AwaitMerkleCommitment
from smpc_dp.capabilities.gopa.direct_evidence import DirectInbox
from smpc_dp.engine.events import Cancellation, Message, PeersLost
from smpc_dp.engine.peers import Letter
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.saved import SavedRun
from smpc_dp.errors import Check, LocalError, PeerFault
from smpc_dp.wire.abort import LEAVE
from smpc_dp.wire.envelope import Envelope
from tests.faults.saved_gopa_direct import DirectScene
from tests.faults.saved_scene import Crash, Faults, Media, Wire, begin, execute, restore, step


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


@pytest.fixture
def scene() -> DirectScene:
    return DirectScene()


@pytest.fixture
def media(tmp_path: Path) -> Media:
    return Media(tmp_path / "media", counted=True)


def at_publications(scene: DirectScene, media: Media, wire: Wire) -> SavedRun[Any]:
    """Return a run that has published, and waits for the publications of the others."""
    run = begin(scene, media, wire)
    while wire.steps[-1] != "publish":
        step(scene, run, wire)
    return run


def letters(scene: DirectScene, run: SavedRun[Any]) -> list[Envelope]:
    return [claimed for claimed in scene.answer(run.resend()) if isinstance(claimed, Envelope)]


def test_a_repeated_letter_is_no_row(scene: DirectScene, media: Media) -> None:
    run = at_publications(scene, media, Wire())
    first, *_ = letters(scene, run)
    before = run._entries
    for _ in range(3):
        assert not run.handle(Message(first))
        assert run._entries == before + 1
    again = restore(scene, media, Wire())
    assert again._entries == before + 1
    assert not again.handle(Message(first))
    assert again._entries == before + 1


def test_an_earlier_inbox_of_a_phase_ends_it_once(scene: DirectScene, media: Media, tmp_path: Path) -> None:
    """It is not noticed; the phase may end with other letters, and then ends nowhere else."""
    wire = Wire()
    at_publications(scene, media, wire)
    media.take(tmp_path / "before")
    run = restore(scene, media, wire)
    *some, last = letters(scene, run)
    for letter in some:
        run.handle(Message(letter))
    media.set_back(tmp_path / "before", "store")
    other = restore(scene, media, wire)
    assert other._entries < run._entries
    for letter in some[1:]:
        other.handle(Message(letter))
    wire.send(other, other.handle(PeersLost((some[0].sender, last.sender))))
    assert wire.steps[-1] == d.HELD
    with pytest.raises(LocalError):
        run.handle(Message(last))
    assert run.resend() == ()
    wire.assert_one_for_each_step()


def test_all_that_was_said_is_said_again(scene: DirectScene, media: Media) -> None:
    """Others may be phases ahead or behind: all letters of the run, which has begun without its hello."""
    wire = Wire()
    run = begin(scene, media, wire)
    assert {one.step for one in restore(scene, media, Wire()).resend()} == {m.HELLO}
    run = restore(scene, media, wire)
    execute(scene, run, wire)
    said = [*run.resend()]
    assert [*dict.fromkeys(one.step for one in said)] == wire.steps[1:]
    assert len(said) == len([one for one in wire.sent if one.step != m.HELLO])
    # The same in the next process, which has the result.
    again = restore(scene, media, Wire())
    assert again.finished
    assert list(again.resend()) == said


def test_a_tombstone_has_the_error_with_its_evidence(scene: DirectScene, media: Media) -> None:
    wire = Wire()
    run = at_publications(scene, media, wire)
    evidence = {"first": b"1", "second": b"2"}
    fault = PeerFault("p1", "sent two different messages", Check.EQUIVOCATION, evidence)
    sent = run.handle(Cancellation(fault))
    assert {one.step for one in sent} == {LEAVE}
    again = restore(scene, media, Wire())
    # Nothing else is said, whatever was said before.
    assert list(again.resend()) == list(sent)
    ended = again.state.ended
    assert isinstance(ended, PeerFault)
    assert (str(ended), ended.evidence) == (str(fault), evidence)


def test_a_letter_of_another_process_ends_no_phase(scene: DirectScene, media: Media) -> None:
    """Of two processes on one store one takes a letter that the other does not know."""
    wire = Wire()
    at_publications(scene, media, wire)
    one, other = restore(scene, media, wire), restore(scene, media, wire)
    first, *_ = letters(scene, one)
    one.handle(Message(first))
    with pytest.raises(LocalError, match="no longer the newest"):
        other.handle(Cancellation(LocalError("stopped")))
    assert other.resend() == ()
    execute(scene, one, wire)
    scene.check(one)
    wire.assert_one_for_each_step()


def test_a_crash_around_a_witness(tmp_path: Path) -> None:
    """A letter of another run makes a party show what the coordinator sent: after a crash the same."""
    shown = set()
    for at in range(4):
        scene, media, wire = DirectScene(), Media(tmp_path / str(at), counted=True), Wire()
        run = begin(scene, media, wire)
        step(scene, run, wire)
        assert type(run.state) is AwaitMerkleCommitment
        *_, other = [claimed for claimed in letters(scene, run) if claimed.step == m.ADVERTISE]
        simulated = scene._simulated
        strange = simulated.sign(
            Envelope(b"r" * 32, m.ADVERTISE, other.sender, other.receiver, other.body, other.signature)
        )
        faults = Faults()
        run = restore(scene, media, wire, faults)
        faults.at, faults.before = len(faults.done) + at // 2, at % 2 == 0
        with suppress(Crash):
            wire.send(run, run.handle(Message(strange)), faults)
        again = restore(scene, media, wire)
        wire.send(again, again.handle(Message(strange)))
        [witness] = {(e.body, e.signature) for e in wire.sent if e.step == d.WITNESS}
        shown.add(witness)
        assert not again.handle(Message(strange))
        assert LEAVE not in wire.steps
        wire.assert_one_for_each_step()
    # Each attempt has a run of its own.
    assert len(shown) == 4


@pytest.mark.parametrize("name", [each.name for each in fields(DirectInbox)])
def test_what_changes_an_inbox_changes_its_sizes(name: str) -> None:
    """So that no event that changes anything is without a row."""
    inbox = DirectInbox()
    before = inbox.sizes
    result: Any = getattr(inbox, name)
    letter = Letter(b"r", b"body", b"hash", b"signature")
    match name:
        case "letters" | "retained":
            inbox.keep("step", 1, letter)
            one = inbox.sizes
            inbox.keep("step", 1, letter)
            assert inbox.sizes == one
            inbox.keep("step", 1, replace(letter, body=b"other"))
            assert inbox.sizes != one
        case "unsent":
            result.append(Envelope(b"r", "step", "alice", "bob", b"", b""))
        case "witnesses":
            result["step"] = {1: None}
        case "events":
            return
        case _:
            result[1] = None
    assert inbox.sizes != before
