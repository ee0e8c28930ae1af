"""Slow twin of encodings and trees: whole arrays in float64, step by step, with NumPy alone.

It has nothing of `smpc_dp.fixed_point`. A tree is given as its leaves: arrays by their paths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.encoding import Encoding

EXACT = 1 << 53


class Refused(Exception):
    """A vector that is refused, with the text after the party's name."""


def is_outside(values: NDArray[Any], lower: Any, upper: Any, step: float) -> NDArray[np.bool_]:
    if not step:
        return np.asarray((values < lower) | (values > upper))
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(lower - values, values - upper) > step / 2)


def encode(
    encoding: Encoding, vector: NDArray[Any], weight: int | None = None, *, clip: bool = False
) -> tuple[list[int], int]:
    """Return the ring elements of a vector within bounds of coordinates, and how many were clipped."""
    values = vector.astype(np.int64 if encoding.integer else np.float64)
    if not np.isfinite(values).all():
        raise Refused(f"vector[{np.flatnonzero(~np.isfinite(values))[0]}] must be finite")
    lower, upper = encoding.bounds
    outside = is_outside(values, lower, upper, 0 if encoding.integer else encoding.step)
    clipped = int(outside.sum())
    if clipped and not clip:
        first = int(np.flatnonzero(outside)[0])
        low, high = (encoding.lower, encoding.upper) if encoding.box is None else (lower[first], upper[first])
        more = f" ({clipped} values are)" if clipped > 1 else ""
        raise Refused(f"vector[{first}] is outside [{low}, {high}]{more}")
    within = np.clip(values, lower, upper)
    if not encoding.integer:
        within = np.rint(np.ldexp(within, encoding.fractional_bits))
    offset = [int(value) - encoding.lowest for value in within.astype(np.int64)]
    if encoding.max_weight:
        offset = [*(value * (weight or 0) for value in offset), weight or 0]
    return offset, clipped


def flatten(
    encoding: Encoding,
    leaves: Mapping[str, NDArray[Any]],
    bounds: Mapping[str, tuple[float, float]] | None = None,
    *,
    clip: bool = False,
) -> tuple[NDArray[np.float64], int]:
    """Return the vector of leaves in the session's unit, and how many values were clipped."""
    low, high = float(encoding.lower), float(encoding.upper)
    parts, clipped = [], 0
    for path, array in leaves.items():
        values = np.asarray(array, np.float64)
        lower, upper = (low, high) if bounds is None else bounds[path]
        scale = (upper - lower) / (high - low)
        if not np.isfinite(values).all():
            raise Refused(f"{path}{first_of(~np.isfinite(values))} must be finite")
        if encoding.box is None:
            outside = is_outside(values, lower, upper, scale * encoding.step)
            count = int(np.count_nonzero(outside))
            if count and not clip:
                more = f" ({count} values are)" if count > 1 else ""
                raise Refused(f"{path}{first_of(outside)} is outside [{lower}, {upper}]{more}")
            values, clipped = np.clip(values, lower, upper), clipped + count
        if bounds is not None:
            values = np.clip((values - (lower + upper) / 2) / scale + (low + high) / 2, low, high)
        parts.append(values.reshape(-1))
    return np.concatenate(parts), clipped


def first_of(wrong: NDArray[np.bool_]) -> str:
    """Return the index of the first value that is wrong, as errors show it."""
    index = np.argwhere(wrong)[0].tolist() if wrong.shape else []
    return str(index) if index else ""


def average(encoding: Encoding, total: list[int], weight: int, *, noisy: bool) -> list[float]:
    """Return the averages of a sum on the grid, each rounded once."""
    scale = weight * Fraction(2) ** encoding.fractional_bits
    # One division and one product with a power of two: below 2^-1022 they are rounded twice.
    exact = [
        math.ldexp(value / weight, -encoding.fractional_bits)
        if abs(value) < EXACT and weight < EXACT
        else float(value / scale)
        for value in total
    ]
    return exact if noisy else np.clip(exact, *encoding.real_bounds).tolist()


def restore(
    leaves: Mapping[str, NDArray[Any]],
    average: NDArray[np.float64],
    encoding: Encoding,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    *,
    exact: bool,
) -> dict[str, NDArray[Any]]:
    """Return the leaves of an average, each in its type."""
    low, high = float(encoding.lower), float(encoding.upper)
    made, start = {}, 0
    for path, array in leaves.items():
        lower, upper = (low, high) if bounds is None else bounds[path]
        values = average[start : start + array.size].reshape(array.shape)
        start += array.size
        if (lower, upper) != (low, high):
            values = (values - (low + high) / 2) * ((upper - lower) / (high - low)) + (lower + upper) / 2
        made[path] = values.astype(array.dtype)
        if not exact:
            continue
        within = np.clip(values, lower, upper)
        made[path] = within.astype(array.dtype)
        for bits in (23, 10, 7):
            read = made[path].astype(np.float64)
            outside = (read < lower) | (read > upper)
            inner = np.where(read > upper, upper - abs(upper) * 2.0**-bits, lower + abs(lower) * 2.0**-bits)
            within = np.where(outside, inner, within)
            made[path] = within.astype(array.dtype)
    return made
