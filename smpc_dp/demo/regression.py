"""Means, variances and a linear regression from pooled sums, and the same fit of pooled rows by numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.demo.lenders import COLUMNS, FEATURES, LENGTH, TARGET, WIDTH
from smpc_dp.errors import ConfigCheck, ConfigError

INTERCEPT = "intercept"
# The coefficients are not computed where the least eigenvalue of the features' correlations is below this.
LEAST_EIGENVALUE = 1e-9


@dataclass(frozen=True, slots=True)
class Score:
    """Quality of a regression's predictions: R² (1 is perfect) and RMSE, in the target's unit."""

    r2: float
    rmse: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of the demonstration's regression: means, variances and least-squares coefficients.

    Attributes:
        loans: number of rows.
        means, variances: by column, in its unit and its square, each rounded from the exact ratio; a variance
            divides by loans - 1.
        coefficients: "intercept" and one per feature, in the target's unit per unit of the feature.
    """

    loans: int
    means: Mapping[str, float]
    variances: Mapping[str, float]
    coefficients: Mapping[str, float]


def fit(sums: Sequence[int]) -> Fit:
    """Return means, variances and least-squares coefficients from summed statistics, or raise ConfigError.

    Raises:
        ConfigError: a wrong length, fewer than two loans, a column with one value alone, or features that
            depend linearly on each other.
    """
    if len(sums) != LENGTH:
        raise ConfigError(f"{len(sums)} sums, {LENGTH} are needed", ConfigCheck.SHAPE)
    # Python's integers, which have no bound: products of sums are exact.
    products = np.zeros((WIDTH, WIDTH), dtype=object)
    products[np.triu_indices(WIDTH)] = [int(value) for value in sums]
    loans, totals, squares = products[0, 0], products[0, 1:], products[1:, 1:]
    if loans < 2:
        raise ConfigError(f"{loans} loans have no variance", ConfigCheck.INFEASIBLE)
    spreads = np.triu(loans * squares - np.outer(totals, totals))
    scales = [10**column.decimals for column in COLUMNS]
    means, variances = {}, {}
    for column, scale, total, spread in zip(COLUMNS, scales, totals, spreads.diagonal(), strict=True):
        if spread == 0:
            raise ConfigError(f"{column.name} is the same in all loans", ConfigCheck.INFEASIBLE)
        means[column.name] = total / (loans * scale)
        variances[column.name] = spread / (loans * (loans - 1) * scale**2)
    sizes = np.sqrt(spreads.diagonal().astype(np.float64))
    upper = spreads.astype(np.float64) / np.outer(sizes, sizes)
    correlations = upper + np.triu(upper, 1).T
    matrix, right = correlations[:-1, :-1], correlations[:-1, -1]
    if np.linalg.eigvalsh(matrix)[0] < LEAST_EIGENVALUE:
        raise ConfigError(
            "the features depend linearly on each other: there is no single best fit", ConfigCheck.INFEASIBLE
        )
    deviations = sizes / np.array(scales)
    slopes = np.linalg.solve(matrix, right) * deviations[-1] / deviations[:-1]
    coefficients = dict(zip((feature.name for feature in FEATURES), slopes.tolist(), strict=True))
    explained = sum(value * means[name] for name, value in coefficients.items())
    return Fit(loans, means, variances, {INTERCEPT: means[TARGET.name] - explained, **coefficients})


def units(matrix: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Convert integer rows to floats in their units: return (ones and features, target)."""
    scales = [1.0, *(10.0**column.decimals for column in COLUMNS)]
    values = matrix / np.array(scales)
    return values[:, :-1], values[:, -1]


def pooled_fit(matrix: NDArray[np.int64]) -> dict[str, float]:
    """Return numpy's least-squares coefficients for all rows in one place, as a reference."""
    features, target = units(matrix)
    # Columns of one size: `lstsq` takes small singular values for zero.
    sizes = np.sqrt((features**2).mean(axis=0))
    sizes[sizes == 0] = 1.0
    solution = np.linalg.lstsq(features / sizes, target)[0] / sizes
    return dict(zip([INTERCEPT, *(feature.name for feature in FEATURES)], solution.tolist(), strict=True))


def score(coefficients: Mapping[str, float], matrix: NDArray[np.int64]) -> Score:
    """Return R² and RMSE of a model's predictions of the target on these rows.

    The rows must not all have the same target.
    """
    features, target = units(matrix)
    residual = target - features @ np.array(list(coefficients.values()))
    spread = target - target.mean()
    return Score(
        1.0 - float(residual @ residual) / float(spread @ spread), math.sqrt(float((residual**2).mean()))
    )
