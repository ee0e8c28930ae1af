"""What happens to a role: the only inputs of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from smpc_dp.errors import SmpcError
from smpc_dp.protocols.contract import Envelope


@dataclass(frozen=True, slots=True)
class Start:
    """The run begins."""


@dataclass(frozen=True, slots=True)
class Message:
    """A signed envelope has arrived."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Report:
    """Work that a state leaves to the holder of the role is done; `result` is what came of it."""

    result: object


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of the current step is over."""


@dataclass(frozen=True, slots=True)
class PeersLost:
    """The connections to these peers are gone for this run; all at once, so that an error names them all."""

    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conviction:
    """A peer was convicted in an earlier run of the session."""

    peer: str
    error: SmpcError


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The run is over for this role because of an error: one that its own step raised, or the holder's."""

    error: SmpcError


Event: TypeAlias = Start | Message | Report | Deadline | PeersLost | Conviction | Cancellation
