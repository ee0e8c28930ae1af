"""State of a learner between two steps, where it has no other: models, the step, and what became of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Rows


@dataclass(frozen=True)
class TakenSteps:
    """The first steps of a run, for the local parties.

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
    """Interface of what keeps the steps of a run for a process that goes on with it."""

    async def restore(self) -> TakenSteps | None:
        """Return the steps of earlier processes, None without."""
        ...

    async def keep(self, steps: TakenSteps) -> None:
        """Keep the steps so far, durably where the run is saved."""
        ...


class NoProgress:
    """Keeps nothing."""

    async def restore(self) -> TakenSteps | None:
        """Return None."""
        return None

    async def keep(self, steps: TakenSteps) -> None:
        """Keep nothing."""
