"""Survival curves and the log-rank statistic from noisy counts of events and censorings on a time grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.ask import Statistic
from smpc_dp.records.features import product
from smpc_dp.records.intervals import INFINITE, Interval, around, fieller, normal_quantile, times, within
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.result import PROJECTED, WITHIN_NOISE, Estimate
from smpc_dp.records.terms import survival_cells

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Hazards:
    """Noisy counts of one group by bin of time: `events` and `leaving`, with and without an event.

    `noise` is the deviation of each count.
    """

    events: Floats
    leaving: Floats
    noise: float

    @property
    def at_risk(self) -> Floats:
        """Number of rows at risk in each bin: those whose time is in it or later."""
        return np.asarray(np.cumsum((self.events + self.leaving)[::-1])[::-1])

    @property
    def risk_noise(self) -> Floats:
        """The deviation of the rows at risk: a sum of two counts for each bin from there on."""
        return np.asarray(self.noise * np.sqrt(2.0 * np.arange(len(self.events), 0, -1)))

    def interval(self, index: int, z: float) -> Interval:
        """Return the interval of a hazard: events over rows at risk, of which the events are a part."""
        risk, events = float(self.at_risk[index]), float(self.events[index])
        spread, noise = float(self.risk_noise[index]), self.noise
        # events / (events + rest): the odds' numerator and denominator are independent
        low, high = fieller(events, noise, risk - events, math.sqrt(max(spread**2 - noise**2, 0.0)), z)
        return within((_share(low), _share(high)), 0.0, 1.0)

    def rates(self) -> Floats:
        """Return the hazards, within [0, 1]."""
        risk = np.maximum(self.at_risk, 1e-9)
        return np.clip(self.events / risk, 0.0, 1.0)


def _share(odds: float) -> float:
    """Return odds as a share; negative odds are none of a count."""
    if odds == math.inf:
        return 1.0
    return odds / (1 + odds) if odds > 0 else 0.0


def survival(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the probability to survive each bin of time [Kaplan and Meier 1958], for each group.

    Its interval is the product of the intervals of all hazards, which hold at once.
    """
    for hazards, cell, labels in _groups(one, noisy):
        bins = len(labels)
        z = normal_quantile(display.outside / bins)
        intervals = [hazards.interval(index, z) for index in range(bins)]
        rates = hazards.rates()
        raw = hazards.events / np.maximum(hazards.at_risk, 1e-9)
        curve, low, high = 1.0, 1.0, 1.0
        spread = 0.0
        for index, label in enumerate(labels):
            curve *= 1 - float(rates[index])
            low *= 1 - intervals[index][1]
            high *= 1 - intervals[index][0]
            risk, noise = float(hazards.at_risk[index]), float(hazards.risk_noise[index])
            hidden = risk <= display.least(noise) or risk <= 0
            spread += 0.0 if hidden else (hazards.noise / risk) ** 2 + (rates[index] * noise / risk) ** 2
            changed = bool((raw[: index + 1] != rates[: index + 1]).any())
            yield Estimate.of(
                one,
                "survival",
                "",
                (low, high),
                cell={**cell, one.columns[0]: label},
                value=None if hidden else curve,
                error=None if hidden else curve * math.sqrt(spread),
                sampled=None if hidden else _greenwood(hazards, index, curve),
                over=float(hazards.at_risk[0]),
                note=WITHIN_NOISE if hidden else PROJECTED if changed else "",
            )


def _greenwood(hazards: Hazards, index: int, curve: float) -> float | None:
    """Return Greenwood's standard error of the curve, as far as it is defined."""
    events, risk = hazards.events[: index + 1], hazards.at_risk[: index + 1]
    left = risk - events
    if (left <= 0).any() or (risk <= 0).any():
        return None
    total = float((np.maximum(events, 0.0) / (risk * left)).sum())
    return curve * math.sqrt(total)


def _groups(one: Statistic, noisy: NoisySums) -> Iterator[tuple[Hazards, dict[str, str], list[str]]]:
    """Yield the counts of each group with its cell and the labels of the bins."""
    schema = noisy.plan.schema
    block = product(schema, by=survival_cells(one, schema))
    *groups, time, _ = block.selectors
    cells = cell_labels(tuple(groups), noisy.plan.schema)
    labels = [cell[time.column] for cell in cell_labels((time,), noisy.plan.schema)]
    counts = noisy.sums(block).reshape(len(cells), time.cells, 2)
    for cell, values in zip(cells, counts, strict=True):
        yield Hazards(values[:, 1], values[:, 0], noisy.deviation(block)), cell, labels


def log_rank(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield observed less expected events of the first of two groups, and the log-rank z.

    The variance in z is that of the rows as a sample [Mantel 1966] plus that of the noise, to first order.
    """
    (first, cell, labels), (second, _, _) = _groups(one, noisy)
    both = Hazards(first.events + second.events, first.leaving + second.leaving, first.noise * math.sqrt(2))
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
    sampling = _mantel(first, both)
    hidden = both.at_risk[0] <= display.least(float(both.risk_noise[0])) or not sampling > 0
    over, note = float(both.at_risk[0]), WITHIN_NOISE if hidden else ""
    yield Estimate.of(
        one,
        "observed - expected events",
        "events",
        (low, high),
        cell=cell,
        value=None if hidden else difference,
        error=None if hidden else noise,
        sampled=None if hidden else math.sqrt(sampling),
        over=over,
        note=note,
    )
    yield Estimate.of(
        one,
        "log-rank z, noise included",
        "",
        INFINITE,
        cell=cell,
        value=None if hidden else difference / math.sqrt(sampling + noise**2),
        over=over,
        note=note or "approximate: normal with variance 1 without a difference",
    )


def _mantel(first: Hazards, both: Hazards) -> float:
    """Return the hypergeometric variance of the first group's events."""
    risk = np.maximum(both.at_risk, 2.0)
    share = np.clip(first.at_risk / risk, 0.0, 1.0)
    events = np.clip(both.events, 0.0, risk)
    return float((share * (1 - share) * events * (risk - events) / (risk - 1)).sum())


def _difference_noise(first: Hazards, both: Hazards) -> float:
    """Return the noise deviation of observed less expected events, to first order in each count."""
    rates = both.rates()
    risk = np.maximum(both.at_risk, 1.0)
    share = np.clip(first.at_risk / risk, 0.0, 1.0)
    # a count of time t is at risk in all bins up to t
    own = np.cumsum(-rates + share * rates)
    other = np.cumsum(share * rates)
    parts = [own + 1 - share, own, other - share, other]
    return first.noise * math.sqrt(float(sum((part**2).sum() for part in parts)))
