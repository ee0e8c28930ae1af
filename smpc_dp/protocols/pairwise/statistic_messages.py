"""The messages of a pairwise statistic between the parties and the aggregator.

HELLO, COIN and DONE go to the aggregator, START, MATCHED and RESULT come from it. PAIR carries a message of
the two-party engine between a party and the aggregator's role in that evaluation, either way.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

HELLO = "statistic-hello"
START = "statistic-start"
COIN = "coin"
MATCHED = "matched"
PAIR = "pair"
DONE = "pairs-done"
RESULT = "estimate"

MAX_PAIR_BYTES = 1 << 15
"""Bytes of a message of the engine, at most: outputs have few bits."""
MAX_PAIR_MESSAGES = 16
"""Of one evaluation, each way, at most; fewer than half of them are due."""
MAX_QUESTION = 3000

Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]


class _Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The body of an envelope."""


class Hello(_Body, frozen=True):
    """A commitment to a coin, the digest of the compiled statistic, and what is asked for, as JSON.

    `mark` is the public label, 0 or 1; -1 for a kernel without public labels.
    """

    session_digest: Bytes32
    request: int
    commitment: Bytes32
    plan: Bytes32
    question: Annotated[str, Meta(max_length=MAX_QUESTION)]
    mark: Annotated[int, Meta(ge=-1, le=1)]


class Start(_Body, frozen=True):
    """Who is present (a packed set), all their commitments, and their marks plus 1, one byte each."""

    present: bytes
    commitments: bytes
    marks: bytes


class Coin(_Body, frozen=True):
    """What the commitment was to."""

    coin: Bytes32


class Matched(_Body, frozen=True):
    """The coins of all who are present, in roster order: what the matchings follow from."""

    coins: bytes


class Pair(_Body, frozen=True):
    """A message of the engine: the matching it belongs to, and its number among those of its sender in it."""

    matching: Annotated[int, Meta(ge=0)]
    number: Annotated[int, Meta(ge=0)]
    content: Annotated[bytes, Meta(max_length=MAX_PAIR_BYTES)]


class Done(_Body, frozen=True):
    """The party has been through its pairs; those of `failed` matchings have failed for it."""

    failed: list[int]


class Result(_Body, frozen=True):
    """The estimate, as of `estimate.Estimate`; `error`, `low`, `high` are None below 3 pairs."""

    value: float
    error: float | None
    low: float | None
    high: float | None
    level: float
    noise_error: float
    pairs: int
    failed: int
