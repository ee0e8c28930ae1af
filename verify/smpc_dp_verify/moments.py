"""Covariances and correlations [docs/proofs/records.md, "Intervals"]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from smpc_dp_verify.answers import Sums, labels
from smpc_dp_verify.asked import ROBUST, Asked, selectors
from smpc_dp_verify.columns import Block
from smpc_dp_verify.distributions import NORMAL, Distribution, Part, distribution_of
from smpc_dp_verify.intervals import Ends, around, minus, ratio_ends, scaled, squared, times, within
from smpc_dp_verify.matrices import Matrix, eigen
from smpc_dp_verify.numbers import OF_SAMPLING, Estimate, Fields, bounded
from smpc_dp_verify.population import is_clear, moved, of_population, p_value, scale_of_p, together

# Columns of which eigenvalues take less than seconds.
MOST_COLUMNS = 20
# Eigenvalues above so small a part of the greatest one below 0 count as 0.
ROUNDED = 1e-12
# The number of rows above which a correlation has a sampling error, and the one that is nearest to 1.
FEWEST, NEAREST = 3, 1 - 1e-15
Made = tuple[list[Estimate], float]


class Moments:
    """Noisy sums of products of columns in [-1, 1], in one cell, with deviation and law of their noise."""

    def __init__(self, sums: Sums, one: Asked, at: int) -> None:
        self._sums, self._one, self._at = sums, one, at
        self.count, self.error = self.sum()

    def sum(self, *powers: str) -> tuple[float, float]:
        """Return the sum of a product over the rows that have all columns, and the noise's deviation."""
        values, error = self._sums.of(self._block(*powers), self._one)
        return values[self._at], error

    def distribution(self, *powers: str) -> Distribution:
        """Return the law of the noise of a product's sum."""
        return self._sums.distribution(self._block(*powers), self._one)

    def _block(self, *powers: str) -> Block:
        by = selectors(self._one, self._sums.table)
        return self._sums.table.block(*powers, over=self._one.columns, by=by)

    @property
    def least(self) -> float:
        """What the number of rows must be above, to be shown."""
        return self._sums.hide * self.error

    def mean_ends(self, outside: float, *powers: str) -> Ends:
        """Return the ends of the mean of a product."""
        distributions = self.distribution(*powers), self.distribution()
        ends = ratio_ends(self.sum(*powers), (self.count, self.error), self.least, outside, distributions)
        return within(ends, 0.0 if len({*powers}) < len(powers) else -1.0, 1.0)

    def covariance_ends(self, outside: float, a: str, b: str) -> Ends:
        """Return the ends of a covariance, of three means of which each misses with this probability."""
        first, second = self.mean_ends(outside, a), self.mean_ends(outside, b)
        both = squared(first) if a == b else times(first, second)
        ends = minus(self.mean_ends(outside, a, b), both)
        return within(ends, 0.0 if a == b else -1.0, 1.0)

    def covariance(self, a: str, b: str) -> float:
        """Return a covariance without the bias that noise brings to the product of the means."""
        (x, error), (y, _), (both, _) = self.sum(a), self.sum(b), self.sum(a, b)
        x, y, both = x / self.count, y / self.count, both / self.count
        noise = x * y * self.error**2 + (error**2 if a == b else 0.0)
        return both - x * y + noise / self.count**2

    def _parts(self, slopes: Iterable[tuple[float, tuple[str, ...]]]) -> list[Part]:
        """Return the errors that the noises of sums bring to a function of the means, with their laws.

        `slopes`: of the function in the means of products, the last one in the number of rows over itself.
        """
        return [
            (slope * self.sum(*powers)[1] / self.count, self.distribution(*powers))
            for slope, powers in slopes
            if slope
        ]

    def covariance_parts(self, a: str, b: str) -> list[Part]:
        """Return the errors that noises bring to a covariance."""
        x, y, both = (self.sum(*powers)[0] / self.count for powers in ((a,), (b,), (a, b)))
        slopes: list[tuple[float, tuple[str, ...]]] = [(1.0, (a, b)), (both - 2 * x * y, ())]
        return self._parts([*slopes, *([(2 * x, (a,))] if a == b else [(y, (a,)), (x, (b,))])])

    def parts_without_correlation(self, a: str, b: str, size: float) -> list[Part]:
        """Return the errors that noises bring to a correlation of 0; `size`: of both deviations."""
        x, y = (self.sum(name)[0] / self.count for name in (a, b))
        return self._parts([(1 / size, (a, b)), (-y / size, (a,)), (-x / size, (b,)), (x * y / size, ())])

    def correlation_parts(self, a: str, b: str, matrix: tuple[float, float, float]) -> list[Part]:
        """Return the errors that noises bring to a correlation.

        `matrix`: both variances and the covariance.
        """
        of_a, of_b, both = matrix
        size = math.sqrt(of_a * of_b)
        ratio, n = both / size, self.count
        x, y = self.sum(a)[0] / n, self.sum(b)[0] / n
        of_squares = [(a, x, y, ratio / (2 * of_a)), (b, y, x, ratio / (2 * of_b))]
        slopes: list[tuple[float, tuple[str, ...]]] = [(1 / size, (a, b))]
        of_count = (2 * x * y - self.sum(a, b)[0] / n) / size
        for name, mean, other, half in of_squares:
            slopes += [(-half, (name, name)), (2 * half * mean - other / size, (name,))]
            of_count += half * (self.sum(name, name)[0] / n - 2 * mean**2)
        return self._parts([*slopes, (of_count, ())])


