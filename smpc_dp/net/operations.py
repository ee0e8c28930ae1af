"""What a request is for, where parties ask for different things: what most of them ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import msgspec

from smpc_dp.errors import LocalError, PeerFault
from smpc_dp.net.connection_pool import SMALL_MESSAGE, InboundEvent
from smpc_dp.net.member import Membership
from smpc_dp.protocols.exchange.messages import HELLO as EXCHANGE_HELLO
from smpc_dp.protocols.phases.messages import HELLO
from smpc_dp.protocols.ustatistic.messages import HELLO as STATISTIC_HELLO
from smpc_dp.wire.abort import QUIT, TEXTS, Abort
from smpc_dp.wire.signing import decode

# The first step of a sum, of a pairwise statistic, and of an exchange.
HELLOS = (HELLO, STATISTIC_HELLO, EXCHANGE_HELLO)
# A hello, a second one that differs, which is a fault, and losses between them.
MAX_HELD = 4


def is_hello(inbound: InboundEvent) -> bool:
    """Tell whether a party asks for something with this."""
    return inbound.envelope is not None and inbound.envelope.step in HELLOS


def quits(inbound: InboundEvent, membership: Membership) -> LocalError | None:
    """Return why a party leaves the session for good, if that is what it says and signs.

    What is not signed is for a machine, which excludes its sender from the request.
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
    """The hellos of one request until it is known what it is for; later ones follow the first.

    One party that asks for something else must not take the request from all others.
    """

    def __init__(self, parties: int, ignored: Collection[str]) -> None:
        """`ignored`: who is excluded, whatever it asks for."""
        self._most = parties // 2 + 1
        self._ignored = ignored
        self._held: list[InboundEvent] = []

    @property
    def began(self) -> bool:
        """True when somebody has asked that may take part."""
        return any(inbound.peer not in self._ignored for inbound in self._held)

    @property
    def heard(self) -> frozenset[str]:
        """Who has asked, or is lost."""
        return frozenset(inbound.peer for inbound in self._held)

    def hold(self, inbound: InboundEvent) -> None:
        """Keep a hello, or the loss of a party, until it is settled; of each party a few at most."""
        if sum(each.peer == inbound.peer for each in self._held) >= MAX_HELD:
            return
        envelope = inbound.envelope
        if envelope is not None and len(envelope.body) > SMALL_MESSAGE:
            # No hello is so large. What is left has a wrong signature, and excludes its sender.
            inbound = replace(inbound, envelope=msgspec.structs.replace(envelope, body=b""))
        self._held.append(inbound)

    def is_clear(self, others: Collection[str]) -> bool:
        """Tell whether more than half ask for the same, or none of `others` could still ask."""
        spoken = {inbound.peer for inbound in self._held}
        return max(self._requested().values(), default=0) >= self._most or spoken.issuperset(others)

    def settle(self) -> tuple[bool, list[InboundEvent]]:
        """Return whether the request is for a statistic, and all that was held."""
        requested = self._requested()
        # Of two that as many ask for, the one that was asked for first.
        step = max(requested, key=lambda each: requested[each], default=HELLO)
        return step == STATISTIC_HELLO, list(self._held)

    def _requested(self) -> Counter[str]:
        first: dict[str, str] = {}
        for inbound in self._held:
            if inbound.envelope is None:
                first.pop(inbound.peer, None)
            elif inbound.peer not in self._ignored:
                first.setdefault(inbound.peer, inbound.envelope.step)
        return Counter(first.values())
