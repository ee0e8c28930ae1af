"""The garbler: it makes labels and tables, and gives the evaluator its labels by oblivious transfer."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from smpc_dp.capabilities.pairs.garbled import messages
from smpc_dp.capabilities.pairs.garbled.effects import RETAINED, Effects
from smpc_dp.capabilities.pairs.garbled.messages import (
    CHECK,
    CONFIRM,
    DECODE,
    HASHES,
    LABEL_BYTES,
    MAX_PIECE,
    RECEIPT,
    TABLE_PIECE,
    Confirm,
    Decode,
    Receipt,
)
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER, Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import (
    FIELD,
    IN_FLIGHT,
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
from smpc_dp.capabilities.pairs.garbled.transfers import Transfers
from smpc_dp.crypto.garble import Bytes, Garbler
from smpc_dp.crypto.memory import working_memory
from smpc_dp.crypto.ot import Sender
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.seal import seal
from smpc_dp.errors import Check, PeerFault
from smpc_dp.wire.signing import Context, Signer


@dataclass(frozen=True, slots=True)
class OutputZeros:
    """Secrets with which the garbler decodes a block's outputs: labels for 0, colours and offsets.

    Labels and offsets are empty where the garbler does not learn the outputs.
    """

    labels: Bytes = field(repr=False)
    colours: Bits = field(repr=False)
    deltas: Bytes = field(repr=False)

    @classmethod
    def of(cls, garbler: Garbler, *, learned: bool = True) -> OutputZeros:
        """Return the garbler's decoding secrets of a block; the colours alone unless `learned`."""
        if not learned:
            none: Bytes = np.empty(0, np.uint8)
            return cls(none, garbler.output_colours(), none)
        return cls(garbler.output_zero_labels(), garbler.output_colours(), garbler.deltas())


