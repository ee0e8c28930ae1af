"""Interfaces of channels, listeners and endpoints, over sockets or in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from smpc_dp.errors import SmpcError
from smpc_dp.transport.tls import Contexts

# Takes the reason why an attempt to connect has failed, of those that are followed by another one.
OnFailed = Callable[[str], object]


class PeerChannel(Protocol):
    """Interface of a channel of messages to one member, over sockets or in memory."""

    @property
    def peer(self) -> str:
        """Name of the member at the other end."""

    @property
    def live(self) -> bool:
        """Whether the connection stands, as far as this end knows."""

    max_received: int
    bytes_sent: int
    bytes_received: int
    on_twice: Callable[[], None] | None

    async def send(self, *buffers: Any) -> None:
        """Send one message, made of these buffers in order."""

    async def receive(self) -> Any:
        """Wait for and return the next message; raise an error if the peer has gone."""

    async def close(self) -> None:
        """Close the channel after sent messages have left."""

    def abort(self) -> None:
        """Cut the channel at once; unsent messages are lost."""


class PeerListener(Protocol):
    """Interface of a listener that accepts members' channels until it is closed."""

    async def close(self) -> None:
        """Stop listening: accept no more connections of members."""


class PeerEndpoint(Protocol):
    """Interface of one member's side of its channels: dials and listens, over sockets or in memory."""

    @property
    def connect_timeout(self) -> float:
        """Seconds after which connecting to a peer is given up."""

    @property
    def contexts(self) -> Contexts | None:
        """TLS contexts of this member; None without TLS."""

    async def dial(self, peer: str, on_failed: OnFailed | None = None) -> PeerChannel:
        """Connect to a member and authenticate it; return the channel."""

    async def listen(
        self,
        host: str,
        port: int,
        on_channel: Callable[[PeerChannel], object],
        on_refused: Callable[[str, SmpcError], None],
    ) -> PeerListener:
        """Listen: channels go to `on_channel`, refusals to `on_refused`; return the listener."""
