"""Fixed-point vectors block by block: values that are encoded, and sums that are decoded where they are read.

No array of the size of a vector is made beside what is read and what is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from smpc_dp import _core
from smpc_dp.when_read import ComputedValue

# Integers modulo the range of uint32 or uint64.
Elements = NDArray[np.unsignedinteger[Any]]
# Least and greatest values: one of each for all coordinates, or one for each coordinate.
Sides = tuple[NDArray[np.float64], NDArray[np.float64]]

# Values of a block: those of all its arrays stay in the cache of a processor.
BLOCK = 1 << 15
# Every integer up to here is a float64.
EXACT_FLOAT = 1 << 53


class Map(NamedTuple):
    """Affine map of values from their own bounds to those of a session, interval middle to middle.

    `slack` is how far beyond its own bounds a value may be; `scale` the quotient of the widths.
    """

    lower: float
    upper: float
    slack: float
    middle: float
    scale: float
    centre: float
    onto_lower: float
    onto_upper: float


class Faults(NamedTuple):
    """Result of encoding a vector: how many values were wrong, and the index of the first one.

    `infinite` is the first that is not finite. `outside_own` counts those beyond the bounds of a `Map`,
    `outside` those beyond the bounds of their coordinates.
    """

    infinite: int | None = None
    outside_own: int = 0
    first_own: int | None = None
    outside: int = 0
    first: int | None = None

    def followed_by(self, other: Faults, start: int) -> Faults:
        """Return these faults combined with those of the vector's next part, which begins at `start`."""

        def first(one: int | None, two: int | None) -> int | None:
            return one if one is not None or two is None else start + two

        return Faults(
            first(self.infinite, other.infinite),
            self.outside_own + other.outside_own,
            first(self.first_own, other.first_own),
            self.outside + other.outside,
            first(self.first, other.first),
        )


def blocks_of(values: NDArray[Any], dtype: DTypeLike) -> Iterator[NDArray[Any]]:
    """Yield an array's values in C order as one-dimensional blocks of a native dtype, to limit memory."""
    options: Any = ["readonly", "contig", "nbo", "aligned"]
    iterator = np.nditer(
        values,
        ["external_loop", "buffered", "zerosize_ok"],
        options,
        np.dtype(dtype),
        order="C",
        casting="unsafe",
        buffersize=BLOCK,
    )
    yield from (np.atleast_1d(block) for block in iterator)


