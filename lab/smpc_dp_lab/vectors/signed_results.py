"""Stored results of parties as vectors, for both auditors: those that hold, and each with one fault."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import SentResults
from smpc_dp.engine.registry import make_aggregator, make_party
from smpc_dp.engine.result import Outcome, Result
from smpc_dp.identity.keys import Identity
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.session_file import SessionFile, parse_session, roster_entry
from smpc_dp.session.toml_text import toml, toml_key
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.signing import Context
from smpc_dp_lab.vectors.runs import AGGREGATOR, NAMES, ROWS, VERSIONS, header

Json = dict[str, Any]
# The receiver of the results.
RECEIVER, OTHER = NAMES[0], NAMES[1]
LENGTH = 2


@dataclass(frozen=True)
class SignedScenario:
    """A session, what its parties give, and the parties that die, as in `runs.Scenario`.

    `version`: of the session; None: that of the other vectors.
    """

    name: str
    about: str
    parameters: Mapping[str, object]
    protocol: str = "secagg"
    version: int | None = None
    parties: int = 4
    kind: str = "sum"
    weights: Sequence[int] | None = None
    kill: Mapping[str, int] = field(default_factory=dict)

    def identity(self, name: str) -> Identity:
        """Return the key of the member of this name, equal in all scenarios."""
        return Identity.from_seed(name, SeededRandomnessForSimulation(1, f"signed results {name}").bytes(32))

    @functools.cached_property
    def text(self) -> str:
        """The text of the session file."""
        lines = [f"protocol = {toml(self.protocol, 'protocol')}"]
        lines += [f"version = {self.version or VERSIONS[self.protocol]}", "", "[parameters]"]
        lines += [
            f"{toml_key(key)} = {toml(value, f'parameters.{key}')}" for key, value in self.parameters.items()
        ]
        lines += ["", roster_entry(self.identity(AGGREGATOR).entry("aggregator", "192.0.2.7:7100"))]
        lines += [f"\n{roster_entry(self.identity(name).entry('party'))}" for name in NAMES[: self.parties]]
        return "\n".join(lines) + "\n"

    @functools.cached_property
    def session(self) -> SessionFile:
        """The parsed and checked session."""
        return parse_session(self.text)

    @property
    def request_parameters(self) -> Any:
        """The checked parameters of the session's one kind of request."""
        [parameters] = self.session.checked_parameters.requests
        return parameters

    @property
    def context(self) -> Context:
        """The context of the session's first request."""
        session, parameters = self.session, self.request_parameters
        operation = " ".join(part for part in (self.kind, "week 7", parameters.planned()) if part)
        return Context(
            protocol=session.protocol,
            version=session.version,
            session_digest=session.digest,
            request=1,
            names=session.roster.party_names,
            aggregator=AGGREGATOR,
            keys=session.roster.keys,
            operation=operation,
        )

    def vector(self, index: int) -> Any:
        """Return the vector of the party with this index."""
        return ROWS[index][:LENGTH]

    @functools.cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcomes of a simulated run, by name of the members that have one."""
        context, parameters = self.context, self.request_parameters
        parties = []
        for index, name in enumerate(context.names):
            weight = None if self.weights is None else self.weights[index]
            vector, _ = parameters.sum_encoding.encode(self.vector(index), party=name, weight=weight)
            random = SeededRandomnessForSimulation(1, f"signed results {self.name} {name}")
            parties.append(make_party(context, parameters, self.identity(name), vector, random))
        random = SeededRandomnessForSimulation(1, f"signed results {self.name} {AGGREGATOR}")
        last = SentResults(random)
        aggregator = make_aggregator(context, parameters, self.identity(AGGREGATOR), last=last)
        drive([aggregator, *parties], MemoryNetwork(Faults(kill=self.kill)), AGGREGATOR)
        return {role.name: role.result for role in (aggregator, *parties) if role.name not in self.kill}

    @property
    def results(self) -> dict[str, Json]:
        """The outcomes as results in JSON data, by name of the member."""
        parameters = self.request_parameters
        return {
            name: msgspec.to_builtins(
                Result.of(outcome, self.kind, distributions=parameters.noise_distributions).to_json()
            )
            for name, outcome in self.outcomes.items()
        }


_FOUR: dict[str, object] = {"length": LENGTH, "lower": -2.0, "upper": 2.0, "precision": 0.01}
_FOUR |= {"dropout": 0.25, "corrupt": 0.0}
_NOISY = _FOUR | {"epsilon": 1.0, "delta": 1e-6}
CHECKED = SignedScenario(
    "checked",
    "Each receiver checks the total; dave dies before he sends his masked vector.",
    _FOUR | {"total": "checked"},
    kill={"dave": 6},
)
# Nothing is said of lost and of colluding parties.
_UNSAID = {"length": LENGTH, "lower": -2.0, "upper": 2.0, "precision": 0.01, "total": "checked"}
OF_VERSION_2 = SignedScenario(
    "version-2",
    "Five parties, version 2 without `dropout` and `corrupt`: none may collude, and 3 of 5 sign.",
    _UNSAID,
    parties=5,
)
OF_VERSION_3 = replace(
    OF_VERSION_2,
    name="version-3",
    about="Five parties, version 3 without `dropout` and `corrupt`: one may collude, and 4 of 5 sign.",
    version=3,
)
KEEP = SignedScenario(
    "gopa-keep",
    "An average of GOPA, in which the noise of a lost party is left.",
    _NOISY | {"on_dropout": "keep"},
    protocol="gopa",
    kind="average",
    kill={"dave": 5},
)
SCENARIOS = (
    CHECKED,
    SignedScenario(
        "unchecked", "The total is the aggregator's word.", _FOUR | {"total": "unchecked"}, kind="average"
    ),
    SignedScenario(
        "checked-weights",
        "A weighted average whose total is checked.",
        _FOUR | {"max_weight": 1000, "total": "checked"},
        kind="average",
        weights=(1, 1000, 0, 37),
    ),
    SignedScenario("checked-noisy", "A noisy sum whose total is checked.", _NOISY | {"total": "checked"}),
    SignedScenario(
        "gopa-roll-back",
        "An average of GOPA whose total is checked.",
        _NOISY | {"on_dropout": "roll-back", "total": "checked"},
        protocol="gopa",
        kind="average",
    ),
    SignedScenario(
        "checked-private-weights",
        "A noisy weighted average, whose weights are private.",
        _NOISY | {"max_weight": 1000, "total": "checked"},
        kind="average",
        weights=(1, 1000, 0, 37),
    ),
    KEEP,
    OF_VERSION_2,
    OF_VERSION_3,
)


@dataclass(frozen=True)
class Fault:
    """Change of a stored result, the check that must refuse it, and whether the aggregator signed it."""

    name: str
    about: str
    check: str
    change: Callable[[Json], None]
    signed: bool = False
    base: SignedScenario = CHECKED


def _set(*path: str, to: Any) -> Callable[[Json], None]:
    """Return a function that sets a result's field at `path`: to a value, or a function of the old."""

    def change(result: Json) -> None:
        *folders, last = path
        inner = result
        for folder in folders:
            inner = inner[folder]
        inner[last] = to(inner[last]) if callable(to) else to

    return change


