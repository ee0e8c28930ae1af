"""Estimates every answer from the noisy sums, with an interval for what the noise may have done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.ask import Statistic
from smpc_dp.records.features import product, selector
from smpc_dp.records.heterogeneity import heterogeneity
from smpc_dp.records.intervals import around, fieller, minus, normal_quantile, scaled, squared, within
from smpc_dp.records.moments import correlations, covariances
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.plan import Plan
from smpc_dp.records.quantiles import quantiles
from smpc_dp.records.regression import regressions
from smpc_dp.records.result import HIDDEN, PROJECTED, WITHIN_NOISE, Answers, Estimate, finite
from smpc_dp.records.survival import log_rank, survival
from smpc_dp.records.terms import counted_cells

# Counts below this many noise deviations are not shown, nor means over such groups: that protects nothing.
DEFAULT_HIDE = 3.0


def estimate(
    plan: Plan,
    total: NDArray[np.int64],
    present: int,
    *,
    rows: int | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
    hide: float = DEFAULT_HIDE,
) -> Answers:
    """Return the answers of a request.

    Args:
        plan: the planned request.
        total: the noisy sum of the parties' vectors, int64.
        present: the parties whose vectors and shares of noise are in it.
        rows: the number of rows of these parties, where it is public.
        level: of each interval, or, `simultaneous`, of all of them together.
        hide: counts below so many standard deviations of their noise are not shown.
    """
    if not 0 < level < 1 or not hide >= 0:
        raise ConfigError.at(
            "level", f"must be in (0, 1), and hide 0 or more: {level}, {hide}", ConfigCheck.RANGE
        )
    noisy = NoisySums.of(plan, total, present, rows)
    outside = 1 - level
    if simultaneous:
        outside /= sum(1 for one in plan.statistics for _ in _estimates(one, noisy, Display(0.5, 0.0)))
    display = Display(outside, hide)
    estimates = [one for statistic in plan.statistics for one in _estimates(statistic, noisy, display)]
    schema = plan.schema
    return Answers(
        estimates=tuple(estimates),
        level=level,
        simultaneous=simultaneous,
        unit=schema.unit,
        relation=schema.relation,
        present=1 if plan.central else present,
        counted=plan.mechanism.honest,
        rows=rows,
        guarantee=plan.guarantee(),
        not_protected=not_protected(plan),
    )


def not_protected(plan: Plan) -> tuple[str, ...]:
    """Return what a reader of the answers should be told."""
    schema = plan.schema
    noise = (
        "the servers draw the noise together"
        if plan.central
        else "or no noise; noise is counted on from all but as many parties as are planned to be corrupt, "
        "and with none planned from every party but the one that looks"
    )
    lines = [
        f"a party may add any vector within its bounds{';' if plan.central else ','} {noise}",
        "how long a party takes to read and sum its rows: others see it where it does so while they wait",
        "the columns, bounds, categories and what is asked for are public",
        "that counts within the noise are not shown is presentation, and protects nothing",
        "intervals are about the noise; they say nothing about how the rows were sampled",
    ]
    if schema.unit == "record":
        lines.append("one record is protected, not all records of one person")
    else:
        lines.append(f"that a person is in at most {schema.party_factor} parties is declared, not checked")
    if schema.rows == "public":
        lines.append("the number of rows of each party is public")
    return tuple(lines)


def _estimates(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    return ESTIMATORS[one.kind](one, noisy, display)


def counts(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the counts of cells, those within the noise hidden."""
    schema = noisy.plan.schema
    block = product(schema, by=counted_cells(one, schema))
    deviation, z = noisy.deviation(block), normal_quantile(display.outside)
    total = float(noisy.sums(block).sum())
    for value, cell in zip(
        noisy.sums(block).tolist(), cell_labels(block.selectors, noisy.plan.schema), strict=True
    ):
        low, high = around(value, deviation, z)
        hidden = bool(cell) and value < display.hide * deviation
        spread = value * (1 - value / total) if cell and 0 < value < total else math.nan
        yield Estimate(
            statistic=one.text,
            name="count",
            cell=cell,
            value=None if hidden else value,
            low=None if hidden else low,
            high=high,
            standard_error=deviation,
            sampling_error=finite(math.sqrt(spread)),
            unit="rows",
            note=HIDDEN if hidden else "",
        )


