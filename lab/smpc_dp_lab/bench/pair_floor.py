"""Counted floor of a two-party evaluation: the work that no pair can leave out, measured in this process.

Connections and their TLS handshakes; the base transfers, their extension and the labels from it; garbling or
evaluating; the hash of all pieces; the outputs, sealed for the aggregator; signatures and their checks; the
system calls and the encryption of as many short messages as one block has; and the bytes over the channel.
Without waits, and what Python does for a message.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.garbled.messages import TABLE_PIECE
from smpc_dp.capabilities.pairs.garbled.plan import FIELD, TRANSFERS, Bits, Plan, pack_bits, unpack_bits
from smpc_dp.crypto.agree import agree, public_key
from smpc_dp.crypto.garble import LABEL_BYTES, Evaluator, Garbler, Run, Wires
from smpc_dp.crypto.memory import working_memory
from smpc_dp.crypto.ot import Receiver, Sender
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.crypto.seal import seal
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.identity.keys import Identity, verify
from smpc_dp_lab.bench.wire import CALLED, CALLING, Wire

SHORT_BYTES = 256


class _Side(NamedTuple):
    """What one side does: connections in which it is called, and calls; messages that it sends, and receives.

    Of one block with one chunk of transfers. The messages are those of all steps: the first of each direction
    are in the connection.
    """

    called: int
    calls: int
    sends: int
    receives: int


SIDES = {"garbler": _Side(1, 1, 10, 9), "evaluator": _Side(0, 2, 9, 9)}


class _Clock:
    """Stopwatch of processor time that two sides in one process spend in their calls."""

    def __init__(self) -> None:
        self.spent = [0.0, 0.0]

    def __call__(self, side: int, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.process_time()
        result = call(*arguments)
        self.spent[side] += time.process_time() - began
        return result


class _Pair:
    """The work of both sides on one evaluation, with the time of each."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._timed = _Clock()
        # Both sides hash the pieces of both.
        self._hashes = StreamHash(bytes(32)), StreamHash(bytes(32))
        self._sender = Sender("receiver", bytes(32), bytes(32), FIELD)
        self._receiver = Receiver("sender", bytes(32), bytes(32), FIELD)
        self._memory = np.empty(3 * TRANSFERS * LABEL_BYTES, np.uint8)

    def seconds(self) -> tuple[float, float]:
        """Do all work of one evaluation; return processor seconds of garbler and of evaluator."""
        timed, sender, receiver = self._timed, self._sender, self._receiver
        response = timed(0, sender.respond, timed(1, receiver.first_message))
        trees = timed(1, receiver.finish_setup, response)
        timed(0, sender.finish_setup, trees)
        self._hash(response, trees)
        blocks = list(self._plan.blocks())
        for block in blocks:
            self._evaluate(self._plan.garbling(block, bytes(16)))
        # Hellos to the two others, start, and of each block the hash and what goes to the aggregator; the
        # others' of these, and the aggregator's hello and receipt.
        self._sign(0, 4 + 2 * len(blocks), 3 + len(blocks))
        self._sign(1, 2 + 2 * len(blocks), 4 + len(blocks))
        return timed.spent[0], timed.spent[1]

    def _hash(self, *pieces: bytes | memoryview) -> None:
        for side, hashed in enumerate(self._hashes):
            for piece in pieces:
                self._timed(side, hashed.update, piece)

    def _evaluate(self, run: Run) -> None:
        """Give both sides the labels of all inputs of a block, garble, evaluate, and seal the outputs."""
        garblers, evaluators = self._garble(run)
        for side, outputs in ((0, garblers[0].output_hashes), (1, evaluators[0].output_labels)):
            self._timed(side, self._seal, outputs)
        # Their secrets are overwritten.
        del outputs
        self._timed(0, garblers.clear)
        self._timed(1, evaluators.clear)

    def _garble(self, run: Run) -> tuple[list[Garbler], list[Evaluator]]:
        """Garble and evaluate a block; return garbler and evaluator after the last table."""
        plan, timed = self._plan, self._timed
        garbler = timed(0, Garbler, plan.compiled, run, bytes(32))
        evaluator = timed(1, Evaluator, plan.compiled, run)
        theirs, own = plan.evaluator_wires, plan.garbler_wires
        shape = (len(theirs), run.n_instances)
        choices = timed(1, _draw, shape[0] * shape[1])
        for index in range(0, choices.size, TRANSFERS):
            self._transfer(garbler, evaluator, theirs, index, choices[index : index + TRANSFERS])
        masked = timed(1, pack_bits, choices)
        timed(0, garbler.flip, theirs, timed(0, unpack_bits, masked, shape))
        timed(0, garbler.open_inputs, own, np.zeros((len(own), run.n_instances), np.uint8), bytes(16))
        timed(1, evaluator.open_inputs, own, bytes(16))
        buffer = working_memory(min(TABLE_PIECE, plan.compiled.table_bytes(run.n_instances)))
        while size := timed(0, garbler.fill, buffer):
            self._hash(buffer[:size].data)
            timed(1, evaluator.feed, buffer[:size].data)
        return [garbler], [evaluator]

    def _transfer(self, garbler: Garbler, evaluator: Evaluator, wires: Wires, index: int, bits: Bits) -> None:
        """Do one chunk of oblivious transfers, and set the wire labels that it gives."""
        timed, size = self._timed, bits.size
        memory = self._memory[: 3 * LABEL_BYTES * size].reshape(3, size, LABEL_BYTES)
        pads, chosen = memory[:2], memory[2]
        extension = timed(1, self._receiver.extend, size, timed(1, pack_bits, bits))
        challenge = timed(0, self._sender.challenge, size, extension)
        response, _ = timed(1, self._receiver.random, challenge, chosen)
        timed(0, self._sender.random, response, pads)
        timed(0, garbler.transfer, wires, index, pads)
        corrections = pads[1].reshape(-1)
        timed(1, evaluator.transfer, wires, index, bits, chosen, corrections)
        self._hash(extension, challenge, response, corrections.data)

    def _seal(self, outputs: Callable[[], NDArray[np.uint8]]) -> None:
        randomness = SystemRandomness()
        secret = randomness.bytes(32)
        key = agree(secret, public_key(secret), salt=bytes(32), info=bytes(32))
        # What is signed is its hash.
        hashlib.sha256(seal(key, outputs().tobytes(), bytes(32), randomness))

    def _sign(self, side: int, signed: int, checked: int) -> None:
        identity, message = Identity.generate("signer"), bytes(32)
        for _ in range(signed):
            signature = self._timed(side, identity.sign, message)
        for _ in range(checked):
            self._timed(side, verify, identity.public_key, message, signature)


def _draw(count: int) -> Bits:
    """Return `count` random choice bits."""
    drawn = np.frombuffer(SystemRandomness().bytes(-(-count // 8)), np.uint8)
    return np.unpackbits(drawn, count=count, bitorder="little")


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


def connection_seconds() -> tuple[float, ...]:
    """Return the processor time of a connection, where called and where calling, and of a message, both ways.

    The connection: TCP, the TLS handshake, and the first message each way, for which memory is taken once.
    The message: a later short one, encrypted and sent, and received.
    """
    shaking, later, short = _Clock(), _Clock(), np.zeros(SHORT_BYTES, np.uint8)
    with Wire(shaking) as wire:
        for sender in (CALLING, CALLED):
            wire.carry(short, np.empty_like(short), shaking, sender)
        wire.carry(short, np.empty_like(short), later, CALLED)
    return (*shaking.spent, *later.spent)


def side_floors(plan: Plan) -> dict[str, float]:
    """Return the processor time of the floor, of each side, without the bytes over the channel."""
    unit, evaluated = connection_seconds(), _Pair(plan).seconds()
    return {
        name: sum(count * seconds for count, seconds in zip(side, unit, strict=True)) + evaluated[index]
        for index, (name, side) in enumerate(SIDES.items())
    }
