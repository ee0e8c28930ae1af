"""Whole pairwise statistics as vectors: coins, matchings, every pair's evaluation, direct or relayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Receive, Send
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.relay import SealedConnection
from smpc_dp.capabilities.pairs.kernels import Field, Kernel, auc, collision
from smpc_dp.capabilities.pairs.statistics.compiled import operation_of, plan_statistic
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic import states as states
from smpc_dp.capabilities.pairs.ustatistic.messages import PROTOCOL, VERSION
from smpc_dp.capabilities.pairs.ustatistic.party import Evaluating
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.terms import draw
from smpc_dp.capabilities.pairs.ustatistic.wire import PairWire
from smpc_dp.engine.events import Deadline, Message, Report, Start
from smpc_dp.logs.keeping import MemoryBoard
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import draw_signers, public_keys
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, encode_envelope
from smpc_dp_lab.vectors.runs import Recording, context_json, draws_json, header, identities_json

JsonObject = dict[str, object]

AGGREGATOR = "hub"
NAMES = ("ada", "ben", "cem", "dot", "eve")
EPSILON = 4.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Settings of one recorded statistic; records and random bytes follow from its name.

    `silent`: who never opens the coin of which attempt. `relayed`: no pair has a channel of its own.
    """

    name: str
    about: str
    kernel: Kernel
    partners: int
    public_labels: tuple[int, ...] | None = None
    silent: Mapping[str, int] = field(default_factory=dict)
    relayed: bool = False

    @property
    def plan(self) -> StatisticPlan:
        """The planned statistic, compiled, with randomised response as noise."""
        return plan_statistic(
            self.kernel, len(NAMES), EPSILON, partners=self.partners, noise="randomised_response"
        )


_EQUAL = collision(Field(0, 3))
SCENARIOS = (
    Scenario("matchings", "Five parties, two matchings: in each somebody is left out.", _EQUAL, 2),
    Scenario(
        "labels",
        "Public labels: only parties of different labels are paired, and label 1 garbles.",
        auc(Field(0, 3)),
        1,
        public_labels=(1, 0, 0, 1, 0),
    ),
    Scenario(
        "again",
        "Cem withholds its coin, then dot the next one; the third draw counts.",
        _EQUAL,
        1,
        silent={"cem": 1, "dot": 2},
    ),
    Scenario("relayed", "Pairs talk through the aggregator, sealed.", _EQUAL, 1, relayed=True),
)


def find(name: str) -> Scenario:
    """Return the scenario of this name; raise ValueError for an unknown name."""
    [scenario] = [scenario for scenario in SCENARIOS if scenario.name == name]
    return scenario


@dataclass(slots=True)
class Ended:
    """Record of one evaluation: its terms, every random draw, and every message of the pair."""

    matching: int
    pair: tuple[str, str]
    session_digest: bytes
    randomness: dict[str, Recording]
    relay_randomness: dict[str, Recording] = field(default_factory=dict)
    # (sender, receiver, bytes) of messages between the two, in an order in which they can be sent.
    sent: list[tuple[str, str, bytes]] = field(default_factory=list)


