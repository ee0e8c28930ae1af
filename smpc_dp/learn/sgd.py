"""Stochastic gradient descent whose averaging step is any `Averager`: all users, or a group in each step.

Everybody's model is a function of published averages and the public schedule, so only the gradients are
private: those of a user are clipped to an L2 norm C, all its points together.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.learn.averager import ALONE, FAILURES, Rows
from smpc_dp.learn.methods import STEPS
from smpc_dp.learn.models import Model, ModelName, clip_rows
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateAverages, PublicAverages, Table

Positive = Annotated[float, Meta(gt=0, le=1e9)]
Steps = Annotated[int, Meta(ge=1, le=1_000_000)]


class SgdSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every kind of gradient descent here has.

    Attributes:
        features: d, columns of every user's table without the label.
        steps: T. rate: eta, the step size; it becomes rate / sqrt(1 + decay t) in step t.
        clip: C, the L2 norm that a user's gradient is clipped to.
        epsilon, delta: for each user, all of its steps together.
        model, classes: the loss and, for "softmax", the number of labels.
        ridge: lambda of a penalty lambda / 2 |w|^2, which costs no privacy.
        radius: a model with a coordinate beyond it has diverged, and the run stops.
        seed: of the public schedule.
        weights: "points": a user counts as often as it has points, `max_points` at most; "equal": once.
            How many points it has is as private as they are.
    """

    features: Annotated[int, Meta(ge=1, le=1_000_000)]
    steps: Steps
    epsilon: Positive
    delta: Annotated[float, Meta(gt=0, lt=1)]
    rate: Positive = 0.5
    decay: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    clip: Positive = 1.0
    model: ModelName = "logistic"
    classes: Annotated[int, Meta(ge=2, le=10_000)] = 2
    ridge: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    radius: Positive = 1000.0
    seed: Annotated[int, Meta(ge=0, le=(1 << 62))] = 0
    weights: Literal["equal", "points"] = "equal"
    max_points: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0

    @property
    def loss(self) -> Model:
        """The model."""
        return Model(self.model, self.features, self.classes)

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its data fit."""
        self.loss.check(table, user)

    def groups(self, users: int) -> NDArray[np.intp]:
        """Return who takes part in each step, shape (steps, size)."""
        raise NotImplementedError

    def participations(self, groups: NDArray[np.intp], users: int) -> NDArray[np.intp]:
        """Return in how many of these groups each user is, shape (n,)."""
        return np.bincount(groups.ravel(), minlength=users)

    def step_faults(self) -> list[Fault]:
        """Return what is wrong with the settings whatever the groups are."""
        if self.rate * self.ridge >= 2:
            what = f"{self.rate:g} with ridge = {self.ridge:g} diverges: their product must be below 2"
            return [Fault("rate", what)]
        if (self.weights == "points") != (self.max_points > 0):
            return [Fault("max_points", "must be above 0 with weights = 'points', and is for that alone")]
        return []

    def needs_of(self, users: int, *, mix: bool) -> Needs:
        """Return what descent over `groups` communicates."""
        groups, length = self.groups(users), self.loss.length
        sizes = frozenset({groups.shape[1]})
        participations = self.participations(groups, users)
        weights = (1.0, float(self.max_points)) if self.weights == "points" else None
        average = PrivateAverages(length, self.clip, sizes, participations, self.epsilon, self.delta, weights)
        return Needs(average, PublicAverages(length, self.radius, sizes) if mix else None)


class FederatedSgd(SgdSettings, frozen=True, kw_only=True):
    """All users average their clipped gradients in every step, and take the same step."""

    def faults(self, users: int) -> list[Fault]:  # noqa: ARG002
        """Return what is wrong with the settings."""
        return self.step_faults()

    def groups(self, users: int) -> NDArray[np.intp]:
        """Return everybody for each step."""
        return np.broadcast_to(np.arange(users), (self.steps, users))

    def participations(self, groups: NDArray[np.intp], users: int) -> NDArray[np.intp]:
        """Return the number of steps for everybody."""
        return np.full(users, len(groups))

    def needs(self, users: int) -> Needs:
        """Return what it communicates: a private average of all in each step, and before it one of models.

        The models differ only for users who have missed a step.
        """
        return self.needs_of(users, mix=True)

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Learn; see `needs.Learner`."""
        return await descend("sgd", self, means, data)


# Averages of a step: of models, then of gradients.
REQUESTS_A_STEP = 2


async def descend(name: str, settings: SgdSettings, means: Means, data: list[Table]) -> Learned:
    """Run gradient descent over the groups of `settings`.

    In each step the group averages its members' models, then their clipped gradients there, and each member
    steps from the averaged model. Who misses the first goes on from its own model; a step whose gradients
    fail is left out, by those for whom it fails.

    Raises:
        ConfigError: data that do not fit, or a model that diverges.
    """
    averager, mixer, model = means.average, means.mix, settings.loss
    if averager is None or mixer is None:
        raise LocalError(f"{name} needs averages of gradients and of models")
    here, users = averager.here, averager.users
    if len(data) != len(here):
        raise ConfigError([Fault("data", f"{len(data)} tables for {len(here)} users")])
    for user, table in zip(here, data, strict=True):
        model.check(table, f"user {user}")
    points = model.points(data)
    weights: Rows = np.zeros((len(here), model.length))
    weight = None
    if settings.weights == "points":
        weight = np.array([min(len(table), settings.max_points) for table in data], dtype=np.float64)
    planned, done = np.zeros(len(here), np.intp), np.zeros(len(here), np.intp)
    failures: dict[str, None] = {}
    # Inside the ball by more than rounding to the grid moves a vector.
    inside = settings.clip * max(0.5, 1 - math.sqrt(model.length) / STEPS)
    for step, members in enumerate(settings.groups(users)):
        group = np.full(users, ALONE)
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
    return Learned(
        name,
        weights,
        model.names,
        planned,
        done,
        tuple(failures),
        claim=averager.claim,
    )


def check_radius(weights: Rows, settings: SgdSettings, step: int) -> None:
    """Raise ConfigError if a model has diverged."""
    # Written so that NaN fails.
    if weights.size and not np.abs(weights).max() <= settings.radius:
        what = (
            f"{settings.rate:g} diverges: a coordinate of the model is beyond {settings.radius:g} in step "
            f"{step + 1}; lower it, or raise epsilon"
        )
        raise ConfigError([Fault("rate", what)])
