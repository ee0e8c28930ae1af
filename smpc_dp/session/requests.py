"""Numbering of a learner's requests, and the errors after which no further one is possible."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from smpc_dp.errors import Check, LocalError, PeerFault, SmpcError, TimeoutFault, VerificationError


class AggregatorLostError(SmpcError):
    """Error: the session's aggregator is lost, has ended the session, or was convicted."""


class ServerLostError(SmpcError):
    """Error: a computing server is disconnected or at fault, so that no further request is possible."""


class EverybodyLeftError(SmpcError):
    """Error: no party of the session is connected any more."""


@dataclass(slots=True)
class Counter:
    """Counter of a session's requests, which all members advance alike."""

    taken: int = 0

    def take(self, count: int) -> int:
        """Reserve the next `count` request numbers, and return the first of them."""
        first = self.taken + 1
        self.taken += count
        return first


def ends_session(last: object, servers: Collection[str]) -> bool:
    """Return whether an outcome ends the session: a fault or loss of one of `servers`, or a local error."""
    match last:
        case TimeoutFault():
            return bool(last.missing & set(servers))
        case PeerFault():
            return last.culprit in servers
        case VerificationError():
            # Which of them is at fault is not known.
            return last.check in (Check.DISAGREES, Check.REPORTED)
    return isinstance(last, LocalError)
