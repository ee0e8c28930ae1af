"""Events: the inputs of a step besides the member and its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from smpc_dp.errors import SmpcError
from smpc_dp.wire.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Start:
    """Event: the run begins, and the role sends its first messages."""


@dataclass(frozen=True, slots=True)
class Message:
    """Event: a signed message has arrived for the role."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Report:
    """Event: work that a state leaves to the program around the role is finished, with this result."""

    result: object


@dataclass(frozen=True, slots=True)
class Deadline:
    """Event: the time limit of the current step has passed."""


@dataclass(frozen=True, slots=True)
class PeersLost:
    """Event: the connections to these members are lost for this run, all in one event."""

    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conviction:
    """Event: a member was proven to have misbehaved in an earlier run of the session."""

    peer: str
    error: SmpcError


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Event: the run ends for this role with an error, of its own step or from outside."""

    error: SmpcError


Event: TypeAlias = Start | Message | Report | Deadline | PeersLost | Conviction | Cancellation
