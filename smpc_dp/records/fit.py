"""Plans logistic and Poisson regression by Newton steps: each is a request for a score and an information.

At public coefficients b a row with response y adds x (y - m(x.b)) to the score and w(x.b) xx' to the
information. Both are bounded for every b, so that all steps have one vector, one grid and one noise.
docs/proofs/records.md derives the sensitivity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.records.ask import Ask
from smpc_dp.records.formula import Design
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
from smpc_dp.records.terms import OF_SCALED, UNCORRELATED

if TYPE_CHECKING:
    from smpc_dp.records.result import Answers

Floats = NDArray[np.float64]
# A row's score and weights are rounded to this part of their bounds.
GRID = 1 << 30
# Coefficients at which a step begins are multiples of this: members that compute with other rounding errors
# begin at the same ones.
COEFFICIENT = 2.0**-20
MAX_COEFFICIENTS = 30
# The square of the information's sensitivity over that of the score's: in a logistic regression up to a half
# adds nothing.
SHARE = 0.5
_AT_ONCE = 1 << 12


class Sums(NamedTuple):
    """Record of a completed Newton step: its starting coefficients, noisy sums, and contributing parties."""

    at: tuple[int, ...]
    total: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class FitPlan(SteppedPlan):
    """Plan of one noisy Newton step of a logistic or Poisson regression over the parties' tables.

    Attributes:
        scales: what the sums of scores and of weights are multiplied by, in the ring.
        at: the coefficients at which the step begins, in units of `COEFFICIENT`, of columns in [-1, 1].
        averaged: earlier steps that the estimate averages with this one; None until it averages any.
    """

    scales: tuple[Fraction, Fraction]
    at: tuple[int, ...]
    averaged: tuple[Sums, ...] | None = None

    @property
    def response(self) -> Number:
        """The declared column of the regression's response."""
        return self.schema.number(self.statistic.columns[0], self.statistic.text)

    @functools.cached_property
    def design(self) -> Design:
        """The description of the regression's design matrix, made from its formula."""
        return Design(self.statistic, self.schema)

    @property
    def size(self) -> int:
        """The number of coefficients, the intercept included."""
        return len(self.design.coefficients)

    @property
    def length(self) -> int:
        """The length of a party's vector: the score, then the upper triangle of the information matrix."""
        return self.size + self.size * (self.size + 1) // 2

    @property
    def units(self) -> tuple[float, float]:
        """The bounds on a row's residual in the score, and on its weight in the information."""
        if self.statistic.kind == "logistic":
            return 1.0, 0.25
        return self.response.upper, self.response.upper

    @property
    def ring_units(self) -> tuple[float, float]:
        """How much of a score and of an information matrix one integer step in the opened sum stands for."""
        first, second = (
            unit / (GRID * float(scale)) for unit, scale in zip(self.units, self.scales, strict=True)
        )
        return first, second

    @property
    def start(self) -> Floats:
        """The coefficients at which the Newton step begins, for columns scaled to [-1, 1]."""
        return np.array(self.at, dtype=np.float64) * COEFFICIENT

    @property
    def begins(self) -> tuple[int, ...]:
        """The coefficients at which the step begins, in units of `COEFFICIENT`."""
        return self.at

    def beginning(self, begins: Sequence[int]) -> FitPlan:
        """Return the plan of a step that begins at these coefficients, one for each column."""
        if len(begins) != self.size:
            reason = f"has {len(begins)} coefficients, the regression {self.size}"
            raise ConfigError.at("begins", reason, ConfigCheck.SHAPE)
        return replace(self, at=tuple(begins))

    @property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value that each entry of a party's vector may have."""
        most = [round_half_up(self.schema.max_rows * GRID * scale) for scale in self.scales]
        score, information = self.size, self.length - self.size
        high = np.repeat(np.array(most, dtype=np.int64), (score, information))
        low = -high
        diagonal = [row == column for row, column in zip(*np.triu_indices(self.size), strict=True)]
        low[score:][diagonal] = 0
        return low, high

    def features(self, table: Table) -> NDArray[np.int64]:
        """Return each row's contribution to score and information as integers, shape (rows, length)."""
        response = self.statistic.columns[0]
        rows = table.counted.copy()
        for name in self.statistic.columns:
            rows &= table.present[name]
        where = np.flatnonzero(rows)
        x = self.design.matrix(table, where)
        y = self.response.middle + self.response.unit * table.codes[response][where]
        score, weight = self._parts(np.asarray(x @ self.start), np.asarray(y, np.float64))
        upper = np.triu_indices(self.size)
        parts = (x * score[:, None], x[:, upper[0]] * x[:, upper[1]] * weight[:, None])
        return np.clip(np.floor(np.concatenate(parts, axis=1) * GRID + 0.5), -GRID, GRID).astype(np.int64)

    def _parts(self, linear: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return each row's residual in [-1, 1] and weight in [0, 1], over their greatest values."""
        if self.statistic.kind == "logistic":
            mean = 1 / (1 + np.exp(-np.clip(linear, -700, 700)))
            return y - mean, 4 * mean * (1 - mean)
        upper = self.response.upper
        mean = np.exp(np.minimum(linear, 700))
        return np.clip(y - mean, -upper, upper) / upper, np.minimum(mean, upper) / upper

    def vector(self, table: Table) -> Integers:
        """Return a party's exact score and information summed over its rows, scaled to integers, unnoised."""
        totals = [0] * self.length
        for start in range(0, table.rows, _AT_ONCE):
            part = self.features(table.part(start, start + _AT_ONCE)).sum(axis=0).tolist()
            totals = [total + value for total, value in zip(totals, part, strict=True)]
        scales = [self.scales[0]] * self.size + [self.scales[1]] * (self.length - self.size)
        low, high = self.bounds
        scaled = [round_half_up(total * scale) for total, scale in zip(totals, scales, strict=True)]
        exact = [min(max(value, int(a)), int(b)) for value, a, b in zip(scaled, low, high, strict=True)]
        return np.array(exact, dtype=np.int64)

    def scale_texts(self) -> Any:
        """Return as JSON data the scales and starting coefficients on which all parties must agree."""
        scales = [f"{scale.numerator:x}/{scale.denominator:x}" for scale in self.scales]
        return {"fit": self.described, "steps": self.steps, "scales": scales, "at": self.at}

    def deviations(self, present: int) -> tuple[float, float]:
        """Return the noise deviations of an entry of the score and of the information, with rounding."""
        rounding = present / 2 if any(scale.denominator > 1 for scale in self.scales) else 0.0
        noise = self.deviation(present) + rounding + (1.0 if self.shares else 0.0)
        return noise * self.ring_units[0], noise * self.ring_units[1]

    def following(self, answers: Answers) -> FitPlan:
        """Return the plan of the next Newton step, from the coefficients that this step's answers hold."""
        at, (average, *sums) = answers.following[: self.size], answers.following[self.size :]
        begun: tuple[Sums, ...] | None = () if average else None
        if self.averaged is not None:
            last = Sums(self.at, tuple(sums[: self.length]), tuple(sums[self.length :]))
            begun = (*self.averaged, last)
        return replace(self, at=at, averaged=begun)

    def errors(self, present: int, rows: int | None = None) -> list[PlannedError]:
        """Return a coefficient's planned standard error, columns in [-1, 1]; an empty list for exact sums."""
        if self.shares is None:
            return []
        expected = self.schema.rows == "private" or rows is None
        number = self.schema.rows_expected if expected else rows
        logistic = self.statistic.kind == "logistic"
        weight = 0.2 if logistic else self.response.upper / 4
        of = "probabilities about 0.3" if logistic else "means a quarter of the upper bound"
        error = None if number is None else self.deviations(present)[0] / (number * weight / 4)
        assumed = f"{OF_SCALED}; {of}; {UNCORRELATED}"
        return [PlannedError(self.statistic.text, error, 1.0, error, number, expected, assumed)]


def plan_fit(
    schema: Schema,
    ask: Ask,
    *,
    steps: int,
    budget: tuple[float, float] | None,
    parties: int,
    missing: int = 0,
    corrupt: int = 0,
) -> FitPlan:
    """Plan the Newton steps of a regression within a privacy budget, and return the plan of the first.

    Args:
        budget: (epsilon, delta) of all steps together, which have equal parts of it; None for exact sums.
        parties, missing, corrupt: as of `plan_request`.

    Raises ConfigError for too many columns, rows or steps, PrivacyError if no noise suffices.
    """
    if budget is None:
        return _plan_step(schema, ask, steps, None, parties)
    return split_budget(
        lambda noise: _plan_step(schema, ask, steps, noise, parties),
        steps,
        budget,
        (parties, missing, corrupt),
    )


def _plan_step(schema: Schema, ask: Ask, steps: int, noise: StepNoise | None, parties: int) -> FitPlan:
    """Return the first Newton step's plan, with noise for one step (None: exact sums); or ConfigError."""
    one = read_alone(ask, schema, exact=noise is None)
    size = len(Design(one, schema).coefficients)
    if size > MAX_COEFFICIENTS:
        reason = f"{size} coefficients, at most {MAX_COEFFICIENTS}"
        raise ConfigError.at("ask", reason, ConfigCheck.TOO_LARGE)
    # of a product one indicator at most is 1 in a row
    most = 1 + len(one.products)
    spread = 1.0 if noise is None else math.sqrt(most) / gaussian_mu(noise.epsilon, noise.delta)
    room = SUM_BITS - 1 - math.log2(parties * schema.max_rows + 80 * parties * spread)
    bits = min(math.log2(GRID) if noise is None else MOST_BITS - math.log2(spread), room)
    if bits < LEAST_BITS:
        raise no_room(parties, schema)
    # the information's scale over that of the score
    ratio = 1.0 if noise is None else math.sqrt(SHARE * most / _upper_norm(most))
    scales = near_scale(2.0**bits / GRID), near_scale(ratio * 2.0**bits / GRID)
    sensitivity = _sensitivity(one.kind, (size, most), scales, schema)
    shares, variance = (None, Fraction(0)) if noise is None else noise.distributed_noise(sensitivity)
    response = schema.number(one.columns[0], one.text)
    first = math.log(response.middle) if one.kind == "poisson" else 0.0
    at = (round(first / COEFFICIENT), *[0] * (size - 1))
    return FitPlan(schema, (one,), steps, sensitivity, shares, variance, 0.0, 0.0, scales, at)


def _upper_norm(most: int) -> float:
    """Return the greatest squared L2 norm of the upper triangle of xx', x having `most` entries of 1."""
    return most * (most + 1) / 2


def row_square(kind: str, score: float, information: float) -> float:
    """Return the squared L2 sensitivity of one row, from those of its score and its information alone.

    Logistic: with t the size of the residual the weight is 4t(1 - t) of its bound; the extrema of t^2 (A + 16
    B (1 - t)^2) are at 1 and where 2t^2 - 3t + 1 + A / (16 B) = 0.
    """
    if kind == "poisson":
        return score + information
    candidates = [1.0]
    if information > 0 and (inner := 9 - 8 * (1 + score / (16 * information))) >= 0:
        candidates += [(3 + math.sqrt(inner)) / 4, (3 - math.sqrt(inner)) / 4]
    return max(t * t * (score + 16 * information * (1 - t) ** 2) for t in candidates if 0 <= t <= 1)


def _sensitivity(
    kind: str, sizes: tuple[int, int], scales: tuple[Fraction, Fraction], schema: Schema
) -> Sensitivity:
    """Return the L2 and maximum-norm sensitivity of a party's score and information, in ring steps.

    The rounding is that of each row to the grid, and of each party's sums. `sizes`: the coefficients, and how
    many columns of the design matrix are other than 0 in a row, at most.
    """
    score, weight = (float(scale) * GRID for scale in scales)
    size, most = sizes
    length = size + size * (size + 1) // 2
    grid = math.sqrt(length) / 2 * max(float(scale) for scale in scales)
    row = math.sqrt(row_square(kind, most * score**2, _upper_norm(most) * weight**2)) + grid
    signs = 2 if schema.relation == "substitution" else 1
    l2 = schema.party_factor * (schema.person_factor * signs * row + math.sqrt(length))
    furthest = math.ceil(schema.person_factor * signs * max(scales) * GRID)
    return Sensitivity.on_integers(
        schema.relation,
        dimension=length,
        l2=max(1.0, l2 * UP),
        linf=float(max(1, schema.party_factor * furthest)),
    )
