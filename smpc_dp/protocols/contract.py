"""What every protocol machine promises to whoever drives it.

A machine is one role of one party in one run. It opens no socket, reads no clock and never sleeps: it takes
signed envelopes, news of lost peers and expired deadlines, and returns envelopes to send and at the end a
result. The same machine runs over TLS, over an in-memory network and under a fault injector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from smpc_dp.errors import SmpcError


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One signed message of one step, from one named party to another.

    `signature` is `sender`'s Ed25519 signature over the labelled digest of protocol, version, run id, step,
    sender, receiver and the SHA-256 of `body`. `body` may be shared between envelopes to many receivers.
    """

    run_id: bytes
    step: str
    sender: str
    receiver: str
    body: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"Envelope({self.step!r}, {self.sender!r} -> {self.receiver!r}, {len(self.body)} bytes)"


class Machine(Protocol):
    """One role in one run.

    Every method that returns envelopes may raise an `SmpcError`; the machine is then over, and
    `farewell(error)` gives what is still to be sent so that others need not wait.
    """

    @property
    def name(self) -> str:
        """The party that this machine acts for."""

    @property
    def step(self) -> str:
        """The step that the machine waits in; a driver restarts its deadline when this changes."""

    @property
    def waiting_for(self) -> frozenset[str]:
        """The parties whose message the machine still waits for in this step."""

    @property
    def finished(self) -> bool:
        """True when nothing more will be sent and the result is there."""

    def start(self) -> Sequence[Envelope]:
        """Return the first messages; called once."""

    def receive(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take one message. A byte-identical repetition is ignored; a second, different one is a fault."""

    def lost(self, peer: str) -> Sequence[Envelope]:
        """Learn that the link to `peer` is gone for this run."""

    def expire(self) -> Sequence[Envelope]:
        """Learn that the deadline of the current step has passed."""

    def farewell(self, error: SmpcError) -> Sequence[Envelope]:
        """Return the last messages after `error` was raised; never raises."""
