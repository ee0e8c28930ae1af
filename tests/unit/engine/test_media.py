"""Store, keys and counter by themselves, and the charge of a release to a real ledger."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
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
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(LocalError, match="file of saved states of version 3; this release reads 2"):
        Store(store.path).find(NEIGHBOURHOOD.session, 1, "alice")
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE x (y)")
    with pytest.raises(LocalError, match="not the file of saved states"):
        Store(tmp_path / "other").find(NEIGHBOURHOOD.session, 1, "alice")


def test_commits_outlive_a_power_failure(tmp_path: Path) -> None:
    """What SQLite needs for that is asked for: with 2, FULL, the journal may come back."""
    with database.Database(tmp_path / "x", database.Kind("things", 1, 1, ())).reading() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_keeps_the_pages_that_it_was_made_with(tmp_path: Path) -> None:
    kind = database.Kind("things", 1, 1, ("CREATE TABLE things (content BLOB NOT NULL) STRICT",))
    large = kind._replace(page_bytes=16_384)
    for name, made, opened in (("large", large, kind), ("small", kind, large)):
        with database.Database(tmp_path / name, made).changing() as connection:
            connection.execute("INSERT INTO things VALUES (?)", (bytes(70_000),))
        again = database.Database(tmp_path / name, opened)
        with again.changing() as connection:
            assert connection.execute("PRAGMA page_size").fetchone() == (made.page_bytes,)
            connection.execute("INSERT INTO things VALUES (?)", (b"x" * 70_000,))
        with again.reading() as connection:
            assert connection.execute("SELECT max(content) FROM things").fetchone() == (b"x" * 70_000,)


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


def test_keys_end_with_the_current_one_alone(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    one, two = (Key(bytes([n]) * 16, bytes([n]) * 32) for n in (1, 2))
    ring.create(A, one, two)
    with pytest.raises(LocalError, match="another process has gone on"):
        ring.end(A, two.name)
    assert ring.get(A, one.name) == one.secret
    ring.end(A, one.name)
    assert not ring.has(A)
    assert not (tmp_path / f"{A.hex()}.keys").read_bytes().strip(b"\0")
    with pytest.raises(LocalError, match="another process has gone on"):
        ring.end(A, one.name)


def test_a_replaced_file_is_what_counts(tmp_path: Path) -> None:
    """A store stays open: what is put in its place is found all the same, and so is what it writes there."""
    store, other = Store(tmp_path / "states"), Store(tmp_path / "other")
    row = Row(NEIGHBOURHOOD, b"name", b"sealed")
    after = Row(replace(NEIGHBOURHOOD, counter=4), b"next", b"more")
    store.begin(row)
    other.begin(after)
    other.close()
    (tmp_path / "other").replace(tmp_path / "states")
    with pytest.raises(LocalError, match="no longer the newest"):
        store.swap(row, after)
    assert store.find(NEIGHBOURHOOD.session, 1, "alice") == after
    (tmp_path / "states").unlink()
    store.begin(row)
    assert Store(tmp_path / "states").find(NEIGHBOURHOOD.session, 1, "alice") == row


def test_a_refused_row_changes_nothing(tmp_path: Path) -> None:
    """Its transaction is undone, and the next one goes through."""
    store, row = Store(tmp_path / "states"), Row(NEIGHBOURHOOD, b"name", b"sealed")
    after = Row(replace(NEIGHBOURHOOD, counter=4), b"next", b"more")
    store.begin(row)
    store.append(row, 0, b"entry")
    for entries in (0, 2):
        with pytest.raises(LocalError, match="no longer the newest"):
            store.swap(row, after, entries)
    for one in (row, after):
        with pytest.raises(LocalError, match="no longer the newest"):
            store.append(one, int(one is after), b"other")
    assert Store(store.path).find(NEIGHBOURHOOD.session, 1, "alice") == row
    assert store.entries(row) == [b"entry"]
    store.swap(row, after, 1)
    assert store.entries(after) == []


def test_a_store_of_one_process_is_locked_until_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.0)
    store, row = Store(tmp_path / "states", alone=True), Row(NEIGHBOURHOOD, b"name", b"sealed")
    store.begin(row)
    with pytest.raises(LocalError, match=r"cannot be used .*locked"):
        Store(store.path).find(NEIGHBOURHOOD.session, 1, "alice")
    store.close()
    assert Store(store.path).find(NEIGHBOURHOOD.session, 1, "alice") == row


def test_a_child_process_leaves_a_database_as_it_is(tmp_path: Path) -> None:
    """Its copy of the connection would remove the parent's journal, which the next commit needs."""
    store, row = Store(tmp_path / "states", alone=True), Row(NEIGHBOURHOOD, b"name", b"sealed")
    store.begin(row)
    child = os.fork()
    if not child:
        # As the end of an interpreter does.
        store.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    store.swap(row, Row(replace(NEIGHBOURHOOD, counter=4), b"next", b"more"))
    assert (tmp_path / "states-journal").exists()


