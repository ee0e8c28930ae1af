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
    """Return whether the evaluator sends this message of a stream (seed transfer 0, or copy)."""
    return position == BASE_RESPONSE if stream == SEEDS else position in EVALUATORS


# A message's position and hash, in the order sent.
Transcript = dict[int, bytes]


@dataclass(frozen=True)
class Terms:
    """Public values of a covert evaluation (run id, start, plan), from which all hash keys are derived.

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
        """The number of garbled copies of the circuit, all but one of which are opened and checked."""
        return self.plan.parameters.covert

    @property
    def transfers(self) -> int:
        """Number of oblivious transfers of one copy: the evaluator's input bits of all instances."""
        return self.plan.width(self.plan.evaluator_values) * self.plan.parameters.instances

    @property
    def instances(self) -> int:
        """The number of instances of the circuit in each copy."""
        return self.plan.parameters.instances

    @cached_property
    def block(self) -> Block:
        """The single block that holds all instances of the circuit."""
        return next(self.plan.blocks())

    @cached_property
    def mask_rows(self) -> slice | NDArray[np.intp]:
        """Rows of the evaluator's wires that carry its own inputs, not coins; a slice if adjacent."""
        values = self.plan.evaluator_values
        rows = np.flatnonzero(np.isin(self.plan.wires(values), self.plan.wires(self.plan.given(values))))
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return rows

    @property
    def mask_count(self) -> int:
        """Number of the evaluator's wires that carry its own inputs, each hidden by a mask."""
        return self.plan.width(self.plan.given(self.plan.evaluator_values))

    @cached_property
    def own_count(self) -> int:
        """Number of the garbler's input wires in the label list, before the evaluator's."""
        return self.plan.width(self.plan.given(self.plan.garbler_values))

    @cached_property
    def list_wires(self) -> Wires:
        """Input wires whose labels are opened as a list: the garbler's own, then the evaluator's."""
        given = self.plan.given
        return self.plan.wires((*given(self.plan.garbler_values), *given(self.plan.evaluator_values)))

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the messages that a copy's transcript has; fewer without transfers."""
        return tuple(range(TABLES if not self.transfers else FIRST, DECODING + 1))

    def fits(self, plan: bytes, start: bytes, streams: Sequence[Sequence[bytes]]) -> bool:
        """Return whether a signed statement has this plan and start, and transcripts of the right lengths."""
        lengths = [len(SEED_MESSAGES), *[len(self.positions)] * self.copies]
        return (plan, start) == (self.plan_digest, self.start) and [len(s) for s in streams] == lengths

    def bound(self, label: Label, *parts: bytes) -> bytes:
        """Return the hash of some parts, bound to this run and to a label of the hash's purpose."""
        return digest(label, *self.protocol, self.run_id, self.start, self.plan.circuit.digest, *parts)

    def between(self, label: Label, stream: int) -> bytes:
        """Return a hash bound to the garbler's and evaluator's names and to one stream's number."""
        names = (self.plan.parameters.garbler.encode(), self.plan.parameters.evaluator.encode())
        return self.bound(label, *names, encode_uint(stream))

    def commitment(self, stream: int, seed: bytes) -> bytes:
        """Return the evaluator's commitment to its seed of a stream (seed transfer 0, or copy)."""
        return self.bound(Label.COVERT_COMMITMENT, encode_uint(stream), seed)

    def derive(self, side: str, stream: int, purpose: str, *secrets: bytes) -> bytes:
        """Return a 32-byte key for a named purpose, derived from secrets of "garbler" or "evaluator"."""
        parts = (side.encode(), encode_uint(stream), purpose.encode(), *secrets)
        return self.bound(Label.COVERT_SEED, *parts)

    def garbling(self, copy: int) -> Run:
        """Return the garbling settings (hash keys, sizes) of one copy, equal for all roles."""
        return self.plan.garbling(self.block, self.between(Label.COVERT_KEYS, copy)[:16])

    def list_run(self, copy: int) -> Run:
        """Return the settings with which the labels of a copy's inputs are hashed."""
        return self.plan.garbling(self.block, self.between(Label.COVERT_LABEL_KEYS, copy)[:16])

    def open_seed(self, copy: int) -> bytes:
        """Return 16 public bytes that fix the active labels of the garbler's random inputs."""
        return self.between(Label.COVERT_OPEN, copy)[:16]

    def message_key(self, stream: int, message: int) -> bytes:
        """Return the hash key for one message of a stream (seed transfer 0, or garbled copy)."""
        if (known := self._message_keys.get((stream, message))) is None:
            parts = (self.plan_digest, encode_uint(stream), encode_uint(message))
            known = self._message_keys[stream, message] = self.bound(Label.COVERT_MESSAGE, *parts)
        return known

    def stream_hash(self, stream: int, message: int) -> StreamHash:
        """Return an empty keyed hash object, to be fed with the content of one message."""
        return StreamHash(self.message_key(stream, message))

    def hash(self, stream: int, message: int, content: bytes | memoryview) -> bytes:
        """Return the keyed hash of one message of a stream (seed transfer 0, or copy)."""
        hashed = self.stream_hash(stream, message)
        hashed.update(content)
        return hashed.digest()

    def decoding(self, copy: int, opening: bytes, content: bytes) -> bytes:
        """Return a commitment to the bits that decode a copy's outputs, given its opening."""
        return self.bound(Label.COVERT_DECODING, encode_uint(copy), opening, content)

    def check_decoding(self, copy: int, commitment: bytes, opening: bytes, content: bytes) -> None:
        """Raise VerificationError unless the garbler's opened decoding bits fit its commitment."""
        if not hmac.compare_digest(self.decoding(copy, opening, content), commitment):
            reason = f"its decoding of copy {copy} is not the one to which it committed"
            raise VerificationError(reason, Check.BAD_OPENING)


def first_difference(made: Iterable[tuple[int, bytes]], signed: Sequence[bytes]) -> int | None:
    """Return the first position whose hash is not the signed one, or None if all are equal.

    `made` has position and hash of each message in order; nothing is taken from it after the difference.
    """
    for (position, value), claimed in zip(made, signed, strict=True):
        if not hmac.compare_digest(value, claimed):
            return position
    return None
