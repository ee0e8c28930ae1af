"""What a party keeps of the session logs of its session: a small file beside its key.

The party's honesty rests on it: one that has lost it, or put back an older one, may sign two lists of runs of
which neither extends the other (protocols/gopa/verifiable.md). It holds no secret.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from smpc_dp.database import Kind, open_database
from smpc_dp.errors import LocalError
from smpc_dp.seen import NOTHING_SEEN, Seen

SUFFIX = ".runs"
VERSION = 1
# "SDPR": so that no other database is taken for it.
_KIND = Kind(
    "runs seen",
    0x53445052,
    VERSION,
    (
        "CREATE TABLE seen (scope BLOB PRIMARY KEY, number INTEGER NOT NULL, head BLOB NOT NULL, "
        "closed INTEGER NOT NULL, closed_head BLOB NOT NULL) STRICT",
    ),
)


class SeenRuns:
    """The file at `path`, made for the first run, mode 0600; raises LocalError for what cannot be done."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, scope: bytes) -> Seen:
        """Return what is kept of a scope."""
        if not self.path.exists():
            return NOTHING_SEEN
        with open_database(self.path, _KIND) as connection:
            return _get(connection, scope)

    def put(self, scope: bytes, before: Seen, after: Seen) -> None:
        """Keep `after`, which knows no less, in the place of `before`; on disk when this returns."""
        if after.number < before.number or after.closed < before.closed:
            raise LocalError(f"{self.path}: what is kept of a session log never becomes less")
        with open_database(self.path, _KIND) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if _get(connection, scope) != before:
                raise LocalError(f"{self.path}: another process has taken part in this session with this key")
            connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?)", (scope, *_row(after)))
            connection.execute("COMMIT")


def _row(seen: Seen) -> tuple[int, bytes, int, bytes]:
    return seen.number, seen.head, seen.closed, seen.closed_head


def _get(connection: sqlite3.Connection, scope: bytes) -> Seen:
    query = "SELECT number, head, closed, closed_head FROM seen WHERE scope = ?"
    rows = connection.execute(query, (scope,)).fetchall()
    return Seen(*rows[0]) if rows else NOTHING_SEEN


class StoredRun:
    """What is kept of one scope while a party takes part in a run of it."""

    def __init__(self, file: SeenRuns, scope: bytes) -> None:
        self._file, self._scope = file, scope
        self.seen = file.get(scope)

    async def keep(self, seen: Seen) -> None:
        """Keep what the party has seen, before it says more."""
        if seen != self.seen:
            await asyncio.to_thread(self._file.put, self._scope, self.seen, seen)
            self.seen = seen
