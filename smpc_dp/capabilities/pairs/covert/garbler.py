"""The garbler of a covert evaluation: it garbles copies from seeds, signs all, and sends the closed one."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np

from smpc_dp.capabilities.pairs.covert import terms as t
from smpc_dp.capabilities.pairs.covert.copies import GarblerCopy
from smpc_dp.capabilities.pairs.covert.messages import (
    COMMIT,
    OPEN,
    SIGN,
    Commit,
    Open,
    OpenedDecode,
    OpenedHashes,
    Statement,
)
from smpc_dp.capabilities.pairs.covert.seeds import SeedSender
from smpc_dp.capabilities.pairs.covert.streams import Streams
from smpc_dp.capabilities.pairs.covert.terms import SEEDS, Terms
from smpc_dp.capabilities.pairs.garbled import messages
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Receive
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole, OutputZeros
from smpc_dp.capabilities.pairs.garbled.messages import (
    CHECK,
    CONFIRM,
    DECODE,
    HASHES,
    MAX_CONTROL,
    RECEIPT,
    Confirm,
    Receipt,
)
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER, Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Bits, bits_of, rows_of, unpack_bits
from smpc_dp.crypto.seal import seal
from smpc_dp.errors import Check, PeerFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode_envelope

# Most bytes of the tables of all copies that are stored until one copy is sent; else it is garbled again.
STORED_TABLES = 1 << 25


class CovertGarblerRole(GarblerRole, Streams):
    """Role of the garbler that garbles several copies, all but one of which are opened to checks."""

    def _run(self) -> Effects[Evaluated]:
        """Run the transfers of all copies, garble and sign them, send the closed one; return the result."""
        yield from self._greet()
        terms = Terms(self._protocol, self._run_id, self._start, self._plan)
        self.step = "setup"
        sender = SeedSender(terms, self._seed)
        yield self._give(terms, SEEDS, t.BASE_FIRST, sender.first)
        commit = yield from self._take(self._evaluator, COMMIT, Commit)
        if len(commit.commitments) != terms.copies + 1:
            reason = f"sent {len(commit.commitments)} commitments, not {terms.copies + 1}"
            raise PeerFault(self._evaluator, reason, Check.WRONG_COUNT)
        sender.take((yield from self._receive(terms, SEEDS, t.BASE_RESPONSE)))
        self.step = "transfers"
        copies = [self._copy(terms, copy, sender.seeds[copy]) for copy in range(1, terms.copies + 1)]
        if terms.transfers:
            yield from self._transfer_copies(terms, copies)
        store = terms.copies * self._plan.compiled.table_bytes(terms.instances) <= STORED_TABLES
        for number, copy in enumerate(copies, 1):
            self._transcript(number).update(copy.digests(store=store))
        self.step = "checks"
        streams = [list(self._transcript(stream).values()) for stream in range(terms.copies + 1)]
        statement = Statement(terms.plan_digest, self._start, commit.commitments, streams)
        yield self._control(self._evaluator, SIGN, statement)
        envelope, closed = yield from self._closed(terms, sender)
        self.step = "inputs"
        copy = copies[closed - 1]
        masked = yield from self._masked(terms)
        own = np.empty((0, 0), np.uint8) if self._inputs is None else bits_of(self._inputs, terms.block)
        if terms.transfers:
            yield self._piece(GARBLER, copy.corrections)
        if labels := copy.labels(own, masked):
            yield self._piece(GARBLER, labels)
        self.step = "tables"
        for piece in copy.tables():
            yield self._piece(GARBLER, piece)
        return (yield from self._outputs(terms, copy, envelope))

    def _copy(self, terms: Terms, copy: int, seed: bytes) -> GarblerCopy:
        """Return the garbler's computation of one copy, from the copy's seed."""
        return GarblerCopy(terms, copy, seed)

    def _transfer_copies(self, terms: Terms, copies: Sequence[GarblerCopy]) -> Effects[None]:
        """Run the oblivious transfers of the evaluator's inputs, for all copies in step."""
        firsts = yield from self._receive_all(terms, t.FIRST)
        for number, copy in enumerate(copies, 1):
            yield self._give(terms, number, t.BASE, copy.respond(firsts[number - 1]))
        trees = yield from self._receive_all(terms, t.TREES)
        extensions = yield from self._receive_all(terms, t.EXTENSION)
        for number, copy in enumerate(copies, 1):
            challenge = copy.challenge(trees[number - 1], extensions[number - 1])
            yield self._give(terms, number, t.CHALLENGE, challenge)
        responses = yield from self._receive_all(terms, t.RESPONSE)
        for number, copy in enumerate(copies, 1):
            copy.take(responses[number - 1])

    def _closed(self, terms: Terms, seeds: SeedSender) -> Effects[tuple[Envelope, int]]:
        """Receive the opening; check that it has all seeds but one; return (message, closed copy)."""
        data = bytes((yield Receive(self._evaluator, MAX_CONTROL)))
        opened = self._open(data, self._evaluator, OPEN, Open)
        expected = [seed for copy, seed in sorted(seeds.seeds.items()) if copy != opened.closed]
        if opened.closed > terms.copies or len(opened.seeds) != len(expected):
            reason = (
                f"opens {len(opened.seeds)} seeds and leaves copy {opened.closed} of {terms.copies} closed"
            )
            raise PeerFault(self._evaluator, reason, Check.WRONG_COUNT)
        shown = b"".join(opened.seeds) + opened.witness
        if not hmac.compare_digest(shown, b"".join(expected) + seeds.witnesses[opened.closed]):
            reason = "does not have the seeds of all copies but one, and the witness of that one"
            raise PeerFault(self._evaluator, reason, Check.BAD_OPENING)
        return decode_envelope(data[1:], self._evaluator), opened.closed

    def _masked(self, terms: Terms) -> Effects[Bits]:
        """Receive the evaluator's masked input bits, (wires, instances); PeerFault if malformed."""
        shape = terms.mask_count, terms.instances
        if not shape[0]:
            return np.empty(shape, np.uint8)
        content = yield from self._take_piece(EVALUATOR, -(-shape[0] * shape[1] // 8))
        if (bits := unpack_bits(content, shape)) is None:
            reason = f"its masked inputs are not {shape[0]} x {shape[1]} bits"
            raise PeerFault(self._evaluator, reason, Check.WRONG_LENGTH)
        return bits

    def _outputs(self, terms: Terms, copy: GarblerCopy, opened: Envelope) -> Effects[Evaluated]:
        """Compare hashes of all data with the evaluator, and give the output to those that learn it."""
        to, block = self._plan.parameters.output, terms.block
        value = self._value()
        self.step = "outputs"
        check = messages.Check(block.number, self._sequence[GARBLER], value)
        yield self._control(self._evaluator, CHECK, check)
        confirm = yield from self._take(self._evaluator, CONFIRM, Confirm)
        self._check_block(self._evaluator, block.number, confirm.block)
        self._check_value(self._evaluator, confirm.transcript)
        learned = None
        if to in ("garbler", "both"):
            outputs = self._decode(OutputZeros.of(copy.garbler), block, confirm)
            learned = rows_of(outputs, self._plan.circuit.outputs)
        opening, content = copy.decoding()
        if to in ("evaluator", "both"):
            yield self._control(self._evaluator, DECODE, OpenedDecode(opening, content))
        if to == "aggregator":
            aggregator = self._context.aggregator
            key, context = self.seal_terms(aggregator, self.name, aggregator, HASHES, block.number)
            sealed = seal(key, opening + content, context, self._randomness)
            hashes = OpenedHashes(opened.body, opened.signature, value, sealed)
            yield self._control(aggregator, HASHES, hashes)
            receipt = yield from self._take_of_aggregator(RECEIPT, Receipt)
            self._check_value(aggregator, receipt.transcript)
        return self._evaluated(learned, value)
