"""How the requests of a learner are counted, and how they end for good."""

from __future__ import annotations

from dataclasses import dataclass

from smpc_dp.errors import SmpcError


class AggregatorLostError(SmpcError):
    """The aggregator of a session is gone, or has ended it; a learner cannot go on."""


class EverybodyLeftError(SmpcError):
    """No party of a session is connected any more."""


@dataclass(slots=True)
class Counter:
    """How many requests have been asked for, by everyone together."""

    taken: int = 0

    def take(self, count: int) -> int:
        """Take so many numbers; return the first."""
        first = self.taken + 1
        self.taken += count
        return first
