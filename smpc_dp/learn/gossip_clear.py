"""A pairwise statistic by gossip on records in the clear, as a learner of sessions.

Records travel from user to user, sealed against everybody else: nothing protects them from those who meet
them. `gossip_reports` is the same with local differential privacy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.learn.averager import Rows, whole
from smpc_dp.learn.exchanges import EXACT_STEPS, on_messages_grid
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.pair_statistics import SLACK, PairEstimate

CLAIM = "NO PRIVACY between users: records wander from user to user, and each sees those that it gets"
# A message travels in `exchanges.EXACT_STEPS` steps of its bound; a range of values is to have so many.
_FINE = 2.0**20


class GossipClear(PairEstimate, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """GoSta, or U2-gossip, on records; a `needs.Learner`. See `PairEstimate`."""

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        faults = self.setting_faults(users)
        if not faults and self._bound() > min(self.upper - self.lower, 1.0) * EXACT_STEPS / _FINE:
            what = (
                f"{self.ticks}: messages may reach {self._bound():.3g}, beside which records are rounded away"
            )
            faults.append(Fault("ticks", what))
        return faults

    def _bound(self) -> float:
        """Bound a message's l2 norm: what the method sends of its estimate, and a record."""
        record = math.sqrt(self.fields) * max(abs(self.lower), abs(self.upper), 1.0)
        return math.hypot(self.state_bound(self._largest), record) * (1 + 1e-9)

    @property
    def _largest(self) -> float:
        """Bound |h|."""
        return max(abs(self.form.low), abs(self.form.high(self.upper - self.lower)))

    def _known(self, records: Rows) -> NDArray[np.bool_]:
        """Tell which records are within the bounds, shape (m,)."""
        values = records[:, :1] if self.statistic == "auc" else records
        slack = SLACK * self._bound()
        good = ((values >= self.lower - slack) & (values <= self.upper + slack)).all(axis=1)
        return np.asarray(good & whole(records[:, 1], 2) if self.statistic == "auc" else good)

    def needs(self, users: int) -> Needs:
        """Return what it communicates: estimates with wandering records, unprotected."""
        return Needs(
            exchange=PrivateMessages(
                self.columns + self.fields, self._bound(), self.meetings(users), epsilon=None, delta=None
            )
        )

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Gossip; see `needs.Learner`."""
        exchange = means.exchange
        if exchange is None:
            raise ConfigError([Fault("exchange", "is needed to meet other users")])
        users = exchange.users
        records = np.concatenate(data) if data else np.zeros((0, self.fields))
        # A record that comes back to its user must be the same: h jumps at equal values.
        records = on_messages_grid(records, self._bound())
        found = await self.estimate(
            exchange,
            records,
            self.form.value,
            self.screen(self._largest, self._bound(), self._known),
        )
        steps = self.meetings(users)[exchange.here]
        claim = f"{CLAIM}; {exchange.claim}"
        values = self.over_pairs(found.final, users)
        return Learned("gossip-clear", values, (self.statistic,), steps, steps, claim=claim)
