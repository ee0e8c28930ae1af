"""What it costs if each party keeps only the pairs with its nearest models [Bellet 2021, Remark 2.5]."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from smpc_dp.capabilities.learn.graph_descent import GraphObjective, nearest_pairs

Floats = NDArray[np.float64]


class NearPairs(msgspec.Struct, frozen=True, kw_only=True):
    """The best graph of near pairs alone, beside the best of all pairs.

    Attributes:
        density: lambda_3. count: of nearest models, whose pairs each party keeps. share: near pairs, of all.
        weight: of the best graph, the share of its weight that is on pairs left out.
        price: by how much the least G of the near pairs is above the least of all, over how far G of equal
            weights is above it. bound: the price at most, by `GraphObjective.excesses`.
    """

    density: float
    count: int
    share: float
    weight: float
    price: float
    bound: float


def near_pairs(
    costs: Floats, models: Floats, densities: Sequence[float], counts: Sequence[int], *, scale: float
) -> tuple[NearPairs, ...]:
    """Return, by density and number of near neighbours, how much worse a graph of near pairs is.

    Args:
        costs: of the pairs, shape (n, n), as of `GraphObjective`. models: (n, length). scale: lambda_2.
    """
    result, others = [], ~np.eye(len(models), dtype=np.bool_)
    for density in densities:
        objective = GraphObjective(costs, scale, density)
        best = least_weights(objective, others)
        least = objective.value(best)
        unit = objective.value(objective.uniform()) - least
        for count in counts:
            near = nearest_pairs(models, count)
            weights = least_weights(objective, near)
            result.append(
                NearPairs(
                    density=density,
                    count=count,
                    share=float(near.sum() / others.sum()),
                    weight=float(best[~near].sum() / best.sum()),
                    price=(objective.value(weights) - least) / unit,
                    bound=float(objective.excesses(weights).sum()) / 2 / unit,
                )
            )
    return tuple(result)


def least_weights(objective: GraphObjective, near: NDArray[np.bool_]) -> Floats:
    """Return the weights of the least G if pairs that are not near have 0, shape (n, n)."""
    rows, columns = np.nonzero(np.triu(near, 1))

    def weights_of(flat: Floats) -> Floats:
        weights = np.zeros_like(objective.costs)
        weights[rows, columns] = weights[columns, rows] = flat
        return weights

    def value(flat: Floats) -> tuple[float, Floats]:
        weights = weights_of(flat)
        return objective.value(weights), objective.gradient(weights)[rows, columns]

    ended = minimize(
        value,
        objective.uniform()[rows, columns],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(rows),
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return weights_of(ended.x)
