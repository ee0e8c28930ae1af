"""How much the parties' means differ: the pooled mean, Cochran's Q and I², without any party's estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import party_squares, product
from smpc_dp.records.intervals import Interval, around, normal_quantile
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.result import WITHIN_NOISE, Estimate, near_zero

# How many times the noise above which a count is shown the variance within must be for Q to be shown: nearer
# to it Q is far too small or far too large, and its standard error, to first order, too small.
CLEAR = 2.0
NOT_CLEAR = "none: the variance within parties is not clear of its noise"
NEAR_ZERO_Q = "Q is within its noise"
IF_ALL = ", if each has a value: one that has none makes I^2 too small"


@dataclass(frozen=True)
class PartySums:
    """Noisy sums of one column from which the variation between the parties' means is estimated.

    Attributes:
        squares, second, first, count: each a noisy sum and its deviation: over parties of S^2/n, and over
            rows of z^2, of z, and their number.
        parties: those with a value, as far as is public, otherwise all.
    """

    squares: tuple[float, float]
    second: tuple[float, float]
    first: tuple[float, float]
    count: tuple[float, float]
    parties: int

    @property
    def within(self) -> float:
        """The estimated variance of values within parties, 0 if there are too few rows."""
        rest = self.count[0] - self.parties
        return (self.second[0] - self.squares[0]) / rest if rest > 0 else 0.0

    @property
    def between(self) -> float:
        """The estimated sum of n (m_i - m)^2 over parties, with the bias that noise brings removed."""
        # E[first^2] is above the square of the true sum by the noise variance
        return self.squares[0] - (self.first[0] ** 2 - self.first[1] ** 2) / self.count[0]

    def between_error(self, times: float, moved_by_count: float = 0.0) -> float:
        """Return the standard error of `between` less `times` `within`, from the noise of four sums.

        `moved_by_count`: how far one value more moves it besides.
        """
        rest, slope = self.count[0] - self.parties, self.first[0] / self.count[0]
        return math.hypot(
            self.squares[1] * (1 + times / rest),
            self.second[1] * times / rest,
            # to second order, for a mean near the middle
            self.first[1] * math.hypot(2 * slope, math.sqrt(2) * self.first[1] / self.count[0]),
            self.count[1] * (slope**2 + times * self.within / rest + moved_by_count),
        )

    def hidden(self, display: Display) -> str:
        """Return a note that says why Q and I² are hidden as within the noise, empty if they are shown."""
        if self.count[0] <= max(display.least(self.count[1]), float(self.parties)):
            return WITHIN_NOISE
        return NOT_CLEAR if self.within <= CLEAR * display.least(self._within_error) else ""

    @property
    def _within_error(self) -> float:
        """The standard error that the noise brings to the variance within parties, to first order."""
        moved = self.second[1], self.squares[1], self.within * self.count[1]
        return math.hypot(*moved) / (self.count[0] - self.parties)

    def ends(self, z: float) -> list[Interval]:
        """Return the intervals of the four noisy sums, each plus and minus z deviations."""
        return [around(*one, z) for one in (self.squares, self.second, self.first, self.count)]

    def estimates(
        self, one: Statistic, ends: list[Interval], display: Display, public: bool
    ) -> Iterator[Estimate]:
        """Yield Q and I² from simultaneous intervals of the sums; `public`: row numbers are public."""
        hidden, parties = self.hidden(display), self.parties
        ratio = 0.0 if hidden else max(self.between, 0.0) / self.within
        inside, between = spreads(ends, parties)
        low = between[0] / inside[1] if inside[1] > 0 else 0.0
        high = between[1] / inside[0] if inside[0] > 0 else math.inf
        counted = f"for {parties} parties" + ("" if public else IF_ALL)
        # a sum moves Q by what it moves the numerator, less Q times what it moves the variance within
        spread = None if hidden else self.between_error(ratio) / self.within
        note = hidden
        if spread is not None and near_zero(self.between / self.within, spread):
            note = NEAR_ZERO_Q
        note = f"{note}; {counted}" if note else counted
        (name,) = one.columns
        for label, value, interval, error in (
            ("Q", ratio, (low, high), spread),
            ("I^2", _share(ratio, parties), (_share(low, parties), _share(high, parties)), None),
        ):
            number = None if hidden else value
            yield Estimate.of(
                one,
                f"{label} of {name}",
                "",
                interval,
                value=number,
                error=error,
                over=self.count[0],
                note=note,
            )


def heterogeneity(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield Cochran's Q and I² of a column's means in the parties, with intervals for the noise.

    With n_i rows of mean m_i in party i, Q is the sum of n_i (m_i - m)^2 over the variance within parties. I²
    is 1 - (k - 1)/Q for k parties, at least 0 [Higgins and Thompson 2002]. k is the number of parties with
    rows where that is public; otherwise of all parties in the sum, and each one without a value makes I² too
    small: a note says so.
    """
    schema, (name,) = noisy.schema, one.columns
    blocks = (
        party_squares(schema, name),
        product(schema, name, name),
        product(schema, name),
        product(schema, over=(name,)),
    )
    size = float(schema.number(name, one.text).steps)
    squares, second, first, count = (
        (float(noisy.sums(block)[0]) / unit, noisy.deviation(block) / unit)
        for block, unit in zip(blocks, (size**2, size**2, size, 1.0), strict=True)
    )
    sums = PartySums(squares, second, first, count, noisy.holders)
    ends = sums.ends(normal_quantile(display.outside / len(blocks)))
    yield from sums.estimates(one, ends, display, schema.rows == "public")


def spreads(ends: list[Interval], parties: int) -> tuple[Interval, Interval]:
    """Return intervals of the variance within parties and of the sum of n (m_i - m)^2 between parties.

    `ends`: those of the four sums, which hold at once.
    """
    squares, total, first, count = ends
    if count[0] <= parties:
        return (0.0, math.inf), (0.0, math.inf)
    least = 0.0 if first[0] <= 0 <= first[1] else min(first[0] ** 2, first[1] ** 2)
    most = max(first[0] ** 2, first[1] ** 2)
    between = max(squares[0] - most / count[0], 0.0), max(squares[1] - least / count[1], 0.0)
    inside = (total[0] - squares[1]) / (count[1] - parties), (total[1] - squares[0]) / (count[0] - parties)
    return inside, between


def _share(ratio: float, parties: int) -> float:
    """Return I² = 1 - (parties - 1) / Q, at least 0, for a value of Q."""
    return max(0.0, 1 - (parties - 1) / ratio) if ratio > 0 else 0.0
