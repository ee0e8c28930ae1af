"""Bounds of coordinates: as float64, rounded inwards, and on the grid of an encoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

# One bound of all coordinates, or one for each.
Bound = float | int | Sequence[float | int]


def _plain(value: float | int) -> float | int:
    """Return a number of any library as a Python int or float."""
    return int(value) if isinstance(value, Integral) else float(value)


def as_tuple(bound: Any) -> tuple[float | int, ...]:
    """Return the bounds as a tuple of Python numbers: one of all coordinates, or one for each."""
    return tuple(map(_plain, bound if isinstance(bound, Sequence) else (bound,)))


def round_inward(bound: Bound, other: float) -> NDArray[np.float64]:
    """Return the float64 nearest to each bound on the side of `other`, infinity or its negative.

    An integer beyond 2^53 may lie between two float64 values, and would be rounded to either.
    """
    values: NDArray[np.float64] = np.asarray(bound, np.float64)
    flat = values.reshape(-1)
    for index, exact in enumerate(bound if isinstance(bound, Sequence) else (bound,)):
        near = float(flat[index])
        # Compared in Python: NumPy would round the integer.
        if near < exact if other > 0 else near > exact:
            flat[index] = np.nextafter(flat[index], other)
    return values


def bounds_of(lower: Any, upper: Any, l2_bound: Any) -> tuple[Any, Any]:
    """Return the lower and upper bounds of coordinates, or those that a bound on the norm implies."""
    return (lower, upper) if l2_bound is None else (-l2_bound, l2_bound)


def fractional_bits_of(precision: float) -> int:
    """Return f such that 2^-f is the largest power of two up to `precision`."""
    return -math.frexp(precision)[1] + 1


def on_grid(value: float | int, fractional_bits: int) -> int:
    """Return value * 2^fractional_bits rounded half to even, exactly."""
    return round(Fraction(value) * Fraction(2) ** fractional_bits)
