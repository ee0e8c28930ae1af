"""Inputs of fuzz targets: seeds, and seeds changed as a hostile peer or a damaged file would change them.

Input `number` of a target is always the same bytes: blocks of `BLOCK` inputs share a generator that is seeded
by the target's name and the number of the block.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

Form = Literal["bytes", "msgpack", "text", "draft"]

BLOCK = 500
# No input is longer, but for a seed that is.
MOST_BYTES = 1 << 14

_BYTES = (b"", b"\0", b"\xff", b"\x7f", b"\x80", b"\xc0", b"\xc1", b"\xed\xa0\x80", b"\xff" * 8, b"\0" * 32)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 127, 128, 255, 256, 65_535, 65_536, (1 << 31) - 1, 1 << 32),
    *((1 << 62) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1, -(1 << 63), 0.0, -0.0, 1.5, 1e300),
    *(float("nan"), float("inf"), "", "a", "\0", "é", "\U0001f600", "x" * 300, b"", b"\0", b"\xff" * 31),
    *(bytes(32), bytes(33), bytes(64), [], [0], [[]], {}, {"a": 1}, [b""] * 20, [[[[[[]]]]]]),
)
# Of 32 bytes: the order of the group of ristretto255 and of its scalars, the field's, and beside them.
_NUMBERS = tuple(
    (number + more).to_bytes(32, "little")
    for number in (0, 1, (1 << 252) + 27742317777372353535851937790883648493, (1 << 255) - 19, (1 << 256) - 2)
    for more in (0, 1)
)
_WORDS = (
    *("0", "1", "-1", "00", "1e999", "nan", "inf", "true", "null", "1_0", "0x1", "0.5", "-0.0", "1/0", "a.b"),
    *("1e-320", "#", ",", ":", "=", "[", "]", "{", "}", "[]", "{}", '"', "'", "\\", '""', "\n", "\r", "\0"),
    *("\t", " ", "\u00e9", "\ufeff", "\\ud800", "\\u0000", "[[roster]]", "[parameters]", "9" * 20, "9" * 400),
    *("9" * 5000, "[" * 2000, "[[" * 50),
)
_TOKEN = re.compile(rb"[A-Za-z0-9_+./-]+|\s+|.", re.DOTALL)


def inputs(
    name: str, form: Form, seeds: Sequence[bytes], first: int, count: int
) -> Iterator[tuple[int, bytes]]:
    """Yield `count` numbered inputs from number `first` on; the first ones are the seeds themselves."""
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        generator = random.Random(zlib.crc32(name.encode()) << 32 | block)
        for number in range(block * BLOCK, (block + 1) * BLOCK):
            content = seeds[number] if number < len(seeds) else _changed(generator, form, seeds)
            if first <= number < first + count:
                yield number, content


def _changed(generator: random.Random, form: Form, seeds: Sequence[bytes]) -> bytes:
    content = seeds[int(generator.random() * len(seeds))]
    if form == "draft":
        return _changed_draft(generator, content)
    for _ in range(1 + int(generator.random() * 3)):
        choice = generator.random()
        if form == "msgpack" and choice < 0.6:
            content = _changed_value(generator, content)
        elif form == "text" and choice < 0.6:
            content = _changed_words(generator, content, seeds)
        else:
            content = _changed_bytes(generator, content, seeds)
    return content if len(content) <= MOST_BYTES else content[: max(MOST_BYTES, len(seeds[0]))]


def _changed_bytes(generator: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    draw = generator.random
    index = int(draw() * (len(content) + 1))
    way = int(draw() * 9)
    if way == 0 and index < len(content):
        return content[:index] + bytes([content[index] ^ 1 << int(draw() * 8)]) + content[index + 1 :]
    if way == 1:
        return content[:index] + bytes([int(draw() * 256)]) + content[index + 1 :]
    if way == 2:
        return content[:index] + _BYTES[int(draw() * len(_BYTES))] + content[index:]
    if way == 3:
        return content[:index] + content[index + 1 + int(draw() * 8) :]
    if way == 4:
        return content[:index]
    if way == 5:
        end = index + int(draw() * 40)
        return content[:end] + content[index:]
    if way == 6:
        other = seeds[int(draw() * len(seeds))]
        return content[:index] + other[int(draw() * (len(other) + 1)) :]
    if way == 7:
        return content + generator.randbytes(1 + int(draw() * 8))
    end = index + 1 + int(draw() * 8)
    return content[:index] + generator.randbytes(end - index) + content[end:]


def _changed_words(generator: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    draw = generator.random
    # A part of a long text is enough to be taken apart.
    start = int(draw() * max(1, len(content) - 400))
    words = _TOKEN.findall(content[start : start + 400])
    if not words:
        return _WORDS[int(draw() * len(_WORDS))].encode()
    index, way = int(draw() * len(words)), int(draw() * 5)
    if way == 0:
        words[index] = _WORDS[int(draw() * len(_WORDS))].encode()
    elif way == 1:
        words.insert(index, _WORDS[int(draw() * len(_WORDS))].encode())
    elif way == 2:
        words[index] = words[int(draw() * len(words))]
    elif way == 3:
        del words[index : index + 1 + int(draw() * 6)]
    else:
        other = _TOKEN.findall(seeds[int(draw() * len(seeds))][:400])
        words[index] = other[int(draw() * len(other))] if other else b""
    return content[:start] + b"".join(words) + content[start + 400 :]


def _changed_value(generator: random.Random, content: bytes) -> bytes:
    """Change one value in MessagePack, or spell one in another way."""
    draw = generator.random
    if content and draw() < 0.1 and 0x90 <= content[0] <= 0x9F:
        # An array's length in more bytes than it needs.
        return b"\xdc" + bytes([0, content[0] & 15]) + content[1:]
    try:
        value = msgspec.msgpack.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return content
    holder: list[Any] = [value]
    index = 0
    while isinstance(holder[index], list) and holder[index] and draw() < 0.8:
        holder = holder[index]
        index = int(draw() * len(holder))
    old, way = holder[index], draw()
    if way < 0.15 and len(holder) > 1:
        del holder[index]
    elif way < 0.3:
        holder.append(old)
    elif isinstance(old, bytes) and way < 0.7:
        holder[index] = _changed_bytes(generator, old, (old,))
    elif isinstance(old, int) and abs(old) < 1 << 62 and way < 0.7:
        holder[index] = old + int(draw() * 5) - 2
    else:
        holder[index] = _VALUES[int(draw() * len(_VALUES))]
    return msgspec.msgpack.encode(value if holder is not value and len(holder) != 1 else holder[0])


def _changed_draft(generator: random.Random, content: bytes) -> bytes:
    """Change one or two values in MessagePack, each place in its structure as often as another."""
    draft = [msgspec.msgpack.decode(content)]
    for _ in range(1 if generator.random() < 0.7 else 2):
        places = _places(draft)
        alike = [*places.values()]
        if not alike:
            break
        same = alike[int(generator.random() * len(alike))]
        others = alike[int(generator.random() * len(alike))]
        _change(generator, *same[int(generator.random() * len(same))], *others[0])
    return msgspec.msgpack.encode(draft[0]) if draft else b""


# Arrays that are longer are of values that are alike.
_FIELDS = 9
_Place = tuple[Any, Any]


def _places(draft: Any) -> dict[tuple[Any, ...], list[_Place]]:
    """Return each value in arrays and maps, by what holds it and its index; by path those that are alike."""
    places: dict[tuple[Any, ...], list[_Place]] = {}
    left: list[tuple[tuple[Any, ...], Any]] = [((), draft)]
    while left:
        path, holder = left.pop()
        alike = isinstance(holder, list) and len(holder) > _FIELDS
        for index in range(len(holder)) if isinstance(holder, list) else list(holder):
            own = (*path, None if alike else index)
            places.setdefault(own, []).append((holder, index))
            if isinstance(holder[index], list | dict):
                left.append((own, holder[index]))
    return places


def _change(generator: random.Random, holder: Any, index: Any, other: Any, place: Any) -> None:
    """Change one value, or its place; or put the value of another place there."""
    draw = generator.random
    old, way = holder[index], draw()
    if way < 0.12:
        del holder[index]
    elif way < 0.3 and isinstance(holder, list):
        # Twice, or elsewhere in the same array.
        if way < 0.24:
            del holder[index]
        holder.insert(int(draw() * (len(holder) + 1)), old)
    elif way < 0.4:
        # Not an array within itself.
        holder[index] = msgspec.msgpack.decode(msgspec.msgpack.encode(other[place]))
    elif way < 0.55:
        holder[index] = _retyped(generator, old)
    elif way < 0.88:
        holder[index] = _similar(generator, old)
    else:
        holder[index] = _VALUES[int(draw() * len(_VALUES))]


def _similar(generator: random.Random, old: Any) -> Any:
    """Return another value of the same type; of others than bytes, numbers and text any."""
    draw = generator.random
    if isinstance(old, bytes):
        way = draw()
        if way < 0.15 and len(old) == 32:
            return _NUMBERS[int(draw() * len(_NUMBERS))]
        if way < 0.3:
            return bytes([int(draw() * 256)]) * len(old)
        return _changed_bytes(generator, old, (old,))
    if isinstance(old, int) and not isinstance(old, bool) and abs(old) < 1 << 62:
        return old + int(draw() * 5) - 2
    if isinstance(old, float):
        return old * (draw() - 0.5)
    if isinstance(old, str):
        return _changed_words(generator, old.encode(), (old.encode(),)).decode("utf-8", "replace")
    return _VALUES[int(draw() * len(_VALUES))]


def _retyped(generator: random.Random, old: Any) -> Any:
    """Return a value of another type that a careless reader takes for the same."""
    draw = generator.random
    others: list[Any] = [[old], None]
    if isinstance(old, int):
        others += [float(old), bool(old), str(old)] if abs(old) < 1 << 53 else [str(old)]
    elif isinstance(old, float):
        others += [int(old), str(old)] if abs(old) < 1 << 53 else [str(old)]
    elif isinstance(old, bytes):
        others += [[*old], old.hex(), old.decode("latin-1"), int.from_bytes(old[:8])]
    elif isinstance(old, str):
        others += [old.encode(), [*old], {old: old}]
    elif isinstance(old, list):
        others += old[:1]
        if all(isinstance(each, int) and 0 <= each < 256 for each in old):
            others += [bytes(old), {each: 0 for each in old}, "".join(map(chr, old))]
        elif all(isinstance(each, str | bytes) for each in old):
            others += [dict.fromkeys(old, 0)]
    elif isinstance(old, dict):
        others += [[*old], [*old.values()], [*map(list, old.items())]]
    elif old is None:
        others += [False, 0, "", b"", {}]
    return others[int(draw() * len(others))]
