"""Covariances and correlations from noisy second moments, with conservative intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Block, Selector, product, selector
from smpc_dp.records.intervals import (
    NORMAL,
    ErrorDistribution,
    Interval,
    Part,
    around,
    minus,
    scaled,
    shown_ratio,
    squared,
    sum_quantile,
    times,
    within,
)
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.population import NORMAL_THEORY, Sampling, first_order, p_value, sampling
from smpc_dp.records.result import PROJECTED, WITHIN_NOISE, Estimate, near_zero

Floats = NDArray[np.float64]
# Eigenvalues below this part of the largest are taken for 0.
_ZERO = 1e-12
# The number of rows above which a correlation has a sampling error, and the correlation nearest to 1 on
# Fisher's scale.
_FEWEST, _NEAREST = 3, 1 - 1e-15
NO_CORRELATION = "no correlation: a variance is within the noise"


@dataclass(frozen=True)
class Moments:
    """Noisy means and covariances of columns over the rows of one cell in which all have values.

    `by`: what the cells are of; `cell`: the place of the cell.
    """

    noisy: NoisySums
    names: tuple[str, ...]
    by: tuple[Selector, ...] = ()
    cell: int = 0

    def sum(self, *powers: str) -> tuple[float, float]:
        """Return the noisy sum of a product of columns scaled to [-1, 1], and the noise deviation."""
        block = self._block(*powers)
        size = block.greatest(self.noisy.schema)
        return float(self.noisy.sums(block)[self.cell]) / size, self.noisy.deviation(block) / size

    def distribution(self, *powers: str) -> ErrorDistribution:
        """Return the distribution of the noise in the sum of a product of columns."""
        return self.noisy.distribution(self._block(*powers))

    def _block(self, *powers: str) -> Block:
        """Return the description of the sums of a product of columns."""
        return product(self.noisy.schema, *powers, over=self.names, by=self.by)

    @property
    def count(self) -> tuple[float, float]:
        """The noisy number of rows in which all columns have values, with the noise deviation."""
        return self.sum()

    def mean_interval(self, display: Display, *powers: str) -> Interval:
        """Return the interval of the mean of a product of scaled columns, clipped to [-1, 1]."""
        positive = len(powers) == 2 and powers[0] == powers[1]
        least, distributions = display.least(self.count[1]), (self.distribution(*powers), self.distribution())
        return within(
            shown_ratio(self.sum(*powers), self.count, least, display.outside, distributions),
            0.0 if positive else -1.0,
            1.0,
        )

    def covariance_interval(self, display: Display, first: str, second: str) -> Interval:
        """Return bounds on a scaled covariance, from the intervals of the three means in it."""
        means = self.mean_interval(display, first), self.mean_interval(display, second)
        both = squared(means[0]) if first == second else times(*means)
        return within(
            minus(self.mean_interval(display, first, second), both), 0.0 if first == second else -1.0, 1.0
        )

    def covariances(self) -> Floats:
        """Return the covariance matrix of the scaled columns, corrected for the bias that noise brings."""
        size = len(self.names)
        count, error = self.count
        result = np.zeros((size, size))
        means = np.array([self.sum(name)[0] / count for name in self.names])
        for (i, first), (j, second) in itertools.combinations_with_replacement(enumerate(self.names), 2):
            noise = (means[i] * means[j] * error**2 + (self.sum(first)[1] ** 2 if i == j else 0.0)) / count**2
            value = self.sum(first, second)[0] / count - means[i] * means[j] + noise
            result[i, j] = result[j, i] = value
        return result

    def covariance_error(self, first: str, second: str) -> float:
        """Return the noise's standard error in a scaled covariance, to first order."""
        return math.hypot(*(error for error, _ in self.covariance_parts(first, second)))

    def covariance_parts(self, first: str, second: str) -> list[Part]:
        """Return the errors, to first order, that the noise of each sum brings to a scaled covariance."""
        count, error = self.count
        (both, both_error), (x, x_error), (y, y_error) = (
            self.sum(*powers) for powers in ((first, second), (first,), (second,))
        )
        x, y, both = x / count, y / count, both / count
        parts = [
            (both_error, self.distribution(first, second)),
            ((both - 2 * x * y) * error, self.distribution()),
        ]
        if first == second:
            parts.append((2 * x * x_error, self.distribution(first)))
        else:
            parts += [(y * x_error, self.distribution(first)), (x * y_error, self.distribution(second))]
        return [(part / count, distribution) for part, distribution in parts]


