"""A member's listener over HTTPS, at the path of its address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

from starlette.routing import Route

from smpc_dp.transport import tls
from smpc_dp.transport.accept_loop import AcceptLoop, OnRefused
from smpc_dp.transport.channel import Channel
from smpc_dp.transport.listener import BACKUP, Listener, ListeningEndpoint, OnChannel
from smpc_dp.transport.strangers import HANDSHAKE_SECONDS
from smpc_dp.transport.web_server import WebServer, open_server
from smpc_dp.transport.websocket import WebSocketTransport, within


class WebListener(Listener):
    """Listener for members at a path of an HTTP server, by WebSocket."""

    def __init__(
        self,
        endpoint: ListeningEndpoint,
        server: WebServer,
        path: str,
        on_channel: OnChannel,
        on_refused: OnRefused,
        *,
        is_shared: bool,
    ) -> None:
        """`is_shared`: whether the server goes on after the listener."""
        super().__init__(endpoint, on_channel, on_refused)
        self._server = server
        self._path = path
        self._is_shared = is_shared
        self._admitting: set[socket.socket] = set()
        server.add(path, self._take)

    @property
    def port(self) -> int:
        """Port on which the HTTP server accepts connections."""
        return self._server.port

    def show(self, pages: Sequence[Route]) -> None:
        """Serve HTML pages below the session's path until this listener is closed."""
        self._server.show(self._path, pages)

    async def close(self) -> None:
        """Accept no more members at this path; close the server too unless it is shared."""
        if not self._is_shared:
            await self._server.close()
            return
        self._server.remove(self._path)
        self._server.hide(self._path)
        for connection in self._admitting:
            self._server.accepting.drop(connection)

    async def _take(
        self, stream: WebSocketTransport, connection: socket.socket, address: str, accepting: AcceptLoop
    ) -> None:
        """Authenticate an upgraded connection and run its handshake; report a refusal."""
        self._admitting.add(connection)
        try:
            await self.admit(connection, address, self._within(stream, address), accepting)
        finally:
            self._admitting.discard(connection)

    @contextlib.asynccontextmanager
    async def _within(self, stream: WebSocketTransport, address: str) -> AsyncIterator[Channel]:
        """Context manager that runs TLS inside a WebSocket, yields the member's channel; cuts on failure."""
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


async def listen_over_https(
    endpoint: ListeningEndpoint,
    host: str,
    port: int,
    path: str,
    on_channel: OnChannel,
    on_refused: OnRefused,
) -> WebListener:
    """Listen for members at a path of the settings' web server, or of a new one at `host`:`port`.

    Arguments and errors as of `listen`; ConfigError when another session has the path.
    """
    shared: WebServer | None = endpoint.web.server
    server = shared
    if server is None:
        server = await open_server(
            host,
            port,
            endpoint.web,
            endpoint.max_pending,
            endpoint.silence,
            on_refused,
            endpoint.identity.name,
        )
    return WebListener(endpoint, server, path, on_channel, on_refused, is_shared=shared is not None)
