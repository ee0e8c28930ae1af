"""The evaluator: it gets one label of each input wire, and evaluates the tables as they come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smpc_dp.crypto.garble import Evaluator
from smpc_dp.crypto.ot import Receiver
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.seal import seal
from smpc_dp.errors import PeerFault
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.pairwise.messages import (
    CHECK,
    CONFIRM,
    DECODE,
    LABEL_BYTES,
    LABELS,
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
from smpc_dp.protocols.pairwise.turns import Turns


class EvaluatorRole(Participant):
    """The party that evaluates."""

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
        self._inputs = plan.check_inputs(plan.evaluator_values, inputs, self.name)

    def run(self) -> Turns[Evaluated]:
        """Evaluate block after block."""
        plan, to = self._plan, self._plan.parameters.output
        yield from self._greet()
        self.step = "setup"
        receiver = (yield from self._set_up()) if plan.evaluator_values else None
        held: list[tuple[Block, bytes]] = []
        value = b""
        for block in plan.blocks():
            self.step = "labels"
            evaluator = Evaluator(plan.compiled, plan.garbling(block, self._tweak()))
            if receiver is not None and self._inputs is not None:
                yield from self._transfer(receiver, evaluator, bits_of(self._inputs, block))
            yield from self._take_labels(evaluator, block)
            self.step = "tables"
            yield from self._take_tables(evaluator)
            self.step = "outputs"
            check = yield from self._take(self._garbler, CHECK, Check)
            self._check_block(self._garbler, block.number, check.block)
            if check.pieces != self._sequence[GARBLER]:
                what = f"says that it sent {check.pieces} pieces, {self._sequence[GARBLER]} have come"
                raise PeerFault(self._garbler, what)
            self._check_value(self._garbler, check.transcript)
            value = self._value()
            active = evaluator.output_labels()
            packed = pack_bits(evaluator.output_colours())
            shown = to in ("garbler", "both")
            yield self._control(
                self._garbler,
                CONFIRM,
                Confirm(
                    block.number,
                    value,
                    packed if shown else b"",
                    self._proof(block.number, active.data.cast("B")) if shown else b"",
                ),
            )
            if to in ("evaluator", "both"):
                held.append((block, packed))
            if to == "aggregator":
                yield self._for_aggregator(LABELS, block.number, self._seal_labels(active, block))
        outputs: list[Bits] = []
        for block, packed in held:
            decode = yield from self._take(self._garbler, DECODE, Decode)
            self._check_block(self._garbler, block.number, decode.block)
            outputs.append(self._decode(decode, packed, block))
        if to == "aggregator":
            receipt = yield from self._take(self._context.aggregator, RECEIPT, Receipt)
            self._check_value(self._context.aggregator, receipt.transcript)
        learned = rows_of(np.concatenate(outputs, axis=1), plan.circuit.outputs) if outputs else None
        return self._evaluated(learned, value)

    def _set_up(self) -> Turns[Receiver]:
        receiver = Receiver(self._garbler, self._transfer_context(), self._randomness.bytes(32), FIELD)
        yield self._piece(EVALUATOR, receiver.first_message())
        response = yield from self._take_piece(GARBLER, MAX_PIECE)
        yield self._piece(EVALUATOR, receiver.finish_setup(bytes(response)))
        return receiver

    def _transfer(self, receiver: Receiver, evaluator: Evaluator, bits: Bits) -> Turns[None]:
        """Get the label of each of our input bits, and show the garbler nothing of the bits."""
        place = 0
        for span in self._plan.spans(self._plan.evaluator_values):
            flat = bits[place : place + len(span)].reshape(-1)
            place += len(span)
            labels = np.empty((flat.size, LABEL_BYTES), np.uint8)
            for start in range(0, flat.size, TRANSFERS):
                chunk = flat[start : start + TRANSFERS]
                choices = pack_bits(chunk)
                yield self._piece(EVALUATOR, receiver.extend(chunk.size, choices))
                challenge = yield from self._take_piece(GARBLER, MAX_PIECE)
                response, pads = receiver.random(bytes(challenge))
                yield self._piece(EVALUATOR, response)
                size = LABEL_BYTES * chunk.size
                content = yield from self._take_piece(GARBLER, size)
                if len(content) != size:
                    raise PeerFault(self._garbler, f"sent {len(content)} bytes of corrections, not {size}")
                corrections = np.frombuffer(content, np.uint8).reshape(-1, LABEL_BYTES)
                part = labels[start : start + chunk.size]
                # Read whatever the choice.
                np.bitwise_and(corrections, np.negative(chunk)[:, None], out=part)
                part ^= pads
            evaluator.set_input_labels(span.start, labels.reshape(len(span), -1, LABEL_BYTES))

    def _take_labels(self, evaluator: Evaluator, block: Block) -> Turns[None]:
        """Take the labels of the garbler's inputs."""
        for span in self._plan.spans(self._plan.garbler_values):
            labels = bytearray()
            size = LABEL_BYTES * len(span) * block.count
            while len(labels) < size:
                labels += yield from self._take_piece(GARBLER, min(TABLE_PIECE, size - len(labels)))
            shape = (len(span), block.count, LABEL_BYTES)
            evaluator.set_input_labels(span.start, np.frombuffer(labels, np.uint8).reshape(shape))

    def _take_tables(self, evaluator: Evaluator) -> Turns[None]:
        if not evaluator.remaining:
            # A circuit without AND gates has no tables, and is evaluated all the same.
            evaluator.feed(b"")
        while left := evaluator.remaining:
            # A piece is not larger than TABLE_PIECE, so at least so many more come.
            ahead = -(-left // TABLE_PIECE) - 1
            piece = yield from self._take_piece(GARBLER, min(TABLE_PIECE, left), ahead)
            evaluator.feed(piece)

    def _decode(self, decode: Decode, colours: bytes, block: Block) -> Bits:
        """Return the output bits of a block whose active labels have these colours, packed."""
        shape = (self._plan.circuit.n_outputs, block.count)
        zeros, ones = unpack_bits(decode.colours, shape), unpack_bits(colours, shape)
        if zeros is None or ones is None:
            raise PeerFault(self._garbler, f"its output colours are not {shape[0]} x {shape[1]} bits")
        return np.bitwise_xor(zeros, ones)

    def _seal_labels(self, active: Bits, block: Block) -> bytes:
        aggregator = self._context.aggregator
        key, context = self._seal_terms(aggregator, self.name, aggregator, LABELS, block.number)
        return seal(key, active.tobytes(), context, self._randomness)