def projected(matrix: Floats) -> tuple[Floats, bool]:
    """Return the nearest positive semidefinite matrix, and whether it differs from the given one."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= -_ZERO * max(abs(values[-1]), _ZERO):
        return matrix, False
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T), True


def of_cells(one: Statistic, noisy: NoisySums) -> list[tuple[Moments, dict[str, str]]]:
    """Return the moments of each cell, with its labels; without groups there is one cell."""
    by = tuple(selector(noisy.schema, name) for name in one.by)
    labels = cell_labels(by, noisy.schema)
    return [(Moments(noisy, one.columns, by, index), cell) for index, cell in enumerate(labels)]


def covariances(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the noisy covariance of each pair of columns, and variances; projected if indefinite."""
    for moments, cell in of_cells(one, noisy):
        yield from _covariances(one, moments, cell, display)


def _covariances(
    one: Statistic, moments: Moments, cell: dict[str, str], display: Display
) -> Iterator[Estimate]:
    """Yield the covariance of each pair of columns in one cell, and each column's variance."""
    schema = moments.noisy.schema
    count, error = moments.count
    hidden = count <= display.least(error)
    free = np.zeros(0) if hidden else moments.covariances()
    matrix, changed = (free, False) if hidden else projected(free)
    widths = [schema.number(name, one.text).width / 2 for name in one.columns]
    for (i, first), (j, second) in itertools.combinations_with_replacement(enumerate(one.columns), 2):
        ends = moments.covariance_interval(display.part(2 if i == j else 3), first, second)
        size = widths[i] * widths[j]
        spread = None if hidden else moments.covariance_error(first, second)
        near = "" if spread is None or i != j else near_zero(float(free[i, i]), spread)
        value = None if hidden else size * float(matrix[i, j])
        noise = None if spread is None else size * spread
        clear = not (hidden or near)
        parts = [] if hidden else moments.covariance_parts(first, second)
        of_sample = (
            size * math.sqrt((matrix[i, i] * matrix[j, j] + matrix[i, j] ** 2) / count) if clear else None
        )
        yield Estimate.of(
            one,
            f"covariance({first}, {second})",
            f"{first} {second}",
            scaled(ends, size),
            cell=cell,
            value=value,
            error=noise,
            sampled=first_order(
                value or 0.0,
                noise,
                of_sample,
                display.outside,
                [(size * part, distribution) for part, distribution in parts],
            ),
            over=count,
            note=WITHIN_NOISE if hidden else near or (PROJECTED if changed else NORMAL_THEORY),
        )


