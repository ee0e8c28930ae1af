"""The two digests of a run without an aggregator that no other protocol has."""

from __future__ import annotations

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.wire.signing import Context


def run_identifier(context: Context, operation: str, present: bytes, nonces: bytes) -> bytes:
    """Return the run id: a digest of session, request, operation, the parties present and their nonces."""
    return context.remember(
        ("direct run id", operation, present, nonces),
        lambda: digest(
            Label.DIRECT_RUN_ID,
            *context.bound,
            context.session_digest,
            encode_uint(context.request),
            operation.encode(),
            present,
            nonces,
        ),
    )


def total_digest(
    context: Context, run_id: bytes, participants: bytes, published: bytes, total: bytes
) -> bytes:
    """Return the digest of a total that each party has computed, for all parties to sign.

    `participants` is the digest of the certified set, `published` a packed set, `total` the packed ring
    elements.
    """
    return digest(Label.DIRECT_TOTAL, *context.bound, run_id, participants, published, total)
