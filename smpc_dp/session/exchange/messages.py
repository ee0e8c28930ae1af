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
    """First message of a party to the aggregator: which request it asks for, a nonce, and a key."""

    session_digest: Bytes32
    request: int
    operation: Annotated[str, Meta(max_length=1000)]
    nonce: Bytes32
    key: Bytes32


class Start(Body, frozen=True):
    """Message of the aggregator to a party: who is present, and its peers' signed keys."""

    present: bytes
    nonces: bytes
    hellos: list[tuple[Number, bytes, Bytes64]]


class Send(Body, frozen=True):
    """Message of a party to the aggregator: its vector, encrypted separately for each receiver."""

    boxes: list[tuple[Number, bytes]]


class Deliver(Body, frozen=True):
    """Message of the aggregator to a party: the encrypted vectors that others sent to it."""

    senders: bytes
    boxes: list[tuple[Number, bytes]]
