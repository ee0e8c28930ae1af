"""The aggregator's state while pairs are evaluated: it learns the output of each, and computes the estimate.

Each evaluation is a role of the two-party engine, whose messages are sent beside the steps; a fault in one
ends that pair alone. Pairs without a direct channel send their frames through the aggregator.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import ClassVar

import numpy as np

from smpc_dp.errors import Check, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.engine.collector import CollectorState, Item
from smpc_dp.protocols.engine.state import Transition
from smpc_dp.protocols.garbled.aggregator import AggregatorEvaluation, AggregatorRole
from smpc_dp.protocols.garbled.effects import Receive, Send
from smpc_dp.protocols.garbled.participant import Evaluated
from smpc_dp.protocols.run_log import RunLog
from smpc_dp.protocols.ustatistic import messages as m
from smpc_dp.protocols.ustatistic.estimate import Estimate, estimate
from smpc_dp.protocols.ustatistic.log import log_messages, log_statement
from smpc_dp.protocols.ustatistic.plan import StatisticPlan
from smpc_dp.protocols.ustatistic.relay import PairRelays
from smpc_dp.protocols.ustatistic.result import StatisticEvidence, StatisticResult, result_of
from smpc_dp.protocols.ustatistic.serving import Aggregator
from smpc_dp.protocols.ustatistic.terms import Draw, check_failed, pair_context
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode

Pair = tuple[str, str]


@dataclass(slots=True)
class Pairs:
    """Aggregator's part in all evaluations of a run. It grows in place.

    Attributes:
        drawn: the matchings.
        relays: of the pairs whose frames are relayed.
        evaluations: by matching and pair.
        outputs: of the finished pairs.
        sent, received: the number of an evaluation's messages to a party, and from it.
    """

    drawn: Draw
    relays: PairRelays
    evaluations: dict[tuple[int, Pair], AggregatorEvaluation] = field(default_factory=dict)
    outputs: dict[tuple[int, Pair], int] = field(default_factory=dict)
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    received: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def failed(self) -> list[tuple[int, int]]:
        """Pairs without an output: of each its matching and its index in that matching."""
        return [
            (matching, index)
            for matching, pairs in enumerate(self.drawn.pairs)
            for index, pair in enumerate(pairs)
            if (matching, pair) not in self.outputs
        ]


class CollectDone(CollectorState, frozen=True, kw_only=True, eq=False):
    """The matchings are drawn, and the parties evaluate their pairs.

    `pairs` is the aggregator's part in that; `dones` grows with the parties' reports on their pairs.
    """

    expects: ClassVar[str] = m.DONE
    plan: StatisticPlan
    log: RunLog
    present: tuple[int, ...]
    pairs: Pairs
    dones: dict[int, Item]

    @property
    def matchings(self) -> int:  # type: ignore[override]
        """Number of pairs that a party may have to evaluate in turn."""
        return len(self.pairs.drawn.pairs)


class Estimated(CollectorState, frozen=True, kw_only=True, eq=False):
    """The aggregator has the estimate."""

    over: ClassVar[bool] = True
    outcome: StatisticResult


def accept_done(_aggregator: Aggregator, state: CollectDone, party: int, envelope: Envelope) -> Item:
    """Store a party's report on its pairs."""
    done = decode(envelope.body, m.Done, envelope.sender)
    check_failed(state.pairs.drawn, envelope.sender, done.failed)
    item = state.dones[party] = Item(None, envelope.body, envelope.signature)
    return item


def on_pair(aggregator: Aggregator, state: CollectDone, _party: int, envelope: Envelope) -> list[Envelope]:
    """Pass a message to its evaluation, and return the answers of the aggregator's role in it."""
    _check(aggregator, state, envelope)
    sender, pairs = envelope.sender, state.pairs
    message = decode(envelope.body, m.Pair, sender)
    matching = message.matching
    pair = pairs.drawn.partner(sender, matching) if matching < len(pairs.drawn.pairs) else None
    if pair is None:
        raise PeerFault(
            sender, f"sent a message of a pair in matching {matching}, where it has none", Check.NOT_PRESENT
        )
    expected = pairs.received[sender, matching]
    if message.number != expected:
        raise PeerFault(
            sender, f"sent message {message.number} of a pair where {expected} is due", Check.OUT_OF_SEQUENCE
        )
    if expected >= m.MAX_PAIR_MESSAGES:
        raise PeerFault(sender, "sent more messages of a pair than are due", Check.TOO_MANY)
    pairs.received[sender, matching] += 1
    evaluation = pairs.evaluations.get((matching, pair))
    if evaluation is None:
        evaluation = pairs.evaluations[matching, pair] = _evaluation(aggregator, state, matching, pair)
    inbox = evaluation.inboxes.setdefault(sender, deque())
    if evaluation.over:
        return []
    inbox.append(message.content)
    return _advance_pair(aggregator, state, evaluation, matching, pair)


def on_relay(aggregator: Aggregator, state: CollectDone, _party: int, envelope: Envelope) -> list[Envelope]:
    """Forward a frame, or the end of a pair, to its receiver."""
    _check(aggregator, state, envelope)
    sender, relays, number = envelope.sender, state.pairs.relays, aggregator.context.number
    message: m.Relay | m.RelayEnd
    if envelope.step == m.RELAY:
        message = decode(envelope.body, m.Relay, sender)
        peer = relays.forward(sender, message)
    else:
        message = decode(envelope.body, m.RelayEnd, sender)
        peer = relays.end(sender, message)
    if peer is None or number(peer) not in state.inbox.alive:
        return []
    return aggregator.write(state.run_id, envelope.step, (number(peer),), message)


