"""Kernels of pairwise statistics as circuits: an integer 0..steps from the bits of two records.

A record is one value of unsigned bits, or a few; `kernels.forms` has the meaning of the integer. The
integer is at most `steps` for every pattern of input bits, those included that encode no record: noise is
scaled to that range, and a party may give any bits that it likes.

AND gates for fields of n (and m) bits: Kendall's tau 2 n + 2 m + 1; an absolute difference 2 n, and up to
2 n more where its limit is not 2**n - 1; a squared difference less than 2 n**2 + 4 n; a collision n - 1; the
AUC 2 n, with private labels 2 n + 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from smpc_dp.capabilities.pairs.circuits.builder import Bit, Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import (
    absolute,
    equal,
    less_than,
    less_than_constant,
    multiplex,
    multiply,
    select,
    subtract,
)
from smpc_dp.capabilities.pairs.kernels.definitions import Definition
from smpc_dp.errors import ConfigCheck, ConfigError

Record = Sequence[Bits]
Gadget = Callable[[Builder, Record, Record], Bits]

MAX_TABLE_BITS = 16
"""Bits of both records of a kernel that is given as a table, at most."""


class Sign(NamedTuple):
    """Circuit bits of a sign -1, 0 or 1; if not `strict`, `negative` is arbitrary where `zero` is 1."""

    negative: Bit
    zero: Bit
    strict: bool


class Distance(NamedTuple):
    """Circuit bits of the distance of two fields, with the greatest value that it can have."""

    bits: Bits
    limit: int


@dataclass(frozen=True)
class OnBits:
    """Implementation of kernel arithmetic that adds gates to a circuit builder."""

    builder: Builder

    def sign(self, x: Bits, y: Bits) -> Sign:
        """Add gates for the sign of x - y of two n-bit fields: 2 n AND gates, none for one bit."""
        on = self.builder
        if len(x) == 1:
            return Sign(on.not_(x[0]), on.not_(on.xor(x[0], y[0])), strict=False)
        less, greater = less_than(on, x, y), less_than(on, y, x)
        return Sign(less, on.not_(on.xor(less, greater)), strict=True)

    def product(self, s: Sign, t: Sign) -> Sign:
        """Add gates for the product of two signs, one AND gate, and return the sign's bits."""
        zero = self.builder.or_(s.zero, t.zero)
        return Sign(self.builder.xor(s.negative, t.negative), zero, strict=False)

    def raised(self, s: Sign) -> Bits:
        """Return the bits of 1 + s for a sign s, with at most one AND gate."""
        on = self.builder
        if s.strict:
            return s.zero, on.not_(on.xor(s.negative, s.zero))
        return s.zero, on.and_(on.not_(s.zero), on.not_(s.negative))

    def decided(self, s: Sign, by: Sign) -> Bits:
        """Add gates for 1 + by * s where the sign `by` is not 0, else 0, with three AND gates."""
        on = self.builder
        apart = on.not_(by.zero)
        won = on.and_(on.not_(s.zero), on.not_(on.xor(s.negative, by.negative)))
        return on.and_(apart, s.zero), on.and_(apart, won)

    def equal(self, x: Bits, y: Bits) -> Bits:
        """Add gates that test two n-bit fields for equality, n - 1 AND gates; return the bit."""
        return (equal(self.builder, x, y),)

    def distance(self, x: Bits, y: Bits, limit: int) -> Distance:
        """Add gates for min(|x - y|, limit) of two fields, 2 n AND gates and those of the minimum."""
        on, zero = self.builder, self.builder.constant(0, 1)
        apart = absolute(on, subtract(on, (*x, *zero), (*y, *zero)))
        return Distance(minimum(on, apart[: len(x)], limit), limit)

    def square(self, distance: Distance) -> Bits:
        """Add gates for the square of a distance of n bits, less than 2 n**2 AND gates."""
        bits, limit = distance
        return multiply(self.builder, bits, bits, 2 * len(bits))[: (limit * limit).bit_length()]


def as_circuit(definition: Definition) -> Gadget:
    """Return a function that builds the circuit of a kernel's definition from two records' bits."""

    def gadget(builder: Builder, x: Record, y: Record) -> Bits:
        result: Bits | Distance = definition(OnBits(builder), x, y)
        return result.bits if isinstance(result, Distance) else result

    return gadget


def table(builder: Builder, x: Record, y: Record, integers: Sequence[int], steps: int) -> Bits:
    """Add gates that look up a kernel's integer in a table, indexed by the bits of both records.

    `integers` has an entry for every pattern of bits. Less than w 2**k AND for k bits in all and w bits of
    an integer. Raises ConfigError for more than 16 bits in all, or an integer outside 0..steps.
    """
    index = tuple(bit for field in (*x, *y) for bit in field)
    if len(index) > MAX_TABLE_BITS:
        reason = f"{len(index)} bits of two records, a table has at most {MAX_TABLE_BITS}"
        raise ConfigError.at("kernel", reason, ConfigCheck.TOO_LARGE)
    if any(not 0 <= integer <= steps for integer in integers):
        raise ConfigError.at("kernel", f"an integer of the table outside 0 to {steps}", ConfigCheck.RANGE)
    width = steps.bit_length()
    return select(builder, index, [builder.constant(integer, width) for integer in integers])


def minimum(builder: Builder, value: Bits, limit: int) -> Bits:
    """Add gates for min(value, limit) of n bits: up to 2 n AND gates, none if the limit always holds."""
    if limit >= (1 << len(value)) - 1:
        return value
    below = less_than_constant(builder, value, limit)
    cut = multiplex(builder, below, builder.constant(limit, len(value)), value)
    return cut[: max(1, limit.bit_length())]


def limited(gadget: Gadget, steps: int) -> Gadget:
    """Return a circuit function whose output is cut to `steps`, so that noise fits whatever it computes."""
    return lambda builder, x, y: minimum(builder, gadget(builder, x, y), steps)
