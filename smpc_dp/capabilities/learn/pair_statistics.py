"""Means over pairs of records, by gossip, as learners of sessions: of records in the clear, and of reports.

In the clear records go from party to party, encrypted against all others: nothing protects them from the
parties that receive them. Of a described kernel the codes are sent, with their party's number, so that no
party pairs a record with itself: its kernel need not be 0 then.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange, PlausibilityCheck, Rows, is_whole
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS, round_to_messages_grid
from smpc_dp.capabilities.learn.gosta import Estimates, PairKernel, gosta, gosta_asynchronous, u2_gossip
from smpc_dp.capabilities.learn.on_reports import MOST, OfParty, OnReports
from smpc_dp.capabilities.learn.pairing_schedule import PairingSchedule
from smpc_dp.capabilities.learn.requirements import Table, bound_issues
from smpc_dp.capabilities.pairs.kernels.described import read_kernel
from smpc_dp.capabilities.pairs.kernels.fields import Cells, Floats
from smpc_dp.capabilities.pairs.kernels.forms import Form, KernelFactory
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import FORMS, auc, registered_kernel
from smpc_dp.capabilities.reports.quantiser import Quantiser, bins_of
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.extensions import Group, describe_others
from smpc_dp.privacy.sampling import NoiseSource

STATISTICS = ("gini_mean_difference", "variance", "kendall_tau", "auc")
Method = Literal["gosta", "u2"]
_BOUND = Meta(
    description="of every value", extra={"default": "needed for a statistic with a name, and for it alone"}
)
# Whether each record, shape (m, columns), is one that a party can have: shape (m,).
Known = Callable[[Rows], NDArray[np.bool_]]

# The part of a message's bound by which rounding may move a value.
SLACK = 2.0**-31


class PairEstimate(PairingSchedule, frozen=True, kw_only=True):
    """Base of settings for estimating, by gossip, the mean of a kernel over pairs of records.

    Attributes, beside those of `PairingSchedule`:
        statistic: h by its name, one of `STATISTICS` or a kernel's that another package registers; or a
            description as `capabilities.pairs.kernels.described.describe` makes of any kernel without labels.
        lower, upper: of every value, where h has a name; a label is 0 or 1.
        method: "gosta", or "u2", the baseline, with two meetings per tick and a global clock.
        positives: n+, how many parties have label 1, public; of "auc", and only there.
    """

    statistic: Annotated[
        str | dict[str, Any],
        Meta(
            description='"gini_mean_difference", "variance", "kendall_tau", "auc" (a score and a label), '
            "a kernel that a package registers, or a table that describes a kernel without labels"
        ),
    ]
    lower: Annotated[float, _BOUND] = math.nan
    upper: Annotated[float, _BOUND] = math.nan
    method: Method = "gosta"
    positives: Annotated[
        int | None,
        Meta(description="parties of label 1, from 1 to n - 1, public; needed for auc, and for it alone"),
    ] = None

    @property
    def form(self) -> Form:
        """The factory of the built-in kernel h that `statistic` names; of "auc" that with private labels."""
        return FORMS["auc_private_labels" if self.statistic == "auc" else self.name]

    @cached_property
    def own(self) -> Kernel | None:
        """The kernel h given by a description or registration; None for a statistic known by name."""
        if not isinstance(self.statistic, str):
            return read_kernel(self.statistic)
        known = registered_kernel(self.statistic)
        if isinstance(known, KernelFactory):
            reason = f"'{self.statistic}' is made of fields: give the description of a kernel on them"
            raise ConfigError.at("kernel", reason, ConfigCheck.UNSUPPORTED)
        return known

    @property
    def name(self) -> str:
        """The name of the kernel h whose mean over pairs of records is estimated."""
        return str(self.statistic) if self.own is None else self.own.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the learned values: that of the estimated statistic alone."""
        return (self.name,)

    @property
    def fields(self) -> int:
        """The number of values that a record has."""
        return len(self.own.fields) if self.own else len(self.form.fields) + (self.statistic == "auc")

    def setting_issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings that an estimate over pairs adds."""
        try:
            own = self.own
        except ConfigError as error:
            return [
                ConfigIssue(f"statistic ({issue.where})", issue.reason, issue.check) for issue in error.issues
            ]
        if own is None and self.statistic not in STATISTICS:
            known = ", ".join(STATISTICS) + describe_others(Group.KERNELS)
            return [ConfigIssue("statistic", f"{self.statistic!r} is none of {known}", ConfigCheck.CHOICE)]
        bounds = {"lower": self.lower, "upper": self.upper}
        if own is not None:
            if own.labels != "none":
                return [
                    ConfigIssue(
                        "statistic", "a kernel of one's own must be without labels", ConfigCheck.UNSUPPORTED
                    )
                ]
            if given := [key for key, bound in bounds.items() if not math.isnan(bound)]:
                return [
                    ConfigIssue(
                        key, "the fields of the kernel have bounds of their own", ConfigCheck.CONFLICT
                    )
                    for key in given
                ]
        elif missing := [key for key, bound in bounds.items() if math.isnan(bound)]:
            return [ConfigIssue(key, "is missing", ConfigCheck.MISSING) for key in missing]
        elif result := bound_issues(self.lower, self.upper):
            return result
        issues = []
        if self.method == "u2" and self.clock != "synchronous":
            issues.append(ConfigIssue("clock", 'must be "synchronous" for "u2"', ConfigCheck.CHOICE))
        if self.statistic == "auc" and not 1 <= (self.positives or 0) < parties:
            issues.append(
                ConfigIssue(
                    "positives", f"must be 1 to {parties - 1} for auc, is {self.positives}", ConfigCheck.RANGE
                )
            )
        if self.statistic != "auc" and self.positives is not None:
            issues.append(ConfigIssue("positives", "is of auc alone", ConfigCheck.UNSUPPORTED))
        if issues:
            return issues
        return self.pairing_issues(parties)

    @property
    def draws(self) -> int:
        """The number of meetings of two parties in the whole schedule."""
        return self.ticks * (2 if self.method == "u2" else 1)

    def state_bound(self, largest: float) -> float:
        """Return a bound on the estimates sent beside a record, for a kernel up to `largest`."""
        if self.method == "u2":
            return 0.0
        # The synchronous one sends t times its estimate.
        return largest * (self.ticks if self.clock == "synchronous" else 1)

    def is_plausible(self, largest: float, bound: float, known: Known) -> PlausibilityCheck:
        """Return a function that tells which received rows an honest party can have sent.

        Rows that pass keep an honest party's own messages within `bound`.
        """

        def possible(rows: Rows, ticks: NDArray[np.intp]) -> NDArray[np.bool_]:
            good = known(rows[:, self.columns :])
            if self.columns:
                time = ticks if self.clock == "synchronous" else np.ones(len(rows))
                good &= np.abs(rows[:, 0]) <= largest * time + SLACK * bound
            return good

        return possible

    @property
    def columns(self) -> int:
        """The number of values that a party sends beside a record."""
        return 0 if self.method == "u2" else 1

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its table is a single record within bounds."""
        if table.shape != (1, self.fields):
            record = "a score and a label" if self.statistic == "auc" else f"{self.fields} values"
            raise ConfigError.at(
                party, f"must be one record of {record}, shape is {table.shape}", ConfigCheck.SHAPE
            )
        if self.own is not None:
            try:
                self.own.codes(table)
            except PrivacyError as error:
                raise ConfigError.at(party, str(error), ConfigCheck.RANGE) from None
            return
        values = table[:, :1] if self.statistic == "auc" else table
        # Written so that NaN is caught.
        if not np.all((values >= self.lower) & (values <= self.upper)):
            raise ConfigError.at(
                party, f"a value is missing or outside [{self.lower:g}, {self.upper:g}]", ConfigCheck.MISSING
            )
        if self.statistic == "auc" and table[0, 1] not in (0.0, 1.0):
            raise ConfigError.at(party, "the label is missing, or neither 0 nor 1", ConfigCheck.MISSING)

    async def estimate(
        self, exchange: PeerExchange, rows: Rows, kernel: PairKernel, is_plausible: PlausibilityCheck
    ) -> Floats:
        """Run gossip to the last tick; return each local party's estimate over pairs of parties.

        See `gosta`. Shape (rows, 1); for auc over the pairs of a label 1 and a label 0.
        """
        run: Callable[..., Awaitable[Estimates]] = u2_gossip
        if self.method == "gosta":
            run = gosta if self.clock == "synchronous" else gosta_asynchronous
        parties = exchange.parties
        result = await run(
            exchange, rows, kernel, self.clock_of(parties), self.ticks, is_plausible=is_plausible
        )
        # Of the mean over all n^2 pairs.
        if self.positives is not None:
            factor = parties**2 / (2 * self.positives * (parties - self.positives))
        else:
            factor = parties / (parties - 1)
        return np.asarray(result.final[:, None] * factor)


