"""The envelope: one signed message of one step, from one member to another."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

# A byte string that may be large. Where it was received in a large message it is a read-only memoryview of
# that: `large_fields` sets it. Its type does not say so: msgspec decodes no union of the two.
Large = Annotated[bytes, "large"]

Name = Annotated[str, Meta(max_length=63)]

# Not a name of a member: a message signed for it is signed for all.
EVERYONE = "*"


class Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base class of message bodies, which are encoded as an array of their fields in order."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Signed message of one step of a run, from one member to another, with an encoded body.

    `signature` is `sender`'s Ed25519 signature over the labelled digest of protocol, version, run id, step,
    sender, receiver and the SHA-256 of `body`. `body` may be shared between envelopes to many receivers. All
    other fields are short: who bounds the body bounds what it holds.
    """

    run_id: Annotated[bytes, Meta(max_length=32)]
    step: Annotated[str, Meta(max_length=40)]
    sender: Name
    receiver: Name
    body: Large
    signature: Annotated[bytes, Meta(max_length=64)]

    def __repr__(self) -> str:
        return f"Envelope({self.step!r}, {self.sender!r} -> {self.receiver!r}, {len(self.body)} bytes)"
