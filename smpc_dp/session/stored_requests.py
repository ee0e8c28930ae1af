"""Numbers of the requests of a member's sessions, which only grow, and what they leave to later requests.

These are the survivors of exact sums, and last results with the evidence of a refusal. The file is kept
beside the counter of saved states, on a medium that is never set back, where there is one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from smpc_dp.database import Database, Kind
from smpc_dp.decoding import decode_msgpack
from smpc_dp.engine.phases.last_results import Held, HeldResult, SentResults
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.errors import Code, PrivacyError
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context

# "SDPF".
_KIND = Kind(
    "requests",
    0x53445046,
    2,
    (
        "CREATE TABLE requests (scope BLOB PRIMARY KEY, number INTEGER NOT NULL, operation TEXT NOT NULL, "
        "fixed_in INTEGER NOT NULL, survivors BLOB NOT NULL) STRICT",
        "CREATE TABLE last (scope BLOB, name TEXT, content BLOB NOT NULL, PRIMARY KEY (scope, name)) STRICT",
    ),
)
# Names in `last` at a node; at the aggregator they are the parties.
_HELD, _REFUSED = "/held", "/refused"
_PUT = (
    "INSERT INTO requests VALUES (?, ?, ?, 0, x'') "
    "ON CONFLICT (scope) DO UPDATE SET number = excluded.number, operation = excluded.operation"
)
# The request whose run was begun last, and its attempt.
_BEGUN = "/begun"


class Request(NamedTuple):
    """Record of the newest request of a session: its number (0 for none) and its operation."""

    number: int
    operation: str


class Requests:
    """Database file of request numbers and last results, so that a restarted process reuses none."""

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """`alone`: see `Database`."""
        self.path = path
        self._database = Database(path, _KIND, alone=alone)

    def close(self) -> None:
        """Close the database file; the next use opens it again."""
        self._database.close()

    def last(self, scope: bytes) -> Request:
        """Return the newest stored request of a session, with number 0 if there is none."""
        with self._database.reading() as connection:
            return _last(connection, scope)

    def take(self, scope: bytes, number: int) -> Request:
        """Store that a request begins, and return the one before; PrivacyError for an old number."""
        with self._database.changing() as connection:
            before = _last(connection, scope)
            if number <= before.number:
                raise _is_past(number, before)
            _put(connection, scope, number, "")
        return before

    def next(self, scope: bytes) -> int:
        """Store that the next request begins, and return its number."""
        with self._database.changing() as connection:
            number = _last(connection, scope).number + 1
            _put(connection, scope, number, "")
        return number

    def begin(self, scope: bytes, number: int, operation: str) -> None:
        """Store that a request with this operation begins; raise PrivacyError for a used number."""
        if not self._database.change(f"{_PUT} WHERE number < excluded.number", (scope, number, operation)):
            raise _is_past(number, self.last(scope))

    def has_begun(self, scope: bytes, number: int) -> bool:
        """Return whether the newest run that was begun, and stored here, is of this request."""
        with self._database.reading() as connection:
            return _begun(connection, scope)[0] == number

    def take_attempt(self, scope: bytes, number: int, attempt: bytes) -> bool:
        """Store which attempt is this member's; False for another one, or a later request's."""
        with self._database.changing() as connection:
            before = _begun(connection, scope)
            if before[0] >= number:
                return before == (number, attempt)
            content = msgspec.msgpack.encode((number, attempt))
            connection.execute("INSERT OR REPLACE INTO last VALUES (?, ?, ?)", (scope, _BEGUN, content))
        return True

    def set_operation(self, scope: bytes, number: int, operation: str) -> None:
        """Store the operation of the newest request; PrivacyError if it has one, or a newer one exists."""
        with self._database.changing() as connection:
            last = _last(connection, scope)
            if last != (number, ""):
                reason = (
                    f"request {number} has gone on in another process, or request {last.number} has begun"
                )
                raise PrivacyError(reason, code=Code.PAST)
            _put(connection, scope, number, operation)

    def ask(self, scope: bytes, number: int, operation: str) -> None:
        """Replace the stored operation of a request if it is the newest one; else do nothing."""
        with self._database.changing() as connection:
            if _last(connection, scope).number == number:
                _put(connection, scope, number, operation)

    def fixed(self, scope: bytes, parties: int) -> StoredSurvivors:
        """Return the stored set of survivors over which all exact sums of a session are taken."""
        with self._database.reading() as connection:
            row = _survivors(connection, scope)
        return StoredSurvivors(self, parties, row)

    def keep_survivors(self, scope: bytes, number: int, packed: bytes) -> bytes:
        """Store the survivors of a session's first sum; return those stored, perhaps earlier ones."""
        with self._database.changing() as connection:
            _, before = _survivors(connection, scope)
            if before:
                return before
            connection.execute(
                "UPDATE requests SET fixed_in = ?, survivors = ? WHERE scope = ?", (number, packed, scope)
            )
        return packed

    def sent(self, scope: bytes) -> StoredSent:
        """Return the store of the results that a session's aggregator has sent last."""
        return StoredSent(self, scope)

    def held(self, scope: bytes) -> StoredHeld:
        """Return the store of the last result that a party accepted, and of its refusal."""
        return StoredHeld(self, scope)

    def last_results(self, scope: bytes) -> dict[str, bytes]:
        """Return the stored contents of a session's last results, by name."""
        with self._database.reading() as connection:
            return dict(connection.execute("SELECT name, content FROM last WHERE scope = ?", (scope,)))

    def keep_last_results(self, scope: bytes, contents: Mapping[str, bytes]) -> None:
        """Store contents of a session's last results, by name."""
        rows = [part for name, content in contents.items() for part in (scope, name, content)]
        values = ", ".join(["(?, ?, ?)"] * len(contents))
        self._database.change(f"INSERT OR REPLACE INTO last VALUES {values}", rows)  # noqa: S608


