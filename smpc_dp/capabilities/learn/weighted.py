"""Weights in private averages: a vector and its weight are encoded as one vector of a bounded norm.

With s = w/W in 0..1 and a vector v of norm at most B the averaged vector is (s v, B (s - 1)). Its squared
norm is at most B^2 (s^2 + (1 - s)^2) <= B^2: the noise for vectors alone covers the weight too, which stays
as secret as the vector. The quotient of the two averages is the weighted one, and costs nothing more. The
denominator is kept from falling below the least possible weight, as in the clipped estimator of [McMahan et
al. 2018, section 2].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Rows
from smpc_dp.errors import ConfigCheck, ConfigError


@dataclass(frozen=True, slots=True)
class Weighting:
    """Encoding that joins a vector (of L2 norm up to `bound`) and its weight, to average both at once.

    The encoded vectors have that bound too.
    """

    least: float
    most: float
    bound: float

    def extend(self, vector: Rows, weight: NDArray[np.float64]) -> Rows:
        """Return weighted vectors with their weights beside, to average; ConfigError for a bad weight.

        Raises ConfigError for a weight out of bounds.
        """
        if np.any(weight < self.least) or np.any(weight > self.most):
            bad = weight[(weight < self.least) | (weight > self.most)][0]
            raise ConfigError.at(
                "weight", f"{bad:g} is outside {self.least:g}..{self.most:g}", ConfigCheck.RANGE
            )
        share = (weight / self.most)[:, None]
        return np.concatenate([share * vector, self.bound * (share - 1.0)], axis=1)

    def split(self, averages: Rows) -> tuple[Rows, NDArray[np.float64]]:
        """Return the weighted averages and the mean weights (with noise) from averages of encoded rows."""
        share = averages[:, -1:] / self.bound + 1.0
        share = np.clip(share, max(self.least / self.most, 1e-9), 1.0)
        values = averages[:, :-1] / share
        # What the noise has moved out of the ball of all averages is brought back: that is never further off.
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        return values / np.maximum(norms / self.bound, 1.0), share[:, 0] * self.most
