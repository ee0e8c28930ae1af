"""Survival curves and the log-rank statistic from noisy counts of events and censorings on a time grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.intervals import INFINITE, Interval, around, fieller, normal_quantile, times, within
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.result import PROJECTED, WITHIN_NOISE, Estimate, near_zero
from smpc_dp.records.terms import survival_block

Floats = NDArray[np.float64]

# Bins that more of the rows at risk leave are named wide.
WIDE = 0.5
# By how many deviations of its noise a count is moved for a slope.
_MOVE = 1e-3
WIDE_BINS = "more than half of the rows at risk leave within a bin: right for hazards that are constant in it"


@dataclass(frozen=True)
class Hazards:
    """Noisy counts of one group by bin of time: `events` and `leaving`, with and without an event.

    `staying`: the count of those that stay at the upper bound of time; `noise`: the deviation of each count.
    """

    events: Floats
    leaving: Floats
    staying: float
    noise: float

    @property
    def at_risk(self) -> Floats:
        """Number of rows at risk in each bin: those whose time is in it or later."""
        return np.asarray(np.cumsum((self.events + self.leaving)[::-1])[::-1] + self.staying)

    @property
    def risk_noise(self) -> Floats:
        """The deviation of the rows at risk: a sum of two counts for each bin from there on, and one."""
        return np.asarray(self.noise * np.sqrt(2.0 * np.arange(len(self.events), 0, -1) + 1))

    @property
    def later(self) -> Floats:
        """Number of rows whose time is in a later bin, or beyond."""
        return np.append(self.at_risk[1:], self.staying)

    def interval(self, index: int, z: float) -> Interval:
        """Return the interval of a hazard: events over rows at risk, of which the events are a part."""
        risk, events = float(self.at_risk[index]), float(self.events[index])
        spread, noise = float(self.risk_noise[index]), self.noise
        # events / (events + rest): the odds' numerator and denominator are independent
        low, high = fieller(events, noise, risk - events, math.sqrt(max(spread**2 - noise**2, 0.0)), z)
        return within((_share(low), _share(high)), 0.0, 1.0)

    def rates(self) -> Floats:
        """Return the hazards, within [-1, 1]: cut at 0, negative ones would add up over the bins."""
        risk = np.maximum(self.at_risk, 1e-9)
        return np.clip(self.events / risk, -1.0, 1.0)


def _share(odds: float) -> float:
    """Return odds as a share; negative odds are none of a count."""
    if odds == math.inf:
        return 1.0
    return odds / (1 + odds) if odds > 0 else 0.0


def surviving(events: float, leaving: float, later: float) -> float:
    """Return the probability to survive a bin in which some have an event, some leave, and others stay.

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
    """Return the derivatives of log `surviving` by its arguments, for some that stay."""
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
    """Yield the probability to survive each bin of time, for each group.

    Within a bin the hazards of events and of leaving are taken as constant; with nobody leaving it is the
    estimate of Kaplan and Meier (1958). Its interval comes from those of all counts, which hold at once.
    """
    for hazards, cell, labels in _groups(one, noisy):
        bins = len(labels)
        z = normal_quantile(display.outside / (3 * bins))
        low, high, wide, errors = 1.0, 1.0, False, _Errors(hazards)
        for index, label in enumerate(labels):
            ends = _step_interval(hazards, index, z)
            low, high = low * ends[0], high * ends[1]
            risk, noise = float(hazards.at_risk[index]), float(hazards.risk_noise[index])
            hidden = risk <= display.least(noise) or risk <= 0
            wide |= not hidden and bool(hazards.later[index] < (1 - WIDE) * risk)
            value = None if hidden else _curve(hazards, index)
            yield Estimate.of(
                one,
                "survival",
                "",
                (low, high),
                cell={**cell, one.columns[0]: label},
                value=value,
                error=errors.noise(index, value),
                sampled=errors.sampling(index, value),
                over=float(hazards.at_risk[0]),
                note=WITHIN_NOISE if hidden else WIDE_BINS if wide else _projected(hazards, index),
            )


