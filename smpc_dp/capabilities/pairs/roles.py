"""Roles of a two-party evaluation, for the security that its plan has: who may deviate, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

from smpc_dp.capabilities.pairs.active.aggregator import ActiveAggregatorRole
from smpc_dp.capabilities.pairs.active.evaluator import ActiveEvaluatorRole
from smpc_dp.capabilities.pairs.active.garbler import ActiveGarblerRole
from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.active.setups import Setups
from smpc_dp.capabilities.pairs.covert.aggregator import CovertAggregatorRole
from smpc_dp.capabilities.pairs.covert.evaluator import CovertEvaluatorRole
from smpc_dp.capabilities.pairs.covert.garbler import CovertGarblerRole
from smpc_dp.capabilities.pairs.garbled.aggregator import AggregatorRole
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.garbled.participant import Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan, Rows
from smpc_dp.capabilities.pairs.garbled.transfers import Transfers
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.errors import LocalError
from smpc_dp.wire.signing import Context, Signer

PairTransfers = Transfers | Setups
"""What one side keeps from one evaluation to the next with the same peer in the same roles."""


def fresh_transfers(plan: Plan) -> PairTransfers:
    """Return new, empty state of transfers with one peer: `Setups` for an ActivePlan, else `Transfers`."""
    return Setups() if isinstance(plan, ActivePlan) else Transfers()


def party_role(
    context: Context,
    identity: Signer,
    plan: Plan,
    inputs: Sequence[Rows],
    randomness: Randomness,
    transfers: PairTransfers | None = None,
    *,
    session: bytes = b"",
) -> Participant:
    """Return the garbler's or evaluator's role, whichever `identity` is, for the plan's security.

    `transfers`: of earlier evaluations of the same two, for a plan without copies; `session`: the canonical
    JSON of the session, for a certificate. Raises ConfigError for inputs that do not fit.
    """
    garbles = identity.name == plan.parameters.garbler
    if isinstance(plan, ActivePlan):
        active = ActiveGarblerRole if garbles else ActiveEvaluatorRole
        if isinstance(transfers, Transfers):
            raise LocalError("transfers of one direction are not for security against both sides")
        return active(context, identity, plan, inputs, randomness, transfers)
    if plan.parameters.covert:
        if garbles:
            return CovertGarblerRole(context, identity, plan, inputs, randomness)
        return CovertEvaluatorRole(context, identity, plan, inputs, randomness, session)
    if isinstance(transfers, Setups):
        raise LocalError("setups of both directions are for security against both sides alone")
    plain = GarblerRole if garbles else EvaluatorRole
    return plain(context, identity, plan, inputs, randomness, transfers)


def aggregator_role(context: Context, identity: Signer, plan: Plan, randomness: Randomness) -> Participant:
    """Return the aggregator's role in a two-party evaluation, for the plan's security level."""
    if isinstance(plan, ActivePlan):
        return ActiveAggregatorRole(context, identity, plan, randomness)
    kind = CovertAggregatorRole if plan.parameters.covert else AggregatorRole
    return kind(context, identity, plan, randomness)
