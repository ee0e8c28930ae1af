"""Gadgets: arithmetic and choice on the bits of a builder.

A value is a tuple of bits, the least significant first; arithmetic is modulo 2**n for n bits, signed
values are in two's complement. Each docstring states the AND gates of the gadget for inputs that are
neither constant nor related; constants and repeated gates make it cheaper. All functions but
`bitwise_not` and `conjunction` raise ConfigError for operands of different or no width.
"""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.capabilities.pairs.circuits.builder import ONE, ZERO, Bit, Bits, Builder
from smpc_dp.errors import ConfigCheck, ConfigError

__all__ = [
    "absolute",
    "add",
    "add_with_carry",
    "bitwise_not",
    "bitwise_xor",
    "conjunction",
    "equal",
    "equal_constant",
    "less_than",
    "less_than_constant",
    "multiplex",
    "multiply",
    "negate",
    "popcount",
    "select",
    "subtract",
]


def bitwise_xor(builder: Builder, x: Sequence[Bit], y: Sequence[Bit]) -> Bits:
    """Add gates that XOR two values bit by bit, without AND gates; return the bits."""
    _same_width(x, y)
    return tuple(builder.xor(a, b) for a, b in zip(x, y, strict=True))


def bitwise_not(builder: Builder, x: Sequence[Bit]) -> Bits:
    """Return a value with every bit negated, without AND gates."""
    return tuple(builder.not_(bit) for bit in x)


def add(builder: Builder, x: Sequence[Bit], y: Sequence[Bit], carry: Bit = ZERO) -> Bits:
    """Add gates for x + y + carry modulo 2**n, with n - 1 AND gates; return the sum's bits."""
    return _add(builder, x, y, carry)[:-1]


def add_with_carry(builder: Builder, x: Sequence[Bit], y: Sequence[Bit], carry: Bit = ZERO) -> Bits:
    """Add gates for x + y + carry of n-bit values, as n + 1 bits, with n AND gates."""
    return _add(builder, x, y, carry)


def subtract(builder: Builder, x: Sequence[Bit], y: Sequence[Bit]) -> Bits:
    """Add gates for x - y modulo 2**n, with n - 1 AND gates; return the difference's bits."""
    # x - y = ~(~x + y), and no carry comes in.
    return bitwise_not(builder, add(builder, bitwise_not(builder, x), y))


def negate(builder: Builder, x: Sequence[Bit]) -> Bits:
    """Add gates for -x modulo 2**n, with n - 2 AND gates (0 for n = 1); return its bits."""
    _same_width(x, x)
    result = [x[0]]
    any_below = x[0]
    for bit in x[1:]:
        flipped = builder.xor(bit, any_below)
        result.append(flipped)
        any_below = builder.xor(flipped, builder.and_(bit, any_below))
    return tuple(result)


def absolute(builder: Builder, x: Sequence[Bit]) -> Bits:
    """Add gates for |x| of a signed value, as unsigned n bits so that |-2**(n-1)| fits; n - 1 AND gates."""
    _same_width(x, x)
    sign = x[-1]
    carry = sign
    result = []
    for bit in x:
        flipped = builder.xor(bit, sign)
        result.append(builder.xor(flipped, carry))
        carry = builder.and_(flipped, carry)
    return tuple(result)


def less_than(builder: Builder, x: Sequence[Bit], y: Sequence[Bit], *, signed: bool = False) -> Bit:
    """Add gates that compare two values, with n AND gates; return the bit of x < y.

    With a public constant c in place of y: n - 1 - z AND, where c (signed: c + 2**(n-1)) ends in z zeros.
    """
    _same_width(x, y)
    if signed:
        # Two's complement with the top bits exchanged is in the order of the unsigned values.
        x, y = (*x[:-1], y[-1]), (*y[:-1], x[-1])
    less = ZERO
    for a, b in zip(x, y, strict=True):
        # Where the bits differ, y's decides.
        less = builder.xor(less, builder.and_(builder.xor(a, b), builder.xor(b, less)))
    return less


def less_than_constant(builder: Builder, x: Sequence[Bit], constant: int, *, signed: bool = False) -> Bit:
    """Add gates that compare x with a public constant; return the bit of x < constant.

    `less_than` states the cost. Raises ConfigError for a constant out of the range of n bits.
    """
    return less_than(builder, x, _constant(builder, constant, len(x), signed), signed=signed)


def equal(builder: Builder, x: Sequence[Bit], y: Sequence[Bit]) -> Bit:
    """Add gates for x = y, with n - 1 AND gates in depth ceil(log2(n)); return the bit of equality."""
    return conjunction(builder, bitwise_not(builder, bitwise_xor(builder, x, y)))


def equal_constant(builder: Builder, x: Sequence[Bit], constant: int, *, signed: bool = False) -> Bit:
    """Add gates that compare x with a public constant, n - 1 AND gates; return the bit of equality."""
    return equal(builder, x, _constant(builder, constant, len(x), signed))


