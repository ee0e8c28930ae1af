"""The states of an exchange. Specification: protocols/exchange/README.md, with tables generated from here.

Each party encrypts its vector for every receiver. The aggregator forwards keys and boxes, and can open no
box.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from smpc_dp.crypto import agree
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.crypto.seal import seal, unseal
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import Collector, CollectorRole, CollectorRow, CollectorState, Inbox, Item
from smpc_dp.engine.party import Member, PartyRole, PartyState, Row
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases.key_graph import Ready, Sealing, Watch
from smpc_dp.engine.phases.last_results import HeldResult, SentResults
from smpc_dp.engine.phases.operation import agree_on_operation
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.result import Certificate, Evidence, Outcome
from smpc_dp.engine.run import Run
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, PeerFault, TimeoutFault, VerificationError, check_of
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.session.exchange import messages as m
from smpc_dp.session.exchange.params import ExchangeParameters
from smpc_dp.wire.abort import ABORT, abort_of, code_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context, Signer, decode

if TYPE_CHECKING:
    from smpc_dp.logs.keeping import Board

Party = Member[ExchangeParameters]
Aggregator = Collector[ExchangeParameters]


def run_identifier(context: Context, operation: str, present: bytes, nonces: bytes) -> bytes:
    """Return the run id: a digest of session, request, operation, the parties present, and all nonces."""
    return digest(
        Label.EXCHANGE_RUN_ID,
        *context.bound,
        context.session_digest,
        encode_uint(context.request),
        operation.encode(),
        present,
        nonces,
    )


# A party


class AwaitStart(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party in an exchange that has said hello, and waits for its peers' keys."""

    expects: ClassVar[str] = m.START
    renews: ClassVar[bool] = True
    releases: ClassVar[bool] = True
    vector: RingVector
    nonce: bytes
    secret: bytes


class AwaitDelivery(PartyState, frozen=True, kw_only=True, eq=False):
    """State of a party in an exchange that has sent its encrypted vector, and waits for others'.

    `sealing` opens the boxes that the present parties send to it.
    """

    expects: ClassVar[str] = m.DELIVER
    own: RingVector
    present: PartySet
    sealing: Sealing


class Finished(PartyState, frozen=True, kw_only=True, eq=False):
    """Final state of a party in an exchange: it has the vectors of others, and their sum with its own.

    When every party sends to all others, that is the sum of all parties that have sent.
    """

    over: ClassVar[bool] = True
    outcome: Outcome
    received: dict[str, RingVector]


def say_hello(member: Party, state: Ready) -> Transition:
    """Begin a party's run of an exchange: return a hello with a fresh nonce and key, and the next state."""
    context = member.context
    nonce, secret = member.random.bytes(32), member.random.bytes(32)
    hello = m.Hello(
        context.session_digest, context.request, context.operation, nonce, agree.public_key(secret)
    )
    message = member.write(context.session_digest, m.HELLO, hello)
    return Transition(AwaitStart(vector=state.vector, nonce=nonce, secret=secret), (message,))


def on_start(member: Party, state: AwaitStart, body: bytes) -> Transition:
    """Check the peers' keys; return the noisy vector encrypted for each receiver, or raise PeerFault."""
    context, parameters = member.context, member.parameters
    start = decode(body, m.Start, context.aggregator)
    present = _members_of(member, start.present)
    if len(start.nonces) != 32 * len(present):
        raise member.refuse("does not have one nonce for each present party", Check.NOT_ONE_EACH)
    nonces = {party: start.nonces[32 * index :][:32] for index, party in enumerate(present)}
    if nonces[member.index] != state.nonce:
        raise member.refuse(f"does not have the nonce of {member.name}", Check.NONCE_DIFFERS)
    receivers, senders = parameters.receivers(member.index), parameters.senders(member.index)
    expected = [party for party in sorted(receivers | senders) if party in present]
    if [party for party, _, _ in start.hellos] != expected:
        raise member.refuse(
            "does not have the hellos of exactly those who are met and present", Check.SET_DIFFERS
        )
    run_id = run_identifier(context, context.operation, start.present, start.nonces)
    peer_keys = {
        party: _key_of(member, party, content, signature, nonces[party])
        for party, content, signature in start.hellos
    }
    sealing = Sealing(state.secret, peer_keys)
    vector = state.vector
    if not parameters.apart:
        vector = vector.copy()
        parameters.add_noise(vector, member.random)
    boxes = [
        (party, _seal(member, run_id, sealing, party, vector[party - 1] if parameters.apart else vector))
        for party in expected
        if party in receivers
    ]
    after = AwaitDelivery(
        run_id=run_id,
        own=vector[member.index - 1].copy() if parameters.apart else vector,
        present=present,
        sealing=Sealing(state.secret, {party: key for party, key in peer_keys.items() if party in senders}),
    )
    return Transition(after, (member.write(run_id, m.SEND, m.Send(boxes)),))


