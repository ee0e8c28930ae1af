"""Phases in which parties without an aggregator agree on the participants, up to the certificate.

Specification: protocols/gopa/direct.md. Steps: hello, start, advertise, roll, reveal, participants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_evidence import (
    DirectInbox,
    DirectPeer,
    DirectState,
    check_signed,
    has_signed,
    note_convicted,
    note_hidden,
    proofs_of,
    proven,
)
from smpc_dp.capabilities.gopa.direct_keys import run_identifier
from smpc_dp.capabilities.gopa.direct_witness import suspect_all
from smpc_dp.crypto import agree
from smpc_dp.encoding import RingVector
from smpc_dp.engine.peers import PeerState
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.draws import draw_neighbours
from smpc_dp.engine.phases.key_graph import Graph, Revealed, check_openings, hello
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Check, Code, PeerFault, SmpcError, TimeoutFault
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_list
from smpc_dp.wire.signing import decode, encode


class Drawn(msgspec.Struct, frozen=True):
    """Data of a party after the run's start: its drawn neighbours, and what opens its commitments later."""

    present: PartySet
    neighbours: tuple[int, ...]
    blinder: bytes
    mask_secret: bytes

    def __repr__(self) -> str:
        return "Drawn(secret)"


class Advertised(msgspec.Struct, frozen=True):
    """Data of a party once it has received all parties' commitments to their drawn neighbours."""

    neighbours: tuple[int, ...]
    mask_secret: bytes
    members: PartySet
    messages: dict[int, d.Advertise]
    merkle_commitment: bytes

    def __repr__(self) -> str:
        return "Advertised(secret)"


class Agreed(msgspec.Struct, frozen=True):
    """Data of a party once it has signed the participants: their set, and the neighbours of each of them."""

    participants: PartySet
    neighbours: dict[int, tuple[int, ...]]
    merkle_commitment: bytes
    digest: bytes


