"""Missing values, differences of means, and risks [docs/proofs/records.md, "Intervals"]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from smpc_dp_verify.answers import Sums, labels
from smpc_dp_verify.asked import Asked, selectors
from smpc_dp_verify.intervals import (
    Ends,
    around,
    fieller,
    ratio_ends,
    ratio_quantile,
    scaled,
    within,
)
from smpc_dp_verify.laws import Law, law_of
from smpc_dp_verify.numbers import Estimate, Fields, bounded

# From here on the exponential of a logarithm is no float64.
MOST_LOG = 700.0
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
        law = law_of([(error, sums.law(lacking, one))])
    else:
        (rows, first), (found, second) = sums.of(every, one), sums.of(given, one)
        values = [row - sum(found[at * each : (at + 1) * each]) for at, row in enumerate(rows)]
        parts = [(first, sums.law(every, one)), *[(second, sums.law(given, one))] * each]
        error, law = math.hypot(*(part for part, _ in parts)), law_of(parts)
    made, z = [], law.quantile(outside)
    for value, cell in zip(values, labels(one, table), strict=True):
        ends = bounded(within(around(value, error, z), 0.0, math.inf))
        numbers = {"value": max(value, 0.0), "standard_error": error} | ends
        made.append(Estimate(f"missing({name})", "rows", cell, numbers))
    return made, 0.0


def _text(cell: dict[str, str]) -> str:
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
    laws = sums.law(blocks[0], one), sums.law(blocks[1], one)
    label, half = " - ".join(map(_text, labels(one, table))), column.width / 2
    made = Estimate(f"difference of mean({name}), {label}", name, {}, {"over": sum(counts)})
    least = sums.hide * e_1
    if min(counts) <= max(least, 1.0):
        return [made], e_1
    means = [top / count for top, count in zip(tops, counts, strict=True)]
    ends = [
        ratio_ends((top, e), (count, e_1), least, outside, laws)
        for top, count in zip(tops, counts, strict=True)
    ]
    value = means[0] - means[1]
    both = scaled(added(value, (means[0], ends[0]), (means[1], ends[1])), half)
    errors = (math.hypot(e, t * e_1) / count for t, count in zip(means, counts, strict=True))
    made.numbers["value"] = min(max(half * value, -column.width), column.width)
    made.numbers["standard_error"] = half * math.hypot(*errors)
    made.numbers.update(bounded(within(both, -column.width, column.width)))
    return [made], e_1


@dataclass(frozen=True)
class Risk:
    """The share of rows with an event in a group: noisy counts with it and without, and their noise."""

    events: float
    rest: float
    error: float
    law: Law

    @property
    def rows(self) -> float:
        """The noisy number of rows."""
        return self.events + self.rest

    @property
    def value(self) -> float:
        """The share, within 0 and 1."""
        return min(max(self.events / self.rows, 0.0), 1.0)

    @property
    def noise(self) -> float:
        """The standard error by the noise."""
        return self.error * math.hypot(self.value, 1 - self.value) / self.rows

    def ends(self, outside: float) -> Ends:
        """Return the ends of the share: those of the odds, or of the odds of the rest if that is smaller."""
        z = ratio_quantile(self.error, self.error, (self.law, self.law), outside)
        events, rest = (self.events, self.error), (self.rest, self.error)
        if self.events <= self.rest:
            low, high = map(_share, fieller(events, rest, z))
            return low, high
        high, low = map(_share, fieller(rest, events, z))
        return 1 - low, 1 - high


def _share(odds: float) -> float:
    if math.isinf(odds):
        return 1.0 if odds > 0 else 0.0
    return odds / (1 + odds) if math.isnan(odds) or odds > 0 else 0.0


def _odds(share: float) -> float:
    return math.inf if share >= 1 else share / (1 - share)


def risks(sums: Sums, one: Asked, outside: float) -> Made:
    """Return the estimates of two groups' risks, and of their difference, ratio and odds ratio."""
    (name,), table, by = one.columns, sums.table, selectors(one, sums.table)
    block = table.block(by=(*by, table.equal(name, 2)))
    (rest, events, other_rest, other_events), error = sums.of(block, one)
    law = sums.law(block, one)
    groups = Risk(events, rest, error, law), Risk(other_events, other_rest, error, law)
    least, cells = max(sums.hide * error * math.sqrt(2), 0.0), labels(one, table)
    hidden = [group.rows <= least for group in groups]
    row_error, whole = error * math.sqrt(2), sum(group.rows for group in groups)
    made = []
    for group, cell, is_hidden in zip(groups, cells, hidden, strict=True):
        ends = (0.0, 1.0) if is_hidden else group.ends(outside)
        numbers = {"over": group.rows} | bounded(ends)
        if not is_hidden:
            numbers |= {"value": group.value, "standard_error": group.noise}
        made.append(Estimate(f"risk of {name}", "", cell, numbers))
    first, second = map(_text, cells)
    for kind, sign, compare in (
        ("risk difference", "-", _difference),
        ("risk ratio", "/", _risk_ratio),
        ("odds ratio", "/", _odds_ratio),
    ):
        numbers = {} if any(hidden) else compare(groups, outside)
        numbers["over"] = whole
        made.append(Estimate(f"{kind} of {name}, {first} {sign} {second}", "", {}, numbers))
    return made, row_error


def _difference(groups: tuple[Risk, Risk], outside: float) -> Fields:
    first, second = groups
    value = first.value - second.value
    ends = added(value, (first.value, first.ends(outside)), (second.value, second.ends(outside)))
    error = math.hypot(first.noise, second.noise)
    return {"value": value, "standard_error": error} | bounded(within(ends, -1.0, 1.0))


def _risk_ratio(groups: tuple[Risk, Risk], outside: float) -> Fields:
    if min(group.value for group in groups) <= 0:
        return {"low": 0.0}
    return _ratio(groups, outside, float, [1 / group.value for group in groups])


def _odds_ratio(groups: tuple[Risk, Risk], outside: float) -> Fields:
    if not all(0 < group.value < 1 for group in groups):
        return {"low": 0.0}
    return _ratio(groups, outside, _odds, [1 / (group.value * (1 - group.value)) for group in groups])


def _ratio(
    groups: tuple[Risk, Risk], outside: float, scale: Callable[[float], float], slopes: list[float]
) -> Fields:
    """Return value, error and ends of a ratio of two positive functions of risks, on logarithms.

    `slopes`: of the logarithms in the risks.
    """
    logs = [math.log(scale(group.value)) for group in groups]
    ends = [tuple(_log(scale(end)) for end in group.ends(outside)) for group in groups]
    low, high = added(logs[0] - logs[1], (logs[0], ends[0]), (logs[1], ends[1]))  # type: ignore[arg-type]
    value = scale(groups[0].value) / scale(groups[1].value)
    errors = (slope * group.noise for slope, group in zip(slopes, groups, strict=True))
    numbers = bounded((math.exp(low), math.exp(high) if not high >= MOST_LOG else math.inf))
    return {"value": value, "standard_error": value * math.hypot(*errors)} | numbers


def _log(value: float) -> float:
    if math.isnan(value) or value == math.inf:
        return value
    return math.log(value) if value > 0 else -math.inf