class Run:
    """The roles of one scenario; after `execute` also every envelope in the order of sending."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.plan = scenario.plan
        everyone = (*NAMES, AGGREGATOR)
        self.signers = draw_signers({name: self.source(name, "signing") for name in everyone})
        self.context = Context(
            PROTOCOL,
            VERSION,
            self.source("", "session").bytes(32),
            1,
            NAMES,
            AGGREGATOR,
            public_keys(self.signers),
        )
        self.operation = operation_of(scenario.kernel, self.plan, "randomised_response")
        self.randomness = {name: Recording(self.source(name, "run")) for name in everyone}
        self.board = MemoryBoard("")
        self.records = {name: self._record(name) for name in NAMES}
        self.aggregator = states.aggregator(
            self.context,
            self.signers[AGGREGATOR],
            lambda _: self.plan,
            self.randomness[AGGREGATOR],
            board=self.board,
        )
        public_labels = scenario.public_labels or (-1,) * len(NAMES)
        self.parties = {
            name: states.party(
                self.context,
                self.signers[name],
                self.plan,
                self.operation,
                public_label,
                self.randomness[name],
            )
            for name, public_label in zip(NAMES, public_labels, strict=True)
        }
        self.wires = {name: PairWire(party.member) for name, party in self.parties.items()}
        self.sent: list[Envelope] = []
        self.evaluations: list[Ended] = []
        self._inboxes: dict[tuple[str, int], deque[bytes]] = {}
        self._frames: dict[tuple[str, int], deque[m.Relay]] = {}

    def source(self, name: str, purpose: str) -> SeededRandomnessForSimulation:
        """Return seeded randomness of one member for one purpose."""
        return SeededRandomnessForSimulation(1, f"statistic vectors {self.scenario.name} {purpose} {name}")

    def _record(self, name: str) -> int:
        [byte] = self.source(name, "record").bytes(1)
        return byte % 4

    def execute(self) -> Run:
        """Run all roles to their ends in memory, recording all messages; return this object."""
        self.deliver([envelope for party in self.parties.values() for envelope in party.handle(Start())])
        while self.aggregator.step in m.COINS:
            self.deliver(self.aggregator.handle(Deadline()))
        for matching in range(self.plan.partners):
            for pair in self.pairs[matching]:
                self._evaluate(matching, pair)
        for name in self._present:
            self.deliver(self.parties[name].handle(Report(())))
        return self

    @cached_property
    def pairs(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The drawn pairs of each matching, as (garbler, evaluator)."""
        coins = b"".join(self.randomness[name].draws[len(self.scenario.silent)] for name in self._present)
        public_labels = self.scenario.public_labels or (-1,) * len(NAMES)
        labels = bytes(public_labels[NAMES.index(name)] + 1 for name in self._present)
        plan = self.plan
        return draw(plan.partners, plan.bipartite, self.aggregator.run_id, self._present, labels, coins).pairs

    @property
    def _present(self) -> list[str]:
        return [name for name in NAMES if isinstance(self.parties[name].state, Evaluating)]

    def deliver(self, envelopes: Iterable[Envelope]) -> None:
        """Deliver envelopes, and the answers to them, until no message is left; record all."""
        waiting = deque(envelopes)
        while waiting:
            envelope = waiting.popleft()
            withheld = self.scenario.silent.get(envelope.sender)
            if withheld is not None and envelope.step == m.COINS[withheld - 1]:
                continue
            self.sent.append(envelope)
            if envelope.receiver == AGGREGATOR:
                waiting += self.aggregator.handle(Message(envelope))
            elif envelope.step == m.PAIR:
                matching, content = self.wires[envelope.receiver].open_pair(self.aggregator.run_id, envelope)
                self._inboxes.setdefault((envelope.receiver, matching), deque()).append(content)
            elif envelope.step == m.RELAY:
                frame = self.wires[envelope.receiver].open_relay(self.aggregator.run_id, envelope)
                if isinstance(frame, m.Relay):
                    self._frames.setdefault((envelope.receiver, frame.matching), deque()).append(frame)
            elif envelope.step != "abort":
                waiting += self.parties[envelope.receiver].handle(Message(envelope))

    def pair_context(self, name: str, matching: int, pair: tuple[str, str]) -> Context:
        """Return the context of an evaluation as one of the pair has it."""
        plan = self.plan.evaluation(*pair)
        return self.wires[name].context(self.parties[name].run_id, matching, plan)

    def _evaluate(self, matching: int, pair: tuple[str, str]) -> None:
        """Run garbler and evaluator of a pair to their ends, and record the evaluation."""
        garbler, evaluator = pair
        contexts = {name: self.pair_context(name, matching, pair) for name in pair}
        sources = {name: Recording(self.source(name, f"pair {matching}")) for name in pair}
        terms = self.plan.evaluation(garbler, evaluator)
        roles: dict[str, Participant] = {}
        for name, kind in ((garbler, GarblerRole), (evaluator, EvaluatorRole)):
            codes = np.array([[self.records[name]]], np.int64)
            rows = self.plan.inputs(codes, sources[name])
            roles[name] = kind(contexts[name], self.signers[name], terms, rows, sources[name])
        ended = Ended(matching, pair, contexts[garbler].session_digest, sources)
        self.evaluations.append(ended)
        connections: dict[str, Connection] = {
            name: self._connection(name, peer, ended) for name, peer in (pair, (evaluator, garbler))
        }
        _connect(connections, pair)
        effects: dict[str, Effects[Evaluated]] = {name: role.run() for name, role in roles.items()}
        waits: dict[str, Receive | None] = dict.fromkeys(pair)
        while effects:
            moved = False
            for name in tuple(effects):
                expected = waits[name]
                answer = (
                    None if expected is None else self._answer(name, expected, connections[name], matching)
                )
                if expected is not None and answer is None:
                    continue
                moved = True
                try:
                    effect = next(effects[name]) if answer is None else effects[name].send(answer)
                except StopIteration:
                    del effects[name]
                    continue
                waits[name] = effect if isinstance(effect, Receive) else None
                if isinstance(effect, Send):
                    self._give(name, effect, connections[name], ended)
            if not moved:
                raise RuntimeError(f"everybody waits: {', '.join(effects)}")

    def _answer(self, name: str, expected: Receive, connection: Connection, matching: int) -> bytes | None:
        inbox = self._inboxes.get((name, matching)) if expected.sender == AGGREGATOR else connection.inbox()
        return inbox.popleft() if inbox else None

    def _give(self, name: str, effect: Send, connection: Connection, ended: Ended) -> None:
        data = b"".join(effect.parts)
        if effect.to == AGGREGATOR:
            self.deliver([self.wires[name].write_pair(self.aggregator.run_id, ended.matching, data)])
        else:
            ended.sent.append((name, effect.to, data))
            connection.send(data)

    def _connection(self, name: str, peer: str, ended: Ended) -> Connection:
        if not self.scenario.relayed:
            return Connection(peer)
        source = Recording(self.source(name, f"relay {ended.matching}"))
        ended.relay_randomness[name] = source
        context = self.pair_context(name, ended.matching, ended.pair)
        line = SealedConnection(context, self.signers[name], source)
        return RelayedConnection(self, name, peer, ended.matching, line)

    def frames(self, name: str, matching: int) -> deque[m.Relay]:
        """Return the frames for a matching that have arrived at a party and wait."""
        return self._frames.setdefault((name, matching), deque())


