"""Answers of other packages from the noisy sums, with standard errors to first order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Real

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.extensions import called
from smpc_dp.records.ask import Statistic
from smpc_dp.records.intervals import INFINITE, around
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.registered import RecordStatistic, find_statistic
from smpc_dp.records.result import WITHIN_NOISE, Estimate
from smpc_dp.records.terms import blocks_of

NO_ANSWER = "none: the statistic gives no finite number for these sums"
FIRST_ORDER = "the interval is to first order"


def composed(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the answer in each cell; none where the number of rows is within its noise.

    Raises LocalError if the package is gone since the request was planned.
    """
    statistic = find_statistic(one.kind)
    if statistic is None:
        raise LocalError(f"the package of the statistic {one.kind!r} is not installed any more")
    schema, blocks = noisy.plan.schema, blocks_of(one, noisy.plan.schema)
    errors = [noisy.deviation(block) / block.greatest(schema) for block in blocks]
    sums = [(noisy.sums(block) / block.greatest(schema)).tolist() for block in blocks]
    scales = []
    for name in one.columns:
        column = schema.number(name, one.text)
        scales.append((column.middle, column.width / 2))
    counted = statistic.sums.sums.index(())
    z = noisy.distribution.quantile(display.outside)
    for cell, values in zip(cell_labels(blocks[0].selectors, schema), zip(*sums, strict=True), strict=True):
        rows, is_total = values[counted], statistic.sums.total
        if not is_total and rows <= display.least(errors[counted]):
            yield Estimate.of(one, one.text, "", INFINITE, cell=cell, over=rows, note=WITHIN_NOISE)
            continue
        value, error = _answer(statistic, scales, values, errors)
        over = None if is_total else rows
        if value is None:
            yield Estimate.of(one, one.text, "", INFINITE, cell=cell, over=over, note=NO_ANSWER)
            continue
        ends = INFINITE if error is None else around(value, error, z)
        yield Estimate.of(
            one, one.text, "", ends, cell=cell, value=value, error=error, over=over, note=FIRST_ORDER
        )


def _answer(
    statistic: RecordStatistic,
    scales: Sequence[tuple[float, float]],
    values: Sequence[float],
    errors: Sequence[float],
) -> tuple[float | None, float | None]:
    """Return the answer and its standard error to first order, each None where it is no finite number.

    The answer is taken a deviation of each sum's noise above and below it.
    """
    value = _called(statistic, scales, values)
    changes = []
    for index, error in enumerate(errors):
        if error == 0:
            continue
        up, down = (
            _called(statistic, scales, [*values[:index], values[index] + step, *values[index + 1 :]])
            for step in (error, -error)
        )
        if up is None or down is None:
            return value, None
        changes.append((up - down) / 2)
    return value, math.hypot(*changes)


def _called(
    statistic: RecordStatistic, scales: Sequence[tuple[float, float]], values: Sequence[float]
) -> float | None:
    """Return what the package's function gives, None where it raises or gives no finite number.

    `values`: sums for columns in [-1, 1]; it gets those for the columns' values.
    """
    sums = dict(zip(statistic.sums.sums, values, strict=True))
    columns = dict(zip(statistic.sums.arguments, scales, strict=True))
    natural = tuple(_sum_of(powers, sums, columns) for powers in sums)
    try:
        return called(_number, statistic.answer, natural)
    except (ConfigError, LocalError):
        # The request is released: whatever a package raises, the other answers remain.
        return None


def _number(answer: Callable[[tuple[float, ...]], object], sums: tuple[float, ...]) -> float | None:
    """Return the answer for these sums; None if it is no finite number."""
    given = answer(sums)
    return float(given) if isinstance(given, Real) and math.isfinite(given) else None


def _sum_of(
    powers: tuple[str, ...],
    sums: dict[tuple[str, ...], float],
    columns: dict[str, tuple[float, float]],
) -> float:
    """Return the sum of a product of values, each middle + half * z for z in [-1, 1]."""
    if not powers:
        return sums[()]
    (middle, half), rest = columns[powers[0]], powers[1:]
    if not rest:
        return middle * sums[()] + half * sums[powers]
    other, other_half = columns[rest[0]]
    return (
        middle * other * sums[()]
        + half * other * sums[powers[:1]]
        + middle * other_half * sums[rest]
        + half * other_half * sums[powers]
    )
