"""The phase that sums masked vectors: shares of secrets, masked vectors, and one opened share of each secret.

Steps: deal, deliver; after the certificate of the participants masked, survivors; after the certificate of
the survivors unmask, result. For every party either the self-mask seed or the masking key is recovered, never
both. Specification: protocols/secagg/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np

from smpc_dp.crypto import shamir
from smpc_dp.crypto.seal import seal, unseal
from smpc_dp.encoding import RingVector
from smpc_dp.engine.collector import Collector, CollectorState, Item
from smpc_dp.engine.party import Member
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certified_set import Attesting
from smpc_dp.engine.phases.key_graph import Edges, Graph, Sealing, SumAggregator, members_of
from smpc_dp.engine.phases.masks import Masks
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.state import Secret
from smpc_dp.errors import Check, PeerFault, TimeoutFault, VerificationError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.large_fields import MessageBuffer
from smpc_dp.wire.sets import PartySet, pack_list, unpack_list
from smpc_dp.wire.signing import decode, encode

# The party's side


def deal(
    member: Member[SumParameters], run_id: bytes, graph: Graph, sealing: Sealing
) -> tuple[bytes, m.Deal]:
    """Draw a self-mask seed; return it and the message with encrypted secret shares for neighbours."""
    context, random, threshold = member.context, member.random, member.parameters.plan.threshold
    self_seed = random.bytes(32)
    mask_shares = shamir.split(graph.mask_secret, threshold, graph.holders, random)
    self_shares = shamir.split(self_seed, threshold, graph.holders, random)
    sealed = []
    for holder, mask_share, self_share in zip(graph.holders, mask_shares, self_shares, strict=True):
        name = member.name_of(holder)
        digests = [
            keys.share_digest(context, run_id, member.name, name, kind, share)
            for kind, share in ((keys.MASKING_KEY, mask_share), (keys.SELF_MASK, self_share))
        ]
        signature = keys.sign_share(context, run_id, member.identity, name, *digests)
        share = encode(m.Share(mask_share, self_share, signature))
        key = sealing.key(member, run_id, holder, sending=True)
        sealed.append(seal(key, share, keys.seal_context(context, run_id, member.name, name), random))
    commitment = keys.self_commitment(context, run_id, member.name, self_seed)
    return self_seed, m.Deal(commitment, sealed)


class Delivered(Secret, frozen=True):
    """What a party was delivered: its shares by dealer, the participants, and dealers of invalid shares."""

    participants: PartySet
    held: dict[int, m.Share]
    bad_dealers: tuple[int, ...]
    digest: bytes


def open_delivery(
    member: Member[SumParameters], run_id: bytes, graph: Graph, sealing: Sealing, body: bytes
) -> Delivered:
    """Return the decrypted shares, and who dealt bad ones; PeerFault, or TimeoutFault for few holders."""
    message = decode(body, m.Deliver, member.context.aggregator)
    participants = members_of(member, message.participants, graph.revealed, "participants")
    expected = tuple(party for party in graph.drew_me if party in participants)
    dealers = unpack_list(message.dealers, member.parties, member.context.aggregator)
    if dealers != expected or len(message.sealed) != len(expected):
        withheld = [member.name_of(party) for party in expected if party not in dealers]
        raise member.refuse(
            f"withheld the shares of {', '.join(withheld[:5])}"
            if withheld
            else "delivered shares of parties that did not draw this one",
            Check.NOT_SHOWN if withheld else Check.NOT_PRESENT,
        )
    check_holders(member, graph.holders, participants, m.DEAL)
    held: dict[int, m.Share] = {}
    bad_dealers = []
    for dealer, sealed in zip(dealers, message.sealed, strict=True):
        try:
            held[dealer] = _open_share(member, run_id, sealing, dealer, sealed)
        except (VerificationError, PeerFault):
            bad_dealers.append(dealer)
    digest = keys.participants_digest(member.context, run_id, graph.digest, message.participants)
    return Delivered(participants, held, tuple(bad_dealers), digest)


def check_holders(member: Member[SumParameters], chosen: Sequence[int], present: PartySet, step: str) -> None:
    """Raise TimeoutFault in `step`, naming missing holders, if fewer than the threshold are present."""
    missing = [member.name_of(party) for party in chosen if party not in present]
    if len(chosen) - len(missing) < member.parameters.plan.threshold:
        raise TimeoutFault(missing, step, f"{member.name} has fewer holders than the threshold")


def _open_share(
    member: Member[SumParameters], run_id: bytes, sealing: Sealing, dealer: int, sealed: bytes
) -> m.Share:
    """Decrypt a dealer's share for this party and check its signature; raise an error if it is invalid."""
    context, name = member.context, member.name_of(dealer)
    key = sealing.key(member, run_id, dealer, sending=False)
    opened = unseal(key, sealed, keys.seal_context(context, run_id, name, member.name))
    share = decode(opened, m.Share, name)
    mask, own = _digests(member, run_id, name, share)
    keys.check_share(context, run_id, name, member.name, mask, own, share.signature)
    return share


