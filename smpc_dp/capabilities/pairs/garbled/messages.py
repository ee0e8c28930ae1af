"""The messages of a two-party evaluation, and their encoding.

A message is a kind (one byte) and a content. CONTROL holds a signed envelope, BULK a piece of a long value:
its side (0 garbler, 1 evaluator), a sequence number (counted for each sender from 0), its length, and so many
bytes. Pieces are not signed one by one: both sides hash those of each in order, headers included, and sign
the hash before an output is decoded.
"""

from __future__ import annotations

import struct
from typing import Annotated

from msgspec import Meta

from smpc_dp.wire.envelope import Body

PAIRWISE, VERSION = "pairwise", 1
"""Name and version of the protocol."""
PAIR_COPIES = 4
"""Copies of each pair's evaluation in a statistic that says nothing else."""
CONTROL, BULK = 1, 2
PIECE_HEADER = struct.Struct(">BBQQ")
MAX_CONTROL = 1 << 26
"""Bytes of an envelope, at most."""
TABLE_PIECE = 1 << 19
"""Bytes of tables or labels in one piece, at most; at least one gate of the largest tile (128 KiB)."""
MAX_PIECE = 1 << 24
"""Bytes of a piece of an oblivious transfer, at most."""

HELLO = "hello"
START = "start"
CHECK = "check"
CONFIRM = "confirm"
DECODE = "decode"
HASHES = "hashes"
LABELS = "labels"
RECEIPT = "receipt"

NONCE_BYTES = 32
LABEL_BYTES = 16

Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]


class Hello(Body, frozen=True):
    """First message of each participant to the others: a fresh nonce, and digests of circuit and plan.

    The aggregator's holds its fresh X25519 key too, and the others theirs when they talk to it; else empty.
    Garbler and evaluator say which setup of oblivious transfers they hold from an earlier evaluation (its
    context; empty if none) and the index of its next transfer.
    """

    nonce: Bytes32
    circuit: Bytes32
    plan: Bytes32
    seal_key: Annotated[bytes, Meta(max_length=32)]
    setup: Annotated[bytes, Meta(max_length=32)]
    index: Annotated[int, Meta(ge=0)]


class Start(Body, frozen=True):
    """Message of the garbler to all after the hellos: random bytes to which the run's hashes are bound."""

    start: Bytes32


class Check(Body, frozen=True):
    """Message of the garbler after a block's tables: how many pieces it sent, and the hash of both sides'."""

    block: int
    pieces: int
    transcript: Bytes32


class Confirm(Body, frozen=True):
    """Message of the evaluator that answers the garbler's check: its own hash of all pieces.

    If the garbler learns the output: the colours of the active labels (bits, packed, least significant first)
    and the digest of those labels, which only who has them knows.
    """

    block: int
    transcript: Bytes32
    colours: bytes = b""
    proof: bytes = b""


class Decode(Body, frozen=True):
    """Message of the garbler to the evaluator that lets it decode outputs: colours of labels for 0."""

    block: int
    colours: bytes


class Sealed(Body, frozen=True):
    """Message to the aggregator: a side's encrypted half of a block's output, and the signed hash."""

    block: int
    transcript: Bytes32
    sealed: bytes


class Receipt(Body, frozen=True):
    """Message of the aggregator to both sides: all output labels were valid, so the result exists."""

    transcript: Bytes32
