"""Evaluations that are secure against both sides, in one process: alice garbles, bob evaluates.

With output to the aggregator that is hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smpc_dp.capabilities.pairs.active.aggregator import ActiveAggregatorRole
from smpc_dp.capabilities.pairs.active.evaluator import ActiveEvaluatorRole
from smpc_dp.capabilities.pairs.active.garbler import ActiveGarblerRole
from smpc_dp.capabilities.pairs.active.messages import ACTIVE, VERSION
from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.active.role import ActiveRole
from smpc_dp.capabilities.pairs.active.setups import Setups
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack, unpack
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.simulation.pairwise import Tamper, evaluate_in_memory
from smpc_dp.errors import SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.signing import Context

NAMES = ("alice", "bob")
HUB = "hub"
IDENTITIES = {name: Identity.generate(name) for name in (*NAMES, HUB)}
CONTEXT = Context(
    ACTIVE, VERSION, bytes(32), 1, NAMES, HUB, {name: one.public_key for name, one in IDENTITIES.items()}
)
Ends = dict[str, Evaluated | SmpcError]


def plan_of(circuit: Circuit, instances: int = 1, k: int = 4, **parameters: Any) -> ActivePlan:
    """Return a plan, with output to both unless it is given."""
    fields = {"output": "both", "mode": "unique", "instances": instances, **parameters}
    return ActivePlan(circuit, PairwiseParameters(circuit="", garbler="alice", evaluator="bob", **fields), k)


class Pair:
    """Both sides of evaluations that have their setups in common."""

    def __init__(self, seed: int = 1, context: Context = CONTEXT) -> None:
        self._context = context
        self.setups = {name: Setups() for name in NAMES}
        self._random = {name: SeededRandomnessForSimulation(seed, name) for name in IDENTITIES}

    def evaluate(
        self,
        plan: ActivePlan,
        values: Sequence[Sequence[int]],
        tamper: Tamper | None = None,
        *,
        garbler: type[ActiveGarblerRole] = ActiveGarblerRole,
        evaluator: type[ActiveEvaluatorRole] = ActiveEvaluatorRole,
    ) -> Ends:
        """Return the ends of all, for the values of each input value that is no coin."""
        return evaluate_in_memory(self.roles(plan, values, garbler, evaluator), tamper)

    def roles(
        self,
        plan: ActivePlan,
        values: Sequence[Sequence[int]],
        garbler: type[ActiveGarblerRole] = ActiveGarblerRole,
        evaluator: type[ActiveEvaluatorRole] = ActiveEvaluatorRole,
    ) -> dict[str, ActiveRole]:
        """Return the roles of both, and with output to the aggregator its role."""
        given = iter(values)
        coins = frozenset(plan.parameters.random_inputs)
        rows = {
            index: pack(next(given), width)
            for index, width in enumerate(plan.circuit.inputs)
            if index not in coins
        }
        roles: dict[str, ActiveRole] = {}
        if plan.parameters.output == "aggregator":
            roles[HUB] = ActiveAggregatorRole(self._context, IDENTITIES[HUB], plan, self._random[HUB])
        return roles | {
            name: kind(
                self._context,
                IDENTITIES[name],
                plan,
                [rows[index] for index in plan.given(indices)],
                self._random[name],
                self.setups[name],
            )
            for name, kind, indices in (
                ("alice", garbler, plan.garbler_values),
                ("bob", evaluator, plan.evaluator_values),
            )
        }


def outputs_of(ends: Ends, plan: ActivePlan, names: Sequence[str] = NAMES) -> list[list[list[int]] | None]:
    """Return the members' outputs, value by value, each of all instances; None without any."""
    learned: list[list[list[int]] | None] = []
    for name in names:
        end = ends[name]
        if isinstance(end, SmpcError):
            raise end
        count = plan.parameters.instances
        learned.append(None if end.outputs is None else [unpack(rows, count) for rows in end.outputs])
    return learned


def expected_of(circuit: Circuit, values: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the outputs in the clear, in the same form."""
    evaluated = [circuit.evaluate(list(instance)) for instance in zip(*values, strict=True)]
    return [list(column) for column in zip(*evaluated, strict=True)]
