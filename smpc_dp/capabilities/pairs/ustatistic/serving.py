"""The aggregator of one pairwise statistic, and the arguments of its role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.engine.phases.run_log import LoggingAggregator
from smpc_dp.errors import ConfigError, LocalError

MakePlan = Callable[[str], StatisticPlan]


class Requested(msgspec.Struct, frozen=True):
    """Statistic that parties have asked an aggregator for: the operation, and its plan's digest."""

    operation: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Serving:
    """Parameters of the aggregator's run of pairwise statistics: how to make plans, and the quorum.

    Attributes:
        make_plan: compiles an operation; raises ConfigError for an unknown one.
        quorum: the number of parties that must be present.
        random: for its part in the evaluations.
        plans: for each operation that was asked for, its plan or the reason why there is none.
    """

    make_plan: MakePlan
    quorum: int
    random: Randomness
    plans: dict[str, StatisticPlan | str] = field(default_factory=dict)

    def planned(self, operation: str) -> StatisticPlan | str:
        """Return the compiled plan of an operation, or text on why there is none."""
        if operation not in self.plans:
            try:
                self.plans[operation] = self.make_plan(operation)
            except ConfigError as error:
                self.plans[operation] = str(error)
        return self.plans[operation]

    def plan(self, requested: Requested) -> StatisticPlan:
        """Return the plan of the requested statistic; raise LocalError if it changed since the start."""
        plan = self.planned(requested.operation)
        if isinstance(plan, str) or plan.digest != requested.digest:
            raise LocalError("the statistic of the run has another plan in this process")
        return plan


Aggregator = LoggingAggregator[Serving]