def _digests(
    member: Member[SumParameters], run_id: bytes, dealer: str, share: m.Share
) -> tuple[bytes, bytes]:
    """Return the digests of a dealer's two shares: of its masking key, and of its self-mask seed."""
    mask, own = (
        keys.share_digest(member.context, run_id, dealer, member.name, kind, value)
        for kind, value in ((keys.MASKING_KEY, share.mask_share), (keys.SELF_MASK, share.self_share))
    )
    return mask, own


def masks_of(
    member: Member[Any], run_id: bytes, graph: Graph, participants: PartySet, self_seed: bytes | None
) -> Masks:
    """Return the masks of a party's vector: with each participating neighbour, and of `self_seed` if any."""
    own = [] if self_seed is None else [keys.self_mask_seed(member.context, run_id, member.name, self_seed)]
    return Masks(own, 1, *graph.mask_seeds(member, run_id, participants))


def mask_vector(member: Member[SumParameters], vector: RingVector, masks: Masks) -> bytes:
    """Return a vector's masked copy as bytes, with fresh noise added unless totals are checked.

    Where totals are checked the vector has its noise already: the party has committed to it.
    """
    parameters, buffer = member.parameters, MessageBuffer.of(vector.nbytes)
    ring_vector = np.frombuffer(buffer.content(vector.nbytes), vector.dtype)
    ring_vector[:] = vector
    masks.add_to(ring_vector, parameters)
    if not parameters.is_checked:
        parameters.add_noise(ring_vector, member.random)
    # Messages take any buffer, and this one is not copied.
    return cast("bytes", buffer.content(parameters.encoding.pack_overwriting(ring_vector)))


def open_shares(
    member: Member[SumParameters], run_id: bytes, held: dict[int, m.Share], survivors: PartySet
) -> m.Unmask:
    """Return the message with one share per dealer: of a survivor's self-mask seed or a lost one's key."""
    dealers, shares, others, signatures = [], bytearray(), bytearray(), bytearray()
    for dealer, share in sorted(held.items()):
        mask, own = _digests(member, run_id, member.name_of(dealer), share)
        survived = dealer in survivors
        dealers.append(dealer)
        shares += share.self_share if survived else share.mask_share
        others += mask if survived else own
        signatures += share.signature
    return m.Unmask(pack_list(dealers), bytes(shares), bytes(others), bytes(signatures))


# The aggregator's side


class Dealt(msgspec.Struct, frozen=True):
    """Aggregator's record of dealt shares: self-mask commitments, and who dealt to each holder."""

    self_commitments: dict[int, bytes]
    dealers_of: dict[int, tuple[int, ...]]


def accept_deal(edges: Edges, party: int, envelope: Envelope) -> Item:
    """Return a party's encrypted shares; raise PeerFault unless there is one for each holder."""
    message = decode(envelope.body, m.Deal, envelope.sender)
    expected = len(edges.drawn[party])
    if len(message.sealed) != expected:
        raise PeerFault(
            envelope.sender, f"dealt {len(message.sealed)} shares, {expected} are due", Check.WRONG_LENGTH
        )
    if any(len(sealed) != m.SEALED_SHARE_BYTES for sealed in message.sealed):
        raise PeerFault(
            envelope.sender, f"a sealed share must have {m.SEALED_SHARE_BYTES} bytes", Check.WRONG_LENGTH
        )
    return Item(message, b"", envelope.signature)


