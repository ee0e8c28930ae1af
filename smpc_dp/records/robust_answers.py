"""Estimates a linear regression with heteroscedasticity-robust errors from the noisy sums of two requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.records.answers import DEFAULT_HIDE
from smpc_dp.records.features import Block
from smpc_dp.records.fit import COEFFICIENT
from smpc_dp.records.fit_answers import STEP_LEVEL
from smpc_dp.records.intervals import around, normal_quantile
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.regression import NormalEquations, normal_equations, regressions
from smpc_dp.records.result import Answers, Estimate, finite, near_zero
from smpc_dp.records.robust import MOST_RESIDUAL, RobustPlan

Floats = NDArray[np.float64]
# Residuals are cut to so many of their standard deviations at least, and farther as long as the noise of
# their squares is below this part of the variance of each coefficient.
REACH, NOISE_PART = 6.0, 0.05
UNCLEAR = "no robust error: the squares of residuals are within the noise"
NO_SQUARES = "no robust error: the first request gave no coefficients"


def robust(
    plan: RobustPlan,
    total: NDArray[np.int64],
    numbers: Sequence[int],
    *,
    rows: int | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Answers:
    """Return the coefficients after a request, after the second one with robust sampling errors.

    `numbers`: the places of the parties in the sum; other arguments as of `estimate`.
    """
    plan.check_release(total, level)
    one, present = plan.statistic, len(numbers)
    noisy = _averaged(plan, total, numbers, rows).by_condition[one.where]
    display = Display((1 - level) / (plan.size if simultaneous else 1), DEFAULT_HIDE)
    equations = normal_equations(plan.design, noisy)
    made = regressions(one, noisy, display)
    following: tuple[int, ...] = ()
    if plan.first is None:
        following = (*_following(plan, equations, present), *total.tolist(), *numbers)
    else:
        made = _with_robust(plan, made, equations, plan.squares(total, present), display.outside)
    estimates = [replace(each, name=one.named(each.name)) if one.where else each for each in made]
    return plan.answers(
        estimates, present, level=level, simultaneous=simultaneous, rows=rows, following=following
    )


def _averaged(
    plan: RobustPlan, total: NDArray[np.int64], numbers: Sequence[int], rows: int | None
) -> NoisySums:
    """Return the noisy sums of the normal equations, averaged over both requests by precision.

    Those of the first over other parties, thus about other rows, are left out.
    """
    last = plan.sums(total, len(numbers), rows)
    if plan.first is None or plan.first.numbers != tuple(numbers):
        return last
    earlier = np.array(plan.first.total, dtype=np.int64)
    first = plan.before.sums(earlier, len(numbers), rows)
    blocks: dict[Block, tuple[Floats, float]] = {}
    for block, (values, deviation) in last.blocks.items():
        before, its_deviation = first.blocks[block]
        whole = math.hypot(deviation, its_deviation)
        share = (deviation / whole) ** 2 if whole else 0.0
        blocks[block] = values + share * (before - values), its_deviation * math.sqrt(share)
    return NoisySums(last.schema, blocks, {}, last.holders)


def _following(plan: RobustPlan, equations: NormalEquations, present: int) -> tuple[int, ...]:
    """Return, as integers for the second request, the bound of residuals, 0 for none, and the coefficients.

    They do not depend on the level of intervals.
    """
    solved = equations.solve(np.eye(plan.size), 1 - STEP_LEVEL)
    left = equations.count - plan.size
    if solved is None or left <= 0:
        return (0,) * (plan.size + 1)
    inverse = np.asarray(np.linalg.inv(equations.matrix), np.float64)
    squares, noise = equations.residuals(inverse, solved.values)
    variance = (max(squares, 0.0) + 2 * noise) / left
    contrasts = plan.design.contrasts()
    rows = contrasts @ inverse
    # by White's formula the same, if the variance is alike for all rows
    expected = variance * (rows * contrasts).sum(axis=1)
    most = float((expected / (_spread(rows) * plan.noise_of_squares(present))).min())
    bound = math.sqrt(min(max(NOISE_PART * most, REACH**2 * variance), MOST_RESIDUAL**2))
    return max(1, round(bound / COEFFICIENT)), *(
        round(value / COEFFICIENT) for value in solved.values.tolist()
    )


def _spread(rows: Floats) -> Floats:
    """Return the deviation of u'Eu for each row u, E symmetric with independent entries of deviation 1."""
    squares = rows**2
    return np.asarray(np.sqrt(2 * squares.sum(axis=1) ** 2 - (squares**2).sum(axis=1)), np.float64)


def _with_robust(
    plan: RobustPlan,
    made: Iterator[Estimate],
    equations: NormalEquations,
    squares: tuple[Floats, float],
    outside: float,
) -> Iterator[Estimate]:
    """Yield coefficients with the errors of a sample whose residuals may have any variances [White 1980].

    Where an error is within its noise there is none, and the interval is that of one two standard errors
    larger.
    """
    matrix, noise = squares
    y = plan.schema.number(plan.statistic.columns[0], plan.statistic.text)
    left, z = equations.count - plan.size, normal_quantile(outside)
    contrasts = y.width / 2 * plan.design.contrasts()
    for each, contrast in zip(made, contrasts, strict=True):
        if each.value is None or each.standard_error is None or left <= 0:
            yield each
            continue
        if not plan.bound:
            none = {"sampling_error": None, "population_low": None, "population_high": None}
            yield replace(each, **none, note=NO_SQUARES)
            continue
        row = np.linalg.solve(equations.matrix, contrast)
        # the finite-sample factor is that of [MacKinnon and White 1985], HC1
        factor = equations.count / left
        square = factor * float(row @ matrix @ row)
        spread = factor * noise * float(_spread(row[None])[0])
        unclear = near_zero(square, spread)
        error = math.sqrt(max(square, 0.0) + (2 * spread if unclear else 0.0))
        low, high = around(each.value, math.hypot(each.standard_error, error), z)
        yield replace(
            each,
            sampling_error=None if unclear else finite(error),
            population_low=finite(low),
            population_high=finite(high),
            note=UNCLEAR if unclear else f"residuals are cut at {plan.bound * COEFFICIENT * y.width / 2:.3g}",
        )
