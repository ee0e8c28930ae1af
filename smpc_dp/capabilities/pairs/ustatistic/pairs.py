"""The aggregator's state while pairs are evaluated: it learns the output of each, and computes the estimate.

Each evaluation is a role of the two-party engine, whose messages are sent beside the steps; a fault in one
ends that pair alone. Pairs without a direct channel send their frames through the aggregator.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace as replaced
from typing import ClassVar, Self

import msgspec
import numpy as np
from msgspec.structs import replace

from smpc_dp.capabilities.pairs.garbled.aggregator import AggregatorEvaluation
from smpc_dp.capabilities.pairs.garbled.effects import Receive, Send
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.roles import aggregator_role
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.conviction import convict
from smpc_dp.capabilities.pairs.ustatistic.estimate import Estimate, estimate
from smpc_dp.capabilities.pairs.ustatistic.log import log_messages, log_statement
from smpc_dp.capabilities.pairs.ustatistic.relay import PairRelays
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticEvidence, StatisticResult, result_of
from smpc_dp.capabilities.pairs.ustatistic.serving import Aggregator, Requested
from smpc_dp.capabilities.pairs.ustatistic.terms import Draw, check_failed, pair_context
from smpc_dp.decoding import decode_msgpack
from smpc_dp.engine.collector import CollectorState, Item
from smpc_dp.engine.phases.run_log import RunLog, Statement
from smpc_dp.engine.state import Transition, Work
from smpc_dp.errors import Check, PeerFault, SmpcError, TimeoutFault, VerificationError, evidenced
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode

Pair = tuple[str, str]


class Pairs(Work):
    """Work of the aggregator in all pairs' evaluations of a run: its roles and relays; never saved.

    Attributes:
        relays: of the pairs whose frames are relayed.
        evaluations: by matching and pair.
        sent, received: how many messages of an evaluation went to a party, and came from it.
        convictions: by name, how a convicted party is shown to its partners.
    """

    __slots__ = ("convictions", "evaluations", "received", "relays", "sent")

    def __init__(self, relays: PairRelays) -> None:
        self.relays = relays
        self.evaluations: dict[tuple[int, Pair], AggregatorEvaluation] = {}
        self.sent: Counter[tuple[str, int]] = Counter()
        self.received: Counter[tuple[str, int]] = Counter()
        self.convictions: dict[str, m.Conviction] = {}


class EndedPair(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Record of how one pair's evaluation ended at the aggregator: its output, or the fault."""

    matching: int
    pair: Pair
    output: int | None
    fault: str = ""


