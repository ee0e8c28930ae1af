"""Thread-safe decoding of msgspec's structs, and strict decoding of JSON objects and base64.

msgspec reads the fields of a struct at the first use of its type. Another thread that uses the type meanwhile
sees half of them, and the process crashes (msgspec 0.22). So the first use of each type happens under a lock.
"""

from __future__ import annotations

import binascii
import json
import math
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
# Bytes of a message, or a read-only view of a large one.
Buffer = bytes | memoryview

_lock = threading.Lock()
_used: set[Any] = set()


def _use(kind: Any) -> None:
    """Build msgspec's decoder of a type once, under a lock: threads must not build it at one time."""
    if kind in _used:
        return
    with _lock:
        msgspec.json.Decoder(kind)
        _used.add(kind)


def decode_msgpack(content: Buffer, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Decode MessagePack bytes to a value of type `kind`; raise msgspec.DecodeError if they are not valid."""
    _use(kind)
    return msgspec.msgpack.decode(content, type=kind, strict=True, dec_hook=dec_hook)


def decode_json(content: bytes | str, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Decode JSON to a value of type `kind`; raise msgspec.DecodeError or RecursionError if invalid."""
    _use(kind)
    return msgspec.json.decode(content, type=kind, strict=True, dec_hook=dec_hook)


def convert(value: object, kind: Any) -> Any:
    """Convert dicts, lists and other built-in values to a type; raise msgspec.ValidationError on mismatch."""
    _use(kind)
    return msgspec.convert(value, kind, strict=True)


def parse_object(content: bytes) -> dict[str, object]:
    """Parse UTF-8 as one JSON object; raise ValueError, also for duplicate keys, or RecursionError.

    msgspec takes the last of two values with one key. Numbers are finite.
    """
    parsed = json.loads(
        content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite
    )
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")
    return parsed


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs of a JSON object as a dict; raise ValueError for a duplicate key."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("an object has a key twice")
    return table


def _finite(text: str) -> float:
    """Parse a JSON number as a finite float; raise ValueError for one too large."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number that a float has")
    return number


def _no_number(text: str) -> None:
    """Raise ValueError: called when a JSON text has NaN or Infinity, which are refused."""
    raise ValueError(f"{text} is no number")


def from_base64(text: str) -> bytes | None:
    """Decode canonical base64; return None for a text that is no canonical encoding."""
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    # Stray bits in the last character decode too.
    return content if b64encode(content).decode("ascii") == text else None
