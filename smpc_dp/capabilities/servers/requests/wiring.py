"""mpyc's message exchangers on sockets that were handed down, in place of its own connections.

This does the work of `mpyc.runtime.Runtime.start` without a listening socket: of two servers the one with
the smaller number sends first, its number and its keys for pseudorandom sharing.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

INDEX_BYTES = 2
# mpyc's frame: the number of the message, the length of its payload.
FRAME = struct.Struct("<qI")
# No message of a program: its integers would not fit into the memory of the process.
MAX_PAYLOAD = 1 << 30

# Reports what a peer, by its number, has sent that no honest one sends; ends the process.
Blame = Callable[[int, str], NoReturn]


class PeerFrames:
    """Reader of one peer's mpyc messages, each of which must be as long as this server's own message.

    Servers run one program on arrays of one shape. A payload of another length would break mpyc later, where
    nothing shows whose it was. Values within a payload are not checked.
    """

    def __init__(self, peer: int, blame: Blame) -> None:
        self._peer, self._blame = peer, blame
        self._content = bytearray()
        self._early: dict[int, bytes] = {}
        # By message number: the length that is due, and the future that waits.
        self._waiting: dict[int, tuple[int | None, Future[bytes]]] = {}

    def feed(self, content: bytes | bytearray) -> None:
        """Append bytes that came from another server, and deliver the messages that they complete."""
        self._content += content
        while len(self._content) >= FRAME.size:
            number, size = FRAME.unpack_from(self._content)
            length, waiting = self._waiting.get(number, (None, None))
            self._check(size, length)
            end = FRAME.size + size
            if len(self._content) < end:
                return
            payload = bytes(self._content[FRAME.size : end])
            del self._content[:end]
            if waiting is not None:
                del self._waiting[number]
                waiting.set_result(payload)
            elif number in self._early:
                self._blame(self._peer, "sent two messages of one number")
            else:
                self._early[number] = payload

    def receive(self, number: int, length: int | None) -> bytes | Future[bytes]:
        """Return the payload of message `number`, or a future if it has not arrived."""
        payload = self._early.pop(number, None)
        if payload is not None:
            self._check(len(payload), length)
            return payload
        waiting: Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = length, waiting
        # The message may have begun to arrive.
        self.feed(b"")
        return waiting

    def _check(self, size: int, length: int | None) -> None:
        """End the process, blaming the peer, if a payload has another length than the one that is due.

        If no length is known to be due, the process ends for a payload longer than MAX_PAYLOAD.
        """
        if length is None and size > MAX_PAYLOAD:
            self._blame(self._peer, f"announced {size} bytes of shares, {MAX_PAYLOAD} at most")
        if length not in (None, size):
            self._blame(self._peer, f"sent {size} bytes of shares where {length} are due")


async def connect_peers(mpc: Any, sockets: Sequence[int], blame: Blame) -> None:
    """Connect an mpyc runtime to the other servers through these already open sockets."""
    from mpyc.asyncoro import MessageExchanger

    loop = asyncio.get_running_loop()
    # Number and length of the message that was sent last: of one number mpyc sends first, then it receives.
    sent: tuple[int | None, int] = None, 0

    class Exchanger(MessageExchanger):  # type: ignore[misc]
        """Exchanger that is given its peer's number."""

        __slots__ = ("expected", "frames", "greeting")

        def __init__(self, peer: int) -> None:
            super().__init__(mpc, peer if peer > mpc.pid else None)
            self.expected = peer
            self.frames = PeerFrames(peer, blame)
            self.greeting = bytearray()

        def send(self, pc: int, payload: bytes) -> None:
            nonlocal sent
            sent = pc, len(payload)
            super().send(pc, payload)

        def receive(self, pc: int) -> bytes | Future[bytes]:
            return self.frames.receive(pc, sent[1] if sent[0] == pc else None)

        def data_received(self, data: bytes) -> None:
            if self.peer_pid is not None:
                self.frames.feed(data)
                return
            self.greeting += data
            index = self.greeting[:INDEX_BYTES]
            if len(index) == INDEX_BYTES and int.from_bytes(index, "little") != self.expected:
                blame(self.expected, "says that it is another server")
            size = INDEX_BYTES + mpc._prss_keys_from_peer(self.expected)
            if len(self.greeting) < size:
                return
            super().data_received(bytes(self.greeting[:size]))
            self.frames.feed(self.greeting[size:])

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
    """Return how many bytes of messages an mpyc runtime has sent so far."""
    return sum(party.protocol.nbytes_sent for party in mpc.parties if party.pid != mpc.pid)


async def drain(mpc: Any) -> None:
    """Wait until all output of mpyc's connections is passed to the operating system."""
    while any(
        party.protocol.transport.get_write_buffer_size() for party in mpc.parties if party.pid != mpc.pid
    ):
        await asyncio.sleep(0.001)
