"""Parties that ask for a request, and the number of them that opens it."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Protocol

from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.deadline import StepTimer, now


class Tolerant(Protocol):
    """Interface of session parameters that say how many lost and corrupt parties a request tolerates."""

    @property
    def tolerated(self) -> tuple[int, int, int]:
        """Numbers of all parties, of those that may be lost, and of those that may collude."""
        ...


def needed_parties(parameters: Tolerant) -> int:
    """Return how many parties a run needs: all but those that may be lost, and at least half."""
    parties, lost, _ = parameters.tolerated
    return max(parties - lost, (parties + 1) // 2)


class Askers:
    """Record of the parties that ask for a request that has not begun, which decides when to begin.

    A corrupt party may say hello for all requests at once. So the time in which others may ask begins when
    more parties have asked than may lie, the c that may collude and the D that may be lost: one of them is
    honest. At most n - D are needed, since no more may be there, or half of all where still fewer may be.

    A party that asks early has `gather` seconds until enough others ask. Then it is refused, and the request
    stays. In a group, and where fewer than half may be left, all that are connected are enough.

    Attributes:
        enough: the number of parties that opens the request.
        opened: whether the request is open; it stays so.
    """

    def __init__(self, parameters: Tolerant, timer: StepTimer, *, is_group: bool) -> None:
        parties, lost, corrupt = parameters.tolerated
        needed = needed_parties(parameters)
        self.enough = min(corrupt + lost + 1, needed)
        self.opened = False
        self._connected_suffice = is_group or parties - lost < needed
        self._timer = timer
        # Each party's hello, and until when it waits for others, in the order of these times.
        self._asked: dict[str, tuple[InboundEvent, float]] = {}

    @property
    def until(self) -> float:
        """Time until which the first party that asked waits for others; infinite if none waits."""
        return math.inf if self.opened else next((until for _, until in self._asked.values()), math.inf)

    def add(self, hello: InboundEvent) -> None:
        """Count the sender of this hello as asking for the request, unless the request is open."""
        if not self.opened:
            self._asked.setdefault(hello.peer, (hello, self._timer.others_until()))

    def remove(self, peer: str) -> None:
        """Stop counting a party as asking for the request."""
        self._asked.pop(peer, None)

    def open(self) -> None:
        """Open the request, and start the time in which further parties may join; only once."""
        if not self.opened:
            self.opened = True
            self._timer.begin()

    def open_if_enough(self, ahead: Collection[str], others: Collection[str]) -> None:
        """Open the request if enough parties ask for it, or all that are left; else do nothing.

        `ahead`: those that ask for a later request, and have passed this one; `others`: those that are
        connected, or may be soon.
        """
        asked = self._asked.keys()
        if self.opened:
            return
        nobody_else = self._connected_suffice and asked and asked >= set(others)
        if nobody_else or len(asked | set(ahead)) >= self.enough:
            self.open()

    def take_late(self) -> list[InboundEvent]:
        """Remove and return hellos of parties that waited too long; none once the request is open."""
        late = [] if self.opened else [hello for hello, until in self._asked.values() if until <= now()]
        for hello in late:
            self.remove(hello.peer)
        return late
