"""A local model of each party and one global model, from batches without replacement, as a learner.

[Jin, He, Dai: Decentralized Differentially Private Without-Replacement SGD, Algorithm 1]
In each round each party takes its next batch, in turn. By its policy it either moves its local model, which
nobody sees, or joins it with the global one by a noisy step, and hands the global model on. A record is in
one batch, and a batch in one window between a party's global steps, so a record pays for one window alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange, check_received
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.models import Model, bound_features
from smpc_dp.capabilities.learn.pairing_schedule import Features, Positive, Ridge, Seed
from smpc_dp.capabilities.learn.personalized_settings import delta_issues
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
)
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.above_threshold import AboveThreshold, ThresholdPlan
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.record_gradients import GradientNoise, plan_gradient_noise
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian

Floats = NDArray[np.float64]
# Whether a party's step is global: from its row, its batch with a column of ones before the label, its local
# model and the global one.
Policy = Callable[[int, Table, Floats, Floats], bool]

CLAIM = "NO PRIVACY: global steps are exact, and others see gradients in them"
OWN = "values are each party's local model, NOT covered: its own batches moved it without noise"
# Grid steps in the sensitivity of a global step, at least, and in a loss of 1.
_FINE, _LOSS_BITS = 1 << 16, 24
_LEAST_BITS = 20
# Of one gradient step in float64, relative to what it is made of (docs/proofs/local-global.md).
_FLOAT = 2.0**-48
# By which a global model may be outside of the ball, for rounding.
_MARGIN = 1.0


class LocalGlobal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Settings of logistic regression with a local model per party and a global one, passed around."""

    kind: ClassVar[str] = "local-global"
    features: Features
    rounds: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)],
        Meta(description="T, batches of each party; each is used once"),
    ]
    batch: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)],
        Meta(description="b; the first rounds · batch records of a table count"),
    ]
    record_bound: Annotated[
        Positive, Meta(description="B, of the L2 norm of a record's features; longer ones are scaled down")
    ]
    rate: Annotated[
        Positive, Meta(description="η, at most 1/(2μ), μ = (B² + 1)/4 + ridge; a local step is twice as long")
    ] = 0.1
    ridge: Ridge = 0.0
    radius: Annotated[Positive, Meta(description="of the ball that models are projected to")] = 10.0
    policy: Annotated[
        Literal["public", "threshold"],
        Meta(
            description="a step is global by public draws, or where the loss of the local model on the "
            "batch is above `threshold`, found with noise"
        ),
    ] = "public"
    chance: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(description="of public draws; 1: every step is global"),
    ] = 1.0
    threshold: Annotated[
        Positive | None,
        Meta(description="of the mean loss of a batch", extra={"default": "needed with that policy"}),
    ] = None
    loss_bound: Annotated[
        Positive, Meta(description="that a record's loss is clipped to before it is compared")
    ] = 2.0
    epsilon: Annotated[
        Positive | None,
        Meta(description="for one record, of all that others see", extra={"default": "none: no privacy"}),
    ] = None
    delta: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(description="with `epsilon`", extra={"default": "none"}),
    ] = None
    policy_epsilon: Annotated[
        Positive | None,
        Meta(
            description="the part of `epsilon` that the threshold takes",
            extra={"default": "needed with epsilon and threshold"},
        ),
    ] = None
    values: Annotated[
        Literal["global", "local"], Meta(description="a party's result; local is confidential")
    ] = "global"
    seed: Annotated[Seed, Meta(description="public, of the public draws")] = 1

    @property
    def loss(self) -> Model:
        """The predictive model of a party, logistic regression, with its loss."""
        return Model("logistic", self.features)

    @property
    def reach(self) -> float:
        """The largest norm L of a record with its intercept, which bounds the gradient of its loss."""
        return math.hypot(self.record_bound, 1.0)

    @property
    def sensitivity(self) -> float:
        """How far one record moves a global step, 2 eta L/b, in exact arithmetic [Lemma 4]."""
        return 2 * self.rate * self.reach / self.batch

    @property
    def largest_rate(self) -> float:
        """The largest step size 1/(2 mu) for which Lemma 4 bounds the sensitivity."""
        return 1 / (2 * ((self.record_bound**2 + 1) / 4 + self.ridge))

    @property
    def rounding(self) -> float:
        """Bound on how far float64 rounding in a window's steps moves one of two neighbouring models."""
        within = self.radius + _MARGIN
        made_of = within + 2 * self.rate * (self.reach * (2 + self.reach * within) + self.ridge * within)
        return (self.rounds + 1) * _FLOAT * (self.features + self.batch + 16) * made_of

    @property
    def bits(self) -> int:
        """The number of binary places of the grid of the global model."""
        return max(_LEAST_BITS, math.ceil(math.log2(_FINE / self.sensitivity)))

    @cached_property
    def noise(self) -> GradientNoise | None:
        """The noise of a global step; None without `epsilon`; raises ConfigError where none suffices."""
        if self.epsilon is None or self.delta is None:
            return None
        # Rounding to the grid moves two models one step further apart in each coordinate.
        apart = self.sensitivity + 2 * self.rounding + math.ldexp(math.sqrt(self.loss.length), -self.bits)
        left = self.epsilon - (self.policy_epsilon or 0.0)
        return plan_gradient_noise(left, self.delta, [1.0], apart / 2, self.bits)

    @property
    def comparison(self) -> ThresholdPlan | None:
        """Noisy threshold test that chooses global steps; None if the choice is public or unprotected."""
        if self.threshold is None or self.policy_epsilon is None:
            return None
        # The clipped loss is L (1 - e^-bound)-Lipschitz: the chance that is wrong is 1 - e^-loss.
        slope = self.reach * -math.expm1(-self.loss_bound)
        moved = 4 * self.rate * self.reach / self.batch + 4 * self.rounding
        most = max(self.loss_bound / self.batch, min(slope * moved, self.loss_bound))
        most += _FLOAT * self.batch * (1 + self.loss_bound)
        return ThresholdPlan(
            self.policy_epsilon, self.threshold, math.ceil(math.ldexp(most, _LOSS_BITS)) + 1, _LOSS_BITS
        )

    @property
    def guarantee(self) -> PrivacyGuarantee | None:
        """The privacy of one record of any party over the whole run; None without noise."""
        if self.noise is None or self.epsilon is None:
            return None
        mechanism = "discrete Gaussian noise on the global step that ends a record's window"
        if self.policy == "threshold":
            mechanism += f", and AboveThreshold of epsilon = {self.policy_epsilon:g} in the window"
        proof = "one window for each record (docs/proofs/local-global.md)"
        return msgspec.structs.replace(
            self.noise.guarantee, epsilon=self.epsilon, mechanism=mechanism, proof=proof
        )

    def public_steps(self, parties: int) -> NDArray[np.bool_]:
        """Return by public draws which steps move the global model: booleans, (rounds, parties)."""
        drawn = PublicDraws(self.seed).uniform(self.rounds * parties).reshape(self.rounds, parties)
        return drawn < self.chance

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        self.loss.check(table, party)
        if len(table) < self.rounds * self.batch:
            reason = (
                f"{len(table)} records, {self.rounds} batches of {self.batch} need {self.rounds * self.batch}"
            )
            raise ConfigError.at(party, reason, ConfigCheck.SHAPE)

    def issues(self, parties: int) -> list[ConfigIssue]:  # noqa: ARG002
        """Return the faults of these settings in a network of this many parties."""
        result = self._policy_issues() + delta_issues(self.epsilon, self.delta)
        # The bound as it is shown, in nine digits, is allowed.
        if self.rate > self.largest_rate * (1 + 1e-8):
            reason = f"must be at most 1/(2μ) = {self.largest_rate:.9g}, is {self.rate:.9g}"
            result.append(ConfigIssue("rate", reason, ConfigCheck.RANGE))
        if result:
            return result
        try:
            deviation = 0.0 if self.noise is None else math.sqrt(self.noise.variances[0])
        except ConfigError as error:
            return list(error.issues)
        room = math.ldexp(EXACT_STEPS, -self.bits)
        if not 2 * self.radius + 16 * math.ldexp(deviation, -self.bits) * math.sqrt(self.loss.length) < room:
            reason = f"{self.radius:g} and the noise are beyond the grid of the messages, of {room:.3g}"
            result.append(ConfigIssue("radius", reason, ConfigCheck.INFEASIBLE))
        return result

    def _policy_issues(self) -> list[ConfigIssue]:
        """Return the faults of `policy` in combination with threshold, chance and epsilons."""
        by_loss, result = self.policy == "threshold", []
        if by_loss != (self.threshold is not None):
            result.append(ConfigIssue("threshold", "goes with policy = 'threshold'", ConfigCheck.MISSING))
        if by_loss and self.chance != 1.0:
            result.append(ConfigIssue("chance", "is of policy = 'public'", ConfigCheck.UNSUPPORTED))
        if (by_loss and self.epsilon is not None) != (self.policy_epsilon is not None):
            reason = "goes with epsilon and policy = 'threshold'"
            result.append(ConfigIssue("policy_epsilon", reason, ConfigCheck.MISSING))
        elif self.policy_epsilon is not None and not self.policy_epsilon < (self.epsilon or 0.0):
            reason = f"{self.policy_epsilon:g} must be below epsilon: global steps need the rest"
            result.append(ConfigIssue("policy_epsilon", reason, ConfigCheck.RANGE))
        return result

    def requirements(self, parties: int) -> Requirements:
        """Return the learner's messages: the global model, from each party to the next per round."""
        sent = np.full(parties, self.rounds + 1)
        messages = PrivateMessages(self.loss.length, math.ldexp(EXACT_STEPS, -self.bits), sent)
        noise, claim = self.noise, self.guarantee
        if noise is None or claim is None:
            return Requirements(exchange=messages)
        from smpc_dp.privacy.accountant.events import Event, Line, Pure, Renyi

        one = noise.event().descriptions
        if self.policy_epsilon is not None:
            # Pure epsilon is epsilon^2/2-zCDP [Bun and Steinke 2016, Proposition 1.4].
            both = Renyi((Line(0.0, noise.rho + self.policy_epsilon**2 / 2),), all_orders=True)
            one = (Pure(claim.epsilon, claim.delta), both)
        return Requirements(exchange=messages, own=Event(claim.mechanism, claim.relation, one, unit="record"))

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run the learner on local tables; return global, or by `values` local, models with the guarantee."""
        exchange = context.peers
        run = LocalGlobalRun(
            self, exchange, [bound_features(table, self.record_bound) for table in data], context.source
        )
        local, shared = await run.learn()
        here, guarantee = exchange.here, self.guarantee
        steps = np.full(len(here), self.rounds)
        claim = (
            f"{CLAIM}; " if guarantee is None else f"by the noise on global steps: {guarantee.assumption}; "
        )
        confidential = self.values == "local"
        if confidential:
            claim = f"{OWN}; {claim}"
        values = local if confidential else shared
        return Learned(
            self.kind,
            values,
            self.loss.names,
            steps,
            steps,
            (),
            guarantee,
            claim + exchange.claim,
            confidential,
        )


class LocalGlobalRun:
    """State and steps of a run with local models and a global one, for one party or for all.

    Args:
        data: tables whose features are within the settings' bound.
        policy: in place of the settings' one, for studies: the guarantee of the settings does not cover it.
    """

    def __init__(
        self,
        settings: LocalGlobal,
        exchange: PeerExchange,
        data: list[Table],
        source: NoiseSource,
        policy: Policy | None = None,
    ) -> None:
        self._policy = policy
        self._settings, self._exchange, self._source = settings, exchange, source
        self._data = [np.insert(table, -1, 1.0, axis=1) for table in data]
        length = settings.loss.length
        self._local = np.zeros((len(data), length))
        # The global model as each party here has seen it last, on the grid.
        self._shared = np.zeros((len(data), length))
        self._windows: list[AboveThreshold | None] = [None] * len(data)
        self._public = settings.public_steps(exchange.parties)
        self._row_of = {int(party): row for row, party in enumerate(exchange.here)}

    async def learn(self) -> tuple[Floats, Floats]:
        """Run all rounds; return the local parties' models and the last global model that each has."""
        parties = self._exchange.parties
        for number in range(self._settings.rounds):
            for party in range(parties):
                if party in self._row_of:
                    self._step(self._row_of[party], number, bool(self._public[number, party]))
                if parties > 1:
                    await self._hand_on(party, [(party + 1) % parties])
        if parties > 1:
            await self._hand_on(parties - 1, list(range(parties - 1)))
        return self._local, self._shared

    async def _hand_on(self, sender: int, receivers: list[int]) -> None:
        """Send the global model to the next parties; raise PeerFault if it arrives too large."""
        from scipy import sparse

        parties, count = self._exchange.parties, len(receivers)
        entries = (np.ones(count), (receivers, [sender] * count))
        received = await self._exchange.mix(self._shared, sparse.csr_array(entries, shape=(parties, parties)))
        rows = [self._row_of[party] for party in receivers if party in self._row_of]
        senders = np.full(len(rows), sender)
        check_received(self._exchange, received[rows], senders, senders * 0, self._plausible)
        self._shared[rows] = received[rows]

    def _plausible(self, rows: Floats, _ticks: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Tell for each received model whether its norm is at most the radius, but for rounding."""
        return np.asarray(np.linalg.norm(rows, axis=1) <= self._settings.radius + _MARGIN)

    def _step(self, row: int, number: int, public: bool) -> None:
        """Use a party's next batch to move its local model, or the global model too [(5), (6)]."""
        settings, size = self._settings, self._settings.batch
        batch = self._data[row][number * size : (number + 1) * size]
        if self._policy is not None:
            joins = self._policy(row, batch, self._local[row], self._shared[row])
        else:
            joins = public if settings.policy == "public" else self._is_above(row, batch)
        if joins:
            self._windows[row] = None
            self._local[row] = self._shared[row] = self._joined(row, batch)
        else:
            moved = self._local[row] - 2 * settings.rate * self._gradient(self._local[row], batch)
            self._local[row] = self._projected(moved)

    def _joined(self, row: int, batch: Table) -> Floats:
        """Return a party's new global model: a gradient step from both models' mean, noisy if planned."""
        settings, shared = self._settings, self._shared[row]
        bits, noise = settings.bits, settings.noise
        mean = (shared + self._local[row]) / 2 - settings.rate * self._gradient(shared, batch)
        steps = np.rint(np.ldexp(mean, bits))
        if noise is not None:
            # All integers here are below 2^50: EXACT_STEPS and its margin.
            steps = steps + discrete_gaussian(self._source, len(steps), noise.variances[0])
        # What follows depends on the noisy integers alone.
        return np.asarray(np.ldexp(np.rint(np.ldexp(self._projected(np.ldexp(steps, -bits)), bits)), -bits))

    def _gradient(self, model: Floats, batch: Table) -> Floats:
        """Return the gradient of a batch's mean logistic loss with the ridge penalty at a model."""
        features, labels = batch[:, :-1], batch[:, -1]
        predicted = 0.5 * (1 + np.tanh(features @ model / 2))
        return np.asarray((predicted - labels) @ features / len(batch) + self._settings.ridge * model)

    def _is_above(self, row: int, batch: Table) -> bool:
        """Tell, with noise if planned, whether the local model's loss on a batch is above the threshold."""
        settings = self._settings
        scores = (2 * batch[:, -1] - 1) * (batch[:, :-1] @ self._local[row])
        mean = float(np.minimum(np.logaddexp(0, -scores), settings.loss_bound).mean())
        if settings.threshold is not None and settings.comparison is None:
            return mean >= settings.threshold
        window = self._windows[row]
        if window is None and settings.comparison is not None:
            window = self._windows[row] = settings.comparison.begin(self._source)
        return window is not None and window(math.floor(math.ldexp(mean, _LOSS_BITS)))

    def _projected(self, model: Floats) -> Floats:
        """Return the nearest model whose norm is at most the radius."""
        norm = float(np.linalg.norm(model))
        return model if norm <= self._settings.radius else np.asarray(model * (self._settings.radius / norm))
