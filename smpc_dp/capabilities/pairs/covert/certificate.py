"""The certificate of cheating: a garbler signed messages of a copy that do not follow from its seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Self

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.covert import terms as t
from smpc_dp.capabilities.pairs.covert.copies import EvaluatorCopy, GarblerCopy, replay
from smpc_dp.capabilities.pairs.covert.messages import SIGN, Statement
from smpc_dp.capabilities.pairs.covert.seeds import replay_seeds
from smpc_dp.capabilities.pairs.covert.terms import SEEDS, Terms
from smpc_dp.capabilities.pairs.garbled.messages import PAIRWISE, VERSION, Bytes32
from smpc_dp.capabilities.pairs.garbled.params import Mode, Output, check_parameters
from smpc_dp.capabilities.pairs.garbled.participant import run_identifier
from smpc_dp.capabilities.pairs.garbled.plan import COVERT_GATES, Plan
from smpc_dp.crypto.transcript import encode_uint
from smpc_dp.decoding import decode_msgpack
from smpc_dp.errors import Check, ConfigError, PeerFault, VerificationError
from smpc_dp.identity.keys import verify
from smpc_dp.identity.roster import is_name
from smpc_dp.wire.canonical_session import session_digest
from smpc_dp.wire.envelope import Body
from smpc_dp.wire.signing import Context, encode

FORMAT = "smpc-dp covert certificate 1"
MAX_CERTIFICATE_BYTES = 1 << 26
# G, E and perhaps an aggregator.
NAMES = (2, 3)


class CircuitFields(Body, frozen=True):
    """Serialised circuit inside a cheating certificate: widths, and gates as byte arrays."""

    inputs: list[int]
    outputs: list[int]
    wires: int
    op: bytes
    a: bytes
    b: bytes
    out: bytes

    @classmethod
    def of(cls, circuit: Circuit) -> Self:
        """Return a circuit as serialisable fields, to be part of a cheating certificate."""
        arrays = (array.astype("<u4").tobytes() for array in (circuit.a, circuit.b, circuit.out))
        return cls(
            list(circuit.inputs), list(circuit.outputs), circuit.n_wires, circuit.op.tobytes(), *arrays
        )

    def build(self) -> Circuit:
        """Rebuild the circuit from its serialised fields; raise ConfigError or ValueError if invalid."""
        a, b, out = (np.frombuffer(data, "<u4").astype(np.uint32) for data in (self.a, self.b, self.out))
        op = np.frombuffer(self.op, np.uint8)
        return Circuit(tuple(self.inputs), tuple(self.outputs), self.wires, op, a, b, out)


class Certificate(Body, frozen=True, kw_only=True):
    """Content of a certificate's file, by which `judge` finds whether the garbler cheated in one copy."""

    format: str = FORMAT
    session_digest: Bytes32
    request: Annotated[int, Meta(ge=0)]
    session: bytes
    names: Annotated[list[str], Meta(min_length=2, max_length=3)]
    nonces: bytes
    keys: bytes
    public_key: Bytes32
    statement: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    circuit: CircuitFields
    instances: int
    mode: Mode
    output: Output
    evaluator_inputs: list[int]
    random_inputs: list[int]
    copies: int
    first_message: Bytes32
    first_seed: Bytes32
    copy: int
    seed: Bytes32

    def encode(self) -> bytes:
        """Return the bytes of the certificate's file."""
        return encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Parse a certificate's file; raise VerificationError for malformed content."""
        if len(content) > MAX_CERTIFICATE_BYTES:
            reason = f"no certificate: {len(content)} bytes, {MAX_CERTIFICATE_BYTES} at most"
            raise VerificationError(reason, Check.TOO_LONG)
        try:
            certificate = decode_msgpack(content, cls)
        except (msgspec.DecodeError, ValueError) as error:
            raise VerificationError(f"no certificate: {error}", Check.MALFORMED) from None
        if len(certificate.circuit.op) > COVERT_GATES:
            reason = f"circuit: {len(certificate.circuit.op)} gates, {COVERT_GATES} at most"
            raise VerificationError(reason, Check.TOO_MANY)
        if certificate.format != FORMAT:
            raise VerificationError("no certificate of this format", Check.UNKNOWN_FORMAT)
        if certificate.encode() != content:
            raise VerificationError("certificate: not the canonical encoding", Check.NOT_CANONICAL)
        return certificate


@dataclass(frozen=True, slots=True)
class Conviction:
    """Result of checking a cheating certificate: who cheated, in which run, copy and message.

    `session` is the canonical JSON of the two parties' session, empty for a pair of a statistic.
    """

    garbler: str
    public_key: bytes
    evaluator: str
    session_digest: bytes
    session: bytes
    run_id: bytes
    copy: int
    copies: int
    message: str


