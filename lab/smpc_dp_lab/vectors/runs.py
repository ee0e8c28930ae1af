"""Whole runs as vectors: every input and random byte, and the digest of every message that follows."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec

from smpc_dp.capabilities.gopa import versions as gopa
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.key_graph import SumAggregator
from smpc_dp.engine.phases.last_results import HeldResult, SentResults
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import make_aggregator, make_party, session_protocol
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.errors import LocalError
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.privacy.secagg_plan import SecAggPlan, check_plan, plan_secagg
from smpc_dp.secagg import versions as secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import Signer, draw_signers, public_keys
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import EVERYONE, Envelope
from smpc_dp.wire.signing import Context, decode

SCHEMA = 1
AGGREGATOR = "relay"
NAMES = ("alice", "bob", "carol", "dave", "erin", "frank")
# Versions of the sessions of the vectors, where they are not the newest: those differ in defaults alone.
VERSIONS = {"secagg": secagg.EARLIER_VERSION, "gopa": gopa.EARLIER_VERSION}

Row = tuple[float, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Inputs of one recorded run: vectors, plan, encoding, and who dies before which message.

    `kill`: the number of the message before which a party dies (1 is its hello). `follows`: the session's run
    of request 1, where this is that of request 2.
    """

    name: str
    about: str
    encoding: Encoding
    plan: SecAggPlan
    vectors: tuple[Row, ...]
    weights: tuple[int, ...] | None = None
    kill: Mapping[str, int] = field(default_factory=dict)
    follows: Scenario | None = None

    @property
    def session(self) -> Scenario:
        """The scenario of the first run in the same session; itself if it is the first."""
        return self.follows or self

    @property
    def parameters(self) -> SumParameters:
        """The parameters of the run's roles."""
        return SecAggParameters(self.encoding, self.plan)

    @property
    def operation(self) -> str:
        """The operation that the parties ask for: "sum"."""
        return "sum"

    @property
    def stated(self) -> dict[str, object]:
        """Further fields of the session in the test vector; here none."""
        return {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parties, in roster order."""
        return NAMES[: len(self.vectors)]

    def weight(self, index: int) -> int | None:
        """Return the weight of the party of this index, None without weights."""
        return None if self.weights is None else self.weights[index]

    def encoded(self, index: int) -> RingVector:
        """Return the encoded vector of the party with this index."""
        vector, name = self.vectors[index], self.names[index]
        return self.encoding.encode(vector, party=name, weight=self.weight(index))[0]


def real(length: int, parties: int, max_weight: int = 0) -> Encoding:
    """Return the encoding of vectors with values between -2 and 2, with precision 0.01."""
    return Encoding.plan(
        length=length, lower=-2.0, upper=2.0, precision=0.01, parties=parties, max_weight=max_weight
    )


ROWS: tuple[Row, ...] = (
    (0.5, -1.25, 2.0),
    (-2.0, 0.0078125, 1.5),
    (0.1, -0.1, 0.3),
    (1.999, 1.0, -2.0),
    (0.0, 0.25, -0.75),
    (-1.0, 1.75, 0.625),
)
_FOUR = plan_secagg(4, dropout=0.25, corrupt=0.0)


def _of_four(name: str, about: str, **kill: int) -> Scenario:
    return Scenario(name, about, real(3, 4), _FOUR, ROWS[:4], kill=kill)


COMPLETE = _of_four("complete", "Four parties, the complete graph, nobody drops out.")
SCENARIOS = (
    COMPLETE,
    replace(
        COMPLETE,
        name="second",
        about="The session's second run, after that of run-complete.json: start names its result.",
        follows=COMPLETE,
    ),
    _of_four(
        "dropout-before-masked",
        "Dave dies before he sends his masked vector: his masking key is recovered.",
        dave=6,
    ),
    _of_four(
        "dropout-after-masked",
        "Dave dies after he sent his masked vector: he is a survivor, his self-mask is recovered.",
        dave=7,
    ),
    _of_four(
        "dropout-before-deal",
        "Dave dies before he deals: he is no participant and nobody applies a mask with him.",
        dave=4,
    ),
    Scenario(
        "weights",
        "Weighted vectors: each weight travels as one more coordinate.",
        real(2, 4, max_weight=1000),
        _FOUR,
        tuple(row[:2] for row in ROWS[:4]),
        weights=(1, 1000, 0, 37),
    ),
    Scenario(
        "wide-integers",
        "Integers whose sum needs 33 bits and travels in five bytes a coordinate.",
        Encoding.plan(length=2, lower=0, upper=(1 << 31) - 1, precision=None, parties=4),
        _FOUR,
        ((2147483647, 0), (2147483647, 1), (2147483647, 2147483647), (2147483646, 5)),
    ),
    Scenario(
        "sparse",
        "Six parties that draw three neighbours each; bob drops out. The plan is far too small for "
        "security and serves to show openings and one-sided edges.",
        real(3, 6),
        check_plan(6, 3, 2, dropout=0.34, corrupt=0.0),
        ROWS,
        kill={"bob": 6},
    ),
)


class Recording:
    """Wrapper of a source of randomness that records all bytes drawn, in order."""

    def __init__(self, source: Randomness) -> None:
        self._source = source
        self.draws: list[bytes] = []

    def bytes(self, n: int) -> bytes:
        """Return the next `n` bytes of the wrapped source, and record them."""
        drawn = self._source.bytes(n)
        self.draws.append(drawn)
        return drawn


class RecordingNetwork(MemoryNetwork):
    """Network that records the messages sent and not lost, in order."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.sent: list[Envelope] = []

    def send(self, envelope: Envelope) -> None:
        """Deliver an envelope, and record it unless its sender was killed."""
        before = self.messages
        super().send(envelope)
        if self.messages > before:
            self.sent.append(envelope)


@dataclass(slots=True)
class RecordedRun:
    """Context, keys and randomness of a scenario's roles, and after a run every envelope in order.

    `aggregator`: a `Run`, or None without one.
    """

    scenario: Scenario
    context: Context
    signers: dict[str, Signer]
    randomness: dict[str, Recording]
    ring_vector: dict[str, RingVector]
    parties: dict[str, Run[Any]]
    aggregator: Any
    sent: list[Envelope] = field(default_factory=list)

    @property
    def kinds(self) -> m.Kinds:
        """The message types that differ where totals are checked."""
        return self.scenario.parameters.kinds

    @property
    def by_step(self) -> dict[tuple[str, str], bytes]:
        """The bodies of all sent messages, by (step, sender)."""
        return {(envelope.step, envelope.sender): envelope.body for envelope in self.sent}

    def execute(self) -> Self:
        """Run all roles to the end in memory, recording the messages; return this object."""
        network = RecordingNetwork(Faults(kill=self.scenario.kill))
        roles = [*([self.aggregator] if self.aggregator else []), *self.parties.values()]
        drive(roles, network, roles[0].name, mesh=self.aggregator is None)
        self.sent = network.sent
        return self


def make_run(
    scenario: Scenario,
    parameters: Any,
    party: Callable[..., Run[Any]],
    aggregator: Callable[..., Run[Any]] | None = None,
) -> RecordedRun:
    """Return fresh roles for a scenario, with the same randomness every time.

    `party` and `aggregator` make a role from its context, parameters and signer; a party's also from its
    vector and randomness.
    """
    protocol = scenario.parameters.protocol

    def source(name: str, purpose: str) -> SeededRandomnessForSimulation:
        played = scenario if purpose == "run" else scenario.session
        label = f"{protocol} vectors {played.name} {purpose} {name}"
        return SeededRandomnessForSimulation(1, label)

    members = scenario.names if aggregator is None else (*scenario.names, AGGREGATOR)
    signers = draw_signers({name: source(name, "signing") for name in members})
    context = Context(
        protocol=protocol,
        version=VERSIONS.get(protocol, session_protocol(protocol).version),
        session_digest=source("", "session").bytes(32),
        request=1 if scenario.follows is None else 2,
        names=scenario.names,
        aggregator=EVERYONE if aggregator is None else AGGREGATOR,
        keys=public_keys(signers),
        operation=scenario.operation,
    )
    ring_vector = {name: scenario.encoded(index) for index, name in enumerate(scenario.names)}
    randomness = {name: Recording(source(name, "run")) for name in scenario.names}
    parties = {
        name: party(context, parameters, signers[name], vector.copy(), randomness[name])
        for name, vector in ring_vector.items()
    }
    relay = None if aggregator is None else aggregator(context, parameters, signers[AGGREGATOR])
    return RecordedRun(scenario, context, signers, randomness, ring_vector, parties, relay)


def new_run(scenario: Scenario) -> RecordedRun:
    """Return fresh roles for a scenario, with the same randomness every time."""
    held = {name: HeldResult() for name in scenario.names}

    def party(context: Context, parameters: Any, signer: Signer, *given: Any) -> Run[Any]:
        return make_party(context, parameters, signer, *given, last=held[signer.name])

    label = f"{scenario.parameters.protocol} vectors {scenario.session.name} nonce {AGGREGATOR}"
    sent = SentResults(SeededRandomnessForSimulation(1, label))
    aggregator = functools.partial(make_aggregator, board=MemoryBoard(""), last=sent)
    if scenario.follows is not None:
        make_run(scenario.follows, scenario.parameters, party, aggregator).execute()
    return make_run(scenario, scenario.parameters, party, aggregator)


def header(kind: str, name: str, about: str) -> dict[str, object]:
    """Return the first fields of any test vector: schema, kind, name and description."""
    return {"schema": SCHEMA, "kind": kind, "name": name, "about": about}


def to_json(scenario: Scenario) -> dict[str, object]:
    """Run a scenario, and return its test vector."""
    run = new_run(scenario).execute()
    outcome = run.aggregator.result
    survivors = outcome.evidence.survivors
    if survivors is None:
        raise LocalError(f"{scenario.name}: a run without a certificate of the survivors")
    by_step = run.by_step
    return {
        **inputs_json(run),
        "intermediate": {
            "run_id": outcome.evidence.run_id.hex(),
            "participants_digest": outcome.evidence.participants.set_digest.hex(),
            "survivors_digest": survivors.set_digest.hex(),
            "masked": {
                name: decode(by_step[m.MASKED, name], run.kinds.masked, name).vector.hex()
                for name in scenario.names
                if (m.MASKED, name) in by_step
            },
        },
        "messages": messages_json(run),
        "result": result_json(outcome)
        | {
            "total": decode(by_step[m.RESULT, AGGREGATOR], run.kinds.result, AGGREGATOR).total.hex(),
        },
    }


def identities_json(context: Context, signers: Mapping[str, Signer]) -> dict[str, dict[str, str]]:
    """Return, by member, the seed of its signing key and its public key, in hex."""
    return {
        name: {"signing_seed": bytes(signer.key).hex(), "public_key": context.keys[name].hex()}
        for name, signer in signers.items()
    }


def draws_json(sources: Mapping[str, Recording]) -> dict[str, list[str]]:
    """Return, by member, the random bytes that it has drawn, in hex."""
    return {name: [draw.hex() for draw in source.draws] for name, source in sources.items()}


def inputs_json(run: RecordedRun, kind: str = "run") -> dict[str, object]:
    """Return the first part of a run's test vector: session, keys, inputs and draws."""
    scenario = run.scenario
    return {
        **header(kind, scenario.name, scenario.about),
        "session": session_json(run),
        "identities": identities_json(run.context, run.signers),
        "inputs": {
            name: {
                "vector": list(scenario.vectors[index]),
                "weight": scenario.weight(index),
                "lanes": run.ring_vector[name].tolist(),
            }
            for index, name in enumerate(scenario.names)
        },
        "randomness": draws_json(run.randomness),
        "kill": dict(scenario.kill),
    }


def messages_json(run: RecordedRun) -> list[dict[str, str]]:
    """Return the digest and the signature of every message, in the order of sending."""
    return [
        {
            "step": envelope.step,
            "sender": envelope.sender,
            "receiver": envelope.receiver,
            "body_sha256": hashlib.sha256(envelope.body).hexdigest(),
            "signature": envelope.signature.hex(),
        }
        for envelope in run.sent
    ]


def result_json(outcome: Outcome) -> dict[str, object]:
    """Return the result of a run as JSON data: survivors, absent ones, weight and total."""
    return {
        "survivors": list(outcome.survivors),
        "absent": list(outcome.absent),
        "weight": outcome.weight,
        "fixed_point": outcome.total.tolist(),
    }


def context_json(context: Context) -> dict[str, object]:
    """Return the protocol, the session and the request of a context."""
    return {
        "protocol": context.protocol,
        "version": context.version,
        "session_digest": context.session_digest.hex(),
        "request": context.request,
    }


def session_json(run: RecordedRun) -> dict[str, object]:
    """Return, as JSON data, all public data that are known before a run."""
    plan = run.scenario.plan
    return {
        **context_json(run.context),
        "question": run.context.operation,
        "aggregator": run.context.aggregator,
        "names": list(run.context.names),
        "plan": {
            name: getattr(plan, name)
            for name in ("degree", "threshold", "quorum", "min_survivors", "corrupt_holders")
        },
        "encoding": msgspec.to_builtins(run.scenario.encoding),
        **run.scenario.stated,
        **_following_json(run),
    }


def _following_json(run: RecordedRun) -> dict[str, object]:
    """Return what `start` has of the aggregator: its nonce, and in a second run the results that it names."""
    if not isinstance(getattr(run.aggregator, "member", None), SumAggregator):
        return {}
    start = decode(run.by_step[m.START, AGGREGATOR], m.FollowingStart, AGGREGATOR)
    following: dict[str, object] = {"nonce": start.nonce.hex()}
    if run.scenario.follows is not None:
        following |= {"follows": f"run-{run.scenario.follows.name}.json", "last_results": start.named.hex()}
    return following
