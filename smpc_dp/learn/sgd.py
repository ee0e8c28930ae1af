"""Stochastic gradient descent over any `Averager`: by all parties, or a group in each step.

Every party's model is a function of published averages and the public schedule, so only the gradients are
private: those of a party are clipped to an L2 norm C, all its points together.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.learn.averager import ALONE, FAILURES, Rows
from smpc_dp.learn.methods import STEPS
from smpc_dp.learn.models import Model, ModelName, clip_rows
from smpc_dp.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateAverages,
    PublicAverages,
    Requirements,
    Table,
)

Positive = Annotated[float, Meta(gt=0, le=1e9)]
Steps = Annotated[int, Meta(ge=1, le=1_000_000)]


class SgdSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that all kinds of gradient descent share; `kind` is the learner's name."""

    kind: ClassVar[str]
    features: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)],
        Meta(description="d, columns of every table without the label"),
    ]
    steps: Annotated[Steps, Meta(description="T")]
    epsilon: Annotated[Positive, Meta(description="of each user, all of its steps together")]
    delta: Annotated[
        Annotated[float, Meta(gt=0, lt=1)], Meta(description="of each user, all of its steps together")
    ]
    rate: Annotated[Positive, Meta(description="eta, the step size")] = 0.5
    decay: Annotated[
        Annotated[float, Meta(ge=0, le=1e9)],
        Meta(description="the step size becomes rate / sqrt(1 + decay t) in step t"),
    ] = 0.0
    clip: Annotated[Positive, Meta(description="C, the L2 norm that a user's gradient is clipped to")] = 1.0
    model: Annotated[
        ModelName, Meta(description="labels are 0 and 1 for logistic, 0 to `classes` - 1 for softmax")
    ] = "logistic"
    classes: Annotated[Annotated[int, Meta(ge=2, le=10_000)], Meta(description="labels of softmax")] = 2
    ridge: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)],
        Meta(description="lambda of a penalty lambda/2 times the squared norm, which costs no privacy"),
    ] = 0.0
    radius: Annotated[
        Positive, Meta(description="a model with a coordinate beyond it has diverged, and the run stops")
    ] = 1000.0
    seed: Annotated[Annotated[int, Meta(ge=0, le=(1 << 62))], Meta(description="of the public schedule")] = 0
    weights: Annotated[
        Literal["equal", "points"],
        Meta(description="with `points` users count as often as they have points, privately"),
    ] = "equal"
    max_points: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000_000)],
        Meta(description='the most that a user counts; needed with `weights = "points"`, and for that alone'),
    ] = 0

    @property
    def loss(self) -> Model:
        """The model with its loss."""
        return Model(self.model, self.features, self.classes)

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its data fit."""
        self.loss.check(table, party)

    def groups(self, parties: int) -> NDArray[np.intp]:
        """Return the parties that take part in each step, shape (steps, size)."""
        raise NotImplementedError

    def participations(self, groups: NDArray[np.intp], parties: int) -> NDArray[np.intp]:
        """Return the number of these groups that each party is in, shape (n,)."""
        return np.bincount(groups.ravel(), minlength=parties)

    def issues(self, parties: int) -> list[ConfigIssue]:  # noqa: ARG002
        """Return the faults of the settings that do not depend on the groups."""
        if self.rate * self.ridge >= 2:
            reason = f"{self.rate:g} with ridge = {self.ridge:g} diverges: their product must be below 2"
            return [ConfigIssue("rate", reason, ConfigCheck.INFEASIBLE)]
        if (self.weights == "points") != (self.max_points > 0):
            return [
                ConfigIssue(
                    "max_points",
                    "must be above 0 with weights = 'points', and is for that alone",
                    ConfigCheck.UNSUPPORTED,
                )
            ]
        return []

    def requirements(self, parties: int) -> Requirements:
        """Return the requirements: in each step an average of the group's models, then a private average.

        The models of all parties differ only for those that have missed a step.
        """
        groups, length = self.groups(parties), self.loss.length
        sizes = frozenset({groups.shape[1]})
        participations = self.participations(groups, parties)
        weights = (1.0, float(self.max_points)) if self.weights == "points" else None
        average = PrivateAverages(length, self.clip, sizes, participations, self.epsilon, self.delta, weights)
        return Requirements(average, PublicAverages(length, self.radius, sizes))

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run the descent; see `requirements.Learner`."""
        return await descend(self, context, data)