def judge(content: bytes) -> Conviction:
    """Check a certificate by garbling the copy again from its seeds; return who is convicted, or raise.

    Raises VerificationError unless the first message of the copy that does not follow from the seeds is the
    garbler's, and the garbler has signed it.
    """
    certificate = Certificate.decode(content)
    plan = _plan(certificate)
    run_id = run_of(certificate)
    statement = _statement(certificate, run_id)
    bound = (PAIRWISE.encode(), encode_uint(VERSION))
    terms = Terms(bound, run_id, statement.start, plan)
    if not terms.fits(statement.plan, statement.start, statement.streams):
        raise VerificationError("the statement is of another plan", Check.OTHER_PLAN)
    if not 1 <= certificate.copy <= terms.copies:
        raise VerificationError(f"no copy {certificate.copy}", Check.OUT_OF_RANGE)
    for stream, seed in ((SEEDS, certificate.first_seed), (certificate.copy, certificate.seed)):
        if [terms.commitment(stream, seed)] != statement.commitments[stream : stream + 1]:
            reason = f"the evaluator's seed of stream {stream} is not the one that it committed to"
            raise VerificationError(reason, Check.BAD_OPENING)
    seed = _garbler_seed(terms, certificate, statement)
    garbler = GarblerCopy(terms, certificate.copy, seed)
    made = replay(terms, certificate.copy, garbler, EvaluatorCopy(terms, certificate.copy, certificate.seed))
    position = t.first_difference(made, statement.streams[certificate.copy])
    if position is None:
        raise VerificationError(
            "the copy follows from the seeds: the garbler is honest", Check.FALSE_ACCUSATION
        )
    if position in t.EVALUATORS:
        reason = f"the evaluator's {t.MESSAGES[position]} does not follow from its seed"
        raise VerificationError(f"{reason}: nobody is convicted", Check.FALSE_ACCUSATION)
    return Conviction(
        certificate.names[0],
        certificate.public_key,
        certificate.names[1],
        certificate.session_digest,
        certificate.session,
        run_id,
        certificate.copy,
        terms.copies,
        t.MESSAGES[position],
    )


def _plan(certificate: Certificate) -> Plan:
    """Return the plan of the evaluation that a certificate describes; raise VerificationError if invalid."""
    fields = {
        "circuit": "",
        "digest": "0" * 64,
        "garbler": certificate.names[0],
        "evaluator": certificate.names[1],
        "instances": certificate.instances,
        "evaluator_inputs": certificate.evaluator_inputs,
        "random_inputs": certificate.random_inputs,
        "output": certificate.output,
        "mode": certificate.mode,
        "covert": certificate.copies,
    }
    parameters, issues = check_parameters(fields, 2)
    if parameters is None or not parameters.covert:
        raise VerificationError(f"no plan: {'; '.join(map(str, issues))}", Check.OTHER_PLAN)
    try:
        circuit = certificate.circuit.build()
        indices = (*certificate.evaluator_inputs, *certificate.random_inputs)
        if any(value >= len(circuit.inputs) for value in indices):
            raise VerificationError("no plan: an input value that the circuit has not", Check.OTHER_PLAN)
        return Plan(circuit, parameters)
    except (ConfigError, ValueError) as error:
        raise VerificationError(f"no plan: {error}", Check.OTHER_PLAN) from None


def run_of(certificate: Certificate) -> bytes:
    """Return the id of the run that a cheating certificate is about; raise VerificationError if invalid.

    Raises VerificationError for a session, nonces or keys of a form that no run has.
    """
    third = certificate.output == "aggregator"
    count = NAMES[third]
    expected = (count, 32 * count, 32 * count * third)
    if (len(certificate.names), len(certificate.nonces), len(certificate.keys)) != expected:
        raise VerificationError("names, nonces or keys are not those of a run", Check.WRONG_LENGTH)
    if not all(map(is_name, certificate.names)):
        # They are printed: a name that no roster has could be a line of its own.
        raise VerificationError("names: no member of a session can have one of them", Check.MALFORMED)
    if certificate.session and session_digest(certificate.session) != certificate.session_digest:
        raise VerificationError("the session has another digest", Check.OTHER_SESSION)
    return run_identifier(
        (PAIRWISE.encode(), encode_uint(VERSION)),
        certificate.session_digest,
        certificate.request,
        certificate.names,
        certificate.nonces,
        certificate.keys,
    )


def _statement(certificate: Certificate, run_id: bytes) -> Statement:
    """Decode the garbler's statement in a certificate; raise VerificationError if its signature fails."""
    names = certificate.names
    context = Context(PAIRWISE, VERSION, b"", certificate.request, names[:2], "", {})
    body_hash = hashlib.sha256(certificate.statement).digest()
    signed = context.statement(run_id, SIGN, names[0], names[1], body_hash)
    verify(certificate.public_key, signed, certificate.signature)
    try:
        return decode_msgpack(certificate.statement, Statement)
    except (msgspec.DecodeError, ValueError) as error:
        raise VerificationError(f"malformed statement: {error}", Check.MALFORMED) from None


def _garbler_seed(terms: Terms, certificate: Certificate, statement: Statement) -> bytes:
    """Return the garbler's seed of the false copy, by replaying the seed transfer; or VerificationError."""
    try:
        made, learned = replay_seeds(terms, certificate.first_seed, certificate.first_message)
    except PeerFault as error:
        raise VerificationError(f"the seed transfer: {error.reason}", Check.FALSE_ACCUSATION) from None
    position = t.first_difference(made.items(), statement.streams[SEEDS])
    if position is not None:
        reason = (
            f"the seed transfer: the {t.SEED_MESSAGES[position]} does not follow from the evaluator's seed"
        )
        raise VerificationError(f"{reason}, or is not the signed one", Check.FALSE_ACCUSATION)
    if certificate.copy == learned.closed:
        raise VerificationError(f"copy {certificate.copy} is the closed one", Check.FALSE_ACCUSATION)
    return learned.seeds[certificate.copy]