def conjunction(builder: Builder, bits: Sequence[Bit]) -> Bit:
    """Return the AND of n bits, by a tree of n - 1 AND gates in depth ceil(log2(n)); of no bits, 1."""
    level = list(bits)
    while len(level) > 1:
        pairs = [builder.and_(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    return level[0] if level else ONE


def multiplex(builder: Builder, choice: Bit, if_zero: Sequence[Bit], if_one: Sequence[Bit]) -> Bits:
    """Add gates that return the n bits `if_one` where the bit `choice` is 1, else `if_zero`; n AND gates."""
    _same_width(if_zero, if_one)
    return tuple(
        builder.xor(a, builder.and_(choice, builder.xor(a, b))) for a, b in zip(if_zero, if_one, strict=True)
    )


def select(builder: Builder, index: Sequence[Bit], values: Sequence[Sequence[Bit]]) -> Bits:
    """Add gates for values[index], the index of k bits secret; n (2**k - 1) AND gates for n-bit values.

    Raises ConfigError for another number of values.
    """
    if len(values) != 1 << len(index):
        raise ConfigError.at("values", f"{len(values)}, not 2**{len(index)}", ConfigCheck.SHAPE)
    level = [tuple(value) for value in values]
    for bit in index:
        level = [multiplex(builder, bit, a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def multiply(builder: Builder, x: Sequence[Bit], y: Sequence[Bit], width: int | None = None) -> Bits:
    """Add gates for x y modulo 2**width, of unsigned n-bit x and y; n <= width <= 2 n, by default n.

    n**2 - n + 1 AND for width = n, which serves signed values as well; 2 n**2 - n for width = 2 n.
    Raises ConfigError for another width.
    """
    _same_width(x, y)
    n = len(x)
    width = n if width is None else width
    if not n <= width <= 2 * n:
        raise ConfigError.at("width", f"{width}, not {n} to {2 * n}", ConfigCheck.RANGE)
    total = tuple(builder.and_(bit, y[0]) for bit in x)
    result: list[Bit] = []
    for index in range(1, n):
        # `total` is the sum so far, shifted down past the bits that are final.
        result.append(total[0])
        high = width - index
        row = [builder.and_(bit, y[index]) for bit in x[:high]]
        above = (*total[1:], *[ZERO] * (len(row) - len(total) + 1))
        total = _add(builder, above, row, ZERO)[:high]
    return (*result, *total)[:width]


def popcount(builder: Builder, bits: Sequence[Bit]) -> Bits:
    """Add gates that count the ones among n bits, with n - h AND gates where n has h ones in binary.

    No circuit has fewer [Boyar and Peralta 2008, The exact multiplicative complexity of the Hamming
    weight function].
    """
    _same_width(bits, bits)
    result = []
    column = list(bits)
    while column:
        carries = []
        # First in, first out keeps the depth logarithmic.
        queue = list(column)
        head = 0
        while len(queue) - head > 1:
            three = (*queue[head : head + 3], ZERO)[:3]
            head += 3 if len(queue) - head > 2 else 2
            low, carry = _full_add(builder, *three)
            queue.append(low)
            carries.append(carry)
        result.append(queue[head])
        column = carries
    return tuple(result)


def _full_add(builder: Builder, a: Bit, b: Bit, c: Bit) -> tuple[Bit, Bit]:
    """Return (sum, carry) of three bits, with one AND gate [Boyar, Peralta, Pochuev 2000]."""
    from_a = builder.xor(a, c)
    from_b = builder.xor(b, c)
    return builder.xor(from_a, b), builder.xor(c, builder.and_(from_a, from_b))


def _add(builder: Builder, x: Sequence[Bit], y: Sequence[Bit], carry: Bit) -> Bits:
    """Add gates for x + y + carry of n-bit values; return the n sum bits and the last carry."""
    _same_width(x, y)
    result = []
    for a, b in zip(x, y, strict=True):
        low, carry = _full_add(builder, a, b, carry)
        result.append(low)
    return (*result, carry)


def _constant(builder: Builder, value: int, width: int, signed: bool) -> Bits:
    """Return the bits of a public constant; raise ConfigError if the width cannot hold it."""
    low, high = (-(1 << width >> 1), (1 << width >> 1) - 1) if signed else (0, (1 << width) - 1)
    if not low <= value <= high:
        raise ConfigError.at("constant", f"{value}, not {low} to {high}", ConfigCheck.RANGE)
    return builder.constant(value % (1 << width), width)


def _same_width(x: Sequence[Bit], y: Sequence[Bit]) -> None:
    """Raise ConfigError unless both values have an equal number of bits, at least 1."""
    if len(x) != len(y) or not x:
        raise ConfigError.at(
            "width", f"{len(x)} and {len(y)} bits, not the same and at least 1", ConfigCheck.SHAPE
        )
