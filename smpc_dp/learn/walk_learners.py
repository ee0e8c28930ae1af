"""Walks on the complete graph as learners of a session: what they have in common, sums, histograms.

Where one user lives, the token goes as `CoveredTokens`, and its holder draws the next user.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.learn.exchange_tokens import CoveredTokens, spent, token_messages
from smpc_dp.learn.needs import Learned, Means, Needs, Table
from smpc_dp.learn.ring_learner import (
    bound_faults,
    category_names,
    check_categories,
    check_column,
    check_within,
)
from smpc_dp.learn.tokens import PlainTokens, TokenPassing, Values

if TYPE_CHECKING:
    from smpc_dp.learn.walk import WalkHistogram, WalkSum
    from smpc_dp.privacy.guarantee import PrivacyGuarantee
    from smpc_dp.privacy.network.plan import NetworkPlan
    from smpc_dp.privacy.sampling import NoiseSource

Steps = Annotated[int, Meta(ge=2, le=100_000)]
Limit = Annotated[int, Meta(ge=1, le=100_000)] | None


class WalkLearner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What all walks have in common."""

    steps: Annotated[Steps, Meta(description="T; the first adds noise alone")]
    epsilon: Annotated[float, Meta(description="of each party, all of its contributions together")]
    delta: Annotated[float, Meta(description="of each party, all of its contributions together")]
    colluding: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(description="c, parties who pool what they see, the aggregator beside them"),
    ] = 1

    @property
    def kind(self) -> str:
        """The learner's name."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what is learned."""
        raise NotImplementedError

    @property
    def start(self) -> Values:
        """The token at the start."""
        raise NotImplementedError

    def settings_faults(self) -> list[Fault]:
        """Return what is wrong whatever the number of users."""
        return []

    def plan(self, users: int) -> NetworkPlan:
        """Return the planned noise; raises ConfigError."""
        raise NotImplementedError

    def made(self, plan: NetworkPlan) -> Any:
        """Return the planned protocol; raises ConfigError."""
        raise NotImplementedError

    async def walked(
        self, protocol: Any, tokens: TokenPassing, data: list[Table], source: NoiseSource
    ) -> tuple[Values, PrivacyGuarantee | None]:
        """Run the protocol with the data of the users here; return what is published."""
        raise NotImplementedError

    def closeness(self, protocol: Any) -> float:
        """Return what the grid of the noise adds to epsilon."""
        return float(protocol.grid.closeness)

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings."""
        found = self.settings_faults()
        if found:
            return found
        try:
            planned_walk(self, users)
            token_messages(self.start.size, users, 1)
        except ConfigError as error:
            return list(error.faults)
        return []

    def needs(self, users: int) -> Needs:
        """Return what it communicates: a message of everyone to everyone at each step, and one before."""
        from smpc_dp.privacy.network.grid import guarantee

        protocol = planned_walk(self, users)
        messages = token_messages(self.start.size, users, self.steps + 1)
        claim = guarantee(protocol.plan, self.closeness(protocol), f"{self.kind}, network DP")
        return Needs(exchange=messages, own=spent(claim))

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Walk; see `needs.Learner`. Next users are drawn from the same source as the noise."""
        exchange = means.exchange
        if exchange is None:
            raise LocalError("a walk needs messages")
        here, users = exchange.here, exchange.users
        protocol = planned_walk(self, users)
        steps = np.full(len(here), self.steps)
        if len(here) == users:
            tokens: TokenPassing = PlainTokens(users)
            values, found = await self.walked(protocol, tokens, data, means.source)
            claim = f"a simulation of a walk: {protocol.plan.assumption}"
        else:
            covered = CoveredTokens(exchange, self.steps, self.start)
            claim = f"by the noise in the token: {protocol.plan.assumption}; {covered.claim}"
            if not len(here):
                await covered.drain()
                nothing = np.zeros((0, len(self.names)))
                return Learned(self.kind, nothing, self.names, steps, steps, claim=claim)
            values, found = await self.walked(protocol, covered, data, means.source)
        learned = np.tile(np.asarray(values, dtype=np.float64), (len(here), 1))
        return Learned(self.kind, learned, self.names, steps, steps, (), found, claim)


@lru_cache(maxsize=64)
def planned_walk(settings: WalkLearner, users: int) -> Any:
    """Return the protocol of these settings; raises ConfigError."""
    return settings.made(settings.plan(users))


