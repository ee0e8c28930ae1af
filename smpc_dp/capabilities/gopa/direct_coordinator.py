"""The party that coordinates a run without an aggregator: it proposes sets, and is one of the parties.

It collects a letter of each party in each step, leaves out late and faulty parties, and sends the letters to
all. The others need not trust it: at worst it excludes as many parties as the plan allows, or stops the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_agreement import (
    Advertised,
    Agreed,
    Drawn,
    Ready,
    attest_participants,
    draw,
    open_draw,
    read_reveal,
)
from smpc_dp.capabilities.gopa.direct_evidence import (
    DirectInbox,
    DirectPeer,
    DirectState,
    convict,
    conviction,
    has_signed,
    proofs_of,
    proven,
)
from smpc_dp.capabilities.gopa.direct_keys import run_identifier
from smpc_dp.capabilities.gopa.direct_letters import FROM_ALL, keep
from smpc_dp.capabilities.gopa.direct_publication import (
    CollectPublications,
    attest_total,
    read_published,
    read_x_hat,
)
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.encoding import RingVector
from smpc_dp.engine.peers import Letter, PeerState, Take
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.key_graph import hello
from smpc_dp.engine.result import Certificate
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, Code, PeerFault, SmpcError, TimeoutFault, evidenced
from smpc_dp.wire.abort import ABORT, abort_of, code_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import decode


class CollectHello(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of the coordinator that has said hello and collects the hellos of other parties."""

    expects: ClassVar[str] = m.HELLO
    vector: RingVector


