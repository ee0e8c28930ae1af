"""Estimates of a result that the total gives: names, units and numbers [protocols/records/README.md]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from smpc_dp_verify.answers import ANSWERS, Counts, Sums, is_computed, labels, spreads, variance_of
from smpc_dp_verify.asked import ROBUST, Asked, selectors
from smpc_dp_verify.columns import Table
from smpc_dp_verify.comparisons import differences, missing
from smpc_dp_verify.distributions import distribution_of
from smpc_dp_verify.fourth import with_robust_errors
from smpc_dp_verify.intervals import (
    UNBOUNDED,
    around,
    count_ends,
    hidden_count_ends,
    minus,
    ratio_ends,
    scaled,
    squared,
    within,
)
from smpc_dp_verify.moments import MOST_COLUMNS, correlations, covariances
from smpc_dp_verify.numbers import OF_SAMPLING, Estimate, Fields, bounded
from smpc_dp_verify.population import is_clear, moved, of_population, together
from smpc_dp_verify.quantiles import is_known, quantiles
from smpc_dp_verify.record_noise import Planned
from smpc_dp_verify.regression import coefficients, regressions
from smpc_dp_verify.risks import risks

# Of more cells than these the ends of intervals take more than seconds.
MOST_ENDS = 4096
# Numbers that are compared to a part of the noise in a number of rows, and all that are compared.
OF_ROWS = ("over", "unreconciled")
NUMBERS = ("value", "standard_error", "low", "high", *OF_ROWS, *OF_SAMPLING)


class Estimates(NamedTuple):
    """Estimates of an answer, and words that all have.

    `row_error`: the deviation of the noise in a number of rows.
    """

    statistic: str
    words: dict[str, str]
    each: list[Estimate]
    row_error: float


def estimates(sums: Sums, asked: Sequence[Asked], planned: Planned, outside: float) -> Iterator[Estimates]:
    """Yield the estimates of the answers that are computed here.

    `outside`: the probability that an interval misses.
    """
    for one in asked:
        if not is_estimated(one, sums.table, planned):
            continue
        made, row_error = ESTIMATES.get(one.kind, _of_cells)(sums, one, outside)
        if one.kind.startswith(ROBUST) and len(made) <= MOST_ENDS:
            made = with_robust_errors(sums, one, made, outside)
        noise = "laplace" if planned.has_laplace(one, sums.table) else "normal"
        words = {"part_of": one.part_of, "noise": noise}
        each = [_completed(sums, one, estimate) for estimate in made]
        yield Estimates(one.text, words, each, row_error)


def is_estimated(one: Asked, table: Table, planned: Planned) -> bool:
    """Tell whether the estimates of an answer are computed here."""
    if one.kind not in ESTIMATES:
        return is_computed(one, table)
    if one.kind == "quantile" and is_known(one, table):
        return False
    size = len(one.columns)
    if one.kind in OF_NORMAL_NOISE:
        if planned.has_laplace(one, table):
            return False
        size = len(coefficients(one, table))
    return math.prod(each.cells for each in selectors(one, table)) <= MOST_ENDS and size <= MOST_COLUMNS


def _completed(sums: Sums, one: Asked, made: Estimate) -> Estimate:
    """Return an estimate with the condition in its name, all numbers, and none about lost parties alone."""
    name = f"{made.name} where {one.condition}" if one.condition and made.name != one.text else made.name
    nothing: Fields = dict.fromkeys(NUMBERS)
    numbers = nothing if sums.is_lost(one, made.cell) else nothing | made.numbers
    return made._replace(name=name, numbers=numbers)


def _of_cells(sums: Sums, one: Asked, outside: float) -> tuple[list[Estimate], float]:
    """Return the estimates of an answer with one number in each cell."""
    answer, cells = ANSWERS[one.kind](sums, one), labels(one, sums.table)
    others: list[Fields] = [dict.fromkeys(NUMBERS[2:], math.nan)] * len(cells)
    row_error = 0.0
    if len(cells) <= MOST_ENDS:
        others, row_error = NUMBERS_OF[one.kind](sums, one, outside)
    plain = one.kind.removeprefix(f"{ROBUST} ")
    name, unit = "count", "rows"
    if plain in ("sum", "mean", "variance"):
        robust = f", {ROBUST}" if plain != one.kind else ""
        name = f"{plain}({one.columns[0]}{robust})"
        unit = f"{one.columns[0]}{'^2' if plain == 'variance' else ''}"
    made = []
    for cell, value, error, more in zip(cells, answer.values, answer.errors, others, strict=True):
        made.append(Estimate(name, unit, cell, {"value": value, "standard_error": error} | more))
    return made, row_error


Made = tuple[list[Fields], float]
"""Numbers of each estimate of an answer, and the deviation of the noise in numbers of rows."""


def _of_counts(sums: Sums, one: Asked, outside: float) -> Made:
    counts, own, least = sums.fitted(one), sums.released(one), sums.least_count(one)
    error, distribution, possible = counts.error, counts.distribution, (0.0, sums.most_rows(one))
    z = distribution.quantile(outside)
    made: list[Fields] = []
    for at, value in enumerate(counts.values):
        if value < least:
            ends = hidden_count_ends(value, error, outside, distribution)
            made.append(bounded(within(ends, *possible)))
            continue
        ends = around(value, error, z)
        if math.isfinite(least):
            ends = count_ends(value, error, least, outside, distribution)
        ends, released = within(ends, *possible), own.values[at]
        numbers = bounded(ends) | {"unreconciled": released if counts.is_fitted else None}
        spread = _count_deviation(released, own) if selectors(one, sums.table) else None
        if spread is not None:
            numbers |= of_population(spread, moved(value, ends, spread, outside), possible)
        made.append(numbers)
    return made, own.error


def _count_deviation(value: float, own: Counts) -> float | None:
    """Return the deviation of a cell's count over samples of rows; None where it is within the noise."""
    total = math.fsum(own.values)
    rest, cells = total - value, len(own.values)
    if min(value, rest) <= 0:
        return None
    error = own.error * math.hypot(rest**2, math.sqrt(cells - 1) * value**2) / total**2
    return math.sqrt(value * rest / total) if is_clear(value * rest / total, error) else None


