"""Arguments of the aggregator's role in one pairwise statistic."""

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
    """Arguments of the aggregator's role.

    Attributes:
        make_plan: compiles an operation; raises ConfigError for an unknown one.
        quorum: the number of parties that must be present.
        random: for its part in the evaluations.
        board: stores the log of the run.
        runs: the session log on it.
    """

    make_plan: MakePlan
    quorum: int
    random: Randomness
    board: Board
    runs: SessionLog


Aggregator = Collector[Serving]