def flip(text: str, at: int = 0) -> str:
    """Return hex text in which one digit, counted from the end, has its lowest bit flipped."""
    at = len(text) - 1 - at
    return f"{text[:at]}{int(text[at], 16) ^ 1:x}{text[at + 1 :]}"


def sign_body(scenario: SignedScenario, result: Json, body: bytes) -> None:
    """Replace the signed message's body in a result, and sign it anew as the aggregator, in place."""
    evidence = result["evidence"]
    signed, parameters = evidence["signed_result"], scenario.request_parameters
    statement = scenario.context.statement(
        bytes.fromhex(evidence["run_id"]),
        parameters.total_step,
        AGGREGATOR,
        signed["receiver"],
        hashlib.sha256(body).digest(),
    )
    signed["body"], signed["signature"] = body.hex(), scenario.identity(AGGREGATOR).sign(statement).hex()


def resigned(change: Callable[[m.CheckedResult], bytes]) -> Callable[[Json], None]:
    """Return a function that changes the signed body of a result, and signs it as the aggregator."""

    def applied(result: Json) -> None:
        body = bytes.fromhex(result["evidence"]["signed_result"]["body"])
        sign_body(CHECKED, result, change(msgspec.msgpack.decode(body, type=m.CheckedResult)))

    return applied


