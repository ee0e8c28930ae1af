"""Personalised models over a known graph as a learner of a session: see `coordinate_descent`.

The neighbours of a party see its model at each of its ticks; where the graph is learned (`graph`), all
parties do. With `epsilon` each ONE RECORD of a party is
protected from everybody; the graph and the number of records of each party are public.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.capabilities.learn.alternating import Alternation, release_shares
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective, descend
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.models import Model, RecordGradients, bound_features
from smpc_dp.capabilities.learn.neighbour_sums import descend_by_sums, members
from smpc_dp.capabilities.learn.pairing_schedule import Positive
from smpc_dp.capabilities.learn.personalized_settings import (
    NoiseMechanism,
    PersonalizedSettings,
    check_sizes,
    delta_issues,
    norm_order,
    norm_ratio,
)
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateAverages,
    PrivateMessages,
    Requirements,
    Table,
)
from smpc_dp.capabilities.learn.warm_start import (
    LocalPlan,
    WarmStart,
    check_room,
    plan_local,
    propagated_models,
)
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.record_gradients import RecordNoise, grid_bits, plan_record_noise

CLAIM = "NO PRIVACY between neighbours: each sees the others' models, and from them their gradients"
OWN = "of the neighbours' models a party sees noisy sums alone; its own model is NOT covered"
EXACT = "NO PRIVACY: models change one at a time, so exact sums give them away to whoever sees the sums"
# Of the grid of models without noise: messages of an l2 norm below 2^10.
_BITS = 30
# Of the largest share of the budget.
_LEAST_SHARE = 1e-9

# Of a sum: its party and a neighbour together cannot tell the others' models apart.
_LEAST_NEIGHBOURS = 3


class Personalized(PersonalizedSettings, frozen=True, kw_only=True):
    """Settings of a learner that fits a model for each party, drawn towards its neighbours' models."""

    kind: ClassVar[str] = "personalized"
    record_bound: Annotated[
        Positive, Meta(description="B, of the L2 norm of a record's features; longer ones are scaled down")
    ]
    ridge: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)],
        Meta(description="a party with m records has the penalty ridge/max(m, 1) times the squared norm"),
    ] = 1.0
    mechanism: NoiseMechanism = "gaussian"
    split: Annotated[
        Literal["even", "late"],
        Meta(
            description="of the budget; late: shares grow with the tick as C^(-t/2), those of epsilon as "
            "C^(-t/3)"
        ),
    ] = "even"
    clip: Annotated[
        Positive | None,
        Meta(
            description="L2 norm, of `laplace` L1, that gradients of records are clipped to; with `epsilon`",
            extra={"default": "√(B² + 1), of `laplace` √p times that: clips nothing of the logistic loss"},
        ),
    ] = None
    model: Annotated[
        Literal["logistic", "linear"], Meta(description="labels are 0 and 1 for logistic, any for linear")
    ] = "logistic"
    start: Annotated[
        WarmStart | None,
        Meta(
            description="local models, propagated over the graph, that models start from",
            extra={"default": "none: models start at 0"},
        ),
    ] = None
    sum_bound: Annotated[
        Positive | None,
        Meta(
            description="L2 norm that models are clipped to in secure sums over a party's neighbours, one "
            "for each tick, by `averager`; then `epsilon` is for ALL DATA of a party, and without it sums "
            "give models away",
            extra={"default": "none: neighbours see models"},
        ),
    ] = None

    @property
    def loss(self) -> Model:
        """The predictive model (such as linear or logistic) of each party, with its loss."""
        return Model(self.model, self.features)

    @property
    def reach(self) -> float:
        """The largest L2 norm of a record, with the 1 of its intercept."""
        return math.hypot(self.record_bound, 1.0)

    @property
    def clipped(self) -> float:
        """The norm of order `order` to which each record's gradient is clipped."""
        return self.reach * self._ratio if self.clip is None else self.clip

    @property
    def order(self) -> Literal[1, 2]:
        """The order (1 or 2) of the norm in which gradients are bounded and noise is planned."""
        return norm_order(self.mechanism)

    @property
    def _ratio(self) -> float:
        """Return the greatest ratio of the norm for which noise is planned to the L2 norm of a vector."""
        return norm_ratio(self.mechanism, self.loss.length)

    @cached_property
    def objective(self) -> PersonalizedObjective:
        """The objective that all parties' models minimise together; may raise ConfigError."""
        curvature = 0.25 if self.model == "logistic" else 1.0
        return self.objective_of(self.ridge / np.maximum(self.sizes, 1), curvature * self.reach**2)

    @property
    def message_length(self) -> int:
        """The number of values that a party sends at each of its ticks."""
        return self.loss.length

    @cached_property
    def noise(self) -> tuple[RecordNoise, ...] | None:
        """Planned noise of each party; None without `epsilon` or with `sum_bound`; may raise ConfigError."""
        if self.epsilon is None or self.sum_bound is not None:
            return None
        clip, objective = self.clipped, self.objective
        bits, decay = grid_bits(clip * objective.reaches / self._ratio), objective.contraction
        # Shares of mu^2, whose noise has the variance 1/share, or of epsilon, with 1/share^2.
        power = 2 if self.mechanism == "gaussian" else 3
        growth = (
            decay ** ((self.ticks - 1 - np.arange(self.ticks)) / power)
            if self.split == "late"
            else np.ones(len(self.wakes))
        )
        if growth.min() < _LEAST_SHARE * growth.max():
            reason = (
                f"'late' leaves the first of {self.ticks} ticks too small a share of the budget: take 'even'"
            )
            raise ConfigError.at("split", reason, ConfigCheck.INFEASIBLE)
        shares = [growth[self.wakes == party].tolist() for party in range(len(self.sizes))]
        if self.start is not None:
            first = self.start.share
            shares = [[first, *(np.array(one) * (1 - first) / sum(one)).tolist()] for one in shares]
        if self.graph is not None:
            shares = release_shares(self.graph, self.wakes, len(self.sizes))
        return tuple(
            plan_record_noise(
                self.mechanism, self.epsilon, self.delta, shares[party], clip * float(reach), bits
            )
            for party, reach in enumerate(objective.reaches)
        )

    @property
    def _gradient_norm(self) -> float:
        """The greatest L2 norm of a clipped gradient of a record."""
        return self.clipped if self.model == "linear" else min(self.clipped, self.reach)

    def local_plan(self, start: WarmStart) -> LocalPlan:
        """Return the plan of the local models with which the parties' models start."""
        clips = self._gradient_norm, self._ratio
        return plan_local(start, self.objective, self.loss.length, clips, self.reach, self.noise)

    @property
    def guarantee(self) -> PrivacyGuarantee | None:
        """The privacy of one record of any party over all messages; None without noise."""
        if self.noise is None:
            return None
        # Parties differ in these two, and in rho of a pure epsilon; epsilon and delta are the same for all.
        most = max(self.noise, key=lambda one: one.releases).guarantee
        sensitivity = {f"l{self.order}": 2.0 * max(one.bound for one in self.noise)}
        more = "losses" if self.graph else "local models"
        mechanism = most.mechanism + (f" or {more}" if self.graph or self.start else "")
        return msgspec.structs.replace(most, sensitivity=sensitivity, mechanism=mechanism)

    @property
    def bits(self) -> int:
        """The number of binary places of the grid of models and messages."""
        return _BITS if self.noise is None else self.noise[0].bits

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        if table.size:
            self.loss.check(table, party)

    def setting_issues(self) -> list[ConfigIssue]:
        """Return the faults of the settings that only this learner has."""
        result = self._noise_issues()
        if self.graph is None:
            return result
        if self.graph.loss_bound is None:
            result.append(ConfigIssue("graph.loss_bound", "is missing", ConfigCheck.MISSING))
        if self.split == "late":
            result.append(ConfigIssue("split", "'late' is for a known graph", ConfigCheck.UNSUPPORTED))
        if self.start is not None:
            reason = "propagates over a known graph: with `graph` each party learns alone first"
            result.append(ConfigIssue("start", reason, ConfigCheck.CONFLICT))
        return result

    def check_plan(self) -> None:
        """Raise ConfigError if the noise cannot be planned, or a party is too alone for secure sums."""
        if self.noise is not None:
            self._check_room(self.noise)
        if self.sum_bound is not None:
            self._check_sums()

    def _noise_issues(self) -> list[ConfigIssue]:
        """Return the faults of the settings of noise, or of secure sums of models."""
        result = []
        result += delta_issues(self.epsilon, self.delta, self.mechanism)
        of_noise = [
            name
            for name, given in (
                ("clip", self.clip is not None),
                ("split", self.split != "even"),
                ("mechanism", self.mechanism != "gaussian"),
            )
            if given
        ]
        if self.epsilon is None:
            reason = "is of noise: there is no epsilon"
            result += [ConfigIssue(name, reason, ConfigCheck.UNSUPPORTED) for name in of_noise]
        if self.sum_bound is not None:
            reason = "is of models that neighbours see: there is sum_bound"
            names = of_noise + (["graph"] if self.graph else []) + (["start"] if self.start else [])
            result += [ConfigIssue(name, reason, ConfigCheck.CONFLICT) for name in names]
        elif self.epsilon is not None and self.clip is None and self.model == "linear":
            result.append(ConfigIssue("clip", "is needed for the linear model", ConfigCheck.MISSING))
        return result

    def _check_sums(self) -> None:
        """Raise ConfigError if a party has too few neighbours for secure sums of their models."""
        counts = [len(members(self.objective, party)) - 1 for party in range(len(self.sizes))]
        if min(counts) < _LEAST_NEIGHBOURS:
            party = counts.index(min(counts))
            reason = f"party {party} has {counts[party]} neighbours, secure sums need {_LEAST_NEIGHBOURS}"
            raise ConfigError.at("topology", reason, ConfigCheck.UNSUPPORTED)

    def _check_room(self, noise: tuple[RecordNoise, ...]) -> None:
        """Raise ConfigError if noise or losses may exceed the exact range of the messages' grid."""
        # A loss may reach its bound at every record.
        most = max(2 * one.bound * size for one, size in zip(noise, self.sizes, strict=True))
        losses = 0 if self.graph is None else most
        if self.start is not None:
            check_room(self.local_plan(self.start), noise, self._gradient_norm, self.loss.length, self.bits)
        if max(one.far(self.loss.length) for one in noise) + losses > EXACT_STEPS:
            reason = f"{self.epsilon:g} needs too much noise for the grid of the messages"
            raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)

    def requirements(self, parties: int) -> Requirements:
        """Return what the learner needs: a message of the party of each tick, or with `sum_bound` sums."""
        sent = self.updates
        if self.sum_bound is not None:
            groups = [members(self.objective, party) for party in range(parties)]
            taken = np.zeros(parties, np.intp)
            for count, group in zip(sent, groups, strict=True):
                taken[group] += count
            sizes = frozenset(len(group) for count, group in zip(sent, groups, strict=True) if count)
            averages = PrivateAverages(
                self.loss.length, self.sum_bound, sizes, taken, self.epsilon, self.delta
            )
            return Requirements(average=averages)
        sent += 0 if self.graph is None else self.graph.rounds(self.ticks)
        sent += 0 if self.start is None else self.start.rounds + 1
        messages = PrivateMessages(self.loss.length, math.ldexp(EXACT_STEPS, -self.bits), sent)
        claim = self.guarantee
        if self.noise is None or claim is None:
            return Requirements(exchange=messages)
        each = tuple(msgspec.structs.replace(one.event(), mechanism=claim.mechanism) for one in self.noise)
        # A pure epsilon in few releases has the greatest rho.
        weakest = each[int(np.argmax([one.rho for one in self.noise]))]
        return Requirements(exchange=messages, own=weakest, own_by_party=each)

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run the learner on local tables; return the models, with the guarantee unless by secure sums."""
        if self.sum_bound is not None:
            return await self._run_by_sums(context, data, self.sum_bound)
        exchange, model = context.peers, self.loss
        check_sizes(exchange, data, self.sizes)
        tables = [self._bounded(table) for table in data]
        gradients = RecordGradients(model, model.points(tables), self.clipped, self.order)
        source = None if self.noise is None else context.source
        learned = self.new_graph()
        if learned is not None and self.graph is not None and self.graph.loss_bound is not None:
            run = Alternation(
                exchange,
                self.objective,
                gradients,
                learned,
                length=model.length,
                bits=self.bits,
                bound=self.graph.loss_bound,
                noise=self.noise,
                source=context.source,
            )
            await run.run(self.graph, self.wakes)
            values = np.ldexp(run.models[exchange.here].astype(np.float64), -self.bits)
        else:
            first = None
            if self.start is not None:
                first = await propagated_models(
                    exchange,
                    self.objective,
                    self.local_plan(self.start),
                    gradients,
                    model.length,
                    self.bits,
                    self.noise,
                    source,
                )
            values = await descend(
                exchange,
                self.objective,
                gradients,
                model.length,
                self.wakes,
                self.bits,
                start=first,
                noise=self.noise,
                source=source,
            )
        steps = self.updates[exchange.here]
        guarantee = self.guarantee
        claim = (
            f"{CLAIM}; " if guarantee is None else f"by the noise on each update: {guarantee.assumption}; "
        )
        graph = None if learned is None else learned.weights[exchange.here]
        return Learned(
            self.kind, values, model.names, steps, steps, (), guarantee, claim + exchange.claim, graph=graph
        )

    async def _run_by_sums(self, context: LearnerContext, data: list[Table], bound: float) -> Learned:
        """Learn with secure sums of neighbours' models, not messages; return models without guarantee."""
        averager, model = context.average, self.loss
        if averager is None:
            raise ConfigError.at("averager", "is needed for sums", ConfigCheck.MISSING)
        for party, table in zip(averager.here.tolist(), data, strict=True):
            if len(table) != self.sizes[party]:
                reason = f"party {party} has {len(table)} records, not {self.sizes[party]}"
                raise ConfigError.at("sizes", reason, ConfigCheck.DIFFERS)
        points = model.points([self._bounded(table) for table in data])
        values, done, failures = await descend_by_sums(
            averager,
            self.objective,
            RecordGradients(model, points, self.reach),
            model.length,
            self.wakes,
            bound,
        )
        steps = self.updates[averager.here]
        claim = f"{EXACT if self.epsilon is None else OWN}; {averager.claim}"
        return Learned(
            self.kind, values, model.names, steps, done, tuple(failures), None, claim, confidential=True
        )

    def _bounded(self, table: Table) -> Table:
        """Return a table with each row's features scaled down to the norm bound."""
        if not table.size:
            return np.zeros((0, self.features + 1))
        return bound_features(table, self.record_bound)
