"""Names that another package needs for a protocol of its own: a secure sum with other states or claims.

How it is registered: `CONTRIBUTING.md`; an example: `examples/extensions`.
"""

from smpc_dp.engine.collector import Collector, CollectorRole, CollectorState
from smpc_dp.engine.phases.key_graph import SumMember
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.result import Outcome, Privacy
from smpc_dp.engine.run import Run
from smpc_dp.engine.session_protocol import MakeAggregator, MakeParty, SessionProtocol
from smpc_dp.engine.state import Transition
from smpc_dp.secagg.params import SecAggParameters, SumSettings, check_sum
from smpc_dp.secagg.states import (
    AGGREGATOR,
    PARTY,
    AwaitSurvivors,
    aggregator,
    on_survivors,
    party,
)

__all__ = [
    "AGGREGATOR",
    "PARTY",
    "AwaitSurvivors",
    "Collector",
    "CollectorRole",
    "CollectorState",
    "MakeAggregator",
    "MakeParty",
    "Outcome",
    "Privacy",
    "Run",
    "SecAggParameters",
    "SessionProtocol",
    "SumMember",
    "SumParameters",
    "SumSettings",
    "Transition",
    "aggregator",
    "check_sum",
    "on_survivors",
    "party",
]
