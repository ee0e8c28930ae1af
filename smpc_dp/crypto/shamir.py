"""Shamir's secret sharing over GF(2^128), block by block.

The same field, polynomial and shares as pycryptodome's `Crypto.Protocol.SecretSharing.Shamir` with
`ssss=False`; its `index` is a holder's number here. A share is not authenticated: the protocols sign
shares where their dealer must be known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smpc_dp import _core
from smpc_dp.crypto.randomness import Randomness

BLOCK_BYTES = 16
MAX_HOLDER = 65535


def split(secret: bytes, threshold: int, holders: Sequence[int], randomness: Randomness) -> list[bytes]:
    """Return Shamir shares of a secret for `holders`, any `threshold` of which recover it; or ValueError.

    `secret` is a positive multiple of 16 bytes; `holders` are distinct numbers from 1 to 65535; the
    i-th share returned is that of `holders[i]` and as long as the secret. Draws
    `(threshold - 1) * len(secret)` bytes from `randomness`.

    Raises ValueError for a wrong length, threshold (1 to the number of holders) or holder.
    """
    # Checked before anything is drawn: a refused call must not consume randomness.
    if not secret or len(secret) % BLOCK_BYTES:
        raise ValueError(f"secret: {len(secret)} bytes, not a positive multiple of {BLOCK_BYTES}")
    if not 1 <= threshold <= len(holders):
        raise ValueError(f"threshold: {threshold}, not between 1 and the number of holders, {len(holders)}")
    _check_holders(holders)
    coefficients = randomness.bytes((threshold - 1) * len(secret))
    return _core.shamir_split(secret, threshold, holders, coefficients)


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Recover a secret from unauthenticated Shamir shares by holder; ValueError for fewer than `threshold`.

    Uses the shares of the `threshold` lowest holders. Raises ValueError for fewer shares than that, for
    holders outside 1 to 65535 and for shares that differ in length or are no multiple of 16 bytes. A
    share with wrong content is not noticed.
    """
    if threshold < 1:
        raise ValueError(f"threshold: {threshold} is not positive")
    if len(shares) < threshold:
        raise ValueError(f"shares: {len(shares)} of the {threshold} needed")
    _check_holders(list(shares))
    chosen = sorted(shares)[:threshold]
    return _core.shamir_combine(chosen, [shares[holder] for holder in chosen])


def _check_holders(holders: Sequence[int]) -> None:
    """Raise ValueError unless the numbers of share holders are distinct and from 1 to 65535."""
    if len(set(holders)) != len(holders):
        raise ValueError("holders: a number occurs twice")
    for holder in holders:
        if not 1 <= holder <= MAX_HOLDER:
            raise ValueError(f"holders: {holder}, not between 1 and {MAX_HOLDER}")
