"""Channels for bulk data: the same TLS, pins and frames as `channel`, over blocking sockets.

asyncio reaches about a third of TLS's throughput; two parties that stream garbled tables need the rest. Each
channel has a thread that sends and one that receives, so that computation overlaps with encryption and
decryption, and both ends may send at the same time. `connect` makes these channels.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.memory import working_memory
from smpc_dp.crypto.tls import TlsConnection
from smpc_dp.errors import Check, PeerFault, SmpcError, TimeoutFault
from smpc_dp.net.transport import framing, handshake
from smpc_dp.net.transport.channel import CLOSE_SECONDS, ChannelClosed, broken

Buffer = bytes | bytearray | memoryview

_LOG = logging.getLogger("smpc_dp.net.transport")

# Queued messages, outgoing and incoming.
DEPTH = 4
# Received messages that stay valid while later ones come.
RETAINED = DEPTH + 2
# Bytes encrypted before they are sent, and received before they are decrypted: they stay in the cache.
SEND_BYTES = 1 << 16
RECEIVE_BYTES = 1 << 17
# Room for the headers and tags of records, and messages of TLS itself.
OVERHEAD = 1 << 12


class BlockingStream:
    """TLS connection to the member `peer` over a blocking socket, and the messages on it.

    One thread may write while another reads.
    """

    def __init__(self, peer: str, sock: socket.socket, secured: TlsConnection, timeout: float) -> None:
        self.peer = peer
        self.max_message = handshake.MAX_GREETING
        # Between retained messages there are holes, each smaller than the next message.
        self._memory = working_memory((2 * RETAINED + 1) * framing.MAX_FRAME).data
        self._retained: deque[tuple[int, int]] = deque(maxlen=RETAINED)
        self._encrypted = np.empty(SEND_BYTES + OVERHEAD, np.uint8)
        # Received bytes that are not yet decrypted: those from `_start` to `_end`.
        self._received = np.empty(RECEIVE_BYTES, np.uint8)
        unread = secured.unread()
        self._start, self._end = 0, len(unread)
        self._received[: self._end] = np.frombuffer(unread, np.uint8)
        self._socket = sock
        self._tls = secured
        self._timeout = timeout
        self._warned = False
        sock.settimeout(timeout)

    async def send(self, *buffers: Buffer) -> None:
        """Implement the hello's `send`, when no other thread uses the connection."""
        self.write(buffers)

    async def receive(self) -> bytes:
        """Implement the hello's `receive`."""
        return bytes(self.read(self.max_message))

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send one message, the bytes of all `buffers` in order.

        Raises TimeoutFault when the peer does not read in time, ChannelClosed when the connection is gone.
        """
        total = sum(memoryview(buffer).nbytes for buffer in buffers)
        try:
            for part in _parts(buffers, total):
                self._send(part)
        except TimeoutError:
            raise TimeoutFault({self.peer}, "send", f"it did not read for {self._timeout} s") from None
        except OSError as error:
            raise broken(error, self.peer) from None

    def read(self, limit: int) -> memoryview:
        """Return the next message, of at most `limit` bytes; it stays until RETAINED more have been read.

        Raises PeerFault when the peer breaks the framing or sends more, TimeoutFault when it is late,
        ChannelClosed at the end.
        """
        try:
            total, kind = self._header()
            if (total, kind) == (0, framing.TWICE) and not self._warned:
                _LOG.warning(
                    "%s says that our key is used twice: another process has called in our name", self.peer
                )
                self._warned = True
                total, kind = self._header()
            if kind == framing.BYE and total == 0:
                raise ChannelClosed(self.peer, clean=True)
            if kind != framing.DATA:
                raise PeerFault(
                    self.peer,
                    f"sent a frame header that means nothing (kind {kind}, length {total})",
                    Check.BAD_FRAME,
                )
            if total > limit:
                raise PeerFault(
                    self.peer, f"announced a message of {total} bytes, the limit is {limit}", Check.TOO_LONG
                )
            message = self._short(total) if total <= framing.MAX_FRAME else self._long(total)
        except TimeoutError:
            raise TimeoutFault({self.peer}, "receive", f"nothing came for {self._timeout} s") from None
        except OSError as error:
            raise broken(error, self.peer) from None
        return message

    def wait(self, seconds: float) -> None:
        """Set the time limit for the peer; not while another thread uses the connection."""
        self._timeout = seconds
        self._socket.settimeout(seconds)

    def warn(self) -> None:
        """Tell the peer that another process has called with its key; not while another thread writes."""
        with contextlib.suppress(OSError):
            self._send([framing.control_frame(framing.TWICE)])

    def finish(self) -> None:
        """Say goodbye: no further message is sent."""
        with contextlib.suppress(OSError):
            self._send([framing.control_frame(framing.BYE)])
            self._socket.shutdown(socket.SHUT_WR)

    def drain(self) -> None:
        """Wait for a short time until the peer has closed, so that no sent byte is lost."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(CLOSE_SECONDS)
            while self._socket.recv_into(self._received.data):
                pass

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def cut(self) -> None:
        """Make all current uses of the connection fail."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt and send at most SEND_BYTES bytes."""
        size = self._tls.encrypt([_octets(buffer) for buffer in buffers], self._encrypted)
        self._socket.sendall(self._encrypted.data[:size])

    def _short(self, total: int) -> memoryview:
        """Read a message of one frame to the first free part of the buffer: fresh memory is slow."""
        start = 0
        for first, end in sorted(self._retained):
            if start + total <= first:
                break
            start = max(start, end)
        self._retained.append((start, start + total))
        message = self._memory[start : start + total]
        self._fill(message)
        return message

    def _long(self, total: int) -> memoryview:
        """Read a message of several frames."""
        buffer, have = bytearray(framing.MAX_FRAME), 0
        while True:
            frame = min(total - have, framing.MAX_FRAME)
            # Memory grows with the received bytes, not with the announced length.
            if len(buffer) < have + frame:
                buffer += bytes(min(max(frame, have), total - have))
            with memoryview(buffer) as view:
                self._fill(view[have : have + frame])
            have += frame
            if have == total:
                return memoryview(buffer)[:total]
            if (header := self._header()) != (total - have, framing.DATA):
                raise PeerFault(
                    self.peer, f"sent the frame header {header} inside a message", Check.BAD_FRAME
                )

    def _header(self) -> tuple[int, int]:
        """Read the header of a frame."""
        data = bytearray(framing.HEADER.size)
        self._fill(memoryview(data))
        length, kind = framing.HEADER.unpack(data)
        return length, kind

    def _fill(self, view: memoryview) -> None:
        """Fill `view` with decrypted bytes."""
        target, have = _octets(view), 0
        while have < len(target):
            used, got = self._tls.decrypt(self._received[self._start : self._end], target[have:])
            self._start += used
            have += got
            if not used and not got:
                self._receive()

    def _receive(self) -> None:
        """Wait for further bytes, after the beginning of a record that is there."""
        left = self._end - self._start
        self._received[:left] = self._received[self._start : self._end].copy()
        if not (came := self._socket.recv_into(self._received[left:].data)):
            raise ChannelClosed(self.peer, clean=False)
        self._start, self._end = 0, left + came


