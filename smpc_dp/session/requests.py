"""Numbering of a learner's requests, and the errors after which no further one is possible."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from smpc_dp.errors import Check, LocalError, PeerFault, SmpcError, TimeoutFault, VerificationError


class AggregatorLostError(SmpcError):
    """The aggregator of a session is disconnected, or has ended it; a learner cannot go on."""


class ServerLostError(SmpcError):
    """A server of a session is disconnected or at fault; computations on shares cannot go on."""


class EverybodyLeftError(SmpcError):
    """No party of a session is connected any more."""


@dataclass(slots=True)
class Counter:
    """Number of requests so far, counted alike by all members."""

    taken: int = 0

    def take(self, count: int) -> int:
        """Reserve `count` numbers; return the first."""
        first = self.taken + 1
        self.taken += count
        return first


def ends_session(last: object, servers: Collection[str]) -> bool:
    """Tell whether a request ended by a server's fault or loss, after which the servers cannot go on."""
    match last:
        case TimeoutFault():
            return bool(last.missing & set(servers))
        case PeerFault():
            return last.culprit in servers
        case VerificationError():
            # Which of them is at fault is not known.
            return last.check in (Check.DISAGREES, Check.REPORTED)
    return isinstance(last, LocalError)
