"""A pairwise statistic by gossip on reports under local differential privacy, as a learner of sessions."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from smpc_dp.errors import Fault
from smpc_dp.kernels.fields import Cells, Floats
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.kernels.named import auc
from smpc_dp.kernels.quantiser import Quantiser, bins_of
from smpc_dp.learn.averager import PeerExchange, Rows
from smpc_dp.learn.gosta import PairKernel
from smpc_dp.learn.needs import Table
from smpc_dp.learn.on_reports import MOST, OfUser, OnReports
from smpc_dp.learn.pair_statistics import PairEstimate
from smpc_dp.privacy.sampling import NoiseSource

# The kernel's table on cells has the square of it.
MAX_CELLS = 1_024


class GossipReports(
    OnReports, PairEstimate, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """GoSta, or U2-gossip, on reports; a `needs.Learner`.

    Every user ends with an estimate of the mean of h over the pairs of different users, in the unit of the
    records.
    """

    kind: ClassVar[str] = "gossip-reports"
    bins: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_CELLS)],
        Meta(description="cells of a value; 1,024 cells of a record at most"),
    ]
    epsilon: OfUser
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

    @property
    def length(self) -> int:
        """Numbers of a message: a report has an answer, its user and maybe a label."""
        return self.columns + (3 if self.labelled else 2)

    def setting_faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings by themselves, for so many users."""
        if self.labels == "public" and self.statistic != "auc":
            return [Fault("labels", "are of auc alone")]
        faults = super().setting_faults(users)
        if not faults and math.prod(bins_of(self.kernel, self.bins)) > MAX_CELLS:
            what = f"{self.bins} for each value of a record are more than {MAX_CELLS} cells"
            return [Fault("bins", what)]
        return faults

    def largest_faults(self, bound: float) -> list[Fault]:
        """Return why reports would be rounded away beside what messages of this bound may reach."""
        if bound > MOST:
            what = f"{self.epsilon:g} is too small for {self.bins} bins: a message may reach {bound:.3g}"
            return [Fault("epsilon", what)]
        return []

    def bound(self, users: int) -> float:
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

    def _kernel(self) -> PairKernel:
        """Return the unbiased kernel on reports, of the statistic over all pairs."""
        if not self.labelled:
            return self.reports.kernel(self._matrix)
        half = self.reports.labelled_kernel(self._matrix)
        return lambda own, other: 2 * half(own, other)

    async def gossip(self, exchange: PeerExchange, records: Table, source: NoiseSource) -> Rows:
        """Report and gossip."""
        labels = records[:, 1] if self.labelled else None
        codes = self.kernel.codes(records[:, : len(self.kernel.fields)])
        cells = self.quantiser.categorise(codes)
        rows = self.reports.randomise(cells, exchange.here, labels=labels, source=source)
        known = self.reports.known(exchange.users, labels=2 if self.labelled else None)
        screen = self.screen(self._largest, self.bound(exchange.users), known)
        return await self.estimate(exchange, rows, self._kernel(), screen)
