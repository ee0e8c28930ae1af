"""Phases in which parties without an aggregator publish their noisy vectors, and agree on the total.

Specification: protocols/gopa/direct.md. Steps: attest-participants, publish, held, published, attest-total.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import ClassVar

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa.direct_agreement import (
    Agreed,
    CertifyParticipants,
    body_of,
    members_of,
    signatures_of,
)
from smpc_dp.capabilities.gopa.direct_evidence import (
    DirectInbox,
    DirectPeer,
    DirectState,
    check_signed,
    conviction,
    note_convicted,
    note_hidden,
    proofs_of,
    proven,
)
from smpc_dp.capabilities.gopa.direct_keys import total_digest
from smpc_dp.capabilities.gopa.direct_waits import signers
from smpc_dp.capabilities.gopa.direct_witness import suspect_all
from smpc_dp.capabilities.gopa.messages import PUBLISH
from smpc_dp.capabilities.gopa.messages import Published as Publication
from smpc_dp.encoding import RingVector
from smpc_dp.engine.peers import PeerState
from smpc_dp.engine.phases import masked_sum, outcomes
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Participation
from smpc_dp.engine.result import Certificate, Outcome
from smpc_dp.engine.state import State, Transition
from smpc_dp.errors import Check, LocalError, PeerFault
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import decode


class CollectPublications(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has sent its noisy vector and collects the other participants' vectors."""

    expects: ClassVar[str] = PUBLISH
    phase: ClassVar[int] = 4
    agreed: Agreed
    certificate: Certificate


