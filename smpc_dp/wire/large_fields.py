"""Messages with one large byte string, which is not copied.

msgspec copies every byte string that it encodes or decodes, and the check that an encoding is canonical
encodes all of it again. Here these are done for the bytes around the large one.
"""

from __future__ import annotations

import functools
import typing
from typing import Any, TypeVar

import msgspec

from smpc_dp.decoding import decode_msgpack
from smpc_dp.wire.envelope import Large

T = TypeVar("T")

# A byte string of more bytes is large: as many as a frame has at most.
LARGE = 1 << 20
# Formats of byte strings in MessagePack, by the bytes of their length.
_BIN = {1: 0xC4, 2: 0xC5, 4: 0xC6}
_EMPTY = b"\xc4\x00"
# Encodings of arrays of less than 16 items begin with a byte of this range, which has their number.
_ARRAY = range(0x90, 0xA0)

# Room in a `MessageBuffer` for the fields before the large one, and for those behind it.
_ROOM_BEFORE, _ROOM_BEHIND = 64, 4096

_ENCODER = msgspec.msgpack.Encoder()
_ITEMS = msgspec.msgpack.Decoder(list[msgspec.Raw])


class MessageBuffer(bytearray):
    """Byte buffer for a large field of a message, with room around it to encode the message in place."""

    @classmethod
    def of(cls, size: int) -> MessageBuffer:
        """Return a zeroed buffer for a field of at most `size` bytes."""
        return cls(_ROOM_BEFORE + size + _ROOM_BEHIND)

    def content(self, size: int) -> memoryview:
        """Return a view of the field's first `size` bytes."""
        return memoryview(self)[_ROOM_BEFORE : _ROOM_BEFORE + size]

    def complete(self, before: bytes, size: int, behind: bytes) -> memoryview | None:
        """Write the rest of the message around the field; return the whole, None if there is no room."""
        start, end = _ROOM_BEFORE - len(before), _ROOM_BEFORE + size
        if start < 0 or end + len(behind) > len(self):
            return None
        whole = memoryview(self)
        whole[start:_ROOM_BEFORE], whole[end : end + len(behind)] = before, behind
        return whole[start : end + len(behind)].toreadonly()


def encode_large(message: msgspec.Struct) -> memoryview | None:
    """Encode a message in place around its large field, without a copy; None if it has none.

    Returns None where no field of more than LARGE bytes is in one, or the other fields have no room there.
    """
    for index in _large_fields(type(message)):
        value = getattr(message, message.__struct_fields__[index])
        if isinstance(value, memoryview) and isinstance(value.obj, MessageBuffer) and value.nbytes > LARGE:
            values = [getattr(message, name) for name in message.__struct_fields__]
            head = _ENCODER.encode(values[:index]), bin_header(value.nbytes)
            # The encoding of an array of less than 16 items begins with one byte.
            before = b"".join((_ARRAY[len(values)].to_bytes(), head[0][1:], head[1]))
            return value.obj.complete(before, value.nbytes, _ENCODER.encode(values[index + 1 :])[1:])
    return None


def bin_header(length: int) -> bytes:
    """Return the canonical MessagePack header of a byte string of `length` bytes."""
    size = next(size for size in (1, 2, 4) if length < 1 << 8 * size)
    return bytes([_BIN[size]]) + length.to_bytes(size, "big")


def decode_large(content: memoryview, kind: type[T]) -> T | None:
    """Decode a message with its large field as a view of `content`; None if not canonical, or without one.

    The field is the first item of more than LARGE bytes. Returns None for a `kind` that has no `Large` field
    there and for other bytes: `signing.decode` says what is wrong with them, or makes copies.
    """
    if not content.readonly or len(content) <= LARGE or content[0] not in _ARRAY:
        return None
    hashable: Any = kind
    try:
        items = [memoryview(item).nbytes for item in _ITEMS.decode(content)]
        index = next((index for index, size in enumerate(items) if size > LARGE), None)
        if index is None or index not in _large_fields(hashable):
            return None
        start = 1 + sum(items[:index])
        end = start + items[index]
        # Whatever its header is, the canonical one of the bytes behind a header of this length.
        first = start + next((1 + size for size, code in _BIN.items() if code == content[start]), 0)
        if content[start:first] != bin_header(end - first):
            return None
        around = b"".join((content[:start], _EMPTY, content[end:]))
        message = decode_msgpack(around, kind)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if _ENCODER.encode(message) != around:
        return None
    struct: Any = message
    msgspec.structs.force_setattr(struct, struct.__struct_fields__[index], content[first:end])
    return message


@functools.lru_cache(maxsize=256)
def _large_fields(kind: Any) -> frozenset[int]:
    """Return the indices of a message's fields that are declared as large."""
    types = typing.get_type_hints(kind, include_extras=True)
    names = getattr(kind, "__struct_fields__", ())
    return frozenset(index for index, name in enumerate(names) if types[name] == Large)
