"""The evaluator of a covert evaluation: it checks all copies but one before it uses an input."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np

from smpc_dp.capabilities.pairs.covert import terms as t
from smpc_dp.capabilities.pairs.covert.certificate import Certificate, CircuitFields
from smpc_dp.capabilities.pairs.covert.copies import (
    OPENED_BYTES,
    EvaluatorCopy,
    check_labels,
    first_cheat,
    set_inputs,
)
from smpc_dp.capabilities.pairs.covert.messages import (
    COMMIT,
    OPEN,
    SIGN,
    Commit,
    ForwardedLabels,
    Open,
    OpenedDecode,
    Statement,
)
from smpc_dp.capabilities.pairs.covert.seeds import Learned, respond
from smpc_dp.capabilities.pairs.covert.streams import Streams
from smpc_dp.capabilities.pairs.covert.terms import SEEDS, Terms
from smpc_dp.capabilities.pairs.garbled import messages
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Receive
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.messages import (
    CHECK,
    CONFIRM,
    DECODE,
    LABEL_BYTES,
    LABELS,
    MAX_CONTROL,
    RECEIPT,
    Confirm,
    Decode,
    Receipt,
)
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER, Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Bits, Plan, Rows, bits_of, pack_bits, rows_of
from smpc_dp.crypto.garble import Evaluator
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, Signer, decode_envelope


class CovertEvaluatorRole(EvaluatorRole, Streams):
    """Role of the evaluator that checks all garbled copies but one, and can convict a cheating garbler."""

    def __init__(
        self,
        context: Context,
        identity: Signer,
        plan: Plan,
        inputs: Sequence[Rows],
        randomness: Randomness,
        session: bytes = b"",
    ) -> None:
        """`inputs` as for `EvaluatorRole`; `session`: its canonical JSON, for the certificate, or nothing."""
        super().__init__(context, identity, plan, inputs, randomness)
        self._session = session
        self._own_seeds: list[bytes] = []
        self._first_message = b""
        # Without inputs of the evaluator there are none.
        self._copies: list[EvaluatorCopy] = []

    @property
    def judges(self) -> bool:
        """Whether the garbler has signed, and its garbled copies are still to be checked."""
        return self.step == "checks"

    def _run(self) -> Effects[Evaluated]:
        """Run the transfers of all copies, check all but one, evaluate that one, return the result."""
        yield from self._greet()
        terms = Terms(self._protocol, self._run_id, self._start, self._plan)
        self.step = "setup"
        self._own_seeds = [self._randomness.bytes(t.SEED_BYTES) for _ in range(terms.copies + 1)]
        commitments = [terms.commitment(stream, seed) for stream, seed in enumerate(self._own_seeds)]
        yield self._control(self._garbler, COMMIT, Commit(commitments))
        self._first_message = yield from self._receive(terms, SEEDS, t.BASE_FIRST)
        response, learned = self._respond(terms)
        yield self._give(terms, SEEDS, t.BASE_RESPONSE, response)
        self.step = "transfers"
        if terms.transfers:
            numbers = range(1, terms.copies + 1)
            self._copies = [EvaluatorCopy(terms, copy, self._own_seeds[copy]) for copy in numbers]
            yield from self._transfer_copies(terms, self._copies)
        envelope, statement = yield from self._take_statement(terms, commitments)
        self._check_copies(terms, learned, envelope, statement)
        opened = Open(learned.closed, [seed for _, seed in sorted(learned.seeds.items())], learned.witness)
        yield self._control(self._garbler, OPEN, opened)
        self.step = "inputs"
        closed = self._copies[learned.closed - 1] if self._copies else None
        evaluator = yield from self._take_labels(terms, learned.closed, closed, statement)
        self.step = "tables"
        hashed = terms.stream_hash(learned.closed, t.TABLES)
        yield from self._take_tables(evaluator, hashed)
        if not hmac.compare_digest(hashed.digest(), self._signed(terms, statement, learned.closed, t.TABLES)):
            reason = f"its tables of copy {learned.closed} are not those that it signed"
            raise PeerFault(self._garbler, reason, Check.TRANSCRIPT_DIFFERS)
        return (yield from self._outputs(terms, evaluator, learned.closed, envelope, statement))

    def _respond(self, terms: Terms) -> tuple[bytes, Learned]:
        """Return the answer in the transfer of seeds, and the seeds of all but the closed copy."""
        return respond(terms, self._own_seeds[SEEDS], self._first_message)

    def _transfer_copies(self, terms: Terms, copies: Sequence[EvaluatorCopy]) -> Effects[None]:
        """Run the oblivious transfers of random choices, for all copies in step."""
        numbered = list(enumerate(copies, 1))
        for number, copy in numbered:
            yield self._give(terms, number, t.FIRST, copy.first())
        bases = yield from self._receive_all(terms, t.BASE)
        for number, copy in numbered:
            yield self._give(terms, number, t.TREES, copy.trees(bases[number - 1]))
        for number, copy in numbered:
            yield self._give(terms, number, t.EXTENSION, copy.extension())
        challenges = yield from self._receive_all(terms, t.CHALLENGE)
        for number, copy in numbered:
            yield self._give(terms, number, t.RESPONSE, copy.response(challenges[number - 1]))

    def _take_statement(self, terms: Terms, commitments: list[bytes]) -> Effects[tuple[Envelope, Statement]]:
        """Receive the garbler's signed statement; raise an error if it does not fit this run."""
        data = bytes((yield Receive(self._garbler, MAX_CONTROL)))
        self.step = "checks"
        statement = self._open(data, self._garbler, SIGN, Statement)
        fits = terms.fits(statement.plan, statement.start, statement.streams)
        if not fits or statement.commitments != commitments:
            raise PeerFault(self._garbler, "signed a statement of other terms", Check.OTHER_STATEMENT)
        for stream, hashes in enumerate(statement.streams):
            recorded = list(self._transcript(stream).values())
            if hashes[: len(recorded)] != recorded:
                reason = f"signed other messages of stream {stream} than were sent"
                raise PeerFault(self._garbler, reason, Check.OTHER_STATEMENT)
        return decode_envelope(data[1:], self._garbler), statement

    def _check_copies(self, terms: Terms, learned: Learned, envelope: Envelope, statement: Statement) -> None:
        """Garble each opened copy again; raise PeerFault with a certificate if one is not as signed.

        All copies are looked at before: where this stops does not depend on which one differs.
        """
        cheated: list[tuple[int, int]] = []
        for copy, seed in sorted(learned.seeds.items()):
            own = self._copies[copy - 1] if self._copies else None
            position = first_cheat(terms, copy, seed, own, statement.streams[copy])
            if position is not None:
                cheated.append((copy, position))
        for copy, position in cheated[:1]:
            certificate = self._certificate(envelope, copy).encode()
            reason = f"cheated: its {t.MESSAGES[position]} of copy {copy} do not follow from its seed"
            raise PeerFault(self._garbler, reason, Check.CONVICTED, {"certificate": certificate})

    def _certificate(self, envelope: Envelope, copy: int) -> Certificate:
        """Return the certificate that proves that the garbler cheated in a garbled copy."""
        parameters, context = self._plan.parameters, self._context
        return Certificate(
            session_digest=context.session_digest,
            request=context.request,
            session=self._session,
            names=list(self._everyone),
            nonces=self._nonces,
            keys=self._joined_keys,
            public_key=context.keys[self._garbler],
            statement=envelope.body,
            signature=envelope.signature,
            circuit=CircuitFields.of(self._plan.circuit),
            instances=parameters.instances,
            mode=parameters.mode,
            output=parameters.output,
            evaluator_inputs=list(self._plan.evaluator_values),
            copies=parameters.covert,
            random_inputs=list(parameters.random_inputs),
            first_message=self._first_message,
            first_seed=self._own_seeds[SEEDS],
            copy=copy,
            seed=self._own_seeds[copy],
        )

    def _take_labels(
        self, terms: Terms, number: int, copy: EvaluatorCopy | None, statement: Statement
    ) -> Effects[Evaluator]:
        """Send masked inputs; return an evaluator with all labels of the closed copy; or PeerFault."""
        masked: Bits = np.empty(0, np.uint8)
        held: Bits = np.empty((0, LABEL_BYTES), np.uint8)
        if copy is not None:
            if self._inputs is not None:
                choices = copy.choices.reshape(-1, terms.instances)[terms.mask_rows]
                masked = bits_of(self._inputs, terms.block) ^ choices
                yield self._piece(EVALUATOR, pack_bits(masked))
            corrections = yield from self._take_exactly(LABEL_BYTES * terms.transfers, "corrections")
            signed = self._signed(terms, statement, number, t.CORRECTIONS)
            if not hmac.compare_digest(terms.hash(number, t.CORRECTIONS, corrections), signed):
                reason = f"its corrections of copy {number} are not those that it signed"
                raise PeerFault(self._garbler, reason, Check.TRANSCRIPT_DIFFERS)
            held = copy.held(corrections)
        size = OPENED_BYTES * len(terms.list_wires) * terms.instances
        content = yield from self._take_exactly(size, "labels")
        try:
            signed = self._signed(terms, statement, number, t.LABELS)
            labels = check_labels(terms, number, content, masked, signed)
        except VerificationError as error:
            raise PeerFault(self._garbler, str(error), error.check) from None
        evaluator = Evaluator(self._plan.compiled, terms.garbling(number))
        set_inputs(terms, number, evaluator, labels, held)
        return evaluator

    def _take_exactly(self, size: int, name: str) -> Effects[bytes | memoryview]:
        """Return the garbler's next piece, b"" without waiting for size 0; PeerFault for another size."""
        if not size:
            return b""
        content = yield from self._take_piece(GARBLER, size)
        if len(content) != size:
            reason = f"sent {len(content)} bytes of {name}, not {size}"
            raise PeerFault(self._garbler, reason, Check.WRONG_LENGTH)
        return content

    def _signed(self, terms: Terms, statement: Statement, copy: int, position: int) -> bytes:
        """Return the hash of a copy's message at `position`, from the garbler's signed statement."""
        return statement.streams[copy][terms.positions.index(position)]

    def _outputs(
        self, terms: Terms, evaluator: Evaluator, closed: int, envelope: Envelope, statement: Statement
    ) -> Effects[Evaluated]:
        """Compare hashes of all data with the garbler; give the output to, or learn it from, others."""
        to, block = self._plan.parameters.output, terms.block
        self.step = "outputs"
        check = yield from self._take(self._garbler, CHECK, messages.Check)
        self._check_block(self._garbler, block.number, check.block)
        self._check_pieces(check.pieces)
        self._check_value(self._garbler, check.transcript)
        value, active, colours = (
            self._value(),
            evaluator.output_labels(),
            pack_bits(evaluator.output_colours()),
        )
        confirm = Confirm(block.number, value)
        if to in ("garbler", "both"):
            proof = self._proof(block.number, active.data.cast("B"))
            confirm = Confirm(block.number, value, colours, proof)
        yield self._control(self._garbler, CONFIRM, confirm)
        learned = None
        if to in ("evaluator", "both"):
            decode = yield from self._take(self._garbler, DECODE, OpenedDecode)
            try:
                commitment = self._signed(terms, statement, closed, t.DECODING)
                terms.check_decoding(closed, commitment, decode.opening, decode.colours)
            except VerificationError as error:
                raise PeerFault(self._garbler, str(error), error.check) from None
            outputs = self._decode(Decode(block.number, decode.colours), colours, block)
            learned = rows_of(outputs, self._plan.circuit.outputs)
        if to == "aggregator":
            aggregator = self._context.aggregator
            sealed = self._seal_labels(active, block)
            forwarded = ForwardedLabels(envelope.body, envelope.signature, closed, value, sealed)
            yield self._control(aggregator, LABELS, forwarded)
            receipt = yield from self._take_of_aggregator(RECEIPT, Receipt)
            self._check_value(aggregator, receipt.transcript)
        return self._evaluated(learned, value)
