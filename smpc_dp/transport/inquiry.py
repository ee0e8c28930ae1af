"""The steps of a connection, one by one: the addresses, who answers there, and its answer to an inquiry."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smpc_dp.errors import Check, PeerFault
from smpc_dp.transport import tls
from smpc_dp.transport.channel import CLOSE_SECONDS, Channel, Stream
from smpc_dp.transport.endpoint import ATTEMPT_SECONDS, Endpoint
from smpc_dp.transport.listener import BACKUP
from smpc_dp.transport.sockets import tune

if TYPE_CHECKING:
    from smpc_dp.transport.websocket import WebSocketTransport

# What the system returns of a host: family, kind, protocol, name and address.
AddressInfo = tuple[Any, Any, int, str, Any]


async def find_addresses(host: str, port: int) -> list[AddressInfo]:
    """Return a host's IP addresses by DNS; raise OSError if there are none, or no answer in time."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(ATTEMPT_SECONDS):
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def connect(addresses: Sequence[AddressInfo]) -> socket.socket:
    """Connect by TCP to the first address that accepts; return the socket, or raise the last OSError."""
    failed = OSError("no address")
    for family, kind, protocol, _, address in addresses:
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(socket.socket(family, kind, protocol))
            sock.setblocking(False)
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(sock, address)
            except OSError as error:
                failed = error
                continue
            stack.pop_all()
            return sock
    raise failed


async def secure(endpoint: Endpoint, peer: str, sock: socket.socket) -> Channel:
    """Run TLS with `peer` over a socket; return the channel before the handshake; PeerFault for another.

    Raises PeerFault if another member answers, ssl.SSLError if none of the roster does, OSError.
    """
    transport, stream = await _over_tls(sock, endpoint.contexts.client)
    tune(sock, endpoint.silence)
    return _channel(endpoint, peer, transport, stream)


async def secure_within(endpoint: Endpoint, peer: str, below: WebSocketTransport) -> Channel:
    """Run TLS with `peer` inside a WebSocket; return the channel before the application handshake."""
    transport, stream = await _within(below, endpoint.contexts.client)
    return _channel(endpoint, peer, transport, stream)


def _channel(endpoint: Endpoint, peer: str, transport: asyncio.Transport, stream: Stream) -> Channel:
    """Return a channel over TLS, checked to be to `peer`; raise PeerFault for another member."""
    try:
        where = f"the address of '{peer}'"
        result = tls.authenticated(transport.get_extra_info("ssl_object"), endpoint.roster, where)
        if result.name != peer:
            raise PeerFault(where, f"'{result.name}' answers there", Check.OTHER_MEMBER)
    except BaseException:
        transport.abort()
        raise
    return endpoint.channel(peer, stream, transport)


async def shown_certificate(addresses: Sequence[AddressInfo]) -> bytes | None:
    """Return the TLS certificate (DER) that a server shows, unverified; None if the connection fails.

    For the description of an error: the connection shows no certificate of this member, and nothing is sent
    over it.
    """
    with contextlib.suppress(OSError):
        return _certificate(await _over_tls(await connect(addresses), _unverified()))
    return None


async def certificate_within(below: WebSocketTransport) -> bytes | None:
    """Return the TLS certificate (DER) shown inside a WebSocket, unverified; None if TLS fails."""
    with contextlib.suppress(OSError):
        return _certificate(await _within(below, _unverified()))
    return None


def _unverified() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate and sends none, for diagnosis."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _certificate(connection: tuple[asyncio.Transport, Stream]) -> bytes | None:
    """Return the peer's TLS certificate (DER), None without one, and cut the connection."""
    shown: bytes | None = connection[0].get_extra_info("ssl_object").getpeercert(binary_form=True)
    connection[0].abort()
    return shown


async def _within(below: WebSocketTransport, context: ssl.SSLContext) -> tuple[asyncio.Transport, Stream]:
    """Run TLS inside a WebSocket; return the transport and stream after its handshake."""
    # Not at the top: most sessions need no HTTP.
    from smpc_dp.transport.websocket import within

    async with asyncio.timeout(ATTEMPT_SECONDS):
        return await within(below, context, server_side=False, seconds=ATTEMPT_SECONDS + BACKUP)


async def _over_tls(sock: socket.socket, context: ssl.SSLContext) -> tuple[asyncio.Transport, Stream]:
    """Run TLS over a socket; return (transport, stream), or close the socket and raise on failure."""
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        async with asyncio.timeout(ATTEMPT_SECONDS):
            result = await asyncio.get_running_loop().create_connection(
                Stream,
                sock=sock,
                ssl=context,
                server_hostname="",
                ssl_handshake_timeout=ATTEMPT_SECONDS + BACKUP,
                ssl_shutdown_timeout=CLOSE_SECONDS,
            )
        stack.pop_all()
    return result


def check_port(host: str, port: int) -> None:
    """Raise OSError if a server could not listen on `host`:`port` now."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as sock:
        # As a listener does: connections of an earlier process may not have timed out.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
