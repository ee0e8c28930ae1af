"""The arguments of the aggregator's role in one pairwise statistic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.log.keeping import Board
from smpc_dp.log.runs import SessionLog
from smpc_dp.protocols.engine.collector import Collector
from smpc_dp.protocols.ustatistic.plan import StatisticPlan

MakePlan = Callable[[str], StatisticPlan]


@dataclass(frozen=True, slots=True)
class Serving:
    """The arguments of the aggregator's role.

    Attributes:
        make_plan: compiles an operation; raises ConfigError for one that it does not know.
        quorum: how many parties must be present.
        random: for its part in the evaluations.
        board: where the run is logged.
        runs: the session log on it.
    """

    make_plan: MakePlan
    quorum: int
    random: Randomness
    board: Board
    runs: SessionLog


Aggregator = Collector[Serving]
