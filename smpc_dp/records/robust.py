"""Plans a linear regression with robust errors: two requests, the second at the coefficients of the first.

The first gives the normal equations. The second gives them again, at less of its budget, and with the rest
the sum of xx' e^2, e being the residual at the released coefficients, cut to a released bound.
docs/proofs/records.md derives the sensitivity of both.
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
from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Block, product, satisfying
from smpc_dp.records.fit import COEFFICIENT, GRID, upper_norm
from smpc_dp.records.formula import Design, regression_terms
from smpc_dp.records.noisy import NoisySums
from smpc_dp.records.plan import (
    MOST_BITS,
    PlannedError,
    described,
    near_scale,
    round_half_up,
    scaled_blocks,
)
from smpc_dp.records.schema import Schema
from smpc_dp.records.sensitivity import UP, Scaled, sensitivity_of
from smpc_dp.records.split import deviations
from smpc_dp.records.steps import StepNoise, SteppedPlan, read_alone, split_budget
from smpc_dp.records.table import Integers, Table
from smpc_dp.records.terms import Term, is_public, where

if TYPE_CHECKING:
    from smpc_dp.records.result import Answers

Floats = NDArray[np.float64]
STEPS = 2
# Of the squared sensitivity of the second request what the squares of residuals have.
SHARE = 0.5
# How many times the noise of coefficients is that of a regression without robust errors, whose budget is one
# request: the first half counts whole, of the second what is left.
PRICE = math.sqrt(2 / (2 - SHARE))
# The greatest bound of residuals, in half ranges of the response: its whole range.
MOST_RESIDUAL = 2.0
_AT_ONCE = 1 << 12


class FirstSums(NamedTuple):
    """Record of the first request: its opened sums, and the places of the contributing parties."""

    total: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class RobustPlan(SteppedPlan):
    """Plan of one of the two requests of a linear regression with robust errors.

    Attributes:
        blocks: the sums of the normal equations in the first request; again: the same in the second.
        scale: what sums of rounded xx' e^2 are multiplied by.
        first: the sums of the first request; None in the first.
        at: the coefficients of the second, of columns and response in [-1, 1], in units of `COEFFICIENT`.
        bound: of residuals in the second, in these units; 0 where the first gave no coefficients.
    """

    blocks: tuple[Scaled, ...]
    again: tuple[Scaled, ...]
    scale: Fraction
    first: FirstSums | None = None
    at: tuple[int, ...] = ()
    bound: int = 0

    @functools.cached_property
    def design(self) -> Design:
        """The description of the regression's design matrix, made from its formula."""
        return Design(self.statistic, self.schema)

    @property
    def size(self) -> int:
        """The number of coefficients, the intercept included."""
        return len(self.design.coefficients)

    @property
    def _cells(self) -> int:
        """The number of sums of the normal equations."""
        return sum(one.block.cells for one in self.blocks)

    @property
    def begins(self) -> tuple[int, ...]:
        """The bound of residuals and the coefficients of the second request; empty in the first."""
        return () if self.first is None else (self.bound, *self.at)

    def beginning(self, begins: Sequence[int]) -> RobustPlan:
        """Return the plan of the request with this bound and these coefficients, or of the first for none.

        The sums of the first request are not among these numbers: none are averaged with those of the second.
        """
        if not begins:
            return self.before
        if len(begins) != 1 + self.size:
            reason = f"has {len(begins)} numbers, a bound and the coefficients {1 + self.size}"
            raise ConfigError.at("begins", reason, ConfigCheck.SHAPE)
        bound, *at = begins
        return replace(self, first=FirstSums((), ()), at=tuple(at), bound=bound)

    @property
    def length(self) -> int:
        """The length of a party's vector: normal equations, then the upper triangle of the sum of xx' e^2."""
        return self._cells + self.size * (self.size + 1) // 2

    @property
    def audited(self) -> tuple[SteppedPlan, ...]:
        """Both requests for a privacy audit to simulate, the second at coefficients of 0."""
        bound = round(MOST_RESIDUAL / COEFFICIENT)
        second = replace(self, first=FirstSums((), ()), at=(0,) * self.size, bound=bound)
        return self, second

    @functools.cached_property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value of each entry of a party's vector, valid in both requests."""
        schema, rows = self.schema, self.schema.max_rows
        low: list[int] = []
        high: list[int] = []
        for one in self.blocks:
            ends = one.block.least(schema), one.block.greatest(schema)
            for side, end in zip((low, high), ends, strict=True):
                side += [round_half_up(rows * end * one.scale)] * one.block.cells
        most = round_half_up(rows * GRID * self.scale)
        for row, column in zip(*np.triu_indices(self.size), strict=True):
            low.append(0 if row == column else -most)
            high.append(most)
        return np.array(low, dtype=np.int64), np.array(high, dtype=np.int64)

    def vector(self, table: Table) -> Integers:
        """Return a party's exact sums of its rows, scaled to integers and clipped, before noise is added."""
        used = self.blocks if self.first is None else self.again
        values = [round_half_up(total * one.scale) for one in used for total in one.block.sums(table)]
        totals = [0] * (self.length - self._cells)
        for start in range(0, table.rows if self.bound else 0, _AT_ONCE):
            part = self.features(table.part(start, start + _AT_ONCE)).sum(axis=0).tolist()
            totals = [total + value for total, value in zip(totals, part, strict=True)]
        values += [round_half_up(total * self.scale) for total in totals]
        low, high = self.bounds
        exact = [min(max(value, int(a)), int(b)) for value, a, b in zip(values, low, high, strict=True)]
        return np.array(exact, dtype=np.int64)

    def features(self, table: Table) -> NDArray[np.int64]:
        """Return each row's xx' e^2 over the squared bound of e, on and above the diagonal, on a grid."""
        response = self.statistic.columns[0]
        counted = table.counted.copy()
        for name in self.statistic.columns:
            counted &= table.present[name]
        for condition in self.statistic.where:
            counted &= satisfying(condition, table)
        rows = np.flatnonzero(counted)
        x = self.design.matrix(table, rows)
        y = table.codes[response][rows] / self.schema.number(response, response).steps
        coefficients = np.array(self.at, dtype=np.float64) * COEFFICIENT
        residual = (y - x @ coefficients) / (self.bound * COEFFICIENT)
        first, second = np.triu_indices(self.size)
        parts = x[:, first] * x[:, second] * np.clip(residual, -1.0, 1.0)[:, None] ** 2
        return np.clip(np.floor(parts * GRID + 0.5), -GRID, GRID).astype(np.int64)

    def scale_texts(self) -> Any:
        """Return as JSON data the scales, coefficients and bound on which all parties must agree."""
        scales = [
            (described(one.block), _text(one.scale), _text(other.scale))
            for one, other in zip(self.blocks, self.again, strict=True)
        ]
        at = None if self.first is None else [self.bound, *self.at]
        return {"robust": scales, "squares": _text(self.scale), "at": at}

    def sums(self, total: NDArray[np.int64], present: int, rows: int | None) -> NoisySums:
        """Return the noisy sums of the normal equations in this request's opened total."""
        made: dict[Block, tuple[Floats, float]] = {}
        offset = 0
        for one in self.blocks if self.first is None else self.again:
            values = total[offset : offset + one.block.cells].astype(np.float64) / float(one.scale)
            made[one.block] = values, self._deviation_of(one, present)
            offset += one.block.cells
        if rows is not None:
            made[product(self.schema)] = np.array([float(rows)]), 0.0
        return NoisySums(self.schema, made, {}, present)

    def _deviation_of(self, one: Scaled, present: int) -> float:
        """Return the deviation of noise and rounding in a block's cells, in units of the block's sums."""
        rounding = present / 2 + 1 if one.rounded else 1.0
        return (self.deviation(present) + rounding) / float(one.scale)

    def squares(self, total: NDArray[np.int64], present: int) -> tuple[Floats, float]:
        """Return the noisy sum of xx' e^2, of columns in [-1, 1], and the deviation of an entry's noise."""
        square = (self.bound * COEFFICIENT) ** 2
        matrix = np.zeros((self.size, self.size))
        matrix[np.triu_indices(self.size)] = total[self._cells :] * (square / (GRID * float(self.scale)))
        return matrix + np.triu(matrix, 1).T, square * self.noise_of_squares(present)

    def noise_of_squares(self, present: int) -> float:
        """Return the deviation of noise and rounding in an entry of the sum of xx' e^2, for a bound of 1."""
        # each row is rounded to the grid, which is finer than the noise by far
        return (self.deviation(present) + present / 2 + 1.0) / (GRID * float(self.scale))

    @property
    def before(self) -> RobustPlan:
        """The plan of the first request."""
        return replace(self, first=None, at=(), bound=0)

    def following(self, answers: Answers) -> RobustPlan:
        """Return the second request's plan from the first one's answers, or after it the first plan."""
        if self.first is not None:
            return self.before
        bound, *numbers = answers.following
        at, sums = numbers[: self.size], numbers[self.size :]
        first = FirstSums(tuple(sums[: self.length]), tuple(sums[self.length :]))
        return replace(self, first=first, at=tuple(at), bound=bound)

    def errors(self, present: int, rows: int | None = None) -> list[PlannedError]:
        """Return the planned standard error of a coefficient; an empty list for exact sums."""
        if self.shares is None:
            return []
        expected = self.schema.rows == "private" or rows is None
        number = self.schema.rows_expected if expected else rows
        (term,) = _terms(self.statistic, self.schema)
        square = 0.0
        for pair in zip(self.blocks, self.again, strict=True):
            both = [self._deviation_of(one, present) / one.block.greatest(self.schema) for one in pair]
            square += term.squares[pair[0].block] / sum(one**-2 for one in both)
        error = math.sqrt(square) / number if number else None
        price = f"robust errors cost {PRICE:.3g} times the noise, for a second request"
        return [PlannedError(term.text, error, 1.0, error, number, expected, f"{term.assumed}; {price}")]


