"""Gossip dual averaging on reports under local differential privacy, as a learner of sessions.

A user's record becomes one of k cells and then a report, which stands for it everywhere; gradients are the
unbiased ones (3.10) on reports [Bellet 2021, Remark 3.5]. So any number of meetings costs one report.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.kernels.fields import Cells, Field, nearest_codes
from smpc_dp.kernels.quantiser import Quantiser
from smpc_dp.learn.exchanges import EXACT_STEPS
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.pair_descent import PairDescent

if TYPE_CHECKING:
    from smpc_dp.learn.local_reports import LocalReports

# A gradient evaluates the loss on the square of so many cells.
MAX_CELLS = 256
# Answers, users' numbers and labels are whole: steps of a message's grid in 1.
_WHOLE = 16


class DualAveragingReports(PairDescent, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """See `PairDescent`; a `needs.Learner`."""

    lower: Annotated[float, Meta(description="of every feature")]
    upper: Annotated[float, Meta(description="of every feature")]
    bins: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_CELLS)],
        Meta(description="cells of a feature; 256 cells of a record at most"),
    ]
    epsilon: Annotated[
        Annotated[float, Meta(gt=0, le=100)], Meta(description="of each user; there is no `delta`")
    ]
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

    @cached_property
    def reports(self) -> LocalReports:
        """The response on cells; raises ConfigError."""
        # Not at the top: scipy.
        from smpc_dp.learn.local_reports import LocalReports

        return LocalReports.plan(self.epsilon, self.quantiser.categories)

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        if not (math.isfinite(self.upper - self.lower) and self.lower < self.upper):
            return [Fault("upper", f"must be above lower and both finite: {self.lower}, {self.upper}")]
        labels = self.classes if self.labels == "private" else 1
        if math.log(self.bins) * self.features + math.log(labels) > math.log(MAX_CELLS) + 1e-9:
            what = f"{self.bins} for each of {self.features} features are more than {MAX_CELLS} cells"
            return [Fault("bins", f"{what}, labels counted" if self.labels == "private" else what)]
        faults = self.setting_faults(users)
        if faults:
            return faults
        try:
            bound = self._bound(users)
        except ConfigError as error:
            return list(error.faults)
        if bound > EXACT_STEPS / _WHOLE:
            what = f"{self.epsilon:g} is too small for {self.ticks} ticks: a message may reach {bound:.3g}"
            return [Fault("epsilon", what)]
        return []

    def _bound(self, users: int) -> float:
        """Bound a message's l2 norm."""
        dual = self.dual_bound(self._slope, users)
        return math.hypot(dual, self.quantiser.categories, users, self.classes) * (1 + 1e-9)

    @property
    def _slope(self) -> float:
        """Bound an unbiased gradient's l2 norm."""
        apart = (self.upper - self.lower) * math.sqrt(self.features)
        return self.slope_bound(apart) * self.reports.response.law.pair_growth()

    def needs(self, users: int) -> Needs:
        """Return what it communicates: sums of gradients with wandering reports, charged as one report."""
        length = self.dimension + (2 if self.labels == "private" else 3)
        messages = PrivateMessages(length, self._bound(users), self.meetings(users))
        return Needs(exchange=messages, own=self.reports.response.event())

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its table is one record within the bounds."""
        self.check_shape(table, user)
        if not np.all((table[:, :-1] >= self.lower) & (table[:, :-1] <= self.upper)):
            raise ConfigError([Fault(user, f"a feature is outside [{self.lower:g}, {self.upper:g}]")])

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Report and learn; see `needs.Learner`."""
        exchange = means.peers
        here, public = exchange.here, self.labels == "public"
        records = np.concatenate(data) if data else np.zeros((0, self.features + 1))
        codes = nearest_codes(self.quantiser.fields, records)
        rows = self.reports.randomise(
            self.quantiser.categorise(codes),
            here,
            labels=records[:, -1] if public else None,
            source=means.source,
        )
        gradient = self.reports.gradient(
            self.pairwise_loss.gradient, self.quantiser.points(), labelled=public
        )
        known = self.reports.known(exchange.users, labels=self.classes if public else None)
        screen = self.screen(self._slope, exchange.users, self._bound(exchange.users), known)
        found = await self.descend(exchange, rows, gradient, screen)
        steps = self.meetings(exchange.users)[here]
        claim = f"{self.reports.claim}; the line by itself: {exchange.claim}"
        guarantee = self.reports.guarantee
        return Learned("dual-averaging-reports", found.final, self.names, steps, steps, (), guarantee, claim)
