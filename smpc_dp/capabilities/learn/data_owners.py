"""A central learner and data owners that come and go, as a learner of a session.

[Farokhi, Wu, Smith, Kaafar: The Cost of Privacy in Asynchronous Differentially-Private Machine Learning]

Each owner has a Poisson clock of rate 1. At a tick of one the learner sends it a model, and the owner answers
with the noisy mean of its records' clipped gradients there: it answers a limited number of times, for which
its noise is planned, and no more. The step size is constant; the paper's rho / T^2 stays at the start
(docs/proofs/owners.md). The first party of the roster is the learner, the others are the owners.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import FAILURES, ParticipationCounter, PeerExchange, Rows
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.models import Model, RecordGradients
from smpc_dp.capabilities.learn.pairing_schedule import Features, Positive, Ridge, Seed, Ticks
from smpc_dp.capabilities.learn.personalized_settings import (
    NoiseMechanism,
    check_sizes,
    delta_issues,
    norm_order,
    norm_ratio,
)
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
)
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.record_gradients import RecordNoise, grid_bits, plan_record_noise
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from scipy import sparse


Floats = NDArray[np.float64]

CLAIM = "NO PRIVACY: the learner sees the exact gradients of each owner"
# The learner's number among the parties.
CENTRAL = 0
# Standard deviations of a Poisson number of ticks above its mean, for which noise is planned.
_ABOVE = 4
# Of the grid of models, at least.
_BITS = 24
_SCALAR = 1.0


def most_answers(steps: int, owners: int) -> int:
    """Return a number of answers that one owner seldom exceeds in T ticks: T/N + 4 sqrt(T/N), within 1..T."""
    mean = steps / owners
    return min(steps, max(1, math.floor(mean + _ABOVE * math.sqrt(mean))))


@dataclass(frozen=True)
class CentralSteps:
    """Gradient steps of a central learner that asks data owners (Algorithm 1), at a constant rate.

    The fitness is ridge/2 |theta|^2 plus the mean loss of all n records; each owner's step has 1/(2N) of the
    ridge, and the learner's the other half, so that the parts add up (docs/proofs/errata.md).

    Attributes:
        shares: n_i / n, shape (N,).
        rate: of the learner's step; an owner's is N times as large. An array goes with those of models.
        radius: of the l-infinity ball that models are projected to.
    """

    shares: Floats
    rate: float | Floats
    ridge: float
    radius: float

    def query(self, central: Floats, local: Floats) -> Floats:
        """Return the model at which an owner is asked: the mean of the learner's and the owner's [(6)]."""
        return (central + local) / 2

    def move(self, query: Floats, owner: NDArray[np.intp], answer: Floats) -> tuple[Floats, Floats]:
        """Return the owner's and the learner's models after an owner's answer [(5), (7)].

        `owner` has the shape of `answer` without its last axis.
        """
        owners = len(self.shares)
        pulled = query * (self.ridge / (2 * owners)) + self.shares[owner][..., None] * answer
        local = np.clip(query - owners * self.rate * pulled, -self.radius, self.radius)
        return local, np.clip(query * (1 - self.rate * self.ridge / 2), -self.radius, self.radius)


class DataOwners(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Settings of a central learner whose model is made from data owners' noisy gradients."""

    kind: ClassVar[str] = "data-owners"
    features: Features
    sizes: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=10_000_000)], ...],
        Meta(
            description="n_i: records of each owner, public; the first party is the learner, without records"
        ),
    ]
    ticks: Annotated[Ticks, Meta(description="T, of all owners' Poisson clocks together")]
    clip: Annotated[
        Positive, Meta(description="L2 norm, of `laplace` L1, that a record's gradient is clipped to")
    ]
    epsilons: Annotated[
        tuple[Positive, ...],
        Meta(
            description="of each owner, for one record, of all its answers",
            extra={"default": "none: no privacy"},
        ),
    ] = ()
    delta: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(description="with `epsilons`", extra={"default": "none"}),
    ] = None
    mechanism: NoiseMechanism = "gaussian"
    answers: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(
            description="most answers of an owner; more are refused",
            extra={"default": "T/N + 4 √(T/N) for N owners"},
        ),
    ] = None
    rate: Annotated[
        Positive, Meta(description="the learner's constant step size; an owner's model moves N times as far")
    ] = 0.1
    ridge: Ridge = 0.0
    radius: Annotated[
        Positive, Meta(description="θ_max: a coordinate of a model is projected to at most this")
    ] = 10.0
    model: Annotated[
        Literal["logistic", "linear"], Meta(description="labels are 0 and 1 for logistic, any for linear")
    ] = "logistic"
    seed: Annotated[Seed, Meta(description="public, of the owners' clocks")] = 1

    @property
    def loss(self) -> Model:
        """The predictive model (such as linear or logistic) with its loss."""
        return Model(self.model, self.features)

    @property
    def order(self) -> Literal[1, 2]:
        """The order (1 or 2) of the norm in which gradients are bounded and noise is planned."""
        return norm_order(self.mechanism)

    @property
    def most(self) -> int:
        """The greatest number of answers that one data owner gives."""
        return most_answers(self.ticks, len(self.sizes)) if self.answers is None else self.answers

    @cached_property
    def clock(self) -> tuple[Floats, NDArray[np.intp]]:
        """The time and the data owner (numbered from 0) of each tick, both of shape (T,)."""
        owners = len(self.sizes)
        drawn = PublicDraws(self.seed).uniform(2 * self.ticks).reshape(self.ticks, 2)
        times = np.cumsum(-np.log1p(-drawn[:, 0])) / owners
        return times, (drawn[:, 1] * owners).astype(np.intp)

    @cached_property
    def queried(self) -> NDArray[np.intp]:
        """The owner (from 0) of each tick, without ticks beyond an owner's greatest number of answers."""
        owners = self.clock[1]
        before = np.zeros(self.ticks, dtype=np.intp)
        for owner in range(len(self.sizes)):
            own = np.flatnonzero(owners == owner)
            before[own] = np.arange(len(own))
        return owners[before < self.most]

    @cached_property
    def bits(self) -> int:
        """The number of binary places of the grid of models and answers."""
        ratio = norm_ratio(self.mechanism, self.loss.length)
        return max(_BITS, grid_bits(self.clip / ratio / np.array(self.sizes, dtype=np.float64)))

    @cached_property
    def noise(self) -> tuple[RecordNoise, ...]:
        """Planned noise of each owner's answers; empty without privacy, ConfigError if none suffices."""
        shares = [_SCALAR] * self.most
        return tuple(
            plan_record_noise(self.mechanism, epsilon, self.delta, shares, self.clip / size, self.bits)
            for epsilon, size in zip(self.epsilons, self.sizes, strict=False)
        )

    @property
    def steps(self) -> CentralSteps:
        """The learner's gradient steps: the rule that turns owners' answers into models."""
        sizes = np.array(self.sizes, dtype=np.float64)
        return CentralSteps(sizes / sizes.sum(), self.rate, self.ridge, self.radius)

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        if table.size:
            self.loss.check(table, party)

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of these settings in a network of this many parties."""
        owners, result = parties - 1, []
        for name, given in (("sizes", len(self.sizes)), ("epsilons", len(self.epsilons))):
            if given != owners and (given or name == "sizes"):
                reason = f"{given} for {owners} owners: the first of {parties} parties is the learner"
                result.append(ConfigIssue(name, reason, ConfigCheck.SHAPE))
        result += delta_issues(max(self.epsilons, default=None), self.delta, self.mechanism)
        if self.mechanism != "gaussian" and not self.epsilons:
            reason = "is of noise: there are no epsilons"
            result.append(ConfigIssue("mechanism", reason, ConfigCheck.UNSUPPORTED))
        if result:
            return result
        length, room = self.loss.length, math.ldexp(EXACT_STEPS, -self.bits)
        if not math.sqrt(length) * self.radius < room / 2:
            reason = f"{self.radius:g} is beyond the grid of the messages, of {room:.3g}"
            result.append(ConfigIssue("radius", reason, ConfigCheck.INFEASIBLE))
        try:
            far = max((one.far(length) for one in self.noise), default=0.0)
        except ConfigError as error:
            return [*result, *error.issues]
        if 2 * self.clip + math.ldexp(far, -self.bits) > room:
            reason = "needs too much noise, or clip is too large, for the grid of the messages"
            result.append(ConfigIssue("epsilons", reason, ConfigCheck.INFEASIBLE))
        return result

    def guarantee(self, owner: int) -> PrivacyGuarantee | None:
        """Return the privacy of one record of an owner over all its answers; None without noise."""
        return self.noise[owner].guarantee if self.noise else None

    def requirements(self, parties: int) -> Requirements:  # noqa: ARG002
        """Return the learner's messages: two vectors per tick, and the last model to all owners."""
        counts = np.bincount(self.queried, minlength=len(self.sizes))
        sent = np.concatenate([[len(self.queried) + 1], counts]).astype(np.intp)
        bound = math.ldexp(EXACT_STEPS, -self.bits)
        messages = PrivateMessages(self.loss.length + 1, bound, sent)
        if not self.noise:
            return Requirements(exchange=messages)
        from smpc_dp.privacy.accountant.events import Event, Pure

        mute = Event("models made from noisy answers", "substitution", (Pure(0.0),), unit="record")
        each = [noise.event() for noise in self.noise]
        weakest = each[int(np.argmax(self.epsilons))]
        return Requirements(exchange=messages, own=weakest, own_by_party=(mute, *each))

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run the central learner or a data owner on local tables, and return what is learned."""
        exchange = context.peers
        # The learner, who is first, has no records.
        check_sizes(exchange, data, (0, *self.sizes))
        return await _Run(self, exchange, data, context.source).learn()


class OwnerAnswers:
    """Local owners' clipped mean gradients, noisy if planned, a limited number of times each."""

    def __init__(self, settings: DataOwners, here: NDArray[np.intp], data: list[Table]) -> None:
        self._settings, self._here = settings, here
        width = settings.features + 1
        tables = [table if table.size else np.zeros((0, width)) for table in data]
        model = settings.loss
        self._gradients = RecordGradients(model, model.points(tables), settings.clip, settings.order)
        self._counter = ParticipationCounter(len(settings.sizes) + 1, settings.most)
        self.given: Counter[int] = Counter()

    def answer(self, party: int, query: Floats, source: NoiseSource) -> Floats:
        """Count and return an owner's gradient at a model, noisy if planned; PrivacyError beyond the plan."""
        self._counter.count(np.array([party]))
        settings, row = self._settings, np.flatnonzero(self._here == party)
        factor = np.array([1.0 / settings.sizes[party - 1]])
        summed = self._gradients.contributions(query[None], row, factor, settings.bits)[0]
        if settings.noise:
            summed = summed + settings.noise[party - 1].draw(source, len(summed), self.given[party])
        self.given[party] += 1
        return np.asarray(np.ldexp(summed.astype(np.float64), -settings.bits))


