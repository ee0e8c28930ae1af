"""Sums on a ring as a learner of a session: the token travels as sealed messages between neighbours."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.learn.averager import PeerExchange, Users
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.learn.tokens import Taken, Token
from smpc_dp.privacy.network.ring import plan_ring_sum
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from smpc_dp.learn.ring import RingSum

# Steps of the messages' encoding in its bound; `exchanges.EXACT_STEPS`.
_ROOM = 40


class ExchangeTokens:
    """A token along a public path, by exchanges: at hop h it goes from `path[h]` to `path[h + 1]`.

    The last of the path then hands it to everybody else, in ascending order. All places make the same calls:
    `take` takes part in the hops of others until one is its own.
    """

    # Of the vector that a token is.
    length = 1

    def __init__(self, exchange: PeerExchange, path: Users, bits: int) -> None:
        """`bits`: tokens are integers, and travel in units of 2^-bits."""
        last = int(path[-1])
        others = [user for user in range(exchange.users) if user != last]
        self._exchange, self._bits, self._hop = exchange, bits, 0
        passed = [(int(a), int(b)) for a, b in pairwise(path)]
        # Who keeps the token sends nothing.
        self._hops = [pair for pair in passed if pair[0] != pair[1]] + [(last, user) for user in others]
        self._steps = [t for t, pair in enumerate(passed, 1) if pair[0] != pair[1]] + [len(path)] * len(
            others
        )

    @property
    def users(self) -> int:
        """n."""
        return self._exchange.users

    @property
    def here(self) -> Users:
        """The party's own number, or nobody at a hub."""
        return self._exchange.here

    @property
    def anonymous(self) -> bool:
        """The path is public."""
        return False

    @property
    def claim(self) -> str:
        """That of the exchange."""
        return self._exchange.claim

    async def pass_on(self, sender: int, receiver: int, token: Token) -> None:
        """Hand the token on; raise LocalError unless it is this hop's turn."""
        if self._hop >= len(self._hops) or self._hops[self._hop] != (sender, receiver):
            raise LocalError(
                f"a token from user {sender} to {receiver} is not on the path at hop {self._hop}"
            )
        await self._swap(np.ldexp(token.values.astype(np.float64), -self._bits))

    async def take(self) -> Taken:
        """Take part in hops until one ends here, and return its token; raise LocalError if none does."""
        while self._hop < len(self._hops):
            (sender, receiver), step = self._hops[self._hop], self._steps[self._hop]
            found = await self._swap(np.zeros(self.length))
            if receiver in self.here:
                values = np.rint(np.ldexp(found[0], self._bits)).astype(np.int64)
                return Taken(sender, receiver, Token(step, values))
        raise LocalError("the path of the token has ended")

    async def drain(self) -> None:
        """Take part in whatever hops are left."""
        while self._hop < len(self._hops):
            await self._swap(np.zeros(self.length))

    async def _swap(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        sender, receiver = self._hops[self._hop]
        self._hop += 1
        partner = np.arange(self.users)
        partner[[sender, receiver]] = receiver, sender
        return await self._exchange.exchange(np.tile(vector, (len(self.here), 1)), partner)


class RingSumLearner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The sum of every party's K contributions, by a token in the roster's order: see `learn.ring`.

    Attributes:
        rounds: K; a party's data are K lines of one number. lower, upper: bounds of each.
        epsilon, delta: for each party, all of its contributions together.
        noise: "single", or "distributed": every party adds some.
        colluding: c, parties who pool what they see.
    """

    rounds: Annotated[int, Meta(ge=1, le=10_000)]
    lower: float
    upper: float
    epsilon: float
    delta: float
    noise: Literal["single", "distributed"] = "single"
    colluding: Annotated[int, Meta(ge=1)] = 1

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
        if not (math.isfinite(self.lower) and math.isfinite(self.upper) and self.lower < self.upper):
            return [Fault("upper", f"must be above lower and both finite: {self.lower}, {self.upper}")]
        return []

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
        from smpc_dp.privacy.accountant.events import Event, Pure
        from smpc_dp.privacy.network.grid import guarantee

        ring = self.ring(users)
        bound = 2.0 ** (_ROOM - ring.grid.bits)
        messages = PrivateMessages(1, bound, np.full(users, 2 * self.rounds + users), None, None)
        claim = guarantee(ring.plan, ring.grid.closeness, f"{self.noise} noise on a ring, network DP")
        event = Event(claim.mechanism, claim.relation, (Pure(claim.epsilon, claim.delta),))
        return Needs(exchange=messages, own=event)

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its data are K numbers within the bounds."""
        if table.shape != (self.rounds, 1):
            what = f"must be {self.rounds} lines of one number, has shape {table.shape}"
            raise ConfigError([Fault(user, what)])
        if not np.all((table >= self.lower) & (table <= self.upper)):
            raise ConfigError([Fault(user, f"a contribution is outside [{self.lower:g}, {self.upper:g}]")])

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Sum; see `needs.Learner`. Noise is the system's, in simulations too."""
        exchange = means.exchange
        if exchange is None:
            raise LocalError("a ring needs messages")
        ring, here = self.ring(exchange.users), exchange.here
        tokens = ExchangeTokens(exchange, np.tile(np.arange(exchange.users), self.rounds), ring.grid.bits)
        steps = np.full(len(here), self.rounds)
        claim = f"by the noise in the token: {ring.plan.assumption}; the line by itself: {exchange.claim}"
        if not len(here):
            await tokens.drain()
            return Learned("ring-sum", np.zeros((0, 1)), ("sum",), steps, steps, claim=claim)
        values = np.concatenate([table.T for table in data])
        found = await ring.run(tokens, values, NoiseSource.system())
        if len(here) < exchange.users:
            await tokens.drain()
        learned = np.full((len(here), 1), found.value)
        return Learned("ring-sum", learned, ("sum",), steps, steps, (), found.guarantee, claim)
