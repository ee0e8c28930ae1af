"""Certificates of cheating as vectors: some that convict, and some that do not, with one change each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as replaced

from msgspec.structs import replace

from smpc_dp.capabilities.pairs.circuits.circuit import pack
from smpc_dp.capabilities.pairs.covert import messages as c
from smpc_dp.capabilities.pairs.covert import terms as t
from smpc_dp.capabilities.pairs.covert.certificate import Certificate, CircuitFields, judge
from smpc_dp.capabilities.pairs.covert.copies import GarblerCopy
from smpc_dp.capabilities.pairs.covert.garbler import CovertGarblerRole
from smpc_dp.capabilities.pairs.garbled.messages import PAIRWISE
from smpc_dp.capabilities.pairs.roles import party_role
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.crypto.ot import BaseSender
from smpc_dp.errors import PeerFault
from smpc_dp.wire.canonical_session import session_digest, session_json
from smpc_dp_lab.vectors.covert_negative import CONVICTED, COVERT_KINDS, all_faults
from smpc_dp_lab.vectors.covert_runs import SCENARIOS
from smpc_dp_lab.vectors.fault import flip
from smpc_dp_lab.vectors.pairwise_fault import Base, Fault, opened, replay
from smpc_dp_lab.vectors.pairwise_runs import EVALUATOR, GARBLER, JsonObject, find, new_run
from smpc_dp_lab.vectors.runs import header

BASE = "both"
# What the hash of a certificate's session covers; the judge does not read it.
SESSION = session_json({"protocol": PAIRWISE, "roster": [GARBLER, EVALUATOR]})
ANOTHER_POINT = BaseSender(EVALUATOR, bytes(32), bytes(32)).first


class _OtherTables(GarblerCopy):
    """Garbler's copy whose signed digest of tables is wrong: it does not follow from the seed."""

    def digests(self, *, store: bool = False) -> dict[int, bytes]:
        return super().digests(store=store) | {t.TABLES: bytes(32)}


class _Cheat(CovertGarblerRole):
    """Garbler role that signs wrong tables in all copies."""

    def _copy(self, terms: t.Terms, copy: int, seed: bytes) -> GarblerCopy:
        return _OtherTables(terms, copy, seed)


@dataclass(frozen=True, slots=True)
class Made:
    """Certificate of the evaluator of the base run, whose garbler signed another statement.

    `seeds`: the evaluator's of all streams; `honest`: the certificate with the statement of the base run;
    `framed`: with one of another message of the evaluator than it sent.
    """

    true: Certificate
    honest: Certificate
    framed: Certificate
    seeds: list[bytes]


def generate() -> dict[str, JsonObject]:
    """Return all test vectors of certificates against cheating garblers, by name."""
    faults = {fault.name: fault for fault in all_faults()}
    vectors: dict[str, JsonObject] = {}
    for fault in faults.values():
        if fault.layer == CONVICTED:
            certificate = _certificate(fault)
            about = f"From negative-{fault.name}.json: {fault.about}"
            name = f"certificate-{fault.name.removeprefix('sign-checked-')}"
            vectors[name] = _json(name, about, certificate, _convicts(certificate))
    certificate, name = _of_session(), "certificate-with-session"
    about = "The canonical JSON of the two parties' session is in the file: the session digest is its hash."
    vectors[name] = _json(name, about, certificate, _convicts(certificate))
    changed = replace(Certificate.decode(certificate), session=flip(SESSION)).encode()
    about = "The session has a flipped bit: its digest is another one."
    false = ("changed-session", about, changed)
    for name, about, content in (*_false(_made(faults)), false):
        vectors[f"no-certificate-{name}"] = _json(f"no-certificate-{name}", about, content, None)
    return vectors


def _convicts(certificate: bytes) -> JsonObject:
    """Return, as JSON data, the offence and the offender that a certificate proves."""
    conviction = judge(certificate)
    return {
        "garbler": conviction.garbler,
        "public_key": conviction.public_key.hex(),
        "run_id": conviction.run_id.hex(),
        "copy": conviction.copy,
        "message": conviction.message,
    }


def _of_session() -> bytes:
    """Return the certificate against a garbler that cheats in all copies, of a session of two parties."""
    run = new_run(find(BASE, SCENARIOS))
    context = replaced(run.context, session_digest=session_digest(SESSION))
    rows = {
        name: [
            pack(values, run.plan.circuit.inputs[index])
            for index, values in zip(indices, run.inputs[name], strict=True)
        ]
        for name, indices in ((GARBLER, run.plan.garbler_values), (EVALUATOR, run.plan.evaluator_values))
    }
    ends = evaluate_in_memory(
        {
            GARBLER: _Cheat(context, run.signers[GARBLER], run.plan, rows[GARBLER], run.randomness[GARBLER]),
            EVALUATOR: party_role(
                context,
                run.signers[EVALUATOR],
                run.plan,
                rows[EVALUATOR],
                run.randomness[EVALUATOR],
                session=SESSION,
            ),
        }
    )
    end = ends[EVALUATOR]
    if not isinstance(end, PeerFault):
        raise LookupError("no certificate of a session")
    return end.evidence["certificate"]


