"""Personalised combinations of base predictors by decentralised Frank-Wolfe [Bellet 2021, Algorithm 2.3].

At each tick one party moves its model towards one base predictor and sends its neighbours the tick and the
signed number of the predictor alone. With `epsilon` each predictor is chosen by the exponential mechanism,
and losses that a graph is learned from have noise: no paper has a private one. Models are functions of the
messages.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange, Rows, check_received, is_whole
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.learned_graph import losses_of_all, others, sent_by
from smpc_dp.capabilities.learn.personalized_settings import PersonalizedSettings, check_sizes, delta_issues
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
    bound_issues,
)
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.noisy_choice import ChoicePlan, choose, plan_choices
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]

CLAIM = "NO PRIVACY between neighbours: each sees which predictors the others choose"
_ASSUMPTION = (
    "the party follows the protocol and draws its choices honestly; others may see all messages of all "
    "parties, and know all records but one; how many records each party has is public"
)
# Grid steps in the sensitivity of a score; of an entry of a message.
_FINE, _MESSAGE_BITS = 1 << 16, 16
# Steps of the largest loss; bits of the grid of scores.
_LOSS_STEPS, _MOST_BITS = EXACT_STEPS >> 4, 60
# Of a message: the tick and a predictor, or a loss.
_LENGTH = 2
# Of a score in float64, relative to its bound.
_FLOAT = 2.0**-46
# Standard deviations that noise exceeds by a miracle alone.
_FAR = 16


def score_sensitivity(records: int, beta: float) -> float:
    """Return how far one of m records can move the score by which a base predictor is chosen.

    2/(1 + (m - 1) exp(-2 beta)), for |h| <= 1 and models of l1 norm at most beta.
    """
    return 2 / (1 + (records - 1) * math.exp(-2 * beta))


def loss_sensitivity(records: int, beta: float) -> float:
    """Return how far one of m records can move the loss (2.4), log(1 + (exp(2 beta) - 1)/m)."""
    return math.log1p(math.expm1(2 * beta) / records)


class PersonalizedBoosting(PersonalizedSettings, frozen=True, kw_only=True):
    """Settings of a learner that fits each party a mix of base predictors, close to its neighbours'."""

    kind: ClassVar[str] = "personalized-boosting"
    features: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Meta(description="columns of every table without the label, which is 0 or 1"),
    ]
    beta: Annotated[
        Annotated[float, Meta(gt=0, le=100)], Meta(description="β, the l1 norm of a model at most")
    ]
    stumps: Annotated[
        Annotated[int, Meta(ge=0, le=1_000)],
        Meta(description="thresholds of each feature; 0: columns are base predictors' values from -1 to 1"),
    ] = 0
    lower: Annotated[float, Meta(description="of features, with stumps; public")] = -1.0
    upper: Annotated[float, Meta(description="of features, with stumps; public")] = 1.0

    @property
    def predictors(self) -> int:
        """The number K of base predictors that a model combines."""
        return self.features * max(1, self.stumps)

    @cached_property
    def objective(self) -> PersonalizedObjective:
        """The function that all models minimise, with weights, degrees and confidences."""
        return self.objective_of(np.zeros(len(self.sizes)), 0.0)

    @property
    def message_length(self) -> int:
        """The number of values that a party sends at each of its ticks."""
        return _LENGTH

    @cached_property
    def plans(self) -> tuple[ChoicePlan, ...] | None:
        """Each party's plan of private choices of predictors; None without privacy."""
        if self.epsilon is None or self.delta is None:
            return None
        counts = self.updates.tolist()
        losses, share = self.losses, 0.0 if self.graph is None else self.graph.loss_share
        planned = {
            count: plan_choices(self.epsilon, self.delta, count, losses, share) for count in set(counts)
        }
        return tuple(planned[count] for count in counts)

    @property
    def losses(self) -> int:
        """How many times each party sends a loss for learning the graph; 0 if the graph is known."""
        return 0 if self.graph is None else self.graph.rounds(self.ticks)

    def grid(self, party: int) -> tuple[int, int]:
        """Return (bits of the grid of a party's scores, most steps that one record moves a score)."""
        records = max(1, self.sizes[party])
        scale = float(self.objective.confidence[party])
        return self._grid(records, scale * score_sensitivity(records, self.beta), scale * (1 + self.beta))

    def loss_grid(self, party: int) -> tuple[int, int]:
        """Return (bits of the grid of a party's losses, most steps that one record moves a loss)."""
        records = max(1, self.sizes[party])
        most = 1 + self.beta + math.log(records)
        # With room for noise in a message.
        room = math.floor(math.log2(_LOSS_STEPS / most))
        return self._grid(records, loss_sensitivity(records, self.beta), most, room)

    def _grid(self, records: int, moved: float, bound: float, room: int = _MOST_BITS) -> tuple[int, int]:
        """Return (bits of a grid, the most grid steps by which one record can move a value)."""
        bits = min(room, max(0, math.ceil(math.log2(_FINE / moved))))
        moved += _FLOAT * (records + self.predictors + 16) * bound
        # Rounding moves two values one step further apart.
        return bits, math.ceil(math.ldexp(moved, bits)) + 1

    @property
    def guarantee(self) -> PrivacyGuarantee | None:
        """The privacy of one record of any party over all messages; None without privacy."""
        if self.plans is None or self.epsilon is None or self.delta is None:
            return None
        most = max(self.plans, key=lambda plan: plan.choices)
        return PrivacyGuarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            relation="substitution",
            sensitivity={"linf": max(score_sensitivity(max(1, size), self.beta) for size in self.sizes)},
            unit="weighted margin",
            protects="record",
            mechanism=f"exponential mechanism, at most {most.choices} choices of {2 * self.predictors}"
            + (f", or discrete Gaussian noise on {most.values} losses" if most.values else ""),
            assumption=_ASSUMPTION,
            proof="bounded range and zCDP [Cesar and Rogers 2021], or simple composition",
        )

    def margins(self, table: Table) -> Floats:
        """Return the label times each base predictor's output at each record of a party, (m, K)."""
        features, sign = table[:, :-1], 2 * table[:, -1:] - 1
        if not self.stumps:
            return np.asarray(sign * features)
        step = (self.upper - self.lower) / (self.stumps + 1)
        levels = self.lower + step * np.arange(1, self.stumps + 1)
        above = np.where(features[:, :, None] > levels, 1.0, -1.0)
        return np.asarray(sign * above.reshape(len(table), self.predictors))

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        if not table.size:
            return
        if table.ndim != 2 or table.shape[1] != self.features + 1:
            reason = f"must have {self.features + 1} columns, shape is {table.shape}"
            raise ConfigError.at(party, reason, ConfigCheck.SHAPE)
        low, high = (self.lower, self.upper) if self.stumps else (-1.0, 1.0)
        # Written so that NaN fails.
        if not ((table[:, :-1] >= low) & (table[:, :-1] <= high)).all():
            reason = f"a feature is missing or outside [{low:g}, {high:g}]"
            raise ConfigError.at(party, reason, ConfigCheck.RANGE)
        if not is_whole(table[:, -1], 2).all():
            raise ConfigError.at(party, "a label is neither 0 nor 1", ConfigCheck.RANGE)

    def setting_issues(self) -> list[ConfigIssue]:
        """Return the faults of settings that only this learner has."""
        result = bound_issues(self.lower, self.upper) + delta_issues(self.epsilon, self.delta)
        if self.graph is None:
            return result
        if self.graph.loss_bound is not None:
            reason = "is of 'personalized': here losses are bounded by beta"
            result.append(ConfigIssue("graph.loss_bound", reason, ConfigCheck.UNSUPPORTED))
        return result

    def check_plan(self) -> None:
        """Raise ConfigError if private choices cannot be planned, or losses need too much noise."""
        if self.plans is None or not self.losses:
            return
        for party, plan in enumerate(self.plans):
            _, sensitivity = self.loss_grid(party)
            if _LOSS_STEPS + _FAR * math.sqrt(plan.variance(sensitivity)) > EXACT_STEPS:
                reason = f"{self.epsilon:g} needs too much noise for the grid of the messages"
                raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)

    def requirements(self, parties: int) -> Requirements:  # noqa: ARG002
        """Return the learner's messages: two numbers from the party of a tick to its neighbours."""
        sent = self.updates + self.losses
        bound = math.ldexp(EXACT_STEPS, -_MESSAGE_BITS)
        messages, claim = PrivateMessages(_LENGTH, bound, sent), self.guarantee
        if self.plans is None or claim is None:
            return Requirements(exchange=messages)
        each = tuple(plan.event() for plan in self.plans)
        return Requirements(exchange=messages, own=each[0], own_by_party=each)

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run boosting on the local parties' tables, and return the models with their guarantee."""
        exchange = context.peers
        check_sizes(exchange, data, self.sizes)
        run = _Run(self, exchange, data, context.source)
        for number, party in enumerate(self.wakes.tolist()):
            if self.graph is not None and self.graph.is_update(number):
                await run.learn_graph()
            await run.tick(number + 1, party)
        here, guarantee = exchange.here, self.guarantee
        steps = self.updates[here]
        claim = (
            f"{CLAIM}; "
            if guarantee is None
            else f"by the choice of each predictor: {guarantee.assumption}; "
        )
        names = tuple(f"predictor {index}" for index in range(self.predictors))
        return Learned(
            self.kind,
            run.models[here],
            names,
            steps,
            steps,
            (),
            guarantee,
            claim + exchange.claim,
            graph=None if run.graph is None else run.graph.weights[here],
        )