def projected(matrix: Matrix) -> Matrix:
    """Return the nearest matrix without negative eigenvalues."""
    values, vectors = eigen(matrix)
    if min(values) >= -ROUNDED * max(abs(max(values)), ROUNDED):
        return matrix
    size = range(len(matrix))
    pairs = [(value, vector) for value, vector in zip(values, vectors, strict=True) if value > 0]
    return [[math.fsum(value * one[i] * one[j] for value, one in pairs) for j in size] for i in size]


def _each(sums: Sums, one: Asked) -> list[tuple[Moments, dict[str, str], Matrix | None]]:
    """Return the moments of each cell, its labels, and the covariances; None where the count is hidden."""
    result: list[tuple[Moments, dict[str, str], Matrix | None]] = []
    for at, cell in enumerate(labels(one, sums.table)):
        moments = Moments(sums, one, at)
        made = None
        if moments.count > moments.least:
            made = projected([[moments.covariance(a, b) for b in one.columns] for a in one.columns])
        result.append((moments, cell, made))
    return result


def _named(one: Asked, pair: tuple[str, str]) -> str:
    robust = f", {ROBUST}" if one.kind.startswith(ROBUST) else ""
    return f"{one.kind.removeprefix(f'{ROBUST} ')}({', '.join(pair)}{robust})"


def covariances(sums: Sums, one: Asked, outside: float) -> Made:
    """Return the estimates of the covariance of each pair of columns, a column with itself too."""
    made, error = [], 0.0
    for moments, cell, matrix in _each(sums, one):
        error = moments.error
        for (i, a), (j, b) in itertools.combinations_with_replacement(enumerate(one.columns), 2):
            size = math.prod(sums.table.columns[name].width / 2 for name in (a, b))
            ends = moments.covariance_ends(outside / (2 if i == j else 3), a, b)
            numbers = {"over": moments.count} | bounded(scaled(ends, size))
            if matrix is not None:
                parts = [(size * part, distribution) for part, distribution in moments.covariance_parts(a, b)]
                value, noise = size * matrix[i][j], math.hypot(*(part for part, _ in parts))
                numbers |= {"value": value, "standard_error": noise}
                if i != j or is_clear(size * moments.covariance(a, a), noise):
                    square = matrix[i][i] * matrix[j][j] + matrix[i][j] ** 2
                    error_of_rows = size * math.sqrt(square / moments.count)
                    ends = together(value, parts, error_of_rows, outside)
                    numbers |= of_population(error_of_rows, ends)
            made.append(Estimate(_named(one, (a, b)), f"{a} {b}", cell, numbers))
    return made, error


def correlations(sums: Sums, one: Asked, outside: float) -> Made:
    """Return the estimates of the correlation of each pair of columns."""
    made, error = [], 0.0
    for moments, cell, matrix in _each(sums, one):
        error = moments.error
        for (i, a), (j, b) in itertools.combinations(enumerate(one.columns), 2):
            both, of_a, of_b = (
                moments.covariance_ends(outside / 5, *pair) for pair in ((a, b), (a, a), (b, b))
            )
            numbers = {"over": moments.count} | bounded(_correlation_ends(both, of_a, of_b))
            scales: tuple[tuple[str, float], ...] = ()
            if matrix is not None and math.isnan(of_a[0] + of_b[0]):
                # programs may differ in whether the variances are clear of the noise
                numbers |= dict.fromkeys(("value", "standard_error", *OF_SAMPLING), math.nan)
            elif matrix is not None and of_a[0] > 0 < of_b[0] and matrix[i][i] > 0 < matrix[j][j]:
                size = math.sqrt(matrix[i][i] * matrix[j][j])
                value = min(max(matrix[i][j] / size, -1.0), 1.0)
                parts = moments.correlation_parts(a, b, (matrix[i][i], matrix[j][j], matrix[i][j]))
                numbers |= {"value": value, "standard_error": math.hypot(*(part for part, _ in parts))}
                if moments.count > FEWEST:
                    null = moments.parts_without_correlation(a, b, size)
                    numbers |= _of_population(value, parts, null, moments.count, outside)
                    scales = (("p_value", scale_of_p(numbers["p_value"])),)
            made.append(Estimate(_named(one, (a, b)), "", cell, numbers, scales))
    return made, error


def _of_population(value: float, parts: list[Part], null: list[Part], count: float, outside: float) -> Fields:
    """Return what a correlation says of a population: the ends on Fisher's scale, and a p-value."""
    noise = math.hypot(*(part for part, _ in parts))
    ends = around(value, noise, distribution_of(parts).quantile(outside))
    low, middle, high = (fisher_scale(one) for one in (ends[0], value, ends[1]))
    low, high = moved(middle, (low, high), 1 / math.sqrt(count - 3), outside)
    error = (1 - value**2) / math.sqrt(count - 3) if abs(value) < 1 else None
    tested = p_value(value, [*null, (1 / math.sqrt(count - 1), NORMAL)])
    return of_population(error, (math.tanh(low), math.tanh(high))) | {"p_value": tested}


def fisher_scale(value: float) -> float:
    """Return a correlation on Fisher's scale, brought within what numbers can tell from 1."""
    return value if math.isnan(value) else math.atanh(min(max(value, -NEAREST), NEAREST))


def _correlation_ends(both: Ends, first: Ends, second: Ends) -> Ends:
    """Return the ends of a correlation, from those of the covariance and both variances."""
    least, most = (math.sqrt(first[at] * second[at]) for at in (0, 1))
    if least <= 0:
        return -1.0, 1.0
    low, high = both[0] / (least if both[0] < 0 else most), both[1] / (least if both[1] > 0 else most)
    return within((low, high), -1.0, 1.0)
