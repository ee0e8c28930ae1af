"""Counts, sums, means and variances, in each cell, with an interval for what the noise may have done."""

from __future__ import annotations

import math
from collections.abc import Iterator

from smpc_dp.records.asked import Statistic
from smpc_dp.records.consistency import counts_of, reconciled
from smpc_dp.records.features import Lacking, Selector, product, selector
from smpc_dp.records.intervals import (
    INFINITE,
    around,
    hidden_count,
    minus,
    scaled,
    shown_count,
    shown_ratio,
    squared,
    sum_quantile,
    within,
)
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.population import NORMAL_THEORY, first_order, sampling
from smpc_dp.records.result import HIDDEN, PROJECTED, WITHIN_NOISE, Estimate, near_zero
from smpc_dp.records.terms import count_selectors, missing_blocks


def counts(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the noisy count of rows in each cell of a table; counts too small for their noise are hidden.

    They are reconciled with all noisy counts of the same rows.
    """
    schema, outside = noisy.schema, display.outside
    block = product(schema, by=count_selectors(one, schema))
    own = counts_of(block, noisy)
    agreed = reconciled(block, noisy)
    used = own if agreed is None else agreed
    deviation, distribution = used.deviation, used.distribution
    least, z = display.hide * deviation, distribution.quantile(outside)
    possible = 0.0, math.inf if noisy.public_rows is None else noisy.public_rows
    total = float(own.values.sum())
    counted = zip(
        used.values.tolist(), own.values.tolist(), cell_labels(block.selectors, schema), strict=True
    )
    for value, noisy_count, cell in counted:
        if cell and least > 0 and value < least:
            ends = within(hidden_count(value, deviation, outside, distribution), *possible)
            yield Estimate.of(one, "count", "rows", ends, cell=cell, error=deviation, note=HIDDEN)
            continue
        ends = around(value, deviation, z)
        if cell and least > 0:
            ends = shown_count(value, deviation, least, outside, distribution)
        sampled = _count_deviation(noisy_count, total, own.deviation, block.cells) if cell else None
        ends = within(ends, *possible)
        yield Estimate.of(
            one,
            "count",
            "rows",
            ends,
            cell=cell,
            value=value,
            error=deviation,
            sampled=sampling(value, ends, sampled, outside),
            unreconciled=None if agreed is None else noisy_count,
            possible=possible,
        )


def _count_deviation(value: float, total: float, deviation: float, cells: int) -> float | None:
    """Return the sampling deviation of a cell's count, rows being a sample; None if noise hides it."""
    rest = total - value
    if min(value, rest) <= 0:
        return None
    spread = value * rest / total
    error = deviation * math.hypot(rest**2, math.sqrt(cells - 1) * value**2) / total**2
    return None if near_zero(spread, error) else math.sqrt(spread)


def sums(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield a column's noisy sum in each group, with intervals; a sum of impossible sign is cut at 0."""
    schema, (name,) = noisy.schema, one.columns
    column = schema.number(name, one.text)
    by = [selector(schema, each) for each in one.by]
    first = product(schema, name, by=by)
    count = product(schema, over=one.columns, by=by)
    values, parts = (
        column.unit * noisy.sums(first),
        [(column.unit * noisy.deviation(first), noisy.distribution(first))],
    )
    if column.middle != 0:
        values = values + column.middle * noisy.sums(count)
        parts.append((column.middle * noisy.deviation(count), noisy.distribution(count)))
    deviation, z = math.hypot(*(one for one, _ in parts)), sum_quantile(parts, display.outside)
    possible = 0.0 if column.lower >= 0 else -math.inf, 0.0 if column.upper <= 0 else math.inf
    for value, cell in zip(values.tolist(), cell_labels(first.selectors, schema), strict=True):
        ends = within(around(value, deviation, z), *possible)
        yield Estimate.of(
            one, f"sum({name})", name, ends, cell=cell, value=value, error=deviation, possible=possible
        )


def means(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield a column's noisy mean in each group, with Fieller's intervals; no value where noise hides it."""
    schema, (name,) = noisy.schema, one.columns
    column = schema.number(name, one.text)
    by = [selector(schema, each) for each in one.by]
    first, count = product(schema, name, by=by), product(schema, over=one.columns, by=by)
    cells = cell_labels(first.selectors, schema)
    sampled = sampling_deviations(one, noisy)
    errors = noisy.deviation(first) / column.steps, noisy.deviation(count)
    tops, counts = noisy.sums(first) / column.steps, noisy.sums(count).tolist()
    distributions = noisy.distribution(first), noisy.distribution(count)
    for top, below, cell, spread in zip(tops.tolist(), counts, cells, sampled, strict=True):
        if below <= display.least(errors[1]):
            yield Estimate.of(one, f"mean({name})", name, INFINITE, cell=cell, over=below, note=WITHIN_NOISE)
            continue
        if errors[1] == 0:
            ends = around(top / below, errors[0] / below, distributions[0].quantile(display.outside))
        else:
            ends = shown_ratio(
                (top, errors[0]), (below, errors[1]), display.least(errors[1]), display.outside, distributions
            )
        ratio, half = top / below, column.width / 2
        value, ends = column.middle + half * ratio, scaled(ends, half, column.middle)
        of_sample = None if spread is None else spread / math.sqrt(below)
        yield Estimate.of(
            one,
            f"mean({name})",
            name,
            ends,
            cell=cell,
            value=value,
            error=half * math.hypot(errors[0], ratio * errors[1]) / below,
            sampled=sampling(value, ends, of_sample, display.outside),
            over=below,
            possible=(column.lower, column.upper),
        )


def sampling_deviations(one: Statistic, noisy: NoisySums) -> list[float | None]:
    """Return a column's estimated standard deviation in each cell, None where it is not known.

    It is not known if the squares were not summed, and where the variance is within its noise.
    """
    schema, (name,) = noisy.schema, one.columns
    column, by = schema.number(name, one.text), [selector(schema, each) for each in one.by]
    square = product(schema, name, name, by=by)
    if square not in noisy.blocks:
        return [None] * square.cells
    made: list[float | None] = []
    for count, _, variance, error in spreads(name, noisy, by):
        clear = count > 0 and not near_zero(variance, error)
        made.append(column.width / 2 * math.sqrt(variance) if clear else None)
    return made


def spreads(name: str, noisy: NoisySums, by: list[Selector]) -> list[tuple[float, float, float, float]]:
    """Return a column's noisy count, sum, variance and standard error of that variance in each cell.

    Values are in [-1, 1]; where the count is not positive the variance is 0.
    """
    schema = noisy.schema
    blocks = (
        product(schema, name, name, by=by),
        product(schema, name, by=by),
        product(schema, over=(name,), by=by),
    )
    sizes = [block.greatest(schema) for block in blocks]
    errors = [noisy.deviation(block) / size for block, size in zip(blocks, sizes, strict=True)]
    values = [(noisy.sums(block) / size).tolist() for block, size in zip(blocks, sizes, strict=True)]
    return [
        (count, first, *(corrected_variance(second, first, count, errors) if count > 0 else (0.0, 0.0)))
        for second, first, count in zip(*values, strict=True)
    ]


def missing(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield in each group the noisy number of rows in which a column has no value, with intervals."""
    schema = noisy.schema
    every, given = missing_blocks(one, schema)
    counted = Lacking((), given.present, given.selectors)
    if counted in noisy.blocks:
        values, parts = noisy.sums(counted), [(noisy.deviation(counted), noisy.distribution(counted))]
    else:
        each = given.cells // every.cells
        values = noisy.sums(every) - noisy.sums(given).reshape(every.cells, each).sum(axis=1)
        parts = [(noisy.deviation(block), noisy.distribution(block)) for block in (every, *[given] * each)]
    deviation, z = math.hypot(*(part for part, _ in parts)), sum_quantile(parts, display.outside)
    label, possible = f"missing({one.columns[0]})", (0.0, math.inf)
    for value, cell in zip(values.tolist(), cell_labels(every.selectors, schema), strict=True):
        ends = within(around(value, deviation, z), *possible)
        yield Estimate.of(
            one, label, "rows", ends, cell=cell, value=value, error=deviation, possible=possible
        )


def variances(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield a column's variance in each group, corrected for the bias that noise in the mean brings."""
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
    distributions = [noisy.distribution(block) for block in blocks]
    values = [(noisy.sums(block) / size).tolist() for block, size in zip(blocks, sizes, strict=True)]
    least = display.least(errors[2])
    label, unit = f"variance({name})", f"{name}^2"
    for second, first, count, cell in zip(*values, cell_labels(blocks[0].selectors, schema), strict=True):
        if count <= least:
            ends = 0.0, half**2
            yield Estimate.of(one, label, unit, ends, cell=cell, over=count, note=WITHIN_NOISE)
            continue
        square, mean = (
            shown_ratio(
                (top, error), (count, errors[2]), least, display.outside / 2, (distribution, distributions[2])
            )
            for top, error, distribution in (
                (second, errors[0], distributions[0]),
                (first, errors[1], distributions[1]),
            )
        )
        low, high = minus(within(square, 0.0, 1.0), squared(within(mean, -1.0, 1.0)))
        value, error = corrected_variance(second, first, count, errors)
        parts = zip(variance_errors(second, first, count, errors), distributions, strict=True)
        value, error = half**2 * value, half**2 * error
        note = near_zero(value, error)
        of_sample = None if note else value * math.sqrt(2 / count)
        yield Estimate.of(
            one,
            label,
            unit,
            scaled(within((low, high), 0.0, 1.0), half**2),
            cell=cell,
            value=value,
            error=error,
            sampled=first_order(
                value,
                error,
                of_sample,
                display.outside,
                [(half**2 * part, distribution) for part, distribution in parts],
            ),
            over=count,
            possible=(0.0, half**2),
            note=note or (NORMAL_THEORY if value <= half**2 else PROJECTED),
        )


def corrected_variance(second: float, first: float, count: float, errors: list[float]) -> tuple[float, float]:
    """Return a variance from noisy moments, corrected for noise bias, and its first-order standard error."""
    square, mean = second / count, first / count
    noise = (errors[1] ** 2 + (mean * errors[2]) ** 2) / count**2
    return square - mean**2 + noise, math.hypot(*variance_errors(second, first, count, errors))


def variance_errors(second: float, first: float, count: float, errors: list[float]) -> list[float]:
    """Return the errors of a variance, to first order, that come from the noise of each moment alone."""
    square, mean = second / count, first / count
    return [errors[0] / count, 2 * mean * errors[1] / count, (square - 2 * mean**2) * errors[2] / count]
