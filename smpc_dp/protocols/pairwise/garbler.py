"""The garbler: it makes labels and tables, and lets the evaluator choose its labels obliviously."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from itertools import cycle

import numpy as np

from smpc_dp.crypto.garble import Garbler
from smpc_dp.crypto.ot import Sender
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.seal import seal
from smpc_dp.errors import PeerFault
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.pairwise.messages import (
    CHECK,
    CONFIRM,
    DECODE,
    HASHES,
    LABEL_BYTES,
    MAX_PIECE,
    RECEIPT,
    TABLE_PIECE,
    Check,
    Confirm,
    Decode,
    Receipt,
)
from smpc_dp.protocols.pairwise.participant import EVALUATOR, GARBLER, Evaluated, Participant
from smpc_dp.protocols.pairwise.plan import (
    FIELD,
    TRANSFERS,
    Bits,
    Block,
    Plan,
    Rows,
    bits_of,
    pack_bits,
    rows_of,
    unpack_bits,
)
from smpc_dp.protocols.pairwise.turns import KEPT, Turns


class GarblerRole(Participant):
    """The party that garbles."""

    def __init__(
        self,
        context: Context,
        identity: Signer,
        plan: Plan,
        inputs: Sequence[Rows],
        randomness: Randomness,
    ) -> None:
        """`inputs` has one array for each of its input values, laid out as by `circuits.circuit.pack`.

        Raises ConfigError for a wrong number or shape of inputs.
        """
        super().__init__(context, identity, plan, randomness)
        self._inputs = plan.check_inputs(plan.garbler_values, inputs, self.name)
        # One seed for all blocks: labels and offsets are drawn by the number of the instance.
        self._seed = randomness.bytes(32)

    def run(self) -> Turns[Evaluated]:
        """Garble block after block."""
        plan, to = self._plan, self._plan.parameters.output
        yield from self._greet()
        self.step = "setup"
        sender = (yield from self._set_up()) if plan.evaluator_values else None
        buffers = [np.empty(TABLE_PIECE, np.uint8) for _ in range(KEPT + 1)]
        outputs: list[Bits] = []
        held: list[Decode] = []
        value = b""
        for block in plan.blocks():
            self.step = "labels"
            garbler = Garbler(plan.compiled, plan.garbling(block, self._tweak()), self._seed)
            if sender is not None:
                yield from self._transfer(sender, garbler, block)
            yield from self._send_labels(garbler, block)
            self.step = "tables"
            for buffer in cycle(buffers):
                if not (size := garbler.fill(buffer)):
                    break
                yield self._piece(GARBLER, buffer[:size].data)
            value = self._value()
            self.step = "outputs"
            yield self._control(self._evaluator, CHECK, Check(block.number, self._sequence[GARBLER], value))
            confirm = yield from self._take(self._evaluator, CONFIRM, Confirm)
            self._check_block(self._evaluator, block.number, confirm.block)
            self._check_value(self._evaluator, confirm.transcript)
            if to in ("garbler", "both"):
                outputs.append(self._decode(garbler, block, confirm))
            if to in ("evaluator", "both"):
                held.append(Decode(block.number, pack_bits(garbler.output_colours())))
            if to == "aggregator":
                yield self._for_aggregator(HASHES, block.number, self._seal_hashes(garbler, block))
        # Not before the evaluator is bound to all of its inputs: it could choose the later ones by these.
        for decode in held:
            yield self._control(self._evaluator, DECODE, decode)
        if to == "aggregator":
            receipt = yield from self._take(self._context.aggregator, RECEIPT, Receipt)
            self._check_value(self._context.aggregator, receipt.transcript)
        learned = rows_of(np.concatenate(outputs, axis=1), plan.circuit.outputs) if outputs else None
        return self._evaluated(learned, value)

    def _set_up(self) -> Turns[Sender]:
        sender = Sender(self._evaluator, self._transfer_context(), self._randomness.bytes(32), FIELD)
        first = yield from self._take_piece(EVALUATOR, MAX_PIECE)
        yield self._piece(GARBLER, sender.respond(bytes(first)))
        corrections = yield from self._take_piece(EVALUATOR, MAX_PIECE)
        sender.finish_setup(bytes(corrections))
        return sender

    def _transfer(self, sender: Sender, garbler: Garbler, block: Block) -> Turns[None]:
        """Let the evaluator choose one of both labels of each of its input wires.

        A random transfer gives two pads. The first is the label of 0; their sum and the instance's offset
        go in the open and make the label of 1 of the second.
        """
        offsets = garbler.deltas()
        for span in self._plan.spans(self._plan.evaluator_values):
            zeros = np.empty((len(span) * block.count, LABEL_BYTES), np.uint8)
            corrections = np.tile(offsets, (len(span), 1))
            for start in range(0, len(zeros), TRANSFERS):
                part = slice(start, start + TRANSFERS)
                extension = yield from self._take_piece(EVALUATOR, MAX_PIECE)
                yield self._piece(GARBLER, sender.challenge(len(zeros[part]), bytes(extension)))
                response = yield from self._take_piece(EVALUATOR, MAX_PIECE)
                pads = sender.random(bytes(response))
                zeros[part] = pads[:, 0]
                corrections[part] ^= pads[:, 0]
                corrections[part] ^= pads[:, 1]
                yield self._piece(GARBLER, corrections[part].data.cast("B"))
            garbler.set_zero_labels(span.start, zeros.reshape(len(span), block.count, LABEL_BYTES))

    def _send_labels(self, garbler: Garbler, block: Block) -> Turns[None]:
        """Send the active labels of our own inputs."""
        if self._inputs is None:
            return
        bits, place = bits_of(self._inputs, block), 0
        for span in self._plan.spans(self._plan.garbler_values):
            labels = garbler.encode(
                span.start, np.ascontiguousarray(bits[place : place + len(span)])
            ).tobytes()
            place += len(span)
            for start in range(0, len(labels), TABLE_PIECE):
                yield self._piece(GARBLER, labels[start : start + TABLE_PIECE])

    def _decode(self, garbler: Garbler, block: Block, confirm: Confirm) -> Bits:
        """Return the output bits that the evaluator's labels stand for; it must show that it has them."""
        shape = (self._plan.circuit.n_outputs, block.count)
        colours = unpack_bits(confirm.colours, shape)
        if colours is None:
            raise PeerFault(self._evaluator, f"its output colours are not {shape[0]} x {shape[1]} bits")
        zeros = garbler.output_zero_labels()
        bits = np.bitwise_xor(colours, garbler.output_colours())
        active = zeros ^ (garbler.deltas() & np.negative(bits)[:, :, None])
        if not hmac.compare_digest(confirm.proof, self._proof(block.number, active.data.cast("B"))):
            raise PeerFault(self._evaluator, "does not have the output labels whose colours it sent")
        return bits

    def _seal_hashes(self, garbler: Garbler, block: Block) -> bytes:
        """Seal, for the aggregator: both hashes of each output, colour 0 first, and the colour of 0."""
        aggregator = self._context.aggregator
        key, context = self._seal_terms(aggregator, self.name, aggregator, HASHES, block.number)
        colours = pack_bits(garbler.output_colours())
        return seal(key, garbler.output_hashes().tobytes() + colours, context, self._randomness)