class WalkSumLearner(WalkLearner, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The sum of the contributions at T steps of a random walk, T - 1 of them without limits."""

    lower: Annotated[float, Meta(description="of each number")]
    upper: Annotated[float, Meta(description="of each number")]
    paths: Annotated[
        Literal["neighbours", "known"], Meta(description="`known` for colluders who know the whole path")
    ] = "neighbours"
    contributions: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Meta(description="lines of a table; above 1 with known paths and `max_contributions` up to that"),
    ] = 1
    max_contributions: Annotated[
        Limit, Meta(description="with known paths: contributions of a party; then noise alone")
    ] = None
    edge_cap: Annotated[Limit, Meta(description="with known paths: uses of an edge; then noise alone")] = None

    @property
    def kind(self) -> str:
        """The learner's name."""
        return "walk-sum"

    @property
    def names(self) -> tuple[str, ...]:
        """One sum."""
        return ("sum",)

    @property
    def start(self) -> Values:
        """Zero, in grid steps."""
        return np.zeros(1, np.int64)

    def settings_faults(self) -> list[Fault]:
        """Return what is wrong whatever the number of users."""
        found = bound_faults(self.lower, self.upper)
        most = self.max_contributions
        if self.contributions > 1 and (self.paths != "known" or most is None or most > self.contributions):
            found.append(
                Fault(
                    "contributions",
                    f"{self.contributions} of a party, one at each visit, need paths 'known' and "
                    f"max_contributions of {self.contributions} at most",
                )
            )
        return found

    def plan(self, users: int) -> NetworkPlan:
        """Return the planned noise; raises ConfigError."""
        from smpc_dp.privacy.network.complete import plan_walk

        return plan_walk(
            "sum",
            users,
            self.steps,
            self.epsilon,
            self.delta,
            sensitivity=self.upper - self.lower,
            colluding=self.colluding,
            paths=self.paths,
            max_contributions=self.max_contributions,
            edge_cap=self.edge_cap,
        )

    def made(self, plan: NetworkPlan) -> WalkSum:
        """Return the planned protocol; raises ConfigError."""
        from smpc_dp.learn.walk import WalkSum

        return WalkSum(plan, self.lower, self.upper)

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its data are numbers within the bounds."""
        check_column(table, self.contributions, user)
        check_within(table, self.lower, self.upper, user)

    async def walked(
        self, protocol: WalkSum, tokens: TokenPassing, data: list[Table], source: NoiseSource
    ) -> tuple[Values, PrivacyGuarantee | None]:
        """Sum."""
        found = await protocol.run(tokens, np.concatenate([table.T for table in data]), source)
        return np.array([found.value]), found.guarantee


class WalkHistogramLearner(WalkLearner, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """How often each category is met at T - 1 steps of a random walk, by randomised response."""

    categories: Annotated[Annotated[int, Meta(ge=2, le=10_000)], Meta(description="d; they are 0 to d - 1")]

    @property
    def kind(self) -> str:
        """The learner's name."""
        return "walk-histogram"

    @property
    def names(self) -> tuple[str, ...]:
        """One count of each category."""
        return category_names(self.categories)

    @property
    def start(self) -> Values:
        """No answers."""
        return np.zeros(self.categories, np.int64)

    def closeness(self, protocol: WalkHistogram) -> float:  # noqa: ARG002
        """Nothing: answers are exact."""
        return 0.0

    def plan(self, users: int) -> NetworkPlan:
        """Return the planned chance of a random answer; raises ConfigError."""
        from smpc_dp.privacy.network.walk_histogram import plan_walk_histogram

        return plan_walk_histogram(
            users, self.steps, self.categories, self.epsilon, self.delta, colluding=self.colluding
        )

    def made(self, plan: NetworkPlan) -> WalkHistogram:
        """Return the planned protocol; raises ConfigError."""
        from smpc_dp.learn.walk import WalkHistogram

        return WalkHistogram(plan, self.categories)

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its data are one category."""
        check_column(table, 1, user)
        check_categories(table, self.categories, user)

    async def walked(
        self, protocol: WalkHistogram, tokens: TokenPassing, data: list[Table], source: NoiseSource
    ) -> tuple[Values, PrivacyGuarantee | None]:
        """Count."""
        values = np.array([int(table[0, 0]) for table in data], dtype=np.int64)
        found = await protocol.run(tokens, values, source)
        return found.counts, found.guarantee
