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
import io
import math
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from smpc_dp.errors import Check, PeerFault

MAX_FRAME = 1 << 20
MAX_MESSAGE = (1 << 32) - 1
HEADER = struct.Struct(">IB")
DATA, BYE, PING, PONG, TWICE = 1, 2, 3, 4, 5
CONTROL = (PING, PONG, TWICE)

# Bytes passed to TLS between two checks of the backpressure.
_WRITE_BYTES = 1 << 17


class InflightBudget:
    """Bound on the bytes of unused messages in all channels together.

    A message reserves its full size before its first payload is read, and waits for it, first come first
    served; meanwhile its sender is held back. The channel releases it when it is asked for its next message,
    or ends.
    """

    def __init__(self, size: int) -> None:
        """`size` in bytes; a message larger than that is admitted alone."""
        if size < 1:
            raise ValueError(f"size: {size}, not positive")
        self.size = size
        self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, wanted: int) -> int:
        """Reserve `wanted` bytes, or all when there are fewer; return the number to give back."""
        amount = min(wanted, self.size)
        if self._waiting or amount > self._free:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((amount, waiter))
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
        """Release reserved bytes, and admit waiting messages."""
        self._free += amount
        self._admit()

    def _admit(self) -> None:
        """Admit waiting messages while there is room."""
        while self._waiting and self._waiting[0][0] <= self._free:
            amount, waiter = self._waiting.popleft()
            if waiter.cancelled():
                continue
            self._free -= amount
            waiter.set_result(None)


def nothing() -> bytes:
    """Return no control frames."""
    return b""


def control_frame(kind: int) -> bytes:
    """Return a frame without payload: a goodbye or one of CONTROL."""
    return HEADER.pack(0, kind)


def encode(
    buffers: Sequence[bytes | memoryview], total: int, control: Callable[[], bytes] = nothing
) -> Iterator[bytes | memoryview]:
    """Yield the frames of the message in `buffers`, `total` bytes, without copying them.

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
    reader: asyncio.StreamReader,
    first: bytes,
    peer: str,
    max_message: int,
    frame_timeout: float,
    message_timeout: float,
    reserve: Callable[[int], Awaitable[None]],
    on_control: Callable[[int], None],
) -> bytes | int:
    """Return the message of `peer` that starts with the byte `first`, or the kind of another frame.

    `reserve` is awaited with the size of a message before its payload is read; `on_control` is called with
    the kind of each control frame between the frames of a message.

    Memory grows with the received bytes, not with the announced length. Each frame has `frame_timeout`
    seconds, and a message `message_timeout` from when it is admitted.

    Raises PeerFault when the length is above `max_message` or the header is wrong, TimeoutError when a frame
    is late, OSError when the connection fails, or ends in a frame.
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
    await reserve(total)
    async with asyncio.timeout(None if message_timeout == math.inf else message_timeout):
        async with asyncio.timeout(frame_timeout):
            frame = await _exactly(reader, min(total, MAX_FRAME), peer)
        if total <= MAX_FRAME:
            return frame
        return await _read_rest(reader, peer, frame, total, frame_timeout, on_control)


async def _read_rest(
    reader: asyncio.StreamReader,
    peer: str,
    frame: bytes,
    total: int,
    frame_timeout: float,
    on_control: Callable[[int], None],
) -> bytes:
    """Read the payloads of a message's frames."""
    # BytesIO gives its buffer away in getvalue(): a large message is not copied a second time.
    message = io.BytesIO()
    message.write(frame)
    remaining = total - len(frame)
    while remaining:
        async with asyncio.timeout(frame_timeout):
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
            frame = await _exactly(reader, min(remaining, MAX_FRAME), peer)
        message.write(frame)
        remaining -= len(frame)
    return message.getvalue()


async def _exactly(reader: asyncio.StreamReader, count: int, peer: str) -> bytes:
    """Read exactly `count` bytes; raise ConnectionError if the stream ends, whoever cut it."""
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError as error:
        got = len(error.partial)
        raise ConnectionError(
            f"the connection to {peer} ended inside a frame, {got} of {count} bytes had come"
        ) from None
