"""The part of `smpc-dp bench pairwise` with covert security: its cost beside a counted floor.

Bytes of the floor are what the protocol cannot leave out, and nothing twice: the transfers of each copy, the
hashes, and the tables once. Its processor time, of both sides together, is that of `bench.covert_floor`: the
evaluator's process measures it after each pair, in turns with the pairs, with the same kernels and clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.plan import COVERT_FIELD, Plan
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.crypto.ot import rows_of_chunk
from smpc_dp_lab.bench.drivers import Trial
from smpc_dp_lab.bench.figures import Figure, Limit, Peer, Target, cost

COPIES = (2, 4, 8)
# Instances of a batch: covert evaluations have at most 2^16 labels.
BATCH = 200
# Places of each party's coins in the circuit.
COINS = [2, 5]
# Setup of a copy's transfers (first message, response, trees), and a chunk without its transfers.
_SETUP, _CHUNK = 15_392, 16 + 24 + 2_072

_HOW = (
    "processor time of garbler and evaluator together; three processes, mutual TLS on loopback; median of "
    "the pairs of a process but the first two"
)
_SIZES = "bytes of messages both sides send, to the aggregator too"
EMP_PEER = "semi-honest, channel not encrypted and connected before, the garbler learns the output"

Measured = Mapping[str, Any]


def parameters(circuit: str, instances: int, copies: int) -> dict[str, object]:
    """Return the parameters of an evaluation with output to an aggregator, as of a session file."""
    fields = {"circuit": circuit, "instances": instances, "output": "aggregator"}
    drawn = {"covert": copies, "random_inputs": COINS} if copies else {}
    return {**fields, "evaluator_inputs": [3, 4, 5], **drawn}


def _plan(circuit: str, instances: int, copies: int) -> Plan:
    fields: dict[str, Any] = parameters(circuit, instances, copies)
    return Plan(find(circuit).build(), PairwiseParameters(garbler="garbler", evaluator="evaluator", **fields))


def floor_bytes(circuit: str, instances: int, copies: int) -> float:
    """Return the bytes of the floor: transfers, hashes, and one copy of the tables."""
    plan = _plan(circuit, instances, copies)
    count = instances * plan.width(plan.evaluator_values)
    given = instances * sum(
        plan.width(plan.given(values)) for values in (plan.garbler_values, plan.evaluator_values)
    )
    transfers = copies * (_SETUP + _CHUNK + rows_of_chunk(count) * 16 // COVERT_FIELD) + 16 * count
    # Of the statement, which both the evaluator and the aggregator get, and of labels and outputs.
    hashes = 2 * 32 * (11 * copies + 5) + 16 * given + 48 * instances * plan.circuit.n_outputs
    return transfers + hashes + 32 * instances * plan.circuit.and_count


def covert_figures(
    circuit: str,
    measured: Mapping[int, Sequence[Mapping[str, Measured]]],
    batches: Mapping[int, Sequence[Mapping[str, Measured]]],
    emps: Mapping[int, Trial],
) -> list[Figure]:
    """Return the figures of single pairs and of batches, by number of copies.

    `batches` has those without copies too, and `emps` the trials of emp-sh2pc by instances.
    """
    target, figures = Target("ratio_to_limit", 1 / 1.3), list[Figure]()
    one, many = _Runs(1, emps[1]), _Runs(BATCH, emps[BATCH])
    for copies, runs in measured.items():
        name = f"fresh covert pair, λ = {copies}"
        limits = _limits(circuit, runs, 1, copies)
        figures += one.figures(name, runs, limits, target)
    plain = many.both(batches[0], "bytes")
    for copies, runs in batches.items():
        name = f"a pair of {BATCH}, λ = {copies}" if copies else f"a pair of {BATCH}, semi-honest"
        floor, goal = (_limits(circuit, runs, BATCH, copies), target) if copies else (None, None)
        figures += many.figures(name, runs, floor, goal)
        if copies:
            times = [value / other for value, other in zip(many.both(runs, "bytes"), plain, strict=True)]
            most = Target("ratio_to_limit", 1 / 1.5) if copies == min(COPIES) else None
            alone = Limit("semi-honest", 1.0)
            figures.append(
                cost(f"{name}, sent", "times semi-honest", times, _SIZES, limit=alone, target=most)
            )
    return figures


def _limits(
    circuit: str, runs: Sequence[Mapping[str, Measured]], instances: int, copies: int
) -> tuple[Limit, Limit]:
    """Return the counted floors of a pair's processor time, and of its bytes, as limits."""
    spent = [float(run["evaluator"]["floor"]) / instances for run in runs]
    counted = floor_bytes(circuit, instances, copies) / instances
    return Limit.of("counted floor", spent), Limit.of("counted floor", [counted])


class _Runs:
    """Maker of figures of covert evaluations of several instances at once, each divided by instances."""

    def __init__(self, instances: int, emp: Trial) -> None:
        self._instances = instances
        self._emp = emp

    def both(self, runs: Sequence[Mapping[str, Measured]], key: str) -> list[float]:
        """Return, by run, a measurement of garbler and evaluator added up, for one instance."""
        return [float(run["garbler"][key] + run["evaluator"][key]) / self._instances for run in runs]

    def _peer(self, unit: str, *names: str) -> Peer | None:
        """Return emp-sh2pc's figures of these names, added up, as a peer; None if none was measured."""
        peers = [
            self._emp.peer(f"last {name}", unit, EMP_PEER, lambda value: value / self._instances)
            for name in names
        ]
        given = [peer for peer in peers if peer is not None]
        return replace(given[0], median=sum(peer.median for peer in given)) if given else None

    def figures(
        self,
        name: str,
        runs: Sequence[Mapping[str, Measured]],
        limits: tuple[Limit, Limit] | None,
        target: Target | None,
    ) -> list[Figure]:
        """Return figures of a pair's processor time (with peer), bytes (with floor) and clock time."""
        seconds, sizes = limits or (None, None)
        clock = [float(run["evaluator"]["wall"]) / self._instances for run in runs]
        spent = self._peer("s", "garbler", "evaluator")
        over = f"{_HOW}; connected before"
        with_floor = {"peer": spent, "limit": seconds, "target": target}
        sent = {"peer": self._peer("B", "sent"), "limit": sizes, "target": target}
        return [
            cost(name, "s", self.both(runs, "fresh"), f"{_HOW}; connecting included"),
            cost(f"{name}, open channels", "s", self.both(runs, "open"), over, **with_floor),
            cost(f"{name}, wall", "s", clock, "the clock, connecting included", peer=self._peer("s", "wall")),
            cost(f"{name}, sent", "B", self.both(runs, "bytes"), _SIZES, **sent),
        ]
