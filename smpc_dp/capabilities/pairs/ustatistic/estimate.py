"""Estimate, standard error and confidence interval from the noisy kernel values of pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.garbled.draw import Pairs
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.circuit_noise import Raw

# Below this many pairs a standard error is meaningless.
LEAST_PAIRS = 3


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a kernel's mean over pairs: value, standard error, interval, and how many pairs failed.

    `standard_error` covers sampling and noise, from the noisy values themselves, which costs no privacy;
    with `interval`, at `level`, it is None below 3 pairs. `noise_error` is the part of it that the noise
    alone makes. `pairs` were evaluated, `failed` were drawn and not evaluated.
    """

    value: float
    standard_error: float | None
    interval: tuple[float, float] | None
    level: float
    noise_error: float
    pairs: int
    failed: int

    @property
    def figures(self) -> tuple[float, float | None, float | None, float | None, float, float]:
        """Value, error, interval, level and noise error, in the order of the result message."""
        low, high = self.interval or (None, None)
        return self.value, self.standard_error, low, high, self.level, self.noise_error


def estimate(
    plan: StatisticPlan, pairs: Pairs, raw: Raw, *, drawn: int | None = None, level: float = 0.95
) -> Estimate:
    """Return the mean of pairs' noisy values, with standard error and interval; ConfigError without pairs.

    `raw` are the circuit's outputs, shape (m,), for `pairs`, shape (m, 2), out of `drawn`. Pairs with a party
    in common are not independent: the variance is the sum of the products of residuals over all pairs of
    pairs that share a party [Aronow, Samii, Assenova 2015]. The interval is Student's, with half the number
    of parties less 1 degrees of freedom: an approximation, good for tens of pairs and more.

    Raises ConfigError when there is no pair at all, and for a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ConfigError.at("level", f"{level!r} is not between 0 and 1", ConfigCheck.RANGE)
    m = len(pairs)
    failed = (m if drawn is None else drawn) - m
    if not m:
        raise ConfigError.at("pairs", f"none of {failed} was evaluated", ConfigCheck.INFEASIBLE)
    values = plan.low + plan.unit * plan.noise.read(raw)
    value = float(values.mean())
    noise_error = plan.unit * math.sqrt(plan.noise.variance / m)
    if m < LEAST_PAIRS:
        return Estimate(value, None, None, level, noise_error, m, failed)
    least = plan.unit**2 * plan.noise.least_variance / m
    error = math.sqrt(max(_variance(pairs, values - value), least))
    # Not at the top: scipy takes a while to load.
    from scipy.special import stdtrit

    freedom = max(1, len(np.unique(pairs)) // 2 - 1)
    reach = error * float(stdtrit(freedom, (1 + level) / 2))
    return Estimate(value, error, (value - reach, value + reach), level, noise_error, m, failed)


def _variance(pairs: Pairs, residuals: NDArray[np.float64]) -> float:
    """Return the estimated variance of a mean over pairs, some of which share a party."""
    m = len(pairs)
    _, indices = np.unique(pairs, return_inverse=True)
    indices = indices.reshape(-1)
    of_parties = np.bincount(indices, weights=np.repeat(residuals, 2))
    ends = np.sort(indices.reshape(m, 2), axis=1)
    _, group = np.unique(ends[:, 0] * (indices.max() + 1) + ends[:, 1], return_inverse=True)
    # Two evaluations of the same pair share two parties, and count once.
    of_pairs = np.bincount(group.reshape(-1), weights=residuals)
    clustered = float(of_parties @ of_parties - of_pairs @ of_pairs)
    # Residuals are from the estimated mean: each product is less by the variance of the mean.
    degrees, repeats = np.bincount(indices), np.bincount(group.reshape(-1))
    products = int(degrees @ degrees - repeats @ repeats)
    # Never below that of independent pairs.
    independent = float(residuals @ residuals) / (m * (m - 1))
    return max(clustered / (m * m - products), independent) if products < m * m else independent