def on_deliver(member: Party, state: AwaitDelivery, body: bytes) -> Transition:
    """Decrypt the received vectors; return the final state with these and their sum, or raise an error."""
    parameters = member.parameters
    deliver = decode(body, m.Deliver, member.context.aggregator)
    sent = _members_of(member, deliver.senders)
    if not sent <= state.present:
        raise member.refuse("delivers for parties that were not present", Check.NOT_PRESENT)
    senders = parameters.senders(member.index)
    expected = [party for party in sorted(senders) if party in sent]
    if [party for party, _ in deliver.boxes] != expected:
        raise member.refuse("does not deliver exactly the boxes of those who have sent", Check.SET_DIFFERS)
    received = {member.name_of(party): _open(member, state, party, box) for party, box in deliver.boxes}
    if parameters.edges is not None and len(expected) < len(senders):
        missing = [member.name_of(party) for party in senders if party not in sent]
        raise TimeoutFault(missing, m.DELIVER, "have not sent")
    total: RingVector = np.asarray(sum(received.values(), state.own), dtype=parameters.encoding.dtype)
    outcome = _outcome(member, state.run_id, total, received, sent)
    return Transition(Finished(outcome=outcome, received=received))


PARTY = PartyRole(
    hello=m.HELLO,
    first=Ready,
    begin=say_hello,
    rows=(
        Row(
            AwaitStart,
            on_start,
            (AwaitDelivery,),
            (m.SEND,),
            "other noise: it is drawn once for all receivers; another run: its id binds the nonces of all",
        ),
        Row(
            AwaitDelivery,
            on_deliver,
            (Finished,),
            (),
            "anything: the run is over, and the key that opens boxes is forgotten",
        ),
    ),
    last=m.SEND,
    saved=True,
)


def party(
    context: Context,
    parameters: ExchangeParameters,
    identity: Signer,
    ring_vector: RingVector,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,  # noqa: ARG001 - of exact sums
    seen: Seen = NOTHING_SEEN,  # noqa: ARG001 - of protocols with a log
    *,
    last: HeldResult | None = None,  # noqa: ARG001 - of sums
) -> Run[Outcome]:
    """Return a party's run of an exchange, in which it sends its vector to others.

    `ring_vector` is one row for each receiver where `parameters.apart`, and is not changed.
    """
    parameters.check_ring_vector(identity.name, ring_vector)
    member = Member(context, parameters, identity, randomness or SystemRandomness())
    return Run(PARTY, member, Ready(vector=ring_vector))


def _members_of(member: Party, packed: bytes) -> PartySet:
    """Decode a set of present parties; raise PeerFault if this party is missing or they are too few."""
    members = PartySet.unpack(packed, member.parties, member.context.aggregator)
    if member.index not in members:
        raise member.refuse(f"left {member.name} out", Check.NOT_INCLUDED)
    if len(members) < (least := member.parameters.plan.min_survivors):
        raise member.refuse(
            f"says that {len(members)} parties are there, {least} are needed", Check.SET_TOO_SMALL
        )
    return members


def _key_of(member: Party, party: int, content: bytes, signature: bytes, nonce: bytes) -> bytes:
    """Return a party's encryption key from its signed hello; PeerFault if the hello is invalid."""
    name, context = member.name_of(party), member.context
    context.check_detached(context.session_digest, m.HELLO, name, context.aggregator, content, signature)
    hello = decode(content, m.Hello, name)
    given = (hello.session_digest, hello.request, hello.operation, hello.nonce)
    if given != (context.session_digest, context.request, context.operation, nonce):
        raise PeerFault(name, "its hello is for another session, request or question", Check.OTHER_REQUEST)
    return hello.key


def _seal(member: Party, run_id: bytes, sealing: Sealing, party: int, vector: RingVector) -> bytes:
    """Return a vector encrypted for one party alone."""
    packed = member.parameters.encoding.pack(vector)
    bound = keys.seal_context(member.context, run_id, member.name, member.name_of(party))
    return seal(sealing.key(member, run_id, party, sending=True), packed, bound, member.random)


