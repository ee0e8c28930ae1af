"""Plans a random-effects meta-analysis of the parties' means: two requests, and no party's estimate.

The first gives the variance between parties, tau^2, by moments; the second the sums of n/(1 + m rho) and
S/(1 + m rho) over parties of n values with the sum S, rho being tau^2 over the variance within parties and m
being n, but at least the number of values that is asked for: a row of a small party then moves them less.
docs/proofs/records.md derives the sensitivity of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.records.ask import Ask
from smpc_dp.records.features import product
from smpc_dp.records.plan import (
    LEAST_BITS,
    MOST_BITS,
    SUM_BITS,
    PlannedError,
    near_scale,
    no_room,
    round_half_up,
)
from smpc_dp.records.schema import Number, Schema
from smpc_dp.records.sensitivity import UP
from smpc_dp.records.steps import StepNoise, SteppedPlan, read_alone, split_budget
from smpc_dp.records.table import Integers, Table

if TYPE_CHECKING:
    from smpc_dp.records.result import Answers, Estimate

# The ratio rho is a multiple of this part, and at most the other: members that compute with other rounding
# errors take the same one.
RATIO, MOST_RATIO = 1 << 30, 1 << 40
STEPS = 2
# Coordinates: the sum over parties of S^2/n, of n^2/max_rows; over rows of z^2, of z, and their number.
SQUARES, SIZES, SECOND, FIRST, COUNT = range(5)
LENGTH = 5
# How far one value more, one value exchanged and one value that goes missing move each coordinate.
ONE_MORE = (3.0, 2.0, 1.0, 1.0, 1.0)
EXCHANGED = (4.0, 0.0, 1.0, 2.0, 0.0)
# Deviations of the coordinates in the first request, to within a factor: those that make the error of tau^2
# least where the mean is half of the half range, and the deviation of values a third of it.
_SPREAD = (1.7, 4.5, 3.2, 1.0, 3.2)
# Planned errors are for a tau^2 of this part of the variance within parties.
ASSUMED = 0.01
_ROOT = 1 << 30


@dataclass(frozen=True)
class EffectsPlan(SteppedPlan):
    """Plan of one of the two requests of a random-effects meta-analysis of a column over the parties.

    Attributes:
        scales: what the sums of the first request are multiplied by, in the order of the coordinates; second:
            both sums of the second.
        parties: of the session.
        ratio: rho in the second request, in parts of `RATIO`; None in the first.
        within: the variance within parties that the first request gave, for values in [-1, 1].
        known: the estimates of the first request.
    """

    scales: tuple[Fraction, ...]
    second: Fraction
    parties: int
    ratio: int | None = None
    within: float = math.nan
    known: tuple[Estimate, ...] = ()

    @property
    def name(self) -> str:
        """The name of the column whose means in the parties are pooled."""
        return self.statistic.columns[0]

    @property
    def column(self) -> Number:
        """The declared bounds and grid of the column whose means are pooled."""
        return self.schema.number(self.name, self.statistic.text)

    @property
    def audited(self) -> tuple[SteppedPlan, ...]:
        """Both requests for a privacy audit to simulate, the second with an assumed variance ratio."""
        return self, replace(self, ratio=round(ASSUMED * RATIO))

    @property
    def begins(self) -> tuple[int, ...]:
        """The ratio rho of the second request, in parts of `RATIO`; empty in the first."""
        return () if self.ratio is None else (self.ratio,)

    def beginning(self, begins: Sequence[int]) -> EffectsPlan:
        """Return the plan of the request with this ratio, or of the first for no number."""
        if len(begins) > 1:
            raise ConfigError.at("begins", f"has {len(begins)} numbers, not one", ConfigCheck.SHAPE)
        return replace(self, ratio=next(iter(begins), None))

    @property
    def length(self) -> int:
        """The number of sums that each party's vector holds, equal in both requests."""
        return LENGTH

    @property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value of each entry of a party's vector, valid in both requests."""
        rows = self.schema.max_rows
        most = [round_half_up(rows * max(scale, self.second)) for scale in self.scales]
        low = [-high if at == FIRST else 0 for at, high in enumerate(most)]
        return np.array(low, dtype=np.int64), np.array(most, dtype=np.int64)

    def vector(self, table: Table) -> Integers:
        """Return a party's exact sums of its rows, scaled to integers and clipped, before noise is added."""
        name, steps, rows = self.name, self.column.steps, self.schema.max_rows
        blocks = (
            product(self.schema, name),
            product(self.schema, over=(name,)),
            product(self.schema, name, name),
        )
        total, count, squares = (int(block.sums(table)[0]) for block in blocks)
        values = [Fraction(0)] * LENGTH
        if self.ratio is None:
            if count:
                values[SQUARES] = Fraction(total**2, count * steps**2)
            values[SIZES] = Fraction(min(count, rows) ** 2, rows)
            values[SECOND] = Fraction(squares, steps**2)
            values[FIRST], values[COUNT] = Fraction(total, steps), Fraction(count)
        else:
            size = max(count, self.statistic.least)
            weight = self.unit * Fraction(RATIO, RATIO + size * self.ratio)
            values[FIRST], values[COUNT] = weight * total / steps, weight * count
        low, high = self.bounds
        scaled = [
            round_half_up(value * scale) for value, scale in zip(values, self._current_scales, strict=True)
        ]
        exact = [min(max(value, int(a)), int(b)) for value, a, b in zip(scaled, low, high, strict=True)]
        return np.array(exact, dtype=np.int64)

    @property
    def unit(self) -> Fraction:
        """Factor on the sums of the second request, so that one row moves both by 1 at most in L2 norm."""
        return _unit(self.schema, self.statistic.least, Fraction(self.ratio or 0, RATIO))

    @property
    def _current_scales(self) -> tuple[Fraction, ...]:
        """The factors from sums to ring integers, of the first or the second request."""
        return self.scales if self.ratio is None else (self.second,) * LENGTH

    def sums(self, total: NDArray[np.int64], present: int) -> tuple[list[float], list[float]]:
        """Return the noisy sums decoded from an opened total, and their standard deviations with rounding."""
        noise = self.deviation(present) + present / 2 + (1.0 if self.shares else 0.0)
        scales = [float(scale) for scale in self._current_scales]
        values = [float(value) / scale for value, scale in zip(total, scales, strict=True)]
        return values, [noise / scale for scale in scales]

    def scale_texts(self) -> Any:
        """Return as JSON data the scales computed with floating point, on which parties must agree."""
        scales = [f"{scale.numerator:x}/{scale.denominator:x}" for scale in (*self.scales, self.second)]
        return {"effects": self.described, "scales": scales, "at": self.ratio}

    def following(self, answers: Answers) -> EffectsPlan:
        """Return the second request's plan, from the first one's answers; after it the first plan again."""
        if self.ratio is not None:
            return replace(self, ratio=None, within=math.nan, known=())
        ratio, within = answers.following
        return replace(self, ratio=ratio, within=within / RATIO, known=answers.estimates)

    def errors(self, present: int, rows: int | None = None) -> list[PlannedError]:
        """Return the planned standard errors of the pooled mean and of tau^2; empty for exact sums."""
        if self.shares is None:
            return []
        expected = self.schema.rows == "private" or rows is None
        number = self.schema.rows_expected if expected else rows
        noise = self.deviation(present) + present / 2 + 1
        mean = between = None
        if number is not None:
            least = self.statistic.least
            unit = float(_unit(self.schema, least, Fraction(ASSUMED)))
            weights = unit * number / (1 + ASSUMED * max(number / present, least))
            mean = noise / float(self.second) * math.sqrt(2) / weights / 2
            squares, first = (noise / float(self.scales[at]) for at in (SQUARES, FIRST))
            between = math.hypot(squares, first) / (number * (1 - 1 / max(present, 2)))
        text, width = self.statistic.text, self.column.width
        equal = "parties of equal size"
        return [
            _planned(text, width, mean, number, expected, f"{equal}, tau^2 a hundredth of the variance"),
            _planned(
                f"tau^2 of {self.name}",
                (width / 2) ** 2,
                between,
                number,
                expected,
                f"{equal}, a mean a quarter of the range from its middle",
            ),
        ]


