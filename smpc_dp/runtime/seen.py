"""What a party keeps of the session logs of its session: a small file beside its key.

The party's honesty rests on it: one that has lost it, or put back an older one, may sign two lists of runs of
which neither extends the other (docs/verifiable.md). It holds no secret.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smpc_dp.errors import LocalError
from smpc_dp.seen import NOTHING_SEEN, Seen

SUFFIX = ".runs"
# "SDPR": so that no other database is taken for it.
APPLICATION_ID = 0x53445052
# SQLite's 0 means 1.
VERSION = 1
_SCHEMA = (
    "CREATE TABLE seen (scope BLOB PRIMARY KEY, number INTEGER NOT NULL, head BLOB NOT NULL, "
    "closed INTEGER NOT NULL, closed_head BLOB NOT NULL) STRICT"
)
_BUSY_SECONDS = 10.0


class SeenRuns:
    """The file at `path`, made for the first run, mode 0600; raises LocalError for what cannot be done."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, scope: bytes) -> Seen:
        """Return what is kept of a scope."""
        if not self.path.exists():
            return NOTHING_SEEN
        with self._open() as connection:
            return _get(connection, scope)

    def put(self, scope: bytes, before: Seen, after: Seen) -> None:
        """Keep `after` in the place of `before`; on disk when this returns."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if _get(connection, scope) != before:
                raise LocalError(f"{self.path}: another process has taken part in this session with this key")
            connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?)", (scope, *_row(after)))
            connection.execute("COMMIT")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o600)
            try:
                mode = os.fstat(descriptor).st_mode & 0o777
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LocalError(f"{self.path}: cannot open the runs seen ({error.strerror})") from None
        if mode & 0o022:
            raise LocalError(f"{self.path}: mode {mode:04o} lets others write it: run chmod 600 on it")
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            _check(connection, self.path)
            yield connection
        except sqlite3.Error as error:
            raise LocalError(f"{self.path}: the runs seen cannot be used ({error})") from None
        finally:
            # What was not committed is undone.
            connection.close()


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Make the table if the file is new; raise LocalError for another database, or one of another version."""
    [(kind,)] = connection.execute("PRAGMA application_id").fetchall()
    if kind == APPLICATION_ID:
        [(version,)] = connection.execute("PRAGMA user_version").fetchall()
        if (version or VERSION) != VERSION:
            raise LocalError(
                f"{path}: is a file of runs seen of version {version}; this release reads {VERSION}"
            )
        return
    connection.execute("BEGIN IMMEDIATE")
    [(kind,)] = connection.execute("PRAGMA application_id").fetchall()
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if kind != APPLICATION_ID:
        if tables:
            raise LocalError(f"{path}: not the file of runs seen")
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")


def _row(seen: Seen) -> tuple[int, bytes, int, bytes]:
    return seen.number, seen.head, seen.closed, seen.closed_head


def _get(connection: sqlite3.Connection, scope: bytes) -> Seen:
    query = "SELECT number, head, closed, closed_head FROM seen WHERE scope = ?"
    rows = connection.execute(query, (scope,)).fetchall()
    return Seen(*rows[0]) if rows else NOTHING_SEEN


class KeptRun:
    """What is kept of one scope while a party takes part in a run of it."""

    def __init__(self, file: SeenRuns, scope: bytes) -> None:
        self._file, self._scope = file, scope
        self.seen = file.get(scope)

    async def keep(self, seen: Seen) -> None:
        """Keep what the party has seen, before it says more."""
        if seen != self.seen:
            await asyncio.to_thread(self._file.put, self._scope, self.seen, seen)
            self.seen = seen
