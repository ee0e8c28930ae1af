"""Encryption of saved states, and the data that they are bound to.

Specification: protocols/saved-states/README.md.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256

import msgspec

from smpc_dp.crypto import seal
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest, encode_uint

VERSION = 2
KEY_BYTES = 32

# Flags of a position: its messages have an `attest-*` or the input's release; it is over; a counter counts
# the attempt; nothing of it is needed any more; a message that depends on the input may have been sent.
ATTESTED, OVER, COUNTED, TAKEN, RELEASED = 1, 2, 4, 8, 16


class Position(msgspec.Struct, frozen=True, dict=True):
    """Place of a saved state (session, request, role, attempt, number) to which its encryption is bound.

    Attributes:
        session: the session digest, of a group's run that of its scope.
        role: the name of the member; attempt: 16 random bytes.
        counter: from 0; run: the run id, which may still be empty.
        step: the expected step; predecessor: the digest of the saved state before.
        received: the digest of the event before it; terms: of the values that all states of the attempt
            depend on.
    """

    session: bytes
    request: int
    role: str
    attempt: bytes
    counter: int
    run: bytes
    step: str
    predecessor: bytes
    received: bytes
    terms: bytes
    flags: int

    @cached_property
    def bound(self) -> bytes:
        """The 32-byte digest of a saved state's position, as associated data of that state's encryption."""
        return digest(
            Label.SAVED_STATE,
            encode_uint(VERSION),
            self.session,
            encode_uint(self.request),
            self.role.encode(),
            self.attempt,
            encode_uint(self.counter),
            self.run,
            self.step.encode(),
            self.predecessor,
            self.received,
            self.terms,
            encode_uint(self.flags),
        )


def seal_state(key: bytes, position: Position, record: bytes, randomness: Randomness) -> bytes:
    """Return an encoded state encrypted with a fresh 32-byte key, bound to its position."""
    return seal.seal(key, record, position.bound, randomness)


def open_state(key: bytes, position: Position, sealed: bytes) -> bytes:
    """Return a decrypted state; raise VerificationError if the key, the position or any bit differs."""
    return seal.unseal(key, sealed, position.bound)


def state_digest(position: Position, sealed: bytes) -> bytes:
    """Return the hash of a saved state, which the next state and the rollback counter contain."""
    return digest(Label.SAVED_DIGEST, position.bound, sha256(sealed).digest())
