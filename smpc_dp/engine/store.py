"""Store of saved states: one row for each attempt, replaced by compare-and-swap in a durable transaction.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

import sqlite3
from functools import cached_property
from pathlib import Path

import msgspec

from smpc_dp.database import Kind, open_database
from smpc_dp.engine.seal import OVER, TAKEN, VERSION, Position, state_digest
from smpc_dp.errors import LocalError

# "SDPS".
_KIND = Kind(
    "saved states",
    0x53445053,
    VERSION,
    (
        "CREATE TABLE states (session BLOB NOT NULL, request INTEGER NOT NULL, role TEXT NOT NULL, "
        "attempt BLOB NOT NULL, counter INTEGER NOT NULL, run BLOB NOT NULL, step TEXT NOT NULL, "
        "predecessor BLOB NOT NULL, received BLOB NOT NULL, terms BLOB NOT NULL, flags INTEGER NOT NULL, "
        "key BLOB NOT NULL, sealed BLOB NOT NULL, digest BLOB NOT NULL, "
        "UNIQUE (session, request, role, attempt)) STRICT",
        "CREATE TABLE inbox (session BLOB NOT NULL, request INTEGER NOT NULL, role TEXT NOT NULL, "
        "attempt BLOB NOT NULL, number INTEGER NOT NULL, sealed BLOB NOT NULL, "
        "UNIQUE (session, request, role, attempt, number)) STRICT",
        f"CREATE UNIQUE INDEX open ON states (session, request, role) WHERE flags & {OVER} = 0",
    ),
)
_POSITION = Position.__struct_fields__
_COLUMNS = (*_POSITION, "key", "sealed", "digest")
_WHO = ("session", "request", "role", "attempt")
_INSERT = f"INSERT INTO states ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_SWAP = (
    f"UPDATE states SET {', '.join(f'{name} = ?' for name in _COLUMNS)} "  # noqa: S608
    f"WHERE {' AND '.join(f'{name} = ?' for name in (*_WHO, 'run', 'counter', 'digest'))} "
    f"AND flags & {OVER} = ?"
)
_FIND = (
    f"SELECT {', '.join(_COLUMNS)} FROM states WHERE session = ? AND request = ? AND role = ? "  # noqa: S608
    f"AND (flags & {TAKEN} = 0 OR length(sealed) > 0) ORDER BY flags & {OVER}, rowid DESC LIMIT 1"
)


_MINE = " AND ".join(f"{name} = ?" for name in _WHO)
_IS_NEWEST = f"SELECT 1 FROM states WHERE {_MINE} AND digest = ?"  # noqa: S608
_APPEND = "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?)"
_ENTRIES = f"SELECT number, sealed FROM inbox WHERE {_MINE} ORDER BY number"  # noqa: S608
_CLEAR = f"DELETE FROM inbox WHERE {_MINE}"  # noqa: S608
_REMOVE = f"DELETE FROM states WHERE {_MINE}"  # noqa: S608
_ATTEMPTS = "SELECT session, request, attempt FROM states WHERE role = ? ORDER BY request"


class Row(msgspec.Struct, frozen=True, dict=True):
    """Saved state: its position, the name of its key, and its encryption.

    It is not restored if that is empty.
    """

    position: Position
    key: bytes
    sealed: bytes

    @cached_property
    def digest(self) -> bytes:
        """Digest that the successor and the counter contain."""
        return state_digest(self.position, self.sealed)

    @property
    def who(self) -> tuple[bytes | int | str, ...]:
        """Columns that identify the attempt."""
        return tuple(getattr(self.position, name) for name in _WHO)

    @property
    def columns(self) -> tuple[bytes | int | str, ...]:
        """Values of the row's columns."""
        return (*(getattr(self.position, name) for name in _POSITION), self.key, self.sealed, self.digest)


