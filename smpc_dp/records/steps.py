"""Plans that take several requests, one after the other: equal in vector, bounds, sensitivity and noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.budget import Budget, request_epsilons
from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
from smpc_dp.privacy.mechanisms.distributed import DistributedSum
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.records.ask import Ask, read_ask
from smpc_dp.records.asked import Statistic
from smpc_dp.records.plan import Priced
from smpc_dp.records.registered import LOOPS
from smpc_dp.records.schema import Schema
from smpc_dp.records.table import Integers, Table


@dataclass(frozen=True)
class SteppedPlan(Priced):
    """One request of several, planned.

    Attributes:
        statistics: what is asked for, alone.
        steps: the number of requests.
        variance: of each share of the noise.
        epsilon, delta: of all steps together; 0 and 0 for exact sums.
    """

    schema: Schema
    statistics: tuple[Statistic, ...]
    steps: int
    sensitivity: Sensitivity
    shares: DistributedSum | None
    variance: Fraction
    epsilon: float
    delta: float

    @property
    def statistic(self) -> Statistic:
        """What is asked for."""
        return self.statistics[0]

    @property
    def audited(self) -> tuple[SteppedPlan, ...]:
        """The steps that an audit releases: the first, and those whose sums are of another kind."""
        return (self,)

    @property
    def length(self) -> int:
        """The number of coordinates."""
        raise NotImplementedError

    @property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value of each coordinate of a party's vector, in every step."""
        raise NotImplementedError

    def vector(self, table: Table) -> Integers:
        """Return a party's vector of integers, without noise, shape (length,)."""
        raise NotImplementedError

    def scale_texts(self) -> Any:
        """Return what is derived with floating point, and what the step depends on of those before."""
        raise NotImplementedError

    def deviation(self, present: int) -> float:
        """Return the standard deviation of the noise in a sum over so many parties, in ring steps."""
        return math.sqrt(present * self.variance)

    def check_release(self, total: NDArray[np.int64], level: float) -> None:
        """Raise ConfigError for a noisy total of another shape, or a level that is none."""
        if not 0 < level < 1:
            raise ConfigError.at("level", f"must be in (0, 1), is {level}", ConfigCheck.RANGE)
        if total.shape != (self.length,):
            reason = f"shape must be ({self.length},), is {total.shape}"
            raise ConfigError.at("total", reason, ConfigCheck.SHAPE)


@dataclass(frozen=True)
class StepNoise:
    """What shares of noise are planned for: (epsilon, delta) of one step, and whose shares count."""

    epsilon: float
    delta: float
    parties: int
    missing: int
    corrupt: int

    def shares(self, sensitivity: Sensitivity) -> tuple[DistributedSum, Fraction]:
        """Return the sum of the least shares of an integer variance, and this variance."""
        of = {"parties": self.parties, "missing": self.missing, "corrupt": self.corrupt}
        least = DistributedSum.calibrate(DiscreteGaussian, self.epsilon, self.delta, sensitivity, **of)
        variance = Fraction(math.ceil(least.share.distribution.value))
        return DistributedSum(DiscreteGaussian(sensitivity, variance), **of), variance


Planned = TypeVar("Planned", bound=SteppedPlan)


def split_budget(
    step: Callable[[StepNoise], Planned],
    steps: int,
    budget: tuple[float, float],
    shares: tuple[int, int, int],
) -> Planned:
    """Return the first of equal steps that together are (epsilon, delta)-private.

    Args:
        step: plans one of them for a part of the budget.
        shares: parties, missing and corrupt ones, as of `plan_request`.
    """
    for epsilon in request_epsilons(Budget(epsilon=budget[0], delta=budget[1], requests=steps)):
        plan = replace(step(StepNoise(epsilon, budget[1], *shares)), epsilon=budget[0], delta=budget[1])
        if Composition([plan.event()] * steps).delta(budget[0]) <= budget[1]:
            return plan
    raise ConfigError.at("steps", f"{steps} leave each too little of epsilon", ConfigCheck.INFEASIBLE)


def read_alone(ask: Ask, schema: Schema) -> Statistic:
    """Return the statistic that takes several requests; raise ConfigError for others beside it."""
    statistics = read_ask(ask, schema)
    one = next(each for each in statistics if each.kind in LOOPS)
    if len(statistics) > 1:
        reason = f"{one.text!r} is a loop of requests: it is asked for alone"
        raise ConfigError.at("ask", reason, ConfigCheck.CONFLICT)
    return one
