"""Stored state of a party's session logs: a small file beside its key.

The party's honesty rests on it: a party that lost it, or restored an older one, may sign two lists of runs of
which neither extends the other (protocols/gopa/verifiable.md). It holds no secret.
"""

from __future__ import annotations

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
    """Database file of what a member has seen of session logs, to detect if an aggregator rolls one back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, _KIND)

    def get(self, scope: bytes) -> Seen:
        """Return how far this member has seen a scope's list of runs: `NOTHING_SEEN` at first."""
        if not self.path.exists():
            return NOTHING_SEEN
        with self._database.reading() as connection:
            return _get(connection, scope)

    def put(self, scope: bytes, before: Seen, after: Seen) -> None:
        """Durably replace the stored state `before` of a scope by a later one; LocalError on conflict."""
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
    """Return the columns of a stored row: number, head, closed number, closed head."""
    return seen.number, seen.head, seen.closed, seen.closed_head


def _get(connection: sqlite3.Connection, scope: bytes) -> Seen:
    """Return how far this member has seen a scope's list of runs; `NOTHING_SEEN` if no row is stored."""
    query = "SELECT number, head, closed, closed_head FROM seen WHERE scope = ?"
    rows = connection.execute(query, (scope,)).fetchall()
    return Seen(*rows[0]) if rows else NOTHING_SEEN


class StoredRun:
    """How far a member has seen one session log (numbers and hashes), in memory and in its database file."""

    def __init__(self, file: SeenRuns, scope: bytes) -> None:
        self._file, self._scope = file, scope
        self.seen = file.get(scope)

    def keep(self, seen: Seen) -> None:
        """Store the newly seen state of the session log, before the next message is sent."""
        self._file.put(self._scope, self.seen, seen)
        self.seen = seen
