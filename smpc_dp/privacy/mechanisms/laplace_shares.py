"""Shares of noise whose sum over the counted parties is discrete Laplace: differences of Polya variables.

A geometric variable is a sum of n independent Polya variables, negative binomial ones of n-th roots of its
generating function; so a discrete Laplace variable, the difference of two geometric ones, is a sum of n
differences [Goryczka and Xiong 2017]. docs/proofs/records.md has the exact sampler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.prg import SEED_BYTES, expand
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy import sampling
from smpc_dp.privacy.accountant.events import AnyDescription
from smpc_dp.privacy.distributions import DiscreteLaplaceDistribution
from smpc_dp.privacy.mechanisms.additive import AdditiveNoise, DiscreteLaplace
from smpc_dp.privacy.mechanisms.base import Integers
from smpc_dp.privacy.sampling import NoiseSource

# The greatest word.
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class LaplaceShare(AdditiveNoise):
    """One party's share of noise: `parts` shares add up to discrete Laplace noise of this scale.

    More shares add independent noise to that, which is post-processing; fewer have no known guarantee.
    """

    scale: Fraction
    parts: int = 1
    family = DiscreteLaplaceDistribution
    proof = "l1 / scale; shares by infinite divisibility (docs/proofs/records.md)"

    @property
    def name(self) -> str:
        """Words for reports: the number of shares, and the noise of their sum."""
        return f"one of {self.parts} parts of {self.distribution.describe()}"

    @property
    def variance(self) -> float:
        """Variance of one share of the noise."""
        return DiscreteLaplaceDistribution(self.scale).variance / self.parts

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return bounds on the privacy loss of a sum with all shares; ConfigError if there are fewer."""
        if shares < self.parts:
            reason = f"nothing is known of {shares} shares: {self.parts} are one discrete Laplace noise"
            raise ConfigError.at("shares", reason, ConfigCheck.INFEASIBLE)
        return DiscreteLaplace(self.sensitivity, self.scale).descriptions(1)

    def noise(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` noise shares, each the difference of two Polya variables."""
        return self._polya(source, count) - self._polya(source, count)

    def _polya(self, source: NoiseSource, count: int) -> Integers:
        """Draw Polya integers exactly, `parts` of which add up to a geometric integer.

        Given the sum, the parts are those of a Polya urn, whose tables are the cycles of a uniform
        permutation: each length is uniform up to what is left, and each cycle is this part's with
        probability 1/parts.
        """
        left = sampling.geometric(source, count, 1 / self.scale)
        drawn = np.zeros(count, dtype=np.int64)
        while len(going := np.flatnonzero(left)):
            rest = left[going]
            length, tried = _uniform(source, rest)
            own, decided = _uniform(source, np.full(len(going), self.parts))
            # both are drawn anew in the next round where one is not decided
            length = np.where(tried & decided, 1 + length, 0)
            drawn[going] += np.where(own == 0, length, 0)
            left[going] = rest - length
        return drawn


def _uniform(source: NoiseSource, below: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Draw integers below each bound, and a mask of those that are uniform (the others are to be redrawn).

    Beyond the last multiple of a bound a remainder of random words would not be uniform.
    """
    seed = np.packbits(sampling.binomial(source, 8 * SEED_BYTES, 1, Fraction(1, 2)).astype(np.uint8))
    words = (expand(seed.tobytes(), len(below), np.uint64) >> np.uint64(1)).astype(np.int64)
    return words % below, words <= _MOST - (_MOST % below + 1) % below


def least_scale(l1: float, epsilon: float) -> Fraction:
    """Return the least integer scale of discrete Laplace noise for a sum that moves by `l1`, epsilon-DP."""
    return Fraction(math.ceil(Fraction(l1) / Fraction(epsilon)))
