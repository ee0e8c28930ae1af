"""A pair's encrypted channel through the aggregator: fresh signed keys, then encrypted frames.

The first frame of each direction holds a fresh X25519 key, signed for this pair of this run alone. Every
later one is encrypted under a key of its direction, bound to its number: the aggregator can hold frames back,
but cannot read, change, repeat, exchange or invent one. A later leak of an identity key reveals no frame.

A message is one frame or several; the first byte of a frame's content tells whether it is the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from smpc_dp.capabilities.pairs.ustatistic.messages import MAX_FRAME_BYTES
from smpc_dp.crypto.agree import agree, public_key
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.seal import OVERHEAD_BYTES, seal, unseal
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import Check, LocalError, PeerFault, VerificationError
from smpc_dp.wire.envelope import Body
from smpc_dp.wire.signing import Context, Signer, decode, decode_envelope, encode_envelope

RELAY_KEY = "relay-key"
CHUNK_BYTES = MAX_FRAME_BYTES - OVERHEAD_BYTES - 1
"""Bytes of a message in one frame, at most."""
_MORE, _LAST = b"\0", b"\1"


class RelayKey(Body, frozen=True):
    """Message of a party to its partner through the aggregator: a fresh X25519 key for encryption."""

    key: Annotated[bytes, Meta(min_length=32, max_length=32)]


class SealedConnection:
    """One end of an encrypted channel between the two parties of a pair, relayed by the aggregator."""

    def __init__(self, context: Context, identity: Signer, randomness: Randomness) -> None:
        self._context = context
        self._identity = identity
        self._randomness = randomness
        self._peer = next(name for name in context.names if name != identity.name)
        self._secret = randomness.bytes(32)
        self._public = public_key(self._secret)
        self._keys: dict[str, bytes] = {}
        self._numbers = {name: 1 for name in context.names}

    def __repr__(self) -> str:
        return f"SealedLine({self._identity.name!r} with {self._peer!r})"

    def first(self) -> bytes:
        """Return the first frame to send: this end's public key, signed."""
        message = RelayKey(self._public)
        (envelope,) = self._context.write(
            self._identity, self._context.session_digest, RELAY_KEY, (self._peer,), message
        )
        return encode_envelope(envelope)

    def meet(self, frame: bytes) -> None:
        """Take the partner's signed key from its first frame, derive both keys; VerificationError if bad."""
        try:
            envelope = decode_envelope(frame, self._peer)
            self._context.check(envelope)
            theirs = decode(envelope.body, RelayKey, self._peer).key
        except PeerFault as error:
            raise self._fault(0, str(error), error.check) from None
        expected = (self._context.session_digest, RELAY_KEY, self._identity.name)
        if (envelope.run_id, envelope.step, envelope.receiver) != expected:
            raise self._fault(0, "it is of another pair", Check.OTHER_RUN)
        keys = {self._identity.name: self._public, self._peer: theirs}
        both = [keys[name] for name in self._context.names]
        for sender, receiver in ((self._identity.name, self._peer), (self._peer, self._identity.name)):
            info = self._bound(Label.RELAY_KEY, *both, sender.encode(), receiver.encode())
            try:
                self._keys[sender] = agree(self._secret, theirs, salt=self._context.session_digest, info=info)
            except VerificationError as error:
                raise self._fault(0, str(error), error.check) from None
        self._secret = b""

    def seal(self, message: bytes) -> Iterator[bytes]:
        """Yield the encrypted frames of a message, at least one; each must be sent before the next."""
        indices = range(0, max(len(message), 1), CHUNK_BYTES)
        for index in indices:
            head = _LAST if index == indices[-1] else _MORE
            context = self._frame_context(self._identity.name, self._peer)
            chunk = head + message[index : index + CHUNK_BYTES]
            yield seal(self._key(self._identity.name), chunk, context, self._randomness)

    def open(self, frame: bytes) -> tuple[bytes, bool]:
        """Decrypt the next frame; return (content, whether it ends its message); or VerificationError.

        Raises VerificationError for any but the partner's next frame.
        """
        number = self._numbers[self._peer]
        try:
            content = unseal(
                self._key(self._peer), frame, self._frame_context(self._peer, self._identity.name)
            )
        except VerificationError as error:
            raise self._fault(number, str(error), error.check) from None
        if content[:1] not in (_MORE, _LAST):
            raise self._fault(number, "it does not say whether more follows", Check.MALFORMED)
        return content[1:], content[:1] == _LAST

    def _key(self, sender: str) -> bytes:
        """Return the key that encrypts frames of `sender`; LocalError before the partner's is known."""
        if sender not in self._keys:
            raise LocalError(f"{self._identity.name}: no key of '{self._peer}' yet")
        return self._keys[sender]

    def _frame_context(self, sender: str, receiver: str) -> bytes:
        """Return the associated data of a direction's next encrypted frame, and count the frame."""
        number = self._numbers[sender]
        self._numbers[sender] = number + 1
        return self._bound(Label.RELAY_FRAME, sender.encode(), receiver.encode(), encode_uint(number))

    def _bound(self, label: Label, *parts: bytes) -> bytes:
        """Return the hash of some parts, bound to this pair and to a label of its purpose."""
        return digest(label, *self._context.bound, self._context.session_digest, *parts)

    def _fault(self, number: int, reason: str, check: Check) -> VerificationError:
        """Return the error of a bad frame, which blames partner or aggregator: nobody can tell which."""
        who = f"'{self._peer}' through '{self._context.aggregator}'"
        return VerificationError(f"frame {number} of {who}: {reason}; one of the two sent another", check)
