"""Gossip dual averaging on reports under local differential privacy, as a learner of sessions.

Gradients are the unbiased ones (3.10) on reports [Bellet 2021, Remark 3.5].
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.kernels.fields import Cells, Field, nearest_codes
from smpc_dp.kernels.quantiser import Quantiser
from smpc_dp.learn.averager import PeerExchange, Rows
from smpc_dp.learn.needs import Table, bound_faults
from smpc_dp.learn.on_reports import MOST, OfUser, OnReports
from smpc_dp.learn.pair_descent import PairDescent
from smpc_dp.privacy.sampling import NoiseSource

# A gradient evaluates the loss on the square of so many cells.
MAX_CELLS = 256


class DualAveragingReports(
    OnReports, PairDescent, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """See `PairDescent`; a `needs.Learner`."""

    kind: ClassVar[str] = "dual-averaging-reports"
    lower: Annotated[float, Meta(description="of every feature")]
    upper: Annotated[float, Meta(description="of every feature")]
    bins: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_CELLS)],
        Meta(description="cells of a feature; 256 cells of a record at most"),
    ]
    epsilon: OfUser
    labels: Annotated[Literal["private", "public"], Meta(description="public labels are not protected")] = (
        "private"
    )

    @cached_property
    def quantiser(self) -> Quantiser:
        """Records to cells, with their labels if these are private."""
        cells = Cells(self.lower, self.upper, bins=self.bins)
        label = Field(0, self.classes - 1, name="label", exact=True)
        fields = (*[cells] * self.features, *([label] if self.labels == "private" else []))
        return Quantiser(fields, tuple(field.steps + 1 for field in fields))

    @property
    def length(self) -> int:
        """Numbers of a message: a sum of gradients, and a report, an answer, its user and maybe a label."""
        return self.dimension + (2 if self.labels == "private" else 3)

    def setting_faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings by themselves, for so many users."""
        if faults := bound_faults(self.lower, self.upper):
            return faults
        labels = self.classes if self.labels == "private" else 1
        if math.log(self.bins) * self.features + math.log(labels) > math.log(MAX_CELLS) + 1e-9:
            what = f"{self.bins} for each of {self.features} features are more than {MAX_CELLS} cells"
            return [Fault("bins", f"{what}, labels counted" if self.labels == "private" else what)]
        return super().setting_faults(users)

    def largest_faults(self, bound: float) -> list[Fault]:
        """Return why reports would be rounded away beside what messages of this bound may reach."""
        if bound > MOST:
            what = f"{self.epsilon:g} is too small for {self.ticks} ticks: a message may reach {bound:.3g}"
            return [Fault("epsilon", what)]
        return []

    def bound(self, users: int) -> float:
        """Bound a message's l2 norm."""
        dual = self.dual_bound(self._slope, users)
        return math.hypot(dual, self.quantiser.categories, users, self.classes) * (1 + 1e-9)

    @property
    def _slope(self) -> float:
        """Bound an unbiased gradient's l2 norm."""
        apart = (self.upper - self.lower) * math.sqrt(self.features)
        return self.slope_bound(apart) * self.reports.response.law.pair_growth()

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its table is one record within the bounds."""
        self.check_shape(table, user)
        if not np.all((table[:, :-1] >= self.lower) & (table[:, :-1] <= self.upper)):
            raise ConfigError([Fault(user, f"a feature is outside [{self.lower:g}, {self.upper:g}]")])

    async def gossip(self, exchange: PeerExchange, records: Table, source: NoiseSource) -> Rows:
        """Report and descend."""
        public = self.labels == "public"
        cells = self.quantiser.categorise(nearest_codes(self.quantiser.fields, records))
        labels = records[:, -1] if public else None
        rows = self.reports.randomise(cells, exchange.here, labels=labels, source=source)
        points = self.quantiser.points()
        gradient = self.reports.gradient(self.pairwise_loss.gradient, points, labelled=public)
        known = self.reports.known(exchange.users, labels=self.classes if public else None)
        screen = self.screen(self._slope, exchange.users, self.bound(exchange.users), known)
        return await self.descend(exchange, rows, gradient, screen)
