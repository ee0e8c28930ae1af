"""Values that garbler, evaluator, aggregator and judge of one run derive alike."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.garbled.plan import Block, Plan
from smpc_dp.crypto.garble import Run, Wires
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import Check, VerificationError

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
"""Messages of the evaluator in a copy; the others are the garbler's."""
BASE_FIRST, BASE_RESPONSE = range(2)
"""Messages of the seed transfer, of which the first is the garbler's."""
SEED_MESSAGES = ("first message", "response")


def is_evaluators(stream: int, position: int) -> bool:
    """Tell whether a message of a stream is the evaluator's."""
    return position == BASE_RESPONSE if stream == SEEDS else position in EVALUATORS


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
    _message_keys: dict[tuple[int, int], bytes] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan_digest", self.plan.digest)

    @property
    def copies(self) -> int:
        """Number of copies."""
        return self.plan.parameters.covert

    @property
    def transfers(self) -> int:
        """Number of transfers of a copy: the evaluator's input bits, random ones too, in all instances."""
        return self.plan.width(self.plan.evaluator_values) * self.plan.parameters.instances

    @property
    def instances(self) -> int:
        """Number of instances."""
        return self.plan.parameters.instances

    @cached_property
    def block(self) -> Block:
        """The one block, of all instances."""
        return next(self.plan.blocks())

    @cached_property
    def mask_rows(self) -> slice | NDArray[np.intp]:
        """Places of the evaluator's given wires among all of its wires, a slice if they are neighbours."""
        values = self.plan.evaluator_values
        rows = np.flatnonzero(np.isin(self.plan.wires(values), self.plan.wires(self.plan.given(values))))
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return rows

    @property
    def mask_count(self) -> int:
        """Number of the evaluator's given wires, each of which has a mask."""
        return self.plan.width(self.plan.given(self.plan.evaluator_values))

    @cached_property
    def own_count(self) -> int:
        """Number of wires in the label list that are the garbler's; the others are masks."""
        return self.plan.width(self.plan.given(self.plan.garbler_values))

    @cached_property
    def list_wires(self) -> Wires:
        """Wires of the label list: the garbler's given inputs, then the evaluator's."""
        given = self.plan.given
        return self.plan.wires((*given(self.plan.garbler_values), *given(self.plan.evaluator_values)))

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
        return self.plan.garbling(self.block, self.between(Label.COVERT_KEYS, copy)[:16])

    def list_run(self, copy: int) -> Run:
        """Return the settings of the hashes of a copy's label list."""
        return self.plan.garbling(self.block, self.between(Label.COVERT_LABEL_KEYS, copy)[:16])

    def open_seed(self, copy: int) -> bytes:
        """Return the 16 public bytes of which the active labels of the garbler's random inputs are made."""
        return self.between(Label.COVERT_OPEN, copy)[:16]

    def message_key(self, stream: int, message: int) -> bytes:
        """Return the key of the hashes of one message of a stream."""
        if (known := self._message_keys.get((stream, message))) is None:
            parts = (self.plan_digest, encode_uint(stream), encode_uint(message))
            known = self._message_keys[stream, message] = self.bound(Label.COVERT_MESSAGE, *parts)
        return known

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
