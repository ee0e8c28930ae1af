"""Estimates the coefficients after Newton steps, with intervals for the noise and for what the steps leave.

docs/proofs/records.md: the loss is self-concordant, so the scores and the information of the averaged steps
bound how far the coefficients of the pooled rows are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.fit import COEFFICIENT, FitPlan, Sums
from smpc_dp.records.formula import Coefficient
from smpc_dp.records.intervals import INFINITE, Interval, around
from smpc_dp.records.population import Sampling, first_order
from smpc_dp.records.regression import REFUSED, chi_square
from smpc_dp.records.result import Answers, Estimate, lost_note

Floats = NDArray[np.float64]
# The longest step of a coefficient of a column in [-1, 1].
LONGEST = 3.0
# Of the intervals that decide whether a step is taken: members that ask for others go on at the same place.
_STEP_LEVEL = 0.95
# Steps are averaged after one that moved x.b by less than this, and by so little that its square over
# _SQUARE, about what it leaves, is within the noise.
NEAR, _SQUARE = 1.0, 16.0
# The least share of a response's range that the first step takes for the mean.
_LEAST = 0.005
# Of the error probability what is for the noise of the information.
_INFORMATION = 0.1
# Least eigenvalues below this part of the greatest one may be the rounding of rows to parts of 2^30.
_ROUNDING = 1e-8
# The farthest that x.b may be between an averaged step and the estimate.
_MOST = 8.0
FAR = "no interval: the noise leaves open how far steps are: more rows or epsilon or fewer columns would do"
CLIPPED = "no interval: fitted means may be above the bound of the response"


@dataclass(frozen=True)
class _Step:
    """Noisy score and information matrix of one Newton step, with the coefficients at which it was taken."""

    at: Floats
    score: Floats
    information: Floats


@dataclass(frozen=True)
class _Average:
    """Estimator of regression coefficients that averages the normal equations of noisy Newton steps."""

    steps: tuple[_Step, ...]
    score: float
    weight: float

    @cached_property
    def matrix(self) -> Floats:
        """The mean of the information matrices of all averaged steps."""
        return np.asarray(np.mean([step.information for step in self.steps], axis=0), np.float64)

    @cached_property
    def value(self) -> Floats:
        """The estimated coefficients, which solve the averaged normal equations."""
        right = np.mean([step.score + step.information @ step.at for step in self.steps], axis=0)
        return np.asarray(np.linalg.solve(self.matrix, right), np.float64)

    @cached_property
    def moves(self) -> list[Floats]:
        """The differences of the estimated coefficients from each step's starting coefficients."""
        return [self.value - step.at for step in self.steps]

    def errors(self, outside: float) -> tuple[float, float]:
        """Return bounds, each wrong with probability `outside`, on noise norms of mean and all matrices."""
        count, parts = len(self.steps), len(self.matrix) * (len(self.matrix) + 1) // 2
        mean, every = chi_square(parts, outside) / count, chi_square(parts * count, outside)
        return self.weight * math.sqrt(2 * mean), self.weight * math.sqrt(2 * every)

    def is_clear(self, outside: float) -> bool:
        """Tell whether the mean information is positive definite beyond its noise and rounding errors."""
        values = np.linalg.eigvalsh(self.matrix)
        return float(values[0]) > max(self.errors(outside)[0], _ROUNDING * float(values[-1]))

    def deviations(self, contrasts: Floats) -> Floats:
        """Return each contrast's standard error from the noise, to first order."""
        rows = contrasts @ np.linalg.inv(self.matrix)
        square = (rows**2).sum(axis=1)
        total = self.score**2 * square * len(self.steps)
        for move in self.moves:
            # the variance of row.E.move, where E is symmetric, independent on and above its diagonal
            spread = square * (move @ move) + (rows @ move) ** 2 - (rows**2) @ move**2
            total = total + self.weight**2 * spread
        return np.asarray(np.sqrt(total) / len(self.steps), np.float64)


