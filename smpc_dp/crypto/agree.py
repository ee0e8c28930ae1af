"""Key agreement: X25519 (libsodium) followed by HKDF-SHA256 (RFC 5869)."""

from __future__ import annotations

import nacl.bindings
from nacl.exceptions import CryptoError

from smpc_dp import _core
from smpc_dp.errors import Check, VerificationError

_ANY_SECRET = bytes(range(32))


def _shared(secret: bytes, key: bytes) -> bytes:
    """Return the shared X25519 point; raise VerificationError for a public key of small order."""
    try:
        return nacl.bindings.crypto_scalarmult(secret, key)
    except (CryptoError, RuntimeError):
        raise VerificationError("public key is a point of small order", Check.WEAK_KEY) from None


def public_key(secret: bytes) -> bytes:
    """Return the X25519 public key of a 32-byte secret."""
    return nacl.bindings.crypto_scalarmult_base(secret)


def check_public_key(key: bytes) -> None:
    """Raise VerificationError if an X25519 public key has small order; else do nothing.

    Every agreement with such a key gives the same value.
    """
    _shared(_ANY_SECRET, key)


def agree(secret: bytes, peer_public: bytes, *, salt: bytes, info: bytes) -> bytes:
    """Return the 32-byte key that both ends derive from their own X25519 secret and the other's public key.

    Raises:
        VerificationError: the peer's key is a point of small order (RFC 7748, section 6.1).
    """
    return _core.hkdf_sha256(_shared(secret, peer_public), salt, info)