class CollectAdvertise(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of the coordinator that collects the parties' commitments to their drawn neighbours."""

    expects: ClassVar[str] = m.ADVERTISE
    phase: ClassVar[int] = 1
    vector: RingVector
    drawn: Drawn


class CollectReveal(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of the coordinator that collects the parties' revealed draws of neighbours."""

    expects: ClassVar[str] = m.REVEAL
    phase: ClassVar[int] = 2
    vector: RingVector
    advertised: Advertised


class CollectHeld(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of the coordinator that collects, from each party, which noisy vectors the party has received."""

    expects: ClassVar[str] = d.HELD
    phase: ClassVar[int] = 5
    agreed: Agreed
    certificate: Certificate


# Whose letters are expected


def everyone(peer: DirectPeer, _state: CollectHello) -> Iterable[int]:
    """Return the numbers of all parties, as those from which a step expects messages."""
    return peer.everyone


def present(_peer: DirectPeer, state: CollectAdvertise) -> Iterable[int]:
    """Return the parties that sent a hello, from whom the coordinator now expects commitments."""
    return state.drawn.present


def advertised(_peer: DirectPeer, state: CollectReveal) -> Iterable[int]:
    """Return the parties that sent commitments, from whom the coordinator now expects the openings."""
    return state.advertised.members


def others(peer: DirectPeer, state: CollectHeld) -> list[int]:
    """Return the numbers of all participants but the coordinator itself."""
    index = peer.index
    return [party for party in state.agreed.participants if party != index]


def has_enough(peer: DirectPeer, state: CollectHello) -> bool:
    """Tell whether at least as many parties that are not lost have sent a hello as the run needs."""
    return len(_heard(peer, state, peer.everyone)) >= peer.parameters.plan.min_survivors


def _heard(peer: DirectPeer, state: DirectState, among: Iterable[int]) -> dict[int, Letter]:
    """Return the messages received in the state's step from parties not lost, by party."""
    letters, gone = peer.letters(state, state.step, among), state.inbox.gone
    return {party: letter for party, letter in letters.items() if party not in gone}


# Who is left out


def _exclude(state: DirectState, party: int, error: SmpcError) -> None:
    """Exclude a party from the run for an error: count it as lost, and note the error as diagnostics."""
    state.inbox.excluded[party] = error
    state.inbox.gone[party] = None
    state.inbox.note(error)


def _notify_out(peer: DirectPeer, party: int, error: SmpcError) -> Envelope:
    """Return the message that tells a party that it is excluded from the run, and the reason."""
    return peer.write_to(peer.context.session_digest, ABORT, abort_of(error), party)


def _notify_left_out(
    peer: DirectPeer, state: DirectState, before: Iterable[int], left: Collection[int], step: str
) -> list[Envelope]:
    """Return messages that tell each party in `before`, and not in `left`, that it is out of the run."""
    sent = []
    for party in before:
        if party not in left:
            late = TimeoutFault({peer.name_of(party)}, step, "deadline passed, or its link is gone")
            sent.append(_notify_out(peer, party, state.inbox.excluded.get(party, late)))
    return sent


def _check_enough(
    peer: DirectPeer, state: DirectState, left: Collection[int], before: Iterable[int], step: str
) -> None:
    """Raise TimeoutFault if fewer parties remain after a step than the run needs."""
    needed, excluded = peer.parameters.plan.min_survivors, state.inbox.excluded
    if len(left) >= needed:
        return
    missing = {party: peer.name_of(party) for party in before if party not in left}
    known = excluded.keys() & missing.keys()
    why = {missing[party]: code_of(excluded[party], missing[party]) for party in known}
    reasons = "; ".join(list(state.inbox.faults)[:5])
    detail = f"{len(left)} parties are left, {needed} are needed: {reasons}"
    few = TimeoutFault(missing.values(), step, detail, code=Code.FEW, why=why, number=needed)
    raise few from evidenced(excluded.values())


def _keep_hello(
    peer: DirectPeer, state: DirectState, party: int, envelope: Envelope, body_hash: bytes
) -> Sequence[Envelope]:
    """Store a party's hello, return messages to send; queue, once, the reply that a late sender is out."""
    inbox = state.inbox
    sent = keep(peer, state, party, envelope, body_hash)
    if not state.run_id or party in inbox.answered:
        return sent
    start = decode(inbox.letters[d.START][peer.index].body, d.Start, peer.name)
    is_first = inbox.letters[m.HELLO][party].body_hash == body_hash
    if is_first and party in PartySet.unpack(start.present, peer.parties, peer.name):
        return sent
    inbox.answered[party] = None
    late = TimeoutFault({envelope.sender}, m.HELLO, "the run has begun", code=Code.BEGUN)
    inbox.unsent.append(_notify_out(peer, party, inbox.excluded.get(party, late)))
    return sent


# What the coordinator takes.
TAKES: dict[str, Take] = {**FROM_ALL, m.HELLO: _keep_hello}

# Proposals


def say_hello(peer: DirectPeer, state: Ready) -> Transition:
    """Begin a run as its coordinator: send a hello with a fresh nonce to all parties."""
    sent = peer.broadcast(state, m.HELLO, hello(peer, peer.random.bytes(32)), peer.everyone)
    return Transition(CollectHello(inbox=state.inbox, vector=state.vector), sent)


def propose_start(peer: DirectPeer, state: CollectHello) -> Transition:
    """Start the run without parties that ask for another operation; draw this party's neighbours."""
    inbox, operation = state.inbox, peer.context.operation
    for party, letter in _heard(peer, state, peer.everyone).items():
        try:
            _check_hello(peer, party, letter)
        except PeerFault as fault:
            _exclude(state, party, fault)
    letters = _heard(peer, state, peer.everyone)
    _check_enough(peer, state, letters, peer.everyone, m.HELLO)
    nonces = b"".join(decode(letter.body, m.Hello, "").nonce for letter in letters.values())
    packed = pack_set(letters, peer.parties)
    begun = replace(state, run_id=run_identifier(peer.context, operation, packed, nonces))
    signatures = b"".join(letter.signature for letter in letters.values())
    sent = peer.broadcast(begun, d.START, d.Start(packed, nonces, signatures), letters)
    requested = sorted(inbox.excluded.keys() & peer.letters(state, m.HELLO, peer.everyone).keys())
    reported = _notify_left_out(peer, state, requested, letters, m.HELLO)
    run_id, drawn, own = draw(peer, state)
    after = CollectAdvertise(run_id=run_id, inbox=inbox, vector=state.vector, drawn=drawn)
    return Transition(after, [*reported, *sent, *own])


def _check_hello(peer: DirectPeer, party: int, letter: Letter) -> None:
    """Raise PeerFault naming a party whose hello is for another operation, plan or request."""
    name = peer.name_of(party)
    claimed = decode(letter.body, m.Hello, name)
    own = hello(peer, claimed.nonce)
    if claimed.operation != own.operation:
        asks = f"asks {claimed.operation!r}, {peer.name} asks {own.operation!r}"
        raise PeerFault(name, asks, Check.OTHER_OPERATION, code=Code.OPERATION)
    if claimed != own:
        raise PeerFault(name, "has another plan or request", Check.OTHER_REQUEST)


def propose_merkle_commitment(peer: DirectPeer, state: CollectAdvertise) -> Transition:
    """Send all parties' commitments to everyone, and reveal the coordinator's own drawn neighbours."""
    letters, before = _heard(peer, state, state.drawn.present), state.drawn.present
    for party, letter in list(letters.items()):
        try:
            decode(letter.body, d.Advertise, peer.name_of(party))
            _check_unconvicted(peer, state, m.ADVERTISE, party)
        except PeerFault as fault:
            _exclude(state, party, fault)
            del letters[party]
    _check_enough(peer, state, letters, before, m.ADVERTISE)
    merkle_commitment = d.MerkleCommitment(pack_set(letters, peer.parties), *_shown(letters))
    reported = _notify_left_out(peer, state, before, letters, m.ADVERTISE)
    sent = peer.broadcast(state, d.MERKLE_COMMITMENT, merkle_commitment, letters)
    opened, own = open_draw(peer, state, state.drawn)
    after = CollectReveal(run_id=state.run_id, inbox=state.inbox, vector=state.vector, advertised=opened)
    return Transition(after, [*reported, *sent, *own])


def propose_participants(peer: DirectPeer, state: CollectReveal) -> Transition:
    """Send all valid revealed draws to the parties left, and sign the list of those who revealed them."""
    before = state.advertised.members
    letters = _heard(peer, state, before)
    convicted: set[int] = set()
    for party, letter in list(letters.items()):
        try:
            convicted |= read_reveal(peer, state, state.advertised, party, letter.body)[1]
        except PeerFault as fault:
            _exclude(state, party, fault)
            del letters[party]
    for party in sorted(convicted & letters.keys()):
        reason = f"sent two different messages for step '{m.ADVERTISE}'"
        _exclude(state, party, PeerFault(peer.name_of(party), reason, Check.EQUIVOCATION))
        del letters[party]
    _check_enough(peer, state, letters, before, m.REVEAL)
    proposed = d.Participants(pack_set(letters, peer.parties), *_shown(letters))
    reported = _notify_left_out(peer, state, before, letters, m.REVEAL)
    sent = peer.broadcast(state, d.PARTICIPANTS, proposed, letters)
    after, own = attest_participants(peer, state, state.vector, state.advertised)
    return Transition(after, [*reported, *sent, *own])


def await_held(_peer: DirectPeer, state: CollectPublications) -> Transition:
    """Enter the state in which the coordinator waits for reports of received publications; send nothing."""
    after = CollectHeld(
        run_id=state.run_id, inbox=state.inbox, agreed=state.agreed, certificate=state.certificate
    )
    return Transition(after)


def propose_published(peer: DirectPeer, state: CollectHeld) -> Transition:
    """Send the list of publications that count, forward those that parties lack, and sign the total."""
    before = state.agreed.participants
    letters = peer.letters(state, PUBLISH, before)
    seen, held = dict(letters), _read_all_held(peer, state, letters)
    for party in list(letters):
        try:
            _check_unconvicted(peer, state, PUBLISH, party)
            read_x_hat(peer, party, letters[party].body)
        except PeerFault as fault:
            _exclude(state, party, fault)
            del letters[party]
    _check_enough(peer, state, letters, before, PUBLISH)
    forwards = [
        peer.write_to(state.run_id, d.FORWARD, d.Forward(party, letters[party].body), receiver)
        for receiver, has in held.items()
        for party in letters
        if party not in has and receiver in letters
    ]
    proposed = d.Published(
        pack_set(letters, peer.parties),
        b"".join(letter.body_hash for letter in letters.values()),
        b"".join(letter.signature for letter in letters.values()),
        proofs_of(state, PUBLISH),
    )
    own = {party: letter.body_hash for party, letter in seen.items() if party in letters}
    reported = _notify_left_out(peer, state, before, letters, PUBLISH)
    sent = peer.broadcast(state, d.PUBLISHED, proposed, letters)
    published = read_published(peer, state, state.agreed, own)
    after, attested = attest_total(peer, state, state.agreed, state.certificate, published)
    return Transition(after, [*reported, *forwards, *sent, *attested])


def _check_unconvicted(peer: DirectPeer, state: DirectState, step: str, party: int) -> None:
    """Raise PeerFault if a party is proven to have signed two different messages in a step."""
    if (proof := state.inbox.proofs.get((party, step))) is not None:
        raise conviction(peer, state, step, proof)


def _read_all_held(peer: DirectPeer, state: CollectHeld, mine: Mapping[int, Letter]) -> dict[int, PartySet]:
    """Return whose publications each party reports to have; note wrong reports and leave them out."""
    known, held = dict(mine), {}
    for party, letter in peer.letters(state, d.HELD, others(peer, state)).items():
        try:
            held[party] = _read_held(peer, state, party, letter.body, known)
        except PeerFault as fault:
            state.inbox.note(fault)
    return held


def _read_held(
    peer: DirectPeer, state: CollectHeld, party: int, body: bytes, known: dict[int, Letter]
) -> PartySet:
    """Return whose vectors a party reports to have; raise PeerFault for a wrong report; store its proofs."""
    name, size = peer.name_of(party), m.SIGNATURE_BYTES
    message = decode(body, d.Held, name)
    held = PartySet.unpack(message.held, peer.parties, name)
    if len(message.hashes) != 32 * len(held) or len(message.signatures) != size * len(held):
        raise PeerFault(name, "malformed Held: lists of differing lengths", Check.WRONG_LENGTH)
    proven(peer, state, PUBLISH, message.proofs, name)
    for proof in message.proofs:
        state.inbox.proofs.setdefault((proof.party, PUBLISH), proof)
    for phase, publisher in enumerate(held):
        body_hash = message.hashes[32 * phase : 32 * phase + 32]
        signature = message.signatures[size * phase : size * phase + size]
        first = known.get(publisher)
        if first is not None and first.body_hash == body_hash:
            continue
        if not has_signed(peer, state.run_id, PUBLISH, publisher, body_hash, signature):
            raise PeerFault(
                name, f"holds a publication that {peer.name_of(publisher)} did not sign", Check.NOT_SIGNED
            )
        if first is None:
            known[publisher] = Letter(state.run_id, b"", body_hash, signature)
        else:
            convict(peer, state, PUBLISH, publisher, first, body_hash, signature)
    return held


def _shown(letters: Mapping[int, Letter]) -> tuple[list[bytes], bytes]:
    """Return the bodies and the packed signatures of stored messages, to send to other parties."""
    bodies = [letter.body for letter in letters.values()]
    return bodies, b"".join(letter.signature for letter in letters.values())
