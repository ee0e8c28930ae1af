"""Sums of one request of several, as they are stored: the parameters of the next one follow from them."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np

from smpc_dp.decoding import decode_msgpack
from smpc_dp.engine.result import Outcome
from smpc_dp.errors import LocalError
from smpc_dp.records.parameters import SteppedRecordParameters

P = TypeVar("P", bound=SteppedRecordParameters)
# Of intervals, on which nothing that follows depends.
_LEVEL = 0.95


class StepSums(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Opened sums of one request in a form to be stored, with the parties whose rows are in them.

    Attributes:
        total: int64, the least significant byte first.
        survivors: whose rows are in it, by their places in the roster.
        residual_pairs: as of `RecordResult`.
    """

    total: bytes
    survivors: tuple[int, ...]
    residual_pairs: int

    @classmethod
    def of(cls, outcome: Outcome, names: tuple[str, ...]) -> StepSums:
        """Return a request's opened sums for storage; `names`: the parties, in the roster's order."""
        residual = 0 if outcome.noise is None else outcome.noise.residual_pairs
        survivors = tuple(names.index(name) for name in outcome.survivors)
        return cls(np.asarray(outcome.total, "<i8").tobytes(), survivors, residual)

    @classmethod
    def decode(cls, content: bytes) -> StepSums:
        """Decode stored sums from bytes; raise LocalError if they are damaged."""
        try:
            return decode_msgpack(content, cls)
        except msgspec.DecodeError:
            raise LocalError("stored sums of a regression are damaged") from None

    def encode(self) -> bytes:
        """Return the sums as MessagePack bytes, for `decode`."""
        return msgspec.msgpack.encode(self)

    def following(self, parameters: P) -> P:
        """Return the next request's parameters, by decoding the sums into this request's answers."""
        total = np.frombuffer(self.total, "<i8").astype(np.int64)
        answered = parameters.leaving(self.residual_pairs)
        answers = answered.answers(total, self.survivors, level=_LEVEL, simultaneous=False)
        return parameters.following(answers)
