"""Stochastic gradient descent over any `Averager`: by all parties, or a group in each step.

Every party's model is a function of published averages and the public schedule, so only the gradients are
private: those of a party are clipped to an L2 norm C, all its points together.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import ALONE, FAILURES, Averaged, Averager, Groups, Parties, Rows
from smpc_dp.capabilities.learn.models import Model, ModelName, TableModel, clip_rows
from smpc_dp.capabilities.learn.requirements import (
    STEPS,
    Learned,
    LearnerContext,
    LocalModel,
    PrivateAverages,
    PublicAverages,
    Requirements,
    Step,
    Table,
)
from smpc_dp.capabilities.learn.step_progress import TakenSteps
from smpc_dp.encoding import MAX_LENGTH
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.privacy.accountant.decimals import split

Positive = Annotated[float, Meta(gt=0, le=1e9)]
Steps = Annotated[int, Meta(ge=1, le=1_000_000)]
Budget = Annotated[
    Annotated[float, Meta(gt=0, lt=1000)] | None,
    Meta(
        description="of each party, all of its steps together",
        extra={"default": "none: exact averages, **no differential privacy**"},
    ),
]
Delta = Annotated[
    Annotated[float, Meta(gt=0, lt=1)] | None,
    Meta(
        description="of each party, all of its steps together",
        extra={"default": "needed with `epsilon`, and for it alone"},
    ),
]


class SgdSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of settings of all learners by gradient descent with private averages."""

    kind: ClassVar[str]
    features: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(
            description="d, columns of every table without the label",
            extra={"default": 'needed; not with `model = "own"`'},
        ),
    ] = None
    length: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_LENGTH)] | None,
        Meta(
            description='with `model = "own"`, and needed there: values of the model',
            extra={"default": "that of the model"},
        ),
    ] = None
    steps: Annotated[Steps, Meta(description="T")]
    epsilon: Budget = None
    delta: Delta = None
    rate: Annotated[Positive, Meta(description="eta, the step size")] = 0.5
    decay: Annotated[
        Annotated[float, Meta(ge=0, le=1e9)],
        Meta(description="the step size becomes rate / sqrt(1 + decay t) in step t"),
    ] = 0.0
    clip: Annotated[Positive, Meta(description="C, the L2 norm that a party's gradient is clipped to")] = 1.0
    model: Annotated[
        ModelName | Literal["own"],
        Meta(
            description="labels are 0 and 1 for logistic, 0 to `classes` - 1 for softmax; `own`: each party "
            "gives a gradient or a local update in Python ([guide](../guides/learning.md#your-own-model))",
            extra={"range": '`"linear"`, `"logistic"`, `"softmax"` or `"own"`'},
        ),
    ] = "logistic"
    classes: Annotated[Annotated[int, Meta(ge=2, le=10_000)], Meta(description="labels of softmax")] = 2
    ridge: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)],
        Meta(description="lambda of a penalty lambda/2 times the squared norm"),
    ] = 0.0
    radius: Annotated[
        Positive, Meta(description="a coordinate beyond it means divergence, and the run stops")
    ] = 1000.0
    seed: Annotated[Annotated[int, Meta(ge=0, le=(1 << 62))], Meta(description="of the public schedule")] = 0
    weights: Annotated[
        Literal["equal", "points"],
        Meta(description="`points`: a party counts as often as it has points, privately"),
    ] = "equal"
    max_points: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000_000)],
        Meta(description='the most that a party counts; needed with `weights = "points"`'),
    ] = 0
    metric_every: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)],
        Meta(
            description="steps between averages of a metric, with one after the last: accuracy, of linear "
            "the mean squared error, of own the caller's; 0: never"
        ),
    ] = 0
    metric_share: Annotated[
        Annotated[float, Meta(gt=0, lt=1)],
        Meta(description="of `epsilon` and `delta`, for all metrics; steps have the rest"),
    ] = 0.1
    metric_lower: Annotated[
        Annotated[float, Meta(ge=-1e9, le=1e9)], Meta(description="a metric below it counts as this")
    ] = 0.0
    metric_upper: Annotated[
        Annotated[float, Meta(ge=-1e9, le=1e9)], Meta(description="a metric above it counts as this")
    ] = 1.0

    @property
    def loss(self) -> Model | None:
        """The built-in model with its loss; None where the caller gives a model of its own."""
        return None if self.model == "own" else Model(self.model, self.features or 0, self.classes)

    @property
    def size(self) -> int:
        """The number of coordinates of the learned model."""
        return (self.length or 0) if self.loss is None else self.loss.length

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its data fit; a caller's own data may be anything."""
        if self.loss is not None:
            self.loss.check(table, party)

    def groups(self, parties: int) -> NDArray[np.intp]:
        """Return the parties that average in each step, shape (steps, size); subclasses implement this."""
        raise NotImplementedError

    def groups_at_once(self, parties: int) -> int:  # noqa: ARG002
        """Return 1: one group of parties averages in each step."""
        return 1

    def participations(self, groups: NDArray[np.intp], parties: int) -> NDArray[np.intp]:
        """Return the number of the given groups that each party is in, shape (n,)."""
        return np.bincount(groups.ravel(), minlength=parties)

    @property
    def measured_steps(self) -> NDArray[np.intp]:
        """The steps, from 0, after which parties average their metric, ascending."""
        if not self.metric_every:
            return np.zeros(0, np.intp)
        return np.unique([*range(self.metric_every - 1, self.steps, self.metric_every), self.steps - 1])

    def issues(self, parties: int) -> list[ConfigIssue]:  # noqa: ARG002
        """Return the faults of these settings in a network of this many parties."""
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
        issues = []
        if self.delta is None and self.epsilon is not None:
            issues.append(ConfigIssue("delta", "is missing", ConfigCheck.MISSING))
        elif self.delta is not None and self.epsilon is None:
            reason = "is missing: delta goes with it; without both averages are exact, and nothing is private"
            issues.append(ConfigIssue("epsilon", reason, ConfigCheck.MISSING))
        needed, other = ("length", "features") if self.model == "own" else ("features", "length")
        if getattr(self, needed) is None:
            issues.append(ConfigIssue(needed, "is missing", ConfigCheck.MISSING))
        if getattr(self, other) is not None:
            reason = f"is not for model = '{self.model}'"
            issues.append(ConfigIssue(other, reason, ConfigCheck.UNSUPPORTED))
        if self.metric_lower >= self.metric_upper:
            reason = f"must be above metric_lower = {self.metric_lower:g}, is {self.metric_upper:g}"
            issues.append(ConfigIssue("metric_upper", reason, ConfigCheck.RANGE))
        return issues

    def requirements(self, parties: int) -> Requirements:
        """Return the averages needed: of public models, of private changes, and of metrics if set.

        The models of all parties differ only for those that have missed a step. After some steps the group's
        metrics are averaged.
        """
        groups = self.groups(parties)
        sizes = frozenset({groups.shape[1]})
        weights = (1.0, float(self.max_points)) if self.weights == "points" else None
        measured = self.participations(groups[self.measured_steps], parties)
        share = self.metric_share if self.metric_every else 0.0

        # Of metrics and of steps.
        budgets: list[tuple[float | None, float | None]] = [(None, None), (None, None)]
        if self.epsilon is not None and self.delta is not None:
            budgets = [*zip(split(self.epsilon, share), split(self.delta, share), strict=True)]
        metrics, steps = budgets

        def private(
            length: int, bound: float, taken: NDArray[np.intp], budget: tuple[float | None, float | None]
        ) -> PrivateAverages:
            return PrivateAverages(length, bound, sizes, taken, *budget, weights)

        return Requirements(
            private(self.size, self.clip, self.participations(groups, parties), steps),
            PublicAverages(self.size, self.radius, sizes),
            metric=private(1, (self.metric_upper - self.metric_lower) / 2, measured, metrics)
            if share
            else None,
        )

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run gradient descent on the local parties' tables; return models, the guarantee not yet set."""
        return await descend(self, context, data)


