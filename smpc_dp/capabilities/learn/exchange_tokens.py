"""Tokens as messages of a `PeerExchange`: along a public path, or to a party that only the sender knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Boxes, Parties, PeerExchange
from smpc_dp.capabilities.learn.requirements import PrivateMessages
from smpc_dp.capabilities.learn.tokens import Taken, Token, Values, do_nothing
from smpc_dp.errors import (
    Check,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    VerificationError,
)

# Values of 64 bits travel as two halves, which every encoding holds exactly.
_HALF = 1 << 32
# The first number of a message: cover, or a token, whose step follows.
_NOTHING, _HERE = 0, 1
# So that the halves stay on a grid of whole numbers: `exchanges.EXACT_STEPS`.
MAX_VALUES = 30_000


class _ExchangeTokens:
    """Base of classes that pass a token between parties over an exchange of messages."""

    _exchange: PeerExchange

    @property
    def parties(self) -> int:
        """The number of parties among which the token is passed."""
        return self._exchange.parties

    @property
    def here(self) -> Parties:
        """The numbers of the parties that this process runs: none at an aggregator."""
        return self._exchange.here

    @property
    def anonymous(self) -> bool:
        """Always False: sender and receiver know each other."""
        return False

    @property
    def claim(self) -> str:
        """The privacy claim of the exchange that carries the token."""
        return self._exchange.claim

    def name_of(self, party: int) -> str:
        """Return the name of the party with this number, for errors."""
        return self._exchange.name_of(party)


class PathTokens(_ExchangeTokens):
    """Token passing along a public path: at hop h the token goes from `path[h]` to `path[h + 1]`.

    The last party of the path then sends it to all others, in ascending order. All parties make the same
    calls: `take` takes part in the hops of others until one is its own.
    """

    def __init__(self, exchange: PeerExchange, path: Parties, bits: int, length: int = 1) -> None:
        """`bits`: tokens are `length` integers, and travel in units of 2^-bits."""
        last = int(path[-1])
        others = [party for party in range(exchange.parties) if party != last]
        self._exchange, self._bits, self._length, self._hop = exchange, bits, length, 0
        passed = [(int(a), int(b)) for a, b in pairwise(path)]
        # A party that keeps the token sends nothing.
        self._hops = [pair for pair in passed if pair[0] != pair[1]] + [(last, party) for party in others]
        self._steps = [t for t, pair in enumerate(passed, 1) if pair[0] != pair[1]] + [len(path)] * len(
            others
        )

    async def pass_on(self, sender: int, receiver: int, token: Token) -> None:
        """Send the token to the next party of the path; raise LocalError if it is another party's turn."""
        if self._hop >= len(self._hops) or self._hops[self._hop] != (sender, receiver):
            raise LocalError(
                f"a token from party {sender} to {receiver} is not on the path at hop {self._hop}"
            )
        await self._swap(np.ldexp(token.values.astype(np.float64), -self._bits))

    async def publish(self, sender: int, token: Token) -> None:
        """Send the final token from `sender` to each other party in turn along the path's last hops."""
        for party in range(self.parties):
            if party != sender:
                await self.pass_on(sender, party, token)

    async def take(self, idle: Callable[[], None] = do_nothing) -> Taken:  # noqa: ARG002
        """Take part in hops until the token arrives here, and return it; LocalError if it never does."""
        while self._hop < len(self._hops):
            (sender, receiver), step = self._hops[self._hop], self._steps[self._hop]
            result = await self._swap(np.zeros(self._length))
            if receiver in self.here:
                values = np.rint(np.ldexp(result[0], self._bits)).astype(np.int64)
                return Taken(sender, receiver, Token(step, values), self.name_of(sender))
        raise LocalError("the path of the token has ended")

    async def drain(self) -> None:
        """Take part in the remaining hops of the path, without keeping a token."""
        while self._hop < len(self._hops):
            await self._swap(np.zeros(self._length))

    async def _swap(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take part in the current hop: send this vector to the hop's partner and return the reply."""
        sender, receiver = self._hops[self._hop]
        self._hop += 1
        partner = np.arange(self.parties)
        partner[[sender, receiver]] = receiver, sender
        return await self._exchange.exchange(np.tile(vector, (len(self.here), 1)), partner)


class CoveredTokens(_ExchangeTokens):
    """Token passing that hides who has the token from all but its sender and receiver, by cover messages.

    All but the token's message are cover. At hop h, 0 to `steps`, the token of step h moves; at the last hop
    its holder sends it to all. A party that keeps the token sends it to itself.
    """

    def __init__(self, exchange: PeerExchange, steps: int, start: Values) -> None:
        """`start`: of the shape and type of all tokens; `steps`: T. At most one party may be local."""
        if len(exchange.here) > 1:
            raise ConfigError.at(
                "here", "a covered token runs with one party here, or at a hub", ConfigCheck.CONFLICT
            )
        self._exchange, self._steps, self._start, self._hop = exchange, steps, start, 0
        self._arrived: deque[Taken] = deque()

    @property
    def claim(self) -> str:
        """The privacy claim of the messages that hide the token, in words, with its adversary."""
        return (
            "who passes the token on knows to whom, who gets it from whom, and nobody else who has it, the "
            "aggregator included: at each step everyone sends everyone a sealed message of the same length; "
            f"who sees when parties are busy may know. A message by itself: {super().claim}"
        )

    async def pass_on(self, sender: int, receiver: int, token: Token) -> None:
        """Send the token among cover messages; LocalError at another step than the token's."""
        if not (sender in self.here and 0 <= receiver < self.parties):
            raise LocalError(f"a token from party {sender} to {receiver} does not leave here")
        boxes = self._cover()
        boxes[0, receiver] = pack_token(token)
        await self._at(token.step, boxes)
        if self._arrived and receiver != sender:
            raise self._second(self._arrived[0].sender)

    async def publish(self, sender: int, token: Token) -> None:
        """Send the final token to all others at the last hop; VerificationError if another one comes."""
        boxes = self._cover()
        boxes[0] = pack_token(token)
        boxes[0, sender] = 0
        await self._at(token.step, boxes)
        if self._arrived:
            raise self._second(self._arrived[0].sender)

    async def take(self, idle: Callable[[], None] = do_nothing) -> Taken:
        """Take part in hops with cover messages until a token arrives; return it, or VerificationError."""
        while not self._arrived:
            if self._hop > self._steps:
                raise VerificationError(
                    "nobody has published the token: it was lost on its way", Check.NOT_SHOWN
                )
            idle()
            await self._swap(self._cover())
        return self._arrived.popleft()

    async def drain(self) -> None:
        """Take part in the remaining hops, sending cover messages to all parties."""
        while self._hop <= self._steps:
            await self._swap(self._cover())

    def _cover(self) -> Boxes:
        """Return cover messages to all parties: all zero, as long as a message with a token."""
        return np.zeros((len(self.here), self.parties, width(self._start.size)))

    async def _at(self, step: int, boxes: Boxes) -> None:
        """Send these messages at the hop of this step; raise LocalError at any other hop."""
        if self._hop != step:
            raise LocalError(f"the token of step {step} is passed on at hop {self._hop} of {self._steps}")
        await self._swap(boxes)

    async def _swap(self, boxes: Boxes) -> None:
        """Send messages to all parties in the current hop; store a token that arrives, PeerFault if wrong."""
        hop = self._hop
        self._hop += 1
        received = await self._exchange.all_to_all(boxes)
        for own, result in zip(self.here.tolist(), received, strict=True):
            for sender, vector in enumerate(result):
                token = unpack_token(vector, self._start, self.name_of(sender))
                if token is None:
                    continue
                if token.step != hop:
                    raise PeerFault(
                        self.name_of(sender),
                        f"token of step {token.step} at hop {hop}",
                        Check.OUT_OF_SEQUENCE,
                    )
                if self._arrived:
                    raise self._second(sender)
                self._arrived.append(Taken(sender, own, token, self.name_of(sender)))

    def _second(self, sender: int) -> VerificationError:
        """Return the error that two parties sent a token: one is forged, and nothing shows which."""
        reason = f"a token came from {self.name_of(sender)} while another was on its way"
        return VerificationError(
            f"{reason}: one of the two is forged, and nothing shows which", Check.TOO_MANY
        )


def width(values: int) -> int:
    """Return the number of values in a message that can carry a token of `values` values."""
    return 2 + 2 * values


def pack_token(token: Token) -> NDArray[np.float64]:
    """Return a token as whole numbers below 2^32: a mark, its step, and the halves of its values."""
    bits = np.ascontiguousarray(token.values.reshape(-1)).view(np.uint64)
    halves = np.concatenate([bits % _HALF, bits // _HALF])
    return np.concatenate([[_HERE, token.step], halves]).astype(np.float64)


def unpack_token(vector: NDArray[np.float64], like: Values, sender: str) -> Token | None:
    """Return the token in a message, or None for a cover message; raise PeerFault for anything else."""
    whole = np.rint(vector).astype(np.int64)
    good = np.all((whole == vector) & (whole >= 0) & (whole < _HALF))
    if not good or not (whole[0] == _HERE or (whole == _NOTHING).all()):
        raise PeerFault(sender, "its message is neither a token nor none", Check.MALFORMED)
    if whole[0] == _NOTHING:
        return None
    low, high = whole[2:].astype(np.uint64).reshape(2, -1)
    bits = (low + high * np.uint64(_HALF)).reshape(like.shape)
    return Token(int(whole[1]), bits.view(np.int64) if like.dtype == np.int64 else bits.view(np.float64))


def token_messages(values: int, parties: int, hops: int) -> PrivateMessages:
    """Return the plan of messages for hidden token passing; raise ConfigError for too long tokens."""
    if values > MAX_VALUES:
        raise ConfigError.at("token", f"has {values} values, {MAX_VALUES} at most", ConfigCheck.RANGE)
    # A power of two of at least the norm of the largest message.
    bound = 2.0 ** np.ceil(np.log2(_HALF * np.sqrt(width(values))))
    return PrivateMessages(width(values), float(bound), np.full(parties, hops), None, None)
