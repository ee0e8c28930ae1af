"""Small private SQLite files with durable commits."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from smpc_dp.errors import LocalError

BUSY_SECONDS = 10.0
# With FULL the removal of the journal is not synced: a power failure may then undo a commit.
SYNCHRONOUS = "EXTRA"


class Kind(NamedTuple):
    """Kind of SQLite file: what it holds ("runs seen"), and its application id, version and tables.

    `page_bytes` are those of a new file; SQLite's own are the least for short rows.
    """

    name: str
    application_id: int
    version: int
    schema: tuple[str, ...]
    page_bytes: int = 4_096


class Database:
    """SQLite file of a given kind, created at its first use; threads share it, processes too unless `alone`.

    Threads may share one; other processes may use the same file, unless it is `alone`: then it is locked from
    its first use on until it is closed, and a transaction costs a third. Before the process forks it is
    closed. A use raises LocalError for an error of the system or of SQLite, another kind or version of file,
    and a file that others can write.
    """

    def __init__(self, path: Path, kind: Kind, *, alone: bool = False) -> None:
        self.path, self._kind, self._alone = path, kind, alone
        self._name = os.fspath(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None
        self._closing: weakref.finalize[..., Database] | None = None
        with _ALL_LOCK:
            _ALL.add(self)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a context manager of the locked SQLite connection, without a transaction, for reading."""
        return self._used()

    def changing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a context manager of a SQLite transaction: committed durably, or rolled back on an error."""
        return self._used(begin="BEGIN IMMEDIATE", end="COMMIT")

    def change(self, statement: str, values: Sequence[bytes | int | str]) -> int:
        """Execute one SQL statement in its own durable transaction; return the number of rows changed."""
        with self._used() as connection:
            return connection.execute(statement, values).rowcount

    @contextmanager
    def _used(self, begin: str = "", end: str = "") -> Iterator[sqlite3.Connection]:
        """Yield the locked connection, with SQL `begin` before and `end` after; close it on an error."""
        with self._lock:
            try:
                connection = self._current()
                if begin:
                    connection.execute(begin)
                yield connection
                if end:
                    connection.execute(end)
            except sqlite3.Error as error:
                self._close()
                raise LocalError(f"{self.path}: the {self._kind.name} cannot be used ({error})") from None
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        """Close the SQLite connection; the next use opens the file again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        """Close the SQLite connection if it is open, which undoes a transaction that is not committed."""
        if self._closing is not None:
            self._closing()
        self._closing = self._connection = self._file = None

    def _current(self) -> sqlite3.Connection:
        """Return an open connection, reopened if the file was replaced; LocalError if it is unusable."""
        if self._alone and self._connection is not None:
            return self._connection
        path, kind = self.path, self._kind
        try:
            file = self._status()
        except OSError as error:
            raise LocalError(f"{path}: cannot open the {kind.name} ({error.strerror})") from None
        if file.st_mode & 0o022:
            mode = file.st_mode & 0o777
            raise LocalError(f"{path}: mode {mode:04o} lets others write it: run chmod 600 on it")
        if self._connection is None:
            # Uses are under the lock, in whichever thread.
            connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection, self._file = connection, file
            self._closing = weakref.finalize(self, connection.close)
            if self._alone:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute(f"PRAGMA page_size = {kind.page_bytes}")
            connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            connection.execute("PRAGMA secure_delete = ON")
            _check(connection, path, kind)
        return self._connection

    def _status(self) -> os.stat_result:
        """Return the `stat` of the database file, created if it does not exist; OSError if that fails."""
        if self._file is not None:
            try:
                file = os.lstat(self._name)
            except FileNotFoundError:
                file = None
            if file is not None and os.path.samestat(file, self._file):
                return file
            # Another file was put in its place: what this process writes must be found there.
            self._close()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._name, flags, 0o600)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)


_ALL: weakref.WeakSet[Database] = weakref.WeakSet()
_ALL_LOCK = threading.Lock()
_HELD: list[threading.Lock] = []


def _close_all() -> None:
    """Close all databases' connections before a fork and hold their locks; skip one in use for 10 seconds.

    A child that ends would close its copies of the connections: it would remove the journal of this process,
    or undo its transaction.
    """
    _ALL_LOCK.acquire()
    for database in _ALL:
        if database._lock.acquire(timeout=BUSY_SECONDS):
            _HELD.append(database._lock)
            database._close()


def _release_all() -> None:
    """Release the locks of all databases after a fork, so that they can be used again."""
    while _HELD:
        _HELD.pop().release()
    _ALL_LOCK.release()


os.register_at_fork(before=_close_all, after_in_parent=_release_all, after_in_child=_release_all)


def _check(connection: sqlite3.Connection, path: Path, kind: Kind) -> None:
    """Create the tables in a new SQLite file; raise LocalError if it is of another kind or version."""
    [(result,)] = connection.execute("PRAGMA application_id").fetchall()
    if result == kind.application_id:
        # SQLite's 0 means 1.
        [(version,)] = connection.execute("PRAGMA user_version").fetchall()
        if (version or 1) != kind.version:
            raise LocalError(
                f"{path}: is a file of {kind.name} of version {version}; this release reads {kind.version}"
            )
        return
    connection.execute("BEGIN IMMEDIATE")
    [(result,)] = connection.execute("PRAGMA application_id").fetchall()
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if result != kind.application_id:
        if tables:
            raise LocalError(f"{path}: not the file of {kind.name}")
        for statement in kind.schema:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {kind.application_id}")
        connection.execute(f"PRAGMA user_version = {kind.version}")
    connection.execute("COMMIT")
