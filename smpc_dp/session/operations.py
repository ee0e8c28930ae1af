"""Selection of a request's operation by majority, from the parties' hellos."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection, Set
from dataclasses import replace

import msgspec

from smpc_dp.engine.phases.messages import HELLO, Hello
from smpc_dp.errors import LocalError, PeerFault
from smpc_dp.session.connection_pool import SMALL_MESSAGE, InboundEvent
from smpc_dp.session.exchange.messages import HELLO as EXCHANGE_HELLO
from smpc_dp.session.member import Membership
from smpc_dp.session.tasks import BESIDE
from smpc_dp.wire.abort import QUIT, TEXTS, Abort
from smpc_dp.wire.signing import decode

# First step of a sum, of an exchange, and of requests beside sums.
HELLOS = (HELLO, EXCHANGE_HELLO, *BESIDE)
# A hello, a second one that differs, which is a fault, and losses between them.
MAX_HELD = 4


def is_hello(inbound: InboundEvent) -> bool:
    """Return whether an incoming message is a first message that asks for an operation."""
    return inbound.envelope is not None and inbound.envelope.step in HELLOS


def small(inbound: InboundEvent) -> InboundEvent:
    """Return an incoming event to be stored, without its body if that is too large for a hello.

    The rest has a wrong signature, and excludes its sender.
    """
    envelope = inbound.envelope
    if envelope is None or len(envelope.body) <= SMALL_MESSAGE:
        return inbound
    return replace(inbound, envelope=msgspec.structs.replace(envelope, body=b""))


def leaving_error(inbound: InboundEvent, membership: Membership) -> LocalError | None:
    """Return the error in a party's signed message that it leaves the session for good, else None.

    An unsigned one is left to the role, which excludes its sender from the request.
    """
    if inbound.envelope is None or inbound.envelope.step != QUIT:
        return None
    try:
        membership.context(inbound.request).check(inbound.envelope)
    except PeerFault:
        return None
    try:
        reason = TEXTS[decode(inbound.envelope.body, Abort, inbound.peer).code]
    except PeerFault as fault:
        reason = fault.reason
    return LocalError(f"{inbound.peer} left: {reason}")


class Operations:
    """Collection of the parties' hellos for one request, until it is clear what most of them ask for.

    One party that asks for another operation must not take the request from all others.
    """

    def __init__(self, parties: int, ignored: Collection[str]) -> None:
        """`ignored`: excluded parties, whatever they ask for."""
        self._most = parties // 2 + 1
        self._ignored = ignored
        # By the number of their arrival, and these numbers by party: ten thousand are not searched for each
        # event.
        self._held: dict[int, InboundEvent] = {}
        self._numbers: dict[str, list[int]] = {}
        self._arrivals = itertools.count()

    @property
    def heard(self) -> Set[str]:
        """Names of the parties of which a message or a loss is stored."""
        return self._numbers.keys()

    def hold(self, inbound: InboundEvent) -> None:
        """Store a party's message or loss until the operation is decided; ignore all but a few of each.

        What a party asks for after its loss, in another process, takes the place of all before.
        """
        before = [self._held[number] for number in self._numbers.get(inbound.peer, ())]
        if is_hello(inbound) and any(each.envelope is None for each in before):
            self.forget(inbound.peer)
        elif len(before) >= MAX_HELD:
            return
        number = next(self._arrivals)
        self._held[number] = small(inbound)
        self._numbers.setdefault(inbound.peer, []).append(number)

    def forget(self, peer: str) -> None:
        """Delete a party's stored messages and loss, so that it may ask again."""
        for number in self._numbers.pop(peer, ()):
            del self._held[number]

    def is_clear(self, others: Set[str]) -> bool:
        """Return whether a majority asks for one kind of request, or all `others` were heard."""
        # Fewer than half cannot be more than half: they need not be counted.
        if len(self._numbers) >= self._most and max(self._requested().values(), default=0) >= self._most:
            return True
        return self._numbers.keys() >= others

    def settle(self) -> tuple[str, list[InboundEvent]]:
        """Return (first step of the kind of request that most ask for, stored events as they arrived)."""
        requested = self._requested()
        # Of two equally frequent kinds, the one that was asked for first.
        step = max(requested, key=lambda each: requested[each], default=HELLO)
        return step, list(self._held.values())

    @property
    def text(self) -> str:
        """Text of the operation that most parties ask for in sums; "" if nobody asks."""
        asked: dict[str, str] = {}
        for inbound in self._held.values():
            if inbound.envelope is None or inbound.envelope.step != HELLO or inbound.peer in self._ignored:
                continue
            # The role excludes the sender of a hello that is none.
            with contextlib.suppress(PeerFault):
                asked.setdefault(inbound.peer, decode(inbound.envelope.body, Hello, inbound.peer).operation)
        counts = Counter(asked.values())
        return min(counts, key=lambda each: (-counts[each], each), default="")

    def _requested(self) -> Counter[str]:
        """Return how many parties ask for each kind of request."""
        first: dict[str, str] = {}
        for inbound in self._held.values():
            if inbound.envelope is None:
                first.pop(inbound.peer, None)
            elif inbound.peer not in self._ignored and is_hello(inbound):
                first.setdefault(inbound.peer, inbound.envelope.step)
        return Counter(first.values())