def _planned(
    text: str, size: float, relative: float | None, rows: int | None, expected: bool, assumed: str
) -> PlannedError:
    """Return a planned standard error, from one relative to the size of the answer's range."""
    error = None if relative is None else relative * size
    return PlannedError(text, error, size, relative, rows, expected, assumed)


def plan_effects(
    schema: Schema,
    ask: Ask,
    *,
    budget: tuple[float, float] | None,
    parties: int,
    missing: int = 0,
    corrupt: int = 0,
) -> EffectsPlan:
    """Plan both requests of a random-effects meta-analysis, within a privacy budget for both together.

    Args:
        budget: (epsilon, delta) of both together, which have equal parts of it; None for exact sums.
        parties, missing, corrupt: as of `plan_request`.

    Raises ConfigError for too many rows, PrivacyError if no noise suffices.
    """
    if budget is None:
        return _plan_step(schema, ask, None, parties)
    return split_budget(
        lambda noise: _plan_step(schema, ask, noise, parties), STEPS, budget, (parties, missing, corrupt)
    )


def _plan_step(schema: Schema, ask: Ask, noise: StepNoise | None, parties: int) -> EffectsPlan:
    """Return the first request's plan, with noise for one step (None: exact sums); or ConfigError."""
    one = read_alone(ask, schema, exact=noise is None)
    if parties < 2:
        raise ConfigError.at("ask", f"{one.text!r} needs two parties", ConfigCheck.RANGE)
    mu = 1.0 if noise is None else gaussian_mu(noise.epsilon, noise.delta)
    # one deviation of the noise in the coordinate with the largest scale, in rows
    spread = 1.0 if noise is None else _norm(schema, [1 / part for part in _SPREAD]) / mu
    # the scale of the second request is less than 8 times the largest one of the first
    room = SUM_BITS - 4 - math.log2(parties * schema.max_rows + 80 * parties * spread)
    bits = min(MOST_BITS - math.log2(spread), room)
    if bits < LEAST_BITS:
        raise no_room(parties, schema)
    scales = tuple(near_scale(2.0**bits / part) for part in _SPREAD)
    first = _norm(schema, [float(scale) for scale in scales])
    second = near_scale(first)
    sensitivity = _sensitivity(schema, scales, second)
    shares, variance = (None, Fraction(0)) if noise is None else noise.distributed_noise(sensitivity)
    return EffectsPlan(
        schema, (one,), STEPS, sensitivity, shares, variance, 0.0, 0.0, scales, second, parties
    )


