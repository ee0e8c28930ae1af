"""k-ary randomised response: each answer is true, or any of the others, with exact rational probabilities."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.privacy.accountant.events import Event, RandomisedResponse
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.distributions import checked_parameter
from smpc_dp.privacy.guarantee import Relation, check_budget
from smpc_dp.privacy.mechanisms.base import Integers, Mechanism
from smpc_dp.privacy.response import ResponseDistribution
from smpc_dp.privacy.sampling import NoiseSource

MAX_CATEGORIES = 1 << 40


@dataclass(frozen=True)
class KaryRandomisedResponse(Mechanism):
    """Randomised response: keeps a category with chance ratio / (ratio + categories - 1), else lies.

    Answers are in 0..categories-1. Local: the neighbours of an input are all inputs (substitution) of the
    person who answers. `changed` answers of a vector may be the same person's. epsilon = changed log(ratio)
    [Kairouz, Oh, Viswanath 2014].
    """

    categories: int
    ratio: Fraction
    changed: int = 1
    relation: ClassVar[Relation] = "substitution"
    assumption = "none but the one who answers is trusted"
    proof = "closed form"
    unit = "answer"

    def __post_init__(self) -> None:
        checks = ArgumentChecks()
        checks.require_integer("categories", self.categories, 2, MAX_CATEGORIES)
        checks.require_integer("changed", self.changed, 1, MAX_CATEGORIES)
        checks.raise_issues()
        object.__setattr__(self, "ratio", checked_parameter("ratio", self.ratio))
        if self.ratio <= 1:
            raise ConfigError.at("ratio", f"must be above 1, is {self.ratio}", ConfigCheck.RANGE)

    @functools.cached_property
    def distribution(self) -> ResponseDistribution[Fraction]:
        """Probabilities of each answer, given the true category."""
        return ResponseDistribution.of_gain(self.categories, self.ratio - 1)

    @property
    def name(self) -> str:
        """Words for reports: the number of categories, and the ratio of probabilities."""
        return f"randomised response on {self.categories} categories, ratio {float(self.ratio):.10g}"

    def norms(self) -> dict[str, float]:
        """Return how many answers differ between neighbours, under the name l0."""
        return {"l0": float(self.changed)}

    def event(self) -> Event:
        """Return the release of one person's `changed` answers as one event for a ledger."""
        known = RandomisedResponse(self.categories, self.ratio, self.changed)
        return Event(self.name, self.relation, (known,))

    def release_many(self, values: ArrayLike, source: NoiseSource, count: int) -> Integers:
        """Return `count` rows of randomised answers; PrivacyError for values that are no category."""
        array = np.asarray(values)
        if array.ndim != 1:
            raise ConfigError.at(
                "values", f"must be in one row, their shape is {array.shape}", ConfigCheck.SHAPE
            )
        return self.distribution.answers(np.tile(array, (count, 1)), source)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, categories: int, changed: int = 1) -> Self:
        """Return the least noisy (epsilon, delta)-DP response; PrivacyError if there is none.

        With delta > 0 and one changed answer: (ratio - e^epsilon) / (ratio + categories - 1) <= delta.
        """
        check_budget(epsilon, delta)
        checks = ArgumentChecks()
        checks.require_integer("categories", categories, 2, MAX_CATEGORIES)
        checks.require_integer("changed", changed, 1, MAX_CATEGORIES)
        checks.raise_issues()
        if epsilon == 0:
            raise ConfigError.at("epsilon", "must be above 0 to calibrate noise", ConfigCheck.RANGE)
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