def _fields(**fields: Callable[[bytes], bytes]) -> Callable[[Json], None]:
    """Return a function that changes fields of the signed body of a result, and signs it anew."""
    return resigned(
        lambda message: msgspec.msgpack.encode(
            msgspec.structs.replace(
                message, **{name: made(getattr(message, name)) for name, made in fields.items()}
            )
        )
    )


def flip_byte(at: int) -> Callable[[bytes], bytes]:
    """Return a function that flips the lowest bit of one byte of its argument."""
    return lambda content: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


_EVIDENCE, _SIGNED = ("evidence",), ("evidence", "signed_result")
_ORDER = (1 << 252) + 27742317777372353535851937790883648493
FAULTS = (
    Fault(
        "no-signature",
        "A field is missing.",
        "malformed",
        lambda r: r["evidence"]["signed_result"].pop("signature"),
    ),
    Fault("unknown-field", "A field too many.", "malformed", _set(*_SIGNED, "more", to=1)),
    Fault("upper-case", "Hex in upper case.", "malformed", _set(*_EVIDENCE, "run_id", to=str.upper)),
    Fault("newer-version", "Of a later release.", "unknown-format", _set(*_SIGNED, "version", to=2)),
    Fault(
        "other-session", "Of another session.", "other-session", _set(*_EVIDENCE, "session_digest", to=flip)
    ),
    Fault(
        "other-protocol",
        "Of another version of the protocol.",
        "other-session",
        _set(*_EVIDENCE, "version", to=3),
    ),
    Fault(
        "not-checked",
        "Without a root of values.",
        "other-plan",
        _set(*_SIGNED, "roll", "values_root", to=None),
    ),
    Fault(
        "no-certificate",
        "Without the survivors' certificate.",
        "other-plan",
        _set(*_EVIDENCE, "survivors", to=None),
    ),
    Fault(
        "set",
        "A set that is not in its shortest form.",
        "bad-set",
        _set(*_SIGNED, "start", "present", to="00f0"),
    ),
    Fault(
        "stranger",
        "A survivor that is no party.",
        "not-in-roster",
        _set("survivors", to=["alice", "mallory"]),
    ),
    Fault(
        "order",
        "Participants in another order.",
        "wrong-order",
        _set(*_EVIDENCE, "participating", to=lambda n: n[::-1]),
    ),
    Fault("absent", "Nobody is absent.", "set-differs", _set("absent", to=[])),
    Fault("request", "Another request.", "run-id-differs", _set(*_SIGNED, "request", to=2)),
    Fault("question", "Another question.", "run-id-differs", _set(*_SIGNED, "operation", to="sum week 8")),
    Fault("nonces", "Another root of nonces.", "run-id-differs", _set(*_SIGNED, "start", "root", to=flip)),
    Fault("run", "Another run.", "run-id-differs", _set(*_EVIDENCE, "run_id", to=flip)),
    Fault(
        "advertised",
        "A participant that did not advertise.",
        "set-grew",
        _set(*_SIGNED, "roll", "advertised", to="00e0"),
    ),
    Fault(
        "too-few",
        "Two survivors.",
        "set-too-small",
        lambda r: r.update(survivors=["alice", "bob"], absent=["carol", "dave"]),
    ),
    Fault(
        "receiver-absent", "The receiver is absent.", "not-included", _set(*_SIGNED, "receiver", to="dave")
    ),
    Fault(
        "advertisements",
        "Another root of advertisements.",
        "other-statement",
        _set(*_SIGNED, "roll", "root", to=flip),
    ),
    Fault(
        "values", "Another root of values.", "other-statement", _set(*_SIGNED, "roll", "values_root", to=flip)
    ),
    Fault("roll", "Another roll digest.", "other-statement", _set(*_EVIDENCE, "roll", to=flip)),
    Fault(
        "participants",
        "A participant too few.",
        "other-statement",
        _set(*_EVIDENCE, "participating", to=["alice", "bob", "carol"]),
    ),
    Fault(
        "other-survivors",
        "Other survivors.",
        "other-statement",
        lambda r: r.update(survivors=["alice", "bob", "dave"], absent=["carol"]),
    ),
    Fault(
        "attestation",
        "A signature of the survivors is false.",
        "bad-certificate",
        _set(*_EVIDENCE, "survivors", "signatures", "bob", to=flip),
    ),
    Fault(
        "outsider",
        "A signer of the survivors that is none of them.",
        "bad-certificate",
        lambda r: r["evidence"]["survivors"]["signatures"].update(
            dave=r["evidence"]["participants"]["signatures"]["bob"]
        ),
    ),
    Fault(
        "quorum",
        "Two signatures.",
        "no-quorum",
        lambda r: r["evidence"]["participants"]["signatures"].pop("carol"),
    ),
    Fault(
        "sample",
        "A quorum as a sample.",
        "bad-certificate",
        lambda r: r["evidence"]["participants"].update(
            sample={"signers": [*r["evidence"]["participants"]["signatures"]], "root": "00" * 32, "proof": ""}
        ),
    ),
    Fault(
        "signature",
        "The aggregator's signature is false.",
        "bad-signature",
        _set(*_SIGNED, "signature", to=flip),
    ),
    Fault("receiver", "Signed for another receiver.", "bad-signature", _set(*_SIGNED, "receiver", to="bob")),
    Fault("body", "Another body than was signed.", "bad-signature", _set(*_SIGNED, "body", to=flip)),
    Fault(
        "trailing",
        "A byte after the body.",
        "malformed",
        resigned(lambda message: msgspec.msgpack.encode(message) + b"\0"),
        signed=True,
    ),
    Fault(
        "not-canonical",
        "A length in more bytes than it needs.",
        "not-canonical",
        resigned(lambda message: b"\xdc\0\4" + msgspec.msgpack.encode(message)[1:]),
        signed=True,
    ),
    Fault(
        "short",
        "A total that is too short.",
        "malformed",
        _fields(total=lambda total: total[:-1]),
        signed=True,
    ),
    Fault(
        "opening-missing",
        "An opening is missing.",
        "not-one-each",
        _fields(openings=lambda shown: shown[96:]),
        signed=True,
    ),
    Fault("hash-missing", "A hash is missing.", "not-one-each", _fields(hidden=lambda _: b""), signed=True),
    Fault(
        "openings-swapped",
        "Two openings are exchanged.",
        "not-signed",
        _fields(openings=lambda shown: shown[96:192] + shown[:96] + shown[192:]),
        signed=True,
    ),
    Fault(
        "commitment",
        "A commitment that its party did not sign.",
        "not-signed",
        _fields(openings=flip_byte(0)),
        signed=True,
    ),
    Fault("hash", "Another hash.", "not-in-tree", _fields(hidden=flip_byte(0)), signed=True),
    Fault(
        "blinding-too-large",
        "The order of the group is added to R.",
        "bad-commitment",
        _fields(blinding=lambda r: (int.from_bytes(r, "little") + _ORDER).to_bytes(32, "little")),
        signed=True,
    ),
    Fault("blinding", "Another R.", "wrong-total", _fields(blinding=flip_byte(0)), signed=True),
    Fault("total", "Another total.", "wrong-total", _fields(total=flip_byte(0)), signed=True),
    Fault(
        "fixed-point",
        "Another total beside the signed one.",
        "wrong-result",
        _set("fixed_point", to=lambda v: [v[0] + 1, *v[1:]]),
    ),
    Fault("value", "Another value.", "wrong-result", _set("value", to=lambda v: [v[0] + 1.0, *v[1:]])),
    Fault(
        "value-type", "A value that is no number.", "malformed", _set("value", to=lambda v: [True, *v[1:]])
    ),
    Fault("weight", "Another weight.", "wrong-result", _set("weight", to=4)),
    Fault("step", "Another step.", "wrong-result", _set("step", to=1.0)),
    Fault("kind", "An average.", "wrong-result", _set("kind", to="average")),
    Fault(
        "error",
        "Noise in an exact sum.",
        "wrong-result",
        _set("standard_error", to=1.0),
    ),
    Fault(
        "epsilon",
        "Differential privacy of an exact sum.",
        "wrong-result",
        _set("privacy", "epsilon", to=1.0),
    ),
    Fault(
        "keep-survivors",
        "Other survivors beside an average, which no certificate binds: nobody is at fault.",
        "set-differs",
        lambda r: r.update(survivors=["alice", "bob", "dave"], absent=["carol"]),
        base=KEEP,
    ),
    Fault(
        "version-3-quorum",
        "The signatures of 3 of 5, which version 2 asks for.",
        "no-quorum",
        lambda r: r["evidence"]["participants"]["signatures"].pop("carol"),
        base=OF_VERSION_3,
    ),
    Fault("residual", "Noise is left in it.", "wrong-result", _set("residual_pairs", to=1)),
)


