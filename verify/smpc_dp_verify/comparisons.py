"""Missing values, and differences of means [docs/proofs/records.md, "Tests"]."""

from __future__ import annotations

import math

from smpc_dp_verify.answers import Sums, labels, variance_of
from smpc_dp_verify.asked import Asked, selectors
from smpc_dp_verify.distributions import distribution_of
from smpc_dp_verify.intervals import Ends, around, ratio_ends, scaled, within
from smpc_dp_verify.numbers import NEAR, Estimate, bounded
from smpc_dp_verify.population import of_population, scale_of_p
from smpc_dp_verify.welch import NoisyMean, WelchTest

Made = tuple[list[Estimate], float]


def missing(sums: Sums, one: Asked, outside: float) -> Made:
    """Return the estimates of the numbers of missing values."""
    (name,), table, by = one.columns, sums.table, selectors(one, sums.table)
    every = table.block(by=by)
    if table.columns[name].values:
        given = table.block(by=(*by, table.selector(name)))
    else:
        given = table.block(over=(name,), by=by)
    each = given.cells // every.cells
    lacking = given._replace(lacking=True)
    if sums.has(lacking, one):
        values, error = sums.of(lacking, one)
        distribution = distribution_of([(error, sums.distribution(lacking, one))])
    else:
        (rows, first), (there, second) = sums.of(every, one), sums.of(given, one)
        values = [row - sum(there[at * each : (at + 1) * each]) for at, row in enumerate(rows)]
        parts = [(first, sums.distribution(every, one)), *[(second, sums.distribution(given, one))] * each]
        error, distribution = math.hypot(*(part for part, _ in parts)), distribution_of(parts)
    made, z = [], distribution.quantile(outside)
    for value, cell in zip(values, labels(one, table), strict=True):
        ends = bounded(within(around(value, error, z), 0.0, math.inf))
        numbers = {"value": max(value, 0.0), "standard_error": error} | ends
        made.append(Estimate(f"missing({name})", "rows", cell, numbers))
    return made, 0.0


def text_of(cell: dict[str, str]) -> str:
    """Return the labels of a cell as one text."""
    return ", ".join(f"{name} = {value}" for name, value in cell.items())


def added(value: float, first: tuple[float, Ends], second: tuple[float, Ends]) -> Ends:
    """Return the ends of a difference of two numbers with ends: distances are added in squares."""
    (a, (a_low, a_high)), (b, (b_low, b_high)) = first, second
    below = math.hypot(_positive(a - a_low), _positive(b_high - b))
    above = math.hypot(_positive(a_high - a), _positive(b - b_low))
    return value - below, value + above


def _positive(distance: float) -> float:
    return distance if math.isnan(distance) else max(distance, 0.0)


def differences(sums: Sums, one: Asked, outside: float) -> Made:
    """Return the estimate of the difference of two groups' means."""
    (name,), table, by = one.columns, sums.table, selectors(one, sums.table)
    column, blocks = table.columns[name], (table.block(name, by=by), table.block(over=(name,), by=by))
    (tops, e), (counts, e_1) = (sums.of(block, one) for block in blocks)
    distributions = sums.distribution(blocks[0], one), sums.distribution(blocks[1], one)
    label, half = " - ".join(map(text_of, labels(one, table))), column.width / 2
    made = Estimate(f"difference of mean({name}), {label}", name, {}, {"over": sum(counts)})
    least, (squares, e_2) = sums.hide * e_1, sums.of(table.block(name, name, by=by), one)
    if min(counts) <= max(least, 1.0):
        return [made], e_1
    means = [top / count for top, count in zip(tops, counts, strict=True)]
    groups = []
    for count, top, square in zip(counts, tops, squares, strict=True):
        variance, parts = variance_of(square, top, count, (e_2, e, e_1))
        groups.append(NoisyMean(count, top, variance, math.hypot(*parts), (e, e_1, e_2), distributions))
    test = WelchTest(groups[0], groups[1])
    ends = [
        ratio_ends((top, e), (count, e_1), least, outside, distributions)
        for top, count in zip(tops, counts, strict=True)
    ]
    value = means[0] - means[1]
    both = scaled(added(value, (means[0], ends[0]), (means[1], ends[1])), half)
    possible, tested = (-column.width, column.width), test.p_value()
    error = half * test.noise
    numbers = made.numbers | {"value": min(max(half * value, possible[0]), possible[1])}
    numbers |= {"standard_error": error, "p_value": tested} | bounded(within(both, *possible))
    sampling = half * test.sampling if all(group.is_clear for group in groups) else None
    numbers |= of_population(sampling, scaled(test.ends(outside, 2.0), half), possible)
    # ends are found to a part of the range that is searched
    closeness = max(error, half * test.closeness(2.0) / NEAR)
    scales = (("population_low", closeness), ("population_high", closeness), ("p_value", scale_of_p(tested)))
    return [made._replace(numbers=numbers, scales=scales)], e_1