class FederatedSgd(SgdSettings, frozen=True, kw_only=True):
    """Settings of gradient descent in which all parties average their clipped gradients in every step."""

    kind: ClassVar[str] = "sgd"

    def groups(self, parties: int) -> NDArray[np.intp]:
        """Return the numbers of all parties, for each step."""
        return np.broadcast_to(np.arange(parties), (self.steps, parties))

    def participations(self, groups: NDArray[np.intp], parties: int) -> NDArray[np.intp]:
        """Return the number of groups for each party, shape (n,), since each party is in all of them."""
        return np.full(parties, len(groups))


async def descend(settings: SgdSettings, context: LearnerContext, data: list[Table]) -> Learned:
    """Run gradient descent with averages over the groups of `settings`; return models without guarantee.

    In each step the group averages its members' models, then their clipped gradients there, and each member
    steps from the averaged model. A party that misses the first average goes on from its own model; one that
    misses the second has the averaged model, and takes no step.

    Raises:
        ConfigError: data that do not fit, or a model that diverges.
    """
    return await _Descent(settings, context, data).run()


@dataclass(frozen=True, slots=True)
class AveragedChanges:
    """Result of a step: states after the exact average, the average of changes if any, and failures."""

    mixed: Rows
    changes: Averaged | None
    failures: list[str]


