"""The messages of a pairwise statistic between the parties and the aggregator.

HELLO, the COINS and DONE are sent to the aggregator, START, AGAIN, MATCHED and RESULT by it. PAIR carries a
message of the two-party engine between a party and the aggregator's role in that evaluation, in either
direction. RELAY carries a frame from a party to the aggregator, and on to its partner. TERMS and OUTCOME are
entries of the log alone.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.wire.envelope import Body

PROTOCOL, VERSION = "pairwise-statistic", 3
OPERATION = f"{PROTOCOL} "
"""Beginning of the operation in a header; the digest of the statistic follows, in hex."""
ATTEMPTS = 3
"""Draws of matchings in one request, at most: another one follows when somebody withholds a coin."""

HELLO = "statistic-hello"
START = "statistic-start"
AGAINS = tuple(f"again-{attempt}" for attempt in range(2, ATTEMPTS + 1))
COINS = ("coin", *(f"coin-{attempt}" for attempt in range(2, ATTEMPTS + 1)))
MATCHED = "matched"
PAIR = "pair"
RELAY = "relay"
RELAY_END = "relay-end"
CONVICTION = "conviction"
DONE = "pairs-done"
RESULT = "estimate"
TERMS = "statistic-terms"
OUTCOME = "outcome"

COMMITMENT_BYTES = 32 * ATTEMPTS
"""Of one party: a commitment to its coin of each attempt."""
MAX_PAIR_BYTES = 1 << 15
"""Bytes of a message of the engine, at most: outputs have few bits."""
MAX_PAIR_MESSAGES = 16
"""Of one evaluation, each way, at most; fewer than half of them are due."""
MAX_FRAME_BYTES = 1 << 15
"""Bytes of a frame that is relayed, at most."""
WINDOW = 8
"""Frames of one direction of a pair that are under way, at most: sent, and not yet taken."""
MAX_OPERATION = 3000
MAX_TERMS = 1 << 20

Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]


class Hello(Body, frozen=True):
    """First message of a party: commitments to its coins, and the statistic that it asks for.

    `public_label` is 0 or 1; -1 for a kernel without public labels. `known`: the number of known lines of the
    session log.
    """

    session_digest: Bytes32
    request: int
    commitments: Annotated[bytes, Meta(min_length=COMMITMENT_BYTES, max_length=COMMITMENT_BYTES)]
    plan: Bytes32
    operation: Annotated[str, Meta(max_length=MAX_OPERATION)]
    public_label: Annotated[int, Meta(ge=-1, le=1)]
    known: Count


class Start(Body, frozen=True):
    """Message of the aggregator to parties: who is present, with all commitments and public labels."""

    present: bytes
    commitments: bytes
    public_labels: bytes


class Again(Body, frozen=True):
    """Message of the aggregator: a coin is missing, so the remaining parties open their next coins."""

    present: bytes


class Coin(Body, frozen=True):
    """Message of a party to the aggregator that opens the coin to which it has committed."""

    coin: Bytes32


class Matched(Body, frozen=True):
    """Message of the aggregator to parties: all coins, from which each party derives who forms pairs."""

    coins: bytes


class Pair(Body, frozen=True):
    """Message of one pair's evaluation between a party and the aggregator: matching, number, content."""

    matching: Count
    number: Count
    content: Annotated[bytes, Meta(max_length=MAX_PAIR_BYTES)]


class Relay(Body, frozen=True):
    """Message between the two parties of a pair, passed on by the aggregator: one encrypted frame.

    `number` counts the frames of this direction from 0, `taken` those of the other direction that its sender
    has used. With an empty `content` it is no frame, and reports `taken` alone.
    """

    matching: Count
    number: Count
    taken: Count
    content: Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)]


class RelayEnd(Body, frozen=True):
    """Message of a party to its partner, through the aggregator: no more frames of their pair follow."""

    matching: Count


class Conviction(Body, frozen=True):
    """Message that shows a certificate against a cheating garbler to the aggregator, then to partners."""

    matching: Count
    certificate: Annotated[bytes, Meta(max_length=MAX_PAIR_BYTES)]


class Done(Body, frozen=True):
    """Message of a party to the aggregator: all its pairs have ended, and which of them failed."""

    failed: list[int]


class Result(Body, frozen=True):
    """Message of the aggregator to parties: the estimate, its error and interval, how many pairs failed.

    `log` is the head of the log.
    """

    value: float
    error: float | None
    low: float | None
    high: float | None
    level: float
    noise_error: float
    pairs: int
    failed: int
    log: Bytes32


class Terms(Body, frozen=True):
    """Log entry of the aggregator: the statistic's terms as JSON, and the digest of its circuit."""

    terms: Annotated[bytes, Meta(max_length=MAX_TERMS)]
    circuit: Bytes32


class Outcome(Body, frozen=True):
    """Log entry of the aggregator: the estimate, and which pairs are missing from it.

    `before` is the head of the log before this entry: the aggregator signs all entries, their set and order.
    """

    value: float
    error: float | None
    low: float | None
    high: float | None
    level: float
    noise_error: float
    pairs: int
    failed: list[tuple[int, int]]
    before: Bytes32
