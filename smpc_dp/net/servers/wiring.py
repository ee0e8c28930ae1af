"""mpyc's message exchangers on sockets that were handed down, in place of its own connections.

This does the work of `mpyc.runtime.Runtime.start` without a listening socket: of two parties the one with the
smaller number sends first, its number and its keys for pseudorandom sharing.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

INDEX_BYTES = 2


async def connect_peers(mpc: Any, sockets: Sequence[int]) -> None:
    """Connect mpyc to its peers; `sockets` are file descriptors, one for each party, that of `mpc` unused."""
    from mpyc.asyncoro import MessageExchanger

    loop = asyncio.get_running_loop()

    class Exchanger(MessageExchanger):  # type: ignore[misc]
        """Exchanger that is given its peer's number."""

        __slots__ = ("expected",)

        def __init__(self, peer: int) -> None:
            super().__init__(mpc, peer if peer > mpc.pid else None)
            self.expected = peer

        def data_received(self, data: bytes) -> None:
            head = (bytes(self.bytes) + data[:INDEX_BYTES])[:INDEX_BYTES]
            if self.peer_pid is None and self.expected != int.from_bytes(head, "little"):
                sys.exit(f"party {self.expected} says that it is another")
            super().data_received(data)

    for party in mpc.parties:
        party.protocol = loop.create_future() if party.pid == mpc.pid else None
    for peer, descriptor in enumerate(sockets):
        if peer != mpc.pid:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            await loop.create_connection(partial(Exchanger, peer), sock=connection)
    if len(sockets) > 1:
        await mpc.parties[mpc.pid].protocol
    mpc.start_time = time.time()


def bytes_sent(mpc: Any) -> int:
    """Return the bytes of mpyc's messages sent so far."""
    return sum(party.protocol.nbytes_sent for party in mpc.parties if party.pid != mpc.pid)


async def drain(mpc: Any) -> None:
    """Wait until all output of mpyc is passed to the operating system."""
    while any(
        party.protocol.transport.get_write_buffer_size() for party in mpc.parties if party.pid != mpc.pid
    ):
        await asyncio.sleep(0.001)
