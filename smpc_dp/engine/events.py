"""Events: the inputs of a step besides the member and its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from smpc_dp.errors import SmpcError
from smpc_dp.wire.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Start:
    """The run begins."""


@dataclass(frozen=True, slots=True)
class Message:
    """A signed envelope has arrived."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Report:
    """The holder of the role has finished the work that a state leaves to it; `result` is its result."""

    result: object


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of the current step is over."""


@dataclass(frozen=True, slots=True)
class PeersLost:
    """The connections to these peers are lost for this run; one event has all, so that an error names all."""

    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conviction:
    """A peer was convicted in an earlier run of the session."""

    peer: str
    error: SmpcError


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The run is over for this role because of an error, of its own step or of the holder."""

    error: SmpcError


Event: TypeAlias = Start | Message | Report | Deadline | PeersLost | Conviction | Cancellation