def _json(name: str, about: str, certificate: bytes, convicts: JsonObject | None) -> JsonObject:
    """Return one test vector of a certificate; `convicts` is None if it convicts nobody."""
    return {
        **header("certificate", name, about),
        "certificate": certificate.hex(),
        "convicts": convicts,
    }


def _certificate(fault: Fault) -> bytes:
    """Return the certificate that the evaluator makes when it meets this fault."""
    base = Base(find(fault.base, SCENARIOS), COVERT_KINDS)
    ended = replay(new_run(base.scenario).roles[fault.receiver], base.run.sent_to(fault.receiver), fault).end
    if not isinstance(ended, PeerFault):
        raise LookupError(f"{fault.name}: no certificate")
    return ended.evidence["certificate"]


def _made(faults: dict[str, Fault]) -> Made:
    """Return true certificates and statements, from which false certificates are put together."""
    true = Certificate.decode(_certificate(faults["sign-checked-tables"]))
    base = Base(find(BASE, SCENARIOS), COVERT_KINDS)

    def with_statement(data: bytes) -> Certificate:
        envelope = opened(data, GARBLER)
        return replace(true, statement=envelope.body, signature=envelope.signature)

    index, _ = base.step(c.SIGN)
    honest = with_statement(base.taken(EVALUATOR)[index][1])
    framed = with_statement(faults["sign-another-transfer-response"].message)
    seeds = [drawn for drawn in base.run.randomness[EVALUATOR].draws if len(drawn) == t.SEED_BYTES]
    return Made(true, honest, framed, seeds[-1 - base.scenario.covert :])


def _false(made: Made) -> Iterator[tuple[str, str, bytes]]:
    """Yield name, description and content of each certificate that convicts nobody."""
    true, honest = made.true, made.honest
    closed = 3 - true.copy
    yield "honest", "The garbler signed what follows from the seed of the copy.", honest.encode()
    about = "The first message that does not follow from the seeds is the evaluator's."
    yield "evaluator-first", about, made.framed.encode()
    about = "The copy is the one that the evaluator left closed."
    yield "closed-copy", about, replace(honest, copy=closed, seed=made.seeds[closed]).encode()
    other = find("evaluator-has-no-input", SCENARIOS).built
    changes: dict[str, tuple[str, Callable[[Certificate], Certificate]]] = {
        "signature": ("The signature has a flipped bit.", lambda x: replace(x, signature=flip(x.signature))),
        "statement": (
            "The statement has a flipped bit.",
            lambda x: replace(x, statement=flip(x.statement, -1)),
        ),
        "public-key": ("The key has a flipped bit.", lambda x: replace(x, public_key=flip(x.public_key))),
        "first-seed": (
            "The evaluator's seed of the seed transfer is another one than it committed to.",
            lambda x: replace(x, first_seed=flip(x.first_seed)),
        ),
        "first-message": (
            "The garbler's message of the seed transfer is another one than it signed.",
            lambda x: replace(x, first_message=ANOTHER_POINT),
        ),
        "seed": (
            "The evaluator's seed of the copy is another one than it committed to.",
            lambda x: replace(x, seed=flip(x.seed)),
        ),
        "copy": ("The seed is that of another copy.", lambda x: replace(x, copy=closed)),
        "no-such-copy": ("There is no such copy.", lambda x: replace(x, copy=x.copies + 1)),
        "copies": ("The plan has a copy more.", lambda x: replace(x, copies=x.copies + 1)),
        "nonces": (
            "A nonce has a flipped bit: the run is another one.",
            lambda x: replace(x, nonces=flip(x.nonces)),
        ),
        "names": (
            "The garbler has another name: the run is another one.",
            lambda x: replace(x, names=["carol", *x.names[1:]]),
        ),
        "request": ("The request is another one.", lambda x: replace(x, request=x.request + 1)),
        "session": (
            "The session digest is another one.",
            lambda x: replace(x, session_digest=flip(x.session_digest)),
        ),
        "circuit": ("The circuit is another one.", lambda x: replace(x, circuit=CircuitFields.of(other))),
        "instances": ("The number of instances is another one.", lambda x: replace(x, instances=2)),
        "mode": ("The garbling keys are those of another mode.", lambda x: replace(x, mode="unique")),
        "evaluator-inputs": (
            "The inputs are shared out otherwise.",
            lambda x: replace(x, evaluator_inputs=[0]),
        ),
        "format": ("The format is a later one.", lambda x: replace(x, format=x.format[:-1] + "2")),
    }
    for name, (about, change) in changes.items():
        yield name, about, change(true).encode()
    yield "trailing-byte", "A byte follows the file.", true.encode() + b"\0"
    yield "truncated", "The last byte of the file is missing.", true.encode()[:-1]
