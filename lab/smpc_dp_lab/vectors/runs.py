"""Whole runs as vectors: every input and random byte, and the digest of every message that follows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from nacl.signing import SigningKey

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.errors import LocalError
from smpc_dp.log.keeping import MemoryBoard
from smpc_dp.net.transport.memory import Faults, MemoryNetwork
from smpc_dp.privacy.secagg_plan import SecAggPlan, check_plan, plan_secagg
from smpc_dp.protocols.engine.run import Run, RunningRole
from smpc_dp.protocols.names import VERSION
from smpc_dp.protocols.phases import messages as m
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.registry import make_aggregator, make_party
from smpc_dp.protocols.result import Outcome
from smpc_dp.protocols.secagg.params import SecAggParameters
from smpc_dp.simulate.drive import drive
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation
from smpc_dp.simulate.simulated_run import Signer
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode

SCHEMA = 1
AGGREGATOR = "relay"
NAMES = ("alice", "bob", "carol", "dave", "erin", "frank")

Row = tuple[float, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The inputs of one run; `kill`: the number of the message before which a party dies (1 is its hello)."""

    name: str
    about: str
    encoding: Encoding
    plan: SecAggPlan
    vectors: tuple[Row, ...]
    weights: tuple[int, ...] | None = None
    kill: Mapping[str, int] = field(default_factory=dict)

    @property
    def parameters(self) -> SumParameters:
        """The parameters of the roles."""
        return SecAggParameters(self.encoding, self.plan)

    @property
    def operation(self) -> str:
        """The operation that the parties request."""
        return "sum"

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in roster order."""
        return NAMES[: len(self.vectors)]


def _real(length: int, parties: int, max_weight: int = 0) -> Encoding:
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
    return Scenario(name, about, _real(3, 4), _FOUR, ROWS[:4], kill=kill)


SCENARIOS = (
    _of_four("complete", "Four parties, the complete graph, nobody drops out."),
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
        _real(2, 4, max_weight=1000),
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
        _real(3, 6),
        check_plan(6, 3, 2, dropout=0.34, corrupt=0.0),
        ROWS,
        kill={"bob": 6},
    ),
)


class Recording:
    """Randomness that records the bytes drawn, in order."""

    def __init__(self, source: Randomness) -> None:
        self._source = source
        self.draws: list[bytes] = []

    def bytes(self, n: int) -> bytes:
        """Return the next `n` bytes of the source."""
        drawn = self._source.bytes(n)
        self.draws.append(drawn)
        return drawn


class RecordingNetwork(MemoryNetwork):
    """Network that records the messages sent and not lost, in order."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.sent: list[Envelope] = []

    def send(self, envelope: Envelope) -> None:
        """Send an envelope, and record it."""
        before = self.messages
        super().send(envelope)
        if self.messages > before:
            self.sent.append(envelope)


@dataclass(slots=True)
class Staged:
    """Context, keys and randomness of a scenario's roles, and after a run every envelope in order."""

    scenario: Scenario
    context: Context
    signers: dict[str, Signer]
    randomness: dict[str, Recording]
    ring_vector: dict[str, RingVector]
    sent: list[Envelope] = field(default_factory=list, kw_only=True)

    @property
    def by_step(self) -> dict[tuple[str, str], bytes]:
        """The bodies sent, by step and sender."""
        return {(envelope.step, envelope.sender): envelope.body for envelope in self.sent}

    def drive(self, machines: Iterable[RunningRole], aggregator: str, *, mesh: bool = False) -> Self:
        """Drive the roles to their ends."""
        network = RecordingNetwork(Faults(kill=self.scenario.kill))
        drive(machines, network, aggregator, mesh=mesh)
        self.sent = network.sent
        return self


@dataclass(slots=True)
class RecordedRun(Staged):
    """The roles of one scenario with an aggregator."""

    parties: dict[str, Run[Any]]
    aggregator: Run[Any]

    def execute(self) -> Self:
        """Drive the run to its end."""
        return self.drive([self.aggregator, *self.parties.values()], AGGREGATOR)