# A message travels in `exchanges.EXACT_STEPS` steps of its bound; a range of values is to have so many, and 1
# where records travel as codes.
_FINE, _WHOLE = 2.0**20, 16


def on_codes(kernel: Kernel) -> PairKernel:
    """Return a kernel on rows of code and party number, which is 0 for two rows of one party."""

    def values(own: Rows, other: Rows) -> Rows:
        first, second = np.rint(own).astype(np.int64), np.rint(other).astype(np.int64)
        result = kernel.decode(kernel.integer(first[:, :-1], second[:, :-1]))
        return np.where(first[:, -1] == second[:, -1], 0.0, result)

    return values


class GossipClear(PairEstimate, frozen=True, kw_only=True):
    """Settings of gossip estimates (GoSta or U2-gossip) in which parties pass on unprotected records.

    A `requirements.Learner`. See `PairEstimate`.
    """

    kind: ClassVar[str] = "gossip-clear"

    @property
    def length(self) -> int:
        """The number of values in a message; records sent as codes have their party's number beside."""
        return self.columns + self.fields + (self.own is not None)

    def largest_issues(self, bound: float) -> list[ConfigIssue]:
        """Return a fault if messages up to this bound have too coarse a grid for records."""
        finest = min(self.upper - self.lower, 1.0) / _FINE if self.own is None else 1 / _WHOLE
        if bound > finest * EXACT_STEPS:
            reason = f"{self.ticks}: messages may reach {bound:.3g}, beside which records are rounded away"
            return [ConfigIssue("ticks", reason, ConfigCheck.TOO_LARGE)]
        return []

    def bound(self, parties: int) -> float:
        """Return a bound on the l2 norm of a message, with a record and an estimate."""
        if self.own is None:
            record = math.sqrt(self.fields) * max(abs(self.lower), abs(self.upper), 1.0)
        else:
            record = math.hypot(parties, *(field.steps for field in self.own.fields))
        return math.hypot(self.state_bound(self._largest), record) * (1 + 1e-9)

    @property
    def _largest(self) -> float:
        """Return a bound on the absolute value of the kernel h on two records."""
        if self.own is not None:
            return max(abs(self.own.low), abs(self.own.high))
        return max(abs(self.form.low), abs(self.form.high(self.upper - self.lower)))

    def _within_bounds(self, parties: int, records: Rows) -> NDArray[np.bool_]:
        """Tell for each record whether its values are within the declared bounds, shape (m,)."""
        if self.own is not None:
            below = (*(field.steps + 1 for field in self.own.fields), parties)
            possible = [is_whole(column, most) for column, most in zip(records.T, below, strict=True)]
            return np.asarray(np.logical_and.reduce(possible))
        values = records[:, :1] if self.statistic == "auc" else records
        slack = SLACK * self.bound(parties)
        good = ((values >= self.lower - slack) & (values <= self.upper + slack)).all(axis=1)
        return np.asarray(good & is_whole(records[:, 1], 2) if self.statistic == "auc" else good)

    async def gossip(
        self,
        exchange: PeerExchange,
        records: Table,
        source: NoiseSource,  # noqa: ARG002
    ) -> Rows:
        """Run gossip on the local parties' records or their codes; return the estimates."""
        parties = exchange.parties
        bound = self.bound(parties)
        if self.own is not None:
            rows, kernel = np.column_stack([self.own.codes(records), exchange.here]) * 1.0, on_codes(self.own)
        else:
            # A record that comes back to its party must be the same: h jumps at equal values.
            rows, kernel = round_to_messages_grid(records, bound), self.form.value
        is_plausible = self.is_plausible(self._largest, bound, partial(self._within_bounds, parties))
        return await self.estimate(exchange, rows, kernel, is_plausible)


