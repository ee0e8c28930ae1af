"""Survival curves and the log-rank statistic from noisy counts of events and censorings on a time grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.intervals import (
    INFINITE,
    NORMAL,
    ErrorDistribution,
    Interval,
    around,
    share_interval,
    times,
    widest_quantile,
)
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.population import Sampling, first_order, on_scale, two_sided
from smpc_dp.records.result import PROJECTED, WITHIN_NOISE, Estimate, near_zero
from smpc_dp.records.survival_times import Curve
from smpc_dp.records.terms import survival_block

Floats = NDArray[np.float64]

# Bins that more of the rows at risk leave are named wide.
WIDE = 0.5
# By how many deviations of its noise a count is moved for a slope.
_MOVE = 1e-3
WIDE_BINS = "more than half of the rows at risk leave within a bin: right for hazards that are constant in it"


@dataclass(frozen=True)
class Hazards:
    """Noisy counts of one group's rows with and without an event, by time bin, for survival estimates.

    `staying`: the count of those that stay at the upper bound of time; `noise`: the deviation of each count,
    `distribution`: of this noise over its deviation.
    """

    events: Floats
    leaving: Floats
    staying: float
    noise: float
    distribution: ErrorDistribution = NORMAL

    @property
    def at_risk(self) -> Floats:
        """The noisy number of rows at risk in each bin, whose time is in the bin or later."""
        return np.asarray(np.cumsum((self.events + self.leaving)[::-1])[::-1] + self.staying)

    @property
    def risk_noise(self) -> Floats:
        """The noise deviation of the number of rows at risk in each bin."""
        return np.asarray(self.noise * np.sqrt(2.0 * np.arange(len(self.events), 0, -1) + 1))

    @property
    def later(self) -> Floats:
        """The noisy number of rows whose time is after each bin."""
        return np.append(self.at_risk[1:], self.staying)

    def interval(self, index: int, z: float) -> Interval:
        """Return the interval of one bin's hazard, events over rows at risk, for noise of z deviations."""
        risk, events = float(self.at_risk[index]), float(self.events[index])
        spread, noise = float(self.risk_noise[index]), self.noise
        rest = math.sqrt(max(spread**2 - noise**2, 0.0))
        return share_interval((events, noise), (risk - events, rest), z)

    def rates(self) -> Floats:
        """Return each bin's noisy hazard, events over rows at risk, clipped to [-1, 1]."""
        risk = np.maximum(self.at_risk, 1e-9)
        return np.clip(self.events / risk, -1.0, 1.0)


def surviving(events: float, leaving: float, later: float) -> float:
    """Return the probability to survive a time bin, given its numbers of events, leavers and stayers.

    (1 - (d + c) / R)^(d / (d + c)), with R = d + c + later: the maximum of the likelihood where both hazards
    are constant within the bin. Where nobody stays, the actuarial 1 - d / (R - c / 2). It falls with the
    events, and grows with the others.
    """
    events, leaving, later = max(events, 0.0), max(leaving, 0.0), max(later, 0.0)
    gone = events + leaving
    if events == 0:
        return 1.0
    if later <= 0:
        return leaving / (gone + events)
    return math.exp(-events / gone * math.log1p(gone / later))


def _slopes(events: float, leaving: float, later: float) -> tuple[float, float, float]:
    """Return the derivatives of log `surviving` with respect to its three counts, for later > 0."""
    events, leaving = max(events, 0.0), max(leaving, 0.0)
    gone, risk = events + leaving, events + leaving + later
    # f = log(1 + gone / later) / gone and its derivative by `gone`
    if gone < 1e-4 * later:
        mean, change = 1 / later - gone / (2 * later**2), -1 / (2 * later**2)
    else:
        mean = math.log1p(gone / later) / gone
        change = (1 / risk - mean) / gone
    return -mean - events * change, -events * change, events / (later * risk)