class Store:
    """The file at `path`, created with the first row; raises LocalError on failure.

    After an error it is unknown whether a row was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, row: Row) -> None:
        """Insert the first row of an attempt; another of its request must not be open."""
        with open_database(self.path, _KIND) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(_INSERT, row.columns)
            except sqlite3.IntegrityError:
                raise self._is_open(row.position.request, row.position.role) from None
            connection.execute("COMMIT")

    def check_none_open(self, session: bytes, request: int, role: str) -> None:
        """Raise the LocalError that `begin` would raise."""
        row = self.find(session, request, role)
        if row is not None and not row.position.flags & OVER:
            raise self._is_open(request, role)

    def _is_open(self, request: int, role: str) -> LocalError:
        """Return the error about an open attempt."""
        return LocalError(
            f"{self.path}: a saved run of {role} in request {request} is not over: restore or abandon it"
        )

    def swap(self, before: Row, after: Row, entries: int | None = 0) -> None:
        """Replace a row, and remove the entries beside it; raise LocalError if it is no longer the newest.

        A finished row is replaced only by one marked as taken, and that one by no other. `entries`: the
        required number of entries; None: any number.
        """
        position, who = before.position, before.who
        with open_database(self.path, _KIND) as connection:
            connection.execute("BEGIN IMMEDIATE")
            over = OVER if after.position.flags & TAKEN else 0
            values = (*after.columns, *who, position.run, position.counter, before.digest, over)
            if connection.execute(_SWAP, values).rowcount != 1:
                raise self._is_old(position)
            if connection.execute(_CLEAR, who).rowcount != entries and entries is not None:
                raise self._is_old(position)
            connection.execute("COMMIT")

    def append(self, row: Row, number: int, sealed: bytes) -> None:
        """Insert an entry beside a row; raise LocalError if it is there, or the row is not the newest."""
        with open_database(self.path, _KIND) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute(_IS_NEWEST, (*row.who, row.digest)).fetchall():
                raise self._is_old(row.position)
            try:
                connection.execute(_APPEND, (*row.who, number, sealed))
            except sqlite3.IntegrityError:
                raise self._is_old(row.position) from None
            connection.execute("COMMIT")

    def entries(self, row: Row) -> list[bytes]:
        """Return the entries beside a row, in order; raise LocalError if one is missing."""
        with open_database(self.path, _KIND) as connection:
            result = connection.execute(_ENTRIES, row.who).fetchall()
        if [number for number, _ in result] != list(range(len(result))):
            raise LocalError(f"{self.path}: the inbox of {row.position.role} is damaged")
        return [sealed for _, sealed in result]

    def _is_old(self, position: Position) -> LocalError:
        """Return the error about a row that is not the newest."""
        return LocalError(
            f"{self.path}: state {position.counter} of {position.role} in request {position.request} is no "
            "longer the newest: another process has restored it, or the file was set back"
        )

    def find(self, session: bytes, request: int, role: str) -> Row | None:
        """Return the row of the open attempt, or else of the last one that is over and not taken."""
        if not self.path.exists():
            return None
        with open_database(self.path, _KIND) as connection:
            rows = connection.execute(_FIND, (session, request, role)).fetchall()
        if not rows:
            return None
        *position, key, sealed, digest = rows[0]
        row = Row(Position(*position), key, sealed)
        if row.digest != digest:
            raise LocalError(f"{self.path}: the saved state of {role} in request {request} is damaged")
        return row

    def attempts(self, role: str) -> list[tuple[bytes, int, bytes]]:
        """Return session, request and name of every attempt of a role, by request."""
        if not self.path.exists():
            return []
        with open_database(self.path, _KIND) as connection:
            return list(connection.execute(_ATTEMPTS, (role,)))

    def remove(self, session: bytes, request: int, role: str, attempt: bytes) -> None:
        """Remove the row of an attempt whose request is never restored again, and the entries beside it."""
        who = (session, request, role, attempt)
        with open_database(self.path, _KIND) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_CLEAR, who)
            connection.execute(_REMOVE, who)
            connection.execute("COMMIT")
