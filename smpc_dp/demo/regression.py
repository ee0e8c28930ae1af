"""Means, variances and a linear regression from pooled sums, in exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp.demo.lenders import COLUMNS, FEATURES, LENGTH, TARGET, WIDTH
from smpc_dp.errors import ConfigCheck, ConfigError

INTERCEPT = "intercept"


@dataclass(frozen=True, slots=True)
class Score:
    """Quality of predictions: R² (1: perfect, 0: no better than the mean) and RMSE in the target's unit."""

    r2: float
    rmse: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Means, variances and least squares of the target on the features, each rounded from an exact ratio.

    Attributes:
        loans: number of rows.
        means, variances: by column, in its unit and its square; a variance divides by loans - 1.
        coefficients: "intercept" and one per feature, in the target's unit per unit of the feature.
        score: of the fit on the rows that it was made from, computed from the sums alone.
    """

    loans: int
    means: Mapping[str, float]
    variances: Mapping[str, float]
    coefficients: Mapping[str, float]
    score: Score


def fit(sums: Sequence[int]) -> Fit:
    """Return means, variances and the fit from the sum of lenders' vectors, shape (LENGTH,).

    Raises:
        ConfigError: a wrong length, fewer than two loans, or features that depend linearly on each other.
    """
    if len(sums) != LENGTH:
        raise ConfigError(f"{len(sums)} sums, {LENGTH} are due", ConfigCheck.SHAPE)
    products = cross_products(sums)
    loans = products[0][0]
    if loans < 2:
        raise ConfigError(f"{loans} loans have no variance", ConfigCheck.INFEASIBLE)
    means: dict[str, float] = {}
    variances: dict[str, float] = {}
    for index, column in enumerate(COLUMNS, 1):
        total, squares, scale = products[0][index], products[index][index], 10**column.decimals
        means[column.name] = float(Fraction(total, loans * scale))
        variances[column.name] = float(Fraction(loans * squares - total**2, loans * (loans - 1) * scale**2))
    y = WIDTH - 1
    solution = _solve([row[:y] for row in products[:y]], [row[y] for row in products[:y]])
    scale = 10**TARGET.decimals
    coefficients = {INTERCEPT: float(solution[0] / scale)}
    for feature, value in zip(FEATURES, solution[1:], strict=True):
        coefficients[feature.name] = float(value * 10**feature.decimals / scale)
    explained = sum((value * products[index][y] for index, value in enumerate(solution)), Fraction(0))
    residual = products[y][y] - explained
    spread = products[y][y] - Fraction(products[0][y] ** 2, loans)
    if spread == 0:
        raise ConfigError(f"{TARGET.name} is the same in all loans", ConfigCheck.INFEASIBLE)
    score = Score(float(1 - residual / spread), math.sqrt(residual / loans) / scale)
    return Fit(loans, means, variances, coefficients, score)


def cross_products(sums: Sequence[int]) -> list[list[int]]:
    """Return the symmetric matrix, WIDTH by WIDTH, with `sums` as its upper triangle."""
    matrix = [[0] * WIDTH for _ in range(WIDTH)]
    for value, row, column in zip(sums, *np.triu_indices(WIDTH), strict=True):
        matrix[row][column] = matrix[column][row] = int(value)
    return matrix


def _solve(matrix: Sequence[Sequence[int]], right: Sequence[int]) -> list[Fraction]:
    """Solve a square system exactly, by fraction-free elimination [Bareiss 1968]."""
    size = len(right)
    work = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    previous = 1
    for k in range(size):
        pivot = next((row for row in range(k, size) if work[row][k]), None)
        if pivot is None:
            raise ConfigError(
                "the features depend linearly on each other: there is no single best fit",
                ConfigCheck.INFEASIBLE,
            )
        work[k], work[pivot] = work[pivot], work[k]
        for row in range(k + 1, size):
            for column in range(k + 1, size + 1):
                cross = work[row][column] * work[k][k] - work[row][k] * work[k][column]
                work[row][column] = cross // previous
        previous = work[k][k]
    solution = [Fraction(0)] * size
    for k in reversed(range(size)):
        known = sum((work[k][j] * solution[j] for j in range(k + 1, size)), Fraction(0))
        solution[k] = (work[k][size] - known) / work[k][k]
    return solution


def units(matrix: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows of whole numbers as (ones and features, target) in their units, float64."""
    scales = [1.0, *(10.0**column.decimals for column in COLUMNS)]
    values = matrix / np.array(scales)
    return values[:, :-1], values[:, -1]


def pooled_fit(matrix: NDArray[np.int64]) -> dict[str, float]:
    """Return the coefficients of numpy's `lstsq` for rows pooled in one place, in float64."""
    features, target = units(matrix)
    # Columns of one size: `lstsq` takes small singular values for zero.
    sizes = np.sqrt((features**2).mean(axis=0))
    sizes[sizes == 0] = 1.0
    solution = np.linalg.lstsq(features / sizes, target)[0] / sizes
    return dict(zip([INTERCEPT, *(feature.name for feature in FEATURES)], solution.tolist(), strict=True))


def score(coefficients: Mapping[str, float], matrix: NDArray[np.int64]) -> Score:
    """Return the quality of the coefficients' predictions of the rows' target.

    The rows must not all have the same target.
    """
    features, target = units(matrix)
    residual = target - features @ np.array(list(coefficients.values()))
    spread = target - target.mean()
    return Score(
        1.0 - float(residual @ residual) / float(spread @ spread), math.sqrt(float((residual**2).mean()))
    )
