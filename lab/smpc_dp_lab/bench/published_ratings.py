"""Noise on gradients of ratings as published, for which no epsilon holds [Bellet et al. 2018, 5.2]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.accountant.theorems import kairouz_oh_viswanath
from smpc_dp_lab.bench.rating_tasks import Floats, Tasks


@dataclass(frozen=True)
class PublishedNoise:
    """Mean gradients of clipped records with Laplace noise of the paper's scale 2 C/(epsilon_t m)."""

    tasks: Tasks
    epsilon: float
    rng: np.random.Generator

    def mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return noisy gradients."""
        result = np.empty_like(models)
        for index, (party, model) in enumerate(zip(rows, models, strict=True)):
            slopes, clip = self.tasks.slopes(int(party), model), self.tasks.clip
            slopes /= np.maximum(1, np.linalg.norm(slopes, axis=1, keepdims=True) / clip)
            scale = 2 * clip / (self.epsilon * len(slopes))
            result[index] = slopes.mean(axis=0) + self.rng.laplace(scale=scale, size=len(model))
        return result

    def contributions(
        self, models: Floats, rows: NDArray[np.intp], factor: Floats, bits: int
    ) -> NDArray[np.int64]:
        """See `coordinate_descent.Gradients`; the paper's noise is not on a grid."""
        return self.tasks.contributions(models, rows, factor, bits)


def split_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Return the largest epsilon of each of `count` mechanisms that compose to `epsilon`, by bisection."""
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        within_it = kairouz_oh_viswanath([(middle, 0.0)] * count, delta)[0] <= epsilon
        low, high = (middle, high) if within_it else (low, middle)
    return low