def _unit(schema: Schema, least: int, ratio: Fraction) -> Fraction:
    """Return the factor on the second request's sums with which one row moves them by L2 distance 1 at most.

    With x = least rho, and over 1 + x: one value more moves (S, n) by (1, 1) in a party with fewer values,
    otherwise by (1 + 2x, 1)/(1 + x + rho) at most; one that is exchanged moves S by 2.
    """
    inner = least * ratio
    square = ((1 + 2 * inner) ** 2 + 1) / (1 + inner + ratio) ** 2
    square = Fraction(4) if schema.relation == "substitution" else max(Fraction(2), square)
    # integers alone, so that all members compute the same one
    root = Fraction(math.isqrt(math.ceil(square * _ROOT**2)) + 1, _ROOT)
    return (1 + inner) / root


def _moves(schema: Schema) -> list[tuple[float, ...]]:
    """Return the greatest changes of the first request's sums between neighbours, one tuple for each case."""
    if schema.relation == "add-remove":
        return [ONE_MORE]
    # a value that is missing in one of two rows, or does not count, is one value more
    return [EXCHANGED, ONE_MORE]


def _norm(schema: Schema, scales: Sequence[float]) -> float:
    """Return how far one row moves the first request's sums in L2 norm at most, at these scales."""
    return max(
        math.hypot(*(move * scale for move, scale in zip(moves, scales, strict=True)))
        for moves in _moves(schema)
    )


def _sensitivity(schema: Schema, scales: tuple[Fraction, ...], second: Fraction) -> Sensitivity:
    """Return the L2 and maximum-norm sensitivity of a party's vector, valid for both requests."""
    row = max(_norm(schema, [float(scale) for scale in scales]), float(second))
    furthest = [
        Fraction(move) * scale for moves in _moves(schema) for move, scale in zip(moves, scales, strict=True)
    ]
    most = max([second, *furthest])
    l2 = schema.party_factor * (schema.person_factor * row + math.sqrt(LENGTH))
    return Sensitivity.on_integers(
        schema.relation,
        dimension=LENGTH,
        l2=max(1.0, l2 * UP),
        linf=float(max(1, schema.party_factor * math.ceil(schema.person_factor * most))),
    )