def plan_robust(
    schema: Schema,
    ask: Ask,
    *,
    budget: tuple[float, float] | None,
    parties: int,
    missing: int = 0,
    corrupt: int = 0,
) -> RobustPlan:
    """Plan both requests of a linear regression with robust errors, within a budget for both together.

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


def _plan_step(schema: Schema, ask: Ask, noise: StepNoise | None, parties: int) -> RobustPlan:
    """Return the plan of the first request, with noise for one step; exact sums where `noise` is None."""
    one = read_alone(ask, schema)
    terms = _terms(one, schema)
    blocks = [block for term in terms for block in term.squares if not is_public(block, schema)]
    mu = 1.0 if noise is None else gaussian_mu(noise.epsilon, noise.delta)
    spread = [each / mu for each in deviations(terms, blocks, schema, {})]
    # a bit of room more, for squares of residuals have a greater scale than the sums of some blocks
    first = scaled_blocks(blocks, spread, schema, 2 * parties, MOST_BITS)
    left = math.sqrt(1 - SHARE)
    again = [Scaled(each.block, near_scale(float(each.scale) * left)) for each in first]
    # of the indicators of a product one at most is 1 in a row
    entries = upper_norm(1 + len(one.products))
    unit = math.sqrt(SHARE / (_rows(schema) * entries)) * sensitivity_of(first, schema).l2
    scale = near_scale(unit / (schema.party_factor * schema.person_factor * GRID))
    size = len(Design(one, schema).coefficients)
    sensitivity = _sensitivity(first, again, (scale, entries, size), schema)
    shares, variance = (None, Fraction(0)) if noise is None else noise.distributed_noise(sensitivity)
    return RobustPlan(
        schema, (one,), STEPS, sensitivity, shares, variance, 0.0, 0.0, tuple(first), tuple(again), scale
    )


def _terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of the regression, over the rows that satisfy its condition."""
    return [where(term, one) for term in regression_terms(one, schema)]


