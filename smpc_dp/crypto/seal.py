"""Authenticated encryption: XChaCha20-Poly1305 (libsodium, through PyNaCl) with a random 24-byte nonce."""

from __future__ import annotations

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.errors import Check, VerificationError

NONCE_BYTES = 24
OVERHEAD_BYTES = NONCE_BYTES + 16


def seal(key: bytes, message: bytes, context: bytes, randomness: Randomness) -> bytes:
    """Encrypt `message` under a 32-byte key, bound to `context`; the ciphertext is OVERHEAD_BYTES longer."""
    nonce = randomness.bytes(NONCE_BYTES)
    return nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(message, context, nonce, key)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Decrypt `sealed`; raise VerificationError if the key, the context or any bit differs."""
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed[NONCE_BYTES:], context, sealed[:NONCE_BYTES], key
        )
    except (CryptoError, ValueError):
        raise VerificationError("sealed message does not open", Check.BAD_SEAL) from None
