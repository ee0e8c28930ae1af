"""Linear regression from noisy second moments, with an interval for each coefficient.

docs/proofs/records.md: the residual of the noisy normal equations at the true coefficients is normal with a
covariance that depends on them alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.intervals import INFINITE, around
from smpc_dp.records.moments import Moments
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.result import Estimate

Floats = NDArray[np.float64]
REFUSED = "refused: the least eigenvalue of the second moments is within the noise"


def regressions(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the intercept and the slopes of a response over columns."""
    schema, (response, *others) = noisy.schema, one.columns
    moments = Moments(noisy, one.columns)
    equations = normal_equations(moments, response, others)
    contrasts = _contrasts(one, noisy)
    solved = equations.solve(contrasts, display.outside)
    y = schema.number(response, one.text)
    for row, name in enumerate(["intercept", *others]):
        unit = response if name == "intercept" else f"{response} / {name}"
        label, over = name if name == "intercept" else f"slope of {name}", moments.count[0]
        if solved is None:
            yield Estimate.of(one, label, unit, INFINITE, over=over, note=REFUSED)
            continue
        centre, wide, error = (float(part[row]) for part in solved)
        value = centre + (y.middle if name == "intercept" else 0.0)
        yield Estimate.of(one, label, unit, around(value, wide, 1.0), value=value, error=error, over=over)


def _contrasts(one: Statistic, noisy: NoisySums) -> Floats:
    """Return the matrix from coefficients of columns in [-1, 1] to those of the columns themselves."""
    schema, (response, *others) = noisy.schema, one.columns
    half = schema.number(response, one.text).width / 2
    matrix = np.zeros((len(others) + 1, len(others) + 1))
    matrix[0, 0] = half
    for index, name in enumerate(others, 1):
        column = schema.number(name, one.text)
        slope = half / (column.width / 2)
        matrix[index, index] = slope
        matrix[0, index] = -slope * column.middle
    return matrix


@dataclass(frozen=True)
class NormalEquations:
    """Noisy normal equations A b = y, and how each independent noise enters them.

    Attributes:
        matrix, right: the noisy A and y.
        into_matrix: for each noise with deviation 1 the change of A, shape (noises, size, size), times its
            deviation; into_right: of y, shape (noises, size).
    """

    matrix: Floats
    right: Floats
    into_matrix: Floats
    into_right: Floats

    def solve(self, contrasts: Floats, outside: float) -> tuple[Floats, Floats, Floats] | None:
        """Return for each contrast its value, half the width of its interval, and its standard error.

        None where the matrix is not clearly positive definite: then no interval is bounded.
        """
        if np.linalg.eigvalsh(self.matrix)[0] <= 0:
            return None
        inverse = np.asarray(np.linalg.inv(self.matrix), np.float64)
        estimate = inverse @ self.right
        reach = math.sqrt(chi_square(len(estimate), outside))
        own, each = self._spreads(inverse, estimate)
        growth = reach * each
        if np.abs(np.linalg.eigvals(growth)).max() >= 1:
            return None
        off = np.linalg.solve(np.eye(len(estimate)) - growth, reach * own)
        spread, slope = self._spreads(contrasts @ inverse, estimate)
        return contrasts @ estimate, reach * (spread + slope @ off), spread

    def _spreads(self, rows: Floats, estimate: Floats) -> tuple[Floats, Floats]:
        """Return the deviation of rows @ residual at the estimate, and its growth with each coefficient."""
        # residual = noise @ (into_right - into_matrix b)
        through = np.einsum("js,vsk->jvk", rows, self.into_matrix)
        at = np.einsum("js,vs->jv", rows, self.into_right) - through @ estimate
        return np.sqrt((at**2).sum(axis=1)), np.sqrt((through**2).sum(axis=1))


def normal_equations(moments: Moments, response: str, others: list[str]) -> NormalEquations:
    """Return the equations of a regression with an intercept."""
    size = len(others) + 1
    matrix, right = np.zeros((size, size)), np.zeros(size)
    changes: list[tuple[Floats, Floats]] = []

    def enter(value: tuple[float, float], row: int, column: int | None) -> None:
        into_matrix, into_right = np.zeros((size, size)), np.zeros(size)
        if column is None:
            right[row], into_right[row] = value
        else:
            for i, j in {(row, column), (column, row)}:
                matrix[i, j], into_matrix[i, j] = value
        changes.append((into_matrix, into_right))

    enter(moments.count, 0, 0)
    enter(moments.sum(response), 0, None)
    for index, name in enumerate(others, 1):
        enter(moments.sum(name), 0, index)
        enter(moments.sum(name, response), index, None)
    for (i, first), (j, second) in itertools.combinations_with_replacement(enumerate(others, 1), 2):
        enter(moments.sum(first, second), i, j)
    return NormalEquations(
        matrix, right, np.array([each for each, _ in changes]), np.array([each for _, each in changes])
    )


def chi_square(freedom: int, outside: float) -> float:
    """Return what a chi-square number of so many degrees of freedom exceeds with this probability."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import gammainccinv

    return 2 * float(gammainccinv(freedom / 2, outside)) * (1 + 1e-12)