def test_a_child_process_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was forked while a file was locked, and lives on."""
    ring, key = KeyRing(tmp_path), Key(b"1" * 16, b"x" * 32)
    ring.create(A, key)
    monkeypatch.setattr(attempt_files, "LOCK_SECONDS", 0.0)
    waiting, done = os.pipe()
    with ring._files.opened(A):
        child = os.fork()
        if not child:
            os.close(done)
            os.read(waiting, 1)
            os._exit(0)
    try:
        assert ring.get(A, key.name) == key.secret
    finally:
        os.close(done)
        os.close(waiting)
        os.waitpid(child, 0)


def test_an_old_key_is_overwritten_in_place(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    one, two, other = (Key(bytes([name]) * 16, bytes([name]) * 32) for name in b"xyz")
    ring.create(A, one)
    path = tmp_path / f"{A.hex()}.keys"
    with path.open("rb") as file:
        ring.propose(A, one.name, other)
        ring.propose(A, one.name, two)
        assert one.secret in path.read_bytes()
        ring.commit(A, two.name)
        content = file.read()
    assert path.read_bytes() == content
    assert two.secret in content
    assert one.secret not in content
    assert other.secret not in content
    assert [*tmp_path.iterdir()] == [path]
    for number in range(20):
        ring.propose(A, two.name if number % 2 == 0 else one.name, one if number % 2 == 0 else two)
        ring.commit(A, one.name if number % 2 == 0 else two.name)
    assert path.stat().st_size == len(content)


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


def cut_at(patch: pytest.MonkeyPatch, write: int, length: int) -> None:
    """Die in a write to a file, by its number from 0 on, after so many bytes."""
    writes, written = iter(range(1000)), os.pwrite

    def pwrite(descriptor: int, content: bytes, offset: int) -> int:
        if next(writes) == write:
            written(descriptor, content[:length], offset)
            raise Dies
        return written(descriptor, content, offset)

    patch.setattr(os, "pwrite", pwrite)


def cuts(folder: Path, action: Callable[[Path], None], prepare: Callable[[Path], None]) -> Iterator[Path]:
    """Yield folders in which an action died in each of its writes, after some bytes of it."""
    for write in range(10):
        for length in (0, 1, 8, 40, 63, 64, 100):
            own = folder / f"{write} {length}"
            own.mkdir()
            prepare(own)
            with pytest.MonkeyPatch.context() as patch:
                cut_at(patch, write, length)
                try:
                    action(own)
                except Dies:
                    yield own
                else:
                    assert write > 0
                    return


def test_the_next_key_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """Written in its slot, it is proposed and the key before destroyed at once, with one sync."""
    ring, keys = KeyRing(tmp_path), [Key(bytes([n]) * 16, bytes([n]) * 32) for n in range(1, 30)]
    ring.create(A, *keys[:2])
    path = tmp_path / f"{A.hex()}.keys"
    synced: list[int] = []
    size = path.stat().st_size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", synced.append)
        for before, key, following in zip(keys, keys[1:], keys[2:], strict=False):
            ring.commit(A, key.name, following)
            assert [ring.get(A, one.name) for one in (before, key, following)] == [
                None,
                key.secret,
                following.secret,
            ]
            assert before.secret not in path.read_bytes()
    assert len(synced) == len(keys) - 2
    assert path.stat().st_size == size
    ring.commit(A, keys[-1].name)
    assert path.read_bytes().count(keys[-2].secret) == 0


def test_the_next_key_is_proposed_where_another_process_has_committed(tmp_path: Path) -> None:
    """It was restored from the new row between the swap and the commit: both go on."""
    ring, (one, two, three) = KeyRing(tmp_path), [Key(bytes([n]) * 16, bytes([n]) * 32) for n in b"xyz"]
    ring.create(A, one, two)
    ring.commit(A, two.name)
    ring.commit(A, two.name, three)
    assert ring.get(A, two.name) == two.secret
    ring.commit(A, three.name)
    assert [ring.get(A, key.name) for key in (one, two, three)] == [None, None, three.secret]


def test_a_proposal_that_was_cut_costs_no_key(tmp_path: Path) -> None:
    one, two = Key(b"1" * 16, b"x" * 32), Key(b"2" * 16, b"y" * 32)
    for folder in cuts(
        tmp_path,
        lambda own: KeyRing(own).propose(A, one.name, two),
        lambda own: KeyRing(own).create(A, one),
    ):
        ring = KeyRing(folder)
        assert ring.get(A, one.name) == one.secret
        assert ring.get(A, two.name) in (None, two.secret)
        ring.propose(A, one.name, two)
        ring.commit(A, two.name)
        assert (ring.get(A, one.name), ring.get(A, two.name)) == (None, two.secret)


@pytest.mark.parametrize("following", [None, Key(b"w" * 16, b"w" * 32)])
def test_a_commit_that_was_cut_is_there_or_not(tmp_path: Path, following: Key | None) -> None:
    """Also beside a key that another process has proposed, which never becomes the current one."""
    one, two, other = (Key(bytes([name]) * 16, bytes([name]) * 32) for name in b"xyz")

    def prepare(own: Path) -> None:
        ring = KeyRing(own)
        ring.create(A, one)
        for key in (other, two):
            ring.propose(A, one.name, key)

    done = []
    for folder in cuts(tmp_path, lambda own: KeyRing(own).commit(A, two.name, following), prepare):
        ring = KeyRing(folder)
        done.append(ring.get(A, one.name) is None)
        assert ring.get(A, two.name) == two.secret
        assert not done[-1] or ring.get(A, other.name) is None
        ring.commit(A, two.name)
        assert [ring.get(A, key.name) for key in (one, two, other)] == [None, two.secret, None]
        content = (folder / f"{A.hex()}.keys").read_bytes()
        assert content.count(b"x") == content.count(b"z") == 0
    assert {*done} == {False, True}


def test_a_counter_that_was_cut_is_before_or_after(tmp_path: Path) -> None:
    zero, one, two = Entry(0, b"0" * 32), Entry(1, b"1" * 32), Entry(2, b"2" * 32)

    def prepare(own: Path) -> None:
        FileCounter(own).advance(A, None, zero)
        FileCounter(own).advance(A, zero, one)

    for folder in cuts(tmp_path, lambda own: FileCounter(own).advance(A, one, two), prepare):
        counter = FileCounter(folder)
        assert counter.read(A) in (one, two)
        counter.advance(A, one, two)
        assert counter.read(A) == two


def test_a_first_write_that_was_cut_is_none(tmp_path: Path) -> None:
    zero, key = Entry(0, b"0" * 32), Key(b"1" * 16, b"x" * 32)
    for folder in cuts(tmp_path, lambda own: FileCounter(own).advance(A, None, zero), lambda _: None):
        counter = FileCounter(folder)
        assert counter.read(A) in (None, zero)
        counter.advance(A, None, zero)
        assert counter.read(A) == zero
    (tmp_path / "keys").mkdir()
    for folder in cuts(tmp_path / "keys", lambda own: KeyRing(own).create(A, key), lambda _: None):
        assert KeyRing(folder).get(A, key.name) is None
        KeyRing(folder).create(A, key)
        assert KeyRing(folder).get(A, key.name) == key.secret


class Disk:
    """What is on disk of one file: a sync that fails forgets what was written since the one before."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.content, self.failing = bytearray(), -1
        self._written: list[tuple[int, bytes]] = []
        self._pwrite = os.pwrite
        patch.setattr(os, "pwrite", self._write)
        patch.setattr(os, "fsync", self._sync)

    def _write(self, descriptor: int, content: bytes, offset: int) -> int:
        self._written.append((offset, content))
        return self._pwrite(descriptor, content, offset)

    def _sync(self, descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return
        written, self._written = self._written, []
        self.failing -= 1
        if self.failing == -1:
            raise OSError(5, "Input/output error")
        for offset, content in written:
            self.content[offset : offset + len(content)] = content


def test_a_write_whose_sync_failed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes it for done, and no later sync writes it."""
    one, two, other, three = (Key(bytes([name]) * 16, bytes([name]) * 32) for name in b"xyzw")
    zero, first = Entry(0, b"0" * 32), Entry(1, b"1" * 32)
    failed = 0
    for failing, beside, following in (
        *((n, (), None) for n in range(3)),
        *((n, (other,), None) for n in range(4)),
        *((n, (), three) for n in range(2)),
        *((n, (other,), three) for n in range(3)),
    ):
        own = tmp_path / f"{failing} {len(beside)} {following}"
        own.mkdir()
        with monkeypatch.context() as patch:
            keys, ring = Disk(patch), KeyRing(own)
            ring.create(A, one, *beside)
            ring.propose(A, one.name, two)
            keys.failing = failing
            try:
                ring.commit(A, two.name, following)
            except LocalError:
                failed += 1
            keys.failing = -1
            ring.commit(A, two.name)
        assert keys.content == (own / f"{A.hex()}.keys").read_bytes()
        assert two.secret in keys.content
        assert one.secret not in keys.content
    # Of a key beside the two, and before a commit that proposes none, there is one more sync each.
    assert failed == 2 + 3 + 1 + 2
    with monkeypatch.context() as patch:
        counted, counter = Disk(patch), FileCounter(tmp_path)
        counter.advance(A, None, zero)
        counted.failing = 0
        with pytest.raises(LocalError, match="Input/output error"):
            counter.advance(A, zero, first)
        counter.advance(A, zero, first)
    assert counted.content == (tmp_path / f"{A.hex()}.counter").read_bytes()
    assert first.digest in counted.content


def test_a_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk."""
    ring, one = KeyRing(tmp_path), Key(b"1" * 16, b"x" * 32)
    ring.create(A, one)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda _descriptor, content, _offset: len(content) // 2)
        with pytest.raises(LocalError, match="No space left on device"):
            ring.propose(A, one.name, Key(b"2" * 16, b"y" * 32))
    assert ring.get(A, one.name) == one.secret


@pytest.mark.parametrize("content", [b"smpc-dp keys 1\n".ljust(128, b"\0"), b"\x93\x01\x92", b"x" * 128])
def test_a_key_file_of_another_version_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"{A.hex()}.keys"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(LocalError, match="is damaged, or of another version"):
        KeyRing(tmp_path).get(A, b"1" * 16)


def test_a_key_file_of_another_attempt_is_refused(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.create(A, Key(b"1" * 16, b"x" * 32))
    (tmp_path / f"{A.hex()}.keys").rename(tmp_path / f"{(b'a' * 16).hex()}.keys")
    with pytest.raises(LocalError, match="is damaged"):
        ring.get(b"a" * 16, b"1" * 16)


def test_a_file_that_another_process_holds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, path = KeyRing(tmp_path), tmp_path / f"{A.hex()}.keys"
    ring.create(A, Key(b"1" * 16, b"x" * 32))
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    monkeypatch.setattr(attempt_files, "LOCK_SECONDS", 0.0)
    with pytest.raises(LocalError, match="another process has held it"):
        ring.get(A, b"1" * 16)
    monkeypatch.setattr(time, "sleep", lambda _seconds: os.close(held))
    monkeypatch.setattr(attempt_files, "LOCK_SECONDS", 30.0)
    assert ring.get(A, b"1" * 16) == b"x" * 32


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
