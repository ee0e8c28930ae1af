"""Trouble beside many clients, bounded in count and time: a slow line, strangers, and wrong messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.identity.address import split_address
from smpc_dp.session.member import Membership
from smpc_dp.transport.endpoint import Endpoint, dial
from smpc_dp.transport.interfaces import OnFailed, PeerChannel, PeerListener
from smpc_dp.transport.listener import Listener
from smpc_dp.transport.tls import Contexts

# Connections of strangers, so many at once and so often; seconds until the next ones.
STRANGERS, ROUNDS, ROUND_SECONDS = 200, 5, 2.0
# Every second stranger sends so many bytes that are no TLS.
JUNK_BYTES = 4096
# Connections with which a member sends wrong messages, messages of each, and bytes of a message.
CALLS, MESSAGES, MESSAGE_BYTES = 5, 20, 1 << 20
# Bytes that a slow line carries at once.
PIECE_BYTES = 256
READ_BYTES = 1 << 16


class SlowLine:
    """Endpoint of a client whose line to the aggregator is slow for a while: a relay in this process."""

    def __init__(self, member: Membership) -> None:
        """Raise LocalError for a member of a simulation."""
        endpoint = member.endpoint()
        if not isinstance(endpoint, Endpoint):
            raise LocalError("a slow line is for connections over sockets")
        self._endpoint = endpoint
        # Bytes that are still to be carried slowly, and seconds for each.
        self._slow, self._each = 0, 0.0

    def slow_down(self, count: int, seconds: float) -> None:
        """Carry the next `count` bytes to the aggregator evenly in so many seconds."""
        self._slow, self._each = count, seconds / count

    @property
    def connect_timeout(self) -> float:
        return self._endpoint.connect_timeout

    @property
    def contexts(self) -> Contexts:
        return self._endpoint.contexts

    async def dial(self, peer: str, on_failed: OnFailed | None = None) -> PeerChannel:
        """Connect to a member through a local relay, which can slow the connection down."""
        address = split_address(self._endpoint.roster.member(peer).address or "")
        relay = await asyncio.start_server(
            lambda reader, writer: self._relay(address, reader, writer), "127.0.0.1", 0
        )
        port = relay.sockets[0].getsockname()[1]
        return await dial(self._endpoint, peer, f"127.0.0.1:{port}", on_failed)

    async def listen(
        self,
        host: str,
        port: int,
        on_channel: Callable[[PeerChannel], object],
        on_refused: Callable[[str, SmpcError], None],
    ) -> PeerListener:
        """Listen for connections by the wrapped endpoint; the relay is not used."""
        listener: Listener = await self._endpoint.listen(host, port, on_channel, on_refused)
        return listener

    async def _relay(
        self, address: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Copy bytes in both directions until either side ends the connection."""
        up_reader, up_writer = await asyncio.open_connection(*address)
        ways = [
            asyncio.ensure_future(self._carry(reader, up_writer, up=True)),
            asyncio.ensure_future(self._carry(up_reader, writer, up=False)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            up_writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(PIECE_BYTES if up and self._slow else READ_BYTES):
                if up and self._slow:
                    await asyncio.sleep(self._each * len(content))
                    self._slow = max(0, self._slow - len(content))
                writer.write(content)
                await writer.drain()


async def call_as_strangers(address: tuple[str, int]) -> int:
    """Connect without TLS, some silent, some with junk, a few hundred at a time; return how many."""
    called = 0
    for _ in range(ROUNDS):
        opened = [one for one in await asyncio.gather(*(_call(address) for _ in range(STRANGERS))) if one]
        called += len(opened)
        for writer in opened[::2]:
            writer.write(os.urandom(JUNK_BYTES))
        await asyncio.sleep(ROUND_SECONDS)
        for writer in opened:
            writer.transport.abort()
    return called


async def _call(address: tuple[str, int]) -> asyncio.StreamWriter | None:
    """Open a TCP connection and return its writer; None if the connection is refused."""
    try:
        return (await asyncio.open_connection(*address))[1]
    except OSError:
        return None


async def flood(member: Membership, channel: PeerChannel) -> None:
    """Send large wrong messages over a member's channel, then over new connections, until they are cut."""
    endpoint = member.endpoint()
    await _send_wrong_messages(channel)
    for _ in range(CALLS):
        with contextlib.suppress(SmpcError):
            await _send_wrong_messages(await endpoint.dial(member.aggregator))


async def _send_wrong_messages(channel: PeerChannel) -> None:
    """Send large messages that are no envelopes, until the other side cuts the connection; cut it then."""
    with contextlib.suppress(SmpcError):
        for _ in range(MESSAGES):
            await channel.send(os.urandom(MESSAGE_BYTES))
    channel.abort()
