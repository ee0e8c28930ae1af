"""Intervals for the noise of counts and of ratios [docs/proofs/records.md, "Intervals"].

An end is NaN where two right programs may find different ones.
"""

from __future__ import annotations

import functools
import math

from smpc_dp_verify.distributions import Distribution, distribution_of, log_normal, solved

Ends = tuple[float, float]
Noisy = tuple[float, float]
"""A sum and the deviation of its noise."""

UNBOUNDED = (-math.inf, math.inf)
# So many deviations above what is shown normal noise has the interval of what is always shown, and noise of
# Laplace shares so many above that and half of the interval.
CLEAR, CLEAR_OF_LAPLACE = 10.0, 25.0
# Ratios from -1 to 1 that are tried, and those from 0 to 1 for which a quantile is taken.
GRID, RATIOS = 4000, 8
# Below it a probability has few digits.
TINY, ROOT = 1e-290, math.sqrt(2)


def around(value: float, error: float, z: float) -> Ends:
    """Return the ends so many errors below and above a value."""
    return value - z * error, value + z * error


def within(ends: Ends, low: float, high: float) -> Ends:
    """Return ends that are cut to what is possible."""
    return min(max(ends[0], low), high), max(min(ends[1], high), low)


def minus(first: Ends, second: Ends) -> Ends:
    """Return the ends of the difference of two numbers."""
    return first[0] - second[1], first[1] - second[0]


def times(first: Ends, second: Ends) -> Ends:
    """Return the ends of the product of two numbers."""
    products = [one * other for one in first for other in second]
    return (math.nan, math.nan) if any(map(math.isnan, products)) else (min(products), max(products))


def squared(ends: Ends) -> Ends:
    """Return the ends of the square of a number."""
    low, high = sorted((ends[0] ** 2, ends[1] ** 2))
    return 0.0 if ends[0] <= 0 <= ends[1] else low, high


def scaled(ends: Ends, factor: float, offset: float = 0.0) -> Ends:
    """Return the ends of a number times a positive factor, plus an offset."""
    return offset + factor * ends[0], offset + factor * ends[1]


def hidden_count_ends(value: float, error: float, outside: float, distribution: Distribution) -> Ends:
    """Return the ends of a count that is not shown."""
    return 0.0, max(value, 0.0) + distribution.quantile(outside) * error


def count_ends(value: float, error: float, least: float, outside: float, distribution: Distribution) -> Ends:
    """Return the ends of a count, given that its noisy value is shown only if it is `least` or more."""
    z = distribution.quantile(outside)
    low, high = around(value, error, z)
    clear = CLEAR if distribution.is_normal else z + CLEAR_OF_LAPLACE
    if error == 0 or math.isnan(z) or value >= least + clear * error:
        return max(low, 0.0), max(high, 0.0)
    low = _least_count(value, error, least, outside, distribution)
    return low, max(high, low)


def _least_count(
    value: float, error: float, least: float, outside: float, distribution: Distribution
) -> float:
    """Return the count for which a value so great is rare among those that are shown, or 0."""

    def excess(count: float) -> float:
        shown = distribution.log_below((count - least) / error)
        return distribution.log_below((count - value) / error) - shown - math.log(outside / 2)

    if math.isinf(distribution.log_below(-least / error)):
        return math.nan
    count = solved(excess, 0.0, max(value, 0.0))
    return (
        count if distribution.agrees(math.exp(distribution.log_below((count - value) / error))) else math.nan
    )


def fieller(top: Noisy, below: Noisy, z: float) -> Ends:
    """Return the ends of a ratio of two noisy sums by Fieller; unbounded where the lower one may be 0."""
    (upper, upper_error), (lower, lower_error) = top, below
    if math.isnan(z):
        return math.nan, math.nan
    lead = lower**2 - (z * lower_error) ** 2
    if lower <= 0 or lead <= 0:
        return UNBOUNDED
    square = (lower * upper_error) ** 2 + (upper * lower_error) ** 2 - (z * upper_error * lower_error) ** 2
    spread = z * math.sqrt(max(square, 0.0))
    return (upper * lower - spread) / lead, (upper * lower + spread) / lead


@functools.lru_cache(maxsize=256)
def ratio_quantile(
    upper: float, lower: float, distributions: tuple[Distribution, Distribution], outside: float
) -> float:
    """Return the greatest quantile of S - t N over ratios t, for noisy sums S and N with these deviations."""
    if distributions[0].is_normal:
        return distributions[0].quantile(outside)
    greatest = 0.0
    for number in range(RATIOS + 1):
        distribution = distribution_of(
            [(upper, distributions[0]), (number / RATIOS * lower, distributions[1])]
        )
        if not distribution.agrees(outside):
            return math.nan
        if distribution.outside(greatest / (1 + distribution.raised)) > outside:
            greatest = distribution.quantile(outside)
    return greatest


def ratio_ends(
    top: Noisy, below: Noisy, least: float, outside: float, distributions: tuple[Distribution, Distribution]
) -> Ends:
    """Return the ends of a ratio S / N in [-1, 1], given that it is shown only if N is above `least`."""
    (upper, upper_error), (lower, lower_error) = top, below
    if lower <= max(least, 0.0):
        return UNBOUNDED
    if lower_error == 0 or lower >= least + CLEAR * lower_error:
        return fieller(top, below, ratio_quantile(upper_error, lower_error, distributions, outside))
    if distributions[0].is_normal:
        return _shown_ratio_ends(top, below, least, outside)
    sums = around(upper, upper_error, distributions[0].quantile(outside / 2))
    low, high = count_ends(lower, lower_error, least, outside / 2, distributions[1])
    if low <= 0:
        return -1.0, 1.0
    ends = sums[0] / (high if sums[0] > 0 else low), sums[1] / (low if sums[1] > 0 else high)
    return within(ends, -1.0, 1.0)


@functools.lru_cache(maxsize=1024)
def _shown_ratio_ends(top: Noisy, below: Noisy, least: float, outside: float) -> Ends:
    """Return the ends of a shown ratio with normal noise: the ratios tried that are not too rare."""
    (upper, upper_error), (lower, lower_error) = top, below
    own = min(max(round((upper / lower + 1) * GRID / 2), 0), GRID)
    room = (lower - least) / lower_error**2
    first = last = own
    for number in range(GRID + 1):
        ratio = 2 * number / GRID - 1
        spread = math.hypot(upper_error, ratio * lower_error)
        residual, sign = (upper - ratio * lower) / spread, -1.0 if ratio < 0 else 1.0
        bound = sign * residual + (room * spread / abs(ratio) if ratio else math.inf)
        shown, seen = math.erfc(-bound / ROOT), math.erfc(-sign * residual / ROOT)
        rare = seen / shown if seen > TINY else math.exp(log_normal(sign * residual) - log_normal(bound))
        if outside / 2 <= rare <= 1 - outside / 2:
            first, last = min(first, number), max(last, number)
    return 2 * max(first - 1, 0) / GRID - 1, 2 * min(last + 1, GRID) / GRID - 1
