"""The aggregator's part in one secure average, over any way to send messages to nodes and get their answers.

The aggregator knows no node: a node is the party whose signed `hello` it answers. Nothing here needs Flower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from smpc_dp.engine.driver import Driver
from smpc_dp.engine.events import Conviction, Event, Message, PeersLost
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import SentResults
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.registry import make_aggregator
from smpc_dp.engine.result import Outcome
from smpc_dp.errors import Check, Code, PeerFault, SmpcError, printable
from smpc_dp.integrations.flower.averages import Answer, SecureAverage, structure_of
from smpc_dp.trees import Tree, differing
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, decode_envelope, encode_envelope

# Messages for each node, and the answers that came in time.
Exchange = Callable[[Mapping[int, Sequence[bytes]]], Mapping[int, Answer]]


@dataclass
class Traffic:
    """Counters of an aggregation over Flower nodes: bytes sent and received, and messages."""

    sent: int = 0
    received: int = 0
    messages: int = 0


@dataclass
class Aggregation:
    """The aggregator's side of one secure average over Flower nodes, by messages and replies.

    Attributes:
        average: with the aggregator's membership.
        number: of the request.
        template: a tree like that of each party.
        fixed: the survivors of the session's exact sums.
        last: the last results of the session.
        exchange: sends messages to nodes, and returns their answers.
        nodes: the party of each node that has said hello.
        refusals: codes of nodes that answered without a message.
        trust: by party, what its node says of the app's code.
    """

    average: SecureAverage
    number: int
    template: Tree
    fixed: FixedSurvivors
    last: SentResults
    exchange: Exchange
    traffic: Traffic = field(default_factory=Traffic)
    nodes: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    trust: dict[str, str] = field(default_factory=dict)

    def execute(self, nodes: Sequence[int]) -> Outcome:
        """Run the secure average with these nodes to its end, and return the outcome; or raise."""
        membership = self.average.membership
        run = make_aggregator(
            membership.context(self.number),
            membership.parameters,
            membership.identity,
            fixed=self.fixed,
            last=self.last,
        )
        self._driver = Driver(run)
        answers = self._exchange({node: () for node in nodes})
        while True:
            step = run.step
            sent = [envelope for event in self._events(answers) for envelope in self._driver.act(event)]
            if run.step == step and run.waiting_for:
                sent += self._driver.act(PeersLost(tuple(sorted(run.waiting_for))))
            outgoing = self._by_node(sent)
            if run.finished:
                # So that the nodes finish; their answers change nothing.
                self._exchange(outgoing)
                break
            answers = self._exchange(outgoing)
        if self._driver.error is not None:
            raise self._driver.error
        outcome: Outcome = run.result
        return outcome

    def _exchange(self, outgoing: Mapping[int, Sequence[bytes]]) -> Mapping[int, Answer]:
        """Send messages to nodes and return their answers; count traffic, and note refusals."""
        self.traffic.messages += len(outgoing)
        self.traffic.sent += sum(len(message) for messages in outgoing.values() for message in messages)
        answers = self.exchange(outgoing) if outgoing else {}
        for node, answer in answers.items():
            self.traffic.received += sum(map(len, answer.messages))
            if answer.code:
                self.refusals[node] = printable(answer.code)
        return answers

    def _events(self, answers: Mapping[int, Answer]) -> list[Event]:
        """Convert answers to events of the aggregator's role; record wrong ones as refusals of their node.

        A message with a fault becomes a refusal, and a conviction of its party if that is known.
        """
        events: list[Event] = []
        for node, answer in answers.items():
            for message in answer.messages:
                # Of a view no bytes are copied: a large message stays where Flower has put it.
                content = memoryview(message)
                known = self.nodes.get(node, "")
                try:
                    envelope = decode_envelope(content, known) if known else self._first(node, content)
                    events.append(self._event(envelope))
                except PeerFault as fault:
                    events += [Conviction(known, fault)] if known else []
                    self.refusals[node] = str(fault)
                else:
                    self.trust[envelope.sender] = printable(answer.trust)
        return events

    def _first(self, node: int, content: memoryview) -> Envelope:
        """Verify a node's first message, and record its party; PeerFault for an unknown or taken name."""
        envelope = decode(content, Envelope, f"node {node}")
        context = self.average.membership.context(self.number)
        name = envelope.sender
        if name not in context.names:
            raise PeerFault(f"node {node}", f"no party is {name!r}", Check.NOT_IN_ROSTER)
        if name in self.nodes.values():
            raise PeerFault(f"node {node}", f"another node is {name}", Check.SECOND_CONNECTION)
        context.check(envelope)
        self.nodes[node] = name
        return envelope

    def _event(self, envelope: Envelope) -> Event:
        """Return the event `Message`, or `Conviction` for a first message with other arrays than expected.

        The role excludes those that were sent another task than most.
        """
        if envelope.step == m.HELLO:
            theirs = structure_of(decode(envelope.body, m.Hello, envelope.sender).operation)
            if theirs != self.template.structure:
                reason = f"has another model or metrics: {self._difference(theirs)}"
                fault = PeerFault(envelope.sender, reason, Check.OTHER_OPERATION, code=Code.OPERATION)
                return Conviction(envelope.sender, fault)
        return Message(envelope)

    def _difference(self, structure: str) -> str:
        """Return text on how a party's arrays differ from the expected ones."""
        try:
            return differing(self.template, printable(structure))
        except ValueError:
            return "its structure is malformed"

    def _by_node(self, sent: Sequence[Envelope]) -> dict[int, list[bytes]]:
        """Group encoded messages by the node of their receiver; drop those without a known node."""
        node_of = {name: node for node, name in self.nodes.items()}
        outgoing: dict[int, list[bytes]] = {}
        for envelope in sent:
            if envelope.receiver in node_of:
                outgoing.setdefault(node_of[envelope.receiver], []).append(encode_envelope(envelope))
        return outgoing


def stopped(error: SmpcError, refusals: Mapping[int, str]) -> str:
    """Return text on why a request stopped, with the error codes of nodes that refused."""
    texts = [f"node {node}: {code}" for node, code in refusals.items()]
    return "; ".join([str(error), *texts[:5]])


def losses_text(nodes: Mapping[int, str], tolerated: str) -> str:
    """Return text on which nodes were lost, and how many may be; empty without a loss.

    `nodes`: the party of each, "" if it has not said who it is.
    """
    if not nodes:
        return ""
    texts = [f"{node} ({name})" if name else f"{node} (no hello)" for node, name in nodes.items()]
    return f"; lost nodes: {', '.join(texts)}; a request {tolerated}"