def set_up(scenario: Scenario, aggregator: str, aggregators: tuple[str, ...]) -> Staged:
    """Return the foundation of a scenario's roles, with the same randomness every time.

    `aggregator` is that of the context; `aggregators` are those who sign besides the parties.
    """
    protocol = scenario.parameters.protocol

    def source(name: str, purpose: str) -> SeededRandomnessForSimulation:
        label = f"{protocol} vectors {scenario.name} {purpose} {name}"
        return SeededRandomnessForSimulation(1, label)

    everyone = (*scenario.names, *aggregators)
    signers = {name: Signer(name, SigningKey(source(name, "signing").bytes(32))) for name in everyone}
    context = Context(
        protocol=protocol,
        version=VERSION,
        session_digest=source("", "session").bytes(32),
        request=1,
        names=scenario.names,
        aggregator=aggregator,
        keys={name: bytes(signer.key.verify_key) for name, signer in signers.items()},
        operation=scenario.operation,
    )
    ring_vector: dict[str, RingVector] = {}
    for index, name in enumerate(scenario.names):
        weight = None if scenario.weights is None else scenario.weights[index]
        ring_vector[name], _ = scenario.encoding.encode(scenario.vectors[index], party=name, weight=weight)
    randomness = {name: Recording(source(name, "run")) for name in scenario.names}
    return Staged(scenario, context, signers, randomness, ring_vector)


def new_run(scenario: Scenario) -> RecordedRun:
    """Return fresh roles for a scenario, with the same randomness every time."""
    setup = set_up(scenario, AGGREGATOR, (AGGREGATOR,))
    context, parameters = setup.context, scenario.parameters
    parties = {
        name: make_party(context, parameters, setup.signers[name], ring_vector.copy(), setup.randomness[name])
        for name, ring_vector in setup.ring_vector.items()
    }
    aggregator = make_aggregator(context, parameters, setup.signers[AGGREGATOR], board=MemoryBoard(""))
    return RecordedRun(
        scenario, context, setup.signers, setup.randomness, setup.ring_vector, parties, aggregator
    )


def to_json(scenario: Scenario) -> dict[str, object]:
    """Return the vector of one run."""
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
                name: decode(by_step[m.MASKED, name], m.Masked, name).vector.hex()
                for name in scenario.names
                if (m.MASKED, name) in by_step
            },
        },
        "messages": messages_json(run),
        "result": result_json(outcome)
        | {
            "total": decode(by_step[m.RESULT, AGGREGATOR], m.Result, AGGREGATOR).total.hex(),
        },
    }


def identities_json(context: Context, signers: Mapping[str, Signer]) -> dict[str, dict[str, str]]:
    """Return the public keys of all members."""
    return {
        name: {"signing_seed": bytes(signer.key).hex(), "public_key": context.keys[name].hex()}
        for name, signer in signers.items()
    }


def draws_json(sources: Mapping[str, Recording]) -> dict[str, list[str]]:
    """Return the bytes that each member has drawn."""
    return {name: [draw.hex() for draw in source.draws] for name, source in sources.items()}


def inputs_json(run: Staged) -> dict[str, object]:
    """Return the first part of a vector: all inputs of a run."""
    scenario = run.scenario
    return {
        "schema": SCHEMA,
        "kind": "run",
        "name": scenario.name,
        "about": scenario.about,
        "session": session_json(run),
        "identities": identities_json(run.context, run.signers),
        "inputs": {
            name: {
                "vector": list(scenario.vectors[index]),
                "weight": None if scenario.weights is None else scenario.weights[index],
                "lanes": run.ring_vector[name].tolist(),
            }
            for index, name in enumerate(scenario.names)
        },
        "randomness": draws_json(run.randomness),
        "kill": dict(scenario.kill),
    }


def messages_json(run: Staged) -> list[dict[str, str]]:
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
    """Return the outcome of a run."""
    return {
        "survivors": list(outcome.survivors),
        "absent": list(outcome.absent),
        "weight": outcome.weight,
        "fixed_point": outcome.total.tolist(),
    }


def session_json(run: Staged) -> dict[str, object]:
    """Return the public data before a run."""
    plan = run.scenario.plan
    return {
        "protocol": run.context.protocol,
        "version": run.context.version,
        "session_digest": run.context.session_digest.hex(),
        "request": run.context.request,
        "question": run.context.operation,
        "aggregator": run.context.aggregator,
        "names": list(run.context.names),
        "plan": {
            name: getattr(plan, name)
            for name in ("degree", "threshold", "quorum", "min_survivors", "corrupt_holders")
        },
        "encoding": msgspec.to_builtins(run.scenario.encoding),
    }