async def average_changes(
    averager: Averager,
    mixer: Averager,
    states: Rows,
    changes: Callable[[Rows], Awaitable[Rows]],
    group: Groups,
    weight: NDArray[np.float64] | None = None,
) -> AveragedChanges:
    """Average public states by `mixer`, then changes from these by `averager`; return both and failures.

    A party that misses the first average goes on from its own state. Whatever fails, everybody makes the same
    calls: requests are counted by them.
    """
    mixed, failures = states, list[str]()
    try:
        mixed = (await mixer.average(states, group=group)).values
    except FAILURES as error:
        failures.append(str(error))
    sent = await changes(mixed)
    try:
        return AveragedChanges(mixed, await averager.average(sent, weight, group), failures)
    except FAILURES as error:
        return AveragedChanges(mixed, None, [*failures, str(error)])


def clip_inside(vectors: Rows, bound: float) -> Rows:
    """Return vectors clipped so that their L2 norm stays within `bound` after rounding to the grid."""
    return clip_rows(vectors, bound * max(0.5, 1 - math.sqrt(vectors.shape[1]) / STEPS))


class _Descent:
    """State of one run of gradient descent: local parties' models, and the steps done and failed."""

    def __init__(self, settings: SgdSettings, context: LearnerContext, data: list[Table]) -> None:
        averager, mixer = context.average, context.mix
        if averager is None or mixer is None:
            raise LocalError(f"{settings.kind} needs averages of gradients and of models")
        self._averager, self._mixer, self._metric = averager, mixer, context.metric
        self._settings, self._context = settings, context
        self._here = averager.here
        if len(data) != len(self._here):
            reason = f"{len(data)} tables for {len(self._here)} parties"
            raise ConfigError.at("data", reason, ConfigCheck.SHAPE)
        self._local = _local_model(settings, context, data, self._here)
        start = np.zeros(settings.size) if self._local is None else self._local.start
        self._models: Rows = np.tile(start, (len(self._here), 1))
        self._weight = _weights(settings, context, data)

    async def run(self) -> Learned:
        """Take all steps of gradient descent, and return what each local party has learned."""
        settings, parties = self._settings, self._averager.parties
        measured = set(settings.measured_steps.tolist())
        planned, done = np.zeros(len(self._here), np.intp), np.zeros(len(self._here), np.intp)
        failures: dict[str, None] = {}
        metrics: list[tuple[int, float]] = []
        begin = 0
        if (taken := await self._context.progress.restore()) is not None:
            begin, self._models, planned, done = taken.number, taken.models, taken.planned, taken.done
            failures, metrics = dict.fromkeys(taken.failures), [*taken.metrics]
        for step, members in enumerate(settings.groups(parties)[begin:], begin):
            group = np.full(parties, ALONE)
            group[members] = 0
            rows = np.flatnonzero(group[self._here] == 0)
            planned[rows] += 1
            failed, absent = await self._step(step, group, rows, done)
            metric = None
            if step in measured:
                metric, more = await self._measure(group, rows)
                failed += more
            failures |= dict.fromkeys(failed)
            if metric is not None:
                metrics.append((step + 1, metric))
            await self._context.progress.keep(
                TakenSteps(step + 1, self._models, planned, done, tuple(failures), tuple(metrics))
            )
            if len(rows) or not len(self._here):
                self._context.on_step(Step(step + 1, settings.steps, tuple(failed), absent, metric))
        return Learned(
            settings.kind,
            self._models,
            () if self._local is None else self._local.names,
            planned,
            done,
            tuple(failures),
            claim=self._averager.claim,
            metrics=tuple(metrics),
        )

    async def _step(
        self, step: int, group: Groups, rows: NDArray[np.intp], done: NDArray[np.intp]
    ) -> tuple[list[str], tuple[str, ...]]:
        """Take one step of a group, and count it in `done` if it succeeds; return (failures, absent)."""
        settings = self._settings

        async def gradients(mixed: Rows) -> Rows:
            result = np.zeros_like(mixed)
            if self._local is not None:
                result[rows] = clip_inside(await self._local.gradient(mixed[rows], rows), settings.clip)
            return result

        both = await average_changes(
            self._averager, self._mixer, self._models, gradients, group, self._weight
        )
        stepped, averaged = both.mixed[rows], both.changes
        if averaged is not None:
            rate = settings.rate / np.sqrt(1 + settings.decay * step)
            stepped = stepped - rate * (averaged.values[rows] + settings.ridge * stepped)
            check_radius(stepped, settings, step)
            done[rows] += 1
        # Without gradients too: others' models count this one in their average, its own would count twice.
        self._models = self._models.copy()
        self._models[rows] = stepped
        return both.failures, () if averaged is None else averaged.absent

    async def _measure(self, group: Groups, rows: NDArray[np.intp]) -> tuple[float | None, list[str]]:
        """Return the group's mean metric, None without local members or on failure, and the failures."""
        settings = self._settings
        if self._metric is None:
            raise LocalError(f"{settings.kind} needs averages of metrics")
        middle = (settings.metric_lower + settings.metric_upper) / 2
        half = (settings.metric_upper - settings.metric_lower) / 2
        vector = np.zeros((len(self._here), 1))
        if self._local is not None:
            measured = await self._local.metric(self._models[rows], rows) - middle
            # Inside the bounds by more than rounding to the grid moves a value.
            vector[rows, 0] = np.clip(measured, -half, half) * (1 - 1 / STEPS)
        try:
            averaged = await self._metric.average(vector, self._weight, group)
        except FAILURES as error:
            return None, [str(error)]
        if not len(rows):
            return None, []
        value = float(averaged.values[rows[0], 0]) + middle
        # Noise may put it outside.
        return min(max(value, settings.metric_lower), settings.metric_upper), []


