"""Frames: the encoding of messages on a channel.

A frame is a 5-byte header and a payload. The header is a 4-byte big-endian length and a kind. In a DATA frame
the length counts the bytes of the message that are still to come, this frame's included; its payload is that
many bytes, at most `MAX_FRAME`. So a message has exactly one encoding, its size is known from its first
header, and no frame is larger than `MAX_FRAME`. A BYE frame has length 0 and is the last: a stream that ends
without it was cut. The control frames PING, PONG and TWICE have length 0 and may come between any two frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from smpc_dp.decoding import Buffer
from smpc_dp.errors import Check, PeerFault
from smpc_dp.transport.spool import MemorySpool, Spool, SpoolFolder
from smpc_dp.transport.stream_reader import StreamReader

MAX_FRAME = 1 << 20
MAX_MESSAGE = (1 << 32) - 1
HEADER = struct.Struct(">IB")
DATA, BYE, PING, PONG, TWICE = 1, 2, 3, 4, 5
CONTROL = (PING, PONG, TWICE)

# Bytes of a message that are read before its budget admits it.
PIECE = 1 << 16
# Seconds between two looks at the messages that are received while others wait.
LOOK_SECONDS = 0.25
# Bytes passed to TLS between two checks of the backpressure.
_WRITE_BYTES = 1 << 18


class Share:
    """Part of a memory budget that one incoming message holds, from its admission until it is used.

    `total` and `received`: bytes. `limit`: its time limit. `recent`: bytes of the last looks, of each half as
    much as of the next. `stopped`: whether the budget has ended it.
    """

    def __init__(self, budget: InflightBudget, total: int) -> None:
        self.total = total
        self.received = self._seen = min(total, PIECE)
        self.recent = 0.0
        self.stopped = False
        self.limit = asyncio.timeout(None)
        self._budget = budget
        self._held = 0
        self._slow: SlowMessages | None = None
        self._began = _now()
        # Bytes and seconds of the looks at which others waited.
        self._brought, self._waited = 0, 0.0

    def __str__(self) -> str:
        seconds = _now() - self._began
        rate = self.received / max(seconds, LOOK_SECONDS)
        return f"{self.received} of {self.total} bytes came in {seconds:.1f} s, {rate:.0f} a second"

    async def admit(self) -> None:
        """Wait until the budget has room for the message, and reserve its bytes."""
        self._held = await self._budget.take(self.total)
        self._budget.receiving.add(self)
        self._began = _now()

    def spool(self) -> Spool:
        """Return a store for the message's bytes: a file in the budget's folder, or memory."""
        spools = self._budget.spools
        return MemorySpool() if spools is None else spools.spool(self.total)

    def add(self, count: int) -> None:
        """Count received bytes, reserving them for a slow message; TimeoutError if it is stopped.

        Raises TimeoutError where the budget has ended the message.
        """
        self.received += count
        if self._slow is not None:
            self._slow.make_room(self, count)
            self._held += count
        if self.stopped:
            raise TimeoutError

    def look(self, waited: float) -> tuple[int, float]:
        """Update recent bytes; return total (bytes, seconds) of the looks at which other messages waited."""
        brought, self._seen = self.received - self._seen, self.received
        self.recent = self.recent / 2 + brought
        if waited:
            self._brought += brought
            self._waited += waited
        return self._brought, self._waited

    def slow_down(self, slow: SlowMessages) -> None:
        """Give the reservation back, and count the message among the slow ones from now on."""
        self.release()
        self._slow = slow
        slow.make_room(self, self.received)
        self._held = self.received

    def stop(self) -> None:
        """End the message and give its bytes back: its reader gets a TimeoutError."""
        self.stopped = True
        self.release()
        if not self.limit.expired():
            self.limit.reschedule(_now())

    def complete(self) -> None:
        """Record that all bytes of the message have come, so that its speed no longer matters."""
        self._budget.receiving.discard(self)
        if self._slow is not None:
            self._slow.receiving.discard(self)

    def release(self) -> None:
        """Give the reserved bytes back to the budget; a second call does nothing."""
        self.complete()
        held, self._held = self._held, 0
        if self._slow is None:
            self._budget.give_back(held)
        else:
            self._slow.free += held


class SlowMessages:
    """Limit on memory for messages that came too slowly for their budget."""

    def __init__(self, size: int) -> None:
        """`size` in bytes."""
        self.free = size
        self.receiving: set[Share] = set()

    def make_room(self, share: Share, count: int) -> None:
        """Reserve bytes for a message; stop the slowest messages while there is no room."""
        self.receiving.add(share)
        while self.free < count and not share.stopped:
            min(self.receiving, key=lambda each: each.recent).stop()
        self.free -= count


class InflightBudget:
    """Limit on memory for messages that were received and not yet used, over all channels.

    A message reserves its full size when its first PIECE has come, and waits for it, first come first served;
    meanwhile its sender is held back. The channel releases it when it is asked for its next message, or ends.

    While others wait, a message must bring `rate` bytes a second, after `grace` seconds. One that does not
    returns its reservation and goes on among `SlowMessages` of the same size.
    """

    def __init__(
        self, size: int, rate: float = 0.0, grace: float = 0.0, spools: SpoolFolder | None = None
    ) -> None:
        """`size` in bytes, of memory or of the disk of `spools`; a larger message is admitted alone."""
        if size < 1:
            raise ValueError(f"size: {size}, not positive")
        self.size, self.spools = size, spools
        self.receiving: set[Share] = set()
        self._slow = SlowMessages(size)
        self._rate, self._grace = rate, grace
        self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        # The time of the last look at the messages that are received, while there are looks.
        self._looked: float | None = None

    async def take(self, wanted: int) -> int:
        """Wait for and reserve `wanted` bytes, at most the budget's size; return the number reserved."""
        amount = min(wanted, self.size)
        if self._waiting or amount > self._free:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((amount, waiter))
            self._begin_to_look()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.cancelled():
                    with contextlib.suppress(ValueError):  # it may have been passed over already
                        self._waiting.remove((amount, waiter))
                    self._admit()
                else:
                    self.give_back(amount)
                raise
        else:
            self._free -= amount
        return amount

    def give_back(self, amount: int) -> None:
        """Release reserved bytes, and admit messages that wait for room."""
        self._free += amount
        self._admit()

    def _admit(self) -> None:
        """Admit waiting messages in order while there is room."""
        while self._waiting and self._waiting[0][0] <= self._free:
            amount, waiter = self._waiting.popleft()
            if waiter.cancelled():
                continue
            self._free -= amount
            waiter.set_result(None)

    def _begin_to_look(self) -> None:
        """Start regular looks for slow messages, unless they run or there is no least speed."""
        if self._rate and self._looked is None:
            self._looked = _now()
            for share in self.receiving:
                share.look(0.0)
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look, self._looked)

    def _look(self, last: float) -> None:
        """Move too slow messages among the slow ones; schedule the next look while messages wait."""
        self._looked = _now() if self._waiting or self._slow.receiving else None
        if self._looked is None:
            return
        # While this process is stopped, or busy with something else, a peer is not slow.
        waited = min(self._looked - last, 2 * LOOK_SECONDS) if self._waiting else 0.0
        for share in (*self.receiving, *self._slow.receiving):
            brought, seconds = share.look(waited)
            if share in self.receiving and brought < self._rate * (seconds - self._grace):
                share.slow_down(self._slow)
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look, self._looked)


