"""Gossip dual averaging as a learner of sessions, of records in the clear.

Each user has one record. Records travel from user to user, sealed against everybody else: nothing protects
them from those who meet them. `dual_averaging_reports` is the same with local differential privacy.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.learn.averager import PeerExchange, Rows, whole
from smpc_dp.learn.exchanges import EXACT_STEPS, on_messages_grid
from smpc_dp.learn.meetings import Positive
from smpc_dp.learn.needs import Table
from smpc_dp.learn.pair_descent import PairDescent
from smpc_dp.learn.pair_statistics import SLACK
from smpc_dp.privacy.sampling import NoiseSource

# Steps of a message's grid that a record is to have, and a label.
_FINE, _WHOLE = 2.0**10, 8


class DualAveraging(PairDescent, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """See `PairDescent`; a `needs.Learner`. `record_bound`: of the l2 norm of a record's features."""

    kind: ClassVar[str] = "dual-averaging"
    record_bound: Annotated[Positive, Meta(description="of the L2 norm of a record's features")]

    @property
    def length(self) -> int:
        """Numbers of a message: a sum of gradients and a record."""
        return self.dimension + self.fields

    def largest_faults(self, bound: float) -> list[Fault]:
        """Return why records would be rounded away beside what messages of this bound may reach."""
        if bound > EXACT_STEPS * min(1 / _WHOLE, self.record_bound / _FINE):
            what = f"{self.ticks}: sums may reach {bound:.3g}, beside which records are rounded away"
            return [Fault("ticks", what)]
        return []

    def bound(self, users: int) -> float:
        """Bound a message's l2 norm."""
        dual = self.dual_bound(self.slope_bound(2 * self.record_bound), users)
        return math.hypot(dual, self.record_bound, self.classes) * (1 + 1e-9)

    def _known(self, bound: float, records: Rows) -> NDArray[np.bool_]:
        """Tell which records are within their bound, shape (m,)."""
        norms = np.linalg.norm(records[:, :-1], axis=1)
        return np.asarray((norms <= self.record_bound + SLACK * bound) & whole(records[:, -1], self.classes))

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its table is one record within its bound."""
        self.check_shape(table, user)
        norm = float(np.linalg.norm(table[0, :-1]))
        if norm > self.record_bound:
            raise ConfigError([Fault(user, f"the record's norm exceeds {self.record_bound:g}")])

    async def gossip(
        self,
        exchange: PeerExchange,
        records: Table,
        source: NoiseSource,  # noqa: ARG002
    ) -> Rows:
        """Descend on records."""
        slope, bound = self.slope_bound(2 * self.record_bound), self.bound(exchange.users)
        # What others have of a record is then exactly what its user has.
        records = on_messages_grid(records, bound)
        screen = self.screen(slope, exchange.users, bound, partial(self._known, bound))
        return await self.descend(exchange, records, self.pairwise_loss.gradient, screen)