class Ready(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has encoded its vector and sent nothing; others' hellos may already come."""

    expects: ClassVar[str] = m.HELLO
    vector: RingVector


class AwaitStart(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has sent a hello with a fresh nonce and waits for the start of the run."""

    expects: ClassVar[str] = d.START
    patient: ClassVar[bool] = True
    vector: RingVector


class AwaitMerkleCommitment(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has committed to drawn neighbours and a masking key, and waits for the others."""

    expects: ClassVar[str] = d.MERKLE_COMMITMENT
    phase: ClassVar[int] = 1
    patient: ClassVar[bool] = True
    vector: RingVector
    drawn: Drawn


class AwaitParticipants(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has opened its commitments and waits for the list of participants."""

    expects: ClassVar[str] = d.PARTICIPANTS
    phase: ClassVar[int] = 2
    patient: ClassVar[bool] = True
    vector: RingVector
    advertised: Advertised


class CertifyParticipants(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has signed the list of participants and collects others' signatures."""

    expects: ClassVar[str] = m.ATTEST_PARTICIPANTS
    phase: ClassVar[int] = 3
    releases: ClassVar[bool] = True
    vector: RingVector
    graph: Graph
    agreed: Agreed


def say_hello(peer: DirectPeer, state: Ready) -> Transition:
    """Begin a run without an aggregator: send a hello with a fresh nonce to all parties."""
    sent = peer.broadcast(state, m.HELLO, hello(peer, peer.random.bytes(32)), peer.everyone)
    return Transition(AwaitStart(inbox=state.inbox, vector=state.vector), sent)


def on_start(peer: DirectPeer, state: AwaitStart) -> Transition:
    """Draw neighbours and a masking key once the run starts; send all parties commitments to both."""
    run_id, drawn, sent = draw(peer, state)
    return Transition(
        AwaitMerkleCommitment(run_id=run_id, inbox=state.inbox, vector=state.vector, drawn=drawn), sent
    )


def on_merkle_commitment(peer: DirectPeer, state: AwaitMerkleCommitment) -> Transition:
    """Reveal this party's drawn neighbours and public masking key, now that all parties are committed."""
    advertised, sent = open_draw(peer, state, state.drawn)
    after = AwaitParticipants(
        run_id=state.run_id, inbox=state.inbox, vector=state.vector, advertised=advertised
    )
    return Transition(after, sent)


def on_participants(peer: DirectPeer, state: AwaitParticipants) -> Transition:
    """Check the coordinator's list of participants and the draws that it shows, and sign the list."""
    return attest_participants(peer, state, state.vector, state.advertised)


def draw(peer: DirectPeer, state: DirectState) -> tuple[bytes, Drawn, list[Envelope]]:
    """Check the coordinator's start, draw neighbours and a masking key; return (run id, draw, messages)."""
    context, coordinator = peer.context, peer.name_of(peer.coordinator)
    letter = state.inbox.letters[d.START][peer.coordinator]
    start = decode(letter.body, d.Start, coordinator)
    present = members_of(peer, start.present, None, "present parties")
    if len(start.nonces) != 32 * len(present):
        raise peer.refuse("start does not have one nonce for each present party", Check.NOT_ONE_EACH)
    signatures = signatures_of(peer, start.signatures, present, "start")
    for phase, (party, signature) in enumerate(signatures.items()):
        body = encode(hello(peer, start.nonces[32 * phase : 32 * phase + 32]))
        body_hash = hashlib.sha256(body).digest()
        if party == peer.index and body != state.inbox.letters[m.HELLO][party].body:
            raise _other_start(peer, state, body_hash, signature)
        check_signed(peer, state, m.HELLO, party, body_hash, signature)
    run_id = run_identifier(context, context.operation, start.present, start.nonces)
    if letter.run_id != run_id:
        raise peer.refuse("start is not for the run that its nonces give", Check.RUN_ID_DIFFERS)
    note_hidden(peer, state, m.HELLO, present)
    begun = replace(state, run_id=run_id)
    shown = suspect_all(peer, begun)
    neighbours = draw_neighbours(peer.index, peer.parties, peer.parameters.plan.degree, peer.random)
    blinder, mask_secret = peer.random.bytes(32), peer.random.bytes(32)
    advertise = d.Advertise(
        keys.neighbour_commitment(context, run_id, peer.name, pack_list(neighbours), blinder),
        keys.key_commitment(context, run_id, peer.name, agree.public_key(mask_secret)),
    )
    drawn = Drawn(present, neighbours, blinder, mask_secret)
    return run_id, drawn, shown + peer.broadcast(begun, m.ADVERTISE, advertise, present)


def _other_start(peer: DirectPeer, state: DirectState, body_hash: bytes, signature: bytes) -> SmpcError:
    """Return the error for a start with another hello of this party: forged, or of an earlier process.

    One that the party has signed was said by an earlier process without a saved state. The coordinator has
    answered it, and is not at fault.
    """
    if not has_signed(peer, peer.signed_under(state), m.HELLO, peer.index, body_hash, signature):
        return peer.refuse(f"start does not have the nonce of {peer.name}", Check.NONCE_DIFFERS)
    following = peer.context.request + 1
    detail = (
        f"an earlier process of {peer.name} takes part in the run, and its vector may be in the total; its "
        f"state is not here: this process can ask for request {following}"
    )
    return TimeoutFault({peer.name}, d.START, detail, code=Code.BEGUN, number=following)


def open_draw(peer: DirectPeer, state: DirectState, drawn: Drawn) -> tuple[Advertised, list[Envelope]]:
    """Check the coordinator's list of commitments; return the list, and messages that reveal this draw."""
    body = body_of(peer, state, d.MERKLE_COMMITMENT)
    merkle_commitment = decode(body, d.MerkleCommitment, peer.name_of(peer.coordinator))
    members = members_of(peer, merkle_commitment.advertised, drawn.present, "roll")
    bodies = _check_bodies(
        peer,
        state,
        m.ADVERTISE,
        merkle_commitment.advertisements,
        merkle_commitment.signatures,
        members,
        "roll",
    )
    try:
        messages = {party: decode(bodies[party], d.Advertise, peer.name_of(party)) for party in bodies}
    except PeerFault as fault:
        raise peer.refuse(f"let {fault} onto the roll", fault.check) from None
    note_hidden(peer, state, m.ADVERTISE, members)
    digest = hashlib.sha256(body).digest()
    advertised = Advertised(drawn.neighbours, drawn.mask_secret, members, messages, digest)
    mask_key, proofs = agree.public_key(drawn.mask_secret), proofs_of(state, m.ADVERTISE)
    reveal = d.Reveal(pack_list(drawn.neighbours), drawn.blinder, mask_key, proofs)
    return advertised, peer.broadcast(state, m.REVEAL, reveal, members)


def attest_participants(
    peer: DirectPeer, state: DirectState, vector: RingVector, advertised: Advertised
) -> Transition:
    """Check the list of participants, each revealed draw and the own neighbourhood; sign the list."""
    body = body_of(peer, state, d.PARTICIPANTS)
    proposed = decode(body, d.Participants, peer.name_of(peer.coordinator))
    members = members_of(peer, proposed.participants, advertised.members, "participants")
    reason = "list of participants"
    bodies = _check_bodies(peer, state, m.REVEAL, proposed.reveals, proposed.signatures, members, reason)
    revealed: dict[int, Revealed] = {}
    reported = decode(state.inbox.letters[m.REVEAL][peer.index].body, d.Reveal, peer.name).proofs
    # A proof that came after this party's own reveal excludes no party.
    convicted = {proof.party for proof in proofs_of(state, m.ADVERTISE) if proof in reported}
    try:
        for party, reveal in bodies.items():
            revealed[party], shown = read_reveal(peer, state, advertised, party, reveal)
            convicted |= shown
    except PeerFault as fault:
        raise peer.refuse(f"let {fault} take part", fault.check) from None
    for party in sorted(convicted):
        note_convicted(peer, state, m.ADVERTISE, party)
        if party in members:
            raise peer.refuse(
                f"lets {peer.name_of(party)} take part, which advertised twice", Check.EQUIVOCATION
            )
    note_hidden(peer, state, m.REVEAL, members)
    graph = _neighbourhood(peer, members, revealed, advertised)
    peer.parameters.check_neighbourhood(peer.name, len(graph.holders), len(graph.drew_me))
    digest = keys.participants_digest(
        peer.context, state.run_id, advertised.merkle_commitment, proposed.participants
    )
    agreed = Agreed(members, _edges(revealed), advertised.merkle_commitment, digest)
    after = CertifyParticipants(
        run_id=state.run_id, inbox=state.inbox, vector=vector, graph=graph, agreed=agreed
    )
    sent = peer.broadcast(state, m.ATTEST_PARTICIPANTS, m.Attestation(digest), members)
    return Transition(after, sent + suspect_all(peer, state, m.ATTEST_PARTICIPANTS))


def _edges(revealed: Mapping[int, Revealed]) -> dict[int, tuple[int, ...]]:
    """Return each participant's neighbours: the parties it drew, and the parties that drew it."""
    edges: dict[int, set[int]] = {party: set() for party in revealed}
    for party, opened in revealed.items():
        for other in opened.drawn:
            if other in edges:
                edges[party].add(other)
                edges[other].add(party)
    return {party: tuple(sorted(others)) for party, others in edges.items()}


def _neighbourhood(
    peer: DirectPeer, members: PartySet, revealed: Mapping[int, Revealed], advertised: Advertised
) -> Graph:
    """Return this party's part of the graph: participants, its neighbours, and their masking keys."""
    own = tuple(party for party in advertised.neighbours if party in members)
    drew_me = tuple(party for party, opened in revealed.items() if peer.index in opened.drawn)
    mask_keys = {party: revealed[party].mask_key for party in sorted({*own, *drew_me})}
    return Graph(members, own, drew_me, advertised.mask_secret, mask_keys, advertised.merkle_commitment)


# What the coordinator proposes


def body_of(peer: DirectPeer, state: DirectState, step: str) -> bytes:
    """Return the body of the coordinator's message of a step; raise PeerFault if it is of another run."""
    letter = state.inbox.letters[step][peer.coordinator]
    if letter.run_id != state.run_id:
        raise peer.refuse(f"sent '{step}' of another run", Check.OTHER_RUN)
    return letter.body


def members_of(
    peer: DirectPeer, packed: bytes, within: Collection[int] | PartySet | None, reason: str
) -> PartySet:
    """Decode parties; raise PeerFault if too few, not in `within`, or without this party or coordinator."""
    members = PartySet.unpack(packed, peer.parties, peer.name_of(peer.coordinator))
    if within is not None and any(party not in within for party in members):
        raise peer.refuse(f"{reason} has parties that were out before", Check.SET_GREW)
    for party in (peer.index, peer.coordinator):
        if party not in members:
            raise peer.refuse(f"left {peer.name_of(party)} out of the {reason}", Check.NOT_INCLUDED)
    least = peer.parameters.plan.min_survivors
    if len(members) < least:
        raise peer.refuse(f"{reason} has {len(members)} parties, at least {least} due", Check.SET_TOO_SMALL)
    return members


def signatures_of(peer: DirectPeer, packed: bytes, members: PartySet, reason: str) -> dict[int, bytes]:
    """Return the members' packed signatures, by member, unverified; raise PeerFault if not one for each."""
    size = m.SIGNATURE_BYTES
    if len(packed) != size * len(members):
        raise peer.refuse(f"{reason} does not have one signature for each party", Check.NOT_ONE_EACH)
    return dict(zip(members, m.pieces(packed, size), strict=True))


def _check_bodies(
    peer: DirectPeer,
    state: DirectState,
    step: str,
    bodies: list[bytes],
    signatures: bytes,
    members: PartySet,
    reason: str,
) -> dict[int, bytes]:
    """Return members' message bodies of a step, by member; PeerFault against the coordinator if unsigned."""
    if len(bodies) != len(members):
        raise peer.refuse(f"{reason} does not have one message for each party", Check.NOT_ONE_EACH)
    of = dict(zip(members, bodies, strict=True))
    for party, signature in signatures_of(peer, signatures, members, reason).items():
        check_signed(peer, state, step, party, hashlib.sha256(of[party]).digest(), signature)
    if of[peer.index] != state.inbox.letters[step][peer.index].body:
        raise peer.refuse(f"{reason} does not have the message of {peer.name}", Check.OWN_DIFFERS)
    return of


# What parties reveal


def read_reveal(
    peer: DirectPeer, state: DirectState, advertised: Advertised, party: int, body: bytes
) -> tuple[Revealed, set[int]]:
    """Return a party's opened draw and key, and the parties that it proves to have committed twice.

    Raises PeerFault.
    """
    name, advertise = peer.name_of(party), advertised.messages[party]
    reveal, degree = decode(body, d.Reveal, name), peer.parameters.plan.degree
    draw, key = advertise.draw_commitment, advertise.key_commitment
    revealed = check_openings(peer.context, degree, state.run_id, party, reveal, draw=draw, key=key)
    return revealed, proven(peer, state, m.ADVERTISE, reveal.proofs, name)
