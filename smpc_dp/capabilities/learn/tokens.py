"""Interface of token passing: one party at a time holds the token, and only its receiver sees it.

A learner takes a `TokenPassing` and has no other way to the others, as with `Averager` and `PeerExchange`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import AllLocal, Location
from smpc_dp.errors import Check, ConfigCheck, ConfigError, PeerFault

Values = NDArray[np.int64] | NDArray[np.float64]
# Whether parties who follow the protocol can have made a token of this many steps, above 0.
Possible = Callable[[Values, int], bool]


@dataclass(frozen=True, slots=True)
class Token:
    """A token that parties pass on: the number of steps so far, and the values that result."""

    step: int
    values: Values


class Taken(NamedTuple):
    """A token that has arrived: its sender (number and name) and its receiver, a local party."""

    sender: int
    receiver: int
    token: Token
    name: str


def do_nothing() -> None:
    """Do nothing: the default action of a party that waits for a token."""


class TokenPassing(Location, Protocol):
    """Interface of objects that pass a token from one party to another over private channels."""

    @property
    def anonymous(self) -> bool:
        """Whether sender and receiver of a token stay unknown to each other (Remark 4.5)."""
        ...

    def name_of(self, party: int) -> str:
        """Return the name of the party with this number, for errors."""
        ...

    async def pass_on(self, sender: int, receiver: int, token: Token) -> None:
        """Pass `token` from `sender`, a local party, to `receiver`."""
        ...

    async def take(self, idle: Callable[[], None] = do_nothing) -> Taken:
        """Wait for the next token of a local party; raise TimeoutFault or PeerFault if none can come.

        `idle` is called at each step that passes without a token, where steps can be counted.
        """
        ...

    async def publish(self, sender: int, token: Token) -> None:
        """Send the final token from `sender`, a local party, to all parties that are not local."""
        ...


class PlainTokens(AllLocal):
    """Token passing in the memory of one process, for simulations and tests: nothing is hidden."""

    def __init__(self, parties: int) -> None:
        super().__init__(parties)
        self._queues = [asyncio.Queue[Taken]()] * parties

    @property
    def anonymous(self) -> bool:
        """Always False: senders and receivers are known."""
        return False

    @property
    def claim(self) -> str:
        """The sentence that says that tokens passed like this protect nothing."""
        return "NO PRIVACY: tokens are in the memory of one process; for simulations and tests only"

    async def pass_on(self, sender: int, receiver: int, token: Token) -> None:
        """Put the token into the receiver's queue; raise ConfigError unless the sender is local."""
        if not (sender in self._here and 0 <= receiver < self.parties):
            reason = (
                f"from {sender} to {receiver}: the sender must live here, the receiver be one of the parties"
            )
            raise ConfigError.at("token", reason, ConfigCheck.RANGE)
        await self._queues[receiver].put(Taken(sender, receiver, token, self.name_of(sender)))

    async def take(self, idle: Callable[[], None] = do_nothing) -> Taken:  # noqa: ARG002
        """Wait for the next token for a local party, and return it with its sender."""
        return await self._queues[int(self._here[0])].get()

    async def publish(self, sender: int, token: Token) -> None:
        """Put the final token of `sender` into the queues of all parties that are not local."""
        for party in np.setdiff1d(np.arange(self.parties), self._here).tolist():
            await self.pass_on(sender, party, token)


def check_token(taken: Taken, after: int, steps: int, start: Values, possible: Possible) -> Values:
    """Return a received token's values; raise PeerFault unless finite, possible and of a due step."""
    values, shape, dtype = taken.token.values, start.shape, start.dtype.type
    sender = taken.name
    if not after <= taken.token.step <= steps:
        raise PeerFault(
            sender, f"token of step {taken.token.step}, expected {after} to {steps}", Check.OUT_OF_SEQUENCE
        )
    if values.shape != shape or values.dtype != dtype:
        raise PeerFault(
            sender,
            f"token of {values.dtype} {values.shape}, expected {dtype.__name__} {shape}",
            Check.WRONG_LENGTH,
        )
    if not np.isfinite(values).all():
        raise PeerFault(sender, "token is not finite", Check.OUT_OF_RANGE)
    fine = possible(values, taken.token.step) if taken.token.step else np.array_equal(values, start)
    if not fine:
        raise PeerFault(
            sender, f"no {taken.token.step} steps make the token that it sent", Check.WRONG_RESULT
        )
    return values