def all_to_json() -> dict[str, Json]:
    """Return all test vectors of signed results, by file name."""
    files = {f"result-{scenario.name}": _holding(scenario) for scenario in SCENARIOS}
    files["result-compared"] = _compared()
    for fault in FAULTS:
        result = copy.deepcopy(fault.base.results[RECEIVER])
        fault.change(result)
        files[f"result-fault-{fault.name}"] = {
            **header("result-fault", fault.name, fault.about),
            "base": f"result-{fault.base.name}.json",
            "result": _evidence_of(result),
            "expect": {"code": 1, "check": fault.check, "culprit": AGGREGATOR if fault.signed else None},
        }
    return files


def _holding(scenario: SignedScenario) -> Json:
    """Return the test vector of a valid stored result."""
    result = scenario.results[RECEIVER]
    return {
        **header("result", scenario.name, scenario.about),
        "session": scenario.text,
        "result": _evidence_of(result),
        "run": result["evidence"]["run_id"],
        "expect": {"code": 0, "check": None, "culprit": None},
    }


def _compared() -> Json:
    """Return the test vector of comparing results: one equal for another receiver, one that differs."""
    other = copy.deepcopy(CHECKED.results[OTHER])
    two = copy.deepcopy(other)
    _fields(total=flip_byte(0))(two)
    return {
        **header("result-compared", "compared", "Results of one run, and what comparing them with it gives."),
        "base": f"result-{CHECKED.name}.json",
        "results": [
            {"result": _evidence_of(other), "expect": {"code": 0, "check": None, "culprit": None}},
            {
                "result": _evidence_of(two),
                "expect": {"code": 8, "check": "equivocation", "culprit": AGGREGATOR},
            },
        ],
    }


def _evidence_of(result: Json) -> Json:
    """Return a result without most of the fields that no audit reads."""
    stored = {name: value for name, value in result.items() if name not in ("faults", "clipped", "receipt")}
    numbers = {name: result["privacy"][name] for name in ("unit", "epsilon", "delta")}
    return stored | {"privacy": numbers}
