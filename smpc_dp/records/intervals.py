"""Intervals from noisy sums: normal quantiles, Fieller's ratios, and arithmetic of intervals."""

from __future__ import annotations

import math

INFINITE = (-math.inf, math.inf)
Interval = tuple[float, float]


def normal_quantile(outside: float) -> float:
    """Return z such that a standard normal is outside [-z, z] with this probability."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import ndtri

    return float(-ndtri(outside / 2)) * (1 + 1e-12)


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
