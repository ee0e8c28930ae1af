"""Counted floor of a two-party evaluation: the work that no pair can leave out, measured in this process.

TLS handshakes, the base transfers and their extension, garbling or evaluating, the hash of the tables, and
the bytes over the channel. Without signatures, the hello, and what Python does for a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from smpc_dp.crypto.garble import LABEL_BYTES, Evaluator, Garbler, Run
from smpc_dp.crypto.ot import Receiver, Sender
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.tls import TlsContext
from smpc_dp.identity.keys import Identity
from smpc_dp.protocols.garbled.messages import TABLE_PIECE
from smpc_dp.protocols.garbled.params import PairwiseParameters
from smpc_dp.protocols.garbled.plan import FIELD, TRANSFERS, Plan, pack_bits
from smpc_dp.published.library import find

REPEATS = 5
# Of each side: to the other one, and to the aggregator.
HANDSHAKES = 2


class _Clock:
    """Processor time of two sides whose calls take turns."""

    def __init__(self) -> None:
        self.spent = [0.0, 0.0]

    def __call__(self, side: int, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.process_time()
        result = call(*arguments)
        self.spent[side] += time.process_time() - began
        return result


def transfer_seconds(count: int, field: int) -> tuple[float, float]:
    """Return the processor time of sender and receiver of a setup and `count` random transfers."""
    sender = Sender("receiver", bytes(32), bytes(32), field)
    receiver = Receiver("sender", bytes(32), bytes(32), field)
    timed = _Clock()
    response = timed(0, sender.respond, timed(1, receiver.first_message))
    timed(0, sender.finish_setup, timed(1, receiver.finish_setup, response))
    for begun in range(0, count, TRANSFERS):
        size = min(TRANSFERS, count - begun)
        choices = pack_bits(np.zeros(size, np.uint8))
        challenge = timed(0, sender.challenge, size, timed(1, receiver.extend, size, choices))
        timed(0, sender.random, timed(1, receiver.random, challenge)[0])
    return timed.spent[0], timed.spent[1]


def garbling_seconds(plan: Plan, *, hashes: bool = False) -> tuple[float, float]:
    """Return the processor time of garbling and hashing a block's tables, and of evaluating it.

    With `hashes` the evaluator hashes them too.
    """
    run: Run = plan.garbling(next(plan.blocks()), bytes(16))
    buffer, tables, timed = np.empty(TABLE_PIECE, np.uint8), list[bytes](), _Clock()
    garbler, hashed = timed(0, lambda: (Garbler(plan.compiled, run, bytes(32)), StreamHash(bytes(32))))
    while size := timed(0, garbler.fill, buffer):
        timed(0, hashed.update, buffer[:size].data)
        tables.append(buffer[:size].tobytes())
    evaluator = timed(1, Evaluator, plan.compiled, run)
    shape = (plan.circuit.n_inputs, run.n_instances, LABEL_BYTES)
    timed(1, evaluator.set_input_labels, 0, np.zeros(shape, np.uint8))
    for piece in tables:
        timed(1, evaluator.feed, piece)
        if hashes:
            timed(1, hashed.update, piece)
    return timed.spent[0], timed.spent[1]


def handshake_seconds() -> tuple[float, float]:
    """Return the processor time of a TLS handshake, of the end that is called and of the one that calls."""
    called, calling = Identity.generate("called"), Identity.generate("calling")
    certificates = [called.certificate, calling.certificate]
    server, client = (
        TlsContext(own.private_key_pem(), own.certificate, certificates) for own in (called, calling)
    )
    timed = _Clock()
    ends = timed(0, server.accept), timed(1, client.connect)
    hello, _ = timed(1, ends[1].shake, b"")
    answer, _ = timed(0, ends[0].shake, hello)
    last, _ = timed(1, ends[1].shake, answer)
    timed(0, ends[0].shake, last)
    return timed.spent[0], timed.spent[1]


def side_floors(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the processor time of the floor, of each side, without the bytes over the channel."""
    checked = PairwiseParameters(garbler="garbler", evaluator="evaluator", **parameters)
    plan = Plan(find(checked.circuit).build(), checked)
    count = plan.parameters.instances * plan.width(plan.evaluator_values)
    blocks = len(list(plan.blocks()))
    measures: tuple[tuple[int, Callable[[], tuple[float, float]]], ...] = (
        (HANDSHAKES, handshake_seconds),
        (1, lambda: transfer_seconds(count, FIELD)),
        (blocks, lambda: garbling_seconds(plan, hashes=True)),
    )
    spent = [(times, [measure() for _ in range(REPEATS)]) for times, measure in measures]
    return {
        side: sum(times * min(taken[index] for taken in values) for times, values in spent)
        for index, side in enumerate(("garbler", "evaluator"))
    }
