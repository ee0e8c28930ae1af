"""The protocol `unanimous`: a secure sum over every party of the session, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from smpc_dp.engine.collector import Collector, CollectorRole, CollectorState
from smpc_dp.engine.phases.key_graph import SumMember
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.result import Outcome, Privacy
from smpc_dp.engine.run import Run
from smpc_dp.engine.session_protocol import SessionProtocol
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, ConfigIssue
from smpc_dp.secagg import states
from smpc_dp.secagg.params import SecAggParameters, SumSettings, check_sum

NAME = "unanimous"


class UnanimousParameters(SecAggParameters, frozen=True):
    """Those of secure aggregation, under a name of their own: it stands in whatever is signed or hashed."""

    protocol: ClassVar[str] = NAME

    def privacy(self, survivors: int) -> Privacy:
        """Return the claim of a secure sum, and that it is over everybody."""
        result = super().privacy(survivors)
        return replace(result, claim=f"unanimous, over all {self.plan.parties} parties: {result.claim}")


def on_survivors(member: SumMember[SumParameters], state: states.AwaitSurvivors, body: bytes) -> Transition:
    """Attest the survivors as in a secure sum, if they are all parties of the session."""
    after, messages = states.on_survivors(member, state, body)
    if len(after.survivors) < member.parties:
        raise member.refuse("a sum is over some of the parties only", Check.SET_DIFFERS)
    return Transition(after, messages)


def everyone(aggregator: Collector[SumParameters], _state: CollectorState) -> int:
    """Return how many parties each step needs."""
    return aggregator.parties


PARTY = states.PARTY.with_row(states.AwaitSurvivors, on_survivors)
AGGREGATOR = CollectorRole(tuple(replace(row, required=everyone) for row in states.AGGREGATOR.rows))


def check(
    parameters: Mapping[str, object], parties: int
) -> tuple[UnanimousParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table, which has the keys that all sums have."""
    # The default is to tolerate no loss.
    checked, _, issues = check_sum(SumSettings, parameters, parties, protocol=NAME, loss=0.0)
    if checked is None:
        return None, issues
    return UnanimousParameters(encoding=checked.encoding, plan=checked.plan), issues


def party(*arguments: Any, **named: Any) -> Run[Outcome]:
    """Make a party's role for one request; arguments as of `MakeParty`."""
    run = states.party(*arguments, **named)
    return Run(PARTY, run.member, run.state)


def aggregator(*arguments: Any, **named: Any) -> Run[Outcome]:
    """Make the aggregator's role for one request; arguments as of `MakeAggregator`."""
    run = states.aggregator(*arguments, **named)
    return Run(AGGREGATOR, run.member, run.state)


unanimous = SessionProtocol(name=NAME, versions={1: check}, party=party, aggregator=aggregator)
