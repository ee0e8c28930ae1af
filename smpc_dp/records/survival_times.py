"""Median and restricted mean of the time to an event, from a survival curve with its intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.intervals import Interval
from smpc_dp.records.population import Sampling, first_order
from smpc_dp.records.result import WITHIN_NOISE, Estimate

Floats = NDArray[np.float64]
NOT_REACHED = "not reached: half survive the upper bound of time"


@dataclass(frozen=True)
class Curve:
    """Survival curve of one group, with intervals, from which median and restricted mean times are taken.

    Attributes:
        edges: where bins begin, and the upper bound of time.
        values: the survival, None where it is not shown.
        band: intervals for what the noise may have done, all at once.
        population: intervals for noise and sampling, each by itself; None where there is none.
        weighted: returns the noise deviation and the sampling error of a weighted sum of the logarithms of
            the survival of each bin, given that of its begin; each None where it is not known.
    """

    edges: Sequence[float]
    values: Sequence[float | None]
    band: Sequence[Interval]
    population: Sequence[Interval | None]
    weighted: Callable[[Floats], tuple[float | None, float | None]]

    def estimates(
        self, one: Statistic, cell: dict[str, str], over: float, outside: float
    ) -> Iterator[Estimate]:
        """Yield the median time, and the mean time restricted to the upper bound, with intervals."""
        unit, hidden = one.columns[0], self.values[-1] is None
        value, both = self._median(), _crossed(self.edges, [each or (0.0, 1.0) for each in self.population])
        reached = any(each is not None and each <= 0.5 for each in self.values)
        yield Estimate.of(
            one,
            "median time",
            unit,
            _crossed(self.edges, self.band),
            cell=cell,
            value=value,
            sampled=None if value is None else Sampling(ends=both),
            over=over,
            note="" if reached else WITHIN_NOISE if hidden else NOT_REACHED,
        )
        known = [each for each in self.values if each is not None]
        low, high = (_area(self.edges, [ends[end] for ends in self.band]) for end in (0, 1))
        mean = None if hidden else _area(self.edges, known)
        noise, error = (None, None) if mean is None else self.weighted(_slopes(self.edges, known))
        yield Estimate.of(
            one,
            f"restricted mean time, to {self.edges[-1]:.12g}",
            unit,
            (low, high),
            cell=cell,
            value=mean,
            error=noise,
            sampled=None if mean is None else first_order(mean, noise, error, outside),
            over=over,
            possible=(self.edges[0], self.edges[-1]),
            note=WITHIN_NOISE if hidden else "",
        )

    def _median(self) -> float | None:
        """Return the time at which the curve reaches a half, None if hidden or not reached."""
        before = 1.0
        for index, after in enumerate(self.values):
            if after is None:
                return None
            if after <= 0.5:
                begin, end = self.edges[index : index + 2]
                if after > 0:
                    part = math.log(before / 0.5) / math.log(before / after)
                else:
                    part = (before - 0.5) / before
                return begin + part * (end - begin)
            before = after
        return None


def _crossed(edges: Sequence[float], ends: Sequence[Interval]) -> Interval:
    """Return the interval of the time when half survive, from intervals of the survival at bin ends."""
    below = [index for index, (low, _) in enumerate(ends) if low <= 0.5]
    above = [index for index, (_, high) in enumerate(ends) if high > 0.5]
    last = above[-1] + 2 if above else 1
    return edges[below[0]] if below else edges[-1], edges[last] if last < len(edges) else math.inf


def _area(edges: Sequence[float], values: Sequence[float]) -> float:
    """Return the area under a survival curve up to the last edge, with constant hazards within bins."""
    pairs = zip((1.0, *values[:-1]), values, strict=True)
    widths: list[float] = np.diff(edges).tolist()
    return edges[0] + sum(
        width * _mean(begin, end) for width, (begin, end) in zip(widths, pairs, strict=True)
    )


def _mean(begin: float, end: float) -> float:
    """Return the mean of the survival curve within a bin, given its values at begin and end."""
    if end <= 0:
        return begin / 2
    return begin if begin - end < 1e-9 * begin else (begin - end) / math.log(begin / end)


def _slopes(edges: Sequence[float], values: Sequence[float]) -> Floats:
    """Return the derivatives of the area under a survival curve by the log survival of each bin."""
    slopes = []
    for index in range(len(values)):
        # all survival from this bin's end on grows by the same factor
        up, down = (
            _area(edges, [*values[:index], *(factor * each for each in values[index:])])
            for factor in (1 + 1e-5, 1 - 1e-5)
        )
        slopes.append((up - down) / 2e-5)
    return np.array(slopes)
