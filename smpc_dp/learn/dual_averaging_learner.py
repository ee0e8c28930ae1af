"""Gossip dual averaging as a learner of sessions, of records in the clear.

Each user has one record. Records travel from user to user, sealed against everybody else: nothing protects
them from those who meet them. `dual_averaging_reports` is the same with local differential privacy.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.learn.averager import Rows, whole
from smpc_dp.learn.exchanges import EXACT_STEPS, on_messages_grid
from smpc_dp.learn.gossip_clear import CLAIM
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.pair_descent import PairDescent, Positive
from smpc_dp.learn.pair_statistics import SLACK

# Steps of a message's grid that a record is to have, and a label.
_FINE, _WHOLE = 2.0**10, 8


class DualAveraging(PairDescent, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """See `PairDescent`; a `needs.Learner`. `record_bound`: of the l2 norm of a record's features."""

    record_bound: Annotated[Positive, Meta(description="of the L2 norm of a record's features")]

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        faults = self.setting_faults(users)
        if faults:
            return faults
        bound = self._bound(users)
        if bound > EXACT_STEPS * min(1 / _WHOLE, self.record_bound / _FINE):
            what = f"{self.ticks}: sums may reach {bound:.3g}, beside which records are rounded away"
            return [Fault("ticks", what)]
        return []

    def _bound(self, users: int) -> float:
        """Bound a message's l2 norm."""
        dual = self.dual_bound(self.slope_bound(2 * self.record_bound), users)
        return math.hypot(dual, self.record_bound, self.classes) * (1 + 1e-9)

    def _known(self, bound: float, records: Rows) -> NDArray[np.bool_]:
        """Tell which records are within their bound, shape (m,)."""
        norms = np.linalg.norm(records[:, :-1], axis=1)
        return np.asarray((norms <= self.record_bound + SLACK * bound) & whole(records[:, -1], self.classes))

    def needs(self, users: int) -> Needs:
        """Return what it communicates: sums of gradients with wandering records, unprotected."""
        length = self.dimension + self.features + 1
        return Needs(exchange=PrivateMessages(length, self._bound(users), self.meetings(users)))

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its table is one record within its bound."""
        self.check_shape(table, user)
        norm = float(np.linalg.norm(table[0, :-1]))
        if norm > self.record_bound:
            raise ConfigError([Fault(user, f"the record's norm exceeds {self.record_bound:g}")])

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Learn; see `needs.Learner`."""
        exchange = means.peers
        records = np.concatenate(data) if data else np.zeros((0, self.features + 1))
        # What others have of a record is then exactly what its user has.
        records = on_messages_grid(records, self._bound(exchange.users))
        slope, bound = self.slope_bound(2 * self.record_bound), self._bound(exchange.users)
        screen = self.screen(slope, exchange.users, bound, partial(self._known, bound))
        found = await self.descend(exchange, records, self.pairwise_loss.gradient, screen)
        steps = self.meetings(exchange.users)[exchange.here]
        claim = f"{CLAIM}; {exchange.claim}"
        return Learned("dual-averaging", found.final, self.names, steps, steps, claim=claim)