def fitted(
    plan: FitPlan,
    total: NDArray[np.int64],
    numbers: Sequence[int],
    *,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Answers:
    """Return the estimated regression coefficients after a Newton step, and where the next step begins.

    Other arguments as of `estimate`; intervals hold for all coefficients at once.
    """
    plan.check_release(total, level)
    present, outside = len(numbers), 1 - level
    last = Sums(plan.at, tuple(total.tolist()), tuple(numbers))
    # sums over other parties are about other rows
    alike = [sums for sums in plan.averaged or () if sums.numbers == last.numbers]
    average = _Average(tuple(_step(plan, sums) for sums in (*alike, last)), *plan.deviations(present))
    names, contrasts = plan.design.coefficients, plan.design.contrasts()
    lost = {one for one in plan.design.lost(plan.schema.lost_parties(numbers)) if one is not None}
    if lost:
        estimates = [_coefficient(plan, name, INFINITE, note=lost_note(lost)) for name in names]
    elif average.is_clear(outside * _INFORMATION / 2):
        wide = _wide(plan, average, contrasts, outside)
        estimates = _estimates(plan, average, names, contrasts, wide, outside)
    else:
        estimates = [_coefficient(plan, name, INFINITE, note=REFUSED) for name in names]
    following = (*_following(plan, average), *last.total, *last.numbers)
    return plan.answers(estimates, present, level=level, simultaneous=simultaneous, following=following)


def _estimates(
    plan: FitPlan,
    average: _Average,
    names: list[Coefficient],
    contrasts: Floats,
    wide: Floats | str,
    outside: float,
) -> list[Estimate]:
    """Return estimates of all coefficients; `wide`: their intervals' half widths, or why there are none."""
    spread = np.sqrt(((contrasts @ np.linalg.inv(average.matrix)) * contrasts).sum(axis=1))
    parts = (contrasts @ average.value, average.deviations(contrasts), spread)
    rows = zip(names, *(part.tolist() for part in parts), strict=True)
    made = []
    for row, (name, value, error, sampled) in enumerate(rows):
        ends, note = (INFINITE, wide) if isinstance(wide, str) else (around(value, float(wide[row]), 1.0), "")
        both = Sampling(sampled) if note else first_order(value, error, sampled, outside)
        made.append(_coefficient(plan, name, ends, value=value, error=error, sampled=both, note=note))
    return made


def _following(plan: FitPlan, average: _Average) -> tuple[int, ...]:
    """Return, as integers, the next step's starting coefficients and 1 if steps are averaged from it on."""
    begun = plan.averaged is not None
    if not average.is_clear(1 - _STEP_LEVEL):
        return *plan.at, int(begun)
    start, step = plan.start, average.value - plan.start
    if not any(plan.at[1:]) and not begun:
        start, step = _step_from_intercept(plan, average.steps[-1])
    moved = start + step * min(1.0, LONGEST / max(float(np.abs(step).max()), LONGEST))
    inverse = np.linalg.inv(average.matrix)
    noise = average.score * math.sqrt(float(np.abs(inverse @ inverse).sum()))
    near = float(np.abs(step).sum()) <= min(NEAR, math.sqrt(_SQUARE * noise))
    return *(round(value / COEFFICIENT) for value in moved.tolist()), int(begun or near)


def _step_from_intercept(plan: FitPlan, step: _Step) -> tuple[Floats, Floats]:
    """Return the intercept-only fit, and a Newton step from it, given a step at an intercept alone.

    At an intercept alone all rows have one mean and one weight, so the sums there give those at any other.
    """
    first, upper = float(step.at[0]), plan.units[0]
    mean, weight = _mean(plan, first)
    columns = step.information[0] / weight
    rate = (float(step.score[0]) + mean * float(columns[0])) / float(columns[0])
    rate = min(max(rate, _LEAST * upper), (1 - _LEAST) * upper)
    fit = math.log(rate / (1 - rate)) if plan.statistic.kind == "logistic" else math.log(rate)
    score = step.score + (mean - rate) * columns
    moved = np.linalg.solve(step.information * (_mean(plan, fit)[1] / weight), score)
    start = np.zeros(plan.size)
    start[0] = fit
    return start, np.asarray(moved, np.float64)


def _mean(plan: FitPlan, intercept: float) -> tuple[float, float]:
    """Return the mean and the weight of every row in a model with an intercept alone."""
    if plan.statistic.kind == "poisson":
        return math.exp(intercept), math.exp(intercept)
    mean = 1 / (1 + math.exp(-intercept))
    return mean, mean * (1 - mean)


def _step(plan: FitPlan, sums: Sums) -> _Step:
    """Return a completed step's score and symmetric information matrix, decoded from opened integer sums."""
    size = plan.size
    values = np.array(sums.total, dtype=np.float64)
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = values[size:] * plan.ring_units[1]
    matrix = matrix + np.triu(matrix, 1).T
    at = np.array(sums.at, dtype=np.float64) * COEFFICIENT
    return _Step(at, values[:size] * plan.ring_units[0], matrix)


def _wide(plan: FitPlan, average: _Average, contrasts: Floats, outside: float) -> Floats | str:
    """Return half widths of simultaneous intervals of all contrasts, or a note that says why none are known.

    The names are those of docs/proofs/records.md: `reach` is G, `distance` is D, `norm` is N.
    """
    steps, count, size = average.steps, len(average.steps), plan.size
    mean_error, error = average.errors(outside * _INFORMATION / 2)
    noise = average.score * math.sqrt(chi_square(size, outside * (1 - _INFORMATION)) / count)
    far = [float(np.abs(move).sum()) for move in average.moves]
    if max(far) > _MOST:
        return FAR
    linear = noise + error * float(np.linalg.norm(average.moves)) / count
    above = [step.information + error * np.eye(size) for step in steps]
    norms = [_norm(matrix, move) for matrix, move in zip(above, average.moves, strict=True)]
    # of the information at the estimate
    lower = math.exp(-max(far)) * (average.matrix - mean_error * np.eye(size))
    inverse, least = np.linalg.inv(lower), math.sqrt(float(np.linalg.eigvalsh(lower)[0]))
    left = [_growth(one) * math.exp(one / 2) * norm for one, norm in zip(far, norms, strict=True)]
    reach = linear / least + float(np.mean(left))
    part = math.sqrt(float(np.abs(inverse).sum())) * reach
    if part >= 1:
        return FAR
    distance = -math.log1p(-part)
    if plan.statistic.kind == "poisson" and _highest(average, distance) > math.log(plan.response.upper):
        return CLIPPED
    norm = reach * distance / part
    rows = contrasts @ np.linalg.inv(average.matrix)
    wide = (linear + mean_error * norm / least) * np.sqrt((rows**2).sum(axis=1))
    for one, matrix, own in zip(far, above, norms, strict=True):
        spread = np.sqrt(((rows @ matrix) * rows).sum(axis=1))
        wide = wide + _growth(one + distance) * (own + math.exp(one / 2) * norm) / count * spread
    whole = norm * np.sqrt(((contrasts @ inverse) * contrasts).sum(axis=1))
    return np.asarray(np.minimum(wide, whole), np.float64)


def _highest(average: _Average, distance: float) -> float:
    """Return an upper bound on the linear predictor of any row, between the steps and the exact solution."""
    points = [(step.at, 0.0) for step in average.steps] + [(average.value, distance)]
    return max(float(at[0] + np.abs(at[1:]).sum()) + more for at, more in points)


def _norm(matrix: Floats, vector: Floats) -> float:
    """Return the norm of a vector in the metric of a matrix, sqrt(v' M v)."""
    return math.sqrt(float(vector @ matrix @ vector))


def _growth(distance: float) -> float:
    """Return a bound on the relative change of a row's mean weight as its linear predictor moves this far."""
    return math.expm1(distance) / distance - 1 if distance > 1e-6 else distance


def _coefficient(
    plan: FitPlan,
    which: Coefficient,
    ends: Interval,
    *,
    value: float | None = None,
    error: float | None = None,
    sampled: Sampling | None = None,
    note: str = "",
) -> Estimate:
    """Return the estimate of one coefficient, labelled and with its unit."""
    unit = "log odds" if plan.statistic.kind == "logistic" else "log mean"
    label, per = plan.design.label(which), plan.design.unit(which, unit)
    return Estimate.of(plan.statistic, label, per, ends, value=value, error=error, sampled=sampled, note=note)