class Halt:
    """Stops, from any thread, waits for connections, and on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: list[BlockingStream] = []
        self.halted = False

    def watch(self, stream: BlockingStream) -> None:
        """Register `stream`, to be cut by `now`; cut it at once if that was called."""
        with self._lock:
            self._streams.append(stream)
            halted = self.halted
        if halted:
            stream.cut()

    def now(self) -> None:
        """Cut every registered connection; waiting threads see its error, or `halted`."""
        with self._lock:
            self.halted = True
            streams = list(self._streams)
        for stream in streams:
            stream.cut()


class BlockingChannel:
    """Messages to and from one authenticated member; sends and receives happen in the order of the calls.

    A send returns before the message is sent; its buffers must not change any more. The next call raises an
    error of the connection.
    """

    def __init__(self, stream: BlockingStream) -> None:
        self.peer = stream.peer
        self._stream = stream
        self._sent = self._received = 0
        self._outgoing: queue.Queue[Sequence[Buffer] | None] = queue.Queue(DEPTH)
        self._wanted: queue.Queue[tuple[int, int] | None] = queue.Queue()
        self._messages: queue.Queue[memoryview | SmpcError] = queue.Queue(DEPTH)
        self._awaited = 0
        self._error: SmpcError | None = None
        self._threads = [
            threading.Thread(target=work, name=f"{reason} {stream.peer}", daemon=True)
            for work, reason in ((self._write, "to"), (self._read, "from"))
        ]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        return f"BlockingChannel({self.peer!r})"

    @property
    def bytes_sent(self) -> int:
        """Bytes of the messages passed to `send`, without frames and TLS."""
        return self._sent

    @property
    def bytes_received(self) -> int:
        """Bytes of the whole messages received, without frames and TLS."""
        return self._received

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send one message; wait while DEPTH others are queued.

        Raises ChannelClosed, TimeoutFault or PeerFault for an error since the last call.
        """
        self._check()
        self._sent += sum(memoryview(buffer).nbytes for buffer in buffers)
        self._outgoing.put(list(buffers))

    def receive(self, limit: int, ahead: int = 0) -> memoryview:
        """Return the next message, of at most `limit` bytes; read `ahead` more expected messages meanwhile.

        The message stays valid until the next call. Errors as for `send`, after all earlier messages.
        """
        if not self._awaited:
            self._check()
            self._awaited = 1 + ahead
            self._wanted.put((limit, self._awaited))
        message = self._messages.get()
        self._awaited -= 1
        if isinstance(message, SmpcError):
            self._awaited = 0
            self._error = message
            raise message
        if len(message) > limit:
            raise PeerFault(
                self.peer, f"sent a message of {len(message)} bytes, the limit is {limit}", Check.TOO_LONG
            )
        self._received += len(message)
        return message

    def close(self, last: Sequence[Buffer] | None = None) -> None:
        """Send queued messages and the message `last`, say goodbye and close; drop incoming messages.

        Cuts the connection when that takes more than twice CLOSE_SECONDS.
        """
        deadline = time.monotonic() + 2 * CLOSE_SECONDS
        jobs: list[Sequence[Buffer] | None] = [None] if last is None else [list(last), None]
        self._wanted.put(None)
        while any(thread.is_alive() for thread in self._threads):
            with contextlib.suppress(queue.Full):
                while jobs:
                    self._outgoing.put_nowait(jobs[0])
                    del jobs[0]
            with contextlib.suppress(queue.Empty):
                self._messages.get_nowait()
            for thread in self._threads:
                thread.join(0.001)
            if time.monotonic() > deadline:
                self._stream.cut()
        self._stream.close()

    def _check(self) -> None:
        """Raise the connection's error, if any."""
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        """Send queued messages, in a thread."""
        while (job := self._outgoing.get()) is not None:
            # After an error queued messages are dropped.
            if self._error is None:
                try:
                    self._stream.write(job)
                except SmpcError as error:
                    self._error = self._error or error
                    # The receiving caller must not wait any longer.
                    self._stream.cut()
        if self._error is None:
            self._stream.finish()

    def _read(self) -> None:
        """Receive messages, in a thread."""
        while (job := self._wanted.get()) is not None:
            limit, count = job
            try:
                for _ in range(count):
                    self._check()
                    self._messages.put(self._stream.read(limit))
            except SmpcError as error:
                # The cause of the end, not the end itself.
                self._error = self._error or error
                self._messages.put(self._error)
        if self._error is None:
            self._stream.drain()


def _octets(buffer: Buffer) -> NDArray[np.uint8]:
    """Return the bytes of a buffer, as the core takes them."""
    return np.frombuffer(buffer, np.uint8)


def _parts(buffers: Sequence[Buffer], total: int) -> Iterator[list[Buffer]]:
    """Yield the frames of a message, made by `framing.encode`, in parts of SEND_BYTES."""
    frames: Sequence[Buffer] = [framing.HEADER.pack(total, framing.DATA), *buffers]
    if total > framing.MAX_FRAME:
        frames = list(framing.encode([memoryview(buffer) for buffer in buffers], total))
    part: list[Buffer] = []
    room = SEND_BYTES
    for frame in frames:
        view = memoryview(frame).cast("B")
        while len(view) >= room:
            yield [*part, view[:room]]
            view, part, room = view[room:], [], SEND_BYTES
        if len(view):
            part.append(view)
            room -= len(view)
    if part:
        yield part
