"""Further messages of a covert evaluation; the others are those of `garbled.messages`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from smpc_dp.capabilities.pairs.garbled.messages import Bytes32
from smpc_dp.capabilities.pairs.garbled.params import MAX_COPIES
from smpc_dp.wire.envelope import Body

COMMIT = "commit"
SIGN = "sign"
OPEN = "open"

Copy = Annotated[int, Meta(ge=1, le=MAX_COPIES)]


class Commit(Body, frozen=True):
    """Message of the evaluator to the garbler: commitments to its seeds, of the seed transfer and copies."""

    commitments: list[Bytes32]


class Statement(Body, frozen=True):
    """Signed message of the garbler: hashes of all messages, before it knows which copies are checked.

    `streams` holds the hashes of the messages of the seed transfer, then of each copy.
    """

    plan: Bytes32
    start: Bytes32
    commitments: list[Bytes32]
    streams: list[list[Bytes32]]


class Open(Body, frozen=True):
    """Message of the evaluator after its checks: the copy that stays closed, and the other copies' seeds."""

    closed: Copy
    seeds: list[Bytes32]
    witness: Bytes32


class OpenedDecode(Body, frozen=True):
    """Message of the garbler to the evaluator that opens the committed bits that decode the outputs."""

    opening: Bytes32
    colours: bytes


class ForwardedLabels(Body, frozen=True):
    """Message of the evaluator to the aggregator: sealed output labels, the garbler's signed statement."""

    statement: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    closed: Copy
    transcript: Bytes32
    sealed: bytes


class OpenedHashes(Body, frozen=True):
    """Message of the garbler to the aggregator: sealed decoding, and the evaluator's signed opening."""

    opened: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    transcript: Bytes32
    sealed: bytes