def survival(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield each group's survival probability at each bin's end, median time and restricted mean time.

    Within a bin the hazards of events and of leaving are taken as constant; with nobody leaving it is the
    estimate of Kaplan and Meier (1958). Its interval comes from those of all counts, which hold at once.
    """
    block = survival_block(one, noisy.schema)
    for hazards, cell, labels in _groups(one, noisy):
        errors, curve = _Errors(hazards), [*_points(hazards, display)]
        wide = False
        for index, (label, point) in enumerate(zip(labels, curve, strict=True)):
            risk = float(hazards.at_risk[index])
            wide |= point.value is not None and bool(hazards.later[index] < (1 - WIDE) * risk)
            note = WIDE_BINS if wide else _projected(hazards, index)
            yield Estimate.of(
                one,
                "survival",
                "",
                point.ends,
                cell={**cell, one.columns[0]: label},
                value=point.value,
                error=errors.noise(index, point.value),
                sampled=_population(errors, index, point.value, display.outside),
                over=float(hazards.at_risk[0]),
                note=WITHIN_NOISE if point.value is None else note,
            )
        values = [point.value for point in curve]
        both = [_population(errors, index, value, display.outside) for index, value in enumerate(values)]
        times = Curve(
            block.selectors[-2].edges,
            values,
            [point.ends for point in curve],
            [None if each is None else each.ends for each in both],
            errors.weighted,
        )
        yield from times.estimates(one, cell, float(hazards.at_risk[0]), display.outside)


class _Point(NamedTuple):
    """Point of a survival curve: the value at a bin's end, None if noise hides it, and its noise interval."""

    value: float | None
    ends: Interval


def _points(hazards: Hazards, display: Display) -> Iterator[_Point]:
    """Yield the points of one group's survival curve, with simultaneous intervals for the noise."""
    bins = len(hazards.events)
    z, low, high = widest_quantile(hazards.distribution, display.outside / (3 * bins)), 1.0, 1.0
    for index in range(bins):
        ends = _step_interval(hazards, index, z)
        low, high = low * ends[0], high * ends[1]
        risk, noise = float(hazards.at_risk[index]), float(hazards.risk_noise[index])
        hidden = risk <= display.least(noise) or risk <= 0
        yield _Point(None if hidden else _curve(hazards, index), (low, high))


def _population(errors: _Errors, index: int, value: float | None, outside: float) -> Sampling | None:
    """Return the sampling error of a survival probability, with the population's interval if it has one."""
    noise, error = errors.noise(index, value), errors.sampling(index, value)
    if value is None or not 0 < value < 1:
        return Sampling(error)
    scale = _falling, _risen, 1 / (-value * math.log(value))
    return on_scale(value, noise, error, outside, scale) or Sampling(error)


def _falling(survival: float) -> float:
    """Return -log(-log S) for a survival probability S inside (0, 1), a scale on which errors are normal."""
    return -math.log(-math.log(survival))


def _risen(number: float) -> float:
    """Return the survival probability with this value of -log(-log S), the inverse of `_falling`."""
    return math.exp(-math.exp(min(-number, 700.0)))


def _curve(hazards: Hazards, index: int) -> float:
    """Return the probability to survive all bins from the first to this one."""
    counts = zip(hazards.events, hazards.leaving, hazards.later, strict=True)
    return math.prod(surviving(*map(float, each)) for each in itertools.islice(counts, index + 1))


def _projected(hazards: Hazards, index: int) -> str:
    """Return a note if a negative noisy count up to this bin was taken as 0, else an empty text."""
    counts = (hazards.events[: index + 1], hazards.leaving[: index + 1], hazards.later[: index + 1])
    return PROJECTED if any((count < 0).any() for count in counts) else ""


def _step_interval(hazards: Hazards, index: int, z: float) -> Interval:
    """Return bounds on the probability to survive one bin, for counts within z deviations."""
    events = around(float(hazards.events[index]), hazards.noise, z)
    leaving = around(float(hazards.leaving[index]), hazards.noise, z)
    noise = math.sqrt(max(float(hazards.risk_noise[index]) ** 2 - 2 * hazards.noise**2, 0.0))
    later = around(float(hazards.later[index]), noise, z)
    low = 0.0 if later[0] <= 0 < events[1] and noise > 0 else surviving(events[1], leaving[0], later[0])
    high = surviving(events[0], leaving[1], later[1])
    # where nobody may stay the actuarial value counts, too
    return low, max(high, surviving(events[0], leaving[1], 0.0)) if later[0] <= 0 else high


class _Errors:
    """Standard errors of one group's survival curve, from the noise and from rows being a sample.

    Of log `surviving` of each bin: its slopes in events, those that leave and those that stay, its variance
    over samples of rows, and the slopes of that variance; NaN where nobody stays.
    """

    def __init__(self, hazards: Hazards) -> None:
        self._noise, bins = hazards.noise, len(hazards.events)
        self._slopes, self._variances = np.full((bins, 3), np.nan), np.full(bins, np.nan)
        self._changes = np.full((bins, 3), np.nan)
        for index, counts in enumerate(np.stack([hazards.events, hazards.leaving, hazards.later], axis=1)):
            if counts[2] > 0:
                self._slopes[index] = _slopes(*counts.tolist())
                self._variances[index] = _sampled_variance(counts)
                moves = min(_MOVE * max(self._noise, 1.0), counts[2] / 2) * np.eye(3)
                self._changes[index] = [
                    (_sampled_variance(counts + move) - _sampled_variance(counts - move)) / (2 * move.sum())
                    for move in moves
                ]

    def noise(self, index: int, value: float | None) -> float | None:
        """Return the noise's standard error of the survival at a bin's end; None if nobody stays."""
        moved = self._moved(self._slopes, index)
        return None if value is None or math.isnan(moved) else value * moved

    def sampling(self, index: int, value: float | None) -> float | None:
        """Return the survival's sampling error (Greenwood's if nobody leaves); None if it is not known.

        None if nobody stays, or if its square is within its noise.
        """
        total = float(self._variances[: index + 1].sum())
        clear = not math.isnan(total) and not near_zero(total, self._moved(self._changes, index))
        return value * math.sqrt(total) if clear and value is not None else None

    def weighted(self, weights: Floats) -> tuple[float | None, float | None]:
        """Return (noise error, sampling error) of a weighted sum of log survivals, None where not known.

        Each is None as that of the curve is.
        """
        last, squares = len(weights) - 1, weights**2
        total, moved = float(squares @ self._variances), self._moved(weights[:, None] * self._slopes, last)
        clear = not math.isnan(total) and not near_zero(
            total, self._moved(squares[:, None] * self._changes, last)
        )
        return None if math.isnan(moved) else moved, math.sqrt(total) if clear else None

    def _moved(self, slopes: Floats, index: int) -> float:
        """Return the noise deviation of a sum over bins up to one, given slopes in each bin's counts."""
        until = np.arange(len(slopes))[:, None] <= index
        by_events, by_leaving, by_later = np.where(until, slopes, 0.0).T
        # a count of one bin is among those that stay in all bins before
        *before, last = np.append(0.0, np.cumsum(by_later))
        square = float(((by_events + before) ** 2 + (by_leaving + before) ** 2).sum()) + last**2
        return self._noise * math.sqrt(square)


def _sampled_variance(counts: Floats) -> float:
    """Return the sampling variance of log `surviving` of one bin, given its three counts.

    Given the rows at risk the three counts of a bin are multinomial, and the estimate is homogeneous in them.
    Negative counts are not cut at 0: over many bins that would add up.
    """
    return float(np.square(_slopes(*counts.tolist())) @ counts)


def _groups(one: Statistic, noisy: NoisySums) -> Iterator[tuple[Hazards, dict[str, str], list[str]]]:
    """Yield each group's noisy counts by time bin, with the group's label and the bins' labels."""
    schema = noisy.schema
    block = survival_block(one, schema)
    *groups, time, _ = block.selectors
    cells = cell_labels(tuple(groups), noisy.schema)
    labels = [cell[time.column] for cell in cell_labels((time,), noisy.schema)][:-1]
    counts = noisy.sums(block).reshape(len(cells), time.cells, 2)
    for cell, values in zip(cells, counts, strict=True):
        events, others = values[:-1, 1], values[:-1, 0]
        staying, distribution = float(values[-1, 0]), noisy.distribution(block)
        yield Hazards(events, others, staying, noisy.deviation(block), distribution), cell, labels


def log_rank(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the log-rank test of two groups: observed less expected events, and z with its p-value.

    Both are sums over strata: the cells of the columns after the first one of `by`. The variance in z is that
    of the rows as a sample [Mantel 1966], where noise makes it negative 0, plus that of the noise, to first
    order.
    """
    groups = [*_groups(one, noisy)]
    half = len(groups) // 2
    pairs = zip(groups[:half], groups[half:], strict=True)
    strata = [_Stratum.of(first, second) for (first, *_), (second, *_) in pairs]
    bins, (cell, column) = len(groups[0][2]), (groups[0][1], one.by[0])
    z = widest_quantile(groups[0][0].distribution, display.outside / (half * (2 * bins + 1)))
    ends = [stratum.interval(z) for stratum in strata]
    low, high = sum(low for low, _ in ends), sum(high for _, high in ends)
    difference = sum(stratum.difference for stratum in strata)
    noise = math.hypot(*(stratum.noise for stratum in strata))
    sampled = sum(stratum.mantel[0] for stratum in strata)
    spread = math.hypot(*(stratum.mantel[1] for stratum in strata))
    over = sum(float(stratum.both.at_risk[0]) for stratum in strata)
    hidden = over <= display.least(math.hypot(*(float(stratum.both.risk_noise[0]) for stratum in strata)))
    cell = {column: cell[column]}
    clear = not hidden and not near_zero(sampled, spread)
    yield Estimate.of(
        one,
        "observed - expected events",
        "events",
        (low, high),
        cell=cell,
        value=None if hidden else difference,
        error=None if hidden else noise,
        sampled=first_order(difference, noise, math.sqrt(sampled), display.outside) if clear else None,
        over=over,
        note=WITHIN_NOISE if hidden else "the interval of the noise is wider than its level needs",
    )
    tested = difference / math.sqrt(max(sampled, 0.0) + noise**2)
    yield Estimate.of(
        one,
        "log-rank z, noise included",
        "",
        INFINITE,
        cell=cell,
        value=None if hidden else tested,
        sampled=None if hidden else Sampling(p_value=two_sided(tested)),
        over=over,
        note=WITHIN_NOISE if hidden else "approximate: normal with variance 1 without a difference",
    )


@dataclass(frozen=True)
class _Stratum:
    """Counts that a log-rank test needs in one stratum: of the first group, and of both together."""

    first: Hazards
    both: Hazards

    @classmethod
    def of(cls, first: Hazards, second: Hazards) -> _Stratum:
        """Return the stratum of a log-rank test that two groups' counts make."""
        counts = (
            first.events + second.events,
            first.leaving + second.leaving,
            first.staying + second.staying,
        )
        return cls(first, Hazards(*counts, first.noise * math.sqrt(2), first.distribution))

    @property
    def difference(self) -> float:
        """The observed less the expected number of events in the first group."""
        return float((self.first.events - self.first.at_risk * self.both.rates()).sum())

    def interval(self, z: float) -> Interval:
        """Return bounds on observed less expected events, for counts within z noise deviations."""
        first, bins = self.first, len(self.first.events)
        low, high = around(float(first.events.sum()), first.noise * math.sqrt(bins), z)
        for index in range(bins):
            risk = around(float(first.at_risk[index]), float(first.risk_noise[index]), z)
            expected = times((max(risk[0], 0.0), max(risk[1], 0.0)), self.both.interval(index, z))
            low, high = low - expected[1], high - expected[0]
        return low, high

    @property
    def mantel(self) -> tuple[float, float]:
        """The hypergeometric variance of the first group's events, and the noise's deviation in it."""
        first, both = self.first, self.both
        counts = np.stack([first.at_risk, both.at_risk, both.events])
        move = _MOVE * max(first.noise, 1.0)
        by_first, by_both, by_events = (
            (_mantel_parts(*(counts + unit)) - _mantel_parts(*(counts - unit))) / (2 * move)
            for unit in move * np.eye(3)[..., None]
        )
        spread = _deviation(first.noise, by_first + by_both, by_both, by_events, by_events)
        return float(_mantel_parts(*counts).sum()), spread

    @property
    def noise(self) -> float:
        """The noise's standard error of observed less expected events, to first order."""
        first, both = self.first, self.both
        rates = both.rates()
        share = np.clip(first.at_risk / np.maximum(both.at_risk, 1.0), 0.0, 1.0)
        return _deviation(first.noise, share * rates - rates, share * rates, 1 - share, -share)


def _mantel_parts(first_at_risk: Floats, at_risk: Floats, events: Floats) -> Floats:
    """Return the hypergeometric variance of the first group's events in each bin, for a log-rank test."""
    risk = np.maximum(at_risk, 2.0)
    share, events = np.clip(first_at_risk / risk, 0.0, 1.0), np.minimum(events, risk)
    return np.asarray(share * (1 - share) * events * (risk - events) / (risk - 1))


def _deviation(noise: float, own_risk: Floats, other_risk: Floats, own: Floats, other: Floats) -> float:
    """Return the noise deviation of a number, given its slopes in both groups' counts by bin.

    `own_risk`, `own`: of the first group; `other_risk`, `other`: of the second one.
    """
    # a count of time t is at risk in all bins up to t
    first, second = np.cumsum(own_risk), np.cumsum(other_risk)
    parts = [first + own, first, first[-1:], second + other, second, second[-1:]]
    return noise * math.sqrt(float(sum((part**2).sum() for part in parts)))
