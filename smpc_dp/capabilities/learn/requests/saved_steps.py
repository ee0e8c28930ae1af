"""Steps of a party's learner, and the averages of the step under way, as a session keeps them.

Specification: protocols/saved-states/sessions.md, "Learners".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Averaged, Rows
from smpc_dp.capabilities.learn.step_progress import TakenSteps
from smpc_dp.decoding import decode_msgpack
from smpc_dp.engine.saved_inbox import SavedError
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.session.progress import Progress
from smpc_dp.session.requests import Counter


class _Array(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Rows as plain data: float64, the least significant byte first."""

    shape: tuple[int, int]
    content: bytes

    @classmethod
    def of(cls, rows: Rows) -> _Array:
        return cls((rows.shape[0], rows.shape[1]), np.asarray(rows, "<f8").tobytes())

    @property
    def rows(self) -> Rows:
        return np.frombuffer(self.content, "<f8").astype(np.float64).reshape(self.shape)


class Tally(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an averager has counted: requests of its party, the number of the last one, and evidence."""

    participations: int
    last: int
    averages: int
    checked: int


class Tallied(Protocol):
    """Interface of what makes requests of a learner's party."""

    @property
    def tally(self) -> Tally: ...

    def restore(self, tally: Tally) -> None: ...


class StoredAverage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Result of a request of the step under way, or its error."""

    values: _Array | None = None
    weights: tuple[float, ...] = ()
    absent: tuple[str, ...] = ()
    checked: bool = False
    error: SavedError | None = None

    @classmethod
    def of(cls, averaged: Averaged, *, checked: bool) -> bytes:
        """Return an average as bytes; `checked`: whether the party has checked its total."""
        values = _Array.of(averaged.values)
        weights = tuple(averaged.weights.tolist())
        return msgspec.msgpack.encode(cls(values, weights, averaged.absent, checked))

    @classmethod
    def of_error(cls, error: SmpcError) -> bytes:
        """Return the error of an average as bytes."""
        return msgspec.msgpack.encode(cls(error=SavedError.of(error)))

    @classmethod
    def decode(cls, content: bytes) -> StoredAverage:
        """Decode an average or an error; raise LocalError for anything else."""
        return _decoded(content, cls)

    @property
    def averaged(self) -> Averaged:
        """The average; raises its error."""
        if self.error is not None:
            raise self.error.error()
        if self.values is None:
            raise _damaged()
        return Averaged(self.values.rows, np.array(self.weights), absent=self.absent)


class _Kept(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """State of a learner between two steps. `taken`: requests so far; `tallies`: of each averager."""

    number: int
    models: _Array
    planned: tuple[int, ...]
    done: tuple[int, ...]
    failures: tuple[str, ...]
    metrics: tuple[tuple[int, float], ...]
    taken: int
    tallies: tuple[Tally, ...]


class SavedSteps:
    """Keeps the steps of a party's learner in the progress of its session.

    Attributes:
        resumed: whether there were any, or a request of the first, when the learner was begun.
    """

    def __init__(
        self, name: str, progress: Progress, model: str, counter: Counter, averagers: Sequence[Tallied]
    ) -> None:
        """`model`: fingerprint of a caller's own model; raises ConfigError if another one was begun with."""
        self._progress, self._counter, self._averagers = progress, counter, averagers
        self.resumed = bool(progress.state or progress.results)
        if not progress.first:
            progress.begin(model, 1)
        elif progress.call != model:
            reason = f"{name}: the session has begun to learn another model: give that, or other folders"
            raise ConfigError.at("model", reason, ConfigCheck.CONFLICT)

    async def restore(self) -> TakenSteps | None:
        """See `StepProgress.restore`; requests are counted on from there."""
        if not self._progress.state:
            return None
        kept: _Kept = _decoded(self._progress.state, _Kept)
        if len(kept.tallies) != len(self._averagers):
            raise _damaged()
        self._counter.taken = kept.taken
        for averager, tally in zip(self._averagers, kept.tallies, strict=True):
            averager.restore(tally)
        return TakenSteps(
            kept.number,
            kept.models.rows,
            _counts(kept.planned),
            _counts(kept.done),
            kept.failures,
            kept.metrics,
        )

    async def keep(self, steps: TakenSteps) -> None:
        """See `StepProgress.keep`; the averages of the step follow from it, and are dropped."""
        kept = _Kept(
            steps.number,
            _Array.of(steps.models),
            tuple(steps.planned.tolist()),
            tuple(steps.done.tolist()),
            steps.failures,
            steps.metrics,
            self._counter.taken,
            tuple(averager.tally for averager in self._averagers),
        )
        await asyncio.to_thread(self._progress.keep, msgspec.msgpack.encode(kept))


def _counts(given: tuple[int, ...]) -> NDArray[np.intp]:
    return np.array(given, np.intp)


def _decoded(content: bytes, kind: Any) -> Any:
    try:
        return decode_msgpack(content, kind)
    except msgspec.DecodeError:
        raise _damaged() from None


def _damaged() -> LocalError:
    return LocalError("the progress of a learner is damaged, or of another release")