def correlations(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the noisy correlation of each pair of columns, without a value if noise hides a variance."""
    for moments, cell in of_cells(one, noisy):
        yield from _correlations(one, moments, cell, display)


def _correlations(
    one: Statistic, moments: Moments, cell: dict[str, str], display: Display
) -> Iterator[Estimate]:
    """Yield the correlation of each pair of columns in one cell, without a value if noise hides it."""
    count, error = moments.count
    hidden = count <= display.least(error)
    matrix, changed = (np.zeros(0), False) if hidden else projected(moments.covariances())
    # five noisy sums over the count: of both columns, their squares and their product
    part = display.part(5)
    for (i, first), (j, second) in itertools.combinations(enumerate(one.columns), 2):
        both = moments.covariance_interval(part, first, second)
        spreads = [moments.covariance_interval(part, name, name) for name in (first, second)]
        unclear = hidden or spreads[0][0] <= 0 or spreads[1][0] <= 0 or min(matrix[i, i], matrix[j, j]) <= 0
        size = 1.0 if unclear else math.sqrt(matrix[i, i] * matrix[j, j])
        value = None if unclear else min(max(float(matrix[i, j]) / size, -1.0), 1.0)
        parts = None if unclear else _correlation_parts(moments, first, second, matrix, (i, j))
        noise = None if parts is None else math.hypot(*(part for part, _ in parts))
        null = [] if unclear else without_correlation(moments, first, second, size)
        yield Estimate.of(
            one,
            f"correlation({first}, {second})",
            "",
            _ratio(both, spreads),
            cell=cell,
            value=value,
            error=noise,
            sampled=None
            if value is None or parts is None
            else fisher(value, parts, null, count, display.outside),
            over=count,
            note=NO_CORRELATION if unclear else PROJECTED if changed else NORMAL_THEORY,
        )


def fisher(
    value: float, parts: Sequence[Part], null: Sequence[Part], count: float, outside: float
) -> Sampling | None:
    """Return a correlation's population interval on Fisher's scale, and a p-value; None for too few rows.

    The noise is normal on the scale of correlations, and the sampling error on Fisher's: near 1 either scale
    alone is wrong for the other error. The p-value needs no normal values: without an association a
    correlation has the variance 1/(n - 1). Noise that makes the value 1 leaves no sampling error.

    Args:
        parts: the errors that independent noises bring to the correlation.
        null: the same without a correlation.
    """
    if count <= _FEWEST:
        return None
    noise = math.hypot(*(part for part, _ in parts))
    ends = around(value, noise, sum_quantile(parts, outside))
    low, middle, high = (fisher_scale(one) for one in (ends[0], value, ends[1]))
    made = sampling(middle, (low, high), 1 / math.sqrt(count - 3), outside)
    error = (1 - value**2) / math.sqrt(count - 3) if abs(value) < 1 else None
    population = (
        None if made is None or made.ends is None else (math.tanh(made.ends[0]), math.tanh(made.ends[1]))
    )
    tested = [*null, (1 / math.sqrt(count - 1), NORMAL)]
    return Sampling(error, population, p_value(value, tested))


def fisher_scale(value: float) -> float:
    """Return a correlation on Fisher's scale, brought within what numbers can tell from 1."""
    return math.atanh(min(max(value, -_NEAREST), _NEAREST))


def without_correlation(moments: Moments, first: str, second: str, size: float) -> list[Part]:
    """Return the errors that noises bring to a correlation, to first order, if there is no association.

    `size`: the product of both standard deviations. The noise of it does not matter to a correlation of 0.
    """
    count = moments.count[0]
    x, y = (moments.sum(name)[0] / count for name in (first, second))
    slopes: list[tuple[float, tuple[str, ...]]] = [
        (1.0, (first, second)),
        (-y, (first,)),
        (-x, (second,)),
        (x * y, ()),
    ]
    return [
        (slope * moments.sum(*powers)[1] / (count * size), moments.distribution(*powers))
        for slope, powers in slopes
    ]


def _ratio(both: Interval, spreads: Sequence[Interval]) -> Interval:
    """Return bounds on a correlation, from the intervals of the covariance and both variances."""
    smallest, largest = (math.sqrt(spreads[0][end] * spreads[1][end]) for end in (0, 1))
    if smallest <= 0:
        return -1.0, 1.0
    low = both[0] / (smallest if both[0] < 0 else largest)
    high = both[1] / (smallest if both[1] > 0 else largest)
    return within((low, high), -1.0, 1.0)


def _correlation_parts(
    moments: Moments, first: str, second: str, matrix: Floats, at: tuple[int, int]
) -> list[Part]:
    """Return the errors, to first order, that the noise of each sum brings to a correlation."""
    i, j = at
    count = moments.count[0]
    size = math.sqrt(matrix[i, i] * matrix[j, j])
    ratio = matrix[i, j] / size
    x, y = (moments.sum(name)[0] / count for name in (first, second))
    # of the number of rows, by the covariance and by both variances
    of_rows = (2 * x * y - moments.sum(first, second)[0] / count) / size
    slopes: list[tuple[float, tuple[str, ...]]] = [(1 / size, (first, second))]
    for name, mean, other, k in ((first, x, y, i), (second, y, x, j)):
        half = ratio / (2 * matrix[k, k])
        slopes += [(-half, (name, name)), (2 * half * mean - other / size, (name,))]
        of_rows += half * (moments.sum(name, name)[0] / count - 2 * mean**2)
    slopes.append((of_rows, ()))
    return [
        (slope * moments.sum(*powers)[1] / count, moments.distribution(*powers)) for slope, powers in slopes
    ]