class Connection:
    """One end of an in-memory channel between the two parties of a pair."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._inbox: deque[bytes] = deque()
        self._other: Connection | None = None

    def connect(self, other: Connection) -> None:
        """Store the other end, to which messages are then sent."""
        self._other = other

    def send(self, data: bytes) -> None:
        """Append a message to the other end's inbox; drop it if there is no other end."""
        if self._other is not None:
            self._other._inbox.append(data)

    def inbox(self) -> deque[bytes]:
        """Return the queue of messages that have arrived and were not read yet."""
        return self._inbox


class RelayedConnection(Connection):
    """One end of a relayed channel, which acknowledges frames after every 4."""

    def __init__(self, run: Run, name: str, peer: str, matching: int, line: SealedConnection) -> None:
        super().__init__(peer)
        self._run, self._name, self._matching, self.line = run, name, matching, line
        self._sent = self._taken = self._reported = 0
        self._message = b""

    def connect(self, other: Connection) -> None:
        """Store the other end, and send this end's key through the aggregator."""
        super().connect(other)
        self.frame(self.line.first())

    def frame(self, content: bytes) -> None:
        """Send one frame through the aggregator; empty content acknowledges frames alone."""
        number, self._reported = self._sent, self._taken
        self._sent += bool(content)
        message = m.Relay(self._matching, number, self._reported, content)
        wire, run_id = self._run.wires[self._name], self._run.aggregator.run_id
        self._run.deliver([wire.write_relay(run_id, message)])

    def send(self, data: bytes) -> None:
        """Send one message, in as many frames as it takes; the other end takes each at once."""
        for frame in self.line.seal(data):
            self.frame(frame)
            if isinstance(self._other, RelayedConnection):
                self._other.take()

    def take(self) -> None:
        """Process all frames that have arrived, and acknowledge after every 4."""
        waiting = self._run.frames(self._name, self._matching)
        while waiting:
            content = waiting.popleft().content
            if not content:
                continue
            self._taken += 1
            if self._taken == 1:
                self.line.meet(content)
                continue
            chunk, last = self.line.open(content)
            self._message += chunk
            if last:
                self._inbox.append(self._message)
                self._message = b""
        if self._taken - self._reported >= m.WINDOW // 2:
            self.frame(b"")


def _connect(connections: Mapping[str, Connection], pair: tuple[str, str]) -> None:
    """Connect both ends of a pair's channel; relayed ends also exchange their keys."""
    first, second = (connections[name] for name in pair)
    first.connect(second)
    second.connect(first)
    for connection in (first, second):
        if isinstance(connection, RelayedConnection):
            connection.take()


def to_json(scenario: Scenario) -> JsonObject:
    """Run a scenario, and return its test vector."""
    run = Run(scenario).execute()
    plan, outcome = run.plan, run.aggregator.result
    evidence = outcome.evidence
    return {
        **header("statistic-run", scenario.name, scenario.about),
        "session": {
            **context_json(run.context),
            "parties": list(NAMES),
            "aggregator": AGGREGATOR,
            "partners": plan.partners,
            "relayed": scenario.relayed,
            "silent": dict(scenario.silent),
        },
        "terms": plan.canonical().decode(),
        "circuit": format_bristol(plan.circuit).decode(),
        "question": run.operation,
        "labels": None if scenario.public_labels is None else list(scenario.public_labels),
        "records": run.records,
        "identities": identities_json(run.context, run.signers),
        "randomness": draws_json(run.randomness),
        "intermediate": {
            "circuit_digest": plan.circuit.digest.hex(),
            "plan_digest": plan.digest.hex(),
            "run_id": run.aggregator.run_id.hex(),
            "beacon": "" if evidence is None else evidence.beacon.hex(),
            "pairs": [[list(pair) for pair in matching] for matching in run.pairs],
        },
        "evaluations": [
            {
                "matching": each.matching,
                "garbler": each.pair[0],
                "evaluator": each.pair[1],
                "session_digest": each.session_digest.hex(),
                "randomness": draws_json(each.randomness),
                "relay_randomness": draws_json(each.relay_randomness),
                "messages": [
                    {"sender": sender, "receiver": to, "bytes": data.hex()} for sender, to, data in each.sent
                ],
            }
            for each in run.evaluations
        ],
        "messages": [
            {
                "sender": envelope.sender,
                "receiver": envelope.receiver,
                "step": envelope.step,
                "bytes": encode_envelope(envelope).hex(),
            }
            for envelope in run.sent
        ],
        "log": [line.decode() for line in run.board.export().splitlines()],
        "result": {"value": outcome.value, "noise_error": outcome.noise_error, "pairs": outcome.pairs},
    }
