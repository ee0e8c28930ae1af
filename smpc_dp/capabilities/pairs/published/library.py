"""The list of published circuits, with their entries."""

from __future__ import annotations

import operator
from collections.abc import Callable

from smpc_dp.capabilities.pairs.circuits import aes, sha256
from smpc_dp.capabilities.pairs.circuits.builder import Bits
from smpc_dp.capabilities.pairs.circuits.gadgets import (
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
from smpc_dp.capabilities.pairs.published.entry import Published, Value, Values
from smpc_dp.capabilities.pairs.published.kernels import KERNELS
from smpc_dp.errors import ConfigCheck, ConfigError

# The public constant of the example.
THRESHOLD = 1000


def find(name: str) -> Published:
    """Return the published circuit of this name; raise ConfigError for an unknown name."""
    if name not in PUBLISHED:
        raise ConfigError.at(
            "circuit", f"no '{name}'; there are: {', '.join(PUBLISHED)}", ConfigCheck.UNKNOWN_NAME
        )
    return PUBLISHED[name]


def _signed(value: int, width: int) -> int:
    """Convert an unsigned integer of `width` bits to the signed one that it encodes in two's complement."""
    return value - (value >> (width - 1) << width)


def _integer(name: str, width: int, signed: bool | None = None) -> Value:
    """Return the description of an integer input or output; `signed` None means that both kinds fit."""
    kind = {None: "integer, signed or unsigned", True: "two's complement", False: "unsigned"}[signed]
    return Value(name, width, f"{kind}, {width} bits")


def _truth(purpose: str) -> Value:
    """Return the description of a one-bit output z that is 1 where the stated condition holds, else 0."""
    return Value("z", 1, f"1 where {purpose}, else 0")


def _two(width: int, signed: bool | None = None) -> tuple[Value, Value]:
    """Return descriptions of two integer inputs, x and y, of this width."""
    return _integer("x", width, signed), _integer("y", width, signed)


def _modular(
    name: str, formula: str, width: int, gadget: Callable[..., Bits], plain: Callable[..., int]
) -> Published:
    """Return the published entry of an operation on integers modulo 2^width, with its plain function."""
    return Published(
        f"{name}{width}",
        f"z = {formula} mod 2^{width}",
        _two(width) if "y" in formula else (_integer("x", width),),
        (_integer("z", width),),
        lambda builder, *values: [gadget(builder, *values)],
        lambda *values: (plain(*values) % (1 << width),),
    )


def _less_than(width: int, signed: bool) -> Published:
    """Return the published entry of the circuit that tests x < y for integers of this width."""

    def meaning(x: int, y: int) -> Values:
        return (int(_signed(x, width) < _signed(y, width) if signed else x < y),)

    return Published(
        f"less_{'s' if signed else 'u'}{width}",
        f"z = (x < y), {'signed' if signed else 'unsigned'}",
        _two(width, signed),
        (_truth("x < y"),),
        lambda builder, x, y: [(less_than(builder, x, y, signed=signed),)],
        meaning,
    )


def _equal(width: int) -> Published:
    """Return the published entry of the circuit that tests two integers of this width for equality."""
    return Published(
        f"equal{width}",
        "z = (x = y)",
        _two(width),
        (_truth("x = y"),),
        lambda builder, x, y: [(equal(builder, x, y),)],
        lambda x, y: (int(x == y),),
    )


def _block(name: str, bits: int, purpose: str) -> Value:
    """Return the description of an input or output that is a block of bytes, as one integer."""
    return Value(name, bits, f"{purpose}: {bits // 8} bytes as one big-endian integer")


_ALL = (
    _modular("add", "x + y", 32, add, operator.add),
    _modular("add", "x + y", 64, add, operator.add),
    _modular("sub", "x - y", 64, subtract, operator.sub),
    _modular("neg", "-x", 64, negate, operator.neg),
    Published(
        "abs32",
        "z = |x|; |-2^31| is 2^31",
        (_integer("x", 32, True),),
        (_integer("z", 32, False),),
        lambda builder, x: [absolute(builder, x)],
        lambda x: (abs(_signed(x, 32)),),
    ),
    _modular("mul", "x y", 32, multiply, operator.mul),
    _modular("mul", "x y", 64, multiply, operator.mul),
    *(_less_than(width, signed) for width in (16, 32, 64) for signed in (False, True)),
    Published(
        f"less_u16_than_{THRESHOLD}",
        f"z = (x < {THRESHOLD}), unsigned; the constant is public and part of the circuit",
        (_integer("x", 16, False),),
        (_truth(f"x < {THRESHOLD}"),),
        lambda builder, x: [(less_than_constant(builder, x, THRESHOLD),)],
        lambda x: (int(x < THRESHOLD),),
    ),
    _equal(32),
    _equal(64),
    Published(
        "mux64",
        "z = y if c = 1, else x",
        (*_two(64), Value("c", 1, "the choice")),
        (_integer("z", 64),),
        lambda builder, x, y, c: [multiplex(builder, c[0], x, y)],
        lambda x, y, c: (y if c else x,),
    ),
    Published(
        "popcount64",
        "z = how many of the 64 bits of x are 1",
        (Value("x", 64, "64 bits"),),
        (_integer("z", 7, False),),
        lambda builder, x: [popcount(builder, x)],
        lambda x: (x.bit_count(),),
    ),
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
        sha256.known_answers,
    ),
    *KERNELS,
)
PUBLISHED: dict[str, Published] = {entry.name: entry for entry in _ALL}
