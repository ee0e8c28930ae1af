"""Store, keys and counter by themselves, and the charge of a release to a real ledger."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from smpc_dp import database
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.engine import attempt_files
from smpc_dp.engine.counter import Entry, FileCounter
from smpc_dp.engine.keyring import Key, KeyRing
from smpc_dp.engine.saved import charge_once
from smpc_dp.engine.seal import OVER, TAKEN, Position, open_state, seal_state
from smpc_dp.engine.store import Row, Store
from smpc_dp.errors import LocalError, PrivacyError, VerificationError
from smpc_dp.privacy.accountant.events import exact_release
from smpc_dp.privacy.accountant.ledger import Ledger

A = bytes(16)
KEY = bytes(range(32))
NEIGHBOURHOOD = Position(b"s" * 32, 1, "alice", A, 3, b"r" * 32, "go", b"p" * 32, b"e" * 32, b"t" * 32, 0)
CHANGES: dict[str, object] = {
    "session": b"t" * 32,
    "request": 2,
    "role": "bob",
    "attempt": b"1" * 16,
    "counter": 4,
    "run": b"",
    "step": "stop",
    "predecessor": b"",
    "received": b"",
    "terms": b"",
    "flags": 1,
}


def test_a_state_opens_in_its_place_alone() -> None:
    sealed = seal_state(KEY, NEIGHBOURHOOD, b"state", SystemRandomness())
    assert open_state(KEY, NEIGHBOURHOOD, sealed) == b"state"
    assert set(CHANGES) == set(Position.__struct_fields__)
    for field, value in CHANGES.items():
        with pytest.raises(VerificationError):
            open_state(KEY, replace(NEIGHBOURHOOD, **{field: value}), sealed)
    with pytest.raises(VerificationError):
        open_state(bytes(32), NEIGHBOURHOOD, sealed)
    assert Row(NEIGHBOURHOOD, b"", b"1").digest != Row(NEIGHBOURHOOD, b"", b"2").digest


def test_a_row_is_swapped_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "states")
    assert store.find(NEIGHBOURHOOD.session, 1, "alice") is None
    row = Row(NEIGHBOURHOOD, b"name", b"sealed")
    store.begin(row)
    assert store.find(NEIGHBOURHOOD.session, 1, "alice") == row
    with pytest.raises(LocalError, match="not over"):
        store.begin(Row(replace(NEIGHBOURHOOD, attempt=b"2" * 16), b"", b"x"))
    for field, value in CHANGES.items():
        if field != "flags":
            with pytest.raises(LocalError, match="no longer the newest"):
                store.swap(Row(replace(NEIGHBOURHOOD, **{field: value}), b"name", b"sealed"), row)
    with pytest.raises(LocalError, match="no longer the newest"):
        store.swap(replace(row, sealed=b"other"), row)
    after = Row(replace(NEIGHBOURHOOD, counter=4, flags=OVER), b"next", b"more")
    store.swap(row, after)
    assert store.find(NEIGHBOURHOOD.session, 1, "alice") == after
    with pytest.raises(LocalError, match="no longer the newest"):
        store.swap(row, after)
    store.begin(Row(replace(NEIGHBOURHOOD, attempt=b"2" * 16), b"", b"x"))
    assert (tmp_path / "states").stat().st_mode & 0o777 == 0o600


def test_a_store_of_another_version_or_kind_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "states")
    store.begin(Row(NEIGHBOURHOOD, b"", b"x"))
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(LocalError, match="file of saved states of version 2; this release reads 1"):
        store.find(NEIGHBOURHOOD.session, 1, "alice")
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE x (y)")
    with pytest.raises(LocalError, match="not the file of saved states"):
        Store(tmp_path / "other").find(NEIGHBOURHOOD.session, 1, "alice")


def test_commits_outlive_a_power_failure(tmp_path: Path) -> None:
    """What SQLite needs for that is asked for: with 2, FULL, the journal may come back."""
    with database.open_database(tmp_path / "x", database.Kind("things", 1, 1, ())) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_keys(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    one, two, three, four = (Key(bytes([n]) * 16, bytes([n]) * 32) for n in range(1, 5))
    ring.create(A, one)
    with pytest.raises(LocalError):
        ring.create(A, two)
    ring.propose(A, one.name, two)
    ring.propose(A, one.name, three)
    assert [ring.get(A, key.name) for key in (one, two, three, four)] == [
        one.secret,
        two.secret,
        three.secret,
        None,
    ]
    ring.commit(A, two.name)
    ring.commit(A, two.name)
    for name in (one.name, three.name):
        assert ring.get(A, name) is None
        with pytest.raises(LocalError, match="another process"):
            ring.commit(A, name)
    with pytest.raises(LocalError, match="another process"):
        ring.propose(A, one.name, four)
    content = (tmp_path / f"{A.hex()}.keys").read_bytes()
    assert two.secret in content
    assert one.secret not in content
    ring.remove(A)
    assert ring.get(A, two.name) is None
    ring.remove(A)
    assert "1" not in repr(one)


def test_an_old_key_file_is_overwritten(tmp_path: Path) -> None:
    """Also a draft of it that a dead process has left."""
    ring = KeyRing(tmp_path)
    one, two = Key(b"1" * 16, b"x" * 32), Key(b"2" * 16, b"y" * 32)
    ring.create(A, one)
    path = tmp_path / f"{A.hex()}.keys"
    draft = tmp_path / f".{path.name}.0011223344556677"
    draft.write_bytes(path.read_bytes())
    with path.open("rb") as old, draft.open("rb") as left:
        ring.propose(A, one.name, two)
        ring.commit(A, two.name)
        assert not old.read().strip(b"\0")
        assert not left.read().strip(b"\0")
    assert sorted(tmp_path.glob("*.keys")) == [path]
    assert not draft.exists()


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.create(A, Key(b"1" * 16, b"x" * 32))
    (tmp_path / f"{A.hex()}.keys").chmod(0o640)
    with pytest.raises(LocalError, match="chmod 600"):
        ring.get(A, b"1" * 16)


def test_a_counter_grows_once(tmp_path: Path) -> None:
    counter = FileCounter(tmp_path)
    zero, one, other, two = Entry(0, b"0"), Entry(1, b"1"), Entry(1, b"x"), Entry(2, b"2")
    assert counter.read(A) is None
    with pytest.raises(LocalError):
        counter.advance(A, zero, one)
    counter.advance(A, None, zero)
    counter.advance(A, zero, one)
    counter.advance(A, zero, one)
    for before, after in ((zero, other), (other, two), (None, zero), (zero, two)):
        with pytest.raises(LocalError, match="not the newest"):
            counter.advance(A, before, after)
    counter.advance(A, one, two)
    assert FileCounter(tmp_path).read(A) == two


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """It may be on a device that is not mounted: an empty one in its place has forgotten everything."""
    with pytest.raises(LocalError, match="no such folder"):
        FileCounter(tmp_path / "none").read(A)
    with pytest.raises(LocalError, match="no such folder"):
        KeyRing(tmp_path / "none").create(A, Key(A, KEY))


def test_a_run_is_charged_for_one_digest(tmp_path: Path) -> None:
    ledger = Ledger.create(
        tmp_path / "ledger",
        party="alice",
        dataset="d",
        relation="substitution",
        epsilon=None,
        delta=0.0,
    )
    charge = charge_once(ledger, lambda: exact_release("sum", "substitution"), 3)
    first = charge(b"r" * 32, b"d" * 32)
    again = charge(b"r" * 32, b"d" * 32)
    assert first is not None
    assert again is not None
    assert (first.repeated, again.repeated) == (False, True)
    with pytest.raises(PrivacyError, match="a run id is used once"):
        charge(b"r" * 32, b"e" * 32)
    assert len(ledger.entries()) == 1


def test_a_row_that_is_over_is_not_replaced(tmp_path: Path) -> None:
    """Only its mark, that nothing of it is needed, and after it an empty one may take its place."""
    store = Store(tmp_path / "states")
    row = Row(replace(NEIGHBOURHOOD, flags=OVER), b"name", b"sealed")
    store.begin(row)
    for flags in (0, OVER):
        with pytest.raises(LocalError, match="no longer the newest"):
            store.swap(row, Row(replace(NEIGHBOURHOOD, counter=4, flags=flags), b"next", b"other"))
    assert store.find(NEIGHBOURHOOD.session, 1, "alice") == row
    marked = replace(row, position=replace(row.position, flags=OVER | TAKEN))
    store.swap(row, marked)
    with pytest.raises(LocalError, match="no longer the newest"):
        store.swap(marked, row)
    assert store.find(NEIGHBOURHOOD.session, 1, "alice") == marked
    store.swap(marked, replace(marked, sealed=b""))
    assert store.find(NEIGHBOURHOOD.session, 1, "alice") is None


class Dies(BaseException):
    """The process ends here."""


def dying(*_: object) -> None:
    raise Dies


def test_an_old_key_is_overwritten_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies when the new file is in place and the old one was not overwritten."""
    ring = KeyRing(tmp_path)
    one, two = Key(b"1" * 16, b"x" * 32), Key(b"2" * 16, b"y" * 32)
    ring.create(A, one)
    ring.propose(A, one.name, two)
    with (tmp_path / f"{A.hex()}.keys").open("rb") as old:
        with monkeypatch.context() as patch:
            patch.setattr(attempt_files, "_overwrite", dying)
            with pytest.raises(Dies):
                ring.commit(A, two.name)
        assert one.secret in old.read()
        ring.commit(A, two.name)
        old.seek(0)
        assert not old.read().strip(b"\0")
    assert ring.get(A, two.name) == two.secret
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == [f"{A.hex()}.keys"]


def test_a_key_outlives_a_crash_before_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies when the current file has a second name: it is not overwritten."""
    ring = KeyRing(tmp_path)
    one, two = Key(b"1" * 16, b"x" * 32), Key(b"2" * 16, b"y" * 32)
    ring.create(A, one)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(Dies):
            ring.propose(A, one.name, two)
    ring.propose(A, one.name, two)
    assert ring.get(A, one.name) == one.secret
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == [f"{A.hex()}.keys"]


def test_a_removal_goes_on_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was overwritten and not removed is none; the folder is synced after the removal."""
    ring = KeyRing(tmp_path)
    ring.create(A, Key(b"1" * 16, b"x" * 32))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dying)
        with pytest.raises(Dies):
            ring.remove(A)
    path = tmp_path / f"{A.hex()}.keys"
    assert path.stat().st_size
    assert ring.get(A, b"1" * 16) is None
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    ring.remove(A)
    assert synced == [(False, True), (True, False)]
    ring.create(A, Key(b"2" * 16, b"y" * 32))
