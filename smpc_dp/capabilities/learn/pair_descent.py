"""Gossip dual averaging of a pairwise loss, as learners of sessions: of records in the clear, and of reports.

Each party has one record. In the clear it goes from party to party, encrypted against all others: nothing
protects it from the parties that receive it. On reports gradients are the unbiased ones (3.10) [Bellet 2021,
Remark 3.5].
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange, PlausibilityCheck, Rows, is_whole
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.dual_averaging import (
    PassedRecords,
    dual_averaging,
    dual_averaging_asynchronous,
    dual_averaging_in_groups,
    inverse_root,
)
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS, round_to_messages_grid
from smpc_dp.capabilities.learn.group_steps import SLACK as ROUNDING
from smpc_dp.capabilities.learn.group_steps import Group, GroupRun, group_issues
from smpc_dp.capabilities.learn.on_reports import MOST, OfParty, OnReports
from smpc_dp.capabilities.learn.pair_statistics import SLACK, Known
from smpc_dp.capabilities.learn.pairing_schedule import PairingSchedule, Positive, rename_argument
from smpc_dp.capabilities.learn.pairwise_losses import (
    PairGradient,
    PairwiseLoss,
    Prox,
    l1,
    l2_ball,
    logistic_auc,
    logistic_metric,
    no_regulariser,
    positive_semidefinite,
    squared_l2,
)
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PublicAverages,
    Requirements,
    Table,
    bound_issues,
)
from smpc_dp.capabilities.pairs.kernels.fields import Cells, Field, nearest_codes
from smpc_dp.capabilities.reports.quantiser import Quantiser
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.sampling import NoiseSource

Regulariser = Literal["ball", "psd", "l1", "l2", "none"]

# Entries of a learned vector: a metric has the square of the features.
_LONGEST = 1 << 20


def prox_of(regulariser: Regulariser, radius: float, weight: float) -> Prox:
    """Return the proximal operator of a named regulariser: projection on a ball, or scaled by `weight`."""
    if regulariser == "ball":
        return l2_ball(radius)
    if regulariser == "psd":
        return positive_semidefinite
    if regulariser == "none":
        return no_regulariser
    return l1(weight) if regulariser == "l1" else squared_l2(weight)


class PairDescent(PairingSchedule, frozen=True, kw_only=True):
    """Base of settings of dual averaging, by gossip, of a loss over pairs of records.

    Attributes, beside those of `PairingSchedule`:
        loss: "auc", logistic, of a linear score, theta of d entries and labels 0 and 1; "metric", logistic,
            of pairs with equal and with differing labels, theta of d^2 entries.
        regulariser: "ball": theta stays in the l2 ball of `radius`; "psd": a metric; "l1", "l2": `weight`
            times that norm of theta, the l2 norm squared. None: "ball" for auc, "psd" for metric.
    """

    features: Annotated[Annotated[int, Meta(ge=1, le=10_000)], Meta(description="columns before the label")]
    loss: Annotated[Literal["auc", "metric"], Meta(description="labels are 0 and 1 for auc")] = "auc"
    classes: Annotated[
        Annotated[int, Meta(ge=2, le=1_000)], Meta(description="of metric: labels are 0 to `classes` - 1")
    ] = 2
    threshold: Annotated[
        Positive, Meta(description="of metric: the squared distance that tells classes apart")
    ] = 1.0
    rate: Annotated[Positive, Meta(description="steps are rate / sqrt(t)")] = 1.0
    regulariser: Annotated[Regulariser | None, Meta(extra={"default": '`"ball"`; `"psd"` for metric'})] = None
    radius: Annotated[Positive, Meta(description="of the ball")] = 10.0
    weight: Annotated[Positive, Meta(description="of l1 and l2")] = 0.01
    group: Annotated[
        Group | None,
        Meta(
            description="s, members of a group: in each of `ticks` steps a round of groups averages sums of "
            "gradients exactly, by `averager`, and passes records or reports on",
            extra={"default": "none: parties meet in pairs"},
        ),
    ] = None

    @property
    def pairwise_loss(self) -> PairwiseLoss:
        """The loss of a pair of records, each made of features and a label."""
        return logistic_auc() if self.loss == "auc" else logistic_metric(self.threshold)

    @property
    def dimension(self) -> int:
        """The number p of entries of the learned vector theta."""
        return self.pairwise_loss.dimension(self.features + 1)

    @property
    def prox(self) -> Prox:
        """The proximal operator of the regulariser that the settings name."""
        return prox_of(
            self.regulariser or ("ball" if self.loss == "auc" else "psd"), self.radius, self.weight
        )

    @property
    def fields(self) -> int:
        """The number of columns of a record: its features and its label."""
        return self.features + 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entries of the learned vector theta."""
        d = self.features
        if self.loss == "auc":
            return tuple(f"theta {index}" for index in range(d))
        return tuple(f"M {row},{column}" for row in range(d) for column in range(d))

    def setting_issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings that descent over pairs of records adds."""
        if self.dimension > _LONGEST:
            return [
                ConfigIssue(
                    "features",
                    f"{self.features} are too many for a metric: {_LONGEST} entries at most",
                    ConfigCheck.TOO_LARGE,
                )
            ]
        if self.regulariser == "psd" and self.loss != "metric":
            return [ConfigIssue("regulariser", '"psd" is of the loss "metric"', ConfigCheck.UNSUPPORTED)]
        if self.classes != 2 and self.loss != "metric":
            return [ConfigIssue("classes", 'is of the loss "metric"', ConfigCheck.UNSUPPORTED)]
        if self.group is None:
            return self.pairing_issues(parties)
        reason = "is of pairs: there is `group`"
        given = {"topology": self.topology != "complete", "clock": self.clock != "asynchronous"}
        issues = [ConfigIssue(name, reason, ConfigCheck.CONFLICT) for name, there in given.items() if there]
        return issues + group_issues(self.group, parties, None, None)

    def slope_bound(self, distance: float) -> float:
        """Return a bound on the l2 norm of the loss's gradient, for features at most `distance` apart."""
        return distance if self.loss == "auc" else distance**2

    def dual_bound(self, slope: float, parties: int) -> float:
        """Return a bound on the l2 norm of a party's sum of gradients, each bounded by `slope`.

        A tick adds one weighted gradient of norm `slope`.
        """
        return self.ticks * self._weight(parties) * slope

    def draws_of(self, parties: int) -> GroupDraws | None:
        """Return the random groups of each step; None if parties meet in pairs instead."""
        return None if self.group is None else GroupDraws(parties, self.group, self.seed)

    @property
    def record_length(self) -> int:
        """Number of values of the record or report that a party passes on; subclasses implement this."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """The number of values in a message: a record or report, and in pairs a sum of gradients."""
        return self.record_length + (self.dimension if self.group is None else 0)

    def record_reach(self, parties: int) -> float:
        """Return a bound on the L2 norm of the record or report passed on; subclasses implement this."""
        raise NotImplementedError

    def largest_slope(self) -> float:
        """Return a bound on the l2 norm of a gradient, or ConfigError; subclasses implement this."""
        raise NotImplementedError

    def bound(self, parties: int) -> float:
        """Return a bound on the l2 norm of a message between parties."""
        dual = 0.0 if self.group else self.dual_bound(self.largest_slope(), parties)
        return math.hypot(dual, self.record_reach(parties)) * (1 + 1e-9)

    def requirements(self, parties: int) -> Requirements:
        """Return what the learner needs: messages, and in groups also exact averages of sums."""
        required = super().requirements(parties)
        draws = self.draws_of(parties)
        if draws is None or required.exchange is None:
            return required
        taken = draws.participations(self.ticks * draws.each)
        room = self.dual_bound(self.largest_slope(), parties) * ROUNDING
        return replace(
            required,
            exchange=replace(required.exchange, participations=taken),
            mix=PublicAverages(self.dimension, room, frozenset({draws.size})),
        )

    def _weight(self, parties: int) -> float:
        """Return a bound on the weight with which a gradient enters a step's sum."""
        if (draws := self.draws_of(parties)) is not None:
            return 1 / draws.share
        return 1 / float(self.clock_of(parties).chances.min()) if self.clock == "asynchronous" else 1.0

    def is_plausible(self, slope: float, parties: int, bound: float, known: Known) -> PlausibilityCheck:
        """Return a function that tells which received rows an honest party can have sent.

        A row passes if its record is `known`, and its sum of gradients at tick t has at most t times the
        largest norm, so that an honest party's own messages stay within `bound`.
        """
        # Sums that groups average come from nobody alone.
        most, p = self._weight(parties) * slope, self.dimension if self.group is None else 0

        def possible(rows: Rows, ticks: NDArray[np.intp]) -> NDArray[np.bool_]:
            near = np.linalg.norm(rows[:, :p], axis=1) <= most * ticks + SLACK * bound
            return np.asarray(near & known(rows[:, p:]))

        return possible

    def check_shape(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its table is a single record with a label."""
        if table.shape != (1, self.features + 1):
            reason = f"must be one record of {self.features} features and a label, shape is {table.shape}"
            raise ConfigError.at(party, reason, ConfigCheck.SHAPE)
        if not np.isfinite(table[0, :-1]).all():
            raise ConfigError.at(party, "a feature is missing or not finite", ConfigCheck.MISSING)
        # Written so that NaN is caught.
        label = float(table[0, -1])
        if not (label == np.rint(label) and 0 <= label < self.classes):
            reason = f"must be an integer from 0 to {self.classes - 1}, is {label:g}"
            raise ConfigError.at(
                party, "the label is missing" if np.isnan(label) else f"the label {reason}", ConfigCheck.RANGE
            )

    def prepare(
        self, exchange: PeerExchange, records: Table, source: NoiseSource
    ) -> tuple[Rows, PairGradient, PlausibilityCheck]:
        """Return records or reports to pass on, gradient, and check of rows; subclasses implement this."""
        raise NotImplementedError

    async def gossip(self, exchange: PeerExchange, records: Table, source: NoiseSource) -> Rows:
        """Run the descent with records passed between pairs of parties; return the local models."""
        return await self.descend(exchange, *self.prepare(exchange, records, source))

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run the descent on local tables, in pairs or groups; return the models with their guarantee."""
        exchange = context.peers
        draws, averager = self.draws_of(exchange.parties), context.mix
        if draws is None:
            return await super().run(context, data)
        if averager is None:
            raise ConfigError.at("averager", "is needed for groups", ConfigCheck.MISSING)
        records = np.concatenate(data) if data else np.zeros((0, self.fields))
        senders = draws.senders(self.ticks)
        passing = PassedRecords(exchange, *self.prepare(exchange, records, context.source), senders=senders)
        room = self.dual_bound(self.largest_slope(), exchange.parties) * ROUNDING
        run = GroupRun(
            averager, None, draws, self.ticks, room, factor=1 / draws.share, on_step=context.on_step
        )
        values, outcome = await dual_averaging_in_groups(
            run,
            passing.slopes,
            dimension=self.dimension,
            step_size=inverse_root(self.rate),
            prox=self.prox,
        )
        claim, guarantee, _ = self.protected
        return Learned(
            self.kind,
            values,
            self.names,
            outcome.planned,
            outcome.done,
            tuple(dict.fromkeys((*passing.failures, *outcome.failures))),
            guarantee,
            f"{claim}{exchange.claim}; averages of sums of gradients: {averager.claim}",
        )

    async def descend(
        self, exchange: PeerExchange, rows: Rows, gradient: PairGradient, is_plausible: PlausibilityCheck
    ) -> Rows:
        """Run gossip dual averaging to the last tick; return each local party's average theta."""
        run = dual_averaging if self.clock == "synchronous" else dual_averaging_asynchronous
        try:
            result = await run(
                exchange,
                rows,
                gradient,
                self.clock_of(exchange.parties),
                self.ticks,
                dimension=self.dimension,
                is_plausible=is_plausible,
                step_size=inverse_root(self.rate),
                prox=self.prox,
            )
        except ConfigError as error:
            raise rename_argument(error, "step_size", "rate") from None
        return result.final


# Steps of a message's grid that a record is to have, and a label.
_FINE, _WHOLE = 2.0**10, 8


class DualAveraging(PairDescent, frozen=True, kw_only=True):
    """Settings of gossip dual averaging in which parties pass on their records unprotected.

    See `PairDescent`; a `requirements.Learner`. `record_bound`: of the l2 norm of a record's features.
    """

    kind: ClassVar[str] = "dual-averaging"
    record_bound: Annotated[Positive, Meta(description="of the L2 norm of a record's features")]

    @property
    def record_length(self) -> int:
        """The number of values of a record that a party passes on."""
        return self.fields

    def largest_issues(self, bound: float) -> list[ConfigIssue]:
        """Return a fault if messages up to this bound have too coarse a grid for records."""
        if bound > EXACT_STEPS * min(1 / _WHOLE, self.record_bound / _FINE):
            reason = f"{self.ticks}: sums may reach {bound:.3g}, beside which records are rounded away"
            return [ConfigIssue("ticks", reason, ConfigCheck.TOO_LARGE)]
        return []

    def record_reach(self, parties: int) -> float:  # noqa: ARG002
        """Return a bound on the l2 norm of a record with its label."""
        return math.hypot(self.record_bound, self.classes)

    def largest_slope(self) -> float:
        """Return a bound on the l2 norm of a gradient of the loss of two records."""
        return self.slope_bound(2 * self.record_bound)

    def _within_bounds(self, bound: float, records: Rows) -> NDArray[np.bool_]:
        """Tell for each record whether its norm and class are within the declared bounds."""
        norms = np.linalg.norm(records[:, :-1], axis=1)
        return np.asarray(
            (norms <= self.record_bound + SLACK * bound) & is_whole(records[:, -1], self.classes)
        )

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its table is a single record within bounds."""
        self.check_shape(table, party)
        norm = float(np.linalg.norm(table[0, :-1]))
        if norm > self.record_bound:
            raise ConfigError.at(party, f"the record's norm exceeds {self.record_bound:g}", ConfigCheck.RANGE)

    def prepare(
        self,
        exchange: PeerExchange,
        records: Table,
        source: NoiseSource,  # noqa: ARG002
    ) -> tuple[Rows, PairGradient, PlausibilityCheck]:
        """Return records rounded to the messages' grid, the gradient, and the check of received rows."""
        slope, bound = self.largest_slope(), self.bound(exchange.parties)
        # Other parties then have exactly the record that its party has.
        records = round_to_messages_grid(records, bound)
        is_plausible = self.is_plausible(slope, exchange.parties, bound, partial(self._within_bounds, bound))
        return records, self.pairwise_loss.gradient, is_plausible


# A gradient evaluates the loss on the square of so many cells.
MAX_CELLS = 256


class DualAveragingReports(OnReports, PairDescent, frozen=True, kw_only=True):
    """Settings of gossip dual averaging on randomised reports of records (local privacy).

    See `PairDescent`; a `requirements.Learner`.
    """

    kind: ClassVar[str] = "dual-averaging-reports"
    lower: Annotated[float, Meta(description="of every feature")]
    upper: Annotated[float, Meta(description="of every feature")]
    bins: Annotated[
        Annotated[int, Meta(ge=2, le=MAX_CELLS)],
        Meta(description="cells of a feature; 256 cells of a record at most"),
    ]
    epsilon: OfParty
    labels: Annotated[Literal["private", "public"], Meta(description="public labels are not protected")] = (
        "private"
    )

    @cached_property
    def quantiser(self) -> Quantiser:
        """Return the function that maps records to cells, with their labels if private."""
        cells = Cells(self.lower, self.upper, bins=self.bins)
        label = Field(0, self.classes - 1, name="label", exact=True)
        fields = (*[cells] * self.features, *([label] if self.labels == "private" else []))
        return Quantiser(fields, tuple(field.steps + 1 for field in fields))

    @property
    def record_length(self) -> int:
        """The number of values of a report: answer, party, and a label if it is public."""
        return 2 if self.labels == "private" else 3

    def setting_issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings that randomised reports add."""
        if issues := bound_issues(self.lower, self.upper):
            return issues
        labels = self.classes if self.labels == "private" else 1
        if math.log(self.bins) * self.features + math.log(labels) > math.log(MAX_CELLS) + 1e-9:
            reason = f"{self.bins} for each of {self.features} features are more than {MAX_CELLS} cells"
            return [
                ConfigIssue(
                    "bins",
                    f"{reason}, labels counted" if self.labels == "private" else reason,
                    ConfigCheck.TOO_LARGE,
                )
            ]
        return super().setting_issues(parties)

    def largest_issues(self, bound: float) -> list[ConfigIssue]:
        """Return a fault if messages up to this bound have too coarse a grid for reports."""
        if bound > MOST:
            reason = f"{self.epsilon:g} is too small for {self.ticks} ticks: a message may reach {bound:.3g}"
            return [ConfigIssue("epsilon", reason, ConfigCheck.INFEASIBLE)]
        return []

    def record_reach(self, parties: int) -> float:
        """Return a bound on the l2 norm of a report as a vector."""
        return math.hypot(self.quantiser.categories, parties, self.classes)

    def largest_slope(self) -> float:
        """Return a bound on the l2 norm of the unbiased gradient on two reports."""
        apart = (self.upper - self.lower) * math.sqrt(self.features)
        return self.slope_bound(apart) * self.reports.response.distribution.pair_growth()

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its table is one record within bounds."""
        self.check_shape(table, party)
        inside = (table[:, :-1] >= self.lower) & (table[:, :-1] <= self.upper)
        if not inside.all():
            number = 1 + int(np.argwhere(~inside)[0, 1])
            raise ConfigError.at(
                party,
                f"a feature is outside [{self.lower:g}, {self.upper:g}]: number {number}",
                ConfigCheck.RANGE,
            )

    def prepare(
        self, exchange: PeerExchange, records: Table, source: NoiseSource
    ) -> tuple[Rows, PairGradient, PlausibilityCheck]:
        """Return randomised reports, the unbiased gradient, and the check of received rows."""
        public = self.labels == "public"
        cells = self.quantiser.categorise(nearest_codes(self.quantiser.fields, records))
        labels = records[:, -1] if public else None
        rows = self.reports.randomise(cells, exchange.here, labels=labels, source=source)
        points = self.quantiser.points()
        gradient = self.reports.gradient(self.pairwise_loss.gradient, points, labelled=public)
        known = self.reports.known(exchange.parties, labels=self.classes if public else None)
        slope, bound = self.largest_slope(), self.bound(exchange.parties)
        return rows, gradient, self.is_plausible(slope, exchange.parties, bound, known)