# The kernel's table on cells has the square of it.
MAX_CELLS = 1_024


class GossipReports(OnReports, PairEstimate, frozen=True, kw_only=True):
    """Settings of gossip estimates (GoSta or U2-gossip) on randomised reports (local privacy).

    A `requirements.Learner`. Every party ends with an estimate of the mean of h over the pairs of different
    parties, in the unit of the records.
    """

    kind: ClassVar[str] = "gossip-reports"
    bins: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_CELLS)],
        Meta(description="cells of a value; 1,024 cells of a record at most"),
    ]
    epsilon: OfParty
    labels: Annotated[
        Literal["private", "public"], Meta(description="of auc: public labels are not protected")
    ] = "private"

    @property
    def labelled(self) -> bool:
        """Whether the reports that parties pass on contain public labels."""
        return self.statistic == "auc" and self.labels == "public"

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel h on cells; with public labels, on a cell of label 1 and a cell of label 0."""
        if self.own is not None:
            return self.own
        form = auc if self.labelled else self.form
        return form(*[Cells(self.lower, self.upper, bins=self.bins) for _ in form.fields])

    @cached_property
    def quantiser(self) -> Quantiser:
        """Return the function that maps a record to one of finitely many cells, before randomisation."""
        return Quantiser(self.kernel.fields, bins_of(self.kernel, self.bins))

    @property
    def length(self) -> int:
        """The number of values in a message, which has a report: an answer, its party, maybe a label."""
        return self.columns + (3 if self.labelled else 2)

    def setting_issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings that randomised reports add."""
        if self.labels == "public" and self.statistic != "auc":
            return [ConfigIssue("labels", "are of auc alone", ConfigCheck.UNSUPPORTED)]
        issues = super().setting_issues(parties)
        if not issues and math.prod(bins_of(self.kernel, self.bins)) > MAX_CELLS:
            reason = f"{self.bins} for each value of a record are more than {MAX_CELLS} cells"
            return [ConfigIssue("bins", reason, ConfigCheck.TOO_LARGE)]
        return issues

    def largest_issues(self, bound: float) -> list[ConfigIssue]:
        """Return a fault if messages up to this bound have too coarse a grid for reports."""
        if bound > MOST:
            reason = f"{self.epsilon:g} is too small for {self.bins} bins: a message may reach {bound:.3g}"
            return [ConfigIssue("epsilon", reason, ConfigCheck.INFEASIBLE)]
        return []

    def bound(self, parties: int) -> float:
        """Return a bound on the l2 norm of a message, with a report and an estimate."""
        return math.hypot(self.state_bound(self._largest), self.quantiser.categories, parties) * (1 + 1e-9)

    @cached_property
    def _matrix(self) -> Floats:
        """Return the kernel h between each two cells, shape (k, k)."""
        return self.quantiser.matrix(self.kernel)

    @cached_property
    def _largest(self) -> float:
        """Return a bound on the absolute value of the unbiased kernel on reports."""
        return float(np.abs(self.reports.response.distribution.unbiased_pairs(self._matrix)).max())

    def _kernel(self) -> PairKernel:
        """Return the unbiased kernel on reports that estimates the statistic over all pairs."""
        if not self.labelled:
            return self.reports.kernel(self._matrix)
        half = self.reports.labelled_kernel(self._matrix)
        return lambda own, other: 2 * half(own, other)

    async def gossip(self, exchange: PeerExchange, records: Table, source: NoiseSource) -> Rows:
        """Randomise the local parties' records, run gossip on the reports, and return the estimates."""
        labels = records[:, 1] if self.labelled else None
        codes = self.kernel.codes(records[:, : len(self.kernel.fields)])
        cells = self.quantiser.categorise(codes)
        rows = self.reports.randomise(cells, exchange.here, labels=labels, source=source)
        known = self.reports.known(exchange.parties, labels=2 if self.labelled else None)
        is_plausible = self.is_plausible(self._largest, self.bound(exchange.parties), known)
        return await self.estimate(exchange, rows, self._kernel(), is_plausible)