def _open(member: Party, state: AwaitDelivery, party: int, box: bytes) -> RingVector:
    """Decrypt the vector that `party` sent; raise PeerFault if it is malformed or out of range."""
    name, parameters, run_id = member.name_of(party), member.parameters, state.run_id
    key = state.sealing.key(member, run_id, party, sending=False)
    bound = keys.seal_context(member.context, run_id, name, member.name)
    try:
        ring_vector = parameters.encoding.unpack(unseal(key, box, bound))
    except (VerificationError, ValueError) as error:
        reason = f"its vector cannot be read, or {member.context.aggregator} has changed it: {error}"
        raise PeerFault(name, reason, check_of(error, Check.MALFORMED)) from None
    try:
        # Each vector by itself: a sum does not show the sender of a bad one.
        parameters.check_vector(ring_vector)
    except VerificationError as error:
        raise PeerFault(name, f"its vector is out of bounds: {error}", Check.OUT_OF_BOUNDS) from None
    return ring_vector


def _outcome(
    member: Party, run_id: bytes, total: RingVector, received: Mapping[str, RingVector], sent: PartySet
) -> Outcome:
    """Return the result of an exchange: the received vectors, and their sum with the own one."""
    parameters, context = member.parameters, member.context
    count = 1 + len(received)
    grid, weight = parameters.decode(total, count)
    return Outcome(
        total=grid.values,
        weight=weight,
        encoding=parameters.encoding,
        survivors=tuple(name for name in context.names if name in received or name == member.name),
        absent=tuple(name for name in context.names if name not in received and name != member.name),
        faults=(),
        privacy=parameters.privacy(count),
        noise=parameters.noise(count, 0),
        evidence=Evidence(
            protocol=context.protocol,
            version=context.version,
            session_digest=context.session_digest,
            run_id=run_id,
            merkle_commitment=b"",
            participating=tuple(member.name_of(party) for party in sent),
            participants=Certificate(b"", {}),
            survivors=None,
        ),
    )


# The aggregator


@dataclass(frozen=True, slots=True)
class Relayed:
    """Result of the aggregator in an exchange: whose vectors it has forwarded, and who was missing."""

    survivors: tuple[str, ...]
    absent: tuple[str, ...]
    faults: tuple[str, ...]


