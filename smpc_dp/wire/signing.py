"""Signing and checking of envelopes, for all messages of all protocols."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import msgspec

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.decoding import Buffer, decode_msgpack
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.identity.keys import verify
from smpc_dp.seen import scope_of_group
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.large_fields import bin_header, decode_large, encode_large

T = TypeVar("T")

_ENCODER = msgspec.msgpack.Encoder()


class Signer(Protocol):
    """Interface of what signs messages: a name, and a method that makes Ed25519 signatures."""

    @property
    def name(self) -> str:
        """Name of the member that signs."""

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte Ed25519 signature of a message."""


class Verifier(Protocol):
    """Interface of a signature check, which raises VerificationError for a false signature."""

    def __call__(self, public_key: bytes, message: bytes, signature: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """Facts that all roles of a run agree on before it starts, with which messages are signed and checked.

    `operation` is the operation as a party asks for it; an aggregator takes it from the parties. Party i of
    `names` has index i + 1; `keys` holds the Ed25519 public keys of all members, aggregator included. `memo`
    caches values that depend on public messages alone, for simulations in which one process would compute the
    same for thousands of roles; None elsewhere. `grouped`: the run is of a group of the session's parties.
    """

    protocol: str
    version: int
    session_digest: bytes
    request: int
    names: Sequence[str]
    aggregator: str
    keys: Mapping[str, bytes]
    operation: str = ""
    verify: Verifier = verify
    memo: MutableMapping[tuple[Hashable, ...], Any] | None = None
    grouped: bool = False
    bound: tuple[bytes, bytes] = field(init=False, repr=False)
    # By name; made when a number is asked for first.
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        # The first parts of every hash of the run.
        object.__setattr__(self, "bound", (self.protocol.encode(), encode_uint(self.version)))

    @property
    def scope(self) -> bytes:
        """Digest of the session, or of the group, in whose session log the run is entered."""
        if not self.grouped:
            return self.session_digest
        return self.remember(("scope",), lambda: scope_of_group(self.session_digest, self.names))

    def remember(self, operation: tuple[Hashable, ...], compute: Callable[[], T]) -> T:
        """Return `compute()`, cached under this key in simulations; elsewhere it is computed at each call.

        `operation` must determine the value and hold nothing secret.
        """
        if self.memo is None:
            return compute()
        if operation not in self.memo:
            self.memo[operation] = compute()
        known: T = self.memo[operation]
        return known

    def _number_names(self) -> dict[str, int]:
        """Return the number of each party by name, from 1."""
        # At once: other threads see none or all.
        self._numbers.update({name: index for index, name in enumerate(self.names, 1)})
        return self._numbers

    def number(self, name: str) -> int:
        """Return the number (from 1) of the party `name`; raise ValueError for an unknown name."""
        numbers = self._numbers or self.remember(("numbers",), self._number_names)
        if name not in numbers:
            raise ValueError(f"{name} is no party")
        return numbers[name]

    def statement(self, run_id: bytes, step: str, sender: str, receiver: str, body_hash: bytes) -> bytes:
        """Return the 32-byte digest that `sender` signs for a message: run, step, names and body."""
        return digest(
            Label.ENVELOPE,
            *self.bound,
            run_id,
            step.encode(),
            sender.encode(),
            receiver.encode(),
            body_hash,
        )

    def write(
        self, signer: Signer, run_id: bytes, step: str, receivers: Iterable[str], message: msgspec.Struct
    ) -> list[Envelope]:
        """Sign a message for each receiver and return the envelopes, which share the encoded body."""
        body = encode(message)
        body_hash = hashlib.sha256(body).digest()
        return [
            Envelope(
                run_id,
                step,
                signer.name,
                receiver,
                body,
                signer.sign(self.statement(run_id, step, signer.name, receiver, body_hash)),
            )
            for receiver in receivers
        ]

    def check(self, envelope: Envelope) -> bytes:
        """Verify a message's signature, raising PeerFault if false; return its body's SHA-256.

        Raises:
            PeerFault: the signature is not that of the sender; names the sender.
        """
        key = self.keys.get(envelope.sender)
        if key is None:
            raise PeerFault(envelope.sender, "is not in the roster", Check.NOT_IN_ROSTER)
        body_hash = hashlib.sha256(envelope.body).digest()
        statement = self.statement(
            envelope.run_id, envelope.step, envelope.sender, envelope.receiver, body_hash
        )
        try:
            self.verify(key, statement, envelope.signature)
        except VerificationError:
            raise PeerFault(
                envelope.sender,
                f"message of step '{envelope.step}' has an invalid signature",
                Check.BAD_SIGNATURE,
            ) from None
        return body_hash

    def check_detached(
        self, run_id: bytes, step: str, sender: str, receiver: str, body: bytes, signature: bytes
    ) -> None:
        """Verify the signature of a message that a third member forwards; PeerFault if false."""
        self.remember(
            ("signed", run_id, step, sender, receiver, body, signature),
            lambda: self.check(Envelope(run_id, step, sender, receiver, body, signature)),
        )


def group_operation(operation: str, names: Sequence[str]) -> str:
    """Return an operation's text with a digest of a group's names, for runs of a part of the parties."""
    return f"{operation} of group {digest(Label.GROUP, *(name.encode() for name in names)).hex()}"


def encode(message: msgspec.Struct) -> bytes:
    """Return a message body's canonical MessagePack encoding.

    Of one whose large field is in a `MessageBuffer` it is a read-only view of the buffer.
    """
    # Messages take any buffer.
    return cast("bytes", encode_large(message)) or _ENCODER.encode(message)


def decode(body: Buffer, kind: type[T], sender: str) -> T:
    """Decode a message body to type `kind`; raise PeerFault against `sender` if it is not canonical.

    Where `body` is a read-only view of a large message, a `Large` field becomes one too.
    """
    if isinstance(body, memoryview) and (large := decode_large(body, kind)) is not None:
        return large
    try:
        message = decode_msgpack(body, kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise PeerFault(sender, f"malformed {kind.__name__}: {error}", Check.MALFORMED) from None
    # A view is compared item by item, ten times slower.
    if _ENCODER.encode(message) != bytes(body):
        raise PeerFault(sender, f"malformed {kind.__name__}: not the canonical encoding", Check.NOT_CANONICAL)
    return message


def encode_envelope(envelope: Envelope) -> bytes:
    """Encode a signed message, with its sender, receiver and step, as bytes to be sent."""
    return _ENCODER.encode(envelope)


def envelope_buffers(envelope: Envelope) -> tuple[bytes, Buffer, bytes]:
    """Encode a signed message as three buffers, the second being its body without a copy."""
    # The encoding of an empty body is two bytes: its format and its length.
    before = _ENCODER.encode((envelope.run_id, envelope.step, envelope.sender, envelope.receiver, b"", b""))
    return before[:-4] + bin_header(len(envelope.body)), envelope.body, _ENCODER.encode(envelope.signature)


def decode_envelope(data: Buffer, sender: str) -> Envelope:
    """Decode a message received from `sender`, its signature unchecked; PeerFault for another sender.

    Raises PeerFault if it is malformed or in another's name.
    """
    envelope = decode(data, Envelope, sender)
    if envelope.sender != sender:
        raise PeerFault(sender, f"sent a message in the name of {envelope.sender!r}", Check.WRONG_SENDER)
    return envelope
