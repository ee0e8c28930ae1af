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
    """Return a number of any library, such as a NumPy scalar, as a Python int or float."""
    return int(value) if isinstance(value, Integral) else float(value)


def as_tuple(bound: Any) -> tuple[float | int, ...]:
    """Return bounds as a tuple of Python numbers, of length 1 if a single bound is for all coordinates."""
    return tuple(map(_plain, bound if isinstance(bound, Sequence) else (bound,)))


def round_inward(bound: Bound, other: float) -> NDArray[np.float64]:
    """Convert each bound to float64; where inexact, round it toward `other` (an infinity of either sign).

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
    """Return the bounds of each coordinate: those given, or -l2_bound and l2_bound if that is given."""
    return (lower, upper) if l2_bound is None else (-l2_bound, l2_bound)


def fractional_bits_of(precision: float) -> int:
    """Return f such that 2^-f, the step of a fixed-point grid, is the largest power of two <= `precision`."""
    return -math.frexp(precision)[1] + 1


def on_grid(value: float | int, fractional_bits: int) -> int:
    """Return a number in fixed point: value * 2^fractional_bits rounded half to even, exactly."""
    return round(Fraction(value) * Fraction(2) ** fractional_bits)
