"""Estimates tau^2 and the random-effects mean from the noisy sums of two requests."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.answers import DEFAULT_HIDE
from smpc_dp.records.effects import (
    COUNT,
    FIRST,
    MOST_RATIO,
    RATIO,
    SECOND,
    SIZES,
    SQUARES,
    EffectsPlan,
)
from smpc_dp.records.heterogeneity import PartySums, spreads
from smpc_dp.records.intervals import INFINITE, Interval, around, normal_quantile, scaled, shown_ratio
from smpc_dp.records.noisy import Display
from smpc_dp.records.population import sampling
from smpc_dp.records.result import WITHIN_NOISE, Answers, Estimate, near_zero

# Estimates of both requests together, and sums that the first has intervals of.
ESTIMATES, SUMS = 5, 5
GIVEN = "weights are those of the released tau^2"
WITHIN = "its sampling error is that of rows within these parties"
ONE_PARTY = "none: within the noise one party could have all values"
NONE = "as if tau^2 were 0, which is within the noise"


def effects(
    plan: EffectsPlan,
    total: NDArray[np.int64],
    present: int,
    *,
    holders: int | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Answers:
    """Return Q, I², tau² and the fixed-effects mean; after the second request also the random-effects mean.

    Arguments as of `estimate`.
    """
    plan.check_release(total, level)
    display = Display((1 - level) / (ESTIMATES if simultaneous else 1), DEFAULT_HIDE)
    following: tuple[int, ...] = ()
    if plan.ratio is None:
        first = _FirstSums(plan, total, present, present if holders is None else holders)
        estimates, following = (*first.estimates(display),), first.following(display)
    else:
        estimates = (*plan.known, _weighted_mean(plan, total, present, display))
    return plan.answers(estimates, present, level=level, simultaneous=simultaneous, following=following)


class _FirstSums:
    """Noisy sums of a meta-analysis's first request, from which Q, I², tau² and the mean are estimated."""

    def __init__(self, plan: EffectsPlan, total: NDArray[np.int64], present: int, holders: int) -> None:
        self.plan = plan
        values, errors = plan.sums(total, present)
        of = list(zip(values, errors, strict=True))
        self.sums = PartySums(of[SQUARES], of[SECOND], of[FIRST], of[COUNT], holders)
        rows = plan.schema.max_rows
        self.sizes = (of[SIZES][0] * rows, of[SIZES][1] * rows)

    def _room(self) -> tuple[float, float]:
        """Return N - (sum of n^2)/N, the divisor of tau², with its standard error; it is 0 for one party."""
        (count, error), (sizes, sizes_error) = self.sums.count, self.sizes
        return count - sizes / count, math.hypot((1 + sizes / count**2) * error, sizes_error / count)

    def _hidden(self, display: Display) -> str:
        """Return a note that says why tau² is hidden as within the noise, an empty text if it is shown."""
        note = self.sums.hidden(display)
        if note:
            return note
        room, error = self._room()
        return ONE_PARTY if room <= display.least(error) else ""

    def following(self, display: Display) -> tuple[int, int]:
        """Return (tau² over the variance within parties, that variance) as integers; (0, 0) if hidden.

        They do not depend on the level of intervals.
        """
        if self._hidden(display):
            return 0, 0
        within = self.sums.within
        ratio = round(max(self._between(), 0.0) / within * RATIO)
        return min(ratio, MOST_RATIO), round(within * RATIO)

    def _between(self) -> float:
        """Return the moment estimate of tau², which may be negative [DerSimonian and Laird 1986]."""
        sums = self.sums
        return (sums.between - (sums.parties - 1) * sums.within) / self._room()[0]

    def _between_error(self, value: float) -> float:
        """Return the standard error that the noise of all five sums brings to tau², given its value."""
        sums, room = self.sums, self._room()[0]
        moved = value * (1 + self.sizes[0] / sums.count[0] ** 2)
        error = sums.between_error(sums.parties - 1.0, -moved)
        return math.hypot(error, value * self.sizes[1] / sums.count[0]) / room

    def estimates(self, display: Display) -> Iterator[Estimate]:
        """Yield Q, I², tau² and the fixed-effects mean with their intervals."""
        plan, sums = self.plan, self.sums
        one, half, count = plan.statistic, plan.column.width / 2, sums.count
        z = normal_quantile(display.outside / SUMS)
        ends = sums.ends(z)
        yield from sums.estimates(one, ends, display, plan.schema.rows == "public")
        low, high = _between_ends(ends, around(*self.sizes, z), sums.parties)
        hidden = self._hidden(display)
        value = error = None
        if not hidden:
            value = self._between()
            error = half**2 * self._between_error(value)
        yield Estimate.of(
            one,
            f"tau^2 of {plan.name}",
            f"{plan.name}^2",
            scaled((low, high), half**2),
            value=None if value is None else half**2 * max(value, 0.0),
            error=error,
            over=count[0],
            note=hidden if value is None or error is None else near_zero(half**2 * value, error),
        )
        sampled = 0.0 if hidden else sums.within / count[0]
        fixed = _mean(plan, f"fixed-effects mean of {plan.name}", sums.first, count, sampled, display)
        yield msgspec.structs.replace(fixed, note=fixed.note or WITHIN)


