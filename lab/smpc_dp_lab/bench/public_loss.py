"""The loss of a batch at a public model, released with noise, for policies that see public values alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.requirements import Table
from smpc_dp.privacy.gaussian import gaussian_epsilon
from smpc_dp.privacy.record_gradients import GradientNoise, plan_gradient_noise, planned_mu

Floats = NDArray[np.float64]

# Grid steps of a record's loss at its bound.
LOSS_STEPS = 1 << 16


def losses(model: Floats, batch: Table) -> Floats:
    """Return the logistic loss of each record of a batch, labels 0 and 1 in the last column."""
    return np.asarray(np.logaddexp(0, (1 - 2 * batch[:, -1]) * (batch[:, :-1] @ model)))


@dataclass(frozen=True)
class PublicLoss:
    """Split of a privacy budget between releases of batches' losses and the global learning steps.

    Every record is in one batch, so in one release and in one global step at most: two Gaussian mechanisms
    that share mu^2, chosen one after the other by public values.

    Attributes:
        bound: that a record's loss is clipped to; another record moves the sum of the losses by as much.
        share: of mu^2.
    """

    epsilon: float
    delta: float
    bound: float = 2.0
    share: float = 0.1

    @property
    def left(self) -> float:
        """The epsilon, at the same delta, that remains for global steps after releases of losses."""
        return gaussian_epsilon(self.delta, planned_mu(self.epsilon, self.delta) * math.sqrt(1 - self.share))

    @property
    def noise(self) -> GradientNoise:
        """The noise of a release, the first of two; in grid steps of a loss."""
        return plan_gradient_noise(
            self.epsilon, self.delta, [self.share, 1 - self.share], LOSS_STEPS / 2, bits=0
        )

    def sum_steps(self, model: Floats, batch: Table) -> int:
        """Return the sum of the clipped losses in grid steps of bound/LOSS_STEPS, rounded down each."""
        parts = np.minimum(losses(model, batch), self.bound) / self.bound * LOSS_STEPS
        return int(np.minimum(np.floor(parts), LOSS_STEPS).sum())