def _curve(hazards: Hazards, index: int) -> float:
    """Return the probability to survive all bins up to one."""
    counts = zip(hazards.events, hazards.leaving, hazards.later, strict=True)
    return math.prod(surviving(*map(float, each)) for each in itertools.islice(counts, index + 1))


def _projected(hazards: Hazards, index: int) -> str:
    """Return the note of a curve for which a negative count was taken as 0."""
    counts = (hazards.events[: index + 1], hazards.leaving[: index + 1], hazards.later[: index + 1])
    return PROJECTED if any((count < 0).any() for count in counts) else ""


def _step_interval(hazards: Hazards, index: int, z: float) -> Interval:
    """Return the ends of the probability to survive one bin, for counts within z deviations."""
    events = around(float(hazards.events[index]), hazards.noise, z)
    leaving = around(float(hazards.leaving[index]), hazards.noise, z)
    noise = math.sqrt(max(float(hazards.risk_noise[index]) ** 2 - 2 * hazards.noise**2, 0.0))
    later = around(float(hazards.later[index]), noise, z)
    low = 0.0 if later[0] <= 0 < events[1] and noise > 0 else surviving(events[1], leaving[0], later[0])
    high = surviving(events[0], leaving[1], later[1])
    # where nobody may stay the actuarial value counts, too
    return low, max(high, surviving(events[0], leaving[1], 0.0)) if later[0] <= 0 else high


class _Errors:
    """Standard errors of the curve of one group, by the noise and of the rows as a sample.

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
        """Return the deviation of the curve by the noise, to first order; None if nobody stays."""
        moved = self._moved(self._slopes, index)
        return None if value is None or math.isnan(moved) else value * moved

    def sampling(self, index: int, value: float | None) -> float | None:
        """Return the standard error of the curve for rows that are a sample; of Greenwood if nobody leaves.

        None if nobody stays, or if its square is within its noise.
        """
        total = float(self._variances[: index + 1].sum())
        clear = not math.isnan(total) and not near_zero(total, self._moved(self._changes, index))
        return value * math.sqrt(total) if clear and value is not None else None

    def _moved(self, slopes: Floats, index: int) -> float:
        """Return the deviation of a sum over the bins up to one, to first order in all counts."""
        until = np.arange(len(slopes))[:, None] <= index
        by_events, by_leaving, by_later = np.where(until, slopes, 0.0).T
        # a count of one bin is among those that stay in all bins before
        *before, last = np.append(0.0, np.cumsum(by_later))
        square = float(((by_events + before) ** 2 + (by_leaving + before) ** 2).sum()) + last**2
        return self._noise * math.sqrt(square)


def _sampled_variance(counts: Floats) -> float:
    """Return the variance of log `surviving` over samples of rows.

    Given the rows at risk the three counts of a bin are multinomial, and the estimate is homogeneous in them.
    Negative counts are not cut at 0: over many bins that would add up.
    """
    return float(np.square(_slopes(*counts.tolist())) @ counts)


def _groups(one: Statistic, noisy: NoisySums) -> Iterator[tuple[Hazards, dict[str, str], list[str]]]:
    """Yield the counts of each group with its cell and the labels of the bins."""
    schema = noisy.schema
    block = survival_block(one, schema)
    *groups, time, _ = block.selectors
    cells = cell_labels(tuple(groups), noisy.schema)
    labels = [cell[time.column] for cell in cell_labels((time,), noisy.schema)][:-1]
    counts = noisy.sums(block).reshape(len(cells), time.cells, 2)
    for cell, values in zip(cells, counts, strict=True):
        events, others = values[:-1, 1], values[:-1, 0]
        yield Hazards(events, others, float(values[-1, 0]), noisy.deviation(block)), cell, labels


def log_rank(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield observed less expected events of the first of two groups, and the log-rank z.

    The variance in z is that of the rows as a sample [Mantel 1966], where noise makes it negative 0, plus
    that of the noise, to first order.
    """
    (first, cell, labels), (second, _, _) = _groups(one, noisy)
    both = Hazards(
        first.events + second.events,
        first.leaving + second.leaving,
        first.staying + second.staying,
        first.noise * math.sqrt(2),
    )
    bins = len(labels)
    z = normal_quantile(display.outside / (2 * bins + 1))
    low, high = around(float(first.events.sum()), first.noise * math.sqrt(bins), z)
    for index in range(bins):
        risk = around(float(first.at_risk[index]), float(first.risk_noise[index]), z)
        expected = times((max(risk[0], 0.0), max(risk[1], 0.0)), both.interval(index, z))
        low, high = low - expected[1], high - expected[0]
    rates = both.rates()
    difference = float((first.events - first.at_risk * rates).sum())
    noise = _difference_noise(first, both)
    sampling, spread = _mantel(first, both)
    hidden = both.at_risk[0] <= display.least(float(both.risk_noise[0]))
    over, note = float(both.at_risk[0]), WITHIN_NOISE if hidden else ""
    yield Estimate.of(
        one,
        "observed - expected events",
        "events",
        (low, high),
        cell=cell,
        value=None if hidden else difference,
        error=None if hidden else noise,
        sampled=None if hidden or near_zero(sampling, spread) else math.sqrt(sampling),
        over=over,
        note=note,
    )
    yield Estimate.of(
        one,
        "log-rank z, noise included",
        "",
        INFINITE,
        cell=cell,
        value=None if hidden else difference / math.sqrt(max(sampling, 0.0) + noise**2),
        over=over,
        note=note or "approximate: normal with variance 1 without a difference",
    )