def _between_ends(ends: list[Interval], sizes: Interval, parties: int) -> Interval:
    """Return bounds on tau² over all values of five noisy sums within their intervals."""
    count, (inside, between) = ends[3], spreads(ends, parties)
    if count[0] <= 0:
        return 0.0, math.inf
    room = count[0] - sizes[1] / count[0], count[1] - max(sizes[0], 0.0) / count[1]
    low = between[0] - (parties - 1) * inside[1]
    high = between[1] - (parties - 1) * max(inside[0], 0.0)
    lowest = low / room[1] if low > 0 and room[1] > 0 else 0.0
    if high <= 0:
        return lowest, 0.0
    return lowest, high / room[0] if room[0] > 0 else math.inf


def _weighted_mean(plan: EffectsPlan, total: NDArray[np.int64], present: int, display: Display) -> Estimate:
    """Return the random-effects mean of the parties' means, from the sums of the second request."""
    values, errors = plan.sums(total, present)
    top, below = ((values[at], errors[at]) for at in (FIRST, COUNT))
    # the sum of the weights over the variance within parties is 1 over the variance of the mean
    weights = below[0] / float(plan.unit)
    sampled = plan.within / weights if weights > 0 else 0.0
    known = next((one for one in plan.known if one.unit == f"{plan.name}^2"), None)
    made = _mean(plan, f"random-effects mean of {plan.name}", top, below, sampled, display)
    note = NONE if known is not None and known.value is None else GIVEN
    over = None if known is None else known.over
    return msgspec.structs.replace(made, over=over, note=made.note or note)


def _mean(
    plan: EffectsPlan,
    label: str,
    top: tuple[float, float],
    below: tuple[float, float],
    sampled: float,
    display: Display,
) -> Estimate:
    """Return a pooled mean, the ratio of two noisy sums, with intervals; no value if the lower one is small.

    `sampled`: its variance over samples of rows, for values in [-1, 1]; 0 if it is not known.
    """
    one, column = plan.statistic, plan.column
    if below[0] <= display.least(below[1]):
        return Estimate.of(one, label, plan.name, INFINITE, over=below[0], note=WITHIN_NOISE)
    ratio, half = top[0] / below[0], column.width / 2
    ends = shown_ratio(top, below, display.least(below[1]), display.outside)
    value, ends = column.middle + half * ratio, scaled(ends, half, column.middle)
    error = half * math.sqrt(sampled) if sampled > 0 else None
    return Estimate.of(
        one,
        label,
        plan.name,
        ends,
        value=value,
        error=half * math.hypot(top[1], ratio * below[1]) / below[0],
        sampled=sampling(value, ends, error, display.outside),
        over=below[0],
        possible=(column.lower, column.upper),
    )
