"""Bounds of coordinates: as float64 without a rounding that widens them, and on the grid of an encoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A bound of every coordinate, or one for each.
Bound = float | int | Sequence[float | int]


def _plain(value: float | int) -> float | int:
    """Return a number of whatever library as Python's own."""
    return int(value) if isinstance(value, Integral) else float(value)


def each_of(bound: Any) -> tuple[float | int, ...]:
    """Return a bound of every coordinate, or one for each, as a tuple of Python's own numbers."""
    return tuple(map(_plain, bound if isinstance(bound, Sequence) else (bound,)))


def inward(bound: Bound, other: float) -> NDArray[np.float64]:
    """Return the float64 nearest to each bound on the side of `other`, infinity or its negative.

    An integer beyond 2^53 may lie between two float64, and would be rounded to either.
    """
    values: NDArray[np.float64] = np.asarray(bound, np.float64)
    flat = values.reshape(-1)
    for index, exact in enumerate(bound if isinstance(bound, Sequence) else (bound,)):
        near = float(flat[index])
        # As Python compares them: NumPy would round the integer.
        if near < exact if other > 0 else near > exact:
            flat[index] = np.nextafter(flat[index], other)
    return values


def sides_of(lower: Any, upper: Any, l2_bound: Any) -> tuple[Any, Any]:
    """Return the bounds of coordinates, or those that a bound on the norm implies."""
    return (lower, upper) if l2_bound is None else (-l2_bound, l2_bound)


def fractional_bits_of(precision: float) -> int:
    """Return f for which 2^-f is the largest power of two up to `precision`."""
    return -math.frexp(precision)[1] + 1


def on_grid(value: float | int, fractional_bits: int) -> int:
    """Return value * 2^fractional_bits rounded half to even, exactly."""
    return round(Fraction(value) * Fraction(2) ** fractional_bits)
