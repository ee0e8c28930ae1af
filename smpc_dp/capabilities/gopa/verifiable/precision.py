"""Default grid of a verifiable run: as fine as a given number of coin flips allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard

from smpc_dp import ball
from smpc_dp.crypto import commit, proofs
from smpc_dp.encoding import Encoding
from smpc_dp.privacy.gaussian import gaussian_mu

# Bits of each coordinate for which the default grid is made.
DEFAULT_BITS = 256


def with_precision(parameters: Mapping[str, object], parties: int) -> dict[str, object]:
    """Return a copy of the `[parameters]` table; add a default `precision` if missing and derivable."""
    given = dict(parameters)
    if "precision" in given or given.get("kind", "real") != "real":
        return given
    epsilon, delta, length = (given.get(key) for key in ("epsilon", "delta", "length"))
    widths = _widths(given)
    if not (_is_number(epsilon) and _is_number(delta) and _is_number(length) and widths):
        return given
    if not (0 < epsilon < 1000 and 0 < delta < 1 and all(0 < width < math.inf for width in widths)):
        return given
    # Too many coordinates are refused later; until then the table has a precision like all others.
    length = min(max(length, 1), commit.MAX_LENGTH)
    bits = min(DEFAULT_BITS, proofs.MAX_BITS / length)
    mu = gaussian_mu(epsilon, max(delta, 1e-290))
    # bits = 4 (R / mu)^2 d / n_H, solved for R; d is 1 where R is the way across ball or box
    alike = "l2_bound" not in given and len(widths) == 1
    steps = mu * math.sqrt(bits * parties / (4 * (length if alike else 1))) / 2
    precision = math.hypot(*widths) / max(steps, 1.0)
    if len(widths) > 1:
        # The narrowest range has two ends on the grid, for every rounding.
        precision = min(precision, min(widths) / 2)
    given["precision"] = max(precision, 2.0**-900)
    return given


def box_of(encoding: Encoding) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the least and greatest grid value of each coordinate; None if all have one range."""
    lows, highs = encoding.sides
    return None if encoding.box is None else (tuple(lows), tuple(highs))


def steps_of(encoding: Encoding) -> int | tuple[int, ...]:
    """Return the width of the range of all coordinates, or of each coordinate, in grid steps."""
    widths = encoding.widths
    return widths[0] if encoding.box is None else tuple(widths)


def bound_squared_of(encoding: Encoding) -> int | None:
    """Return the bound on the sum of squares of a vector's grid values; None without a bound on the norm."""
    if encoding.l2_bound is None:
        return None
    return ball.squared_limit(encoding.l2_bound, encoding.fractional_bits)


def _widths(parameters: Mapping[str, object]) -> list[float] | None:
    """Return the range's width for all coordinates or each, or the ball's diameter; None if unknown."""
    if "l2_bound" in parameters:
        bound = parameters["l2_bound"]
        return [2 * bound] if _is_number(bound) else None
    sides: list[list[float]] = []
    for key in ("lower", "upper"):
        side = parameters.get(key)
        each = list(side) if isinstance(side, list | tuple) else [side]
        numbers = [value for value in each if _is_number(value)]
        if not numbers or len(numbers) < len(each):
            return None
        sides.append(numbers)
    count = max(map(len, sides))
    if {*map(len, sides)} - {1, count}:
        return None
    lowers, uppers = (side * (count // len(side)) for side in sides)
    return [abs(upper - lower) for lower, upper in zip(lowers, uppers, strict=True)]


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number (not a bool) whose size fits a float."""
    # Integers may be beyond every float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 1000
