"""A pairwise statistic by gossip on records in the clear, as a learner of sessions.

Records travel from user to user, sealed against everybody else: nothing protects them from those who meet
them. `gossip_reports` is the same with local differential privacy. Of a kernel that is described the codes
travel, with their user's number, so that nobody pairs a record with itself: its kernel need not be 0 then.
"""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import Fault
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.learn.averager import PeerExchange, Rows, whole
from smpc_dp.learn.exchanges import EXACT_STEPS, on_messages_grid
from smpc_dp.learn.gosta import PairKernel
from smpc_dp.learn.needs import Table
from smpc_dp.learn.pair_statistics import SLACK, PairEstimate
from smpc_dp.privacy.sampling import NoiseSource

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

    kind: ClassVar[str] = "gossip-clear"

    @property
    def length(self) -> int:
        """Numbers of a message: of codes one more, their user's."""
        return self.columns + self.fields + (self.own is not None)

    def largest_faults(self, bound: float) -> list[Fault]:
        """Return why records would be rounded away beside what messages of this bound may reach."""
        finest = min(self.upper - self.lower, 1.0) / _FINE if self.own is None else 1 / _WHOLE
        if bound > finest * EXACT_STEPS:
            what = f"{self.ticks}: messages may reach {bound:.3g}, beside which records are rounded away"
            return [Fault("ticks", what)]
        return []

    def bound(self, users: int) -> float:
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
        slack = SLACK * self.bound(users)
        good = ((values >= self.lower - slack) & (values <= self.upper + slack)).all(axis=1)
        return np.asarray(good & whole(records[:, 1], 2) if self.statistic == "auc" else good)

    async def gossip(
        self,
        exchange: PeerExchange,
        records: Table,
        source: NoiseSource,  # noqa: ARG002
    ) -> Rows:
        """Gossip on records, or on their codes."""
        users = exchange.users
        bound = self.bound(users)
        if self.own is not None:
            rows, kernel = np.column_stack([self.own.codes(records), exchange.here]) * 1.0, on_codes(self.own)
        else:
            # A record that comes back to its user must be the same: h jumps at equal values.
            rows, kernel = on_messages_grid(records, bound), self.form.value
        screen = self.screen(self._largest, bound, partial(self._known, users))
        return await self.estimate(exchange, rows, kernel, screen)
