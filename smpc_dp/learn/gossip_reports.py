"""A pairwise statistic by gossip on reports under local differential privacy, as a learner of sessions.

Each user has one record, which becomes one of k cells and then a report [Bellet 2021, Remark 3.5]. Only what
is computed from reports is sent, so any number of meetings costs the epsilon of one report.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.learn import topology
from smpc_dp.learn.gosta import gosta_asynchronous
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.schedule import PoissonClock
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from smpc_dp.learn.local_reports import LocalReports

Statistic = Literal["gini_mean_difference", "variance", "kendall_tau"]
# The kernel's table on cells has the square of it.
MAX_CELLS = 1_024
# Of a message's norm. It travels in steps of 2^-40 of it (`exchanges.EXACT_STEPS`), which must be far
# below 1: answers and users' numbers are whole.
_MOST = 2.0**36


class GossipReports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Asynchronous GoSta on reports; a `needs.Learner`.

    Every user ends with an estimate of the mean of h over the pairs of different users, in the unit of the
    records: |x - y|, (x - y)^2 / 2, or sign(x - y) sign(x' - y') for records of two values.

    Attributes:
        statistic: h.
        lower, upper: of every value. bins: cells of each; a record stands at the centre of its cell, which
            moves each value by (upper - lower) / (2 bins) at most.
        epsilon: of each user's record, in all.
        ticks: meetings of two users, in all; everybody must have one.
        topology: who may meet. seed: public, of who meets when.
    """

    statistic: Statistic
    lower: float
    upper: float
    bins: Annotated[int, Meta(ge=2, le=MAX_CELLS)]
    epsilon: Annotated[float, Meta(gt=0, le=100)]
    ticks: Annotated[int, Meta(ge=1, le=1_000_000)]
    topology: Literal["ring", "complete"] = "complete"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1

    @property
    def fields(self) -> int:
        """Values of a record."""
        return 2 if self.statistic == "kendall_tau" else 1

    @cached_property
    def reports(self) -> LocalReports:
        """The response on cells; raises ConfigError."""
        # Not at the top: scipy.
        from smpc_dp.learn.local_reports import LocalReports

        return LocalReports.plan(self.epsilon, self.bins**self.fields)

    def matrix(self) -> NDArray[np.float64]:
        """Return h between the centres of the cells, shape (k, k)."""
        width = self.upper - self.lower
        centres = self.lower + width * (np.arange(self.bins) + 0.5) / self.bins
        apart = centres[:, None] - centres[None, :]
        if self.statistic == "gini_mean_difference":
            return np.asarray(np.abs(apart))
        if self.statistic == "variance":
            return np.asarray(apart**2 / 2)
        return np.asarray(np.kron(np.sign(apart), np.sign(apart)))

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        if not (math.isfinite(self.upper - self.lower) and self.lower < self.upper):
            return [Fault("upper", f"must be above lower and both finite: {self.lower}, {self.upper}")]
        if self.bins**self.fields > MAX_CELLS:
            what = f"{self.bins} for each of {self.fields} values are more than {MAX_CELLS} cells"
            return [Fault("bins", what)]
        try:
            meetings = self._meetings(users)
        except ConfigError as error:
            return list(error.faults)
        if not meetings.all():
            what = f"{self.ticks} are too few: user {int(meetings.argmin())} never meets anybody"
            return [Fault("ticks", what)]
        try:
            bound = self._bound(users)
        except ConfigError as error:
            return list(error.faults)
        if bound > _MOST:
            what = f"{self.epsilon:g} is too small for {self.bins} bins: an estimate may reach {bound:.3g}"
            return [Fault("epsilon", what)]
        return []

    def _clock(self, users: int) -> PoissonClock:
        drawn = topology.ring(users) if self.topology == "ring" else topology.complete(users)
        return PoissonClock(drawn, self.seed)

    def _meetings(self, users: int) -> NDArray[np.intp]:
        return np.bincount(self._clock(users).draw(self.ticks).ravel(), minlength=users)

    def _bound(self, users: int) -> float:
        """Bound a message's l2 norm: an estimate is a mean of values of the unbiased kernel."""
        largest = float(np.abs(self.reports.response.unbiased_pairs(self.matrix())).max())
        return math.hypot(largest, self.bins**self.fields, users) * (1 + 1e-9)

    def needs(self, users: int) -> Needs:
        """Return what it communicates: estimates with wandering reports, charged as one report."""
        messages = PrivateMessages(3, self._bound(users), self._meetings(users), epsilon=None, delta=None)
        return Needs(exchange=messages, own=self.reports.response.event())

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its table is one record within the bounds."""
        if table.shape != (1, self.fields):
            what = f"must be one record of {self.fields} values, shape is {table.shape}"
            raise ConfigError([Fault(user, what)])
        # Written so that NaN is caught.
        if not np.all((table >= self.lower) & (table <= self.upper)):
            raise ConfigError(
                [Fault(user, f"a value is missing or outside [{self.lower:g}, {self.upper:g}]")]
            )

    def cells(self, records: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cell of each record, shape (rows,), from (rows, fields)."""
        found = np.floor((records - self.lower) / (self.upper - self.lower) * self.bins).astype(np.int64)
        found = np.minimum(found, self.bins - 1)
        return np.asarray(found @ self.bins ** np.arange(self.fields - 1, -1, -1))

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Report and gossip; see `needs.Learner`. Reports are the system's randomness, in simulations too."""
        exchange = means.exchange
        if exchange is None:
            raise ConfigError([Fault("exchange", "is needed to meet other users")])
        users, here = exchange.users, exchange.here
        records = np.concatenate(data) if data else np.zeros((0, self.fields))
        rows = self.reports.randomise(self.cells(records), here, source=NoiseSource.system())
        found = await gosta_asynchronous(
            exchange, rows, self.reports.kernel(self.matrix()), self._clock(users), self.ticks
        )
        # The mean of all pairs has zeros for each user with itself.
        values = found.final[:, None] * (users / (users - 1))
        steps = self._meetings(users)[here]
        claim = f"{self.reports.claim}; the line by itself: {exchange.claim}"
        return Learned(
            "gossip-reports", values, (self.statistic,), steps, steps, (), self.reports.guarantee, claim
        )