def _of_sums(sums: Sums, one: Asked, outside: float) -> Made:
    column, (cells, errors, distributions) = sums.table.columns[one.columns[0]], sums.parts(one)
    factors = (column.width / 2, column.middle)
    parts = [
        (factor * error, distribution)
        for factor, error, distribution in zip(factors, errors, distributions, strict=False)
    ]
    error, z = math.hypot(*(each for each, _ in parts)), distribution_of(parts).quantile(outside)
    low, high = 0.0 if column.low >= 0 else -math.inf, 0.0 if column.high <= 0 else math.inf
    values = (sum(factor * value for factor, value in zip(factors, cell, strict=False)) for cell in cells)
    return [bounded(within(around(value, error, z), low, high)) for value in values], 0.0


def _of_ratios(sums: Sums, one: Asked, outside: float) -> Made:
    column, (cells, (e, e_1), distributions) = sums.table.columns[one.columns[0]], sums.parts(one)
    least, half = sums.hide * e_1, column.width / 2
    made: list[Fields] = []
    for (top, count), spread in zip(cells, spreads(sums, one), strict=True):
        ends = UNBOUNDED
        if count > least and e_1 == 0:
            ends = around(top / count, e / count, distributions[0].quantile(outside))
        elif count > least:
            ends = ratio_ends((top, e), (count, e_1), least, outside, (distributions[0], distributions[1]))
        ends = scaled(ends, half, column.middle)
        numbers = bounded(ends) | {"over": count}
        if count > least and spread is not None:
            error, value = half * spread / math.sqrt(count), column.middle + half * top / count
            ends = moved(value, ends, error, outside)
            numbers |= of_population(error, ends, (column.low, column.high))
        made.append(numbers)
    return made, e_1


def _of_variances(sums: Sums, one: Asked, outside: float) -> Made:
    column, (cells, (e_2, e, e_1), (distribution_2, distribution, distribution_1)) = (
        sums.table.columns[one.columns[0]],
        sums.parts(one),
    )
    half, least = (column.width / 2) ** 2, sums.hide * e_1
    made: list[Fields] = []
    for square, top, count in cells:
        ends, sampled = (0.0, 1.0), Fields()
        if count > least:
            y, t = (
                ratio_ends((value, error), (count, e_1), least, outside / 2, (own, distribution_1))
                for value, error, own in ((square, e_2, distribution_2), (top, e, distribution))
            )
            ends = within(minus(within(y, 0.0, 1.0), squared(within(t, -1.0, 1.0))), 0.0, 1.0)
            value, errors = variance_of(square, top, count, (e_2, e, e_1))
            error = half * value * math.sqrt(2 / count)
            if is_clear(value, math.hypot(*errors)):
                parts = [
                    (half * one, distribution)
                    for one, distribution in zip(
                        errors, (distribution_2, distribution, distribution_1), strict=True
                    )
                ]
                ends_of_both = together(half * value, parts, error, outside)
                sampled = of_population(error, ends_of_both, (0.0, half))
        made.append(bounded(scaled(ends, half)) | {"over": count} | sampled)
    return made, e_1


NUMBERS_OF: dict[str, Callable[[Sums, Asked, float], Made]] = {
    "count": _of_counts,
    "table": _of_counts,
    "histogram": _of_counts,
    "sum": _of_sums,
    "mean": _of_ratios,
    "variance": _of_variances,
    "robust variance": _of_variances,
}
ESTIMATES: dict[str, Callable[[Sums, Asked, float], tuple[list[Estimate], float]]] = {
    "missing": missing,
    "difference": differences,
    "risk": risks,
    "covariance": covariances,
    "correlation": correlations,
    "robust covariance": covariances,
    "robust correlation": correlations,
    "regression": regressions,
    "quantile": quantiles,
}
OF_NORMAL_NOISE = ("regression",)
