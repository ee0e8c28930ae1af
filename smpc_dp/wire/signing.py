"""Signing and opening envelopes: every message of every protocol passes through here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.decoding import decode_msgpack
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.identity.keys import verify
from smpc_dp.seen import scope_of_group
from smpc_dp.wire.envelope import Envelope

T = TypeVar("T")

_ENCODER = msgspec.msgpack.Encoder()


class Signer(Protocol):
    """What an envelope needs of an identity."""

    @property
    def name(self) -> str: ...

    def sign(self, message: bytes) -> bytes: ...


class Verifier(Protocol):
    """Raises `VerificationError` unless `signature` is `public_key`'s over `message`."""

    def __call__(self, public_key: bytes, message: bytes, signature: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """The values that all roles of one run agree on before it starts.

    `operation` is a party's word for what is computed; an aggregator takes it from the parties. Party i of
    `names` has index i + 1; `keys` holds the Ed25519 public key of everyone, aggregator included. `memo`
    keeps values that follow from public messages alone, for simulations in which one process would compute
    the same for thousands of roles; None everywhere else. `grouped`: the run is of a group of the session's
    parties.
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

    def __post_init__(self) -> None:
        # What every hash of the run starts with.
        object.__setattr__(self, "bound", (self.protocol.encode(), encode_uint(self.version)))

    @property
    def scope(self) -> bytes:
        """Which session log the run is in: the session's, or its group's."""
        if not self.grouped:
            return self.session_digest
        return self.remember(("scope",), lambda: scope_of_group(self.session_digest, self.names))

    def remember(self, operation: tuple[Hashable, ...], answer: Callable[[], T]) -> T:
        """Return `answer()`, or the memo's; `operation` must determine the answer and hold nothing secret."""
        if self.memo is None:
            return answer()
        if operation not in self.memo:
            self.memo[operation] = answer()
        known: T = self.memo[operation]
        return known

    def number(self, name: str) -> int:
        """Return i for party i; raise ValueError if there is none of that name."""
        if self.memo is None:
            return self.names.index(name) + 1
        numbers = self.remember(
            ("numbers",), lambda: {known: index for index, known in enumerate(self.names, 1)}
        )
        if name not in numbers:
            raise ValueError(f"{name} is no party")
        return numbers[name]

    def statement(self, run_id: bytes, step: str, sender: str, receiver: str, body_hash: bytes) -> bytes:
        """Return the 32 bytes that `sender` signs for one message."""
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
        """Return one signed envelope for each receiver; they share the encoded body."""
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
        """Return the SHA-256 of the body of an envelope that is signed by the sender that it names.

        Raises:
            PeerFault: it is not; names the sender.
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
                f"message of step '{printable(envelope.step)}' has an invalid signature",
                Check.BAD_SIGNATURE,
            ) from None
        return body_hash

    def check_detached(
        self, run_id: bytes, step: str, sender: str, receiver: str, body: bytes, signature: bytes
    ) -> None:
        """Like `check`, for a message that another party forwards."""
        self.remember(
            ("signed", run_id, step, sender, receiver, body, signature),
            lambda: self.check(Envelope(run_id, step, sender, receiver, body, signature)),
        )


def group_operation(operation: str, names: Sequence[str]) -> str:
    """Return what a group of a session's parties asks: an operation, and who they are."""
    return f"{operation} of group {digest(Label.GROUP, *(name.encode() for name in names)).hex()}"


def printable(text: str) -> str:
    """Return text of a peer, cut to 500 characters, without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text[:500])


def encode(message: msgspec.Struct) -> bytes:
    """Return the canonical encoding (MessagePack) of a message."""
    return _ENCODER.encode(message)


def decode(body: bytes, kind: type[T], sender: str) -> T:
    """Decode strictly; raise PeerFault naming `sender` on anything but the canonical encoding of a `kind`."""
    try:
        message = decode_msgpack(body, kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise PeerFault(sender, f"malformed {kind.__name__}: {error}", Check.MALFORMED) from None
    if _ENCODER.encode(message) != body:
        raise PeerFault(sender, f"malformed {kind.__name__}: not the canonical encoding", Check.NOT_CANONICAL)
    return message


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the bytes that travel."""
    return _ENCODER.encode(envelope)


def decode_envelope(data: bytes, sender: str) -> Envelope:
    """Decode what came over the channel to `sender`; raise PeerFault if malformed or in another's name."""
    envelope = decode(data, Envelope, sender)
    if envelope.sender != sender:
        raise PeerFault(sender, f"sent a message in the name of {envelope.sender!r}", Check.WRONG_SENDER)
    return envelope