class _Run:
    """State and steps of one run with a central learner: at the learner, at an owner, or simulated."""

    def __init__(
        self, settings: DataOwners, exchange: PeerExchange, data: list[Table], source: NoiseSource
    ) -> None:
        self._settings, self._exchange, self._source = settings, exchange, source
        self._answers = OwnerAnswers(settings, exchange.here, data)
        self._row_of = {int(party): row for row, party in enumerate(exchange.here)}
        self._length, self._steps = settings.loss.length, settings.steps
        # The learner's model and its copy for each owner, where the learner is.
        self._models = np.zeros((exchange.parties, self._length))
        self._failures: dict[str, None] = {}

    async def learn(self) -> Learned:
        """Run all ticks and return what is learned; a tick that fails is left out."""
        settings, here = self._settings, self._exchange.here
        done = np.zeros(self._exchange.parties, dtype=np.intp)
        shown = np.zeros((len(here), self._length))
        for owner in settings.queried:
            party = int(owner) + 1
            answered = await self._tick(party, shown)
            done[party] += answered
            done[CENTRAL] += answered
        if CENTRAL in self._row_of:
            shown[self._row_of[CENTRAL]] = self._rounded(self._models[CENTRAL])
        spread = np.zeros((self._exchange.parties, self._exchange.parties))
        spread[:, CENTRAL] = 1.0
        received = await self._send(shown, spread)
        if received is not None:
            shown = received[:, :-1]
        return self._learned(shown, done)

    async def _tick(self, party: int, shown: Rows) -> bool:
        """Ask an owner for a gradient, move the models; return whether an answer was given or came here."""
        parties = self._exchange.parties
        row, central = self._row_of.get(party), self._row_of.get(CENTRAL)
        query = self._rounded(self._steps.query(self._models[CENTRAL], self._models[party]))
        asked = np.zeros((len(shown), self._length))
        if central is not None:
            asked[central] = query
        received = await self._send(asked, _edge(parties, CENTRAL, party))
        # The last entry of a message tells that it is one: an owner that has no query has no answer.
        answers, valid = np.zeros_like(asked), 0.0
        if row is not None and received is not None and received[row, -1] == _SCALAR:
            shown[row], valid = received[row, :-1], _SCALAR
            answers[row] = self._answers.answer(party, shown[row], self._source)
        received = await self._send(answers, _edge(parties, party, CENTRAL), valid)
        if central is None:
            return valid == _SCALAR
        if received is None or received[central, -1] != _SCALAR:
            return False
        owner = np.array(party - 1)
        moved = self._steps.move(query, owner, received[central, :-1])
        self._models[party], self._models[CENTRAL] = moved
        return True

    async def _send(
        self, vectors: Rows, edges: Floats | sparse.csr_array, valid: float = _SCALAR
    ) -> Rows | None:
        """Send vectors, each with a validity mark, along edges; return those received, or None on failure."""
        from scipy import sparse

        message = np.concatenate([vectors, np.full((len(vectors), 1), valid)], axis=1)
        try:
            return await self._exchange.mix(message, sparse.csr_array(edges))
        except FAILURES as error:
            self._failures[str(error)] = None
            return None

    def _rounded(self, model: Floats) -> Floats:
        """Return a model rounded to the grid on which messages are sent."""
        return np.asarray(np.ldexp(np.rint(np.ldexp(model, self._settings.bits)), -self._settings.bits))

    def _learned(self, values: Rows, done: NDArray[np.intp]) -> Learned:
        """Return the result of the run, with the weakest guarantee of the local owners, or of all owners."""
        settings, exchange = self._settings, self._exchange
        here = exchange.here
        counts = np.bincount(settings.queried, minlength=len(settings.sizes))
        planned = np.concatenate([[len(settings.queried)], counts])[here].astype(np.intp)
        owners = [int(party) - 1 for party in here if party != CENTRAL] or list(range(len(settings.sizes)))
        guarantee = None
        if settings.noise:
            guarantee = settings.guarantee(max(owners, key=lambda owner: settings.epsilons[owner]))
        claim = (
            f"{CLAIM}; " if guarantee is None else f"by the noise on each answer: {guarantee.assumption}; "
        )
        failures = (*self._refused(), *self._failures)
        return Learned(
            settings.kind,
            values,
            settings.loss.names,
            planned,
            done[here],
            failures,
            guarantee,
            claim + exchange.claim,
        )

    def _refused(self) -> Iterator[str]:
        """Yield a sentence for each owner with more ticks than planned answers: the others are left out."""
        settings = self._settings
        ticks = np.bincount(settings.clock[1], minlength=len(settings.sizes))
        for owner in np.flatnonzero(ticks > settings.most):
            name = self._exchange.name_of(int(owner) + 1)
            yield f"{name}: {ticks[owner]} ticks, {settings.most} answers planned: the others are refused"


def _edge(parties: int, sender: int, receiver: int) -> sparse.csr_array:
    """Return a sparse weight matrix for a single message, from `sender` to `receiver`."""
    from scipy import sparse

    return sparse.csr_array(([1.0], ([receiver], [sender])), shape=(parties, parties))