def sums(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield sums: the middle of the range times the count, and the sum of what is above it."""
    schema, (name,) = noisy.plan.schema, one.columns
    column = schema.number(name, one.text)
    by = [selector(schema, each) for each in one.by]
    first = product(schema, name, by=by)
    count = product(schema, over=one.columns, by=by)
    z = normal_quantile(display.outside)
    deviation = column.unit * noisy.deviation(first)
    values = column.unit * noisy.sums(first)
    if column.middle != 0:
        values = values + column.middle * noisy.sums(count)
        deviation = math.hypot(deviation, column.middle * noisy.deviation(count))
    for value, cell in zip(values.tolist(), cell_labels(first.selectors, noisy.plan.schema), strict=True):
        low, high = around(value, deviation, z)
        yield Estimate(
            statistic=one.text,
            name=f"sum({name})",
            cell=cell,
            value=value,
            low=low,
            high=high,
            standard_error=deviation,
            sampling_error=None,
            unit=name,
        )


def means(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield means, with Fieller's intervals; a group whose count is within the noise has none."""
    schema, (name,) = noisy.plan.schema, one.columns
    column = schema.number(name, one.text)
    by = [selector(schema, each) for each in one.by]
    first, count = product(schema, name, by=by), product(schema, over=one.columns, by=by)
    z = normal_quantile(display.outside)
    cells = cell_labels(first.selectors, noisy.plan.schema)
    sampled = sampling_deviation(one, noisy)
    for top, below, cell in zip(noisy.sums(first).tolist(), noisy.sums(count).tolist(), cells, strict=True):
        errors = noisy.deviation(first), noisy.deviation(count)
        interval = fieller(top, errors[0], below, errors[1], z)
        low, high = scaled(interval, column.unit, column.middle)
        if below <= max(display.hide * errors[1], 0.0):
            yield _nothing(one, f"mean({name})", cell, low, high, name)
            continue
        ratio = top / below
        value = column.middle + column.unit * ratio
        inside = min(max(value, column.lower), column.upper)
        yield Estimate(
            statistic=one.text,
            name=f"mean({name})",
            cell=cell,
            value=inside,
            low=finite(low),
            high=finite(high),
            standard_error=column.unit * math.hypot(errors[0], ratio * errors[1]) / below,
            sampling_error=None if sampled is None or cell else sampled / math.sqrt(below),
            unit=name,
            note="" if inside == value else PROJECTED,
        )


def sampling_deviation(one: Statistic, noisy: NoisySums) -> float | None:
    """Return the estimated standard deviation of a column whose squares are in the request too, else None."""
    schema, (name,) = noisy.plan.schema, one.columns
    square = product(schema, name, name)
    if square not in noisy.plan.offsets:
        return None
    column = schema.number(name, one.text)
    blocks = square, product(schema, name), product(schema, over=(name,))
    second, first, count = (float(noisy.sums(block)[0]) for block in blocks)
    spread = second / count - (first / count) ** 2 if count > 0 else math.nan
    return column.unit * math.sqrt(spread) if spread > 0 else None


def _nothing(one: Statistic, name: str, cell: dict[str, str], low: float, high: float, unit: str) -> Estimate:
    return Estimate(
        statistic=one.text,
        name=name,
        cell=cell,
        value=None,
        low=finite(low),
        high=finite(high),
        standard_error=None,
        sampling_error=None,
        unit=unit,
        note=WITHIN_NOISE,
    )


def variances(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield variances: the mean square less the squared mean, corrected for the noise of the latter."""
    schema, (name,) = noisy.plan.schema, one.columns
    column = schema.number(name, one.text)
    by = [selector(schema, each) for each in one.by]
    blocks = (
        product(schema, name, name, by=by),
        product(schema, name, by=by),
        product(schema, over=(name,), by=by),
    )
    errors = [noisy.deviation(block) for block in blocks]
    z = normal_quantile(display.outside / 2)
    cells = cell_labels(blocks[0].selectors, noisy.plan.schema)
    for *sums_of_cell, cell in zip(*(noisy.sums(block).tolist() for block in blocks), cells, strict=True):
        second, first, count = sums_of_cell
        most = float(column.steps)
        square = within(fieller(second, errors[0], count, errors[2], z), 0.0, most**2)
        mean = within(fieller(first, errors[1], count, errors[2], z), -most, most)
        low, high = scaled(within(minus(square, squared(mean)), 0.0, most**2), column.unit**2)
        if count <= max(display.hide * errors[2], 0.0):
            yield _nothing(one, f"variance({name})", cell, low, high, f"{name}^2")
            continue
        value, error = corrected_variance(second, first, count, errors)
        inside = min(max(value, 0.0), most**2)
        yield Estimate(
            statistic=one.text,
            name=f"variance({name})",
            cell=cell,
            value=column.unit**2 * inside,
            low=low,
            high=high,
            standard_error=column.unit**2 * error,
            sampling_error=None,
            unit=f"{name}^2",
            note="" if inside == value else PROJECTED,
        )


def corrected_variance(second: float, first: float, count: float, errors: list[float]) -> tuple[float, float]:
    """Return E[z^2] - E[z]^2 plus the noise variance of E[z], and the first-order standard error."""
    square, mean = second / count, first / count
    noise = (errors[1] ** 2 + (mean * errors[2]) ** 2) / count**2
    parts = errors[0], 2 * mean * errors[1], (square - 2 * mean**2) * errors[2]
    return square - mean**2 + noise, math.hypot(*parts) / count


ESTIMATORS: dict[str, Callable[[Statistic, NoisySums, Display], Iterator[Estimate]]] = {
    "count": counts,
    "table": counts,
    "histogram": counts,
    "sum": sums,
    "mean": means,
    "variance": variances,
    "covariance": covariances,
    "correlation": correlations,
    "quantile": quantiles,
    "regression": regressions,
    "survival": survival,
    "logrank": log_rank,
    "heterogeneity": heterogeneity,
}