def _now() -> float:
    """Return the event loop's clock in seconds."""
    return asyncio.get_running_loop().time()


def nothing() -> bytes:
    """Return b"": no control frames are to be sent."""
    return b""


def control_frame(kind: int) -> bytes:
    """Return the bytes of a frame without content, such as a ping or a goodbye."""
    return HEADER.pack(0, kind)


def encode(
    buffers: Sequence[bytes | memoryview], total: int, control: Callable[[], bytes] = nothing
) -> Iterator[bytes | memoryview]:
    """Yield a message's frames (headers and views of its buffers), with control frames between them.

    `control` returns the control frames to send before each frame.
    """
    if not total:
        yield control() + HEADER.pack(0, DATA)
    remaining, room = total, 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        while len(view):
            if not room:
                yield control() + HEADER.pack(remaining, DATA)
                room = min(remaining, MAX_FRAME)
            piece = view[: min(room, _WRITE_BYTES)]
            yield piece
            view = view[len(piece) :]
            room -= len(piece)
            remaining -= len(piece)


async def read_message(
    reader: StreamReader,
    first: bytes,
    peer: str,
    max_message: int,
    frame_timeout: float,
    message_timeout: float,
    admit: Callable[[int], Awaitable[Share]],
    on_control: Callable[[int], None],
) -> Buffer | int:
    """Read one message that begins with the byte `first`; return its content, or a control frame's kind.

    `admit` is awaited with the size of a message when its first PIECE is read; `on_control` is called with
    the kind of each control frame between the frames of a message.

    The message's spool grows with the received bytes, not with the announced length. Each frame has
    `frame_timeout` seconds, and a message `message_timeout` from when it is admitted.

    Raises PeerFault when the length is above `max_message` or the header is wrong, TimeoutError when a frame
    is late or the budget stops the message, OSError when the connection fails, or ends in a frame, LocalError
    when the message, which is read to its end, cannot be stored.
    """
    async with asyncio.timeout(frame_timeout):
        total, kind = HEADER.unpack(first + await _exactly(reader, HEADER.size - 1, peer))
    if kind != DATA:
        if total == 0 and (kind == BYE or kind in CONTROL):
            return int(kind)
        raise PeerFault(
            peer, f"sent a frame header that means nothing (kind {kind}, length {total})", Check.BAD_FRAME
        )
    if total > max_message:
        raise PeerFault(
            peer, f"announced a message of {total} bytes, the limit is {max_message}", Check.TOO_LONG
        )
    async with asyncio.timeout(frame_timeout):
        piece = await _exactly(reader, min(total, PIECE), peer)
    share = await admit(total)
    async with share.limit as limit:
        if message_timeout < math.inf:
            limit.reschedule(_now() + message_timeout)
        content: Buffer = piece
        if total > PIECE:
            with contextlib.closing(share.spool()) as spool:
                spool.write(piece)
                await _read_rest(reader, peer, share, spool, frame_timeout, on_control)
                content = spool.content()
        share.complete()
    return content


