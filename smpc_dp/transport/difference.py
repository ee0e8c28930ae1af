"""Differences between this member's session and one that a peer describes, in a few kilobytes.

A session of 10,000 members has about 6 MB, and a peer may send anything: sessions are described, not sent. A
description has two parts, the roster and the rest. A part of at most LISTED_BYTES lists its values, each with
a digest. A longer part has TABLES tables of digests. Each value belongs to one slot of each table, by the
hash of its path; a slot is the exclusive or of the digests of its values. A value whose slots differ in all
tables is almost certainly another one, or none, there.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.decoding import decode_msgpack
from smpc_dp.errors import SmpcError, printable

# A digest in hex, with its quotes, is shown whole.
MAX_SHOWN = 66
MAX_PATH = 100
MAX_DEPTH = 8
MAX_LINES = 20
LISTED_BYTES = 16 << 10
TABLES, SLOTS, DIGEST_BYTES = 6, 256, 8
# While no table has more differing slots, less than one of 50,000 equal values is expected to be named.
MOST_SLOTS = SLOTS // 8
# Two parts, and their array.
MAX_DESCRIPTION = 2 * LISTED_BYTES + 16
# Seconds between two comparisons with descriptions of one member.
COMPARE_SECONDS = 60.0

# Text of a value that tables do not show.
_UNKNOWN = "another value or none"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,66}")


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Part of a session's description: all values as (path, text, digest), or hash tables of their digests.

    `count` is the number of values; `tables` has TABLES * SLOTS * DIGEST_BYTES bytes, or none.
    """

    count: int
    listed: list[tuple[str, str, bytes]]
    tables: bytes


class Description(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Message that describes a member's session to a peer, to find where their files differ."""

    terms: Part
    roster: Part


class _Value(NamedTuple):
    """Value of a session for comparison: its shortened text, and its digest."""

    shown: str
    digest: bytes


class DescribedSession:
    """This member's session, in a form that finds where a peer's session file differs.

    `digest` is the session digest, 32 bytes; `session` returns the session in JSON's types.
    """

    def __init__(self, digest: bytes, session: Callable[[], Mapping[str, object]]) -> None:
        self.digest = digest
        self._session = session
        # The description of many members takes long: it is made once, by the first thread that needs it.
        self._lock = threading.Lock()
        self._compared: dict[str, float] = {}
        # The last error with each peer whose description was compared.
        self.errors: dict[str, SmpcError] = {}

    def description(self) -> bytes:
        """Return the encoded description of this session, to be sent to a peer."""
        with self._lock:
            return self._encoded

    def admits(self, peer: str) -> bool:
        """Tell, and record, if a peer's description may be compared now; limited to a rate."""
        now = time.monotonic()
        if now < self._compared.get(peer, -COMPARE_SECONDS) + COMPARE_SECONDS:
            return False
        self._compared[peer] = now
        return True

    def difference(self, encoded: bytes) -> list[str]:
        """Return one line per difference from a peer's described session; empty if none.

        After MAX_LINES lines one says how many more there are. `encoded` may be any bytes; raises
        msgspec.DecodeError, or ValueError, for those that are no description.
        """
        theirs = decode_msgpack(encoded, Description)
        with self._lock:
            terms, roster = self._parts
        lines = terms.difference(theirs.terms) + roster.difference(theirs.roster)
        more = len(lines) - MAX_LINES
        return lines[:MAX_LINES] + [f"and {more} more"] * (more > 0)

    @cached_property
    def _parts(self) -> tuple[_Terms, _Roster]:
        """Parameters and roster of the session, which are compared separately."""
        session = self._session()
        terms = {key: value for key, value in session.items() if key != "roster"}
        return _Terms(dict(_values("", terms, 0))), _Roster(dict(_members(session.get("roster"))))

    @cached_property
    def _encoded(self) -> bytes:
        """Encoded description of parameters and roster."""
        return msgspec.msgpack.encode(Description(*(part.described for part in self._parts)))


class _Terms:
    """This member's session without the roster, as values by path, for comparison."""

    name = "parameters"

    def __init__(self, values: dict[str, _Value]) -> None:
        self._values = values

    @cached_property
    def described(self) -> Part:
        """Description of these values for a peer: all in a list, or hash tables if there are many."""
        listed = [(path, value.shown, value.digest) for path, value in self._values.items()]
        part = Part(len(listed), listed, b"")
        if len(msgspec.msgpack.encode(part)) <= LISTED_BYTES:
            return part
        digests = np.frombuffer(b"".join(digest for _, _, digest in listed), np.uint64)
        tables = np.zeros((TABLES, SLOTS), np.uint64)
        for table, slots in zip(tables, self._slots.T, strict=True):
            np.bitwise_xor.at(table, slots, digests)
        return Part(len(listed), [], tables.tobytes())

    @cached_property
    def _slots(self) -> NDArray[np.uint8]:
        """Slots of each value in the hash tables, shape (values, TABLES)."""
        hashes = (hashlib.sha256(path.encode()).digest()[:TABLES] for path in self._values)
        return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, TABLES)

    def difference(self, theirs: Part) -> list[str]:
        """Return lines on which values differ from those a peer describes; ValueError if malformed."""
        mine = self.described
        if len(theirs.tables) != len(mine.tables):
            if len(theirs.tables) not in (0, TABLES * SLOTS * DIGEST_BYTES):
                raise ValueError(f"tables of {len(theirs.tables)} bytes")
            return [f"{self.name}: {mine.count} values here, {theirs.count} there"]
        if not mine.tables:
            return self.lines(self._of_list(theirs))
        differing = _tables(mine) != _tables(theirs)
        if differing.sum(axis=1).max() > MOST_SLOTS:
            counts = f"{mine.count} here, {theirs.count} there"
            return [f"{self.name}: more values differ than can be named ({counts})"]
        differs = differing[np.arange(TABLES), self._slots].all(axis=1)
        pairs = {
            path: (value.shown, _UNKNOWN)
            for (path, value), is_other in zip(self._values.items(), differs, strict=True)
            if is_other
        }
        return self.lines(pairs) or [f"{self.name}: has more values there"] * bool(differing.any())

    def _of_list(self, theirs: Part) -> dict[str, tuple[str, str]]:
        """Return, for each path that differs, the texts here and at the peer ("" if missing)."""
        listed = {path: _Value(shown, digest) for path, shown, digest in theirs.listed}
        none = _Value("", b"")
        return {
            path: (here.shown, printable(there.shown, MAX_SHOWN))
            for path in self._values | listed
            if (here := self._values.get(path, none)).digest != (there := listed.get(path, none)).digest
        }

    def lines(self, pairs: Mapping[str, tuple[str, str]]) -> list[str]:
        """Return one line for each path whose value differs."""
        return [_line(path, *pairs[path]) for path in sorted(pairs)]


