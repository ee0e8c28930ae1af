"""Integer vectors within an L2 bound: exact norms, and a rounding that stays in the ball.

Rounding each coordinate to the nearest grid point may move a vector of the ball out of it, by up to
sqrt(length)/2 steps. Here such a vector is rounded toward zero instead, so that two vectors on the grid are
at most as far apart as two in the ball, 2 sqrt(limit), without an addition for rounding.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# A norm computed in float64 may exceed the bound by this factor: that of a vector scaled to the bound does.
TOLERANCE = 1e-9


def squared_limit(bound: float, fractional_bits: int) -> int:
    """Return floor((bound 2^fractional_bits)^2): the largest squared L2 norm on the grid within `bound`."""
    return math.floor((Fraction(bound) * Fraction(2) ** fractional_bits) ** 2)


def on_grid(
    values: NDArray[np.float64] | NDArray[np.int64], bound: float, fractional_bits: int
) -> tuple[NDArray[np.int64], bool]:
    """Round a vector to the integer grid, scaled to L2 norm `bound` if longer; tell if it was within.

    Its shape is (length,). A longer vector is scaled to the surface of the ball; its direction is kept.
    """
    limit = squared_limit(bound, fractional_bits)
    if values.dtype == np.int64:
        whole = values.astype(np.int64)
        if fits(whole, limit):
            return whole, True
    real = values.astype(np.float64)
    with np.errstate(over="ignore"):
        scaled = np.ldexp(real, fractional_bits)
        if values.dtype != np.int64 and float(np.dot(scaled, scaled)) <= limit * (1 + TOLERANCE) ** 2:
            return _rounded(scaled, limit), True
    unit = real / np.abs(real).max()
    return _rounded(unit * (math.sqrt(limit) / norm(unit)), limit), False


def rows_on_grid(values: NDArray[np.float64], bound: float, fractional_bits: int) -> NDArray[np.int64]:
    """Round each row of a matrix to the integer grid; rows with L2 norm above `bound` are scaled down.

    Rows near the bound are rounded toward zero. Bounds above 2^50 steps are out of range.
    """
    radius = math.sqrt(squared_limit(bound, fractional_bits)) * (1 - TOLERANCE)
    # A coordinate far beyond the bound would overflow: such a row is first scaled; its direction is kept.
    most = 2.0 * bound
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.ldexp(
        np.where(largest > most, values / np.maximum(largest, most) * most, values), fractional_bits
    )
    # Row by row, as a party rounds its own row: simulations and processes agree to the last bit.
    norms = np.sqrt((scaled * scaled).sum(axis=1))
    scaled *= np.minimum(1.0, radius / np.maximum(norms, 1e-300))[:, None]
    near = norms > radius - math.sqrt(values.shape[1])
    grid: NDArray[np.int64] = np.where(near[:, None], np.trunc(scaled), np.rint(scaled)).astype(np.int64)
    return grid


def norm(values: NDArray[np.float64] | NDArray[np.int64]) -> float:
    """Return the L2 norm of a vector, in float64, without overflow or underflow of its squares."""
    largest = float(np.abs(values).max())
    return largest * float(np.linalg.norm(values / largest)) if largest else 0.0


def _rounded(scaled: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Round coordinates to integers, ties to even; toward zero where the squared norm exceeds `limit`."""
    grid = np.rint(scaled).astype(np.int64)
    shrink = 1.0
    while not fits(grid, limit):
        grid = np.trunc(scaled * shrink).astype(np.int64)
        shrink -= TOLERANCE
    return grid


def fits(grid: NDArray[np.int64], limit: int) -> bool:
    """Tell whether the squared L2 norm of an integer vector is at most `limit`, in exact arithmetic."""
    real: NDArray[np.float64] = grid.astype(np.float64)
    near = float(np.dot(real, real))
    # float64 is off by at most (length + 3) 2^-53 of the square, below 1e-8 for 2^26 coordinates: only norms
    # near the limit are computed exactly.
    if abs(near - limit) > 1e-7 * limit:
        return bool(near < limit)
    return sum(int(value) ** 2 for value in grid) <= limit
