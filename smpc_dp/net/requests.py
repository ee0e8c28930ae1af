"""How the requests of a learner are counted, and how they end for good."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from smpc_dp.errors import LocalError, PeerFault, SmpcError, TimeoutFault


class AggregatorLostError(SmpcError):
    """The aggregator of a session is gone, or has ended it; a learner cannot go on."""


class ServerLostError(SmpcError):
    """One of the servers of a session is gone or at fault; computations on shares cannot go on."""


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


def ends_session(last: object, servers: Collection[str]) -> bool:
    """Tell whether a server is at fault for how a request ended: then the servers do not go on together."""
    match last:
        case TimeoutFault():
            return bool(last.missing & set(servers))
        case PeerFault():
            return last.culprit in servers
    return isinstance(last, LocalError)
