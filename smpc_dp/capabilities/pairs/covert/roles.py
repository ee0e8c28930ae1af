"""Roles of a two-party evaluation: those of one copy, or covert ones, as its plan says."""

from __future__ import annotations

from collections.abc import Sequence

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
from smpc_dp.wire.signing import Context, Signer


def party_role(
    context: Context,
    identity: Signer,
    plan: Plan,
    inputs: Sequence[Rows],
    randomness: Randomness,
    transfers: Transfers | None = None,
    *,
    session: bytes = b"",
) -> Participant:
    """Return the role of the garbler or the evaluator that `identity` is.

    `transfers`: of earlier evaluations of the same two, for a plan without copies; `session`: the canonical
    JSON of the session, for a certificate. Raises ConfigError for inputs that do not fit.
    """
    covert = plan.parameters.covert
    if identity.name == plan.parameters.garbler:
        if covert:
            return CovertGarblerRole(context, identity, plan, inputs, randomness)
        return GarblerRole(context, identity, plan, inputs, randomness, transfers)
    if covert:
        return CovertEvaluatorRole(context, identity, plan, inputs, randomness, session)
    return EvaluatorRole(context, identity, plan, inputs, randomness, transfers)


def aggregator_role(context: Context, identity: Signer, plan: Plan, randomness: Randomness) -> AggregatorRole:
    """Return the aggregator's role."""
    kind = CovertAggregatorRole if plan.parameters.covert else AggregatorRole
    return kind(context, identity, plan, randomness)