class GarblerRole(Participant):
    """Role of the garbler of a circuit: it garbles, transfers input labels, and may learn outputs."""

    def __init__(
        self,
        context: Context,
        identity: Signer,
        plan: Plan,
        inputs: Sequence[Rows],
        randomness: Randomness,
        transfers: Transfers | None = None,
    ) -> None:
        """`inputs` has one array for each of its input values, laid out as by `circuits.circuit.pack`.

        `transfers`: those of earlier evaluations with the same evaluator, and of the same garbler.
        Raises ConfigError for a wrong number or shape of inputs.
        """
        super().__init__(context, identity, plan, randomness, transfers)
        self._inputs = plan.check_inputs(plan.garbler_values, inputs, self.name)
        # One seed for all blocks: labels and offsets are drawn by the number of the instance.
        self._seed = randomness.bytes(32)

    def _run(self) -> Effects[Evaluated]:
        """Garble and send the circuit block after block; return the result."""
        plan, to = self._plan, self._plan.parameters.output
        yield from self._greet()
        self.step = "setup"
        sender = (yield from self._set_up()) if plan.evaluator_values else None
        # Of tables and of pads: no more than the greatest block needs.
        most = next(plan.blocks()).count
        pads = 2 * LABEL_BYTES * most * plan.width(plan.evaluator_values)
        size = min(TABLE_PIECE, max(plan.compiled.table_bytes(most), pads))
        buffers = cycle(working_memory((RETAINED + 1) * size).reshape(RETAINED + 1, size))
        outputs: list[Bits] = []
        held: list[Decode] = []
        value = b""
        for block in plan.blocks():
            garbler = Garbler(plan.compiled, plan.garbling(block, self._tweak()), self._seed)
            if sender is not None:
                self.step = "transfers"
                yield from self._transfer(sender, garbler, block, buffers)
            self.step = "inputs"
            if sender is not None:
                yield from self._exchange(garbler, block)
            if self._inputs is not None:
                garbler.open_inputs(plan.garbler_wires, bits_of(self._inputs, block), self._open_seed())
            self.step = "tables"
            for buffer in buffers:
                if not (size := garbler.fill(buffer)):
                    break
                yield self._piece(GARBLER, buffer[:size].data)
            value = self._value()
            self.step = "outputs"
            yield self._control(
                self._evaluator, CHECK, messages.Check(block.number, self._sequence[GARBLER], value)
            )
            # While the evaluator works on the last tables: the values that its answer is compared with.
            zeros = OutputZeros.of(garbler, learned=to in ("garbler", "both"))
            confirm = yield from self._take(self._evaluator, CONFIRM, Confirm)
            self._check_block(self._evaluator, block.number, confirm.block)
            self._check_value(self._evaluator, confirm.transcript)
            if to in ("garbler", "both"):
                outputs.append(self._decode(zeros, block, confirm))
            if to in ("evaluator", "both"):
                held.append(Decode(block.number, pack_bits(zeros.colours)))
            if to == "aggregator":
                yield self._for_aggregator(HASHES, block.number, self._seal_hashes(garbler, block))
        # Only after the evaluator has fixed all its inputs: it could choose later ones by these.
        for decode in held:
            yield self._control(self._evaluator, DECODE, decode)
        if to == "aggregator":
            receipt = yield from self._take_of_aggregator(RECEIPT, Receipt)
            self._check_value(self._context.aggregator, receipt.transcript)
        learned = rows_of(np.concatenate(outputs, axis=1), plan.circuit.outputs) if outputs else None
        return self._evaluated(learned, value)

    def _set_up(self) -> Effects[Sender]:
        """Return the sending end of oblivious transfers, set up with the evaluator if there is none."""
        if (held := self._transfers.sender()) is not None:
            return held
        context = self._transfer_context()
        sender = Sender(self._evaluator, context, self._randomness.bytes(32), FIELD)
        first = yield from self._take_piece(EVALUATOR, MAX_PIECE)
        yield self._piece(GARBLER, sender.respond(bytes(first)))
        corrections = yield from self._take_piece(EVALUATOR, MAX_PIECE)
        sender.finish_setup(bytes(corrections))
        self._transfers.keep(context, sender)
        return sender

    def _transfer(
        self, sender: Sender, garbler: Garbler, block: Block, buffers: Iterator[Bytes]
    ) -> Effects[None]:
        """Send labels of the evaluator's inputs by oblivious transfer, for its random choices.

        A random transfer gives two pads. The first is one label; the xor of both and the instance's offset is
        sent in the clear and turns the second into the other label. No input enters.
        """
        wires = self._plan.evaluator_wires
        count = len(wires) * block.count
        sizes = [min(TRANSFERS, count - index) for index in range(0, count, TRANSFERS)]
        left = 2 * len(sizes)
        for number in range(len(sizes) + IN_FLIGHT):
            if number >= IN_FLIGHT:
                oldest = number - IN_FLIGHT
                response = yield from self._take_piece(EVALUATOR, MAX_PIECE, left := left - 1)
                pads = next(buffers)[: 2 * LABEL_BYTES * sizes[oldest]].reshape(2, -1, LABEL_BYTES)
                sender.random(bytes(response), pads)
                garbler.transfer(wires, oldest * TRANSFERS, pads)
                yield self._piece(GARBLER, pads[1].data.cast("B"))
            if number < len(sizes):
                extension = yield from self._take_piece(EVALUATOR, MAX_PIECE, left := left - 1)
                yield self._piece(GARBLER, sender.challenge(sizes[number], extension))

    def _exchange(self, garbler: Garbler, block: Block) -> Effects[None]:
        """Receive where the evaluator's inputs differ from its random choices; swap those wires' labels."""
        wires = self._plan.evaluator_wires
        shape = (len(wires), block.count)
        content = yield from self._take_piece(EVALUATOR, -(-shape[0] * shape[1] // 8))
        if (bits := unpack_bits(content, shape)) is None:
            raise PeerFault(
                self._evaluator, f"its masked inputs are not {shape[0]} x {shape[1]} bits", Check.WRONG_LENGTH
            )
        garbler.flip(wires, bits)

    def _decode(self, zeros: OutputZeros, block: Block, confirm: Confirm) -> Bits:
        """Return a block's output bits from the evaluator's colours, once its proof of labels is checked."""
        shape = (self._plan.circuit.n_outputs, block.count)
        colours = unpack_bits(confirm.colours, shape)
        if colours is None:
            raise PeerFault(
                self._evaluator,
                f"its output colours are not {shape[0]} x {shape[1]} bits",
                Check.WRONG_LENGTH,
            )
        bits = np.bitwise_xor(colours, zeros.colours)
        active = zeros.labels ^ (zeros.deltas & np.negative(bits)[:, :, None])
        if not hmac.compare_digest(confirm.proof, self._proof(block.number, active.data.cast("B"))):
            raise PeerFault(
                self._evaluator, "does not have the output labels whose colours it sent", Check.BAD_LABEL
            )
        return bits

    def _seal_hashes(self, garbler: Garbler, block: Block) -> bytes:
        """Return the hashes of both labels of each output, encrypted for the aggregator."""
        aggregator = self._context.aggregator
        key, context = self.seal_terms(aggregator, self.name, aggregator, HASHES, block.number)
        colours = pack_bits(garbler.output_colours())
        return seal(key, garbler.output_hashes().tobytes() + colours, context, self._randomness)