def deliver(
    collector: Collector[SumParameters], state: CollectorState, edges: Edges
) -> tuple[Dealt, Attesting, list[Envelope]]:
    """Return the record of dealt shares, the participants to be signed, and each holder's message."""
    participants, items = PartySet.of(state.inbox.alive, collector.parties), state.inbox.items
    boxes: dict[int, list[tuple[int, bytes]]] = {party: [] for party in participants}
    for dealer in participants:
        for holder, sealed in zip(edges.drawn[dealer], items[dealer].message.sealed, strict=True):
            if holder in boxes:
                boxes[holder].append((dealer, sealed))
    packed = participants.packed
    digest = keys.participants_digest(collector.context, state.run_id, edges.digest, packed)

    def message(holder: int) -> m.Deliver:
        dealers, sealed = [dealer for dealer, _ in boxes[holder]], [each for _, each in boxes[holder]]
        return m.Deliver(packed, pack_list(dealers), sealed)

    dealt = Dealt(
        {dealer: items[dealer].message.self_commitment for dealer in participants},
        {holder: tuple(dealer for dealer, _ in given) for holder, given in boxes.items()},
    )
    messages = collector.to_each(state.run_id, state.inbox, m.DELIVER, message)
    return dealt, Attesting(participants, digest), messages


def add_masked(
    aggregator: SumAggregator[SumParameters],
    total: RingVector,
    dealt: Dealt,
    party: int,
    envelope: Envelope,
    masked: m.Masked,
) -> Item:
    """Add a party's masked vector to `total` in place; return its complaints; PeerFault for wrong ones."""
    bad_dealers = unpack_list(masked.bad_dealers, aggregator.parties, envelope.sender)
    if not set(bad_dealers) <= set(dealt.dealers_of[party]):
        raise PeerFault(
            envelope.sender, "complains about parties that dealt nothing to it", Check.NOT_PRESENT
        )
    add_vector(aggregator, total, envelope.sender, masked.vector, "Masked")
    return Item(bad_dealers, b"", envelope.signature)


def add_vector(
    aggregator: SumAggregator[SumParameters],
    total: RingVector,
    sender: str,
    packed: bytes | memoryview,
    kind: str,
) -> None:
    """Add a packed vector to `total` in place; PeerFault, naming sender and message `kind`, if malformed.

    Storing it would take the memory of a vector for each party.
    """
    encoding = aggregator.parameters.encoding
    try:
        encoding.check_packed(packed)
    except ValueError as error:
        raise PeerFault(sender, f"malformed {kind}: {error}", Check.MALFORMED) from None
    # Outside: an error here is no fault of the sender.
    encoding.add_packed(total, packed)
    if aggregator.watch is not None:
        aggregator.watch(sender, encoding.unpack(packed))


def accept_unmask(collector: Collector[SumParameters], expected: tuple[int, ...], envelope: Envelope) -> Item:
    """Return a holder's opened shares; raise PeerFault unless there is one of each expected dealer."""
    unmask = decode(envelope.body, m.Unmask, envelope.sender)
    dealers = unpack_list(unmask.dealers, collector.parties, envelope.sender)
    if dealers != expected:
        raise PeerFault(
            envelope.sender, "does not reveal one share of each party that dealt to it", Check.NOT_ONE_EACH
        )
    count = len(dealers)
    if (
        len(unmask.shares) != m.SHARE_BYTES * count
        or len(unmask.others) != m.SHARE_BYTES * count
        or len(unmask.signatures) != m.SIGNATURE_BYTES * count
    ):
        raise PeerFault(envelope.sender, "malformed Unmask: lists of differing lengths", Check.WRONG_LENGTH)
    return Item(unmask, b"", envelope.signature)
