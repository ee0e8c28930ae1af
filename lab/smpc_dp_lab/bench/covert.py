"""The part of `smpc-dp bench pairwise` with covert security: its cost beside a counted floor.

The floor of λ copies has what the protocol cannot leave out, and nothing twice. Of bytes: the transfers of
each copy, the hashes, and the tables once. Of processor time, of both sides together, each measured as such:

- the transfers of λ copies at both sides, and the garbler's part of them again in the λ - 1 that the
  evaluator checks: a copy has a setup of its own, of which the base transfers are the greatest share;
- the seed transfer: λ base transfers;
- λ copies garbled, from the labels of their transfers and coins, and λ - 1 again by the evaluator; the closed
  one opened and evaluated;
- in each garbled copy, at both sides: the hashes of its tables, corrections, label list, decoding and
  messages; and of the closed one, by the evaluator, those of what it gets;
- three signatures, made and checked: of the evaluator's commitments, the statement and the opened seeds.

It lacks the channel (TLS, sockets, threads), the other signed messages (hellos, start, hashes of all
pieces, what goes to the aggregator), and what Python does for a message.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, TypeVar

import numpy as np

from smpc_dp.crypto.garble import LABEL_BYTES, Bytes, Evaluator, Garbler, Run, opened_list
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.memory import working_memory
from smpc_dp.crypto.ot import BaseSender, Receiver, Sender, base_respond, rows_of_chunk
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.transcript import digest
from smpc_dp.identity.keys import Identity, verify
from smpc_dp.protocols.garbled.messages import TABLE_PIECE
from smpc_dp.protocols.garbled.params import PairwiseParameters
from smpc_dp.protocols.garbled.plan import COVERT_FIELD, Plan, pack_bits
from smpc_dp.published.library import find
from smpc_dp_lab.bench.drivers import Trial
from smpc_dp_lab.bench.figures import Figure, Limit, Peer, Target, cost

COPIES = (2, 4, 8)
# Instances of a batch: covert evaluations have at most 2^16 labels.
BATCH = 200
# Places of each party's coins in the circuit.
COINS = [2, 5]
# Setup of a copy's transfers (first message, response, trees), and a chunk without its transfers.
_SETUP, _CHUNK = 15_392, 16 + 24 + 2_072
_REPEATS = 5
_SIGNATURES = 3

_HOW = "processor time of garbler and evaluator together; three processes, mutual TLS on loopback"
_SIZES = "bytes of messages both sides send, to the aggregator too"
EMP_PEER = "semi-honest, channel not encrypted and connected before, the garbler learns the output"

Measured = Mapping[str, Any]
T = TypeVar("T")


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
    """Measure the processor time of the floor, of both sides together; the median of some repetitions."""
    plan = _plan(circuit, instances, copies)
    measured = [_Copy(plan) for _ in range(_REPEATS + 1)]
    # The first one finds its memory not yet there.
    return median(copy.floor(copies) for copy in measured[1:])


class _Copy:
    """The necessary work on one copy, by side, each measured once: seconds of the processor."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._count = plan.parameters.instances * plan.width(plan.evaluator_values)
        self.spent = dict.fromkeys(("sends", "receives", "garbles", "evaluates", "signs", "seeds"), 0.0)
        pads = self._transfers()
        self._evaluate(*self._garble(pads))
        self._sign()

    def floor(self, copies: int) -> float:
        """Return the sum for so many copies."""
        spent = self.spent
        checked = (copies - 1) * (spent["sends"] + spent["garbles"])
        once = spent["evaluates"] + spent["signs"]
        of_each = spent["sends"] + spent["receives"] + spent["garbles"] + spent["seeds"]
        return copies * of_each + checked + once

    def _timed(self, side: str, call: Callable[..., T], *arguments: Any) -> T:
        began = time.process_time()
        result = call(*arguments)
        self.spent[side] += time.process_time() - began
        return result

    def _transfers(self) -> Bytes:
        """Make the transfers of a copy, hash their messages at both sides; return both pads."""
        count, seed = self._count, secrets.token_bytes(32)
        sender = Sender("receiver", bytes(32), seed, COVERT_FIELD)
        receiver = Receiver("sender", bytes(32), seed[::-1], COVERT_FIELD)
        choices = pack_bits(np.zeros(count, np.uint8))
        response = self._timed("sends", sender.respond, self._timed("receives", receiver.first_message))
        trees = self._timed("receives", receiver.finish_setup, response)
        self._timed("sends", sender.finish_setup, trees)
        extension = self._timed("receives", receiver.extend, count, choices)
        challenge = self._timed("sends", sender.challenge, count, extension)
        answer, _ = self._timed("receives", receiver.random, challenge)
        pads = np.empty((2, count, LABEL_BYTES), np.uint8)
        self._timed("sends", sender.random, answer, pads)
        for side in ("sends", "receives"):
            for message in (response, trees, extension, challenge, answer):
                self._timed(side, _hash, message)
        return pads

    def _garble(self, pads: Bytes) -> tuple[Run, list[bytes], bytes]:
        """Garble a copy with all its hashes; return its settings, tables and opened label list."""
        plan = self._plan
        run: Run = plan.garbling(next(plan.blocks()), bytes(16))
        piece = min(TABLE_PIECE, plan.compiled.table_bytes(run.n_instances))
        buffer, tables = working_memory(piece), list[bytes]()
        wires = plan.wires((*plan.given(plan.garbler_values), *plan.given(plan.evaluator_values)))
        masks = plan.width(plan.given(plan.evaluator_values))
        of_masks = pads[0].reshape(-1, run.n_instances, LABEL_BYTES)[:masks]

        coins = plan.wires(plan.random(plan.garbler_values))
        drawn = np.zeros((len(coins), run.n_instances), np.uint8)
        rows = pads[0].reshape(-1, run.n_instances, LABEL_BYTES)
        theirs = [
            (plan.first_wire(value), given)
            for value, given in plan.by_value(plan.evaluator_values, rows)
            if value in plan.parameters.random_inputs
        ]

        def garble() -> Garbler:
            garbler, hashed = Garbler(plan.compiled, run, bytes(32)), StreamHash(bytes(32))
            garbler.open_inputs(coins, drawn, bytes(16))
            for first, labels in theirs:
                garbler.set_zero_labels(first, labels)
            garbler.correct(pads)
            _hash(pads[1].data.cast("B"))
            while size := garbler.fill(buffer):
                hashed.update(buffer[:size].data)
            hashed.digest()
            garbler.list_digest(wires, of_masks, bytes(16), bytes(32))
            colours = pack_bits(garbler.output_colours())
            digest(Label.COVERT_DECODING, bytes(32), garbler.output_hashes().tobytes() + colours)
            return garbler

        garbler = self._timed("garbles", garble)
        bits = np.zeros((len(wires), run.n_instances), np.uint8)
        opened = self._timed("evaluates", garbler.open_list, wires, of_masks, bytes(16), bits)
        again = Garbler(plan.compiled, run, bytes(32))
        while size := again.fill(buffer):
            tables.append(buffer[:size].tobytes())
        return run, tables, opened

    def _evaluate(self, run: Run, tables: list[bytes], opened: bytes) -> None:
        """Evaluate the closed copy, and check its messages."""
        plan = self._plan
        content = np.frombuffer(opened, np.uint8).reshape(-1, run.n_instances, 2 * LABEL_BYTES)
        bits = np.zeros((plan.width(plan.given(plan.evaluator_values)), run.n_instances), np.uint8)
        labels = np.zeros((plan.circuit.n_inputs, run.n_instances, LABEL_BYTES), np.uint8)

        def evaluate() -> None:
            opened_list(content, bits, run, bytes(32))
            _hash(labels[: self._count // run.n_instances].data.cast("B"))
            evaluator, hashed = Evaluator(plan.compiled, run), StreamHash(bytes(32))
            evaluator.set_input_labels(0, labels)
            for piece in tables:
                hashed.update(piece)
                evaluator.feed(piece)
            hashed.digest()

        self._timed("evaluates", evaluate)

    def _sign(self) -> None:
        """Make and check the signatures, and a base transfer of the seeds."""
        identity, message = Identity.generate("signer"), bytes(32)

        def sign() -> None:
            for _ in range(_SIGNATURES):
                verify(identity.public_key, message, identity.sign(message))

        def transfer() -> None:
            sender = BaseSender("receiver", bytes(32), message)
            response, _ = base_respond("sender", bytes(32), message, [0], sender.first)
            sender.keys(1, response)

        self._timed("signs", sign)
        self._timed("seeds", transfer)


def _hash(content: bytes | memoryview) -> None:
    hashed = StreamHash(bytes(32))
    hashed.update(content)
    hashed.digest()


def covert_figures(
    circuit: str,
    measured: Mapping[int, Sequence[Mapping[str, Measured]]],
    batches: Mapping[int, Sequence[Mapping[str, Measured]]],
    floors: Mapping[tuple[int, int], Sequence[float]],
    emps: Mapping[int, Trial],
) -> list[Figure]:
    """Return the figures of single pairs and of batches, by number of copies.

    `batches` has those without copies too, `floors` the seconds by copies and instances, and `emps` the
    trials of emp-sh2pc by instances.
    """
    target, figures = Target("ratio_to_limit", 1 / 1.3), list[Figure]()
    one, many = _Runs(1, emps[1]), _Runs(BATCH, emps[BATCH])
    for copies, runs in measured.items():
        name = f"fresh covert pair, λ = {copies}"
        limits = _limits(circuit, floors, 1, copies)
        figures += one.figures(name, runs, limits, target, "cached", "nothing is cached")
    plain = many.both(batches[0], "bytes")
    for copies, runs in batches.items():
        name = f"a pair of {BATCH}, λ = {copies}" if copies else f"a pair of {BATCH}, semi-honest"
        floor, goal = (_limits(circuit, floors, BATCH, copies), target) if copies else (None, None)
        figures += many.figures(name, runs, floor, goal, "open", "not the first of a process")
        if copies:
            times = [value / other for value, other in zip(many.both(runs, "bytes"), plain, strict=True)]
            most = Target("ratio_to_limit", 1 / 1.5) if copies == min(COPIES) else None
            alone = Limit("semi-honest", 1.0)
            figures.append(
                cost(f"{name}, sent", "times semi-honest", times, _SIZES, limit=alone, target=most)
            )
    return figures


def _limits(
    circuit: str, floors: Mapping[tuple[int, int], Sequence[float]], instances: int, copies: int
) -> tuple[Limit, Limit]:
    """Return the floor of the seconds and of the bytes of a pair."""
    spent = [value / instances for value in floors[copies, instances]]
    counted = floor_bytes(circuit, instances, copies) / instances
    return Limit.of("counted floor", spent), Limit.of("counted floor", [counted])


class _Runs:
    """Figures of pairs of so many at once, a pair's share of each."""

    def __init__(self, instances: int, emp: Trial) -> None:
        self._instances = instances
        self._emp = emp

    def both(self, runs: Sequence[Mapping[str, Measured]], key: str) -> list[float]:
        """Return the measurements of both sides, added up."""
        return [float(run["garbler"][key] + run["evaluator"][key]) / self._instances for run in runs]

    def _peer(self, unit: str, *names: str) -> Peer | None:
        """Return emp-sh2pc's figures of these names, added up."""
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
        opened: str,
        how: str,
    ) -> list[Figure]:
        """Return processor time and bytes beside the floors, and the clock; `opened` over open channels."""
        seconds, sizes = limits or (None, None)
        clock = [float(run["evaluator"]["wall"]) / self._instances for run in runs]
        spent = self._peer("s", "garbler", "evaluator")
        over = f"{_HOW}, connected before; {how}"
        with_floor = {"peer": spent, "limit": seconds, "target": target}
        sent = {"peer": self._peer("B", "sent"), "limit": sizes, "target": target}
        return [
            cost(name, "s", self.both(runs, "fresh"), f"{_HOW}; connecting included; {how}"),
            cost(f"{name}, open channels", "s", self.both(runs, opened), over, **with_floor),
            cost(f"{name}, wall", "s", clock, "the clock, connecting included", peer=self._peer("s", "wall")),
            cost(f"{name}, sent", "B", self.both(runs, "bytes"), _SIZES, **sent),
        ]
