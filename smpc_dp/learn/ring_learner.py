"""Sums and histograms on a ring as learners of a session: sealed messages between neighbours."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.learn.exchange_tokens import PathTokens, spent
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.privacy.network.ring import plan_ring_sum

if TYPE_CHECKING:
    from smpc_dp.learn.ring import RingHistogram, RingSum

# Steps of the messages' encoding in its bound; `exchanges.EXACT_STEPS`.
_ROOM = 40


class RingSumLearner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The sum of every party's K contributions, by a token in the roster's order: see `learn.ring`."""

    rounds: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Meta(description="K, lines of a party's table, one number each"),
    ]
    lower: Annotated[float, Meta(description="of each number")]
    upper: Annotated[float, Meta(description="of each number")]
    epsilon: Annotated[float, Meta(description="of each party, all of its contributions together")]
    delta: Annotated[float, Meta(description="of each party, all of its contributions together")]
    noise: Annotated[
        Literal["single", "distributed"], Meta(description="with `distributed` every party adds some")
    ] = "single"
    colluding: Annotated[
        Annotated[int, Meta(ge=1)], Meta(description="c, parties who pool what they see")
    ] = 1

    def ring(self, users: int) -> RingSum:
        """Return the planned protocol; raises ConfigError."""
        # Not at the top: scipy.
        from smpc_dp.learn.ring import RingSum

        plan = plan_ring_sum(
            users,
            self.rounds,
            self.epsilon,
            self.delta,
            sensitivity=self.upper - self.lower,
            noise=self.noise,
            colluding=self.colluding,
        )
        ring = RingSum(plan, self.lower, self.upper)
        largest = users * self.rounds * max(abs(self.lower), abs(self.upper)) + 64 * plan.error_std
        if largest * 2.0**ring.grid.bits >= 2.0**_ROOM:
            raise ConfigError([Fault("rounds", f"the token may reach {largest:.3g}, too large for its grid")])
        return ring

    @cached_property
    def _bounds(self) -> list[Fault]:
        return bound_faults(self.lower, self.upper)

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings."""
        if self._bounds:
            return self._bounds
        try:
            self.ring(users)
        except ConfigError as error:
            return list(error.faults)
        return []

    def needs(self, users: int) -> Needs:
        """Return what it communicates: the token, once for each hop, and nothing from who only receives."""
        from smpc_dp.privacy.accountant.events import Gaussian
        from smpc_dp.privacy.network.grid import guarantee

        ring = self.ring(users)
        messages = _messages(1, 2.0 ** (_ROOM - ring.grid.bits), self.rounds, users)
        claim = guarantee(ring.plan, ring.grid.closeness, f"{self.noise} noise on a ring, network DP")
        return Needs(exchange=messages, own=spent(claim, Gaussian(ring.mu, ring.grid.closeness)))

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its data are K numbers within the bounds."""
        check_column(table, self.rounds, user)
        check_within(table, self.lower, self.upper, user)

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Sum; see `needs.Learner`."""
        exchange = means.exchange
        if exchange is None:
            raise LocalError("a ring needs messages")
        ring, here = self.ring(exchange.users), exchange.here
        tokens = PathTokens(exchange, np.tile(np.arange(exchange.users), self.rounds), ring.grid.bits)
        steps = np.full(len(here), self.rounds)
        claim = f"by the noise in the token: {ring.plan.assumption}; the line by itself: {exchange.claim}"
        if not len(here):
            await tokens.drain()
            return Learned("ring-sum", np.zeros((0, 1)), ("sum",), steps, steps, claim=claim)
        values = np.concatenate([table.T for table in data])
        found = await ring.run(tokens, values, means.source)
        if len(here) < exchange.users:
            await tokens.drain()
        learned = np.full((len(here), 1), found.value)
        return Learned("ring-sum", learned, ("sum",), steps, steps, (), found.guarantee, claim)


class RingHistogramLearner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """How often each category is among every party's K values, by a token in the roster's order."""

    rounds: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Meta(description="K, lines of a party's table, one category each"),
    ]
    categories: Annotated[Annotated[int, Meta(ge=2, le=10_000)], Meta(description="d; they are 0 to d - 1")]
    epsilon: Annotated[
        float, Meta(description="of each party, all of its answers together, towards any one party")
    ]
    delta: Annotated[float, Meta(description="of each party, all of its answers together")]

    def ring(self, users: int) -> RingHistogram:
        """Return the planned protocol; raises ConfigError."""
        return _planned_histogram(self, users)

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings."""
        try:
            self.ring(users)
        except ConfigError as error:
            return list(error.faults)
        return []

    def needs(self, users: int) -> Needs:
        """Return what it communicates: the token, once for each hop."""
        from smpc_dp.privacy.network.grid import guarantee

        messages = _messages(self.categories, 2.0**_ROOM, self.rounds, users)
        claim = guarantee(self.ring(users).plan, 0.0, "randomised response on a ring, network DP")
        return Needs(exchange=messages, own=spent(claim))

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its data are K categories."""
        check_column(table, self.rounds, user)
        check_categories(table, self.categories, user)

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Count; see `needs.Learner`."""
        exchange = means.exchange
        if exchange is None:
            raise LocalError("a ring needs messages")
        ring, here = self.ring(exchange.users), exchange.here
        path = np.tile(np.arange(exchange.users), self.rounds)
        tokens = PathTokens(exchange, path, 0, self.categories)
        steps = np.full(len(here), self.rounds)
        claim = f"by randomised response: {ring.plan.assumption}; the line by itself: {exchange.claim}"
        names = category_names(self.categories)
        if not len(here):
            await tokens.drain()
            nothing = np.zeros((0, self.categories))
            return Learned("ring-histogram", nothing, names, steps, steps, claim=claim)
        values = np.concatenate([table.T for table in data]).astype(np.int64)
        found = await ring.run(tokens, values, means.source)
        if len(here) < exchange.users:
            await tokens.drain()
        learned = np.tile(found.counts, (len(here), 1))
        return Learned("ring-histogram", learned, names, steps, steps, (), found.guarantee, claim)


