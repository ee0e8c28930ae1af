"""A pairwise statistic by gossip on reports under local differential privacy, as a learner of sessions.

Each user has one record, which becomes one of k cells and then a report [Bellet 2021, Remark 3.5]. Only what
is computed from reports is sent, so any number of meetings costs the epsilon of one report.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.kernels.fields import Cells, Floats
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.kernels.named import auc
from smpc_dp.kernels.quantiser import Quantiser, bins_of
from smpc_dp.learn.gosta import PairKernel
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.pair_statistics import PairEstimate

if TYPE_CHECKING:
    from smpc_dp.learn.local_reports import LocalReports

# The kernel's table on cells has the square of it.
MAX_CELLS = 1_024
# Of a message's norm. It travels in steps of 2^-40 of it (`exchanges.EXACT_STEPS`), which must be far
# below 1: answers and users' numbers are whole.
_MOST = 2.0**36


class GossipReports(PairEstimate, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """GoSta, or U2-gossip, on reports; a `needs.Learner`.

    Every user ends with an estimate of the mean of h over the pairs of different users, in the unit of the
    records.
    """

    bins: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_CELLS)],
        Meta(description="cells of a value; 1,024 cells of a record at most"),
    ]
    epsilon: Annotated[
        Annotated[float, Meta(gt=0, le=100)], Meta(description="of each user; there is no `delta`")
    ]
    labels: Annotated[
        Literal["private", "public"], Meta(description="of auc: public labels are not protected")
    ] = "private"

    @property
    def labelled(self) -> bool:
        """Whether reports come with their labels."""
        return self.statistic == "auc" and self.labels == "public"

    @cached_property
    def kernel(self) -> Kernel:
        """h on cells; of label 1 and 0 where labels are sent."""
        if self.own is not None:
            return self.own
        form = auc if self.labelled else self.form
        return form(*[Cells(self.lower, self.upper, bins=self.bins) for _ in form.fields])

    @cached_property
    def quantiser(self) -> Quantiser:
        """Records to cells."""
        return Quantiser(self.kernel.fields, bins_of(self.kernel, self.bins))

    @cached_property
    def reports(self) -> LocalReports:
        """The response on cells; raises ConfigError."""
        # Not at the top: scipy.
        from smpc_dp.learn.local_reports import LocalReports

        return LocalReports.plan(self.epsilon, self.quantiser.categories)

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        if self.labels == "public" and self.statistic != "auc":
            return [Fault("labels", "are of auc alone")]
        faults = self.setting_faults(users)
        if faults:
            return faults
        if math.prod(bins_of(self.kernel, self.bins)) > MAX_CELLS:
            what = f"{self.bins} for each value of a record are more than {MAX_CELLS} cells"
            return [Fault("bins", what)]
        try:
            bound = self._bound(users)
        except ConfigError as error:
            return list(error.faults)
        if bound > _MOST:
            what = f"{self.epsilon:g} is too small for {self.bins} bins: a message may reach {bound:.3g}"
            return [Fault("epsilon", what)]
        return []

    def _bound(self, users: int) -> float:
        """Bound a message's l2 norm: an estimate is a mean of values of the unbiased kernel."""
        return math.hypot(self.state_bound(self._largest), self.quantiser.categories, users) * (1 + 1e-9)

    @cached_property
    def _matrix(self) -> Floats:
        """h between cells, shape (k, k)."""
        return self.quantiser.matrix(self.kernel)

    @cached_property
    def _largest(self) -> float:
        """Bound the unbiased kernel's absolute value."""
        return float(np.abs(self.reports.response.law.unbiased_pairs(self._matrix)).max())

    def needs(self, users: int) -> Needs:
        """Return what it communicates: estimates with wandering reports, charged as one report."""
        length = self.columns + (3 if self.labelled else 2)
        messages = PrivateMessages(length, self._bound(users), self.meetings(users))
        return Needs(exchange=messages, own=self.reports.response.event())

    def _kernel(self) -> PairKernel:
        """Return the unbiased kernel on reports, of the statistic over all pairs."""
        if not self.labelled:
            return self.reports.kernel(self._matrix)
        half = self.reports.labelled_kernel(self._matrix)
        return lambda own, other: 2 * half(own, other)

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Report and gossip; see `needs.Learner`."""
        exchange = means.peers
        users, here = exchange.users, exchange.here
        records = np.concatenate(data) if data else np.zeros((0, self.fields))
        labels = records[:, 1] if self.labelled else None
        codes = self.kernel.codes(records[:, : len(self.kernel.fields)])
        rows = self.reports.randomise(
            self.quantiser.categorise(codes), here, labels=labels, source=means.source
        )
        known = self.reports.known(users, labels=2 if self.labelled else None)
        screen = self.screen(self._largest, self._bound(users), known)
        found = await self.estimate(exchange, rows, self._kernel(), screen)
        steps = self.meetings(users)[here]
        claim = f"{self.reports.claim}; the line by itself: {exchange.claim}"
        return Learned(
            "gossip-reports",
            self.over_pairs(found.final, users),
            (self.name,),
            steps,
            steps,
            (),
            self.reports.guarantee,
            claim,
        )
