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
    """Evaluator to garbler: commitments to its seeds of all streams."""

    commitments: list[Bytes32]


class Statement(Body, frozen=True):
    """Garbler to evaluator: what it has committed to, before it knows which copies are checked.

    `streams` holds the hashes of the messages of the seed transfer, then of each copy.
    """

    plan: Bytes32
    start: Bytes32
    commitments: list[Bytes32]
    streams: list[list[Bytes32]]


class Open(Body, frozen=True):
    """Evaluator to garbler, after all checks: the closed copy with its witness, and the others' seeds."""

    closed: Copy
    seeds: list[Bytes32]
    witness: Bytes32


class OpenedDecode(Body, frozen=True):
    """Garbler to evaluator: the opening of the decoding, and the colours of the labels for 0, packed."""

    opening: Bytes32
    colours: bytes


class ForwardedLabels(Body, frozen=True):
    """Evaluator to aggregator: the garbler's signed statement, and the sealed labels of the closed copy."""

    statement: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    closed: Copy
    transcript: Bytes32
    sealed: bytes


class OpenedHashes(Body, frozen=True):
    """Garbler to aggregator: the evaluator's signed `Open`, and the sealed decoding with its opening."""

    opened: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    transcript: Bytes32
    sealed: bytes