@lru_cache(maxsize=16)
def _planned_histogram(settings: RingHistogramLearner, users: int) -> RingHistogram:
    from smpc_dp.learn.ring import RingHistogram
    from smpc_dp.privacy.network.histogram import plan_ring_histogram

    categories = settings.categories
    plan = plan_ring_histogram(users, settings.rounds, categories, settings.epsilon, settings.delta)
    return RingHistogram(plan, categories)


def _messages(length: int, bound: float, rounds: int, users: int) -> PrivateMessages:
    return PrivateMessages(length, bound, np.full(users, 2 * rounds + users), None, None)


def category_names(categories: int) -> tuple[str, ...]:
    """Return names of counts."""
    return tuple(f"count of {category}" for category in range(categories))


def bound_faults(lower: float, upper: float) -> list[Fault]:
    """Return what is wrong with the bounds of a number."""
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        return [Fault("upper", f"must be above lower and both finite: {lower}, {upper}")]
    return []


def check_column(table: Table, lines: int, user: str) -> None:
    """Raise ConfigError, naming the user, unless a table is so many lines of one number."""
    if table.shape != (lines, 1):
        what = f"must be {lines} lines of one number, has shape {table.shape}"
        raise ConfigError([Fault(user, what)])


def check_within(table: Table, lower: float, upper: float, user: str) -> None:
    """Raise ConfigError, naming the user, unless all numbers are within the bounds."""
    if not np.all((table >= lower) & (table <= upper)):
        raise ConfigError([Fault(user, f"a contribution is outside [{lower:g}, {upper:g}]")])


def check_categories(table: Table, categories: int, user: str) -> None:
    """Raise ConfigError, naming the user, unless all numbers are categories."""
    if not np.all((table >= 0) & (table < categories) & (table == np.rint(table))):
        raise ConfigError([Fault(user, f"a value is no category: an integer from 0 to {categories - 1}")])