class CollectDone(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator while the parties evaluate their pairs: it collects outputs and reports.

    Attributes:
        drawn: the matchings.
        ended: the evaluations that have ended; it grows.
        pairs: the aggregator's part in the others; None: they have failed with an earlier process.
        dones: grows with the parties' reports on their pairs.
    """

    expects: ClassVar[str] = m.DONE
    requested: Requested
    log: RunLog
    present: tuple[int, ...]
    drawn: Draw
    ended: list[EndedPair]
    pairs: Pairs | None
    dones: dict[int, Statement]

    @property
    def matchings(self) -> int:  # type: ignore[override]
        """Number of matchings: how many pairs a party may have to evaluate, one after another."""
        return len(self.drawn.pairs)

    @property
    def reports(self) -> Sequence[EndedPair]:
        """Ended evaluations so far, a list that only grows; its entries are saved one by one."""
        return self.ended

    @property
    def restorable(self) -> Self:
        """The state after a restart: evaluations that had not ended count as failed, never repeated."""
        return replace(self, pairs=None)

    @property
    def outputs(self) -> dict[tuple[int, Pair], int]:
        """Outputs of the pairs that succeeded, by matching and pair; the last end of each counts."""
        last = {(each.matching, each.pair): each.output for each in self.ended}
        return {index: output for index, output in last.items() if output is not None}


class Estimated(CollectorState, frozen=True, kw_only=True, eq=False):
    """Final state of an aggregator: it has computed the estimate of the pairwise statistic."""

    over: ClassVar[bool] = True
    outcome: StatisticResult


def accept_done(_aggregator: Aggregator, state: CollectDone, party: int, envelope: Envelope) -> Item:
    """Check, store and return a party's report on which of its pairs have failed."""
    done = decode(envelope.body, m.Done, envelope.sender)
    check_failed(state.drawn, envelope.sender, done.failed)
    item = Item(None, envelope.body, envelope.signature)
    state.dones[party] = Statement.of(item)
    return item


def on_pair(aggregator: Aggregator, state: CollectDone, _party: int, envelope: Envelope) -> list[Envelope]:
    """Pass a party's message to the aggregator's role in its pair; return the role's answers."""
    _check(aggregator, state, envelope)
    sender, pairs, drawn = envelope.sender, state.pairs, state.drawn
    message = decode(envelope.body, m.Pair, sender)
    matching = message.matching
    pair = drawn.partner(sender, matching) if matching < len(drawn.pairs) else None
    if pair is None:
        raise PeerFault(
            sender, f"sent a message of a pair in matching {matching}, where it has none", Check.NOT_PRESENT
        )
    if pairs is None:
        return []
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
    return _advance_pair(aggregator, state, pairs, evaluation, (matching, pair))


def on_relay(aggregator: Aggregator, state: CollectDone, _party: int, envelope: Envelope) -> list[Envelope]:
    """Return the message that passes a pair's frame, or their end, to the partner; [] if the pair is over."""
    _check(aggregator, state, envelope)
    if state.pairs is None:
        return []
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


def on_conviction(
    aggregator: Aggregator, state: CollectDone, _party: int, envelope: Envelope
) -> list[Envelope]:
    """Exclude a garbler whom a certificate convicts, and fail its pairs; return messages to partners.

    It is convicted also if it has left, or was excluded, before. A certificate that does not convict it is
    its sender's fault.
    """
    _check(aggregator, state, envelope)
    sender, pairs, drawn, inbox = envelope.sender, state.pairs, state.drawn, state.inbox
    message = decode(envelope.body, m.Conviction, sender)
    pair = drawn.partner(sender, message.matching) if message.matching < len(drawn.pairs) else None
    if pair is None or pair[1] != sender:
        raise PeerFault(sender, "accuses a party that did not garble for it", Check.NOT_PRESENT)
    number = aggregator.context.number(pair[0])
    if is_conviction(inbox.excluded.get(number)):
        return []
    plan = aggregator.parameters.plan(state.requested)
    try:
        certificate = convict(aggregator.context, state.run_id, plan.circuit, pair, message)
    except VerificationError as error:
        raise PeerFault(sender, f"accuses {pair[0]}: {error}", error.check) from None
    reason = f"is convicted of cheating by the certificate of {sender}"
    fault = PeerFault(pair[0], reason, Check.CONVICTED, {"certificate": certificate})
    _fail_garbled(state, fault)
    if pairs is not None:
        pairs.convictions[pair[0]] = message
    if number not in inbox.alive:
        inbox.excluded[number] = fault
        inbox.faults.append(str(fault))
        return []
    aggregator.exclude(state, number, fault)
    return end_pairs(aggregator, state, number)


def _fail_garbled(state: CollectDone, fault: PeerFault) -> None:
    """Count all pairs that a convicted party garbled as failed, even those with an output."""
    failed = {(each.matching, each.pair) for each in state.ended} - state.outputs.keys()
    for matching, drawn in enumerate(state.drawn.pairs):
        for pair in drawn:
            if pair[0] != fault.culprit or (matching, pair) in failed:
                continue
            state.ended.append(EndedPair(matching, pair, None, f"pair {pair[0]}, {pair[1]}: {fault}"))
            evaluation = None if state.pairs is None else state.pairs.evaluations.get((matching, pair))
            if evaluation is not None and not evaluation.over:
                evaluation.over = True
                evaluation.effects.close()


def end_pairs(aggregator: Aggregator, state: CollectorState, party: int) -> list[Envelope]:
    """Mark a lost party's pairs as over; return messages that tell its partners why, none before the draw."""
    if not isinstance(state, CollectDone) or state.pairs is None:
        return []
    name, number, sent = aggregator.name_of(party), aggregator.context.number, list[Envelope]()
    conviction = state.pairs.convictions.get(name)
    for partner, matching in state.pairs.relays.lost(name):
        if number(partner) not in state.inbox.alive:
            continue
        to = (number(partner),)
        if conviction is not None:
            sent += aggregator.write(state.run_id, m.CONVICTION, to, conviction)
        sent += aggregator.write(state.run_id, m.RELAY_END, to, m.RelayEnd(matching))
    return sent


def finish_done(aggregator: Aggregator, state: CollectDone) -> Transition:
    """Compute the estimate from the pairs' outputs, log it, end the run; TimeoutFault without outputs."""
    context, inbox, drawn, outputs = aggregator.context, state.inbox, state.drawn, state.outputs
    plan = aggregator.parameters.plan(state.requested)
    names = tuple(aggregator.name_of(party) for party in state.present)
    if not outputs:
        convicted = [str(error) for error in inbox.excluded.values() if is_conviction(error)]
        # First: the others may be many.
        faults = [*dict.fromkeys([*convicted, *inbox.faults])][: max(5, len(convicted))]
        why = "no pair was evaluated: " + "; ".join(faults)
        raise TimeoutFault(list(names), m.DONE, why) from evidenced(inbox.excluded.values())
    numbers = [[context.number(name) for name in pair] for _, pair in outputs]
    raw = np.array(list(outputs.values()), np.uint64)
    made = estimate(plan, np.array(numbers, np.int64).reshape(-1, 2), raw, drawn=sum(map(len, drawn.pairs)))
    log = _close(aggregator, state, made)
    evidence = StatisticEvidence(
        context.session_digest, state.run_id, plan.digest, drawn.beacon, log.evidence
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
    """Compute the estimate at the deadline, without reports of late parties, noted as faults."""
    inbox = state.inbox
    inbox.faults += [
        str(TimeoutFault({aggregator.name_of(party)}, m.DONE, "deadline passed"))
        for party in sorted(inbox.alive - inbox.items.keys())
    ]
    return finish_done(aggregator, state)


def take_end(_aggregator: Aggregator, state: CollectDone, content: bytes) -> None:
    """Restore the end of a pair's evaluation that an earlier process saved; or VerificationError."""
    try:
        ended = decode_msgpack(content, EndedPair)
    except msgspec.DecodeError:
        raise VerificationError("the saved end of a pair is malformed", Check.MALFORMED) from None
    state.ended.append(ended)
    if ended.output is None:
        state.inbox.faults.append(ended.fault)


def nobody(_aggregator: Aggregator, _state: CollectDone) -> int:
    """Return 0: the last step needs no party, since it estimates from the pairs that were evaluated."""
    return 0


def is_conviction(error: SmpcError | None) -> bool:
    """Return whether an error excludes a party since a certificate proves that it cheated."""
    return isinstance(error, PeerFault) and error.check == Check.CONVICTED


def _check(aggregator: Aggregator, state: CollectDone, envelope: Envelope) -> None:
    """Raise PeerFault unless a pair's message is of this run, properly signed, and for the aggregator."""
    if envelope.receiver != aggregator.name or envelope.run_id != state.run_id:
        raise PeerFault(
            envelope.sender, "sent a message of a pair for somebody else, or of another run", Check.OTHER_RUN
        )
    aggregator.context.check(envelope)


def _evaluation(
    aggregator: Aggregator, state: CollectDone, matching: int, pair: Pair
) -> AggregatorEvaluation:
    """Return the aggregator's role in a pair's evaluation, created at the pair's first message."""
    random = aggregator.parameters.random
    plan = aggregator.parameters.plan(state.requested).evaluation(*pair)
    context = pair_context(aggregator.context, state.run_id, matching, pair, plan.protocol)
    role = aggregator_role(context, aggregator.identity, plan, random)
    return AggregatorEvaluation(role, role.run())


def _advance_pair(
    aggregator: Aggregator,
    state: CollectDone,
    pairs: Pairs,
    evaluation: AggregatorEvaluation,
    index: tuple[int, Pair],
) -> list[Envelope]:
    """Run the aggregator's role in a pair until it waits; return messages; a fault ends this pair alone."""
    sent: list[Envelope] = []
    matching, pair = index
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
                sent += _to_party(aggregator, state, pairs, effect, matching)
    except StopIteration as stop:
        evaluation.over = True
        ended: Evaluated = stop.value
        if ended.outputs is not None:
            plan = aggregator.parameters.plan(state.requested)
            state.ended.append(EndedPair(matching, pair, int(plan.raw(ended.outputs[0], 1)[0])))
    except SmpcError as error:
        evaluation.over = True
        evaluation.effects.close()
        fault = f"pair {pair[0]}, {pair[1]}: {error}"
        state.inbox.faults.append(fault)
        state.ended.append(EndedPair(matching, pair, None, fault))
        for message in evaluation.role.farewell(error):
            sent += _to_party(aggregator, state, pairs, message, matching)
    return sent


def _to_party(
    aggregator: Aggregator, state: CollectDone, pairs: Pairs, effect: Send, matching: int
) -> list[Envelope]:
    """Return the signed, numbered message that carries the aggregator's data in a pair to a party."""
    number = pairs.sent[effect.to, matching]
    pairs.sent[effect.to, matching] += 1
    party, message = aggregator.context.number(effect.to), m.Pair(matching, number, b"".join(effect.parts))
    return aggregator.write(state.run_id, m.PAIR, (party,), message)


def _close(aggregator: Aggregator, state: CollectDone, made: Estimate) -> RunLog:
    """Return the run's log with the parties' reports on their pairs and the outcome added."""
    outputs, inbox = state.outputs, state.inbox
    failed = [
        (matching, index)
        for matching, pairs in enumerate(state.drawn.pairs)
        for index, pair in enumerate(pairs)
        if (matching, pair) not in outputs
    ]
    log = log_messages(aggregator, inbox, state.log, m.DONE, state.dones)
    outcome = m.Outcome(*made.figures, made.pairs, failed, log.head)
    log, _ = log_statement(aggregator, inbox, log, state.run_id, m.OUTCOME, outcome)
    return log
