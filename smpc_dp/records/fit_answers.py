"""Estimates the coefficients after a Newton step, with intervals for the noise and for what the step leaves.

docs/proofs/records.md: the loss is self-concordant, so the score and the information at one place bound how
far the coefficients of the pooled rows are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.fit import COEFFICIENT, FitPlan
from smpc_dp.records.intervals import INFINITE, Interval, around
from smpc_dp.records.regression import REFUSED, NormalEquations, chi_square
from smpc_dp.records.result import Answers, Estimate

Floats = NDArray[np.float64]
# The longest step of a coefficient of a column in [-1, 1].
LONGEST = 3.0
# Of the intervals that decide whether a step is taken: members that ask for others go on at the same place.
STEP_LEVEL = 0.95
# Of x.b, in a step whose interval is known, and what is tried to find it.
_MOST = 8.0
_ROUNDS = 1000
FAR = "no interval: the step may be too long: more steps, rows or epsilon would do"
CLIPPED = "no interval: fitted means may be above the bound of the response"


def fitted(
    plan: FitPlan, total: NDArray[np.int64], present: int, *, level: float = 0.95, simultaneous: bool = False
) -> Answers:
    """Return the coefficients after a step, and where the next one begins; arguments as of `estimate`."""
    plan.check_release(total, level)
    # for the noise of the information, and for the residual of the step; each for all coefficients at once
    outside = (1 - level) / 2
    equations = _equations(plan, total, present)
    names, contrasts = ["intercept", *plan.statistic.columns[1:]], _contrasts(plan)
    solved = _solved(plan, equations, present, outside)
    if solved is None:
        estimates = [_coefficient(plan, name, INFINITE, note=REFUSED) for name in names]
    else:
        step, wide, part = solved
        rest = _remainder(plan, equations.matrix, step, wide, part)
        shown = equations.solve(contrasts, outside)
        spread = np.sqrt(((contrasts @ np.linalg.inv(equations.matrix)) * contrasts).sum(axis=1))
        estimates = []
        for row, name in enumerate(names):
            centre, reach, deviation = (float(part[row]) for part in shown or ())
            value = float(contrasts[row] @ plan.start) + centre
            ends, note = INFINITE, rest if isinstance(rest, str) else ""
            if not isinstance(rest, str):
                ends = around(value, reach + rest * float(spread[row]), 1.0)
            estimates.append(
                _coefficient(
                    plan, name, ends, value=value, error=deviation, sampled=float(spread[row]), note=note
                )
            )
    following = _following(plan, equations, present)
    return plan.answers(estimates, present, level=level, simultaneous=simultaneous, following=following)


def _solved(
    plan: FitPlan, equations: NormalEquations, present: int, outside: float
) -> tuple[Floats, Floats, float] | None:
    """Return the Newton step, how far each coefficient of it is off, and the error of the information.

    The last is a part of the least eigenvalue; None where that is within the noise.
    """
    error = plan.deviations(present)[1] * math.sqrt(2 * chi_square(plan.length - plan.size, outside))
    solved = equations.solve(np.eye(plan.size), outside)
    least = float(np.linalg.eigvalsh(equations.matrix)[0])
    return None if solved is None or least <= error else (solved[0], solved[1], error / least)


def _following(plan: FitPlan, equations: NormalEquations, present: int) -> tuple[int, ...]:
    """Return where the next step begins, whatever level the intervals have."""
    solved = _solved(plan, equations, present, (1 - STEP_LEVEL) / 2)
    if solved is None:
        return plan.at
    step = solved[0]
    moved = plan.start + step * min(1.0, LONGEST / max(float(np.abs(step).max()), LONGEST))
    return tuple(round(value / COEFFICIENT) for value in moved.tolist())


def _equations(plan: FitPlan, total: NDArray[np.int64], present: int) -> NormalEquations:
    """Return the noisy information and score, and how each noise enters them."""
    size = plan.size
    values = total.astype(np.float64)
    score, weight = plan.deviations(present)
    matrix, right = np.zeros((size, size)), values[:size] * plan.ring_units[0]
    into_matrix = np.zeros((plan.length, size, size))
    into_right = np.zeros((plan.length, size))
    into_right[np.arange(size), np.arange(size)] = score
    for position, (i, j) in enumerate(zip(*np.triu_indices(size), strict=True), size):
        matrix[i, j] = matrix[j, i] = values[position] * plan.ring_units[1]
        into_matrix[position, i, j] = into_matrix[position, j, i] = weight
    return NormalEquations(matrix, right, into_matrix, into_right)


def _contrasts(plan: FitPlan) -> Floats:
    """Return the matrix from coefficients of columns in [-1, 1] to those of the columns themselves."""
    matrix = np.eye(plan.size)
    for index, name in enumerate(plan.statistic.columns[1:], 1):
        column = plan.schema.number(name, plan.statistic.text)
        matrix[index, index] = 2 / column.width
        matrix[0, index] = -2 / column.width * column.middle
    return matrix


def _remainder(plan: FitPlan, matrix: Floats, step: Floats, wide: Floats, part: float) -> float | str:
    """Return what a Newton step may leave, in units of the norm of a contrast; or why nothing is known.

    `matrix` is the noisy information, the true one is within `part` of it; the step is within `wide`.
    """
    least = float(np.linalg.eigvalsh(matrix)[0]) * (1 - part)
    norm = math.sqrt(float(step @ matrix @ step)) + math.sqrt(float(wide @ np.abs(matrix) @ wide))
    norm *= math.sqrt(1 + part)
    reach = math.sqrt(plan.size / least) * norm
    first = min(float((np.abs(step) + wide).sum()), reach)
    distance = _farthest(first, reach)
    if distance is None:
        return FAR
    if plan.statistic.kind == "poisson":
        highest = float(plan.start[0] + np.abs(plan.start[1:]).sum()) + distance
        if highest > math.log(plan.response.upper):
            return CLIPPED
    return _beyond(distance) * norm / math.sqrt(1 - part)


def _beyond(distance: float) -> float:
    """Return how far a step may be from its Newton step, in its own norm, if rows move by `distance`."""
    return distance / -math.expm1(-distance) - 1 if distance > 1e-12 else distance


def _farthest(first: float, reach: float) -> float | None:
    """Return the least D with first + reach * _beyond(D) <= D: how far x.b moves; None if above 8."""
    distance = first
    for _ in range(_ROUNDS):
        following = first + reach * _beyond(distance)
        if following <= distance * (1 + 1e-9):
            return distance * (1 + 1e-6)
        distance = following * (1 + 1e-10)
        if distance > _MOST:
            return None
    return None


def _coefficient(
    plan: FitPlan,
    name: str,
    ends: Interval,
    *,
    value: float | None = None,
    error: float | None = None,
    sampled: float | None = None,
    note: str = "",
) -> Estimate:
    label = name if name == "intercept" else f"slope of {name}"
    unit = "log odds" if plan.statistic.kind == "logistic" else "log mean"
    per = unit if name == "intercept" else f"{unit} / {name}"
    return Estimate.of(plan.statistic, label, per, ends, value=value, error=error, sampled=sampled, note=note)