class AwaitPublished(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has reported which vectors it received, and waits for the list that counts."""

    expects: ClassVar[str] = d.PUBLISHED
    phase: ClassVar[int] = 5
    patient: ClassVar[bool] = True
    agreed: Agreed
    certificate: Certificate
    held: dict[int, bytes]


class AwaitForwarded(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that knows which vectors count and waits for those that it has not received."""

    expects: ClassVar[str] = d.PUBLISHED
    phase: ClassVar[int] = 5
    patient: ClassVar[bool] = True
    agreed: Agreed
    certificate: Certificate
    published: dict[int, bytes]


class CertifyTotal(PeerState[DirectInbox], frozen=True, kw_only=True, eq=False):
    """State of a party that has signed its computed total and collects the others' signatures."""

    expects: ClassVar[str] = d.ATTEST_TOTAL
    phase: ClassVar[int] = 6
    agreed: Agreed
    certificate: Certificate
    survivors: tuple[int, ...]
    total: RingVector
    digest: bytes


class Finished(State, frozen=True, kw_only=True, eq=False):
    """State of a party that has the run's result and has discarded the received messages."""

    phase: ClassVar[int] = 7
    over: ClassVar[bool] = True
    outcome: Outcome


def participants_of(
    _peer: DirectPeer, state: CertifyParticipants | CollectPublications | CertifyTotal
) -> Collection[int]:
    """Return the numbers of the parties that take part in the run."""
    return state.agreed.participants


def publish(peer: DirectPeer, state: CertifyParticipants) -> Transition:
    """Send this party's vector with its own and pairwise noise to all certified participants."""
    agreed, graph = state.agreed, state.graph
    certificate = _certificate(peer, state, agreed, agreed.digest)
    masks = masked_sum.masks_of(peer, state.run_id, graph, graph.revealed, None)
    x_hat = masked_sum.mask_vector(peer, state.vector, masks)
    after = CollectPublications(
        run_id=state.run_id, inbox=state.inbox, agreed=agreed, certificate=certificate
    )
    return Transition(after, peer.broadcast(state, PUBLISH, Publication(x_hat), agreed.participants))


def _certificate(peer: DirectPeer, state: DirectState, agreed: Agreed, digest: bytes) -> Certificate:
    """Return the certificate of a step: the participants' signatures over this party's digest."""
    signed = signers(peer, state, state.step, agreed.participants)
    return Certificate(digest, {peer.name_of(party): signature for party, signature in signed.items()})


def notify_held(peer: DirectPeer, state: CollectPublications) -> Transition:
    """Tell the coordinator whose noisy vectors this party has received."""
    letters = peer.letters(state, PUBLISH, state.agreed.participants)
    message = d.Held(
        pack_set(letters, peer.parties),
        b"".join(letter.body_hash for letter in letters.values()),
        b"".join(letter.signature for letter in letters.values()),
        proofs_of(state, PUBLISH),
    )
    after = AwaitPublished(
        run_id=state.run_id,
        inbox=state.inbox,
        agreed=state.agreed,
        certificate=state.certificate,
        held={party: letter.body_hash for party, letter in letters.items()},
    )
    return Transition(after, (peer.write_to(state.run_id, d.HELD, message, peer.coordinator),))


def on_published(peer: DirectPeer, state: AwaitPublished) -> Transition:
    """Check the coordinator's list of vectors that count; wait for those that have not arrived."""
    published = read_published(peer, state, state.agreed, state.held)
    after = AwaitForwarded(
        run_id=state.run_id,
        inbox=state.inbox,
        agreed=state.agreed,
        certificate=state.certificate,
        published=published,
    )
    return Transition(after)


def read_published(
    peer: DirectPeer, state: DirectState, agreed: Agreed, held: dict[int, bytes]
) -> dict[int, bytes]:
    """Check the coordinator's list of vectors that count; return the SHA-256 of each, by party."""
    coordinator = peer.name_of(peer.coordinator)
    proposed = decode(body_of(peer, state, d.PUBLISHED), d.Published, coordinator)
    members = members_of(peer, proposed.published, agreed.participants, "total")
    if len(proposed.hashes) != 32 * len(members):
        raise peer.refuse("list of the published does not have one hash for each party", Check.NOT_ONE_EACH)
    convicted = proven(peer, state, PUBLISH, proposed.proofs, coordinator)
    for party in sorted(convicted):
        note_convicted(peer, state, PUBLISH, party)
        if party in members:
            raise peer.refuse(f"adds up {peer.name_of(party)}, which published twice", Check.EQUIVOCATION)
    hashes: dict[int, bytes] = {}
    signatures = signatures_of(peer, proposed.signatures, members, "list of the published")
    for phase, (party, signature) in enumerate(signatures.items()):
        hashes[party] = proposed.hashes[32 * phase : 32 * phase + 32]
        check_signed(peer, state, PUBLISH, party, hashes[party], signature)
        if held.get(party, hashes[party]) != hashes[party]:
            # The coordinator was told, or could not be: the proofs show who published twice.
            raise conviction(peer, state, PUBLISH, state.inbox.proofs[party, PUBLISH])
    note_hidden(peer, state, PUBLISH, [*members, *convicted])
    return hashes


def missing_forwarded(peer: DirectPeer, state: AwaitForwarded) -> Collection[int]:
    """Return the coordinator's number while vectors that it should forward are missing, else nothing."""
    for party, body_hash in state.published.items():
        if _x_hat(peer, state, party, body_hash) is None:
            return (peer.coordinator,)
    return ()


def _x_hat(peer: DirectPeer, state: DirectState, party: int, body_hash: bytes) -> bytes | None:
    """Return the body of a party's vector with the agreed hash; None if missing, PeerFault if altered."""
    letter = state.inbox.letter(PUBLISH, party)
    if letter is not None and letter.body_hash == body_hash:
        return letter.body
    body = state.inbox.forwarded.get(party)
    if body is not None and hashlib.sha256(body).digest() != body_hash:
        raise peer.refuse(
            f"forwards another publication of {peer.name_of(party)} than it lists", Check.OTHER_STATEMENT
        )
    return body


def read_x_hat(peer: DirectPeer, party: int, body: bytes) -> RingVector:
    """Decode a party's noisy vector from bytes; raise PeerFault naming the party if malformed."""
    name = peer.name_of(party)
    try:
        return peer.parameters.encoding.unpack(decode(body, Publication, name).x_hat)
    except ValueError as error:
        raise PeerFault(name, f"malformed Published: {error}", Check.MALFORMED) from None


def on_forwarded(peer: DirectPeer, state: AwaitForwarded) -> Transition:
    """Compute and sign the total, now that all vectors that count have arrived."""
    return attest_total(peer, state, state.agreed, state.certificate, state.published)


def attest_total(
    peer: DirectPeer,
    state: DirectState,
    agreed: Agreed,
    certificate: Certificate,
    published: dict[int, bytes],
) -> Transition:
    """Add up the noisy vectors, sign the total, and send the signature to the other participants."""
    encoding, run_id = peer.parameters.encoding, state.run_id
    total = encoding.zeros()
    for party, body_hash in published.items():
        body = _x_hat(peer, state, party, body_hash)
        if body is None:
            raise LocalError(f"{peer.name}: a publication is not there any more")
        try:
            total += read_x_hat(peer, party, body)
        except PeerFault as fault:
            raise peer.refuse(f"adds up {fault}", fault.check) from None
    packed = pack_set(published, peer.parties)
    digest = total_digest(peer.context, run_id, agreed.digest, packed, encoding.pack(total))
    after = CertifyTotal(
        run_id=run_id,
        inbox=state.inbox,
        agreed=agreed,
        certificate=certificate,
        survivors=tuple(published),
        total=total,
        digest=digest,
    )
    sent = peer.broadcast(state, d.ATTEST_TOTAL, m.Attestation(digest), agreed.participants)
    return Transition(after, sent + suspect_all(peer, state, d.ATTEST_TOTAL))


def finish(peer: DirectPeer, state: CertifyTotal) -> Transition:
    """Decode the total that a quorum has signed into the result, and count pairs whose noise stays in it."""
    agreed, inside = state.agreed, frozenset(state.survivors)
    lost = [party for party in agreed.participants if party not in inside]
    for party in lost:
        name = peer.name_of(party)
        state.inbox.note(f"{name}: is not in the total; the noise that it shared stays in it")
    outcome = outcomes.outcome(
        peer.context,
        peer.parameters,
        state.run_id,
        state.total,
        Participation(agreed.merkle_commitment, agreed.participants, state.certificate),
        survivors=state.survivors,
        survivors_certificate=_certificate(peer, state, agreed, state.digest),
        faults=tuple(state.inbox.faults),
        residual_pairs=sum(other in inside for party in lost for other in agreed.neighbours[party]),
    )
    return Transition(Finished(run_id=state.run_id, outcome=outcome))