def _local_model(
    settings: SgdSettings, context: LearnerContext, data: list[Table], here: Parties
) -> LocalModel | None:
    """Return the local parties' models and data; None at an aggregator for a caller's own model."""
    if settings.loss is not None:
        for party, table in zip(here, data, strict=True):
            settings.loss.check(table, f"party {party}")
        return TableModel(settings.loss, settings.loss.points(data), data)
    if len(here) and context.own is None:
        raise ConfigError.at("model", "is 'own': it is learned from Python", ConfigCheck.UNSUPPORTED)
    return context.own


def _weights(settings: SgdSettings, context: LearnerContext, data: list[Table]) -> NDArray[np.float64] | None:
    """Return the weight of each local party, or None if all count alike."""
    if settings.weights == "equal":
        return None
    if context.own is not None:
        return context.own.weights
    # An aggregator has no data.
    return np.array([min(len(table), settings.max_points) for table in data], dtype=np.float64)


def check_radius(weights: Rows, settings: SgdSettings, step: int) -> None:
    """Raise ConfigError if a model has diverged, beyond the radius that the settings allow."""
    # Written so that NaN fails.
    if weights.size and not np.abs(weights).max() <= settings.radius:
        reason = (
            f"{settings.rate:g} diverges: a coordinate of the model is beyond {settings.radius:g} in step "
            f"{step + 1}; lower it, or raise epsilon"
        )
        raise ConfigError.at("rate", reason, ConfigCheck.INFEASIBLE)
