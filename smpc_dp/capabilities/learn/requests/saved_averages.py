"""Averages of the step that a party's learner is in, as a session keeps them.

Specification: protocols/saved-states/sessions.md, "Learners".
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np

from smpc_dp.capabilities.learn.averager import Averaged, Rows
from smpc_dp.decoding import decode_msgpack
from smpc_dp.engine.saved_inbox import SavedError
from smpc_dp.errors import LocalError, SmpcError

T = TypeVar("T")


class StoredRows(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Rows as plain data: float64, the least significant byte first."""

    shape: tuple[int, int]
    content: bytes

    @classmethod
    def of(cls, rows: Rows) -> StoredRows:
        """Return rows as plain data."""
        return cls((rows.shape[0], rows.shape[1]), np.asarray(rows, "<f8").tobytes())

    @property
    def rows(self) -> Rows:
        """The rows; raises LocalError for content of another shape."""
        try:
            return np.frombuffer(self.content, "<f8").astype(np.float64).reshape(self.shape)
        except ValueError:
            raise damaged() from None


class Tally(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an averager has counted: requests of its party, the number of the last one, and evidence."""

    participations: int
    last: int
    averages: int
    checked: int


class StoredAverage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Result of a request of the step under way, or its error."""

    values: StoredRows | None = None
    weights: tuple[float, ...] = ()
    absent: tuple[str, ...] = ()
    checked: bool = False
    error: SavedError | None = None

    @classmethod
    def of(cls, averaged: Averaged, *, checked: bool) -> bytes:
        """Return an average as bytes; `checked`: whether the party has checked its total."""
        values = StoredRows.of(averaged.values)
        weights = tuple(averaged.weights.tolist())
        return msgspec.msgpack.encode(cls(values, weights, averaged.absent, checked))

    @classmethod
    def of_error(cls, error: SmpcError) -> bytes:
        """Return the error of an average as bytes."""
        return msgspec.msgpack.encode(cls(error=SavedError.of(error)))

    @classmethod
    def decode(cls, content: bytes) -> StoredAverage:
        """Decode an average or an error; raise LocalError for anything else."""
        return decoded(content, cls)

    @property
    def averaged(self) -> Averaged:
        """The average; raises its error."""
        if self.error is not None:
            raise self.error.error()
        if self.values is None:
            raise damaged()
        return Averaged(self.values.rows, np.array(self.weights), absent=self.absent)


def decoded(content: bytes, kind: type[T]) -> T:
    """Decode what was kept of a learner; raise LocalError for anything else."""
    try:
        return decode_msgpack(content, kind)
    except msgspec.DecodeError:
        raise damaged() from None


def damaged() -> LocalError:
    """Return the error of a progress that is not what a learner keeps."""
    return LocalError("the progress of a learner is damaged, or of another release")
