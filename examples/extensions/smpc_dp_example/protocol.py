"""The protocol `unanimous`: a secure sum over every party of the session, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from smpc_dp.errors import Check, ConfigIssue
from smpc_dp.secagg import own

NAME = "unanimous"


class UnanimousParameters(own.SecAggParameters, frozen=True):
    """Those of secure aggregation, under a name of their own: it stands in whatever is signed or hashed."""

    protocol: ClassVar[str] = NAME

    def privacy(self, survivors: int) -> own.Privacy:
        """Return the claim of a secure sum, and that it is over everybody."""
        result = super().privacy(survivors)
        return replace(result, claim=f"unanimous, over all {self.plan.parties} parties: {result.claim}")


def on_survivors(
    member: own.SumMember[own.SumParameters], state: own.AwaitSurvivors, body: bytes
) -> own.Transition:
    """Attest the survivors as in a secure sum, if they are all parties of the session."""
    after, messages = own.on_survivors(member, state, body)
    if len(after.survivors) < member.parties:
        raise member.refuse("a sum is over some of the parties only", Check.SET_DIFFERS)
    return own.Transition(after, messages)


def everyone(aggregator: own.Collector[own.SumParameters], _state: own.CollectorState) -> int:
    """Return how many parties each step needs."""
    return aggregator.parties


PARTY = own.PARTY.with_row(own.AwaitSurvivors, on_survivors)
AGGREGATOR = own.CollectorRole(tuple(replace(row, required=everyone) for row in own.AGGREGATOR.rows))


def check(
    parameters: Mapping[str, object], parties: int
) -> tuple[UnanimousParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table, which has the keys that all sums have."""
    # Defaults of a version never change, those of `own` may: so version 1 has its own. It tolerates no loss.
    given = {"corrupt": 0.1, **parameters}
    checked, _, issues = own.check_sum(own.SumSettings, given, parties, protocol=NAME, loss=0.0)
    if checked is None:
        return None, issues
    return UnanimousParameters(encoding=checked.encoding, plan=checked.plan), issues


def party(*arguments: Any, **named: Any) -> own.Run[own.Outcome]:
    """Make a party's role for one request; arguments as of `MakeParty`."""
    run = own.party(*arguments, **named)
    return own.Run(PARTY, run.member, run.state)


def aggregator(*arguments: Any, **named: Any) -> own.Run[own.Outcome]:
    """Make the aggregator's role for one request; arguments as of `MakeAggregator`."""
    run = own.aggregator(*arguments, **named)
    return own.Run(AGGREGATOR, run.member, run.state)


unanimous = own.SessionProtocol(name=NAME, versions={1: check}, party=party, aggregator=aggregator)
