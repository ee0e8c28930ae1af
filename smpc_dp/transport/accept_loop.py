"""Accepts connections of a listening socket, and bounds those that are not authenticated yet."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable

from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.transport.channel import now
from smpc_dp.transport.strangers import Strangers, source_of

BACKLOG = 1024
# Seconds after a failed accept.
ACCEPT_PAUSE = 1.0

# Serves one connection, given its network address as text, to its end or until it is a channel.
Serve = Callable[[socket.socket, str], Awaitable[None]]
# The source of a connection from an address, for the bound on connections of one source.
SourceOf = Callable[[str, int], str]
OnRefused = Callable[[str, SmpcError], None]

_LOG = logging.getLogger("smpc_dp.transport")


def source_of_address(host: str, _port: int) -> str:
    """Return the source that a connection is counted under: its IP address, /64 network for IPv6."""
    return source_of(host)


class AcceptLoop:
    """Loop that accepts sockets and serves each in a task, with a limit on unauthenticated ones.

    Of too many that are not authenticated one is dropped (`Strangers`).
    """

    def __init__(
        self,
        sock: socket.socket,
        most: int,
        serve: Serve,
        on_refused: OnRefused,
        label: str,
        source: SourceOf = source_of_address,
    ) -> None:
        """`most`: connections that are not authenticated; `label`: who listens, for the log."""
        self.port: int = sock.getsockname()[1]
        self._socket = sock
        self._serve = serve
        self._on_refused = on_refused
        self._label = label
        self._source = source
        self._strangers: Strangers[socket.socket] = Strangers(most, max(1, most // 2))
        self._pending: dict[socket.socket, asyncio.Task[None]] = {}
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def close(self) -> None:
        """Stop accepting, and drop connections that are still being served."""
        tasks = [self._accepting, *self._pending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    def authenticated(self, connection: socket.socket) -> None:
        """Stop counting a connection among the unauthenticated ones."""
        self._strangers.remove(connection)

    def comes_from(self, connection: socket.socket, source: str) -> None:
        """Count a connection under the source that a proxy names; if there are too many, drop one.

        It is the oldest of the source that has the most, or this one (`Strangers.admit`).
        """
        if connection in self._pending:
            self._strangers.remove(connection)
            self._drop(self._strangers.admit(connection, source, now()))

    def drop(self, connection: socket.socket) -> None:
        """Close a connection that is still being served, to make room for a newer one; ignore others."""
        if connection in self._pending:
            self._pending[connection].cancel("dropped for a newer connection")

    def _drop(self, dropped: socket.socket | None) -> None:
        """Close the connection that must make room for a newer one; do nothing for None."""
        if dropped is not None:
            self.drop(dropped)

    async def _accept(self) -> None:
        """Accept connections until the loop is closed."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._socket)
            except OSError as error:
                self._on_refused("unknown", LocalError(f"cannot accept a connection: {error.strerror}"))
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            shown = printable_address(address)
            _LOG.debug("%s: is called from %s", self._label, shown)
            dropped = self._strangers.admit(connection, self._source(address[0], address[1]), now())
            if dropped is connection:
                connection.close()
            else:
                self._pending[connection] = loop.create_task(self._admit(connection, shown))
                self._drop(dropped)
            # The listening socket may always be ready: other tasks must run, and this connection's task
            # start.
            await asyncio.sleep(0)

    async def _admit(self, connection: socket.socket, address: str) -> None:
        """Serve an accepted connection to its end, then forget it."""
        try:
            await self._serve(connection, address)
        finally:
            self._strangers.remove(connection)
            del self._pending[connection]


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host`:`port`; raise LocalError if that is impossible."""
    try:
        result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = result[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise LocalError(f"cannot listen on {host}:{port}: {reason}") from None


def printable_address(address: object) -> str:
    """Return a socket's address as printable text for errors."""
    match address:
        case (str() as host, int() as port, *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
