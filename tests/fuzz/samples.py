"""Good messages of every struct, made from what its fields may hold."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from msgspec import inspect


def samples(kind: type[msgspec.Struct], count: int = 4) -> list[bytes]:
    """Return `count` encodings of messages of a `kind`."""
    generator = random.Random(kind.__name__)
    info = inspect.type_info(kind)
    return [msgspec.msgpack.encode(msgspec.convert(_value(generator, info), kind)) for _ in range(count)]


def _value(generator: random.Random, info: inspect.Type) -> Any:
    match info:
        case inspect.UnionType(types=types):
            return _value(generator, generator.choice(types))
        case inspect.ListType(item_type=item):
            return [_value(generator, item) for _ in range(generator.randrange(4))]
        case inspect.TupleType(item_types=items):
            return tuple(_value(generator, item) for item in items)
        case inspect.StructType(cls=cls, fields=fields, tag=tag):
            values = [_value(generator, field.type) for field in fields]
            return msgspec.convert(values if tag is None else [tag, *values], cls)
        case _:
            return _plain_value(generator, info)


def _plain_value(generator: random.Random, info: inspect.Type) -> Any:
    """Return a value of a type that holds no others."""
    match info:
        case inspect.IntType(ge=low, lt=below, le=most):
            end = 300 if below is None and most is None else int((most or 0) + 1 if below is None else below)
            start = 0 if low is None else int(low)
            return generator.choice((start, start + 1, generator.randrange(start, end)))
        case inspect.BytesType(min_length=least, max_length=most):
            size = generator.choice((0, 1, 2, 32, 64, 97))
            size = max(least or 0, size if most is None else min(size, most))
            return generator.randbytes(size)
        case inspect.StrType(pattern=pattern) if pattern is not None:
            # The one pattern that messages have is of a step's name.
            return generator.choice(("", "masked", "coin-2"))
        case inspect.StrType():
            return generator.choice(("", "alice", "sum 1/2", "protocol", "é" * 20))
        case inspect.FloatType():
            return generator.choice((0.0, -1.5, 1e300))
        case inspect.NoneType():
            return None
        case inspect.EnumType(cls=closed):
            return generator.choice(list(closed)).value
        case inspect.LiteralType(values=known):
            return generator.choice(known)
        case _:
            raise TypeError(f"no sample of {info}")
