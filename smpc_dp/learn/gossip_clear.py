"""A pairwise statistic by gossip on records in the clear, as a learner of sessions.

Records travel from user to user, sealed against everybody else: nothing protects them from those who meet
them. `gossip_reports` is the same with local differential privacy. Of a kernel that is described the codes
travel, with their user's number, so that nobody pairs a record with itself: its kernel need not be 0 then.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import Fault
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.learn.averager import Rows, whole
from smpc_dp.learn.exchanges import EXACT_STEPS, on_messages_grid
from smpc_dp.learn.gosta import PairKernel
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.pair_statistics import SLACK, PairEstimate

CLAIM = "NO PRIVACY between users: records wander from user to user, and each sees those that it gets"
# A message travels in `exchanges.EXACT_STEPS` steps of its bound; a range of values is to have so many, and 1
# where records travel as codes.
_FINE, _WHOLE = 2.0**20, 16


def on_codes(kernel: Kernel) -> PairKernel:
    """Return a kernel on rows of codes with their users' numbers: 0 for rows of one user."""

    def values(own: Rows, other: Rows) -> Rows:
        first, second = np.rint(own).astype(np.int64), np.rint(other).astype(np.int64)
        found = kernel.decode(kernel.integer(first[:, :-1], second[:, :-1]))
        return np.where(first[:, -1] == second[:, -1], 0.0, found)

    return values


class GossipClear(PairEstimate, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """GoSta, or U2-gossip, on records; a `needs.Learner`. See `PairEstimate`."""

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        faults = self.setting_faults(users)
        if faults:
            return faults
        bound = self._bound(users)
        finest = min(self.upper - self.lower, 1.0) / _FINE if self.own is None else 1 / _WHOLE
        if bound > finest * EXACT_STEPS:
            what = f"{self.ticks}: messages may reach {bound:.3g}, beside which records are rounded away"
            return [Fault("ticks", what)]
        return []

    def _bound(self, users: int) -> float:
        """Bound a message's l2 norm: what the method sends of its estimate, and a record."""
        if self.own is None:
            record = math.sqrt(self.fields) * max(abs(self.lower), abs(self.upper), 1.0)
        else:
            record = math.hypot(users, *(field.steps for field in self.own.fields))
        return math.hypot(self.state_bound(self._largest), record) * (1 + 1e-9)

    @property
    def _largest(self) -> float:
        """Bound |h|."""
        if self.own is not None:
            return max(abs(self.own.low), abs(self.own.high))
        return max(abs(self.form.low), abs(self.form.high(self.upper - self.lower)))

    def _known(self, users: int, records: Rows) -> NDArray[np.bool_]:
        """Tell which records are within the bounds, shape (m,)."""
        if self.own is not None:
            below = (*(field.steps + 1 for field in self.own.fields), users)
            possible = [whole(column, most) for column, most in zip(records.T, below, strict=True)]
            return np.asarray(np.logical_and.reduce(possible))
        values = records[:, :1] if self.statistic == "auc" else records
        slack = SLACK * self._bound(users)
        good = ((values >= self.lower - slack) & (values <= self.upper + slack)).all(axis=1)
        return np.asarray(good & whole(records[:, 1], 2) if self.statistic == "auc" else good)

    def needs(self, users: int) -> Needs:
        """Return what it communicates: estimates with wandering records, unprotected."""
        length = self.columns + self.fields + (self.own is not None)
        return Needs(exchange=PrivateMessages(length, self._bound(users), self.meetings(users)))

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Gossip; see `needs.Learner`."""
        exchange = means.peers
        users = exchange.users
        records = np.concatenate(data) if data else np.zeros((0, self.fields))
        bound = self._bound(users)
        if self.own is not None:
            rows, kernel = np.column_stack([self.own.codes(records), exchange.here]) * 1.0, on_codes(self.own)
        else:
            # A record that comes back to its user must be the same: h jumps at equal values.
            rows, kernel = on_messages_grid(records, bound), self.form.value
        screen = self.screen(self._largest, bound, partial(self._known, users))
        found = await self.estimate(exchange, rows, kernel, screen)
        steps = self.meetings(users)[exchange.here]
        claim = f"{CLAIM}; {exchange.claim}"
        values = self.over_pairs(found.final, users)
        return Learned("gossip-clear", values, (self.name,), steps, steps, claim=claim)
