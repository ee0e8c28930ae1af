"""Plans that take several requests, one after the other: equal in vector, bounds, sensitivity and noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self, TypeVar

import msgspec
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
from smpc_dp.records.checks import check_no_party
from smpc_dp.records.plan import Priced
from smpc_dp.records.registered import LOOPS
from smpc_dp.records.schema import Schema
from smpc_dp.records.table import Integers, Table


@dataclass(frozen=True)
class SteppedPlan(Priced):
    """Base class of the plan of one request of a statistic that takes several, each based on the last.

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
        """The parsed statistic that takes the requests, the only one asked for."""
        return self.statistics[0]

    @property
    def described(self) -> dict[str, Any]:
        """The statistic as JSON data, without `numbers`: a loop takes none of an earlier answer."""
        fields: dict[str, Any] = msgspec.to_builtins(self.statistic)
        del fields["numbers"]
        return fields

    @property
    def audited(self) -> tuple[SteppedPlan, ...]:
        """The plans of steps that a privacy audit simulates; this base has itself alone."""
        return (self,)

    @property
    def length(self) -> int:
        """The length of each party's vector; subclasses define it."""
        raise NotImplementedError

    @property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value of each entry of a party's vector; subclasses define them."""
        raise NotImplementedError

    @property
    def begins(self) -> tuple[int, ...]:
        """The whole numbers from earlier requests on which this one depends; subclasses define them."""
        raise NotImplementedError

    def beginning(self, begins: Sequence[int]) -> Self:
        """Return the plan of a request that depends on these numbers; subclasses define it.

        Raises ConfigError unless they are as many as this request needs.
        """
        raise NotImplementedError

    def vector(self, table: Table) -> Integers:
        """Return a party's vector of exact integer sums; this base raises NotImplementedError."""
        raise NotImplementedError

    def scale_texts(self) -> Any:
        """Return JSON data on which parties must agree; this base raises NotImplementedError."""
        raise NotImplementedError

    def deviation(self, present: int) -> float:
        """Return the noise's standard deviation in a sum over `present` parties, in ring steps."""
        return math.sqrt(present * self.variance)

    def check_release(self, total: NDArray[np.int64], level: float) -> None:
        """Raise ConfigError for an opened sum of the wrong shape, or a level outside (0, 1)."""
        if not 0 < level < 1:
            raise ConfigError.at("level", f"must be in (0, 1), is {level}", ConfigCheck.RANGE)
        if total.shape != (self.length,):
            reason = f"shape must be ({self.length},), is {total.shape}"
            raise ConfigError.at("total", reason, ConfigCheck.SHAPE)


@dataclass(frozen=True)
class StepNoise:
    """Parameters of the noise of one step: epsilon, delta, and how many parties' shares count."""

    epsilon: float
    delta: float
    parties: int
    missing: int
    corrupt: int

    def distributed_noise(self, sensitivity: Sensitivity) -> tuple[DistributedSum, Fraction]:
        """Return the least Gaussian noise in equal shares that is private, and a share's variance."""
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
    """Return the first step's plan, with noise by which all steps keep the budget; or ConfigError.

    Args:
        step: plans one of them for a part of the budget.
        shares: parties, missing and corrupt ones, as of `plan_request`.
    """
    for epsilon in request_epsilons(Budget(epsilon=budget[0], delta=budget[1], requests=steps)):
        plan = replace(step(StepNoise(epsilon, budget[1], *shares)), epsilon=budget[0], delta=budget[1])
        if Composition([plan.event()] * steps).delta(budget[0]) <= budget[1]:
            return plan
    raise ConfigError.at("steps", f"{steps} leave each too little of epsilon", ConfigCheck.INFEASIBLE)


def read_alone(ask: Ask, schema: Schema, *, exact: bool) -> Statistic:
    """Parse the one statistic that takes several requests; raise ConfigError for others beside it.

    Raises ConfigError for an `exact` one of the column of parties too.
    """
    statistics = read_ask(ask, schema)
    one = next(each for each in statistics if each.kind in LOOPS)
    if len(statistics) > 1:
        reason = f"{one.text!r} is a loop of requests: it is asked for alone"
        raise ConfigError.at("ask", reason, ConfigCheck.CONFLICT)
    if exact:
        check_no_party(one, schema)
    return one
