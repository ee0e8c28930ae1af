"""Kernels of pairwise statistics as circuits: an integer 0..steps from the bits of two records.

A record is one value of unsigned bits, or a few; what the integer means is in `statistics.kernels`. The
integer is at most `steps` for every pattern of input bits, those included that encode no record: noise is
scaled to that range, and a party may give any bits that it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smpc_dp.circuits.builder import Bit, Bits, Builder
from smpc_dp.circuits.gadgets import (
    absolute,
    equal,
    less_than,
    less_than_constant,
    multiplex,
    multiply,
    select,
    subtract,
)
from smpc_dp.errors import ConfigError, Fault

Record = Sequence[Bits]
Gadget = Callable[[Builder, Record, Record], Bits]

MAX_TABLE_BITS = 16
"""Bits of both records of a kernel that is given as a table, at most."""


def kendall_tau(builder: Builder, x: Record, y: Record) -> Bits:
    """Return 1 + sign(x0 - y0) sign(x1 - y1) for fields of n and m bits: 2 n + 2 m + 1 AND."""
    less_0, tie_0 = _order(builder, x[0], y[0])
    less_1, tie_1 = _order(builder, x[1], y[1])
    tied = builder.or_(tie_0, tie_1)
    concordant = builder.not_(builder.xor(less_0, less_1))
    return tied, builder.and_(builder.not_(tied), concordant)


def absolute_difference(builder: Builder, x: Record, y: Record, steps: int) -> Bits:
    """Return min(|x0 - y0|, steps): 2 n AND for n bits, and up to 2 n more where steps is not 2**n - 1."""
    n = len(x[0])
    return at_most(builder, _distance(builder, x[0], y[0])[:n], steps)


def squared_difference(builder: Builder, x: Record, y: Record, side: int) -> Bits:
    """Return (x0 - y0)**2, |x0 - y0| being cut at `side`: less than 2 n**2 + 4 n AND for n bits."""
    distance = at_most(builder, _distance(builder, x[0], y[0])[: len(x[0])], side)
    return multiply(builder, distance, distance, 2 * len(distance))[: (side * side).bit_length()]


def collision(builder: Builder, x: Record, y: Record) -> Bits:
    """Return whether x0 = y0: n - 1 AND."""
    return (equal(builder, x[0], y[0]),)


def auc(builder: Builder, x: Record, y: Record) -> Bits:
    """Return 1 + sign(x0 - y0): 2 n AND for n bits."""
    less, tie = _order(builder, x[0], y[0])
    return tie, builder.not_(builder.xor(less, tie))


def auc_private_labels(builder: Builder, x: Record, y: Record) -> Bits:
    """Return 1 + (x1 - y1) sign(x0 - y0) where the labels x1, y1 differ, else 0: 2 n + 2 AND."""
    less, tie = _order(builder, x[0], y[0])
    mixed = builder.xor(x[1][0], y[1][0])
    # With different labels the label of y is 1 exactly where that of x is 0.
    won = builder.and_(builder.not_(tie), builder.xor(less, x[1][0]))
    return builder.and_(mixed, tie), builder.and_(mixed, won)


def table(builder: Builder, x: Record, y: Record, integers: Sequence[int], steps: int) -> Bits:
    """Return integers[code], where the bits of x's fields are the low bits of the code and then y's come.

    `integers` has an entry for every pattern of bits. Less than w 2**k AND for k bits in all and w bits of
    an integer. Raises ConfigError for more than 16 bits in all, or an integer outside 0..steps.
    """
    index = tuple(bit for field in (*x, *y) for bit in field)
    if len(index) > MAX_TABLE_BITS:
        what = f"{len(index)} bits of two records, a table has at most {MAX_TABLE_BITS}"
        raise ConfigError([Fault("kernel", what)])
    if any(not 0 <= integer <= steps for integer in integers):
        raise ConfigError([Fault("kernel", f"an integer of the table outside 0 to {steps}")])
    width = steps.bit_length()
    return select(builder, index, [builder.constant(integer, width) for integer in integers])


def at_most(builder: Builder, value: Bits, limit: int) -> Bits:
    """Return min(value, limit): up to 2 n AND for n bits, none if they can be no more."""
    if limit >= (1 << len(value)) - 1:
        return value
    below = less_than_constant(builder, value, limit)
    cut = multiplex(builder, below, builder.constant(limit, len(value)), value)
    return cut[: max(1, limit.bit_length())]


def _order(builder: Builder, x: Bits, y: Bits) -> tuple[Bit, Bit]:
    """Return whether x < y and whether x = y: 2 n AND."""
    less, greater = less_than(builder, x, y), less_than(builder, y, x)
    return less, builder.not_(builder.xor(less, greater))


def _distance(builder: Builder, x: Bits, y: Bits) -> Bits:
    """Return |x - y| of n unsigned bits, with one bit more that is 0: 2 n AND."""
    zero = builder.constant(0, 1)
    return absolute(builder, subtract(builder, (*x, *zero), (*y, *zero)))
