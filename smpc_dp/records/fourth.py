"""Sampling errors of variances, covariances and correlations from noisy fourth moments, for any values.

The sums of third and fourth degree are in the request of the answer, with a small part of its budget, for no
estimate depends on them. docs/proofs/records.md has the formulas.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from smpc_dp.records.asked import ROBUST, Statistic
from smpc_dp.records.cells import variances
from smpc_dp.records.features import product, selector
from smpc_dp.records.intervals import NORMAL, Interval, Part, around, normal_quantile, within
from smpc_dp.records.moments import (
    Moments,
    correlations,
    covariances,
    fisher_scale,
    of_cells,
    without_correlation,
)
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.population import NORMAL_THEORY, p_value
from smpc_dp.records.result import Estimate, finite, near_zero
from smpc_dp.records.schema import Schema
from smpc_dp.records.terms import Term, correlation_terms, covariance_terms, variance_terms

UNCLEAR = "no sampling error: the fourth moments are within the noise"
ROBUST_COSTS = "robust sampling errors need more sums in the same budget"
# c_b of each sum that sampling errors alone depend on.
FACTOR = 0.01
# Up to which part of a correlation's distance from 1 its noise is small.
_SMALL_NOISE = 0.25
# Powers of the first and of the second column of a pair.
Degrees = tuple[int, int]
Pair = tuple[str, str]
# Of a column with itself, and of two columns.
_ALONE: tuple[Degrees, ...] = ((3, 0), (4, 0))
_OF_COVARIANCE: tuple[Degrees, ...] = ((2, 1), (1, 2), (2, 2))
_OF_CORRELATION: tuple[Degrees, ...] = (
    *((3, 0), (2, 1), (1, 2), (0, 3)),
    *((4, 0), (3, 1), (2, 2), (1, 3), (0, 4)),
)
_UP_TO_TWO: tuple[Degrees, ...] = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))


@dataclass(frozen=True)
class Robust:
    """Variant of a statistic of second moments whose sampling errors need no normal values.

    Attributes:
        plain_terms, plain: the error models and the estimates of the statistic for normal values.
    """

    plain_terms: Callable[[Statistic, Schema], list[Term]]
    plain: Callable[[Statistic, NoisySums, Display], Iterator[Estimate]]

    def terms(self, one: Statistic, schema: Schema) -> list[Term]:
        """Return the plain error models with sums of third and fourth degree for the sampling errors."""
        by = [selector(schema, name) for name in one.by]
        return [
            replace(
                term,
                text=term.text if term.text == one.text else _named(term.text),
                of_sampling={
                    product(schema, *_powers(pair, degrees), over=one.columns, by=by): FACTOR
                    for degrees in self._degrees(pair)
                },
                assumed=f"{term.assumed}; {ROBUST_COSTS}",
            )
            for term, pair in zip(self.plain_terms(one, schema), self._pairs(one), strict=True)
        ]

    def estimates(self, one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
        """Yield the plain estimates, each with the sampling error of whatever values the rows have."""
        made = self.plain(one, noisy, display)
        cells = ((moments, pair) for moments, _ in of_cells(one, noisy) for pair in self._pairs(one))
        for estimate, (moments, pair) in zip(made, cells, strict=True):
            # without one the count or the variance is within the noise, which a note says
            if estimate.population_high is not None and estimate.value is not None:
                estimate = self._with_sampling(estimate, moments, pair, display.outside)
            yield replace(estimate, name=_named(estimate.name))

    @property
    def _is_correlation(self) -> bool:
        """Whether the statistic is a correlation, and not a variance or a covariance."""
        return self.plain is correlations

    def _pairs(self, one: Statistic) -> list[Pair]:
        """Return the pairs of columns of the numbers of an answer, in their order."""
        if self._is_correlation:
            return [*itertools.combinations(one.columns, 2)]
        return [*itertools.combinations_with_replacement(one.columns, 2)]

    def _degrees(self, pair: Pair) -> tuple[Degrees, ...]:
        """Return the powers of a pair's columns in the sums that its sampling error needs."""
        if pair[0] == pair[1]:
            return _ALONE
        return _OF_CORRELATION if self._is_correlation else _OF_COVARIANCE

    def _with_sampling(self, made: Estimate, moments: Moments, pair: Pair, outside: float) -> Estimate:
        """Return an estimate with sampling error, population interval and p-value from fourth moments.

        Where the fourth moments are within their noise there is no sampling error, and the interval has one
        from moments that are two standard errors above.
        """
        schema = moments.noisy.schema
        alone = pair[0] == pair[1]
        known = [degrees for degrees in _UP_TO_TWO if not (alone and degrees[1])]
        sums = {degrees: moments.sum(*_powers(pair, degrees)) for degrees in (*known, *self._degrees(pair))}
        square, noise = _with_noise(self._square, sums)
        note = near_zero(square, noise)
        size = (
            1.0 if self._is_correlation else math.prod(schema.number(name, name).width / 2 for name in pair)
        )
        most = max(square, 0.0) + (2 * noise if note else 0.0)
        error, tested = size * math.sqrt(most / sums[0, 0][0]), None
        value, own = made.value or 0.0, made.standard_error or 0.0
        if self._is_correlation:
            ends = _correlation_ends(value, own, error, outside)
            tested = p_value(value, _of_no_correlation(moments, pair, sums))
        else:
            ends = around(value, math.hypot(own, error), normal_quantile(outside))
        if alone:
            ends = within(ends, 0.0, size)
        plain = "" if made.note == NORMAL_THEORY else made.note
        return replace(
            made,
            sampling_error=None if note else finite(error),
            population_low=finite(ends[0]),
            population_high=finite(ends[1]),
            p_value=tested,
            note="; ".join(filter(None, (plain, UNCLEAR if note else ""))),
        )

    def _square(self, sums: Mapping[Degrees, float]) -> float:
        """Return the variance of a row's influence on the answer, of columns in [-1, 1].

        It is that of uv of the centred columns, or of uv - r (u^2 + v^2)/2 of the standardised ones.
        """
        count = sums[0, 0]
        means = {degrees: value / count for degrees, value in sums.items()}
        if (0, 1) not in sums:
            return _central(means, 4, 0) - _central(means, 2, 0) ** 2
        both = _central(means, 2, 2)
        product_of = _central(means, 1, 1)
        if not self._is_correlation:
            return both - product_of**2
        first, second = _central(means, 2, 0), _central(means, 0, 2)
        size = first * second
        if min(first, second) <= 0:
            return 0.0
        value = product_of / math.sqrt(size)
        fourth = _central(means, 4, 0) / first**2 + _central(means, 0, 4) / second**2
        mixed = _central(means, 3, 1) / first + _central(means, 1, 3) / second
        return both / size * (1 + value**2 / 2) + value**2 / 4 * fourth - value / math.sqrt(size) * mixed


