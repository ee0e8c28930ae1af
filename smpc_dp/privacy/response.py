"""k-ary randomised response: the one definition for sampler, accountant, estimators and planners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.privacy import sampling
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
N = TypeVar("N", Fraction, Decimal, float)


@dataclass(frozen=True)
class ResponseDistribution(Generic[N]):
    """Distribution of a randomised response: truth with chance `retained`, else uniform over all.

    [Kairouz, Oh, Viswanath 2014; Bellet 2021, (3.8)]. `beta` = 1 - retained, without cancellation. Chances
    are exact if they are fractions.
    """

    categories: int
    retained: N
    beta: N

    @classmethod
    def of_gain(cls, categories: int, gain: N) -> ResponseDistribution[N]:
        """Return the randomised response with e^epsilon = 1 + gain."""
        return ResponseDistribution(categories, gain / (categories + gain), categories / (categories + gain))

    @classmethod
    def of_epsilon(cls, categories: int, epsilon: float) -> ResponseDistribution[float]:
        """Return the randomised response over these categories with privacy parameter epsilon."""
        return ResponseDistribution.of_gain(categories, math.expm1(epsilon))

    @classmethod
    def of_beta(cls, categories: int, beta: N) -> ResponseDistribution[N]:
        """Return the randomised response that answers uniformly with probability `beta`."""
        return ResponseDistribution(categories, 1 - beta, beta)

    @property
    def lie(self) -> N:
        """Probability of each single answer that is not the truth."""
        return self.beta / self.categories

    @property
    def true(self) -> N:
        """Probability that the answer is the true category."""
        return self.retained + self.lie

    def losses(self) -> tuple[Floats, Floats]:
        """Return the possible privacy losses of an answer, and their probabilities."""
        loss = math.log(float(self.true / self.lie))
        masses = [self.true, self.lie * (self.categories - 2), self.lie]
        return np.array([loss, 0.0, -loss]), np.array(masses, dtype=np.float64)

    def delta(self, epsilon: float) -> float:
        """Return the exact delta of one answer at `epsilon`, rounded up."""
        most, least = max(self.true, self.lie), min(self.true, self.lie)
        gain = float(most / least) - math.exp(epsilon)
        return max(0.0, gain * float(least)) * (1 + 1e-9)

    def checked(self, values: NDArray[np.integer]) -> Integers:
        """Return categories as int64; ConfigError if not integers, PrivacyError if out of range."""
        values = np.asarray(values)
        if values.dtype.kind not in "iu":
            raise ConfigError.at("values", f"must be integers, are {values.dtype}", ConfigCheck.TYPE)
        if values.size and not (values.min() >= 0 and values.max() < self.categories):
            raise PrivacyError(f"an answer is outside [0, {self.categories})")
        return values.astype(np.int64)

    def answers(self, values: NDArray[np.integer], source: NoiseSource) -> Integers:
        """Draw a randomised answer to each value; PrivacyError for values out of range."""
        true = self.checked(values).ravel()
        keep = sampling.binomial(source, len(true), 1, Fraction(self.true)) == 1
        other = sampling.uniform(source, len(true), self.categories - 1)
        other += other >= true
        return np.where(keep, true, other).reshape(np.shape(values))

    def unbiased(self, counts: NDArray[Any], answers: int) -> Floats:
        """Return unbiased estimates of the true counts, from counts of randomised answers."""
        return np.asarray((counts - float(answers * self.lie)) / float(self.retained))

    def unbiased_pairs(self, values: Floats) -> Floats:
        """Return the kernel matrix for randomised answers whose mean over pairs is unbiased for `values`.

        Its mean over pairs of answers is in expectation that of `values` over the pairs of true answers.
        (1 - beta)^-2 (e_i - b)' A (e_j - b) with b = beta/k everywhere [Bellet 2021, (3.10)]; answers must be
        of different parties.

        Args:
            values: A, shape (k, k, ...): the kernel on pairs of true answers.
        """
        # The bounds of messages that parties compare come from these very floats.
        retained = float(self.retained)
        b = (1 - retained) / self.categories
        rows, columns = values.sum(axis=1, keepdims=True), values.sum(axis=0, keepdims=True)
        result = values - b * rows - b * columns + b * b * rows.sum(axis=0, keepdims=True)
        return np.asarray(result / retained**2)

    def pair_growth(self) -> float:
        """Return a bound on how much `unbiased_pairs` enlarges the greatest absolute value."""
        retained = float(self.retained)
        return ((2 - retained) / retained) ** 2

    def count_variance(self, repeat: int = 1) -> float:
        """Return the most that one party adds to the variance of an unbiased count.

        The party contributes to one of `repeat` estimates.
        """
        retained, lie = float(self.retained), float(self.lie)
        there, elsewhere = (
            repeat * (p * (1 - 2 * lie) + lie**2) / retained**2 for p in (retained + lie, lie)
        )
        return max(there - 1, elsewhere)
