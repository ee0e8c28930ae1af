"""State of a learner between two steps, where it has no other: models, the step, and what became of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Rows


@dataclass(frozen=True)
class TakenSteps:
    """Saved part of a learner's run: the number of steps taken, and the local parties' states.

    Attributes:
        number: how many there are.
        models: shape (rows, length), after them.
        planned, done: shape (rows,): in how many of them each party was to take part, and did.
        failures: why the others failed, each text once.
        metrics: the number of a step, from 1, and the metric after it.
    """

    number: int
    models: Rows = field(repr=False)
    planned: NDArray[np.intp]
    done: NDArray[np.intp]
    failures: tuple[str, ...] = ()
    metrics: tuple[tuple[int, float], ...] = ()


class StepProgress(Protocol):
    """Interface of a store of a learner's steps, from which a later process continues the run."""

    async def restore(self) -> TakenSteps | None:
        """Return the steps that earlier processes took, None if there are none."""
        ...

    async def keep(self, steps: TakenSteps) -> None:
        """Store the steps so far, on disk if the run is saved."""
        ...


class NoProgress:
    """Store of steps for runs that no later process continues: it stores nothing."""

    async def restore(self) -> TakenSteps | None:
        """Return None: there are never steps of an earlier process."""
        return None

    async def keep(self, steps: TakenSteps) -> None:
        """Do nothing: steps of a run that is not saved are not stored."""