async def _read_rest(
    reader: StreamReader,
    peer: str,
    share: Share,
    spool: Spool,
    frame_timeout: float,
    on_control: Callable[[int], None],
) -> None:
    """Read the rest of a long message, after its first piece, into a store; ConnectionError if cut."""

    def store(piece: Buffer) -> None:
        share.add(len(piece))
        spool.write(piece)

    remaining = share.total - PIECE
    frame = min(share.total, MAX_FRAME) - PIECE
    while remaining:
        async with asyncio.timeout(frame_timeout):
            if not frame:
                await _read_header(reader, peer, remaining, on_control)
                frame = min(remaining, MAX_FRAME)
            if await reader.pass_on(frame, store) < frame:
                raise _cut(peer, share.received, share.total)
        remaining -= frame
        frame = 0


async def _read_header(
    reader: StreamReader, peer: str, remaining: int, on_control: Callable[[int], None]
) -> None:
    """Read a frame's header within a message, after control frames; PeerFault for a wrong header."""
    header = HEADER.unpack(await _exactly(reader, HEADER.size, peer))
    while header[0] == 0 and header[1] in CONTROL:
        on_control(header[1])
        header = HEADER.unpack(await _exactly(reader, HEADER.size, peer))
    if header != (remaining, DATA):
        raise PeerFault(
            peer,
            f"sent the frame header {header} where {remaining} bytes of a message were to come",
            Check.BAD_FRAME,
        )


async def _exactly(reader: StreamReader, count: int, peer: str) -> bytes:
    """Read exactly `count` bytes; raise ConnectionError if the stream ends."""
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError as error:
        raise _cut(peer, len(error.partial), count) from None


def _cut(peer: str, got: int, count: int) -> ConnectionError:
    """Return the ConnectionError that says how many of the expected bytes had come."""
    return ConnectionError(f"the connection to {peer} ended inside a frame, {got} of {count} bytes had come")
