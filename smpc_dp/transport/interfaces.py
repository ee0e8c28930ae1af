"""Interfaces of channels, listeners and endpoints, over sockets or in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from smpc_dp.errors import SmpcError
from smpc_dp.transport.tls import Contexts

# Takes the reason why an attempt to connect has failed, of those that are followed by another one.
OnFailed = Callable[[str], object]


class PeerChannel(Protocol):
    """Interface of a channel to one member: over a socket, or in memory. See `Channel`."""

    @property
    def peer(self) -> str: ...

    @property
    def live(self) -> bool: ...

    max_received: int
    bytes_sent: int
    bytes_received: int
    on_twice: Callable[[], None] | None

    async def send(self, *buffers: Any) -> None: ...

    async def receive(self) -> Any: ...

    async def close(self) -> None: ...

    def abort(self) -> None: ...


class PeerListener(Protocol):
    """Interface of a listener, which accepts channels of other members until it is closed."""

    async def close(self) -> None: ...


class PeerEndpoint(Protocol):
    """Interface of one member's side of all its channels: an `Endpoint`, or a `MemoryEndpoint`."""

    @property
    def connect_timeout(self) -> float: ...

    @property
    def contexts(self) -> Contexts | None: ...

    async def dial(self, peer: str, on_failed: OnFailed | None = None) -> PeerChannel: ...

    async def listen(
        self,
        host: str,
        port: int,
        on_channel: Callable[[PeerChannel], object],
        on_refused: Callable[[str, SmpcError], None],
    ) -> PeerListener: ...
