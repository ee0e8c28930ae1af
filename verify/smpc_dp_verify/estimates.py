"""Fields of the estimates of a result, beside value and standard error [protocols/records/README.md]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from smpc_dp_verify.answers import Sums, labels
from smpc_dp_verify.asked import ROBUST, Asked, selectors
from smpc_dp_verify.intervals import (
    UNBOUNDED,
    Ends,
    around,
    count_ends,
    hidden_count_ends,
    minus,
    ratio_ends,
    scaled,
    squared,
    within,
)
from smpc_dp_verify.laws import law_of

# Of more cells than these the ends of intervals take more than seconds.
MOST_ENDS = 4096
# Numbers that are computed here, by their names in a result; NaN where programs may differ.
Fields = dict[str, float | None]
Made = tuple[list[Fields], float]
"""Numbers of each estimate of an answer, and the deviation of the noise in numbers of rows."""
OF_ROWS = ("over", "unreconciled")
NUMBERS = ("low", "high", *OF_ROWS)


class Estimates(NamedTuple):
    """Estimates of an answer: the text, words that all have, and of each cell its labels and its numbers.

    `row_error`: the deviation of the noise in a number of rows.
    """

    statistic: str
    words: dict[str, str]
    cells: list[dict[str, str]]
    numbers: list[Fields]
    row_error: float


def estimates(sums: Sums, asked: Sequence[Asked], outside: float) -> Iterator[Estimates]:
    """Yield the estimates of answers that are computed here.

    `outside`: the probability that an interval misses.
    """
    by_text = {one.text: one for one in asked}
    for answer in sums.answers(asked):
        one = by_text[answer.statistic]
        others, row_error = _numbers(sums, one, outside)
        pairs = zip(answer.values, answer.errors, others, strict=True)
        numbers = [{"value": value, "standard_error": error} | more for value, error, more in pairs]
        yield Estimates(one.text, _words(sums, one), labels(one, sums.table), numbers, row_error)


def _words(sums: Sums, one: Asked) -> dict[str, str]:
    """Return name, unit and question of an answer, and the law of its noise."""
    plain = one.kind.removeprefix(f"{ROBUST} ")
    name, unit = "count", "rows"
    if plain in ("sum", "mean", "variance"):
        robust = f", {ROBUST}" if plain != one.kind else ""
        name = f"{plain}({one.columns[0]}{robust})"
        unit = f"{one.columns[0]}{'^2' if plain == 'variance' else ''}"
    if one.condition and name != one.text:
        name = f"{name} where {one.condition}"
    return {"name": name, "unit": unit, "part_of": one.part_of, "noise": sums.noise_of(one)}


def _numbers(sums: Sums, one: Asked, outside: float) -> tuple[list[Fields], float]:
    """Return what each estimate has beside value and standard error, and the deviation of numbers of rows."""
    cells = math.prod(each.cells for each in selectors(one, sums.table))
    if cells > MOST_ENDS:
        return [dict.fromkeys(NUMBERS, math.nan)] * cells, 0.0
    made, row_error = NUMBERS_OF[one.kind](sums, one, outside)
    lost, nothing = sums.lost(one, cells), dict.fromkeys(NUMBERS)
    return [nothing if cell in lost else nothing | each for cell, each in enumerate(made)], row_error


def _bounded(ends: Ends) -> Fields:
    """Return the ends of an interval, None for one that is infinite."""
    return {name: None if math.isinf(end) else end for name, end in zip(("low", "high"), ends, strict=True)}


def _of_counts(sums: Sums, one: Asked, outside: float) -> Made:
    counts, least, possible = sums.fitted(one), sums.least_count(one), (0.0, sums.most_rows(one))
    error, law = counts.error, counts.law
    z = law.quantile(outside)
    made: list[Fields] = []
    for at, value in enumerate(counts.values):
        if value < least:
            ends = hidden_count_ends(value, error, outside, law)
            made.append(_bounded(within(ends, *possible)))
            continue
        ends = around(value, error, z)
        if math.isfinite(least):
            ends = count_ends(value, error, least, outside, law)
        released = None if counts.released is None else counts.released[at]
        made.append(_bounded(within(ends, *possible)) | {"unreconciled": released})
    return made, sums.of(sums.table.block(by=selectors(one, sums.table)), one)[1]


def _of_sums(sums: Sums, one: Asked, outside: float) -> Made:
    column, (cells, errors, laws) = sums.table.columns[one.columns[0]], sums.parts(one)
    factors = (column.width / 2, column.middle)
    parts = [(factor * error, law) for factor, error, law in zip(factors, errors, laws, strict=False)]
    error, z = math.hypot(*(each for each, _ in parts)), law_of(parts).quantile(outside)
    low, high = 0.0 if column.low >= 0 else -math.inf, 0.0 if column.high <= 0 else math.inf
    values = (sum(factor * value for factor, value in zip(factors, cell, strict=False)) for cell in cells)
    return [_bounded(within(around(value, error, z), low, high)) for value in values], 0.0


def _of_means(sums: Sums, one: Asked, outside: float) -> Made:
    column, (cells, (e, e_1), laws) = sums.table.columns[one.columns[0]], sums.parts(one)
    least = sums.hide * e_1
    made: list[Fields] = []
    for top, count in cells:
        ends = UNBOUNDED
        if count > least and e_1 == 0:
            ends = around(top / count, e / count, laws[0].quantile(outside))
        elif count > least:
            ends = ratio_ends((top, e), (count, e_1), least, outside, (laws[0], laws[1]))
        made.append(_bounded(scaled(ends, column.width / 2, column.middle)) | {"over": count})
    return made, e_1


def _of_variances(sums: Sums, one: Asked, outside: float) -> Made:
    column, (cells, (e_2, e, e_1), (law_2, law, law_1)) = sums.table.columns[one.columns[0]], sums.parts(one)
    half, least = (column.width / 2) ** 2, sums.hide * e_1
    made: list[Fields] = []
    for square, top, count in cells:
        ends = 0.0, 1.0
        if count > least:
            y, t = (
                ratio_ends((value, error), (count, e_1), least, outside / 2, (own, law_1))
                for value, error, own in ((square, e_2, law_2), (top, e, law))
            )
            ends = within(minus(within(y, 0.0, 1.0), squared(within(t, -1.0, 1.0))), 0.0, 1.0)
        made.append(_bounded(scaled(ends, half)) | {"over": count})
    return made, e_1


NUMBERS_OF: dict[str, Callable[[Sums, Asked, float], Made]] = {
    "count": _of_counts,
    "table": _of_counts,
    "histogram": _of_counts,
    "sum": _of_sums,
    "mean": _of_means,
    "variance": _of_variances,
    "robust variance": _of_variances,
}
