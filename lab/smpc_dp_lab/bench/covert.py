"""The part of `smpc-dp bench pairwise` with covert security: its cost beside a counted floor.

The floor of λ copies has what no evaluation of this kind can leave out: transfers of each copy, the hashes,
and the tables once; of a processor's time the same, each copy being garbled by both sides but that which
stays closed. It lacks signatures, channels, active labels and the seed transfer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smpc_dp.crypto.garble import LABEL_BYTES, Evaluator, Garbler, Run
from smpc_dp.crypto.ot import Receiver, Sender, rows_of_chunk
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.protocols.garbled.messages import TABLE_PIECE
from smpc_dp.protocols.garbled.params import PairwiseParameters
from smpc_dp.protocols.garbled.plan import COVERT_FIELD, Plan, pack_bits
from smpc_dp.published.library import find
from smpc_dp_lab.bench.figures import Figure, Limit, Peer, Target, cost

COPIES = (2, 4, 8)
# Instances of a batch: covert evaluations have at most 2^16 labels.
BATCH = 200
# Places of each party's coins in the circuit.
COINS = [2, 5]
# Setup of a copy's transfers (first message, response, trees), and a chunk without its transfers.
_SETUP, _CHUNK = 15_392, 16 + 24 + 2_072
_REPEATS = 3

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


def floor_seconds(circuit: str, instances: int, copies: int) -> float:
    """Measure the processor time of the floor, of both sides together."""
    plan = _plan(circuit, instances, copies)
    count = instances * plan.width(plan.evaluator_values)
    best = min(_transfers(count) for _ in range(_REPEATS))
    sends, receives = best
    garbles, evaluates = min(_garbling(plan) for _ in range(_REPEATS))
    return copies * (sends + receives) + (copies - 1) * sends + 2 * copies * garbles + evaluates


def _transfers(count: int) -> tuple[float, float]:
    """Return the processor time of the sender and of the receiver of a copy's transfers."""
    sender = Sender("receiver", bytes(32), bytes(32), COVERT_FIELD)
    receiver = Receiver("sender", bytes(32), bytes(32), COVERT_FIELD)
    spent = [0.0, 0.0]
    choices = pack_bits(np.zeros(count, np.uint8))

    def timed(side: int, call: Any, *arguments: Any) -> Any:
        began = time.process_time()
        result = call(*arguments)
        spent[side] += time.process_time() - began
        return result

    response = timed(0, sender.respond, timed(1, receiver.first_message))
    timed(0, sender.finish_setup, timed(1, receiver.finish_setup, response))
    challenge = timed(0, sender.challenge, count, timed(1, receiver.extend, count, choices))
    timed(0, sender.random, timed(1, receiver.random, challenge)[0])
    return spent[0], spent[1]


def _garbling(plan: Plan) -> tuple[float, float]:
    """Return the processor time of garbling a copy and hashing its tables, and of evaluating it."""
    run: Run = plan.garbling(next(plan.blocks()), bytes(16))
    buffer, tables = np.empty(TABLE_PIECE, np.uint8), list[bytes]()
    began = time.process_time()
    garbler, hashed = Garbler(plan.compiled, run, bytes(32)), StreamHash(bytes(32))
    while size := garbler.fill(buffer):
        hashed.update(buffer[:size].data)
        tables.append(buffer[:size].tobytes())
    garbled = time.process_time()
    evaluator = Evaluator(plan.compiled, run)
    shape = (plan.circuit.n_inputs, run.n_instances, LABEL_BYTES)
    evaluator.set_input_labels(0, np.zeros(shape, np.uint8))
    for piece in tables:
        evaluator.feed(piece)
    return garbled - began, time.process_time() - garbled


def covert_figures(
    circuit: str,
    measured: Mapping[int, Sequence[Mapping[str, Measured]]],
    batches: Mapping[int, Sequence[Mapping[str, Measured]]],
    floors: Mapping[tuple[int, int], Sequence[float]],
    wall: Peer | None,
) -> list[Figure]:
    """Return the figures of single pairs and of batches, by number of copies.

    `batches` has those without copies too, and `floors` the seconds by copies and instances.
    """

    def both(runs: Sequence[Mapping[str, Measured]], key: str, instances: int = 1) -> list[float]:
        return [float(run["garbler"][key] + run["evaluator"][key]) / instances for run in runs]

    def clock(runs: Sequence[Mapping[str, Measured]], instances: int = 1) -> list[float]:
        return [float(run["evaluator"]["wall"]) / instances for run in runs]

    target, figures = Target("ratio_to_limit", 1 / 1.3), list[Figure]()
    how = "processor time of garbler and evaluator together; three processes, mutual TLS on loopback"
    sizes = "bytes of messages both sides send, to the aggregator too"
    for copies, runs in measured.items():
        name = f"fresh covert pair, λ = {copies}"
        seconds = Limit.of("counted floor", floors[copies, 1])
        floor = Limit.of("counted floor", [floor_bytes(circuit, 1, copies)])
        opened = f"{how}, connected before; nothing is cached"
        figures += [
            cost(name, "s", both(runs, "fresh"), f"{how}; connecting included"),
            cost(f"{name}, open channels", "s", both(runs, "cached"), opened, limit=seconds, target=target),
            cost(f"{name}, wall", "s", clock(runs), "the clock, connecting included", peer=wall),
            cost(f"{name}, sent", "B", both(runs, "bytes"), sizes, limit=floor, target=target),
        ]
    plain = both(batches[0], "bytes", BATCH)
    for copies, runs in batches.items():
        name = f"a pair of {BATCH}, λ = {copies}" if copies else f"a pair of {BATCH}, semi-honest"
        sent, beside, limited = both(runs, "bytes", BATCH), {}, {}
        if copies:
            spent = [value / BATCH for value in floors[copies, BATCH]]
            beside = {"limit": Limit.of("counted floor", spent), "target": target}
            counted = floor_bytes(circuit, BATCH, copies) / BATCH
            limited = {"limit": Limit.of("counted floor", [counted]), "target": target}
        figures += [
            cost(
                name,
                "s",
                both(runs, "fresh", BATCH),
                f"{how}; connecting included, not the first of a process",
                **beside,
            ),
            cost(f"{name}, wall", "s", clock(runs, BATCH), "the clock, connecting included"),
            cost(f"{name}, sent", "B", sent, sizes, **limited),
        ]
        if copies:
            times = [value / other for value, other in zip(sent, plain, strict=True)]
            most = Target("median", 1.5) if copies == min(COPIES) else None
            figures.append(cost(f"{name}, sent", "times semi-honest", times, sizes, target=most))
    return figures
