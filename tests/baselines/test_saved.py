"""The stored states are restored and go on to the next one with its messages; others are refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from smpc_dp import database
from smpc_dp.engine.codec import Record
from smpc_dp.engine.seal import Position
from smpc_dp.errors import LocalError, VerificationError
from tests.baselines import saved
from tests.baselines.saved import Media, Saved, restored, scene_of

STORED = saved.stored()


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


def content(state: Saved) -> tuple[str, Position, Any, Record]:
    """Return what a row says but of its encryption; its state also as plain data."""
    record = state.record
    return record.kind, state.position, msgspec.msgpack.decode(record.state), record


@pytest.mark.parametrize("name", saved.SCENES)
def test_a_stored_state_is_restored_and_goes_on_to_the_next(name: str) -> None:
    """Each event is for a new process; what it draws is given, so that its messages are the stored ones."""
    role, scene = STORED.role(name), scene_of(name)
    assert len(role.states) >= 3
    for index, (state, after) in enumerate(zip(role.states, role.states[1:], strict=False)):
        taken, reached = saved.proceed(scene, state, *role.happened(index))
        assert content(reached) == content(after)
        assert (taken, reached.kind) == (state, after.kind)
    last = role.states[-1]
    assert restored(scene, Media(last).saving(scene)).resend() == last.record.messages


@pytest.mark.parametrize("name", saved.SCENES)
def test_a_run_that_is_cancelled_leaves_the_stored_state(name: str) -> None:
    role, scene = STORED.role(name), scene_of(name)
    assert content(saved.stopped(scene, role.states[1])) == content(role.stopped)
    again = restored(scene_of(name), Media(role.stopped).saving(scene))
    assert again.finished
    assert again.resend() == role.stopped.record.messages != ()


@pytest.mark.parametrize("name", saved.SCENES)
def test_the_fields_of_all_states_are_the_stored_ones(name: str) -> None:
    """Of those too that no stored run comes to."""
    assert saved.structure(scene_of(name)) == STORED.structures[name]


def test_the_stored_files_are_read(tmp_path: Path) -> None:
    """A row with entries beside it, in files that the product has written: the last event ends the step."""
    role, scene = STORED.role(saved.ON_DISK), scene_of(saved.ON_DISK)
    STORED.disk.write(tmp_path)
    number, events = role.happened(saved.AT)
    assert len(events) > 1
    run = restored(scene, saved.on_disk(scene, tmp_path))
    saved.take(run, events[-1], number + len(events) - 1)
    after = role.states[saved.AT + 1]
    assert (run._row.position, run.resend()) == (after.position, after.record.messages)


def test_files_of_another_version_are_refused_by_name(tmp_path: Path) -> None:
    scene, disk = scene_of(saved.ON_DISK), STORED.disk
    for part, changed, text in (
        (
            "store",
            replace(disk, version=7),
            "store: is a file of saved states of version 7; this release reads 2",
        ),
        ("keys", replace(disk, keys=of_version_7(disk.keys)), r"\.keys: is damaged, or of another version"),
        (
            "counter",
            replace(disk, counter=of_version_7(disk.counter)),
            r"\.counter: is damaged, or of another",
        ),
    ):
        (tmp_path / part).mkdir()
        changed.write(tmp_path / part)
        with pytest.raises(LocalError, match=text):
            restored(scene, saved.on_disk(scene, tmp_path / part))


def of_version_7(files: dict[str, bytes]) -> dict[str, bytes]:
    [(name, packed)] = files.items()
    assert packed.count(b" 2\n") == 1
    return {name: packed.replace(b" 2\n", b" 7\n")}


def of_state(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[list[Any]], list[Any]]:
    """Return what changes the state in a record."""

    def changed(record: list[Any]) -> list[Any]:
        version, kind, state, *others = record
        return [version, kind, msgspec.msgpack.encode(change(msgspec.msgpack.decode(state))), *others]

    return changed


def renamed(state: dict[str, Any]) -> dict[str, Any]:
    (first, value), *others = state.items()
    return {f"{first}_": value, **dict(others)}


NOT_CANONICAL = "a saved state '{kind}' is not in its canonical encoding"
CHANGES: dict[str, tuple[Callable[[list[Any]], list[Any]], str]] = {
    "version": (lambda record: [6, *record[1:]], "a saved record is of version 6; this release reads 5"),
    "earlier version": (
        lambda record: [4, *record[1:]],
        "a saved record is of version 4; this release reads 5",
    ),
    "name of a state": (
        lambda record: [record[0], f"{record[1]}ed", *record[2:]],
        "a saved state is of an unknown type",
    ),
    # The first field of all is the run id, which has a default.
    "field less": (of_state(lambda state: dict([*state.items()][1:])), NOT_CANONICAL),
    "field more": (of_state(lambda state: {**state, "more": 1}), NOT_CANONICAL),
    "name of a field": (of_state(renamed), NOT_CANONICAL),
    "kind of a field": (
        of_state(lambda state: {**state, "run_id": 1}),
        "a saved state '{kind}' is malformed",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_state_of_another_structure_is_refused_by_name(change: str) -> None:
    apply, text = CHANGES[change]
    for name in saved.SCENES:
        state, scene = STORED.role(name).states[1], scene_of(name)
        other = replace(state, content=msgspec.msgpack.encode(apply(msgspec.msgpack.decode(state.content))))
        other = replace(other, digest=other.row.digest)
        with pytest.raises(VerificationError) as refused:
            restored(scene, Media(other).saving(scene))
        assert str(refused.value) == text.format(kind=state.kind)
