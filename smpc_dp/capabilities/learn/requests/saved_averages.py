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
    """Array of rows of numbers in a form that can be saved: float64, least significant byte first."""

    shape: tuple[int, int]
    content: bytes

    @classmethod
    def of(cls, rows: Rows) -> StoredRows:
        """Return rows of numbers as plain data, which can be stored."""
        return cls((rows.shape[0], rows.shape[1]), np.asarray(rows, "<f8").tobytes())

    @property
    def rows(self) -> Rows:
        """The stored rows as an array; raise LocalError if their shape is damaged."""
        try:
            return np.frombuffer(self.content, "<f8").astype(np.float64).reshape(self.shape)
        except ValueError:
            raise damaged() from None


class Tally(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Counts that an averager saves: requests of its party, the last one's number, and checked totals."""

    participations: int
    last: int
    averages: int
    checked: int


class StoredAverage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Saved result, or error, of a request of the learner's current step, for a restarted process."""

    values: StoredRows | None = None
    weights: tuple[float, ...] = ()
    absent: tuple[str, ...] = ()
    checked: bool = False
    error: SavedError | None = None

    @classmethod
    def of(cls, averaged: Averaged, *, checked: bool) -> bytes:
        """Return an average as bytes to save, with whether the party checked its total."""
        values = StoredRows.of(averaged.values)
        weights = tuple(averaged.weights.tolist())
        return msgspec.msgpack.encode(cls(values, weights, averaged.absent, checked))

    @classmethod
    def of_error(cls, error: SmpcError) -> bytes:
        """Return the error with which an average ended as bytes to save."""
        return msgspec.msgpack.encode(cls(error=SavedError.of(error)))

    @classmethod
    def decode(cls, content: bytes) -> StoredAverage:
        """Return the saved average or error in the bytes; raise LocalError for anything else."""
        return decoded(content, cls)

    @property
    def averaged(self) -> Averaged:
        """The saved average; raises the saved error if the average failed."""
        if self.error is not None:
            raise self.error.error()
        if self.values is None:
            raise damaged()
        return Averaged(self.values.rows, np.array(self.weights), absent=self.absent)


def decoded(content: bytes, kind: type[T]) -> T:
    """Return a learner's saved content as an object of type `kind`; raise LocalError if it is damaged."""
    try:
        return decode_msgpack(content, kind)
    except msgspec.DecodeError:
        raise damaged() from None


def damaged() -> LocalError:
    """Return the error that saved progress is damaged, or was written by another release."""
    return LocalError("the progress of a learner is damaged, or of another release")
