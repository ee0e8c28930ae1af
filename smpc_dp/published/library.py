"""The circuits that are published: how each is built, what it means in plain Python, what its bits are."""

from __future__ import annotations

from smpc_dp.circuits import aes, sha256
from smpc_dp.circuits.gadgets import (
    absolute,
    add,
    equal,
    less_than,
    less_than_constant,
    multiplex,
    multiply,
    negate,
    popcount,
    subtract,
)
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.published.entry import Published, Value, Values
from smpc_dp.published.kernels import KERNELS

# The public constant of the example.
THRESHOLD = 1000


def find(name: str) -> Published:
    """Return the published circuit of this name. Raises ConfigError for an unknown one."""
    if name not in PUBLISHED:
        raise ConfigError([Fault("circuit", f"no '{name}'; there are: {', '.join(PUBLISHED)}")])
    return PUBLISHED[name]


def _signed(value: int, width: int) -> int:
    return value - (value >> (width - 1) << width)


def _number(name: str, width: int, signed: bool | None = None) -> Value:
    kind = {None: "integer, signed or unsigned", True: "two's complement", False: "unsigned"}[signed]
    return Value(name, width, f"{kind}, {width} bits")


def _truth(name: str, what: str) -> Value:
    return Value(name, 1, f"1 where {what}, else 0")


def _two(width: int, signed: bool | None = None) -> tuple[Value, Value]:
    return _number("x", width, signed), _number("y", width, signed)


def _add(width: int) -> Published:
    return Published(
        f"add{width}",
        f"z = x + y mod 2^{width}",
        _two(width),
        (_number("z", width),),
        lambda builder, x, y: [add(builder, x, y)],
        lambda x, y: ((x + y) % (1 << width),),
    )


def _subtract(width: int) -> Published:
    return Published(
        f"sub{width}",
        f"z = x - y mod 2^{width}",
        _two(width),
        (_number("z", width),),
        lambda builder, x, y: [subtract(builder, x, y)],
        lambda x, y: ((x - y) % (1 << width),),
    )


def _multiply(width: int) -> Published:
    return Published(
        f"mul{width}",
        f"z = x y mod 2^{width}",
        _two(width),
        (_number("z", width),),
        lambda builder, x, y: [multiply(builder, x, y)],
        lambda x, y: (x * y % (1 << width),),
    )


def _negate(width: int) -> Published:
    return Published(
        f"neg{width}",
        f"z = -x mod 2^{width}",
        (_number("x", width),),
        (_number("z", width),),
        lambda builder, x: [negate(builder, x)],
        lambda x: (-x % (1 << width),),
    )


def _absolute(width: int) -> Published:
    return Published(
        f"abs{width}",
        f"z = |x|; |-2^{width - 1}| is 2^{width - 1}",
        (_number("x", width, True),),
        (_number("z", width, False),),
        lambda builder, x: [absolute(builder, x)],
        lambda x: (abs(_signed(x, width)),),
    )


def _less_than(width: int, signed: bool) -> Published:
    def meaning(x: int, y: int) -> Values:
        return (int(_signed(x, width) < _signed(y, width) if signed else x < y),)

    return Published(
        f"less_{'s' if signed else 'u'}{width}",
        f"z = (x < y), {'signed' if signed else 'unsigned'}",
        _two(width, signed),
        (_truth("z", "x < y"),),
        lambda builder, x, y: [(less_than(builder, x, y, signed=signed),)],
        meaning,
    )


def _less_than_threshold() -> Published:
    return Published(
        f"less_u16_than_{THRESHOLD}",
        f"z = (x < {THRESHOLD}), unsigned; the constant is public and part of the circuit",
        (_number("x", 16, False),),
        (_truth("z", f"x < {THRESHOLD}"),),
        lambda builder, x: [(less_than_constant(builder, x, THRESHOLD),)],
        lambda x: (int(x < THRESHOLD),),
    )


def _equal(width: int) -> Published:
    return Published(
        f"equal{width}",
        "z = (x = y)",
        _two(width),
        (_truth("z", "x = y"),),
        lambda builder, x, y: [(equal(builder, x, y),)],
        lambda x, y: (int(x == y),),
    )


def _multiplex(width: int) -> Published:
    return Published(
        f"mux{width}",
        "z = y if c = 1, else x",
        (*_two(width), Value("c", 1, "the choice")),
        (_number("z", width),),
        lambda builder, x, y, c: [multiplex(builder, c[0], x, y)],
        lambda x, y, c: (y if c else x,),
    )


def _popcount(width: int) -> Published:
    return Published(
        f"popcount{width}",
        f"z = how many of the {width} bits of x are 1",
        (Value("x", width, f"{width} bits"),),
        (_number("z", width.bit_length(), False),),
        lambda builder, x: [popcount(builder, x)],
        lambda x: (x.bit_count(),),
    )


def _block(name: str, bits: int, what: str) -> Value:
    return Value(name, bits, f"{what}: {bits // 8} bytes as one big-endian integer")


_ALL = (
    _add(32),
    _add(64),
    _subtract(64),
    _negate(64),
    _absolute(32),
    _multiply(32),
    _multiply(64),
    *(_less_than(width, signed) for width in (16, 32, 64) for signed in (False, True)),
    _less_than_threshold(),
    _equal(32),
    _equal(64),
    _multiplex(64),
    _popcount(64),
    Published(
        "aes128",
        "AES-128 encryption of one block [FIPS 197], key schedule included",
        (_block("key", 128, "the key"), _block("plaintext", 128, "the block")),
        (_block("ciphertext", 128, "the encrypted block"),),
        lambda builder, key, block: [aes.encrypt(builder, key, block)],
        aes.meaning,
    ),
    Published(
        "sha256",
        "the SHA-256 compression function [FIPS 180-4]; no padding, the state is an input",
        (_block("message", 512, "a block of the padded message"), _block("state", 256, "the state before")),
        (_block("result", 256, "the state after"),),
        lambda builder, message, state: [sha256.compress(builder, message, state)],
        sha256.meaning,
        sha256.meaning_many,
        sha256.known,
    ),
    *KERNELS,
)
PUBLISHED: dict[str, Published] = {entry.name: entry for entry in _ALL}