class _Roster(_Terms):
    """This member's roster as values by path, for comparison with a peer's roster."""

    name = "roster"

    def lines(self, pairs: Mapping[str, tuple[str, str]]) -> list[str]:
        """Return one line per difference, members that only one roster has first."""
        alone = {path: texts for path, texts in pairs.items() if path.endswith("]")}
        lines = [_line("roster", here, "") for here, _ in alone.values() if here]
        lines += [_line("roster", "", there) for here, there in alone.values() if not here]
        if "roster" in pairs and not alone:
            only = (
                "there are other members there, or they" if pairs["roster"][1] == _UNKNOWN else "the members"
            )
            lines.append(f"roster: {only} are in another order")
        rest = {path: texts for path, texts in pairs.items() if path[: path.find("]") + 1] not in alone}
        return lines + [_line(path, *rest[path]) for path in rest if path != "roster"]


def _tables(part: Part) -> NDArray[np.uint64]:
    """Return the hash tables of a part of a description, shape (TABLES, SLOTS)."""
    return np.frombuffer(part.tables, np.uint64).reshape(TABLES, SLOTS)


def _line(path: str, here: str, there: str) -> str:
    """Return the line that shows a path with its value here and at the peer."""
    path = printable(path, MAX_PATH)
    if here and there:
        return f"{path}: {here} here, {there} there"
    return f"{path}: {here or there} only {'here' if here else 'there'}"


def _values(path: str, value: object, depth: int) -> Iterator[tuple[str, _Value]]:
    """Yield the path and value of each leaf in nested settings."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH and (value or not depth):
        for key in sorted(value):
            yield from _values(f"{path}.{_label(key)}" if path else _label(key), value[key], depth + 1)
    else:
        yield path, _value(value)


def _members(roster: object) -> Iterator[tuple[str, _Value]]:
    """Yield path and value of each field in a roster, and of the order of its members."""
    if not isinstance(roster, list):
        return
    yield "roster", _value([entry["name"] for entry in roster])
    for entry in roster:
        path = f"roster[{entry['name']}]"
        yield path, _value(entry["name"])
        yield from _values(path, {key: entry[key] for key in entry if key != "name"}, 1)


def _value(content: object) -> _Value:
    """Return the shortened text of a setting's value, and its digest, for comparison."""
    # JSON distinguishes 1 from 1.0 and from true, Python's == does not.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return _Value(printable(repr(content), MAX_SHOWN), hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES])


def _label(key: str) -> str:
    """Return a key for use in a path: unchanged if plain, else quoted and cut with a digest."""
    if _PLAIN.fullmatch(key):
        return key
    return f"{printable(repr(key), MAX_SHOWN)}#{hashlib.sha256(key.encode()).hexdigest()[:8]}"