def _mantel(first: Hazards, both: Hazards) -> tuple[float, float]:
    """Return the hypergeometric variance of the first group's events, and its deviation by the noise."""
    counts = np.stack([first.at_risk, both.at_risk, both.events])
    move = _MOVE * max(first.noise, 1.0)
    by_first, by_both, by_events = (
        (_mantel_parts(*(counts + unit)) - _mantel_parts(*(counts - unit))) / (2 * move)
        for unit in move * np.eye(3)[..., None]
    )
    spread = _deviation(first.noise, by_first + by_both, by_both, by_events, by_events)
    return float(_mantel_parts(*counts).sum()), spread


def _mantel_parts(first_at_risk: Floats, at_risk: Floats, events: Floats) -> Floats:
    """Return the variance of the first group's events in each bin, given those of both; none is cut at 0."""
    risk = np.maximum(at_risk, 2.0)
    share, events = np.clip(first_at_risk / risk, 0.0, 1.0), np.minimum(events, risk)
    return np.asarray(share * (1 - share) * events * (risk - events) / (risk - 1))


def _difference_noise(first: Hazards, both: Hazards) -> float:
    """Return the noise deviation of observed less expected events, to first order in each count."""
    rates = both.rates()
    share = np.clip(first.at_risk / np.maximum(both.at_risk, 1.0), 0.0, 1.0)
    return _deviation(first.noise, share * rates - rates, share * rates, 1 - share, -share)


def _deviation(noise: float, own_risk: Floats, other_risk: Floats, own: Floats, other: Floats) -> float:
    """Return the deviation of a number, given its slopes in the rows at risk and the events by bin.

    `own_risk`, `own`: of the first group; `other_risk`, `other`: of the second one.
    """
    # a count of time t is at risk in all bins up to t
    first, second = np.cumsum(own_risk), np.cumsum(other_risk)
    parts = [first + own, first, first[-1:], second + other, second, second[-1:]]
    return noise * math.sqrt(float(sum((part**2).sum() for part in parts)))
