"""Hashes, lines, messages and sets of parties [protocols/log/README.md, "Encodings"]."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from Crypto.Hash import TupleHash256

from smpc_dp_verify.errors import Refused, required

LONGEST_LINE = 1 << 24
PATTERNS = {
    "name": re.compile("[a-z0-9][a-z0-9_.-]{0,62}"),
    "hash": re.compile("[0-9a-f]{64}"),
    "signature": re.compile("[0-9a-f]{128}"),
    "text": re.compile("(?s:.*)"),
    # Possessive: else each group of four takes 120 bytes until the end of the match.
    "base64": re.compile("(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
}


def tuple_hash(label: str, *parts: bytes) -> bytes:
    """Return the 32-byte TupleHash256 of `parts`, with the customisation "smpc-dp/1/label"."""
    state = TupleHash256.new(digest_bytes=32, custom=f"smpc-dp/1/{label}".encode())
    for part in parts:
        state.update(part)
    return state.digest()


def uint(n: int) -> bytes:
    """Return an integer as 8 bytes, big-endian."""
    return n.to_bytes(8, "big")


def read_line(line: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Parse a JSON line with exactly these fields, in order and canonical; raise Refused for others."""
    required(len(line.encode("utf-8", "surrogatepass")) <= LONGEST_LINE, "the format")
    try:
        fields = json.loads(line)
        same = json.dumps(fields, separators=(",", ":"), ensure_ascii=False) == line
    except (ValueError, RecursionError):
        raise Refused("the format") from None
    required(same and isinstance(fields, dict) and list(fields) == list(form), "the format")
    return {name: read_value(fields[name], kind) for name, kind in form.items()}


def read_value(value: Any, kind: str) -> Any:
    """Decode a JSON value of kind "integer", "name", "hash" or so; raise Refused for a wrong form."""
    if kind == "integer":
        required(type(value) is int and 0 <= value < 1 << 62, "the format")
        return value
    required(isinstance(value, str) and PATTERNS[kind].fullmatch(value), "the format")
    if kind == "base64":
        decoded = b64decode(value)
        required(b64encode(decoded).decode("ascii") == value, "the format")
        return decoded
    return bytes.fromhex(value) if kind in ("hash", "signature") else value


def read_message(body: bytes, sizes: Sequence[int | None]) -> list[Any] | None:
    """Decode a message's fields, byte strings of these sizes (None: any; -1: integer); None if wrong."""
    try:
        fields = msgspec.msgpack.decode(body)
        same = msgspec.msgpack.encode(fields) == body
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError, RecursionError):
        return None
    if not same or not isinstance(fields, list) or len(fields) != len(sizes):
        return None
    for value, size in zip(fields, sizes, strict=True):
        is_right = isinstance(value, bytes) and size in (None, len(value))
        if not (is_right or (size == -1 and type(value) is int and value >= 0)):
            return None
    return fields


def read_list(packed: bytes, parties: int) -> list[int] | None:
    """Decode an ascending list of party numbers, 2 bytes each; return None if it is malformed."""
    numbers = [int.from_bytes(packed[i : i + 2], "little") for i in range(0, len(packed), 2)]
    ascending = len(packed) % 2 == 0 and sorted({*numbers}) == numbers
    return numbers if ascending and all(1 <= number <= parties for number in numbers) else None


def read_set(packed: bytes, parties: int) -> list[int]:
    """Decode a set of party numbers, ascending; raise Refused unless it is canonically encoded."""
    if packed[:1] == b"\1":
        absent = {*(read_list(packed[1:], parties) or ())}
        members = [party for party in range(1, parties + 1) if party not in absent]
    else:
        bits = int.from_bytes(packed[1:], "big") >> (-parties % 8)
        members = [party for party in range(1, parties + 1) if bits >> (parties - party) & 1]
    required(packed == party_set(members, parties), "the format")
    return members


def party_set(members: Collection[int], parties: int) -> bytes:
    """Encode a set of party numbers: as bits, or as the list of absent parties if that is shorter."""
    inside = {*members}
    others = [party for party in range(1, parties + 1) if party not in inside]
    octets = bytearray((parties + 7) // 8)
    for member in inside:
        octets[(member - 1) // 8] |= 128 >> (member - 1) % 8
    listed = party_list(others)
    return b"\1" + listed if len(listed) < len(octets) else b"\0" + bytes(octets)


def party_list(members: Sequence[int]) -> bytes:
    """Encode party numbers, 2 bytes each, little-endian."""
    return b"".join(member.to_bytes(2, "little") for member in members)
