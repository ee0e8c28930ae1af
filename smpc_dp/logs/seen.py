"""Stored state of a party's session logs: a small file beside its key.

The party's honesty rests on it: a party that lost it, or restored an older one, may sign two lists of runs of
which neither extends the other (protocols/gopa/verifiable.md). It holds no secret.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from smpc_dp.database import Database, Kind
from smpc_dp.errors import LocalError
from smpc_dp.seen import NOTHING_SEEN, Seen

SUFFIX = ".runs"
VERSION = 1
# "SDPR": distinguishes it from other databases.
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
    """The file at `path`, created for the first run, mode 0600; raises LocalError on failure."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, _KIND)

    def get(self, scope: bytes) -> Seen:
        """Return the stored state of a scope."""
        if not self.path.exists():
            return NOTHING_SEEN
        with self._database.reading() as connection:
            return _get(connection, scope)

    def put(self, scope: bytes, before: Seen, after: Seen) -> None:
        """Replace the state `before` by `after`, which extends it; it is on disk when this returns."""
        numbers = (before.number, after.number), (before.closed, after.closed)
        heads = (before.head, after.head), (before.closed_head, after.closed_head)
        for (number, later), (head, last) in zip(numbers, heads, strict=True):
            if later < number:
                raise LocalError(f"{self.path}: what is kept of a session log never becomes less")
            if later == number and last != head:
                # Of a run that was saved, while another process has taken part in another one.
                raise LocalError(f"{self.path}: line {number} of a session log is kept with another head")
        with self._database.changing() as connection:
            if _get(connection, scope) != before:
                raise LocalError(f"{self.path}: another process has taken part in this session with this key")
            connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?)", (scope, *_row(after)))


def _row(seen: Seen) -> tuple[int, bytes, int, bytes]:
    """Return the columns of a state."""
    return seen.number, seen.head, seen.closed, seen.closed_head


def _get(connection: sqlite3.Connection, scope: bytes) -> Seen:
    """Read the state of a scope."""
    query = "SELECT number, head, closed, closed_head FROM seen WHERE scope = ?"
    rows = connection.execute(query, (scope,)).fetchall()
    return Seen(*rows[0]) if rows else NOTHING_SEEN


class StoredRun:
    """Stored state of one scope during a run of it."""

    def __init__(self, file: SeenRuns, scope: bytes) -> None:
        self._file, self._scope = file, scope
        self.seen = file.get(scope)

    async def keep(self, seen: Seen) -> None:
        """Store the party's new state, before its next message is sent."""
        if seen != self.seen:
            await asyncio.to_thread(self._file.put, self._scope, self.seen, seen)
            self.seen = seen
