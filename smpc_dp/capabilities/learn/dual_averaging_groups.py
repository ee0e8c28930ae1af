"""Dual averaging of objectives of single records, as a learner of sessions: sums travel in groups alone.

Each party has a table. In each step disjoint random groups average their sums of gradients by the averager,
and nothing else is sent: see `group_steps` for what is averaged, with differential privacy and without.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Groups, Rows
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.dual_averaging import dual_averaging_in_groups, inverse_root
from smpc_dp.capabilities.learn.group_steps import SLACK, Group, GroupRun, group_issues, group_requirements
from smpc_dp.capabilities.learn.models import Model, ModelName
from smpc_dp.capabilities.learn.pair_descent import prox_of
from smpc_dp.capabilities.learn.pairing_schedule import Positive, Seed
from smpc_dp.capabilities.learn.requirements import Learned, LearnerContext, Requirements, Table
from smpc_dp.capabilities.learn.sgd import Budget, Delta
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue

# Sums with noise have so many times the room of sums without.
ROOM = 1 << 10


class DualAveragingGroups(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a learner that averages sums of gradients in random groups [Duchi et al. 2012]."""

    kind: ClassVar[str] = "dual-averaging-groups"
    features: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)], Meta(description="columns of every table without the label")
    ]
    steps: Annotated[Annotated[int, Meta(ge=1, le=100_000)], Meta(description="T")]
    group: Group
    epsilon: Budget = None
    delta: Delta = None
    rate: Annotated[Positive, Meta(description="steps are rate / sqrt(t)")] = 1.0
    clip: Annotated[Positive, Meta(description="C, the L2 norm that a party's gradient is clipped to")] = 1.0
    model: Annotated[
        ModelName, Meta(description="labels are 0 and 1 for logistic, 0 to `classes` - 1 for softmax")
    ] = "logistic"
    classes: Annotated[Annotated[int, Meta(ge=2, le=10_000)], Meta(description="labels of softmax")] = 2
    regulariser: Annotated[
        Literal["ball", "l1", "l2", "none"],
        Meta(description="ball: models stay in the L2 ball of `radius`; l2: the squared norm"),
    ] = "ball"
    radius: Annotated[Positive, Meta(description="of the ball")] = 10.0
    weight: Annotated[Positive, Meta(description="of l1 and l2")] = 0.01
    seed: Annotated[Seed, Meta(description="public, of the groups")] = 0

    @property
    def loss(self) -> Model:
        """The predictive model (such as linear or logistic) with its loss."""
        return Model(self.model, self.features, self.classes)

    def draws(self, parties: int) -> GroupDraws:
        """Return the public draws of random groups, of which each step uses one round."""
        return GroupDraws(parties, self.group, self.seed)

    def groups(self, parties: int) -> NDArray[np.intp]:
        """Return the members of all groups, in order, shape (steps times groups of a step, s)."""
        draws = self.draws(parties)
        return draws.draw(self.steps * draws.each)

    def groups_at_once(self, parties: int) -> int:
        """Return how many groups of parties average in one step."""
        return self.draws(parties).each

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        self.loss.check(table, party)

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of these settings in a network of this many parties."""
        return group_issues(self.group, parties, self.epsilon, self.delta)

    def requirements(self, parties: int) -> Requirements:
        """Return the averages needed: one per step of each group member, with `epsilon` two."""
        draws = self.draws(parties)
        budget = self.epsilon, self.delta
        return group_requirements(draws, self.steps, self.loss.length, self.clip, self._room(draws), budget)

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run dual averaging in groups on local tables; return the models, the guarantee not yet set."""
        averager, model = context.average, self.loss
        if averager is None:
            raise ConfigError.at("averager", "is needed for groups", ConfigCheck.MISSING)
        points, draws = model.points(data), self.draws(averager.parties)
        run = GroupRun(
            averager,
            context.mix,
            draws,
            self.steps,
            self._room(draws),
            factor=1 / draws.share,
            clip=self.clip,
            on_step=context.on_step,
        )

        async def slopes(thetas: Rows, rows: NDArray[np.intp], _group: Groups, _step: int) -> Rows:
            return model.gradient(thetas[rows], points, rows)

        values, outcome = await dual_averaging_in_groups(
            run,
            slopes,
            dimension=model.length,
            step_size=inverse_root(self.rate),
            prox=prox_of(self.regulariser, self.radius, self.weight),
        )
        return Learned(
            self.kind,
            values,
            model.names,
            outcome.planned,
            outcome.done,
            outcome.failures,
            claim=averager.claim,
        )

    def _room(self, draws: GroupDraws) -> float:
        """Return the limit on coordinates of a party's gradient sum; a run that exceeds it is stopped."""
        most = self.steps * self.clip / draws.share * SLACK
        return most if self.epsilon is None else most * ROOM