def end_pairs(aggregator: Aggregator, state: CollectorState, party: int) -> Sequence[Envelope]:
    """Tell the partners of a lost party that their relayed pairs with it are over."""
    if not isinstance(state, CollectDone):
        return ()
    number = aggregator.context.number
    return [
        envelope
        for partner, matching in state.pairs.relays.lost(aggregator.name_of(party))
        if number(partner) in state.inbox.alive
        for envelope in aggregator.write(state.run_id, m.RELAY_END, (number(partner),), m.RelayEnd(matching))
    ]


def finish_done(aggregator: Aggregator, state: CollectDone) -> Transition:
    """Compute the estimate from the outputs of the pairs, and log the outcome."""
    context, plan, pairs, inbox = aggregator.context, state.plan, state.pairs, state.inbox
    names = tuple(aggregator.name_of(party) for party in state.present)
    if not pairs.outputs:
        why = "no pair was evaluated: " + "; ".join(inbox.faults[:5])
        raise TimeoutFault(list(names), m.DONE, why)
    numbers = [[context.number(name) for name in pair] for _, pair in pairs.outputs]
    raw = np.array(list(pairs.outputs.values()), np.uint64)
    drawn = sum(map(len, pairs.drawn.pairs))
    made = estimate(plan, np.array(numbers, np.int64).reshape(-1, 2), raw, drawn=drawn)
    log = _close(aggregator, state, made)
    evidence = StatisticEvidence(
        context.session_digest, state.run_id, plan.digest, pairs.drawn.beacon, log.evidence
    )
    outcome = replaced(
        result_of(plan, made, len(names), "protocol", evidence),
        survivors=names,
        absent=tuple(name for name in context.names if name not in names),
        faults=tuple(inbox.faults),
    )
    message = m.Result(*made.figures, made.pairs, made.failed, log.head)
    after = Estimated(outcome=outcome)
    return Transition(after, aggregator.broadcast(state, m.RESULT, message))


def late_done(aggregator: Aggregator, state: CollectDone) -> Transition:
    """Go on without the late parties; parties that wait for a silent partner get the result too."""
    inbox = state.inbox
    inbox.faults += [
        str(TimeoutFault({aggregator.name_of(party)}, m.DONE, "deadline passed"))
        for party in sorted(inbox.alive - inbox.items.keys())
    ]
    return finish_done(aggregator, state)


def nobody(_aggregator: Aggregator, _state: CollectDone) -> int:
    """Return 0: the estimate is of the pairs that were evaluated."""
    return 0


def _check(aggregator: Aggregator, state: CollectDone, envelope: Envelope) -> None:
    """Raise PeerFault unless a message is of this run and its sender has a pair."""
    if envelope.receiver != aggregator.name or envelope.run_id != state.run_id:
        raise PeerFault(
            envelope.sender, "sent a message of a pair for somebody else, or of another run", Check.OTHER_RUN
        )
    aggregator.context.check(envelope)


def _evaluation(
    aggregator: Aggregator, state: CollectDone, matching: int, pair: Pair
) -> AggregatorEvaluation:
    """Return the aggregator's role in the evaluation of a pair, created at the first message."""
    context = pair_context(aggregator.context, state.run_id, matching, pair)
    random = aggregator.parameters.random
    role = AggregatorRole(context, aggregator.identity, state.plan.evaluation(*pair), random)
    return AggregatorEvaluation(role, role.run())


def _advance_pair(
    aggregator: Aggregator, state: CollectDone, evaluation: AggregatorEvaluation, matching: int, pair: Pair
) -> list[Envelope]:
    """Run a pair's evaluation until it waits for a message; a fault ends this pair alone."""
    sent: list[Envelope] = []
    answer: bytes | None = None
    try:
        while True:
            if evaluation.waits is not None:
                inbox = evaluation.inboxes.get(evaluation.waits.sender)
                if not inbox:
                    return sent
                answer = inbox.popleft()
                if len(answer) > evaluation.waits.limit:
                    raise PeerFault(
                        evaluation.waits.sender, "sent a message that is too long", Check.TOO_LONG
                    )
            effect = next(evaluation.effects) if answer is None else evaluation.effects.send(answer)
            answer = None
            evaluation.waits = effect if isinstance(effect, Receive) else None
            if isinstance(effect, Send):
                sent += _to_party(aggregator, state, effect, matching)
    except StopIteration as stop:
        evaluation.over = True
        ended: Evaluated = stop.value
        if ended.outputs is not None:
            state.pairs.outputs[matching, pair] = int(state.plan.raw(ended.outputs[0], 1)[0])
    except SmpcError as error:
        evaluation.over = True
        evaluation.effects.close()
        state.inbox.faults.append(f"pair {pair[0]}, {pair[1]}: {error}")
        for message in evaluation.role.farewell(error):
            sent += _to_party(aggregator, state, message, matching)
    return sent


def _to_party(aggregator: Aggregator, state: CollectDone, effect: Send, matching: int) -> list[Envelope]:
    """Return the envelope of an evaluation's message to a party."""
    number = state.pairs.sent[effect.to, matching]
    state.pairs.sent[effect.to, matching] += 1
    party, message = aggregator.context.number(effect.to), m.Pair(matching, number, b"".join(effect.parts))
    return aggregator.write(state.run_id, m.PAIR, (party,), message)


def _close(aggregator: Aggregator, state: CollectDone, made: Estimate) -> RunLog:
    """Log the parties' reports on their pairs, and the outcome."""
    log = log_messages(aggregator, state.log, m.DONE, state.dones)
    outcome = m.Outcome(*made.figures, made.pairs, state.pairs.failed, log.head)
    log, _ = log_statement(aggregator, log, state.run_id, m.OUTCOME, outcome)
    return log