class CollectHello(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator in an exchange that collects hellos: parties may still join."""

    expects: ClassVar[str] = m.HELLO


class CollectBoxes(CollectorState, frozen=True, kw_only=True, eq=False):
    """State of an aggregator in an exchange that collects the parties' encrypted vectors."""

    expects: ClassVar[str] = m.SEND
    present: PartySet


class Delivered(CollectorState, frozen=True, kw_only=True, eq=False):
    """Final state of an aggregator in an exchange: it has forwarded all encrypted vectors."""

    over: ClassVar[bool] = True
    outcome: Relayed


def accept_hello(aggregator: Aggregator, _state: CollectHello, _party: int, envelope: Envelope) -> Item:
    """Return a party's hello, to be stored; PeerFault for another request's hello, or an invalid key."""
    context, hello = aggregator.context, decode(envelope.body, m.Hello, envelope.sender)
    if (hello.session_digest, hello.request) != (context.session_digest, context.request):
        raise PeerFault(envelope.sender, "its hello is for another session or request", Check.OTHER_REQUEST)
    try:
        agree.check_public_key(hello.key)
    except VerificationError as error:
        raise PeerFault(envelope.sender, str(error), error.check) from None
    return Item(hello, envelope.body, envelope.signature)


def finish_hello(aggregator: Aggregator, state: CollectHello) -> Transition:
    """Begin the exchange: return the next state and messages with peers' keys; or raise an error."""
    inbox, parameters = state.inbox, aggregator.parameters
    items = {party: inbox.items[party] for party in sorted(inbox.alive)}
    requested = {party: item.message.operation for party, item in items.items()}
    operation = agree_on_operation(aggregator, state, requested)
    if len(inbox.alive) < (needed := min_senders(aggregator, state)):
        raise aggregator.too_few(state, needed)
    packed = pack_set(inbox.alive, aggregator.parties)
    nonces = b"".join(items[party].message.nonce for party in sorted(inbox.alive))
    run_id = run_identifier(aggregator.context, operation, packed, nonces)

    def message(party: int) -> m.Start:
        met = (parameters.receivers(party) | parameters.senders(party)) & inbox.alive
        hellos = [(number, items[number].body, items[number].signature) for number in sorted(met)]
        return m.Start(packed, nonces, hellos)

    present = PartySet.unpack(packed, aggregator.parties, aggregator.name)
    after = CollectBoxes(run_id=run_id, present=present)
    return Transition(after, aggregator.to_each(run_id, inbox, m.START, message))


def accept_boxes(aggregator: Aggregator, state: CollectBoxes, party: int, envelope: Envelope) -> Item:
    """Return a party's encrypted vectors, to be stored; PeerFault unless there is one for each receiver."""
    boxes = decode(envelope.body, m.Send, envelope.sender).boxes
    # A missing box would look to its receiver as if the aggregator had dropped it.
    receivers = sorted(aggregator.parameters.receivers(party))
    if [number for number, _ in boxes] != [number for number in receivers if number in state.present]:
        raise PeerFault(
            envelope.sender, "does not send to exactly the present parties that it should", Check.SET_DIFFERS
        )
    return Item(dict(boxes), b"", envelope.signature)


def finish_boxes(aggregator: Aggregator, state: CollectBoxes) -> Transition:
    """Return the final state and all encrypted vectors to forward; abort parties that lack a sender."""
    inbox, parameters = state.inbox, aggregator.parameters
    sent = frozenset(inbox.alive)
    boxes = {party: inbox.items[party].message for party in sent}
    names = aggregator.context.names
    survivors = tuple(name for party, name in enumerate(names, 1) if party in sent)
    absent = tuple(name for party, name in enumerate(names, 1) if party not in sent)
    outcome = Relayed(survivors, absent, tuple(inbox.faults))
    without: list[Envelope] = []
    if parameters.edges is not None:
        for party in sorted(sent):
            if missing := sorted(parameters.senders(party) - sent):
                without += _go_without(aggregator, state, party, missing)
                inbox.alive.discard(party)
    packed = pack_set(sent, aggregator.parties)

    def message(party: int) -> m.Deliver:
        senders = sorted(parameters.senders(party) & sent)
        return m.Deliver(packed, [(number, boxes[number][party]) for number in senders])

    delivered = aggregator.to_each(state.run_id, inbox, m.DELIVER, message)
    after = Delivered(outcome=outcome)
    return Transition(after, [*without, *delivered])


def min_senders(aggregator: Aggregator, _state: CollectorState) -> int:
    """Return the number of parties that a step of the exchange needs: the plan's least number, at least 1."""
    return max(1, aggregator.parameters.plan.min_survivors)


def _go_without(
    aggregator: Aggregator, state: CollectBoxes, party: int, missing: list[int]
) -> list[Envelope]:
    """Return the message that tells a party which of its senders are missing, and why."""
    excluded = state.inbox.excluded
    names = {number: aggregator.name_of(number) for number in missing}
    why = {
        names[number]: code_of(excluded[number], names[number]) for number in excluded.keys() & names.keys()
    }
    late = TimeoutFault(names.values(), m.DELIVER, why=why)
    return aggregator.write(state.run_id, ABORT, (party,), abort_of(late))


AGGREGATOR = CollectorRole(
    rows=(
        CollectorRow(
            CollectHello,
            accept_hello,
            finish_hello,
            min_senders,
            (CollectBoxes,),
            (m.START,),
            "a party that joins, another question",
        ),
        CollectorRow(
            CollectBoxes,
            accept_boxes,
            finish_boxes,
            min_senders,
            (Delivered,),
            (m.DELIVER,),
            "anything: the run is over",
        ),
    ),
    saved=True,
)


def aggregator(
    context: Context,
    parameters: ExchangeParameters,
    identity: Signer,
    *,
    threads: int = 1,  # noqa: ARG001 - of sums
    watch: Watch | None = None,  # noqa: ARG001 - of sums
    board: Board | None = None,  # noqa: ARG001 - of protocols with a log
    fixed: FixedSurvivors | None = None,  # noqa: ARG001 - of exact sums
    last: SentResults | None = None,  # noqa: ARG001 - of sums
) -> Run[Relayed]:
    """Return the aggregator's run of an exchange, in which it forwards encrypted vectors."""
    member = Collector(context, parameters, identity)
    inbox = Inbox(set(range(1, member.parties + 1)))
    return Run(AGGREGATOR, member, CollectHello(inbox=inbox))
