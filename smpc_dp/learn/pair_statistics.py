"""Statistics that are means over pairs of records, and how gossip estimates them, as a session's settings."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault, PrivacyError
from smpc_dp.extensions import Group, others
from smpc_dp.kernels.described import read_kernel
from smpc_dp.kernels.forms import Form
from smpc_dp.kernels.kernel import Kernel
from smpc_dp.kernels.named import FORMS, registered_kernel
from smpc_dp.learn.averager import PeerExchange, Rows, Screen
from smpc_dp.learn.gosta import Estimates, PairKernel, gosta, gosta_asynchronous, u2_gossip
from smpc_dp.learn.meetings import Meetings
from smpc_dp.learn.needs import Table, bound_faults

Floats = NDArray[np.float64]
STATISTICS = ("gini_mean_difference", "variance", "kendall_tau", "auc")
Method = Literal["gosta", "u2"]
# Which records, shape (m, columns), are ones that a user can have: shape (m,).
Known = Callable[[Rows], NDArray[np.bool_]]

# Of a message's bound: how far rounding may carry what is sent.
SLACK = 2.0**-31


class PairEstimate(Meetings, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What estimates of a pairwise statistic by gossip have in common: records, and who meets when.

    Attributes, beside those of `Meetings`:
        statistic: h by its name, one of `STATISTICS` or a kernel's that another package registers; or as
            `kernels.described.describe` tells of any kernel without labels.
        lower, upper: of every value, where h has a name; a label is 0 or 1.
        method: "gosta", or "u2", the baseline, with two meetings a tick and a global clock.
        positives: n+, how many users have label 1, public; of "auc", and only there.
    """

    statistic: str | dict[str, Any]
    lower: float = math.nan
    upper: float = math.nan
    method: Method = "gosta"
    positives: int | None = None

    @property
    def form(self) -> Form:
        """The h that has a name; of auc for records (score, label): 0 for equal labels."""
        return FORMS["auc_private_labels" if self.statistic == "auc" else self.name]

    @cached_property
    def own(self) -> Kernel | None:
        """The h that is described or registered; None for one of `STATISTICS`. Raises ConfigError."""
        if isinstance(self.statistic, str):
            return registered_kernel(self.statistic)
        return read_kernel(self.statistic)

    @property
    def name(self) -> str:
        """Of h."""
        return str(self.statistic) if self.own is None else self.own.name

    @property
    def names(self) -> tuple[str, ...]:
        """One statistic."""
        return (self.name,)

    @property
    def fields(self) -> int:
        """Values of a record."""
        return len(self.own.fields) if self.own else len(self.form.fields) + (self.statistic == "auc")

    def setting_faults(self, users: int) -> list[Fault]:
        """Return what is wrong with these settings for so many users."""
        try:
            own = self.own
        except ConfigError as error:
            return [Fault(f"statistic ({fault.where})", fault.what) for fault in error.faults]
        if own is None and self.statistic not in STATISTICS:
            known = ", ".join(STATISTICS) + others(Group.KERNELS)
            return [Fault("statistic", f"{self.statistic!r} is none of {known}")]
        bounds = {"lower": self.lower, "upper": self.upper}
        if own is not None:
            if own.labels != "none":
                return [Fault("statistic", "a kernel of one's own must be without labels")]
            if given := [key for key, bound in bounds.items() if not math.isnan(bound)]:
                return [Fault(key, "the fields of the kernel have bounds of their own") for key in given]
        elif missing := [key for key, bound in bounds.items() if math.isnan(bound)]:
            return [Fault(key, "is missing") for key in missing]
        elif found := bound_faults(self.lower, self.upper):
            return found
        faults = []
        if self.method == "u2" and self.clock != "synchronous":
            faults.append(Fault("clock", 'must be "synchronous" for "u2"'))
        if self.statistic == "auc" and not 1 <= (self.positives or 0) < users:
            faults.append(Fault("positives", f"must be 1 to {users - 1} for auc, is {self.positives}"))
        if self.statistic != "auc" and self.positives is not None:
            faults.append(Fault("positives", "is of auc alone"))
        if faults:
            return faults
        return self.meeting_faults(users)

    @property
    def draws(self) -> int:
        """Meetings in all."""
        return self.ticks * (2 if self.method == "u2" else 1)

    def state_bound(self, largest: float) -> float:
        """Bound what travels beside a record, where h is at most `largest` in absolute value."""
        if self.method == "u2":
            return 0.0
        # The synchronous one sends t times its estimate.
        return largest * (self.ticks if self.clock == "synchronous" else 1)

    def screen(self, largest: float, bound: float, known: Known) -> Screen:
        """Return what is believed of others: records that are known, and estimates within their bound.

        Whatever is believed keeps an honest user's own messages within `bound`.
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
        """Numbers that travel beside a record."""
        return 0 if self.method == "u2" else 1

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its table is one record within the bounds."""
        if table.shape != (1, self.fields):
            record = "a score and a label" if self.statistic == "auc" else f"{self.fields} values"
            raise ConfigError([Fault(user, f"must be one record of {record}, shape is {table.shape}")])
        if self.own is not None:
            try:
                self.own.codes(table)
            except PrivacyError as error:
                raise ConfigError([Fault(user, str(error))]) from None
            return
        values = table[:, :1] if self.statistic == "auc" else table
        # Written so that NaN is caught.
        if not np.all((values >= self.lower) & (values <= self.upper)):
            raise ConfigError(
                [Fault(user, f"a value is missing or outside [{self.lower:g}, {self.upper:g}]")]
            )
        if self.statistic == "auc" and table[0, 1] not in (0.0, 1.0):
            raise ConfigError([Fault(user, "the label is missing, or neither 0 nor 1")])

    async def estimate(
        self, exchange: PeerExchange, rows: Rows, kernel: PairKernel, screen: Screen
    ) -> Floats:
        """Gossip to the last tick, see `learn.gosta`; return the statistic over pairs of different users.

        Shape (rows, 1); for auc over the pairs of a label 1 and a label 0.
        """
        run: Callable[..., Awaitable[Estimates]] = u2_gossip
        if self.method == "gosta":
            run = gosta if self.clock == "synchronous" else gosta_asynchronous
        users = exchange.users
        found = await run(exchange, rows, kernel, self.clock_of(users), self.ticks, screen=screen)
        # Of the mean over all n^2 pairs.
        if self.positives is not None:
            factor = users**2 / (2 * self.positives * (users - self.positives))
        else:
            factor = users / (users - 1)
        return np.asarray(found.final[:, None] * factor)
