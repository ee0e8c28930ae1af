"""k-ary randomised response: each answer is true, or any of the others, with exact rational chances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.errors import ConfigError, Fault, PrivacyError
from smpc_dp.privacy import sampling
from smpc_dp.privacy.accountant.events import Event, RandomisedResponse
from smpc_dp.privacy.guarantee import Relation, check_budget
from smpc_dp.privacy.laws import checked_parameter
from smpc_dp.privacy.mechanisms.base import Integers, Mechanism
from smpc_dp.privacy.sampling import NoiseSource

MAX_CATEGORIES = 1 << 40


@dataclass(frozen=True)
class KaryRandomisedResponse(Mechanism):
    """Keep an answer in 0..categories-1 with probability ratio / (ratio + categories - 1), or lie uniformly.

    Local: the neighbours of an input are all inputs (substitution) of the one who answers. `changed` answers
    of a vector may be the same person's. epsilon = changed log(ratio) [Kairouz, Oh, Viswanath 2014].
    """

    categories: int
    ratio: Fraction
    changed: int = 1

    def __post_init__(self) -> None:
        faults = []
        for name, value, low in (("categories", self.categories, 2), ("changed", self.changed, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_CATEGORIES:
                faults.append(Fault(name, f"must be an integer from {low} to 2^40, is {value!r}"))
        if faults:
            raise ConfigError(faults)
        object.__setattr__(self, "ratio", checked_parameter("ratio", self.ratio))
        if self.ratio <= 1:
            raise ConfigError([Fault("ratio", f"must be above 1, is {self.ratio}")])

    @property
    def name(self) -> str:
        return f"randomised response on {self.categories} categories, ratio {float(self.ratio):.10g}"

    @property
    def relation(self) -> Relation:
        return "substitution"

    @property
    def assumption(self) -> str:
        return "none but the one who answers is trusted"

    @property
    def proof(self) -> str:
        return "closed form"

    @property
    def unit(self) -> str:
        return "answer"

    def norms(self) -> dict[str, float]:
        """Return how many answers differ between neighbours, as l0."""
        return {"l0": float(self.changed)}

    def event(self) -> Event:
        known = RandomisedResponse(self.categories, self.ratio, self.changed)
        return Event(self.name, self.relation, (known,))

    def release_many(self, values: ArrayLike, source: NoiseSource, count: int) -> Integers:
        """Return rows of answers, int64, for values of any shape (n,); raise PrivacyError if one is none."""
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ConfigError(
                [Fault("values", f"must be integers in one row, are {array.dtype} {array.shape}")]
            )
        if len(array) and not (array.min() >= 0 and array.max() < self.categories):
            raise PrivacyError(f"an answer is outside [0, {self.categories})")
        true = np.tile(array.astype(np.int64), count)
        keep = sampling.binomial(source, len(true), 1, self.ratio / (self.ratio + self.categories - 1)) == 1
        other = sampling.uniform(source, len(true), self.categories - 1)
        other += other >= true
        return np.where(keep, true, other).reshape(count, -1)

    @property
    def kept(self) -> float:
        """1 - beta, for the answer that is the truth with 1 - beta and uniform over all k otherwise."""
        return float((self.ratio - 1) / (self.ratio - 1 + self.categories))

    def unbiased_pairs(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what pairs of answers are to count so that the mean over the answers is that of the truths.

        (1 - beta)^-2 (e_i - b)' A (e_j - b) with b = beta/k everywhere [Bellet 2021, (3.10)]; answers must be
        of different users.

        Args:
            values: A, shape (k, k, ...): what pairs of true answers count.
        """
        b = (1 - self.kept) / self.categories
        rows, columns = values.sum(axis=1, keepdims=True), values.sum(axis=0, keepdims=True)
        found = values - b * rows - b * columns + b * b * rows.sum(axis=0, keepdims=True)
        return np.asarray(found / self.kept**2)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, categories: int, changed: int = 1) -> Self:
        """Return the least random response that is (epsilon, delta)-DP, its ratio rounded down.

        With delta > 0 and one changed answer: (ratio - e^epsilon) / (ratio + categories - 1) <= delta.
        """
        check_budget(epsilon, delta)
        if epsilon == 0:
            raise ConfigError([Fault("epsilon", "must be above 0 to calibrate noise")])
        # As exact fractions: the float of e^epsilon is taken down by more than its error.
        power = Fraction(math.exp(min(epsilon / changed, 600.0)) * (1 - 1e-12))
        ratio = power
        if changed == 1 and delta > 0:
            d = Fraction(delta)
            ratio = (power + d * (categories - 1)) / (1 - d) * (1 - Fraction(1, 10**8))
            ratio = max(ratio, power)
        rounded = Fraction(math.floor(ratio * (1 << 30)), 1 << 30)
        if rounded <= 1:
            raise PrivacyError(f"epsilon = {epsilon:g} leaves nothing of the answer")
        return cls(categories, rounded, changed)