VARIANCE = Robust(variance_terms, variances)
COVARIANCE = Robust(covariance_terms, covariances)
CORRELATION = Robust(correlation_terms, correlations)


def _named(name: str) -> str:
    """Return the name of a number with robust errors, given that of the number without them."""
    return name.replace(")", f", {ROBUST})", 1)


def _powers(pair: Pair, degrees: Degrees) -> tuple[str, ...]:
    """Return the columns of a pair, each as often as its power."""
    return (pair[0],) * degrees[0] + (pair[1],) * degrees[1]


def _correlation_ends(value: float, noise: float, error: float, outside: float) -> Interval:
    """Return the interval of a population's correlation, from its errors by noise and by sampling.

    It is to first order, and where the noise is small against the distance from 1 it has the ends on Fisher's
    scale as well: of larger noise the slope there is wrong.
    """
    z = normal_quantile(outside)
    low, high = around(value, math.hypot(noise, error), z)
    if noise <= _SMALL_NOISE * (1 - abs(value)):
        reach = z * math.hypot(noise, error) / (1 - value**2)
        low = min(low, math.tanh(fisher_scale(value) - reach))
        high = max(high, math.tanh(fisher_scale(value) + reach))
    return within((low, high), -1.0, 1.0)


def _of_no_correlation(
    moments: Moments, pair: Pair, sums: Mapping[Degrees, tuple[float, float]]
) -> list[Part]:
    """Return the errors of a correlation, by each noise and by sampling, if there is no correlation.

    The sampling variance is E u^2 v^2 / n, of standardised columns; within its noise two deviations more.
    """
    square, noise = _with_noise(_mixed_fourth, sums)
    most = max(square, 0.0) + (2 * noise if near_zero(square, noise) else 0.0)
    means = {degrees: value / sums[0, 0][0] for degrees, (value, _) in sums.items()}
    size = math.sqrt(max(_central(means, 2, 0) * _central(means, 0, 2), 0.0))
    if not size:
        return []
    error = math.sqrt(most / sums[0, 0][0])
    return [*without_correlation(moments, *pair, size), (error, NORMAL)]


def noise_of_fourth(one: Statistic, noisy: NoisySums) -> float:
    """Return the largest noise of E u^2 v^2 over this mean, of standardised columns of a correlation.

    Infinite where a mean is not above 0.
    """
    parts = [0.0]
    for moments, _ in of_cells(one, noisy):
        for pair in itertools.combinations(one.columns, 2):
            degrees = (*_UP_TO_TWO, *_OF_CORRELATION)
            square, noise = _with_noise(
                _mixed_fourth, {each: moments.sum(*_powers(pair, each)) for each in degrees}
            )
            parts.append(noise / square if square > 0 else math.inf)
    return max(parts)


def _mixed_fourth(sums: Mapping[Degrees, float]) -> float:
    """Return the mean product of the squares of two columns' standardised values, from sums of products."""
    means = {degrees: value / sums[0, 0] for degrees, value in sums.items()}
    first, second = _central(means, 2, 0), _central(means, 0, 2)
    return _central(means, 2, 2) / (first * second) if min(first, second) > 0 else 0.0


def _central(means: Mapping[Degrees, float], first: int, second: int) -> float:
    """Return the central moment of these degrees from the means of all products of fewer factors."""
    x, y = means[1, 0], means.get((0, 1), 0.0)
    return sum(
        math.comb(first, i) * math.comb(second, j) * (-x) ** (first - i) * (-y) ** (second - j) * means[i, j]
        for i in range(first + 1)
        for j in range(second + 1)
    )


def _with_noise(
    function: Callable[[Mapping[Degrees, float]], float], sums: Mapping[Degrees, tuple[float, float]]
) -> tuple[float, float]:
    """Return a function of noisy sums and its standard error, by steps of each sum's deviation each way."""
    values = {degrees: value for degrees, (value, _) in sums.items()}
    changes = [
        function({**values, degrees: value + error}) - function({**values, degrees: value - error})
        for degrees, (value, error) in sums.items()
    ]
    return function(values), math.hypot(*changes) / 2
