"""Steps of a party's learner, as a session keeps them.

Specification: protocols/saved-states/sessions.md, "Learners".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.requests.saved_averages import StoredRows, Tally, damaged, decoded
from smpc_dp.capabilities.learn.step_progress import TakenSteps
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.progress import Progress
from smpc_dp.session.requests import Counter


class Tallied(Protocol):
    """Interface of what makes requests of a learner's party."""

    @property
    def tally(self) -> Tally: ...

    def restore(self, tally: Tally) -> None: ...


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """State of a learner between two steps. `taken`: requests so far; `tallies`: of each averager."""

    number: int
    models: StoredRows
    planned: tuple[int, ...]
    done: tuple[int, ...]
    failures: tuple[str, ...]
    metrics: tuple[tuple[int, float], ...]
    taken: int
    tallies: tuple[Tally, ...]


class SavedSteps:
    """Keeps the steps of a party's learner in the progress of its session.

    Attributes:
        resumed: whether an earlier call has begun to learn.
    """

    def __init__(
        self, name: str, progress: Progress, model: str, counter: Counter, averagers: Sequence[Tallied]
    ) -> None:
        """`model`: fingerprint of a caller's own model; raises ConfigError if another one was begun with."""
        self._progress, self._counter, self._averagers = progress, counter, averagers
        self.resumed = progress.first > 0
        if not progress.first:
            progress.begin(model, 1)
        elif progress.call != model:
            reason = f"{name}: the session has begun to learn another model: give that, or other folders"
            raise ConfigError.at("model", reason, ConfigCheck.CONFLICT)

    async def restore(self) -> TakenSteps | None:
        """See `StepProgress.restore`; requests are counted on from there."""
        if not self._progress.state:
            return None
        stored = decoded(self._progress.state, _Stored)
        if len(stored.tallies) != len(self._averagers):
            raise damaged()
        self._counter.taken = stored.taken
        for averager, tally in zip(self._averagers, stored.tallies, strict=True):
            averager.restore(tally)
        return TakenSteps(
            stored.number,
            stored.models.rows,
            _counts(stored.planned),
            _counts(stored.done),
            stored.failures,
            stored.metrics,
        )

    async def keep(self, steps: TakenSteps) -> None:
        """See `StepProgress.keep`; the averages of the step follow from it, and are dropped."""
        stored = _Stored(
            steps.number,
            StoredRows.of(steps.models),
            tuple(steps.planned.tolist()),
            tuple(steps.done.tolist()),
            steps.failures,
            steps.metrics,
            self._counter.taken,
            tuple(averager.tally for averager in self._averagers),
        )
        await asyncio.to_thread(self._progress.keep, msgspec.msgpack.encode(stored))


def _counts(given: tuple[int, ...]) -> NDArray[np.intp]:
    return np.array(given, np.intp)
