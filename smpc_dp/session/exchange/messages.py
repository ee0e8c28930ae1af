"""Messages of an exchange; specification: protocols/exchange/README.md."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.wire.envelope import Body

HELLO = "exchange-hello"
START = "exchange-start"
SEND = "exchange-send"
DELIVER = "exchange-deliver"

PARTY_STEPS = (HELLO, SEND)

Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Bytes64 = Annotated[bytes, Meta(min_length=64, max_length=64)]
Number = Annotated[int, Meta(ge=1, le=65_535)]


class Hello(Body, frozen=True):
    """Party: a request of a session, a fresh nonce, and a fresh X25519 key."""

    session_digest: Bytes32
    request: int
    operation: Annotated[str, Meta(max_length=1000)]
    nonce: Bytes32
    key: Bytes32


class Start(Body, frozen=True):
    """Aggregator: present parties, their nonces in order, and signed hellos of the receiver's peers."""

    present: bytes
    nonces: bytes
    hellos: list[tuple[Number, bytes, Bytes64]]


class Send(Body, frozen=True):
    """Party: its vector, sealed for each receiver that is present, in ascending order."""

    boxes: list[tuple[Number, bytes]]


class Deliver(Body, frozen=True):
    """Aggregator: the parties that sent, and their encrypted vectors for this party, in ascending order."""

    senders: bytes
    boxes: list[tuple[Number, bytes]]
