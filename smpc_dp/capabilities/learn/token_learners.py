"""Learners of a session by a token, on a ring or a walk: their base, sums and histograms.

On a ring the token goes in the roster's order, by encrypted messages between neighbours. On a walk its holder
draws the next party; in a process of one party it is sent as `CoveredTokens`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange
from smpc_dp.capabilities.learn.exchange_tokens import CoveredTokens, PathTokens, token_messages
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
    bound_issues,
    run_event,
)
from smpc_dp.capabilities.learn.tokens import PlainTokens, TokenPassing, Values
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.network.ring import plan_ring_sum

if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.ring import RingHistogram, RingSum
    from smpc_dp.capabilities.learn.walk import WalkHistogram, WalkSum
    from smpc_dp.privacy.accountant.events import Gaussian
    from smpc_dp.privacy.guarantee import PrivacyGuarantee
    from smpc_dp.privacy.network.plan import NetworkPlan
    from smpc_dp.privacy.sampling import NoiseSource

Rounds = Annotated[int, Meta(ge=1, le=10_000)]
Steps = Annotated[int, Meta(ge=2, le=100_000)]
Colluding = Annotated[int, Meta(ge=1)]
Categories = Annotated[Annotated[int, Meta(ge=2, le=10_000)], Meta(description="d; they are 0 to d - 1")]
OfNumbers = Annotated[float, Meta(description="of each number")]
_CONTRIBUTIONS = "of each party, all of its contributions together"
Epsilon = Annotated[float, Meta(description=_CONTRIBUTIONS, extra={"range": "(0, 100]"})]
Delta = Annotated[float, Meta(description=_CONTRIBUTIONS, extra={"range": "(0, 1)"})]
Paths = Annotated[
    Literal["neighbours", "known"], Meta(description="`known` for colluders who know the whole path")
]
Limit = Annotated[int, Meta(ge=1, le=100_000)] | None
MaxContributions = Annotated[
    Limit, Meta(description="with known paths: contributions of a party; then noise alone")
]
EdgeCap = Annotated[Limit, Meta(description="with known paths: uses of an edge; then noise alone")]


class TokenLearner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Base of settings of learners in which parties pass a token to each other, with planned noise.

    Attributes:
        kind: the learner's name.
        names: of the learned values.
        start: the token at the start.
    """

    kind: ClassVar[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the learned values, which the token carries; subclasses implement this."""
        raise NotImplementedError

    @property
    def start(self) -> Values:
        """Return the values of the token at the first step; subclasses implement this."""
        raise NotImplementedError

    @property
    def tour_length(self) -> int:
        """The number of steps that a result reports for each party; subclasses implement this."""
        raise NotImplementedError

    @property
    def lines(self) -> int:
        """The number of lines that a party's one-column table must have: 1, unless overridden."""
        return 1

    @property
    def mechanism(self) -> str:
        """The mechanism that protects a contribution, in words, for the ledger."""
        return f"{self.kind}, network DP"

    def settings_issues(self) -> list[ConfigIssue]:
        """Return no faults; subclasses override this for settings that do not depend on the parties."""
        return []

    def planned(self, parties: int) -> Any:
        """Return the protocol with planned noise, or raise ConfigError; subclasses implement this."""
        raise NotImplementedError

    def messages(self, protocol: Any) -> PrivateMessages:
        """Return the plan of messages with the token, or raise ConfigError; subclasses implement this."""
        raise NotImplementedError

    def make_passing(
        self, exchange: PeerExchange, protocol: Any
    ) -> tuple[PathTokens | CoveredTokens | PlainTokens, str]:
        """Return the object that passes the token, and the privacy claim; subclasses implement this."""
        raise NotImplementedError

    async def run_protocol(
        self, protocol: Any, tokens: TokenPassing, data: list[Table], source: NoiseSource
    ) -> tuple[Values, PrivacyGuarantee | None]:
        """Run the protocol; return the published values and guarantee; subclasses implement this."""
        raise NotImplementedError

    def known(self, protocol: Any) -> Gaussian | None:  # noqa: ARG002
        """Return None; subclasses that are a Gaussian mechanism return it, for exact accounting."""
        return None

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of these settings in a network of this many parties."""
        result = self.settings_issues()
        if result:
            return result
        try:
            self.messages(planned_walk(self, parties))
        except ConfigError as error:
            return list(error.issues)
        return []

    def requirements(self, parties: int) -> Requirements:
        """Return what the learner needs of the network: messages that carry the token."""
        from smpc_dp.privacy.network.grid import guarantee

        protocol = planned_walk(self, parties)
        claim = guarantee(protocol.plan, protocol.grid.closeness, self.mechanism)
        return Requirements(exchange=self.messages(protocol), own=run_event(claim, self.known(protocol)))

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run the protocol on the local parties' tables, and return the published result and guarantee."""
        exchange, guarantee = context.peers, None
        here = exchange.here
        protocol = planned_walk(self, exchange.parties)
        tokens, claim = self.make_passing(exchange, protocol)
        learned = np.zeros((0, len(self.names)))
        if len(here):
            values, guarantee = await self.run_protocol(protocol, tokens, data, context.source)
            learned = np.tile(np.asarray(values, dtype=np.float64), (len(here), 1))
        if len(here) < exchange.parties and not isinstance(tokens, PlainTokens):
            await tokens.drain()
        steps = np.full(len(here), self.tour_length)
        return Learned(self.kind, learned, self.names, steps, steps, (), guarantee, claim)


@lru_cache(maxsize=64)
def planned_walk(settings: TokenLearner, parties: int) -> Any:
    """Return the protocol, of a ring or walk, with its noise planned, cached; or raise ConfigError."""
    return settings.planned(parties)


class RingLearner(TokenLearner, frozen=True, kw_only=True):
    """Base of settings of learners whose token goes K times round the parties on a ring.

    `by` is the protection of a contribution, in words, for the claim.
    """

    by: ClassVar[str]
    rounds: Rounds

    @property
    def tour_length(self) -> int:
        """The number K of times that the token goes round the ring."""
        return self.rounds

    @property
    def lines(self) -> int:
        """The number of rows in a party's table: one for each round."""
        return self.rounds

    def messages(self, protocol: Any) -> PrivateMessages:
        """Return the plan of messages that carry the token from neighbour to neighbour, one per hop."""
        parties = protocol.plan.parties
        bound = math.ldexp(EXACT_STEPS, -protocol.grid.bits)
        return PrivateMessages(self.start.size, bound, np.full(parties, 2 * self.rounds + parties))

    def make_passing(self, exchange: PeerExchange, protocol: Any) -> tuple[PathTokens, str]:
        """Return the object that passes the token along the ring, and the privacy claim."""
        path = np.tile(np.arange(exchange.parties), self.rounds)
        tokens = PathTokens(exchange, path, protocol.grid.bits, self.start.size)
        return tokens, f"{self.by}: {protocol.plan.assumption}; the line by itself: {exchange.claim}"


class WalkLearner(TokenLearner, frozen=True, kw_only=True):
    """Base of settings of learners whose token walks at random among all parties, beside cover messages."""

    steps: Annotated[Steps, Meta(description="T; the first adds noise alone")]
    epsilon: Epsilon
    delta: Delta
    colluding: Annotated[
        Colluding, Meta(description="c, parties who pool what they see, the aggregator beside them")
    ] = 1

    @property
    def tour_length(self) -> int:
        """The number T of steps: each party sends to every other at each step."""
        return self.steps

    def messages(self, protocol: Any) -> PrivateMessages:
        """Return the plan of messages that hide the token: all parties to all, at each step."""
        return token_messages(self.start.size, protocol.plan.parties, self.steps + 1)

    def make_passing(self, exchange: PeerExchange, protocol: Any) -> tuple[CoveredTokens | PlainTokens, str]:
        """Return the object that passes the token, beside cover messages between processes, and the claim."""
        assumption = protocol.plan.assumption
        if len(exchange.here) == exchange.parties:
            return PlainTokens(exchange.parties), f"a simulation of a walk: {assumption}"
        covered = CoveredTokens(exchange, self.steps, self.start)
        return covered, f"by the noise in the token: {assumption}; {covered.claim}"


class _Sum(TokenLearner, frozen=True, kw_only=True):
    """Base of learners of the sum of numbers in one-column tables, each from `lower` to `upper`."""

    if TYPE_CHECKING:
        # Settings stand in the order of the documents, below.
        lower: float
        upper: float

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the learned values: the sum alone."""
        return ("sum",)

    @property
    def start(self) -> Values:
        """The token's values at the start, zero in grid steps."""
        return np.zeros(1, np.int64)

    def settings_issues(self) -> list[ConfigIssue]:
        """Return the faults of the settings that do not depend on the number of parties."""
        return bound_issues(self.lower, self.upper)

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its data are numbers within the bounds."""
        check_column(table, self.lines, party)
        inside = (table >= self.lower) & (table <= self.upper)
        if not inside.all():
            number = 1 + int(np.flatnonzero(~inside)[0])
            reason = f"a contribution is outside [{self.lower:g}, {self.upper:g}]: number {number}"
            raise ConfigError.at(party, reason, ConfigCheck.RANGE)

    async def run_protocol(
        self, protocol: Any, tokens: TokenPassing, data: list[Table], source: NoiseSource
    ) -> tuple[Values, PrivacyGuarantee | None]:
        """Run the token's sum over the local parties' numbers; return the published sum and privacy."""
        result = await protocol.run(tokens, np.concatenate([table.T for table in data]), source)
        return np.array([result.value]), result.guarantee


class _Histogram(TokenLearner, frozen=True, kw_only=True):
    """Base of learners of how often each category occurs in one-column tables."""

    if TYPE_CHECKING:
        categories: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers that the token carries: one count for each category."""
        return tuple(f"count of {category}" for category in range(self.categories))

    @property
    def start(self) -> Values:
        """The token's counts at the start: all zero."""
        return np.zeros(self.categories, np.int64)

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its rows hold declared categories."""
        check_column(table, self.lines, party)
        if not np.all((table >= 0) & (table < self.categories) & (table == np.rint(table))):
            reason = f"a value is no category: an integer from 0 to {self.categories - 1}"
            raise ConfigError.at(party, reason, ConfigCheck.RANGE)

    def values(self, data: list[Table]) -> NDArray[np.int64]:
        """Return the local parties' values as category numbers, shape (rows, lines)."""
        return np.concatenate([table.T for table in data]).astype(np.int64)

    async def run_protocol(
        self, protocol: Any, tokens: TokenPassing, data: list[Table], source: NoiseSource
    ) -> tuple[Values, PrivacyGuarantee | None]:
        """Run the token's histogram over local categories; return published counts and privacy."""
        result = await protocol.run(tokens, self.values(data), source)
        return result.counts, result.guarantee


class RingSumLearner(_Sum, RingLearner, frozen=True, kw_only=True):
    """Settings of a learner that sums K numbers of each party, by a token on a ring with noise."""

    kind: ClassVar[str] = "ring-sum"
    by: ClassVar[str] = "by the noise in the token"
    rounds: Annotated[Rounds, Meta(description="K, lines of a party's table, one number each")]
    lower: OfNumbers
    upper: OfNumbers
    epsilon: Epsilon
    delta: Delta
    noise: Annotated[
        Literal["single", "distributed"], Meta(description="with `distributed` every party adds some")
    ] = "single"
    colluding: Annotated[Colluding, Meta(description="c, parties who pool what they see")] = 1

    @property
    def mechanism(self) -> str:
        """The mechanism that protects a contribution, in words, for the ledger."""
        return f"{self.noise} noise on a ring, network DP"

    def planned(self, parties: int) -> RingSum:
        """Return the protocol of the ring sum with its noise planned, or raise ConfigError."""
        # Not at the top: scipy.
        from smpc_dp.capabilities.learn.ring import RingSum

        plan = plan_ring_sum(
            parties,
            self.rounds,
            self.epsilon,
            self.delta,
            sensitivity=self.upper - self.lower,
            noise=self.noise,
            colluding=self.colluding,
        )
        ring = RingSum(plan, self.lower, self.upper)
        largest = parties * self.rounds * max(abs(self.lower), abs(self.upper)) + 64 * plan.error_std
        if largest * 2.0**ring.grid.bits >= EXACT_STEPS:
            raise ConfigError.at(
                "rounds", f"the token may reach {largest:.3g}, too large for its grid", ConfigCheck.TOO_LARGE
            )
        return ring

    def known(self, protocol: RingSum) -> Gaussian:
        """Return the run as a Gaussian mechanism for every observer."""
        from smpc_dp.privacy.accountant.events import Gaussian

        return Gaussian(protocol.mu, protocol.grid.closeness)


class RingHistogramLearner(_Histogram, RingLearner, frozen=True, kw_only=True):
    """Settings of a learner that counts K values of each party by category, by a token on a ring."""

    kind: ClassVar[str] = "ring-histogram"
    by: ClassVar[str] = "by randomised response"
    rounds: Annotated[Rounds, Meta(description="K, lines of a party's table, one category each")]
    categories: Categories
    epsilon: Annotated[
        float, Meta(description="of each party, all of its answers together, towards any one party")
    ]
    delta: Annotated[float, Meta(description="of each party, all of its answers together")]

    @property
    def mechanism(self) -> str:
        """The mechanism that protects an answer, in words, for the ledger."""
        return "randomised response on a ring, network DP"

    def planned(self, parties: int) -> RingHistogram:
        """Return the protocol of the ring histogram with randomised response planned."""
        from smpc_dp.capabilities.learn.ring import RingHistogram
        from smpc_dp.privacy.network.histogram import plan_ring_histogram

        plan = plan_ring_histogram(parties, self.rounds, self.categories, self.epsilon, self.delta)
        return RingHistogram(plan, self.categories)


class WalkSumLearner(_Sum, WalkLearner, frozen=True, kw_only=True):
    """Settings of a learner that sums parties' numbers by a token on a random walk of T steps."""

    kind: ClassVar[str] = "walk-sum"
    lower: OfNumbers
    upper: OfNumbers
    paths: Paths = "neighbours"
    contributions: Annotated[
        Rounds,
        Meta(description="lines of a table; above 1 with known paths, and `max_contributions` up to that"),
    ] = 1
    max_contributions: MaxContributions = None
    edge_cap: EdgeCap = None

    @property
    def lines(self) -> int:
        """The number of rows in a party's table: one for each contribution."""
        return self.contributions

    def settings_issues(self) -> list[ConfigIssue]:
        """Return the faults of the settings that do not depend on the number of parties."""
        result = super().settings_issues()
        most = self.max_contributions
        if self.contributions > 1 and (self.paths != "known" or most is None or most > self.contributions):
            result.append(
                ConfigIssue(
                    "contributions",
                    f"{self.contributions} of a party, one at each visit, need paths 'known' and "
                    f"max_contributions of {self.contributions} at most",
                    ConfigCheck.CONFLICT,
                )
            )
        return result

    def planned(self, parties: int) -> WalkSum:
        """Return the protocol of the random walk's sum with its noise planned, or raise ConfigError."""
        from smpc_dp.capabilities.learn.walk import WalkSum

        return WalkSum(walk_plan(self, "sum", parties, self.upper - self.lower), self.lower, self.upper)


class WalkHistogramLearner(_Histogram, WalkLearner, frozen=True, kw_only=True):
    """Settings of a learner that counts parties' categories by a token on a random walk."""

    kind: ClassVar[str] = "walk-histogram"
    categories: Categories

    def planned(self, parties: int) -> WalkHistogram:
        """Return the protocol of the walk's histogram with randomised response planned."""
        from smpc_dp.capabilities.learn.walk import WalkHistogram
        from smpc_dp.privacy.network.walk_histogram import plan_walk_histogram

        plan = plan_walk_histogram(
            parties, self.steps, self.categories, self.epsilon, self.delta, colluding=self.colluding
        )
        return WalkHistogram(plan, self.categories)

    def values(self, data: list[Table]) -> NDArray[np.int64]:
        """Return the category number of each local party, shape (rows,)."""
        return super().values(data)[:, 0]


def walk_plan(learner: Any, task: str, parties: int, sensitivity: float) -> NetworkPlan:
    """Return the plan of the noise of a random walk, also for known paths, or raise ConfigError."""
    from smpc_dp.privacy.network.complete import plan_walk

    return plan_walk(
        task,
        parties,
        learner.steps,
        learner.epsilon,
        learner.delta,
        sensitivity=sensitivity,
        colluding=learner.colluding,
        paths=learner.paths,
        max_contributions=learner.max_contributions,
        edge_cap=learner.edge_cap,
    )


def check_column(table: Table, lines: int, party: str) -> None:
    """Raise ConfigError, naming the party, unless a table has `lines` lines of one number each."""
    if table.shape != (lines, 1):
        reason = f"must be {lines} lines of one number, has shape {table.shape}"
        raise ConfigError.at(party, reason, ConfigCheck.SHAPE)
