"""Steps of a party's learner, as a session keeps them.

Specification: protocols/saved-states/sessions.md, "Learners".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.requests.saved_averages import StoredRows, Tally, damaged, decoded
from smpc_dp.capabilities.learn.step_progress import TakenSteps
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.progress import Progress
from smpc_dp.session.requests import Counter
from smpc_dp.session.threads import finish_in_thread


class Tallied(Protocol):
    """Interface of an averager or exchange whose counts of requests and messages can be saved."""

    @property
    def tally(self) -> Tally:
        """The numbers of requests and checked averages that this object has counted so far."""
        ...

    def restore(self, tally: Tally) -> None:
        """Continue counting from the numbers that an earlier process has saved."""
        ...


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Saved state of a learner between two steps: its steps, requests so far, and averagers' counts."""

    number: int
    models: StoredRows
    planned: tuple[int, ...]
    done: tuple[int, ...]
    failures: tuple[str, ...]
    metrics: tuple[tuple[int, float], ...]
    taken: int
    tallies: tuple[Tally, ...]


class SavedSteps:
    """Saves a learner's steps to disk after each, and returns them to a restarted process.

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
        """Return the steps that earlier processes took, or None; restore the counts of all averagers."""
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
        """Save the steps so far to disk, and drop the last step's averages, which the steps contain."""
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
        await finish_in_thread(partial(self._progress.keep, msgspec.msgpack.encode(stored)))


def _counts(given: tuple[int, ...]) -> NDArray[np.intp]:
    """Return saved counts as an integer array."""
    return np.array(given, np.intp)