def _rows(schema: Schema) -> int:
    """Return how many rows of a unit differ between neighbours, for each row that a unit has."""
    return 2 if schema.relation == "substitution" else 1


def _sensitivity(
    first: Sequence[Scaled], again: Sequence[Scaled], squares: tuple[Fraction, float, int], schema: Schema
) -> Sensitivity:
    """Return the L2 and maximum-norm sensitivity of a party's vector, valid for both requests.

    `squares`: the scale of xx' e^2; how many entries on and above its diagonal a row has other than 0, at
    most; and the number of coefficients. The inner product of two rows is 0 or more there, so the squared
    distance is at most the sum of both squared norms.
    """
    scale, entries, size = squares
    unit, length, signs = float(scale) * GRID, size * (size + 1) // 2, _rows(schema)
    grid = math.sqrt(entries) / 2 * float(scale)
    row = math.sqrt(signs * entries) * unit + signs * grid
    own = schema.party_factor * (schema.person_factor * row + math.sqrt(length))
    furthest = math.ceil(schema.person_factor * signs * scale * GRID)
    both = [sensitivity_of(blocks, schema) for blocks in (first, again)]
    return Sensitivity.on_integers(
        schema.relation,
        dimension=sum(one.block.cells for one in first) + length,
        l2=max(both[0].l2, math.hypot(both[1].l2, own)) * UP,
        linf=float(max(1, schema.party_factor * furthest, *(each.linf for each in both))),
    )


def _text(scale: Fraction) -> str:
    """Return a scale as hexadecimal text."""
    return f"{scale.numerator:x}/{scale.denominator:x}"
