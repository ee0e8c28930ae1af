"""A linear score that maximises the AUC, by gossip dual averaging, as a learner of sessions.

Each user has one record. Records travel in the clear between users, sealed against everybody else: nothing
protects them from those who meet them, so this is for records that the users may see.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.learn import topology
from smpc_dp.learn.averager import Rows
from smpc_dp.learn.dual_averaging import dual_averaging_asynchronous, inverse_root
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.pairwise_losses import l2_ball, logistic_auc
from smpc_dp.learn.schedule import PoissonClock
from smpc_dp.learn.topology import Topology

CLAIM = "NO PRIVACY between users: records wander from user to user, and each sees those that it gets"

# A message travels in so many steps of its bound (`exchanges.EXACT_STEPS`); a record is to have _FINE, and a
# label eight.
_STEPS, _FINE = 2.0**40, 2.0**10


class GossipAuc(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asynchronous dual averaging of the logistic AUC loss; a `needs.Learner`.

    Attributes:
        features: columns before the label.
        record_bound: of the l2 norm of a record's features.
        ticks: meetings of two users, in all.
        topology: who may meet. Only graphs that need no draw: others may differ between machines.
        rate: of the step sizes rate/sqrt(t). radius: theta stays in the ball of this l2 norm.
        seed: public, of who meets when.
    """

    features: Annotated[int, Meta(ge=1, le=10_000)]
    record_bound: Annotated[float, Meta(gt=0, le=1e6)]
    ticks: Annotated[int, Meta(ge=1, le=1_000_000)]
    topology: Literal["ring", "complete"] = "complete"
    rate: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    radius: Annotated[float, Meta(gt=0, le=1e6)] = 10.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        try:
            bound = self._bound(users)
        except ConfigError as error:
            return list(error.faults)
        if bound > _STEPS * min(1 / 8, self.record_bound / _FINE):
            what = f"{self.ticks}: sums may reach {bound:.3g}, beside which records are rounded away"
            return [Fault("ticks", what)]
        return []

    def _bound(self, users: int) -> float:
        """Bound a message's l2 norm: a tick adds one weighted gradient, of norm 2 record_bound at most."""
        dual = self.ticks / float(self._clock(users).chances.min()) * 2 * self.record_bound
        return math.sqrt(dual**2 + self.record_bound**2 + 1.0)

    def _graph(self, users: int) -> Topology:
        return topology.ring(users) if self.topology == "ring" else topology.complete(users)

    def _clock(self, users: int) -> PoissonClock:
        return PoissonClock(self._graph(users), self.seed)

    def _meetings(self, users: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        return np.bincount(self._clock(users).draw(self.ticks).ravel(), minlength=users)

    def needs(self, users: int) -> Needs:
        """Return what it communicates: sums of gradients with wandering records, unprotected."""
        return Needs(
            exchange=PrivateMessages(
                length=2 * self.features + 1,
                l2_bound=self._bound(users),
                participations=self._meetings(users),
                epsilon=None,
                delta=None,
            )
        )

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its table is one record with a label 0 or 1."""
        if table.shape != (1, self.features + 1):
            what = f"must be one record of {self.features} features and a label, shape is {table.shape}"
            raise ConfigError([Fault(user, what)])
        if not np.isfinite(table).all():
            raise ConfigError([Fault(user, "a value is missing or not finite")])
        if table[0, -1] not in (0.0, 1.0):
            raise ConfigError([Fault(user, f"the label must be 0 or 1, is {table[0, -1]:g}")])
        norm = float(np.linalg.norm(table[0, :-1]))
        if norm > self.record_bound:
            raise ConfigError([Fault(user, f"the record's norm {norm:g} exceeds {self.record_bound:g}")])

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Learn; see `needs.Learner`."""
        if means.exchange is None:
            raise ConfigError([Fault("exchange", "is needed to meet other users")])
        users, here = means.exchange.users, means.exchange.here
        loss = logistic_auc()

        def gradient(theta: Rows, own: Rows, other: Rows) -> Rows:
            # A label that travelled was rounded to the grid of the messages.
            met = np.column_stack([other[:, :-1], np.rint(other[:, -1])])
            return loss.gradient(theta, own, met)

        records = np.concatenate(data) if data else np.zeros((0, self.features + 1))
        found = await dual_averaging_asynchronous(
            means.exchange,
            records,
            gradient,
            self._clock(users),
            self.ticks,
            dimension=self.features,
            step_size=inverse_root(self.rate),
            prox=l2_ball(self.radius),
        )
        steps = self._meetings(users)[here]
        names = tuple(f"theta {place}" for place in range(self.features))
        return Learned(
            "gossip-auc", found.final, names, steps, steps, claim=f"{CLAIM}; {means.exchange.claim}"
        )
