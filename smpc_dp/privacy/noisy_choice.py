"""Choices of the best of many by the exponential mechanism, and noisy values beside them, sampled exactly.

The exponential mechanism is report-noisy-max with Gumbel noise. Here a candidate is drawn uniformly and taken
with probability exp(-epsilon (best - score) / (2 D)), else another is drawn: all in integers and exact coins.
A choice is epsilon-DP, and epsilon^2/8-zCDP for its bounded range [Cesar and Rogers 2021]. A value gets
discrete Gaussian noise [Canonne, Kamath and Steinke 2020, Theorem 4].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.sampling import NoiseSource, bernoulli_exp, discrete_gaussian, uniform

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

# Coins have rates with denominators of bounded size.
_RATE = 1 << 64


@dataclass(frozen=True)
class ChoicePlan:
    """Plan of several private choices and noisy values of one party within one privacy budget.

    Attributes:
        choices: how many.
        each: epsilon of a choice.
        values: how many.
        each_value: rho of zero-concentrated DP of a value.
        epsilon, delta: of all together.
    """

    choices: int
    each: float
    values: int
    each_value: float
    epsilon: float
    delta: float

    @property
    def rho(self) -> float:
        """Rho of zero-concentrated DP of all choices and values together."""
        return self.choices * self.each**2 / 8 + self.values * self.each_value

    def variance(self, sensitivity: int) -> Fraction:
        """Return the variance of a value's noise, if one record moves the value by `sensitivity` steps."""
        return Fraction(math.ceil(sensitivity**2 / (2 * Fraction(self.each_value))))

    def noisy_value(self, steps: int, sensitivity: int, source: NoiseSource) -> int:
        """Return a value with noise, in steps, if one record moves it by at most `sensitivity` steps."""
        return steps + int(discrete_gaussian(source, 1, self.variance(sensitivity))[0])

    def event(self) -> Event:
        """Return all choices and values together as one event for a privacy ledger."""
        from smpc_dp.privacy.accountant.events import Event, Line, Pure, Renyi

        known = (Renyi((Line(0.0, self.rho),), all_orders=True), Pure(self.epsilon, self.delta))
        return Event("exponential mechanism", "substitution", known, unit="record")


@checks_numbers
def plan_choices(
    epsilon: float, delta: float, choices: int, values: int = 0, share: float = 0.0
) -> ChoicePlan:
    """Plan private choices and values within a budget, the values having the part `share` of rho.

    By zCDP; of choices alone by simple composition where that leaves more to each.

    Raises ConfigError for a budget out of range.
    """
    from smpc_dp.privacy.accountant.compose import Composition
    from smpc_dp.privacy.accountant.events import Event, Line, Renyi
    from smpc_dp.privacy.guarantee import LEAST_DELTA

    checks = ArgumentChecks()
    checks.require_budget(epsilon, delta, least=LEAST_DELTA)
    checks.raise_issues()
    low, high, many = 0.0, epsilon, max(1, choices)
    for _ in range(50):
        rho = (low + high) / 2
        bound = Event("zcdp", "substitution", (Renyi((Line(0.0, rho),), all_orders=True),))
        low, high = (rho, high) if Composition([bound]).epsilon(delta) <= epsilon else (low, rho)
    if values:
        each, each_value = math.sqrt(8 * low * (1 - share) / many), low * share / values
        return ChoicePlan(choices, each, values, each_value, epsilon, delta)
    return ChoicePlan(choices, max(math.sqrt(8 * low / many), epsilon / many), 0, 0.0, epsilon, delta)


def choose(scores: NDArray[np.int64], sensitivity: int, epsilon: float, source: NoiseSource) -> int:
    """Return a candidate's index, drawn by the exponential mechanism; ConfigError without candidates.

    Args:
        scores: in grid steps; one record moves each by at most `sensitivity`.
        epsilon: of this choice.

    Raises ConfigError if there is no candidate.
    """
    if not len(scores):
        raise ConfigError.at("scores", "there is no candidate", ConfigCheck.MISSING)
    best = int(scores.max())
    # Rounded down: a smaller epsilon.
    rate = Fraction(math.floor(Fraction(epsilon) * _RATE), _RATE) / (2 * sensitivity)
    while True:
        index = int(uniform(source, 1, len(scores))[0])
        if bernoulli_exp(source, 1, rate * (best - int(scores[index])))[0]:
            return index
