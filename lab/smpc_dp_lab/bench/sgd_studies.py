"""Noise of any size and a loss, for experiments with the gradient descent of a token."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from smpc_dp.capabilities.learn.averager import Parties, Rows
from smpc_dp.capabilities.learn.walk import Limits
from smpc_dp.capabilities.learn.walk_sgd import SgdNoise
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.network.grid import Grid


def unplanned_noise(
    parties: int,
    steps: int,
    sigma: float,
    *,
    lipschitz: float = 1.0,
    max_contributions: int | None = None,
    silent: bool = False,
) -> SgdNoise:
    """Return noise of deviation `sigma` for SGD, none for 0, with no privacy claimed."""
    grid = Grid.fit(sigma or 1.0, 2 * lipschitz, noises=1)
    if not sigma:
        grid = Grid(bits=grid.bits, variance=grid.variance * 0, share=grid.share * 0, closeness=math.inf)
    return SgdNoise(parties, steps, lipschitz, grid, Limits(max_contributions), silent, None)


@dataclass(frozen=True, slots=True)
class Logistic:
    """Mean logistic loss of each party's m points: features (n, m, p), labels (n, m) of -1 and 1.

    It is 1-Lipschitz and 1/4-smooth if the points have norm at most 1.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.float64]

    def __post_init__(self) -> None:
        x, y = self.features, self.labels
        if x.ndim != 3 or y.shape != x.shape[:2]:
            reason = f"must be of shapes (n, m, p) and (n, m), are {x.shape} and {y.shape}"
            raise ConfigError.at("features, labels", reason, ConfigCheck.SHAPE)
        if not np.isfinite(x).all() or not np.isin(y, (-1, 1)).all():
            raise ConfigError.at("features, labels", "must be finite, and labels -1 or 1", ConfigCheck.RANGE)

    def gradient(self, points: Rows, parties: Parties) -> Rows:
        """Return the parties' gradients, shape (rows, p), at these points."""
        x, y = self.features[parties], self.labels[parties]
        weight = -y * expit(-y * (x * points[:, None, :]).sum(axis=2)) / x.shape[1]
        return np.asarray((weight[:, :, None] * x).sum(axis=1))

    def objective(self, points: Rows) -> NDArray[np.float64]:
        """Return the mean loss of all parties at each point, shape (rows,)."""
        flat, labels = self.features.reshape(-1, self.features.shape[2]), self.labels.ravel()
        return np.asarray(np.logaddexp(0.0, -(points @ flat.T) * labels).mean(axis=1))
