"""The evaluator: it obtains one label of each input wire, and evaluates the tables as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from smpc_dp.capabilities.pairs.garbled import messages
from smpc_dp.capabilities.pairs.garbled.effects import RETAINED, Effects, Send
from smpc_dp.capabilities.pairs.garbled.messages import (
    CHECK,
    CONFIRM,
    DECODE,
    LABEL_BYTES,
    LABELS,
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
from smpc_dp.crypto.garble import Evaluator
from smpc_dp.crypto.memory import working_memory
from smpc_dp.crypto.ot import Receiver
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.seal import seal
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.errors import Check, PeerFault
from smpc_dp.wire.signing import Context, Signer


class EvaluatorRole(Participant):
    """Role of the evaluator of a garbled circuit, for a garbler that is assumed to be semi-honest."""

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

        `transfers`: those of earlier evaluations with the same garbler, and of the same evaluator.
        Raises ConfigError for a wrong number or shape of inputs.
        """
        super().__init__(context, identity, plan, randomness, transfers)
        self._inputs = plan.check_inputs(plan.evaluator_values, inputs, self.name)

    def _run(self) -> Effects[Evaluated]:
        """Receive and evaluate the garbled circuit block after block; return the result."""
        plan, to = self._plan, self._plan.parameters.output
        yield from self._greet()
        self.step = "setup"
        receiver = (yield from self._set_up()) if plan.evaluator_values else None
        held: list[tuple[Block, bytes]] = []
        value = b""
        for block in plan.blocks():
            evaluator = Evaluator(plan.compiled, plan.garbling(block, self._tweak()))
            evaluator.open_inputs(plan.garbler_wires, self._open_seed())
            choices: Bits | None = None
            if receiver is not None:
                self.step = "transfers"
                choices = yield from self._transfer(receiver, evaluator, block)
            self.step = "inputs"
            if choices is not None and self._inputs is not None:
                yield from self._choose(bits_of(self._inputs, block), choices)
            self.step = "tables"
            yield from self._take_tables(evaluator)
            self.step = "outputs"
            check = yield from self._take(self._garbler, CHECK, messages.Check)
            self._check_block(self._garbler, block.number, check.block)
            self._check_pieces(check.pieces)
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
            receipt = yield from self._take_of_aggregator(RECEIPT, Receipt)
            self._check_value(self._context.aggregator, receipt.transcript)
        learned = rows_of(np.concatenate(outputs, axis=1), plan.circuit.outputs) if outputs else None
        return self._evaluated(learned, value)

    def _set_up(self) -> Effects[Receiver]:
        """Return the receiving end of oblivious transfers, set up with the garbler if there is none."""
        if (held := self._transfers.receiver()) is not None:
            return held
        context = self._transfer_context()
        receiver = Receiver(self._garbler, context, self._randomness.bytes(32), FIELD)
        yield self._piece(EVALUATOR, receiver.first_message())
        response = yield from self._take_piece(GARBLER, MAX_PIECE)
        yield self._piece(EVALUATOR, receiver.finish_setup(bytes(response)))
        self._transfers.keep(context, receiver)
        return receiver

    def _transfer(self, receiver: Receiver, evaluator: Evaluator, block: Block) -> Effects[Bits]:
        """Receive labels for random choices of the evaluator's inputs; return the choices."""
        wires = self._plan.evaluator_wires
        shape = (len(wires), block.count)
        drawn = np.frombuffer(self._randomness.bytes(-(-shape[0] * shape[1] // 8)), np.uint8)
        bits = np.unpackbits(drawn, count=shape[0] * shape[1], bitorder="little")
        chunks = [bits[index : index + TRANSFERS] for index in range(0, bits.size, TRANSFERS)]
        pads_bytes = IN_FLIGHT * LABEL_BYTES * chunks[0].size
        longest = receiver.corrections_bytes(chunks[0].size)
        memory = working_memory(pads_bytes + (RETAINED + 1) * longest)
        room = memory[:pads_bytes].reshape(IN_FLIGHT, -1, LABEL_BYTES)
        messages = cycle(memory[pads_bytes:].reshape(-1, longest))

        def extend(chunk: Bits) -> Send:
            message = next(messages)[: receiver.corrections_bytes(chunk.size)]
            receiver.extend_into(chunk.size, pack_bits(chunk), message)
            return self._piece(EVALUATOR, message.data)

        left = 2 * len(chunks)
        for chunk in chunks[:IN_FLIGHT]:
            yield extend(chunk)
        for number in range(len(chunks) + IN_FLIGHT):
            pads = room[number % IN_FLIGHT]
            if number >= IN_FLIGHT:
                oldest = number - IN_FLIGHT
                chunk = chunks[oldest]
                size = LABEL_BYTES * chunk.size
                content = yield from self._take_piece(GARBLER, size, left := left - 1)
                if len(content) != size:
                    raise PeerFault(
                        self._garbler,
                        f"sent {len(content)} bytes of corrections, not {size}",
                        Check.WRONG_LENGTH,
                    )
                corrections = np.frombuffer(content, np.uint8)
                evaluator.transfer(wires, oldest * TRANSFERS, chunk, pads[: chunk.size], corrections)
            if number < len(chunks):
                challenge = yield from self._take_piece(GARBLER, MAX_PIECE, left := left - 1)
                response, _ = receiver.random(bytes(challenge), pads[: chunks[number].size])
                yield self._piece(EVALUATOR, response)
                for following in chunks[number + IN_FLIGHT : number + IN_FLIGHT + 1]:
                    yield extend(following)
        return bits.reshape(shape)

    def _choose(self, inputs: Bits, choices: Bits) -> Effects[None]:
        """Send the garbler the inputs XOR the random choices, so that it corrects the labels."""
        yield self._piece(EVALUATOR, pack_bits(inputs ^ choices))

    def _take_tables(self, evaluator: Evaluator, hashed: StreamHash | None = None) -> Effects[None]:
        """Receive the garbled tables and evaluate the circuit; also feed `hashed` if given."""
        if not evaluator.remaining:
            # A circuit without AND gates has no tables, and is evaluated all the same.
            evaluator.feed(b"")
        while left := evaluator.remaining:
            # A piece is not larger than TABLE_PIECE, so at least so many more follow.
            ahead = -(-left // TABLE_PIECE) - 1
            piece = yield from self._take_piece(GARBLER, min(TABLE_PIECE, left), ahead)
            evaluator.feed(piece)
            if hashed is not None:
                hashed.update(piece)

    def _check_pieces(self, claimed: int) -> None:
        """Raise PeerFault unless the garbler claims to have sent as many pieces as have come."""
        if claimed != self._sequence[GARBLER]:
            reason = f"says that it sent {claimed} pieces, {self._sequence[GARBLER]} have come"
            raise PeerFault(self._garbler, reason, Check.WRONG_COUNT)

    def _decode(self, decode: Decode, colours: bytes, block: Block) -> Bits:
        """Return a block's output bits from both sides' colours; raise PeerFault for a wrong length."""
        shape = (self._plan.circuit.n_outputs, block.count)
        zeros, ones = unpack_bits(decode.colours, shape), unpack_bits(colours, shape)
        if zeros is None or ones is None:
            raise PeerFault(
                self._garbler, f"its output colours are not {shape[0]} x {shape[1]} bits", Check.WRONG_LENGTH
            )
        return np.bitwise_xor(zeros, ones)

    def _seal_labels(self, active: Bits, block: Block) -> bytes:
        """Return the active output labels of a block, encrypted for the aggregator."""
        aggregator = self._context.aggregator
        key, context = self.seal_terms(aggregator, self.name, aggregator, LABELS, block.number)
        return seal(key, active.tobytes(), context, self._randomness)
