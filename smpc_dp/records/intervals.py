"""Intervals from noisy sums: normal quantiles, Fieller's ratios, and arithmetic of intervals.

What is shown because its count is large has the law of a noise that is known to be on one side: intervals of
such counts and ratios have their level given that they are shown. Those of hidden counts hold over all
releases.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# So many deviations above the threshold of what is shown, the condition changes no digit.
_CLEAR = 10.0
_GRID = 4000
_BISECTIONS = 60

# Nodes of the mixture that a sum of shares of Laplace noise is, and how far it reaches.
_NODES = 400
_WIDTH, _TAIL, _GREATEST = 12.0, 46.0, 400.0

INFINITE = (-math.inf, math.inf)
Interval = tuple[float, float]


def normal_quantile(outside: float) -> float:
    """Return z such that a standard normal is outside [-z, z] with this probability."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import ndtri

    return float(-ndtri(outside / 2)) * (1 + 1e-12)


@dataclass(frozen=True)
class ErrorDistribution:
    """The law of the noise of one sum over its standard deviation: normal, or of shares of Laplace noise.

    `shape`: shares in the sum over those that are one Laplace noise together; None: normal. A sum of them is
    a normal number times the root of a gamma number of this shape.
    """

    shape: float | None = None

    @functools.cached_property
    def _mixture(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The normal components' precisions (roots), and the logarithms of their weights."""
        from scipy.special import gammaln, logsumexp

        shape = self.shape or 1.0
        root = _WIDTH * math.sqrt(shape)
        lowest = math.log(shape) - root / shape - _TAIL / shape
        logs = np.linspace(lowest, math.log(shape + root + _GREATEST), _NODES)
        weights = shape * logs - np.exp(logs) - gammaln(shape)
        return np.sqrt(shape) * np.exp(-logs / 2), np.asarray(weights - logsumexp(weights))

    def log_below(self, value: float) -> float:
        """Return log P(noise <= value)."""
        # Not at the top: every session imports this module, and few need it.
        from scipy.special import log_ndtr, logsumexp

        if self.shape is None:
            return float(log_ndtr(value))
        precisions, weights = self._mixture
        return float(logsumexp(weights + log_ndtr(value * precisions)))

    def quantile(self, outside: float) -> float:
        """Return z such that the noise is outside [-z, z] with this probability."""
        return normal_quantile(outside) if self.shape is None else _quantile(self, outside)


@functools.lru_cache(maxsize=64)
def _quantile(distribution: ErrorDistribution, outside: float) -> float:
    """Return the quantile of Laplace noise; all cells of a table have the same."""
    wanted = math.log(outside / 2)
    return -_crossing(distribution.log_below, wanted, 2 * wanted - 10.0, 0.0) * (1 + 1e-9)


NORMAL = ErrorDistribution()


def around(value: float, deviation: float, z: float) -> Interval:
    """Return value plus and minus z deviations."""
    return value - z * deviation, value + z * deviation


def fieller(top: float, top_deviation: float, below: float, below_deviation: float, z: float) -> Interval:
    """Return all t with |top - t below| <= z sqrt(top_deviation^2 + t^2 below_deviation^2), or all numbers.

    Exact for independent normal noise: the true ratio t makes top - t below a centred normal number. Where
    the denominator is within its noise, or negative, the set is not bounded, and all numbers are returned.
    """
    lead = below**2 - (z * below_deviation) ** 2
    if below <= 0 or lead <= 0:
        return INFINITE
    inner = (z * below * top_deviation) ** 2 + (z * top * below_deviation) ** 2
    inner -= (z * z * top_deviation * below_deviation) ** 2
    spread = math.sqrt(max(inner, 0.0))
    return (top * below - spread) / lead, (top * below + spread) / lead


def within(interval: Interval, low: float, high: float) -> Interval:
    """Return what of an interval is in [low, high], where the true value is, or the end next to it."""
    return min(max(interval[0], low), high), max(min(interval[1], high), low)


def squared(interval: Interval) -> Interval:
    """Return the interval of the square."""
    low, high = sorted((interval[0] ** 2, interval[1] ** 2))
    return (0.0 if interval[0] <= 0 <= interval[1] else low), high


def times(first: Interval, second: Interval) -> Interval:
    """Return the interval of the product of finite intervals."""
    ends = [a * b for a in first for b in second]
    return min(ends), max(ends)


def minus(first: Interval, second: Interval) -> Interval:
    """Return the interval of the difference."""
    return first[0] - second[1], first[1] - second[0]


def scaled(interval: Interval, factor: float, offset: float = 0.0) -> Interval:
    """Return offset + factor times an interval, for a positive factor."""
    return offset + factor * interval[0], offset + factor * interval[1]


def shown_count(
    value: float, deviation: float, least: float, outside: float, distribution: ErrorDistribution = NORMAL
) -> Interval:
    """Return the interval of a count of 0 or more that is shown because its noisy value is `least` or more.

    The lower end is exact given that; the upper one errs above.
    """
    low, high = around(value, deviation, distribution.quantile(outside))
    if deviation == 0 or (distribution is NORMAL and value >= least + _CLEAR * deviation):
        return max(low, 0.0), max(high, 0.0)

    def above(true: float) -> float:
        return distribution.log_below((true - value) / deviation) - distribution.log_below(
            (true - least) / deviation
        )

    low = _crossing(above, math.log(outside / 2), 0.0, max(value, 0.0))
    return low, max(high, low)


def hidden_count(
    value: float, deviation: float, outside: float, distribution: ErrorDistribution = NORMAL
) -> Interval:
    """Return the interval of a count of 0 or more that is not shown because its noisy value is small.

    Its level is over all releases, those included in which the count is shown: given that it is hidden,
    nothing bounds a count, or, for noisy values near the threshold, only numbers far above the noise.
    """
    return 0.0, max(value, 0.0) + distribution.quantile(outside) * deviation


def _crossing(increasing: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Return where a function reaches a value, `low` if it does so before."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if increasing(middle) >= wanted else (middle, high)
    return low if increasing(low) >= wanted else high


def shown_ratio(
    top: tuple[float, float], below: tuple[float, float], least: float, outside: float
) -> Interval:
    """Return the interval of a ratio in [-1, 1] of two noisy sums, shown as the lower one is above `least`.

    Each sum is a value with the deviation of its noise. With t the true ratio, S the upper and N the lower
    sum, W = S - tN is a centred normal number that is independent of U = tS/sigma_S^2 + N/sigma_N^2. Given U,
    the condition is a bound on W, so W is a truncated normal number: those t are taken for which it is not in
    its tails. Exact for normal noise, but for the gaps between those t.
    """
    (upper, upper_error), (lower, lower_error) = top, below
    if lower <= max(least, 0.0):
        return INFINITE
    if lower_error == 0 or lower >= least + _CLEAR * lower_error:
        return fieller(upper, upper_error, lower, lower_error, normal_quantile(outside))
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import log_ndtr

    ratios: NDArray[np.float64] = np.linspace(-1.0, 1.0, _GRID + 1)
    spread = np.hypot(upper_error, ratios * lower_error)
    residual = (upper - ratios * lower) / spread
    # lower > least is W < bound for t > 0, and W > bound for t < 0
    room = (lower - least) * spread / lower_error**2
    sign = np.where(ratios < 0, -1.0, 1.0)
    with np.errstate(divide="ignore"):
        bound = sign * residual + np.where(ratios == 0, np.inf, room / np.abs(ratios))
    tail = np.exp(log_ndtr(sign * residual) - log_ndtr(bound))
    inside = np.flatnonzero((tail >= outside / 2) & (tail <= 1 - outside / 2))
    own = int(np.clip(round((upper / lower + 1) * _GRID / 2), 0, _GRID))
    first, last = min(own, *inside.tolist(), own), max(own, *inside.tolist(), own)
    return float(ratios[max(first - 1, 0)]), float(ratios[min(last + 1, _GRID)])
