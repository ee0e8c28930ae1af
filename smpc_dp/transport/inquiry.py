"""The steps of a connection, one by one: the addresses, who answers there, and its answer to an inquiry."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from smpc_dp.errors import Check, PeerFault
from smpc_dp.transport import tls
from smpc_dp.transport.channel import CLOSE_SECONDS, Channel, Stream
from smpc_dp.transport.endpoint import ATTEMPT_SECONDS, BACKUP, Endpoint
from smpc_dp.transport.sockets import tune

# What the system returns of a host: family, kind, protocol, name and address.
Found = tuple[Any, Any, int, str, Any]


async def find_addresses(host: str, port: int) -> list[Found]:
    """Return the addresses of a host; raise OSError for none, also where no answer comes in time."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(ATTEMPT_SECONDS):
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def connect(addresses: Sequence[Found]) -> socket.socket:
    """Return a TCP connection to the first of these addresses that accepts one; raise the last OSError."""
    loop, failed = asyncio.get_running_loop(), OSError("no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                await loop.sock_connect(sock, address)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            failed = error
        else:
            return sock
    raise failed


async def secure(endpoint: Endpoint, peer: str, sock: socket.socket) -> Channel:
    """Return the channel to `peer` over a connection, before the hello.

    Raises PeerFault if another member answers, ssl.SSLError if none of the roster does, OSError.
    """
    transport, stream = await _over_tls(sock, endpoint.contexts.client)
    try:
        tune(sock, endpoint.silence)
        where = "the address of '" + peer + "'"
        result = tls.authenticated(transport.get_extra_info("ssl_object"), endpoint.roster, where)
        if result.name != peer:
            raise PeerFault(where, f"'{result.name}' answers there", Check.OTHER_MEMBER)
    except BaseException:
        transport.abort()
        raise
    return endpoint.channel(peer, stream, transport)


async def shown_certificate(addresses: Sequence[Found]) -> bytes | None:
    """Return the certificate that whoever answers shows, DER; None if there is none.

    For the description of an error: the connection shows no certificate of this member, and nothing is sent
    over it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError):
        sock = await connect(addresses)
        transport, _ = await _over_tls(sock, context)
        shown: bytes | None = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        transport.abort()
        return shown
    return None


async def _over_tls(sock: socket.socket, context: ssl.SSLContext) -> tuple[asyncio.Transport, Stream]:
    """Return transport and stream of a connection after the TLS handshake; close it on failure."""
    try:
        async with asyncio.timeout(ATTEMPT_SECONDS):
            return await asyncio.get_running_loop().create_connection(
                Stream,
                sock=sock,
                ssl=context,
                server_hostname="",
                ssl_handshake_timeout=ATTEMPT_SECONDS + BACKUP,
                ssl_shutdown_timeout=CLOSE_SECONDS,
            )
    except BaseException:
        sock.close()
        raise
