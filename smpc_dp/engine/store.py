"""Store of saved states: one row for each attempt, replaced by compare-and-swap in a durable transaction.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import astuple

from smpc_dp.database import Database, Kind
from smpc_dp.engine.seal import OVER, TAKEN, Position, state_digest
from smpc_dp.errors import LocalError

# "SDPS".
_KIND = Kind(
    "saved states",
    0x53445053,
    2,
    (
        "CREATE TABLE states (session BLOB NOT NULL, request INTEGER NOT NULL, role TEXT NOT NULL, "
        "attempt BLOB NOT NULL, counter INTEGER NOT NULL, run BLOB NOT NULL, step TEXT NOT NULL, "
        "predecessor BLOB NOT NULL, received BLOB NOT NULL, terms BLOB NOT NULL, flags INTEGER NOT NULL, "
        "key BLOB NOT NULL, digest BLOB NOT NULL, sealed BLOB NOT NULL, "
        "UNIQUE (session, request, role, attempt)) STRICT",
        "CREATE TABLE inbox (session BLOB NOT NULL, request INTEGER NOT NULL, role TEXT NOT NULL, "
        "attempt BLOB NOT NULL, number INTEGER NOT NULL, sealed BLOB NOT NULL, "
        "UNIQUE (session, request, role, attempt, number)) STRICT",
    ),
    # A state has the vector: to write a long one takes half the processor time of 4 KiB.
    page_bytes=1 << 14,
)
_POSITION = Position.__struct_fields__
# What is compared comes before what is long.
_COLUMNS = (*_POSITION, "key", "digest", "sealed")
_WHO = ("session", "request", "role", "attempt")
_CHANGED = tuple(name for name in _COLUMNS if name not in _WHO)
_INSERT = f"INSERT INTO states ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_SWAP = (
    f"UPDATE states SET {', '.join(f'{name} = ?' for name in _CHANGED)} "  # noqa: S608
    f"WHERE {' AND '.join(f'{name} = ?' for name in (*_WHO, 'run', 'counter', 'digest'))} "
    f"AND flags & {OVER} = ?"
)
_NEWEST = (
    "FROM states WHERE session = ? AND request = ? AND role = ? "
    f"AND (flags & {TAKEN} = 0 OR length(sealed) > 0) ORDER BY flags & {OVER}, rowid DESC LIMIT 1"
)
_FIND = f"SELECT {', '.join(_COLUMNS)} {_NEWEST}"
_FLAGS = f"SELECT flags {_NEWEST}"
_MINE = " AND ".join(f"{name} = ?" for name in _WHO)
_IS_NEWEST = f"SELECT 1 FROM states WHERE {_MINE} AND digest = ?"  # noqa: S608
_APPEND = f"INSERT OR IGNORE INTO inbox SELECT ?, ?, ?, ?, ?, ? WHERE EXISTS ({_IS_NEWEST})"
_ENTRIES = f"SELECT number, sealed FROM inbox WHERE {_MINE} ORDER BY number"  # noqa: S608
_CLEAR = f"DELETE FROM inbox WHERE {_MINE}"  # noqa: S608
_SWAP_ALONE = f"{_SWAP} AND NOT EXISTS (SELECT 1 FROM inbox WHERE {_MINE})"  # noqa: S608
_REMOVE = f"DELETE FROM states WHERE {_MINE}"  # noqa: S608
_ATTEMPTS = "SELECT session, request, attempt FROM states WHERE role = ? ORDER BY request"


class Row(msgspec.Struct, frozen=True, dict=True):
    """A saved state in the database: its position, its key's name, and the encrypted state (may be empty).

    It is not restored if the encrypted state is empty.
    """

    position: Position
    key: bytes
    sealed: bytes

    @cached_property
    def digest(self) -> bytes:
        """The hash of the saved state, which the next state and the rollback counter contain."""
        return state_digest(self.position, self.sealed)

    @property
    def who(self) -> tuple[bytes | int | str, ...]:
        """The values of the columns that identify the attempt of a run."""
        return astuple(self.position)[: len(_WHO)]

    @property
    def columns(self) -> tuple[bytes | int | str, ...]:
        """The values of the saved state's row, in the order of the database's columns."""
        return (*astuple(self.position), self.key, self.digest, self.sealed)


class Store:
    """Database file with the newest saved state of each request and role; errors are LocalError.

    After an error it is unknown whether a row was written.
    """

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """`alone`: see `Database`."""
        self.path = path
        self._database = Database(path, _KIND, alone=alone)

    def close(self) -> None:
        """Close the database file; the next use opens it again."""
        self._database.close()

    def begin(self, row: Row) -> None:
        """Insert the first row of an attempt; raise LocalError if another attempt of its request is open."""
        with self._database.changing() as connection:
            position = row.position
            rows = connection.execute(_FLAGS, row.who[:3]).fetchall()
            if rows and not rows[0][0] & OVER:
                raise self._is_not_over(position.request, position.role)
            connection.execute(_INSERT, row.columns)

    def check_none_open(self, session: bytes, request: int, role: str) -> None:
        """Raise LocalError if an attempt of this request and role is open."""
        flags = self.flags(session, request, role)
        if flags is not None and not flags & OVER:
            raise self._is_not_over(request, role)

    def _is_not_over(self, request: int, role: str) -> LocalError:
        """Return the error that an earlier attempt of a request is still open."""
        return LocalError(
            f"{self.path}: a saved run of {role} in request {request} is not over: restore or abandon it"
        )

    def swap(self, before: Row, after: Row, entries: int | None = 0) -> None:
        """Replace a row, remove its entries; LocalError if it is not newest, or has another number of these.

        A finished row is replaced only by one marked as taken, and that one by no other. `entries`: the
        required number of entries; None: any number.
        """
        position, who = before.position, before.who
        over = OVER if after.position.flags & TAKEN else 0
        values = (*after.columns[len(who) :], *who, position.run, position.counter, before.digest, over)
        if entries == 0:
            if self._database.change(_SWAP_ALONE, (*values, *who)) != 1:
                raise self._is_old(position)
            return
        with self._database.changing() as connection:
            if connection.execute(_SWAP, values).rowcount != 1:
                raise self._is_old(position)
            if connection.execute(_CLEAR, who).rowcount != entries and entries is not None:
                raise self._is_old(position)

    def append(self, row: Row, number: int, sealed: bytes) -> None:
        """Insert an encrypted entry beside a row; raise LocalError if it exists, or the row is not newest."""
        who = row.who
        if self._database.change(_APPEND, (*who, number, sealed, *who, row.digest)) != 1:
            raise self._is_old(row.position)

    def entries(self, row: Row) -> list[bytes]:
        """Return the encrypted entries stored beside a row, in order; raise LocalError if one is missing."""
        with self._database.reading() as connection:
            result = connection.execute(_ENTRIES, row.who).fetchall()
        if [number for number, _ in result] != list(range(len(result))):
            raise LocalError(f"{self.path}: the inbox of {row.position.role} is damaged")
        return [sealed for _, sealed in result]

    def _is_old(self, position: Position) -> LocalError:
        """Return the error that a row is not the newest of its attempt."""
        return LocalError(
            f"{self.path}: state {position.counter} of {position.role} in request {position.request} is no "
            "longer the newest: another process has restored it, or the file was set back"
        )

    def find(self, session: bytes, request: int, role: str) -> Row | None:
        """Return the row of a request's open attempt, else the last still needed, or None; or LocalError."""
        if not self.path.exists():
            return None
        with self._database.reading() as connection:
            rows = connection.execute(_FIND, (session, request, role)).fetchall()
        if not rows:
            return None
        *position, key, digest, sealed = rows[0]
        row = Row(Position(*position), key, sealed)
        if row.digest != digest:
            raise LocalError(f"{self.path}: the saved state of {role} in request {request} is damaged")
        return row

    def flags(self, session: bytes, request: int, role: str) -> int | None:
        """Return the flags of a request's saved state; None if there is no state that is still needed."""
        if not self.path.exists():
            return None
        with self._database.reading() as connection:
            rows = connection.execute(_FLAGS, (session, request, role)).fetchall()
        return rows[0][0] if rows else None

    def attempts(self, role: str) -> list[tuple[bytes, int, bytes]]:
        """Return session digest, request number and attempt name of each saved attempt of a role."""
        if not self.path.exists():
            return []
        with self._database.reading() as connection:
            return list(connection.execute(_ATTEMPTS, (role,)))

    def remove(self, session: bytes, request: int, role: str, attempt: bytes) -> None:
        """Remove the row of an attempt, with its entries, whose request is never restored again."""
        who = (session, request, role, attempt)
        with self._database.changing() as connection:
            connection.execute(_CLEAR, who)
            connection.execute(_REMOVE, who)
