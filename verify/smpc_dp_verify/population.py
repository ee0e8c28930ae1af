"""Sampling errors, intervals and p-values of a population [docs/proofs/records.md, "Tests"]."""

from __future__ import annotations

import math
from collections.abc import Sequence

from smpc_dp_verify.distributions import AGREED, NORMAL, PERIOD, ROUNDED, Distribution, Part, distribution_of
from smpc_dp_verify.intervals import UNBOUNDED, Ends, around, within
from smpc_dp_verify.numbers import Fields

# So many standard errors above 0 a variance is clear of its noise.
CLEAR = 2.0
# The least p-value with Laplace noise, and probabilities of which a float64 has few digits.
LEAST_P, TINY = 1e-10, 1e-290
# A p-value is compared to a part in 10^9 of this at least.
DIGITS = 1e-6
# What a continued fraction is computed to, with how many terms.
ENDED, TERMS = 1e-16, 100_000
# With more degrees of freedom Student's law is integrated; from this half of them on its factor is a series.
MANY, FEW = 1e4, 50.0
# Nodes of that integral, and their distance.
NODES, APART = 80, 1 / 16


def is_clear(value: float, error: float) -> bool:
    """Tell whether a number that cannot be negative is clear of its noise."""
    return value > CLEAR * error


def of_population(error: float | None, ends: Ends | None, possible: Ends = UNBOUNDED) -> Fields:
    """Return the sampling error and the ends for noise and sampling; None where there are none."""
    if ends is None:
        return {"sampling_error": error}
    low, high = within(ends, *possible)
    return {
        "sampling_error": error,
        "population_low": None if math.isinf(low) else low,
        "population_high": None if math.isinf(high) else high,
    }


def moved(value: float, ends: Ends, error: float, outside: float) -> Ends:
    """Return ends whose distances have those of the noise and of sampling added in squares."""
    reach = NORMAL.quantile(outside) * error
    below, above = (math.hypot(_positive(one), reach) for one in (value - ends[0], ends[1] - value))
    return value - below, value + above


def _positive(distance: float) -> float:
    return distance if math.isnan(distance) else max(distance, 0.0)


def together(value: float, parts: Sequence[Part], error: float, outside: float) -> Ends:
    """Return ends with the quantile of the sum of all noises and of the sampling error."""
    every = [*parts, (error, NORMAL)]
    whole = math.hypot(*(deviation for deviation, _ in every))
    return around(value, whole, distribution_of(every).quantile(outside))


def p_value(value: float, parts: Sequence[Part]) -> float | None:
    """Return the probability that a sum of independent errors is so great; NaN where programs may differ."""
    whole = math.hypot(*(deviation for deviation, _ in parts))
    return outside_of(distribution_of(parts), abs(value) / whole) if whole else None


def outside_of(distribution: Distribution, z: float) -> float:
    """Return the p-value of so many deviations, with Laplace noise 10^-10 at least."""
    if distribution.is_normal:
        return math.erfc(z / math.sqrt(2))
    if z >= PERIOD / 2:
        return LEAST_P
    probability = distribution.outside(z)
    return probability if AGREED * probability >= ROUNDED else math.nan


def scale_of_p(p: float | None) -> float:
    """Return how much a p-value changes with a deviation of its statistic."""
    if p is None or math.isnan(p) or p < TINY:
        return DIGITS
    return max(p * (1 + NORMAL.quantile(p) ** 2), DIGITS)


def two_sided(deviations: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's t with so many degrees of freedom."""
    square = deviations**2
    if math.isinf(freedom):
        return math.erfc(abs(deviations) / math.sqrt(2))
    if freedom > MANY:
        return _tail(abs(deviations), freedom)
    # the regularised incomplete beta function of freedom/2 and 1/2
    half, below, above = freedom / 2, freedom / (freedom + square), square / (freedom + square)
    if not square:
        return 1.0
    front = math.exp(half * math.log1p(-above) + math.log(above) / 2 + _log_beta(half))
    if below > (half + 1) / (half + 2.5):
        return 1 - front * _fraction(above, 0.5, half) / 0.5
    return front * _fraction(below, half, 0.5) / half


def _tail(deviations: float, freedom: float) -> float:
    """Return the two-sided p-value as an integral, over the exponential of a hyperbolic sine."""
    parts = []
    for number in range(-NODES, NODES + 1):
        at = number * APART
        step = math.exp(math.pi / 2 * math.sinh(at)) / (deviations + 1)
        slope = math.pi / 2 * math.cosh(at) * step
        density = -(freedom + 1) / 2 * math.log1p((deviations + step) ** 2 / freedom)
        parts.append(slope * math.exp(density))
    return 2 * APART * math.exp(_log_beta(freedom / 2)) / math.sqrt(freedom) * math.fsum(parts)


def _log_beta(half: float) -> float:
    """Return the logarithm of gamma(a + 1/2)/(gamma(a) gamma(1/2)), for large a by its series."""
    if half < FEW:
        return math.lgamma(half + 0.5) - math.lgamma(half) - math.log(math.pi) / 2
    series = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336)
    parts = (part / half ** (2 * at + 1) for at, part in enumerate(series))
    return math.log(half / math.pi) / 2 + math.fsum(parts)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    result = below
    for m in range(1, TERMS):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / (1 + factor * below)
            above = 1 + factor / above
            result *= above * below
        if abs(above * below - 1) < ENDED:
            break
    return result
