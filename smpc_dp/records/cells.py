"""Counts, sums, means and variances, in each cell, with an interval for what the noise may have done."""

from __future__ import annotations

import math
from collections.abc import Iterator

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import product, selector
from smpc_dp.records.intervals import (
    INFINITE,
    around,
    hidden_count,
    minus,
    scaled,
    shown_count,
    shown_ratio,
    squared,
    within,
)
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.result import HIDDEN, WITHIN_NOISE, Estimate, near_zero
from smpc_dp.records.terms import counted_cells


def counts(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the counts of cells, those within the noise hidden."""
    schema = noisy.schema
    block = product(schema, by=counted_cells(one, schema))
    deviation, outside = noisy.deviation(block), display.outside
    least = display.hide * deviation
    total, z = float(noisy.sums(block).sum()), noisy.distribution.quantile(outside)
    for value, cell in zip(noisy.sums(block).tolist(), cell_labels(block.selectors, schema), strict=True):
        if cell and least > 0 and value < least:
            ends = hidden_count(value, deviation, outside, noisy.distribution)
            yield Estimate.of(one, "count", "rows", ends, cell=cell, error=deviation, note=HIDDEN)
            continue
        ends = around(value, deviation, z)
        if cell and least > 0:
            ends = shown_count(value, deviation, least, outside, noisy.distribution)
        sampled = _count_deviation(value, total, deviation, block.cells) if cell else None
        yield Estimate.of(
            one, "count", "rows", ends, cell=cell, value=value, error=deviation, sampled=sampled
        )


def _count_deviation(value: float, total: float, deviation: float, cells: int) -> float | None:
    """Return the standard deviation of a cell's count in samples of rows; None within its noise."""
    rest = total - value
    if min(value, rest) <= 0:
        return None
    spread = value * rest / total
    error = deviation * math.hypot(rest**2, math.sqrt(cells - 1) * value**2) / total**2
    return None if near_zero(spread, error) else math.sqrt(spread)


def sums(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield sums: the middle of the range times the count, and the sum of what is above it."""
    schema, (name,) = noisy.schema, one.columns
    column = schema.number(name, one.text)
    by = [selector(schema, each) for each in one.by]
    first = product(schema, name, by=by)
    count = product(schema, over=one.columns, by=by)
    z = noisy.distribution.quantile(display.outside)
    deviation = column.unit * noisy.deviation(first)
    values = column.unit * noisy.sums(first)
    if column.middle != 0:
        values = values + column.middle * noisy.sums(count)
        deviation = math.hypot(deviation, column.middle * noisy.deviation(count))
    for value, cell in zip(values.tolist(), cell_labels(first.selectors, schema), strict=True):
        ends = around(value, deviation, z)
        yield Estimate.of(one, f"sum({name})", name, ends, cell=cell, value=value, error=deviation)


def means(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield means, with Fieller's intervals; a group whose count is within the noise has none."""
    schema, (name,) = noisy.schema, one.columns
    column = schema.number(name, one.text)
    by = [selector(schema, each) for each in one.by]
    first, count = product(schema, name, by=by), product(schema, over=one.columns, by=by)
    cells = cell_labels(first.selectors, schema)
    sampled = sampling_deviation(one, noisy)
    errors = noisy.deviation(first) / column.steps, noisy.deviation(count)
    tops = noisy.sums(first) / column.steps
    for top, below, cell in zip(tops.tolist(), noisy.sums(count).tolist(), cells, strict=True):
        if below <= display.least(errors[1]):
            yield Estimate.of(one, f"mean({name})", name, INFINITE, cell=cell, over=below, note=WITHIN_NOISE)
            continue
        if errors[1] == 0:
            ends = around(top / below, errors[0] / below, noisy.distribution.quantile(display.outside))
        else:
            ends = shown_ratio(
                (top, errors[0]), (below, errors[1]), display.least(errors[1]), display.outside
            )
        ratio, half = top / below, column.width / 2
        yield Estimate.of(
            one,
            f"mean({name})",
            name,
            scaled(ends, half, column.middle),
            cell=cell,
            value=column.middle + half * ratio,
            error=half * math.hypot(errors[0], ratio * errors[1]) / below,
            sampled=None if sampled is None or cell else sampled / math.sqrt(below),
            over=below,
            possible=(column.lower, column.upper),
        )


def sampling_deviation(one: Statistic, noisy: NoisySums) -> float | None:
    """Return the estimated standard deviation of a column whose squares are in the request too, else None.

    None also of a variance within its noise.
    """
    schema, (name,) = noisy.schema, one.columns
    square = product(schema, name, name)
    if square not in noisy.blocks:
        return None
    column = schema.number(name, one.text)
    blocks = square, product(schema, name), product(schema, over=(name,))
    sizes = [block.greatest(schema) for block in blocks]
    errors = [noisy.deviation(block) / size for block, size in zip(blocks, sizes, strict=True)]
    second, first, count = (
        float(noisy.sums(block)[0]) / size for block, size in zip(blocks, sizes, strict=True)
    )
    if count <= 0:
        return None
    variance, error = corrected_variance(second, first, count, errors)
    return None if near_zero(variance, error) else column.width / 2 * math.sqrt(variance)


def variances(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield variances: the mean square less the squared mean, corrected for the noise of the latter."""
    schema, (name,) = noisy.schema, one.columns
    half = schema.number(name, one.text).width / 2
    by = [selector(schema, each) for each in one.by]
    blocks = (
        product(schema, name, name, by=by),
        product(schema, name, by=by),
        product(schema, over=(name,), by=by),
    )
    sizes = [block.greatest(schema) for block in blocks]
    errors = [noisy.deviation(block) / size for block, size in zip(blocks, sizes, strict=True)]
    values = [(noisy.sums(block) / size).tolist() for block, size in zip(blocks, sizes, strict=True)]
    least = display.least(errors[2])
    label, unit = f"variance({name})", f"{name}^2"
    for second, first, count, cell in zip(*values, cell_labels(blocks[0].selectors, schema), strict=True):
        if count <= least:
            ends = 0.0, half**2
            yield Estimate.of(one, label, unit, ends, cell=cell, over=count, note=WITHIN_NOISE)
            continue
        square, mean = (
            shown_ratio((top, error), (count, errors[2]), least, display.outside / 2)
            for top, error in ((second, errors[0]), (first, errors[1]))
        )
        low, high = minus(within(square, 0.0, 1.0), squared(within(mean, -1.0, 1.0)))
        value, error = corrected_variance(second, first, count, errors)
        note = near_zero(value, error)
        yield Estimate.of(
            one,
            label,
            unit,
            scaled(within((low, high), 0.0, 1.0), half**2),
            cell=cell,
            value=half**2 * value,
            error=half**2 * error,
            over=count,
            possible=(0.0, half**2),
            note=note,
        )


def corrected_variance(second: float, first: float, count: float, errors: list[float]) -> tuple[float, float]:
    """Return E[z^2] - E[z]^2 plus the noise variance of E[z], and the first-order standard error."""
    square, mean = second / count, first / count
    noise = (errors[1] ** 2 + (mean * errors[2]) ** 2) / count**2
    parts = errors[0], 2 * mean * errors[1], (square - 2 * mean**2) * errors[2]
    return square - mean**2 + noise, math.hypot(*parts) / count