class _Run:
    """State and steps of one run of personalized boosting, for one party or for all in a simulation.

    `models`: of the parties here, and copies of their neighbours', made from messages; shape (n, K).
    """

    def __init__(
        self, settings: PersonalizedBoosting, exchange: PeerExchange, data: list[Table], source: NoiseSource
    ) -> None:
        self._settings, self._exchange, self._source = settings, exchange, source
        self._row_of = {int(party): row for row, party in enumerate(exchange.here)}
        empty = np.zeros((0, settings.predictors))
        self._margins = [settings.margins(table) if len(table) else empty for table in data]
        self.models = np.zeros((exchange.parties, settings.predictors))
        self.graph = settings.new_graph()

    async def learn_graph(self) -> None:
        """Exchange all parties' losses, and learn the graph's weights from models and losses."""
        steps = [self._loss_steps(row, int(party)) for row, party in enumerate(self._exchange.here)]
        own = np.ldexp(np.array(steps, dtype=np.float64), -_MESSAGE_BITS)
        received = await losses_of_all(self._exchange, own, _LENGTH)
        if self.graph is not None and steps:
            sizes, beta = np.array(self._settings.sizes), self._settings.beta
            bits = np.array([self._settings.loss_grid(party)[0] for party in range(len(sizes))])
            known = np.ldexp(received, _MESSAGE_BITS - bits)
            middle = np.log(np.maximum(sizes, 1))
            # What a party of so many records can have.
            known = np.clip(known, middle - beta, middle + beta) * (sizes > 0)
            self.graph.learn(self.models, known)

    def _loss(self, row: int, party: int) -> float:
        """Return a party's exponential loss F_u (2.4) at its model; 0 for a party without records."""
        margins = self._margins[row]
        return float(np.logaddexp.reduce(-(margins @ self.models[party]))) if len(margins) else 0.0

    def _loss_steps(self, row: int, party: int) -> int:
        """Return a party's loss as an integer of grid steps, with noise if losses are private."""
        settings = self._settings
        bits, sensitivity = settings.loss_grid(party)
        steps = round(math.ldexp(self._loss(row, party), bits))
        if settings.plans is None or not settings.sizes[party]:
            return steps
        return settings.plans[party].noisy_value(steps, sensitivity, self._source)

    def _near(self, party: int) -> NDArray[np.intp]:
        """Return the parties that get a party's messages: neighbours, or all others to learn the graph."""
        if self.graph is not None:
            return others(party, len(self.models))
        weights = self._settings.objective.weights
        return np.asarray(weights.indices[weights.indptr[party] : weights.indptr[party + 1]], dtype=np.intp)

    async def tick(self, tick: int, party: int) -> None:
        """Let a party take a step and tell its neighbours; raise PeerFault for an impossible message."""
        near = self._near(party)
        sent = np.zeros((len(self._row_of), _LENGTH))
        row = self._row_of.get(party)
        if row is not None:
            sent[row] = tick, self._choose(row, party)
        received = await self._exchange.mix(sent, sent_by(party, near.tobytes(), len(self.models)))
        rows = [self._row_of[one] for one in near.tolist() if one in self._row_of] if row is None else []
        messages = received[rows] if row is None else sent[[row]]
        if len(messages):
            check_received(
                self._exchange,
                messages,
                np.full(len(messages), party),
                np.full(len(messages), tick),
                self._plausible,
            )
            self._move(tick, party, int(messages[0, 1]))

    def _plausible(self, rows: Rows, ticks: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Tell for each received row whether it has a valid predictor and its sender's current tick."""
        numbers = np.abs(rows[:, 1])
        good = is_whole(numbers, self._settings.predictors + 1) & (numbers >= 1)
        return np.asarray(good & (rows[:, 0] == ticks))

    def _move(self, tick: int, party: int, signed: int) -> None:
        """Move a party's model a step towards a predictor; negative numbers mean its negation [(2.6)]."""
        parties = len(self.models)
        step = 2 * parties / (tick + 2 * parties)
        self.models[party] *= 1 - step
        self.models[party, abs(signed) - 1] += step * math.copysign(self._settings.beta, signed)

    def gradient(self, row: int, party: int) -> tuple[Floats, Floats]:
        """Return the gradient (2.5) in two parts: from the party's own records, and from public models."""
        objective, own = self._settings.objective, self.models[party]
        margins = self._margins[row]
        local = np.zeros_like(own)
        if len(margins):
            exponents = -(margins @ own)
            share = np.exp(exponents - exponents.max())
            local = -float(objective.confidence[party]) * (share / share.sum() @ margins)
        if self.graph is not None:
            around = self.graph.around(self.models, party)
        else:
            weights, near = objective.weights, self._near(party)
            entries = weights.data[weights.indptr[party] : weights.indptr[party + 1]]
            around = entries @ self.models[near] / objective.degrees[party]
        return local, self._settings.coupling * (own - around)

    def _choose(self, row: int, party: int) -> int:
        """Return the signed number, from 1, of a party's next predictor, by a private choice if planned."""
        settings = self._settings
        local, public = self.gradient(row, party)
        if settings.plans is None or not settings.sizes[party]:
            total = local + public
            best = int(np.abs(total).argmax())
            return (best + 1) * (-1 if total[best] > 0 else 1)
        bits, sensitivity = settings.grid(party)
        steps = (np.rint(np.ldexp(local, bits)) + np.rint(np.ldexp(public, bits))).astype(np.int64)
        chosen = choose(
            np.concatenate([-steps, steps]), sensitivity, settings.plans[party].each, self._source
        )
        count = settings.predictors
        return chosen + 1 if chosen < count else -(chosen - count + 1)
