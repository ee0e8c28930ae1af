"""Values that garbler, evaluator, aggregator and judge of one run derive alike."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from smpc_dp.crypto.garble import Run
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import Check, VerificationError
from smpc_dp.protocols.garbled.plan import Plan

SEED_BYTES = 32
SEEDS = 0
"""Stream of the seed transfer; stream j from 1 on is copy j."""

# Positions of a stream's messages in its transcript.
FIRST, BASE, TREES, EXTENSION, CHALLENGE, RESPONSE, CORRECTIONS, TABLES, LABELS, DECODING = range(10)
MESSAGES = (
    "first message",
    "base response",
    "corrections of the trees",
    "extension",
    "challenge",
    "response",
    "corrections",
    "tables",
    "labels",
    "decoding",
)
EVALUATORS = frozenset({FIRST, TREES, EXTENSION, RESPONSE})
"""Messages of the evaluator; the others are the garbler's."""
SEED_MESSAGES = tuple(range(CORRECTIONS))
"""Messages of the seed transfer."""

# A message's position and hash, in the order sent.
Transcript = dict[int, bytes]


@dataclass(frozen=True)
class Terms:
    """Run, start and plan of an evaluation, to which every hash is bound.

    `protocol`: name and version, as in `Context.bound`.
    """

    protocol: tuple[bytes, bytes]
    run_id: bytes
    start: bytes
    plan: Plan
    plan_digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan_digest", self.plan.digest())

    @property
    def copies(self) -> int:
        """Number of copies."""
        return self.plan.parameters.covert

    @property
    def transfers(self) -> int:
        """Number of transfers of a copy: the evaluator's input bits in all instances."""
        return self.plan.width(self.plan.evaluator_values) * self.plan.parameters.instances

    @property
    def positions(self) -> tuple[int, ...]:
        """Messages of a copy's transcript."""
        return tuple(range(TABLES if not self.transfers else FIRST, DECODING + 1))

    def fits(self, plan: bytes, start: bytes, streams: Sequence[Sequence[bytes]]) -> bool:
        """Tell whether a statement is of this plan and start, and has a transcript of each stream."""
        lengths = [len(SEED_MESSAGES), *[len(self.positions)] * self.copies]
        return (plan, start) == (self.plan_digest, self.start) and [len(s) for s in streams] == lengths

    def bound(self, label: Label, *parts: bytes) -> bytes:
        """Return a digest bound to the run."""
        return digest(label, *self.protocol, self.run_id, self.start, self.plan.circuit.digest, *parts)

    def between(self, label: Label, stream: int) -> bytes:
        """Return a digest bound to both names and to a stream."""
        names = (self.plan.parameters.garbler.encode(), self.plan.parameters.evaluator.encode())
        return self.bound(label, *names, encode_uint(stream))

    def commitment(self, stream: int, seed: bytes) -> bytes:
        """Return the evaluator's commitment to its seed of a stream."""
        return self.bound(Label.COVERT_COMMITMENT, encode_uint(stream), seed)

    def derive(self, side: str, stream: int, purpose: str, *secrets: bytes) -> bytes:
        """Return the 32 bytes that a side derives from its secrets of a stream."""
        parts = (side.encode(), encode_uint(stream), purpose.encode(), *secrets)
        return self.bound(Label.COVERT_SEED, *parts)

    def garbling(self, copy: int) -> Run:
        """Return the garbling settings of a copy, which is one block."""
        start = self.between(Label.COVERT_KEYS, copy)[:16]
        return self.plan.garbling(next(self.plan.blocks()), start)

    def message_key(self, stream: int, message: int) -> bytes:
        """Return the key of the hashes of one message of a stream."""
        parts = (self.plan_digest, encode_uint(stream), encode_uint(message))
        return self.bound(Label.COVERT_MESSAGE, *parts)

    def stream_hash(self, stream: int, message: int) -> StreamHash:
        """Return the hash of one message of a stream, still empty."""
        return StreamHash(self.message_key(stream, message))

    def hash(self, stream: int, message: int, content: bytes | memoryview) -> bytes:
        """Return the hash of one message of a stream."""
        hashed = self.stream_hash(stream, message)
        hashed.update(content)
        return hashed.digest()

    def decoding(self, copy: int, opening: bytes, content: bytes) -> bytes:
        """Return the garbler's commitment to the decoding of a copy's outputs."""
        return self.bound(Label.COVERT_DECODING, encode_uint(copy), opening, content)

    def check_decoding(self, copy: int, commitment: bytes, opening: bytes, content: bytes) -> None:
        """Raise VerificationError unless this is the decoding that was committed to."""
        if not hmac.compare_digest(self.decoding(copy, opening, content), commitment):
            reason = f"its decoding of copy {copy} is not the one to which it committed"
            raise VerificationError(reason, Check.BAD_OPENING)


def first_difference(made: Iterable[tuple[int, bytes]], signed: Sequence[bytes]) -> int | None:
    """Return the position of the first message whose hash is not the signed one, None without any.

    `made` has position and hash of each message in order; nothing is taken from it after the difference.
    """
    for (position, value), claimed in zip(made, signed, strict=True):
        if not hmac.compare_digest(value, claimed):
            return position
    return None
