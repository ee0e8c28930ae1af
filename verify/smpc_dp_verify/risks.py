"""Risks of two groups, their difference, ratio and odds ratio [docs/proofs/records.md, "Tests"]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from smpc_dp_verify.answers import Sums, labels
from smpc_dp_verify.asked import Asked, selectors
from smpc_dp_verify.comparisons import added, text_of
from smpc_dp_verify.distributions import NORMAL, Distribution, Part
from smpc_dp_verify.intervals import Ends, fieller, ratio_quantile, within
from smpc_dp_verify.numbers import Estimate, Fields, bounded
from smpc_dp_verify.population import is_clear, of_population, p_value, scale_of_p

# From here on the exponential of a logarithm is no float64.
MOST_LOG = 700.0
Made = tuple[list[Estimate], float]
Pair = tuple[Ends, Ends]


@dataclass(frozen=True)
class Risk:
    """The share of rows with an event in a group: noisy counts with it and without, and their noise."""

    events: float
    rest: float
    error: float
    distribution: Distribution

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

    @property
    def square(self) -> float:
        """The variance of the share over samples of rows."""
        return self.value * (1 - self.value) / self.rows

    def sampling(self, slope: float) -> float | None:
        """Return the sampling error of a function with this slope; None if it is within its noise."""
        moved = abs(1 - 2 * self.value) * self.noise / self.rows
        return slope * math.sqrt(self.square) if is_clear(self.square, moved) else None

    def population_ends(self, outside: float) -> Ends:
        """Return Wilson's ends, their distances added in squares to those of the noise."""
        z, n, value = NORMAL.quantile(outside), self.rows, self.value
        whole = 1 + z * z / n
        middle = (value + z * z / (2 * n)) / whole
        half = z * math.sqrt(self.square + (z / (2 * n)) ** 2) / whole
        return within(
            added(value, (value, self.ends(outside)), (0.0, (value - middle - half, value - middle + half))),
            0.0,
            1.0,
        )

    def ends(self, outside: float) -> Ends:
        """Return the ends of the share: those of the odds, or of the odds of the rest if that is smaller."""
        z = ratio_quantile(self.error, self.error, (self.distribution, self.distribution), outside)
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
    distribution = sums.distribution(block, one)
    groups = Risk(events, rest, error, distribution), Risk(other_events, other_rest, error, distribution)
    least, cells = max(sums.hide * error * math.sqrt(2), 0.0), labels(one, table)
    hidden = [group.rows <= least for group in groups]
    made = []
    for group, cell, is_hidden in zip(groups, cells, hidden, strict=True):
        numbers = {"over": group.rows} | bounded((0.0, 1.0) if is_hidden else group.ends(outside))
        if not is_hidden:
            numbers |= {"value": group.value, "standard_error": group.noise}
            numbers |= of_population(group.sampling(1.0), group.population_ends(outside))
        made.append(Estimate(f"risk of {name}", "", cell, numbers))
    first, second = map(text_of, cells)
    tested = None if any(hidden) else _equal_risks(groups)
    scales = (("p_value", scale_of_p(tested)),)
    for kind, sign, compare in (
        ("risk difference", "-", _difference),
        ("risk ratio", "/", _risk_ratio),
        ("odds ratio", "/", _odds_ratio),
    ):
        numbers = {} if any(hidden) else compare(groups, outside)
        numbers |= {"over": groups[0].rows + groups[1].rows}
        numbers |= {"p_value": tested} if "value" in numbers else {}
        made.append(Estimate(f"{kind} of {name}, {first} {sign} {second}", "", {}, numbers, scales))
    return made, error * math.sqrt(2)


def _equal_risks(groups: tuple[Risk, Risk]) -> float | None:
    """Return the p-value of equal risks: of the difference at the pooled risk, linear in all counts."""
    rows = groups[0].rows + groups[1].rows
    share = min(max((groups[0].events + groups[1].events) / rows, 0.0), 1.0)
    value, parts = 0.0, list[Part]()
    for sign, group in zip((1, -1), groups, strict=True):
        value += sign * ((1 - share) * group.events - share * group.rest) / group.rows
        parts.append((math.sqrt(share * (1 - share) / group.rows), NORMAL))
        parts += [(part * group.error / group.rows, group.distribution) for part in (share, 1 - share)]
    return p_value(value, parts)


def _compared(
    groups: tuple[Risk, Risk],
    outside: float,
    combine: Callable[[Pair], Ends],
    slopes: tuple[float, float],
    possible: Ends = (-math.inf, math.inf),
) -> Fields:
    """Return error and ends of a comparison of two risks; `slopes`: of it in both."""
    both = [*zip(slopes, groups, strict=True)]
    sampling = [group.sampling(slope) for slope, group in both]
    known = [one for one in sampling if one is not None]
    first, second = groups
    ends = combine((first.ends(outside), second.ends(outside)))
    whole = combine((first.population_ends(outside), second.population_ends(outside)))
    error = math.hypot(*(slope * group.noise for slope, group in both))
    numbers = {"standard_error": error} | bounded(within(ends, *possible))
    return numbers | of_population(math.hypot(*known) if len(known) > 1 else None, whole, possible)


def _difference(groups: tuple[Risk, Risk], outside: float) -> Fields:
    a, b = (group.value for group in groups)

    def combine(ends: Pair) -> Ends:
        return added(a - b, (a, ends[0]), (b, ends[1]))

    return {"value": a - b} | _compared(groups, outside, combine, (1.0, 1.0), (-1.0, 1.0))


def _risk_ratio(groups: tuple[Risk, Risk], outside: float) -> Fields:
    a, b = (group.value for group in groups)
    if min(a, b) <= 0:
        return {"low": 0.0}
    slopes = 1 / b, a / b / b
    return {"value": a / b} | _compared(groups, outside, lambda ends: _ratio((a, b), ends, float), slopes)


def _odds_ratio(groups: tuple[Risk, Risk], outside: float) -> Fields:
    a, b = (group.value for group in groups)
    if not (0 < a < 1 and 0 < b < 1):
        return {"low": 0.0}
    value = _odds(a) / _odds(b)
    slopes = value / (a * (1 - a)), value / (b * (1 - b))
    return {"value": value} | _compared(groups, outside, lambda ends: _ratio((a, b), ends, _odds), slopes)


def _ratio(values: tuple[float, float], ends: Pair, scale: Callable[[float], float]) -> Ends:
    """Return the ends of a ratio of two positive functions of risks, on logarithms."""
    first, second = (math.log(scale(value)) for value in values)
    logs = [(_log(scale(low)), _log(scale(high))) for low, high in ends]
    low, high = added(first - second, (first, logs[0]), (second, logs[1]))
    return math.exp(low), math.inf if high >= MOST_LOG else math.exp(high)


def _log(value: float) -> float:
    if math.isnan(value) or value == math.inf:
        return value
    return math.log(value) if value > 0 else -math.inf
