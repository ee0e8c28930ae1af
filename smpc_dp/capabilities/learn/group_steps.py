"""Steps in which disjoint random groups average a state, and the others keep theirs.

The groups of a step are a round of `block_gossip.GroupDraws`. A member's state moves to the group's average
of `retained` times the states plus `factor` times the members' changes.

With differential privacy states are public, functions of what was published: they are averaged exactly, and
the changes privately, each clipped to an L2 norm. Without it there is one exact average, of the sums of both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import ALONE, FAILURES, Averager, Groups, Rows
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.requirements import (
    OnStep,
    PrivateAverages,
    PublicAverages,
    Requirements,
    Step,
    ignore_step,
)
from smpc_dp.capabilities.learn.sgd import AveragedChanges, average_changes, clip_inside
from smpc_dp.capabilities.learn.step_progress import NoProgress, StepProgress, TakenSteps
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue

Group = Annotated[
    Annotated[int, Meta(ge=2, le=65_535)],
    Meta(description="s, members of a group: in each step a round of groups averages, by `averager`"),
]
# More than rounding adds to a sum, as a factor.
SLACK = 1 + 2.0**-20
Ints = NDArray[np.intp]
# States of the local parties, their rows that are members, groups and step (from 1): changes of those rows.
Changes = Callable[[Rows, Ints, Groups, int], Awaitable[Rows]]
Moved = Callable[[Rows, int], None]


def group_issues(group: int, parties: int, epsilon: float | None, delta: float | None) -> list[ConfigIssue]:
    """Return the faults of a group size, and of a privacy budget of which only one number is given."""
    issues = []
    if group > parties:
        reason = f"of {group} cannot be drawn from {parties} parties"
        issues.append(ConfigIssue("group", reason, ConfigCheck.UNSUPPORTED))
    if delta is None and epsilon is not None:
        issues.append(ConfigIssue("delta", "is missing", ConfigCheck.MISSING))
    elif delta is not None and epsilon is None:
        reason = "is missing: delta goes with it; without both averages are exact, and nothing is private"
        issues.append(ConfigIssue("epsilon", reason, ConfigCheck.MISSING))
    return issues


def group_requirements(
    draws: GroupDraws,
    steps: int,
    length: int,
    clip: float,
    room: float,
    budget: tuple[float | None, float | None],
) -> Requirements:
    """Return what averages a learner with steps in groups needs: number, length, bounds, budget."""
    epsilon, delta = budget
    sizes, taken = frozenset({draws.size}), draws.participations(steps * draws.each)
    if epsilon is None:
        return Requirements(PrivateAverages(length, room, sizes, taken, None, None))
    averages = PrivateAverages(length, clip, sizes, taken, epsilon, delta)
    return Requirements(averages, PublicAverages(length, room, sizes))


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """Result of steps in groups: local parties' states, steps due and done of each, and failures."""

    states: Rows
    planned: Ints
    done: Ints
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupRun:
    """One run of a learner that averages over random groups: its averager, groups and factors.

    Attributes:
        averager: of changes; where `mixer` is None, of states with their changes.
        draws: of the groups. steps: T, rounds of the draws.
        retained, factor: of the states and of the changes in a step.
        clip: the L2 norm that a change is clipped to; None: it is not clipped.
        room: the most that a coordinate of a state, or of a vector of the one average, may be.
        scales: whether the rate scales states, as it does models; sums of gradients it does not.
        progress: keeps the steps of a run whose whole state are these states.
    """

    averager: Averager
    mixer: Averager | None
    draws: GroupDraws
    steps: int
    room: float
    retained: float = 1.0
    factor: float = 1.0
    clip: float | None = None
    scales: bool = False
    on_step: OnStep = ignore_step
    progress: StepProgress = field(default_factory=NoProgress)

    async def run(self, states: Rows, changes: Changes, moved: Moved) -> GroupOutcome:
        """Take steps not yet saved: in each, random groups average states and changes; return the outcome.

        Steps begin from `states`, or from those of the last saved step; `moved` is called after each step
        taken.

        A member for whom the average of changes fails does without the changes, and keeps its state, or the
        exact average of states where it got that: a part of its group that fails changes no mean.

        Raises:
            ConfigError: a coordinate is beyond `room`.
        """
        here = self.averager.here
        planned, done = np.zeros(len(here), np.intp), np.zeros(len(here), np.intp)
        failures: dict[str, None] = {}
        begin = 0
        if (taken := await self.progress.restore()) is not None:
            begin, states, planned, done = taken.number, taken.models, taken.planned, taken.done
            failures = dict.fromkeys(taken.failures)
        for step, group in enumerate(self.draws.rounds(self.steps), 1):
            if step <= begin:
                continue
            rows = np.flatnonzero(group[here] > ALONE)
            planned[rows] += 1
            next_states, both = await self._step(states, changes, rows, group, step)
            states = states.copy()
            states[rows] = next_states[rows]
            done[rows] += both.changes is not None
            moved(states, step)
            failures |= dict.fromkeys(both.failures)
            await self.progress.keep(TakenSteps(step, states, planned, done, tuple(failures)))
            if len(rows) or not len(here):
                absent = () if both.changes is None else both.changes.absent
                self.on_step(Step(step, self.steps, tuple(both.failures), absent))
        return GroupOutcome(states, planned, done, tuple(failures))

    async def _step(
        self, states: Rows, changes: Changes, rows: Ints, group: Groups, step: int
    ) -> tuple[Rows, AveragedChanges]:
        """Average the members' changes in a step; return their next states and those averages."""

        async def all_changes(_mixed: Rows) -> Rows:
            result = np.zeros_like(states)
            own = await changes(states, rows, group, step)
            result[rows] = own if self.clip is None else clip_inside(own, self.clip)
            return result

        if self.mixer is not None:
            both = await average_changes(self.averager, self.mixer, states, all_changes, group)
            if both.changes is None:
                # Others' states count this one in their exact average: an own state would count twice.
                return both.mixed, both
            combined = self.retained * both.mixed + self.factor * both.changes.values
            self._check(combined[rows], step)
            return combined, both
        sent = self.retained * states + self.factor * await all_changes(states)
        self._check(sent[rows], step)
        try:
            averaged = await self.averager.average(sent, group=group)
        except FAILURES as error:
            return states, AveragedChanges(states, None, [str(error)])
        return averaged.values, AveragedChanges(states, averaged, [])

    def _check(self, states: Rows, step: int) -> None:
        """Raise ConfigError if a coordinate of a state exceeds the bound that averages have room for."""
        # Written so that NaN fails.
        if not states.size or np.abs(states).max() <= self.room:
            return
        where = f"at step {step} a coordinate is beyond {self.room:g}"
        if self.scales:
            more = "" if self.mixer is None else ", or raise epsilon"
            reason = f"the run diverges: {where}; take smaller steps{more}"
            raise ConfigError.at("rate", reason, ConfigCheck.INFEASIBLE)
        if self.mixer is not None:
            reason = f"is too small: {where}, by the noise of averages; raise it"
            raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
        reason = (
            f"{where}, which no sum of gradients is: a member of an earlier group sent a vector out of range"
        )
        raise ConfigError.at("averager", reason, ConfigCheck.RANGE)
