"""A member's listener over HTTPS, at the path of its address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from smpc_dp.identity.address import WebAddress
from smpc_dp.transport import tls
from smpc_dp.transport.accept_loop import AcceptLoop, OnRefused
from smpc_dp.transport.channel import Channel
from smpc_dp.transport.listener import BACKUP, Listener, ListeningEndpoint, OnChannel
from smpc_dp.transport.strangers import HANDSHAKE_SECONDS
from smpc_dp.transport.web_server import WebServer
from smpc_dp.transport.websocket import WebSocketTransport, within


class WebListener(Listener):
    """Listener with an HTTP server of its own."""

    def __init__(
        self,
        endpoint: ListeningEndpoint,
        sock: socket.socket,
        address: WebAddress,
        on_channel: OnChannel,
        on_refused: OnRefused,
    ) -> None:
        super().__init__(endpoint, on_channel, on_refused)
        self._server = WebServer(
            sock, endpoint.web, endpoint.max_pending, endpoint.silence, on_refused, endpoint.identity.name
        )
        self._server.sites[address.path] = self._take

    @property
    def port(self) -> int:
        return self._server.port

    async def close(self) -> None:
        await self._server.close()

    async def _take(
        self, stream: WebSocketTransport, connection: socket.socket, address: str, accepting: AcceptLoop
    ) -> None:
        """Admit a connection that was upgraded, or report why not."""
        await self.admit(connection, address, self._within(stream, address), accepting)

    @contextlib.asynccontextmanager
    async def _within(self, stream: WebSocketTransport, address: str) -> AsyncIterator[Channel]:
        """Yield a channel to the member that authenticates in time; cut it on failure."""
        endpoint = self._endpoint
        limit = min(HANDSHAKE_SECONDS, endpoint.connect_timeout)
        async with asyncio.timeout(limit):
            transport, inner = await within(
                stream, endpoint.contexts.server, server_side=True, seconds=limit + BACKUP
            )
        try:
            peer = tls.authenticated(transport.get_extra_info("ssl_object"), endpoint.roster, address)
            yield endpoint.channel(peer.name, inner, transport)
        except BaseException:
            transport.abort()
            raise
