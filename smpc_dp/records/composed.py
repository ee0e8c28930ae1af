"""Answers of other packages from the noisy sums, with standard errors to first order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Real

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.extensions import called
from smpc_dp.records.asked import Statistic
from smpc_dp.records.intervals import INFINITE, around, normal_quantile
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.result import WITHIN_NOISE, Estimate
from smpc_dp.records.schema import SumsOfRows
from smpc_dp.records.terms import described_blocks

NO_ANSWER = "none: the statistic gives no finite number for these sums"
# A function of another package, from sums of products of values.
Answer = Callable[[tuple[float, ...]], object]
# How many times the smaller change of an answer the greater one may be.
MOST_BENT = 2.0
BENT = "no error: the answer does not follow the noise of its sums to first order"
FIRST_ORDER = "the interval is to first order"


def composed(
    described: SumsOfRows, answer: Answer, one: Statistic, noisy: NoisySums, display: Display
) -> Iterator[Estimate]:
    """Yield another package's statistic from noisy sums in each cell; no value for too few rows."""
    schema, blocks = noisy.schema, described_blocks(described, one, noisy.schema)
    errors = [noisy.deviation(block) / block.greatest(schema) for block in blocks]
    sums = [(noisy.sums(block) / block.greatest(schema)).tolist() for block in blocks]
    scales = {}
    for argument, name in zip(described.arguments, one.columns, strict=True):
        column = schema.number(name, one.text)
        scales[argument] = column.middle, column.width / 2

    def called_with(values: Sequence[float]) -> float | None:
        sums = dict(zip(described.sums, values, strict=True))
        return _called(answer, tuple(_sum_of(powers, sums, scales) for powers in sums))

    counted = described.sums.index(())
    z = normal_quantile(display.outside)
    for cell, values in zip(cell_labels(blocks[0].selectors, schema), zip(*sums, strict=True), strict=True):
        rows, is_total = values[counted], described.total
        if not is_total and rows <= display.least(errors[counted]):
            yield Estimate.of(one, one.text, "", INFINITE, cell=cell, over=rows, note=WITHIN_NOISE)
            continue
        value, error = _with_error(called_with, values, errors)
        over = None if is_total else rows
        if value is None:
            yield Estimate.of(one, one.text, "", INFINITE, cell=cell, over=over, note=NO_ANSWER)
            continue
        ends = INFINITE if error is None else around(value, error, z)
        note = BENT if error is None else FIRST_ORDER
        yield Estimate.of(one, one.text, "", ends, cell=cell, value=value, error=error, over=over, note=note)


def _with_error(
    answer: Callable[[Sequence[float]], float | None], values: Sequence[float], errors: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return a function of noisy sums and its first-order standard error, each None where it is not finite.

    The answer is taken a deviation of each sum's noise above and below it, and the greater change counts.
    There is no error where both differ by more than `MOST_BENT`.
    """
    value = answer(values)
    changes = []
    for index, error in enumerate(errors):
        if error == 0:
            continue
        up, down = (
            answer([*values[:index], values[index] + step, *values[index + 1 :]]) for step in (error, -error)
        )
        if value is None or up is None or down is None:
            return value, None
        if (up - value) * (value - down) < 0:
            # A peak or a valley.
            return value, None
        changes.append((abs(up - value), abs(value - down)))
    error = math.hypot(*map(max, changes))
    # Where the answer bends within its noise, or does not follow it, no interval to first order holds.
    is_straight = error <= MOST_BENT * math.hypot(*map(min, changes))
    return value, error if is_straight and (error > 0 or not changes) else None


def _called(answer: Answer, sums: tuple[float, ...]) -> float | None:
    """Return the result of another package's function, None if it raises or is not a finite number."""
    try:
        return called(_number, answer, sums)
    except (ConfigError, LocalError):
        # The request is released: whatever a package raises, the other answers remain.
        return None


def _number(answer: Answer, sums: tuple[float, ...]) -> float | None:
    """Return another package's function of the sums as a float, None if it is not a finite number."""
    given = answer(sums)
    number = float(given) if isinstance(given, Real) else math.nan
    return number if math.isfinite(number) else None


def _sum_of(
    powers: tuple[str, ...],
    sums: dict[tuple[str, ...], float],
    columns: dict[str, tuple[float, float]],
) -> float:
    """Return the sum of a product of columns in their own units, from sums of columns scaled to [-1, 1]."""
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
