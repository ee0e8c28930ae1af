"""Values derived in secure aggregation: commitments, encryption keys, mask seeds and signed shares.

Every derivation starts with its own label and binds protocol, version, run id, and sender and receiver where
there are any, so no value is used in two runs.
"""

from __future__ import annotations

from smpc_dp.crypto.agree import agree
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.engine.phases.messages import DEAL
from smpc_dp.errors import PeerFault, VerificationError
from smpc_dp.wire.signing import Context, Signer


def run_identifier(
    context: Context, operation: str, present: bytes, root: bytes, following: tuple[bytes, ...] = ()
) -> bytes:
    """Return the run id: a hash of session, request, operation, parties present and nonces.

    `following`: the aggregator's nonce and its last results; empty in a run with a log.
    """
    label = Label.FOLLOWING_RUN_ID if following else Label.AGGREGATOR_RUN_ID
    return context.remember(
        ("run id", operation, present, root, following),
        lambda: digest(
            label,
            *context.bound,
            context.session_digest,
            encode_uint(context.request),
            operation.encode(),
            present,
            root,
            *following,
        ),
    )


def _bound(context: Context, label: Label, run_id: bytes, *parts: bytes) -> bytes:
    """Return a hash of the parts, bound to the protocol, its version and this run."""
    return digest(label, *context.bound, run_id, *parts)


def neighbour_commitment(
    context: Context, run_id: bytes, party: str, neighbours: bytes, blinder: bytes
) -> bytes:
    """Return the commitment to a party's drawn neighbours (hiding: the blinder has 32 random bytes)."""
    return _bound(context, Label.NEIGHBOUR_COMMITMENT, run_id, party.encode(), neighbours, blinder)


def key_commitment(context: Context, run_id: bytes, party: str, mask_key: bytes) -> bytes:
    """Return the commitment to a party's masking key (hiding: the key is fresh)."""
    return _bound(context, Label.KEY_COMMITMENT, run_id, party.encode(), mask_key)


def value_commitment(context: Context, run_id: bytes, party: str, point: bytes) -> bytes:
    """Return a hiding hash that commits to a party's vector commitment (a curve point)."""
    return _bound(context, Label.VALUE_COMMITMENT, run_id, party.encode(), point)


def value_opening(context: Context, run_id: bytes, participants: bytes, party: str, point: bytes) -> bytes:
    """Return the digest that a party signs when it shows its vector commitment."""
    return _bound(context, Label.VALUE_OPENING, run_id, participants, party.encode(), point)


def self_commitment(context: Context, run_id: bytes, party: str, self_seed: bytes) -> bytes:
    """Return the commitment to a party's self-mask seed (hiding: the seed has 32 random bytes)."""
    return _bound(context, Label.SELF_COMMITMENT, run_id, party.encode(), self_seed)


def merkle_commitment_digest(context: Context, run_id: bytes, advertised: bytes, *roots: bytes) -> bytes:
    """Return the digest of which parties advertised keys and of the Merkle roots over these."""
    return _bound(context, Label.MERKLE_COMMITMENT, run_id, advertised, *roots)


def participants_digest(
    context: Context, run_id: bytes, merkle_commitment: bytes, participants: bytes
) -> bytes:
    """Return the digest of the set of participants, which the parties sign."""
    return _bound(context, Label.PARTICIPANTS, run_id, merkle_commitment, participants)


def survivors_digest(context: Context, run_id: bytes, participants: bytes, survivors: bytes) -> bytes:
    """Return the digest of the set of survivors, bound to the participants, which the parties sign."""
    return _bound(context, Label.SURVIVORS, run_id, participants, survivors)


def total_digest(context: Context, run_id: bytes, survivors: bytes, total: bytes, blinding: bytes) -> bytes:
    """Return the digest of a total with its blinding and survivors, which the checking parties sign."""
    return _bound(context, Label.TOTAL, run_id, survivors, total, blinding)


def self_mask_seed(context: Context, run_id: bytes, party: str, self_seed: bytes) -> bytes:
    """Return the seed from which the self-mask on a party's vector is generated."""
    return _bound(context, Label.SELF_MASK, run_id, party.encode(), self_seed)


def pair_mask_seed(
    context: Context, run_id: bytes, secret: bytes, me: str, peer: str, peer_key: bytes
) -> bytes:
    """Return the seed of the mask shared by two parties, equal at both ends.

    Raises:
        PeerFault: the peer's masking key is a point of small order.
    """
    first, second = sorted((me, peer))
    info = _bound(context, Label.MASK_SEED, run_id, first.encode(), second.encode())
    return _agree(secret, peer_key, run_id, info, peer)


def seal_key(
    context: Context, run_id: bytes, secret: bytes, peer: str, peer_key: bytes, sender: str, receiver: str
) -> bytes:
    """Return the key that encrypts messages from `sender` to `receiver`, one of which is this party."""
    info = _bound(context, Label.SEAL_KEY, run_id, sender.encode(), receiver.encode())
    return _agree(secret, peer_key, run_id, info, peer)


def _agree(secret: bytes, peer_key: bytes, run_id: bytes, info: bytes, peer: str) -> bytes:
    """Return the shared Diffie-Hellman key; raise PeerFault if the peer's key is of small order."""
    try:
        return agree(secret, peer_key, salt=run_id, info=info)
    except VerificationError as error:
        raise PeerFault(peer, str(error), error.check) from None


def seal_context(context: Context, run_id: bytes, sender: str, receiver: str, sequence: int = 0) -> bytes:
    """Return the associated data of an encrypted message: run, sender, receiver, step and sequence number."""
    return _bound(
        context,
        Label.SEAL_AAD,
        run_id,
        sender.encode(),
        receiver.encode(),
        DEAL.encode(),
        encode_uint(sequence),
    )


MASKING_KEY = b"masking-key"
SELF_MASK = b"self-mask"


def share_digest(
    context: Context, run_id: bytes, dealer: str, holder: str, kind: bytes, share: bytes
) -> bytes:
    """Return the digest of a secret share, shown in place of the share when only its twin is opened."""
    return _bound(context, Label.SHARE_DIGEST, run_id, dealer.encode(), holder.encode(), kind, share)


def _share_statement(
    context: Context, run_id: bytes, dealer: str, holder: str, mask: bytes, own: bytes
) -> bytes:
    """Return the digest of both shares given to a holder, which the dealer signs."""
    return _bound(context, Label.SHARE, run_id, dealer.encode(), holder.encode(), mask, own)


def sign_share(
    context: Context, run_id: bytes, dealer: Signer, holder: str, mask_digest: bytes, self_digest: bytes
) -> bytes:
    """Return the dealer's signature over the digests of the two shares that it gives to `holder`."""
    return dealer.sign(_share_statement(context, run_id, dealer.name, holder, mask_digest, self_digest))


def check_share(
    context: Context,
    run_id: bytes,
    dealer: str,
    holder: str,
    mask_digest: bytes,
    self_digest: bytes,
    signature: bytes,
) -> None:
    """Raise VerificationError unless the dealer has signed the digests of both shares of a holder."""
    statement = _share_statement(context, run_id, dealer, holder, mask_digest, self_digest)
    context.verify(context.keys[dealer], statement, signature)