class FederatedSgd(SgdSettings, frozen=True, kw_only=True):
    """Settings of gradient descent in which all parties average their clipped gradients in every step."""

    kind: ClassVar[str] = "sgd"

    def groups(self, parties: int) -> NDArray[np.intp]:
        """Return all parties for each step."""
        return np.broadcast_to(np.arange(parties), (self.steps, parties))

    def participations(self, groups: NDArray[np.intp], parties: int) -> NDArray[np.intp]:
        """Return the number of steps for each party."""
        return np.full(parties, len(groups))


# Averages of a step: of models, then of gradients.
REQUESTS_A_STEP = 2


async def descend(settings: SgdSettings, context: LearnerContext, data: list[Table]) -> Learned:
    """Run gradient descent over the groups of `settings`.

    In each step the group averages its members' models, then their clipped gradients there, and each member
    steps from the averaged model. A party that misses the first average goes on from its own model; a step
    whose gradients fail is left out, by those for whom it fails.

    Raises:
        ConfigError: data that do not fit, or a model that diverges.
    """
    averager, mixer, model = context.average, context.mix, settings.loss
    if averager is None or mixer is None:
        raise LocalError(f"{settings.kind} needs averages of gradients and of models")
    here, parties = averager.here, averager.parties
    if len(data) != len(here):
        raise ConfigError.at("data", f"{len(data)} tables for {len(here)} users", ConfigCheck.SHAPE)
    for party, table in zip(here, data, strict=True):
        model.check(table, f"user {party}")
    points = model.points(data)
    weights: Rows = np.zeros((len(here), model.length))
    weight = None
    if settings.weights == "points":
        weight = np.array([min(len(table), settings.max_points) for table in data], dtype=np.float64)
    planned, done = np.zeros(len(here), np.intp), np.zeros(len(here), np.intp)
    failures: dict[str, None] = {}
    # Inside the ball by more than rounding to the grid moves a vector.
    inside = settings.clip * max(0.5, 1 - math.sqrt(model.length) / STEPS)
    for step, members in enumerate(settings.groups(parties)):
        group = np.full(parties, ALONE)
        group[members] = 0
        rows = np.flatnonzero(group[here] == 0)
        planned[rows] += 1
        rate = settings.rate / np.sqrt(1 + settings.decay * step)
        gradients = np.zeros_like(weights)
        mixed = weights
        # Whatever fails, everybody makes the same calls: requests are counted by them.
        try:
            mixed = (await mixer.average(weights, group=group)).values
        except FAILURES as error:
            failures[str(error)] = None
        gradients[rows] = clip_rows(model.gradient(mixed[rows], points, rows), inside)
        try:
            averaged = (await averager.average(gradients, weight, group)).values
        except FAILURES as error:
            failures[str(error)] = None
            continue
        stepped = mixed[rows] - rate * (averaged[rows] + settings.ridge * mixed[rows])
        check_radius(stepped, settings, step)
        weights = weights.copy()
        weights[rows] = stepped
        done[rows] += 1
    return Learned(settings.kind, weights, model.names, planned, done, tuple(failures), claim=averager.claim)


def check_radius(weights: Rows, settings: SgdSettings, step: int) -> None:
    """Raise ConfigError if a model has diverged."""
    # Written so that NaN fails.
    if weights.size and not np.abs(weights).max() <= settings.radius:
        reason = (
            f"{settings.rate:g} diverges: a coordinate of the model is beyond {settings.radius:g} in step "
            f"{step + 1}; lower it, or raise epsilon"
        )
        raise ConfigError.at("rate", reason, ConfigCheck.INFEASIBLE)