def slices_of(length: int) -> Iterator[slice]:
    """Return an iterator of slices that cut a vector of this length into blocks."""
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def sides_in(sides: tuple[NDArray[Any], NDArray[Any]], part: slice) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the lower and upper bounds of the coordinates in a slice; unchanged if all share one pair."""
    return sides if len(sides[0]) == 1 else (sides[0][part], sides[1][part])


def encode_reals(
    values: NDArray[Any],
    elements: Elements,
    sides: Sides,
    fractional_bits: int,
    lowest: int,
    own: Map | None = None,
) -> Faults:
    """Write clipped x to `elements` as round(x 2^fractional_bits) - lowest; return count and first of faults.

    Values beyond a bound are put on it, and counted if they are more than half a step beyond it; those that
    are not finite are written as any integer. `values` has floats or integers, as many as `elements`, in any
    shape and layout.
    """
    kind = np.float32 if values.dtype.kind == "f" and values.dtype.itemsize <= 4 else np.float64
    slack, faults, start = 2.0 ** -(fractional_bits + 1), Faults(), 0
    for block in blocks_of(values, kind):
        part = slice(start, start + len(block))
        lower, upper = sides_in(sides, part)
        wrong = _core.encode_fixed_point(
            block, elements[part], lower, upper, slack, fractional_bits, lowest, own
        )
        faults, start = faults.followed_by(Faults(*wrong), start), part.stop
    return faults


def encode_integers(
    values: NDArray[Any], elements: Elements, sides: tuple[NDArray[Any], NDArray[Any]], lowest: int
) -> Faults:
    """Write clipped integers less `lowest` to `elements`; return how many were outside, and the first."""
    faults, start = Faults(), 0
    for block in blocks_of(values, np.int64):
        part = slice(start, start + len(block))
        lower, upper = sides_in(sides, part)
        outside = (block < lower) | (block > upper)
        if count := int(np.count_nonzero(outside)):
            wrong = Faults(outside=count, first=int(outside.argmax()))
            faults = faults.followed_by(wrong, start)
        elements[part] = (np.clip(block, lower, upper) - np.int64(lowest)).view(np.uint64)
        start = part.stop
    return faults


def add_packed(elements: Elements, packed: bytes | memoryview, width: int) -> None:
    """Add little-endian integers of `width` bytes to `elements`, in place, modulo their word size.

    Raises ValueError for another number of bytes.
    """
    _core.add_packed(elements, np.frombuffer(packed, np.uint8), width)


class GridTotal(ComputedValue):
    """Sum of encoded vectors as int64 grid values, decoded from ring elements only when read.

    An element of the ring counts modulo 2^bits, and `offset` is added to it. The elements must not change.
    """

    __slots__ = ("_bits", "_offset", "_ring_vector", "_values")

    def __init__(self, ring_vector: Elements, offset: int = 0, bits: int = 64) -> None:
        self._ring_vector, self._offset, self._bits = ring_vector, offset, bits
        self._values: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> GridTotal:
        """Return a GridTotal of grid values that are decoded already."""
        total = cls(np.ascontiguousarray(values, np.int64).view(np.uint64))
        total._values = values
        return total

    def __len__(self) -> int:
        return len(self._ring_vector)

    def __getitem__(self, part: slice) -> NDArray[np.int64]:
        words = self._ring_vector[part]
        if self._bits < 8 * words.dtype.itemsize:
            words = words & words.dtype.type((1 << self._bits) - 1)
        grid: NDArray[np.int64] = words.astype(np.int64)
        grid += np.int64(self._offset)
        return grid

    @property
    def values(self) -> NDArray[np.int64]:
        """The whole decoded sum, shape (length,); kept in memory after the first access."""
        if self._values is None:
            self._values = np.empty(len(self), np.int64)
            for part in slices_of(len(self)):
                self._values[part] = self[part]
        return self._values

    def compute(self) -> NDArray[np.int64]:
        """Return the whole decoded sum as an array of int64."""
        return self.values

    def divided(
        self, part: slice, weight: int, fractional_bits: int, sides: Sides | None
    ) -> NDArray[np.float64]:
        """Return a slice of the sum divided by weight * 2^fractional_bits, clipped to `sides` if given.

        Each is correctly rounded.
        """
        # The total may be part of a message, where elements begin at any byte.
        words = np.require(self._ring_vector[part], requirements="A")
        quotients = np.empty(len(words), np.float64)
        exact = weight < EXACT_FLOAT and _core.average_fixed_point(
            words, quotients, self._bits, self._offset, float(weight), fractional_bits, sides
        )
        if exact:
            return quotients
        # Below 2^53 one float64 division is correctly rounded; above, fractions are needed.
        grid, scale = self[part], weight * Fraction(2) ** fractional_bits
        large = (grid >= EXACT_FLOAT) | (grid <= -EXACT_FLOAT)
        for index in np.flatnonzero(large) if weight < EXACT_FLOAT else range(len(grid)):
            quotients[index] = float(int(grid[index]) / scale)
        return quotients if sides is None else np.clip(quotients, *sides)


class Averages:
    """Averages from a sum on the grid as float64, computed slice by slice when they are read."""

    __slots__ = ("_fractional_bits", "_sides", "_total", "_weight")

    def __init__(self, total: GridTotal, weight: int, fractional_bits: int, sides: Sides | None) -> None:
        self._total, self._weight, self._fractional_bits, self._sides = total, weight, fractional_bits, sides

    def __getitem__(self, part: slice) -> NDArray[np.float64]:
        sides = None if self._sides is None else sides_in(self._sides, part)
        return self._total.divided(part, self._weight, self._fractional_bits, sides)