class StoredSurvivors(FixedSurvivors):
    """Set of survivors for all exact sums of a session, stored before anybody is told."""

    def __init__(self, requests: Requests, parties: int, row: tuple[int, bytes]) -> None:
        number, packed = row
        super().__init__(PartySet.unpack(packed, parties, "") if packed else None, number)
        self._requests, self._is_stored = requests, bool(packed)

    def fix(self, context: Context, survivors: PartySet) -> None:
        """Store a run's survivors as the session's set; PrivacyError if another set is stored."""
        super().fix(context, survivors)
        if self._is_stored:
            return
        packed = self._requests.keep_survivors(context.scope, context.request, survivors.packed)
        if packed != survivors.packed:
            stored = PartySet.unpack(packed, len(context.names), "")
            FixedSurvivors(stored, context.request).check(context, survivors)
        self._is_stored = True


class StoredSent(SentResults):
    """An aggregator's last results by party, stored in a file before they are sent."""

    def __init__(self, requests: Requests, scope: bytes) -> None:
        super().__init__(entries=requests.last_results(scope))
        self._requests, self._scope = requests, scope

    def record(self, entries: Mapping[str, bytes]) -> None:
        """Store encoded results by party in the file, then keep them in memory."""
        self._requests.keep_last_results(self._scope, entries)
        super().record(entries)


class StoredHeld(HeldResult):
    """A party's last result, and its refusal of one with evidence, stored in a file."""

    def __init__(self, requests: Requests, scope: bytes) -> None:
        self._requests, self._scope = requests, scope
        stored = requests.last_results(scope)
        held = decode_msgpack(stored[_HELD], Held) if _HELD in stored else None
        evidence = decode_msgpack(stored[_REFUSED], dict[str, bytes]) if _REFUSED in stored else None
        super().__init__(held, evidence)

    def hold(self, held: Held) -> None:
        """Store a result that the party has accepted, then keep it in memory."""
        self._requests.keep_last_results(self._scope, {_HELD: msgspec.msgpack.encode(held)})
        super().hold(held)

    def record_refusal(self, evidence: Mapping[str, bytes]) -> None:
        """Store the evidence with which the party refused a result, then keep it in memory."""
        self._requests.keep_last_results(self._scope, {_REFUSED: msgspec.msgpack.encode(evidence)})
        super().record_refusal(evidence)


def _last(connection: sqlite3.Connection, scope: bytes) -> Request:
    """Return the newest request of a session from the database, with number 0 if there is none."""
    rows = connection.execute("SELECT number, operation FROM requests WHERE scope = ?", (scope,)).fetchall()
    return Request(*rows[0]) if rows else Request(0, "")


def _begun(connection: sqlite3.Connection, scope: bytes) -> tuple[int, bytes]:
    """Return (request number, attempt) of the newest run that was stored, or (0, b"")."""
    query = "SELECT content FROM last WHERE scope = ? AND name = ?"
    rows = connection.execute(query, (scope, _BEGUN)).fetchall()
    return decode_msgpack(rows[0][0], tuple[int, bytes]) if rows else (0, b"")


def _put(connection: sqlite3.Connection, scope: bytes, number: int, operation: str) -> None:
    """Write the number and operation of a session's newest request to the database."""
    connection.execute(_PUT, (scope, number, operation))


def _is_past(number: int, newest: Request) -> PrivacyError:
    """Return the PrivacyError for a request number that was used already."""
    reason = f"request {number} comes after request {newest.number}: each number is for one sum"
    return PrivacyError(reason, code=Code.PAST)


def _survivors(connection: sqlite3.Connection, scope: bytes) -> tuple[int, bytes]:
    """Return (request that fixed them, encoded survivors) from the database, or (0, b"")."""
    query = "SELECT fixed_in, survivors FROM requests WHERE scope = ?"
    rows = connection.execute(query, (scope,)).fetchall()
    return rows[0] if rows else (0, b"")
