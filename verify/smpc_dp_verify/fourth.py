"""Sampling errors for any values, by noisy fourth moments [protocols/records/README.md, "Robust errors"]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

from smpc_dp_verify.answers import Sums, labels
from smpc_dp_verify.asked import DEGREES, ROBUST, Asked
from smpc_dp_verify.distributions import NORMAL, Part
from smpc_dp_verify.intervals import Ends, around, within
from smpc_dp_verify.moments import Moments, fisher_scale
from smpc_dp_verify.numbers import Estimate
from smpc_dp_verify.population import is_clear, of_population, p_value, scale_of_p

# Up to which part of a correlation's distance from 1 its noise is small.
SMALL = 0.25
# Powers of the first and of the second column of a pair.
Degrees = tuple[int, int]
Sum = dict[Degrees, tuple[float, float]]
UP_TO_TWO: tuple[Degrees, ...] = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))


def with_robust_errors(sums: Sums, one: Asked, made: list[Estimate], outside: float) -> list[Estimate]:
    """Return the estimates of an answer with sampling errors for any values."""
    kind = one.kind.removeprefix(f"{ROBUST} ")
    pairs = [*itertools.combinations_with_replacement(one.columns, 2)]
    if kind == "correlation":
        pairs = [*itertools.combinations(one.columns, 2)]
    cells = range(len(labels(one, sums.table)))
    every = ((Moments(sums, one, at), pair) for at in cells for pair in pairs)
    return [
        _robust(estimate, moments, pair, _size(sums, pair) if kind != "correlation" else None, outside)
        for estimate, (moments, pair) in zip(made, every, strict=True)
    ]


def _size(sums: Sums, pair: tuple[str, str]) -> float:
    return math.prod(sums.table.columns[name].width / 2 for name in pair)


def _robust(
    made: Estimate, moments: Moments, pair: tuple[str, str], size: float | None, outside: float
) -> Estimate:
    """Return an estimate with sampling error, ends and p-value of a population.

    `size`: of a covariance the product of both half ranges; None of a correlation.
    """
    # without one the count or the variance is within the noise
    value = made.numbers.get("value")
    if value is None or made.numbers.get("population_high") is None or math.isnan(value):
        return made
    is_alone, is_correlation = pair[0] == pair[1], size is None
    known = [degrees for degrees in UP_TO_TWO if not (is_alone and degrees[1])]
    more = DEGREES["correlation" if is_correlation else "covariance", is_alone]
    sums = {each: moments.sum(*(pair[0],) * each[0], *(pair[1],) * each[1]) for each in (*known, *more)}
    square, noise = _with_noise(_of_correlation if is_correlation else _of_covariance, sums)
    error = (size or 1.0) * math.sqrt(_above(square, noise) / moments.count)
    own = made.numbers["standard_error"] or 0.0
    tested, scales = None, made.scales
    if is_correlation:
        ends = _correlation_ends(value, own, error, outside)
        tested = p_value(value, _without_correlation(moments, pair, sums))
        scales = (("p_value", scale_of_p(tested)),)
    else:
        ends = around(value, math.hypot(own, error), NORMAL.quantile(outside))
    possible = (0.0, size or 1.0) if is_alone else (-math.inf, math.inf)
    numbers = of_population(error if is_clear(square, noise) else None, ends, possible)
    return made._replace(numbers=made.numbers | numbers | {"p_value": tested}, scales=scales)


def _above(square: float, noise: float) -> float:
    """Return a variance of influences, two deviations of its noise above where it is within them."""
    return max(square, 0.0) + (0.0 if is_clear(square, noise) else 2 * noise)


def _correlation_ends(value: float, noise: float, error: float, outside: float) -> Ends:
    z, both = NORMAL.quantile(outside), math.hypot(noise, error)
    low, high = around(value, both, z)
    if noise <= SMALL * (1 - abs(value)):
        reach = z * both / (1 - value**2)
        low = min(low, math.tanh(fisher_scale(value) - reach))
        high = max(high, math.tanh(fisher_scale(value) + reach))
    return within((low, high), -1.0, 1.0)


def _without_correlation(moments: Moments, pair: tuple[str, str], sums: Sum) -> list[Part]:
    """Return the errors of a correlation, by each noise and by sampling, if there is none."""
    means = {degrees: value / moments.count for degrees, (value, _) in sums.items()}
    size = math.sqrt(max(_central(means, 2, 0) * _central(means, 0, 2), 0.0))
    if not size:
        return []
    error = math.sqrt(_above(*_with_noise(_of_squares, sums)) / moments.count)
    return [*moments.parts_without_correlation(*pair, size), (error, NORMAL)]


def _with_noise(function: Callable[[Mapping[Degrees, float]], float], sums: Sum) -> tuple[float, float]:
    """Return a function of the means, and its error: half of its changes by steps of each sum."""
    values = {degrees: value for degrees, (value, _) in sums.items()}

    def of(changed: Mapping[Degrees, float]) -> float:
        return function({degrees: value / changed[0, 0] for degrees, value in changed.items()})

    changes = [
        of(values | {degrees: value + error}) - of(values | {degrees: value - error})
        for degrees, (value, error) in sums.items()
    ]
    return of(values), math.hypot(*changes) / 2


def _central(means: Mapping[Degrees, float], first: int, second: int) -> float:
    """Return a central moment from the means of all products of fewer factors."""
    x, y = means[1, 0], means.get((0, 1), 0.0)
    return math.fsum(
        math.comb(first, i) * math.comb(second, j) * (-x) ** (first - i) * (-y) ** (second - j) * means[i, j]
        for i in range(first + 1)
        for j in range(second + 1)
    )


def _of_covariance(means: Mapping[Degrees, float]) -> float:
    """Return the variance of the product of two centred columns, or of the square of one."""
    if (0, 1) not in means:
        return _central(means, 4, 0) - _central(means, 2, 0) ** 2
    return _central(means, 2, 2) - _central(means, 1, 1) ** 2


def _of_correlation(means: Mapping[Degrees, float]) -> float:
    """Return the variance of uv - r (u^2 + v^2)/2 of two standardised columns u and v."""
    a, b = _central(means, 2, 0), _central(means, 0, 2)
    if min(a, b) <= 0:
        return 0.0
    r = _central(means, 1, 1) / math.sqrt(a * b)
    fourth = _central(means, 4, 0) / a**2 + _central(means, 0, 4) / b**2
    mixed = _central(means, 3, 1) / a + _central(means, 1, 3) / b
    both = _central(means, 2, 2) / (a * b)
    return both * (1 + r**2 / 2) + r**2 / 4 * fourth - r / math.sqrt(a * b) * mixed


def _of_squares(means: Mapping[Degrees, float]) -> float:
    """Return the mean of u^2 v^2 of two standardised columns."""
    a, b = _central(means, 2, 0), _central(means, 0, 2)
    return _central(means, 2, 2) / (a * b) if min(a, b) > 0 else 0.0
