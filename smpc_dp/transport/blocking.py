"""Channels for bulk data: the same TLS, pins and frames as `channel`, over blocking sockets.

asyncio reaches about a third of TLS's throughput; two parties that stream garbled tables need the rest. A
channel has a thread that sends long messages and one that reads ahead, so that computation overlaps with
encryption and decryption, and both ends may send at the same time. A short message is sent, and one of a few
read, by the caller itself: to hand it to another thread costs more than to encrypt it. `connect` makes these
channels.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import queue
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.tls import TlsConnection
from smpc_dp.errors import Check, PeerFault, SmpcError, TimeoutFault
from smpc_dp.transport import framing, handshake
from smpc_dp.transport.channel import CLOSE_SECONDS, ChannelClosed, broken, is_of_system

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

_LOG = logging.getLogger("smpc_dp.transport")

# Queued messages, outgoing and incoming. Of fewer expected messages than that none is read ahead.
DEPTH = 4
# The step of the error for a peer from which nothing came.
RECEIVE = "receive"
# Received messages that stay valid while later ones come.
RETAINED = DEPTH + 2
# Bytes that the core encrypts before it sends them. A message that is sent as one such part, its header
# included, is short.
SEND_BYTES = 1 << 16
# Bytes dropped at once while a connection closes.
DROPPED_BYTES = 1 << 16
# The longest that the system waits at once, in seconds.
LONGEST_WAIT = 1.0


class _Limit:
    """Time limit for waiting for a peer, which excludes time when this process itself was stopped or busy.

    Each look counts the time since the last one, but not more than the longest wait: while this process is
    stopped, or busy with something else, a peer is not late.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._longest = min(seconds / 8, LONGEST_WAIT)
        self._seen = time.monotonic()

    def wait(self, ready: select.poll) -> None:
        """Wait until a socket is ready; raise TimeoutError when the limit is used up."""
        while True:
            now = time.monotonic()
            self._left -= min(now - self._seen, self._longest)
            self._seen = now
            if self._left <= 0:
                raise TimeoutError
            if ready.poll(math.ceil(1000 * min(self._left, self._longest))):
                return


class BlockingStream:
    """TLS connection to a member over a blocking socket, which sends and receives framed messages.

    One thread may write while another reads.
    """

    def __init__(self, peer: str, sock: socket.socket, secured: TlsConnection, timeout: float) -> None:
        self.peer = peer
        self.max_message = handshake.MAX_GREETING
        self._head = bytearray(framing.HEADER.size)
        # Bytes of the next header that have come before it is read.
        self._begun = 0
        self._memory: memoryview | None = None
        self._retained: deque[tuple[int, int]] = deque(maxlen=RETAINED)
        self._socket = sock
        self._tls = secured
        self._timeout = timeout
        self._warned = False
        # Each wait has a limit of its own, which a timeout of the socket would not be.
        sock.setblocking(False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)

    async def send(self, *buffers: Buffer) -> None:
        """Send one message of the handshake; no other thread may use the connection."""
        self.write(buffers)

    async def receive(self) -> bytes:
        """Wait for and return the next message of the handshake."""
        return bytes(self.read(self.max_message))

    async def aside(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, computed at once in this thread: there is no event loop."""
        return work()

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send one message from several buffers, in frames; raise an error if the peer does not read.

        Raises TimeoutFault when the peer does not read in time, ChannelClosed when the connection is gone.
        """
        try:
            for frame in _frames(buffers, length(buffers)):
                self._send(frame, _Limit(self._timeout))
        except OSError as error:
            raise self._failed(error) from None

    def begin(self, buffers: Sequence[Buffer], total: int) -> bool:
        """Send what the socket takes now of a short message; return True if that was all of it, or raise.

        `flush` sends the rest. Raises ChannelClosed when the connection is gone.
        """
        frame = [_octets(framing.HEADER.pack(total, framing.DATA)), *map(_octets, buffers)]
        try:
            encrypted, done = self._tls.send(self._socket.fileno(), frame, 0)
        except OSError as error:
            raise self._failed(error) from None
        if encrypted < framing.HEADER.size + total:
            raise RuntimeError("a message was begun before the last one was sent")
        return done

    def flush(self) -> None:
        """Send the rest of a message that `begin` could not send at once; raise an error on failure."""
        try:
            self._send([], _Limit(self._timeout))
        except OSError as error:
            raise self._failed(error) from None

    def read(self, limit: int) -> memoryview:
        """Return the next message, in memory that is reused after RETAINED more; or raise an error.

        The header of each frame has the time limit, and its payload has it again, whatever comes meanwhile.

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
        except TimeoutError as error:
            if is_of_system(error):
                raise broken(error, self.peer) from None
            reason = f"no whole frame came in {self._timeout} s"
            raise TimeoutFault({self.peer}, RECEIVE, reason) from None
        except OSError as error:
            raise broken(error, self.peer) from None
        return message

    def has_begun(self) -> bool:
        """Tell whether the next message or the connection's end has begun to come; never waits.

        No other thread may be reading.
        """
        try:
            if not self._begun:
                # Not of the socket alone: what came with the last message waits in the core.
                self._begun, ended = self._tls.receive(self._socket.fileno(), _octets(self._head), 0)
                return ended or self._begun > 0
        except OSError:
            # Reading tells what happened.
            pass
        return True

    def watch(self, ready: select.poll) -> float:
        """Let `ready` wait for bytes of the peer too; return the time limit in seconds for one message."""
        ready.register(self._socket, select.POLLIN)
        return self._timeout

    def wait(self, seconds: float) -> None:
        """Set the time limit, in seconds, for later waits for the peer; nothing is waited for now."""
        self._timeout = seconds

    def warn(self) -> None:
        """Tell the peer that another process uses its key; no other thread may be writing."""
        with contextlib.suppress(OSError):
            self._control(framing.TWICE)

    def is_writable(self) -> bool:
        """Tell whether the socket can take a control frame now; no other thread may be writing."""
        return bool(self._writable.poll(0))

    def finish(self) -> None:
        """Send a goodbye and shut down sending; errors are ignored."""
        with contextlib.suppress(OSError):
            self._control(framing.BYE)
            self._socket.shutdown(socket.SHUT_WR)

    def drain(self) -> None:
        """Discard incoming bytes for a short time until the peer closes, so that no sent byte is lost."""
        deadline, dropped = time.monotonic() + CLOSE_SECONDS, bytearray(DROPPED_BYTES)
        with contextlib.suppress(OSError):
            while (left := deadline - time.monotonic()) > 0:
                if self._readable.poll(math.ceil(1000 * left)) and not self._socket.recv_into(dropped):
                    return

    def close(self) -> None:
        """Close the connection's socket, without a goodbye to the peer."""
        self._socket.close()

    def cut(self) -> None:
        """Shut the socket down, so that all threads that use it get an error."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _failed(self, error: OSError) -> SmpcError:
        """Return the library's error for an OSError while sending, naming the peer."""
        if isinstance(error, TimeoutError) and not is_of_system(error):
            return TimeoutFault({self.peer}, "send", f"it did not read for {self._timeout} s")
        return broken(error, self.peer)

    def _control(self, kind: int) -> None:
        """Send a control frame: a goodbye, or the warning that a key is used twice."""
        self._send([framing.control_frame(kind)], _Limit(min(self._timeout, CLOSE_SECONDS)))

    def _send(self, frame: Sequence[Buffer], limit: _Limit) -> None:
        """Encrypt and send one frame, after bytes already encrypted; TimeoutError at the limit."""
        octets = [_octets(buffer) for buffer in frame]
        encrypted, done = self._tls.send(self._socket.fileno(), octets, 0)
        while not done:
            limit.wait(self._writable)
            encrypted, done = self._tls.send(self._socket.fileno(), octets, encrypted)

    def _short(self, total: int) -> memoryview:
        """Read and return a message that is one frame of `total` bytes."""
        message = memoryview(bytearray(total)) if total <= SEND_BYTES else self._reserve(total)
        self._fill(message)
        return message

    def _reserve(self, total: int) -> memoryview:
        """Return `total` bytes of a reused buffer that no retained message occupies."""
        if self._memory is None:
            # Between retained messages there are holes, each smaller than the next message.
            self._memory = np.empty((2 * RETAINED + 1) * framing.MAX_FRAME, np.uint8).data
        start = 0
        for first, end in sorted(self._retained):
            if start + total <= first:
                break
            start = max(start, end)
        self._retained.append((start, start + total))
        return self._memory[start : start + total]

    def _long(self, total: int) -> memoryview:
        """Read and return a message of several frames, `total` bytes in all; or raise PeerFault."""
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
        """Read a frame's header; return (bytes of the message from this frame on, the frame's kind)."""
        begun, self._begun = self._begun, 0
        self._fill(self._head, begun)
        total, kind = framing.HEADER.unpack(self._head)
        return total, kind

    def _fill(self, view: Buffer, have: int = 0) -> None:
        """Fill `view` after its first `have` bytes; TimeoutError if late, ChannelClosed at the end."""
        target, limit = _octets(view), None
        while True:
            have, ended = self._tls.receive(self._socket.fileno(), target, have)
            if have == len(target):
                return
            if ended:
                raise ChannelClosed(self.peer, clean=False)
            limit = limit or _Limit(self._timeout)
            limit.wait(self._readable)


class Halt:
    """Switch by which any thread can stop others that wait for connections or use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: list[BlockingStream] = []
        self.halted = False

    def watch(self, stream: BlockingStream) -> None:
        """Register a connection that `now` will cut; cut it at once if `now` was called before."""
        with self._lock:
            self._streams.append(stream)
            halted = self.halted
        if halted:
            stream.cut()

    def now(self) -> None:
        """Cut all registered connections, so that threads waiting on them get an error."""
        with self._lock:
            self.halted = True
            streams = list(self._streams)
        for stream in streams:
            stream.cut()


class _Bounded(Generic[T]):
    """Thread-safe queue of at most DEPTH items, faster than `queue.Queue`."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(DEPTH):
            self._room.put(None)

    def put(self, item: T, *, block: bool = True) -> None:
        """Append an item; if the queue is full wait, or raise queue.Full if `block` is False."""
        try:
            self._room.get(block)
        except queue.Empty:
            raise queue.Full from None
        self._items.put(item)

    def get(self, *, block: bool = True) -> T:
        """Remove and return the first item; if there is none wait, or raise queue.Empty."""
        item = self._items.get(block)
        self._room.put(None)
        return item

    def qsize(self) -> int:
        """Return the number of queued items."""
        return self._items.qsize()


class BlockingChannel:
    """Channel of messages to and from one authenticated member, for threads; sends in order of calls.

    A send returns before the message is sent; its buffers must not change any more. The next call raises an
    error of the connection.
    """

    def __init__(self, stream: BlockingStream) -> None:
        self.peer = stream.peer
        self._stream = stream
        self._sent = self._received = 0
        self._outgoing: _Bounded[Callable[[], None] | None] = _Bounded()
        self._enqueued = self._written = 0
        self._wanted: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._messages: _Bounded[memoryview | SmpcError] = _Bounded()
        self._awaited = 0
        # The connection's first error, and the one with which reading ended.
        self._error: SmpcError | None = None
        self._end: SmpcError | None = None
        self._writer: threading.Thread | None = None
        self._reader: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"BlockingChannel({self.peer!r})"

    @property
    def bytes_sent(self) -> int:
        """Number of bytes of messages given to `send`, without frames and TLS."""
        return self._sent

    @property
    def bytes_received(self) -> int:
        """Number of bytes of complete messages received, without frames and TLS."""
        return self._received

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send or queue one message; wait while DEPTH others are queued.

        Raises ChannelClosed, TimeoutFault or PeerFault for an error since the last call.
        """
        self._check()
        total = length(buffers)
        self._sent += total
        # The caller alone adds jobs: where all are done the other thread does not write.
        if total + framing.HEADER.size > SEND_BYTES or self._enqueued > self._written:
            self._enqueue(functools.partial(self._stream.write, list(buffers)))
        elif not self._send_unless_failed(functools.partial(self._stream.begin, buffers, total), True):
            self._enqueue(self._stream.flush)

    def receive(self, limit: int, ahead: int = 0) -> memoryview:
        """Wait for and return the next message, valid until the next call; let a thread read `ahead` more.

        Fewer than DEPTH more are not read before their turn. The message stays valid until the next call.
        Errors as for `send`, after all that came before.
        """
        if not self._awaited:
            if ahead < DEPTH:
                return self._take(self._read(limit), limit)
            self._awaited = 1 + ahead
            if self._reader is None:
                self._reader = self._start(self._read_ahead, "from")
            self._wanted.put((limit, self._awaited))
        self._awaited -= 1
        return self._take(self._messages.get(), limit)

    def has_begun(self) -> bool:
        """Tell whether `receive` would find the begin of a message or the connection's end; never waits."""
        return self._awaited > 0 or self._end is not None or self._stream.has_begun()

    def watch(self, ready: select.poll) -> float:
        """Let `ready` wait for bytes of the peer too; return the time limit in seconds for one message."""
        return self._stream.watch(ready)

    def _take(self, message: memoryview | SmpcError, limit: int) -> memoryview:
        """Count and return a received message; raise its error, or PeerFault above `limit` bytes."""
        if isinstance(message, SmpcError):
            self._awaited = 0
            raise message
        if len(message) > limit:
            raise PeerFault(
                self.peer, f"sent a message of {len(message)} bytes, the limit is {limit}", Check.TOO_LONG
            )
        self._received += len(message)
        return message

    def close(self, last: Sequence[Buffer] | None = None) -> None:
        """Send all queued messages, `last` and a goodbye, then close; discard incoming messages.

        Cuts the connection when that takes more than twice CLOSE_SECONDS.
        """
        deadline = time.monotonic() + 2 * CLOSE_SECONDS
        jobs: list[Callable[[], None] | None] = []
        if self._writer is None and last is None and self._stream.is_writable():
            self._finish()
        else:
            jobs = [None] if last is None else [functools.partial(self._stream.write, list(last)), None]
            self._writer = self._writer or self._start(self._write, "to")
            # A peer that sends while it is not read may not read either.
            self._reader = self._reader or self._start(self._read_ahead, "from")
        self._wanted.put(None)
        threads = [thread for thread in (self._writer, self._reader) if thread is not None]
        while any(thread.is_alive() for thread in threads):
            with contextlib.suppress(queue.Full):
                while jobs:
                    self._outgoing.put(jobs[0], block=False)
                    del jobs[0]
            with contextlib.suppress(queue.Empty):
                self._messages.get(block=False)
            for thread in threads:
                thread.join(0.001)
            if time.monotonic() > deadline:
                self._stream.cut()
        if self._reader is None:
            self._drain()
        self._stream.close()

    def _start(self, work: Callable[[], None], reason: str) -> threading.Thread:
        """Start and return a thread of this channel, which reads or writes."""
        thread = threading.Thread(target=work, name=f"{reason} {self.peer}", daemon=True)
        thread.start()
        return thread

    def _check(self) -> None:
        """Raise the connection's error if it has failed."""
        if self._error is not None:
            raise self._error

    def _fail(self, error: SmpcError) -> SmpcError:
        """Store the connection's error if it is the first one; return the first error."""
        self._error = self._error or error
        return self._error

    def _enqueue(self, job: Callable[[], None]) -> None:
        """Queue a job for the sending thread; wait while DEPTH others are queued."""
        self._writer = self._writer or self._start(self._write, "to")
        self._enqueued += 1
        self._outgoing.put(job)

    def _send_unless_failed(self, job: Callable[[], T], otherwise: T) -> T:
        """Run a sending job and return its result; return `otherwise` if the connection has failed."""
        if self._error is None:
            try:
                return job()
            except SmpcError as error:
                self._fail(error)
                # The reader must not wait any longer.
                self._stream.cut()
        return otherwise

    def _write(self) -> None:
        """Run queued sending jobs in order: the main function of the sending thread."""
        while (job := self._outgoing.get()) is not None:
            self._send_unless_failed(job, None)
            self._written += 1
        self._finish()

    def _finish(self) -> None:
        """Send a goodbye to the peer, unless the connection has failed."""
        if self._error is None:
            self._stream.finish()

    def _read(self, limit: int) -> memoryview | SmpcError:
        """Read and return the next message, or return the connection's error.

        After an error of sending too: a peer that hangs up may have sent its reason.
        """
        if self._end is None:
            try:
                return self._stream.read(limit)
            except SmpcError as error:
                self._end = self._fail(error)
        return self._end

    def _read_ahead(self) -> None:
        """Read expected messages into a queue: the main function of the receiving thread."""
        while (job := self._wanted.get()) is not None:
            limit, count = job
            for _ in range(count):
                message = self._read(limit)
                self._messages.put(message)
                if isinstance(message, SmpcError):
                    break
        self._drain()

    def _drain(self) -> None:
        """Wait a short time for the peer to close the connection; do nothing after an error."""
        if self._error is None:
            self._stream.drain()


def await_any(channels: Sequence[BlockingChannel], limits: int) -> None:
    """Wait until one of the peers begins a message or its connection ends; take nothing from any channel.

    `limits`: the time for that, as a multiple of the longest time limit for one message. Raises TimeoutFault
    that names all peers.
    """
    ready = select.poll()
    seconds = limits * max(channel.watch(ready) for channel in channels)
    limit = _Limit(seconds)
    try:
        while not any(channel.has_begun() for channel in channels):
            limit.wait(ready)
    except TimeoutError:
        peers = {channel.peer for channel in channels}
        raise TimeoutFault(peers, RECEIVE, f"nothing came in {seconds} s") from None


def _octets(buffer: Buffer) -> NDArray[np.uint8]:
    """Return a buffer's bytes as a NumPy array, without copying, for the Rust core."""
    return np.frombuffer(buffer, np.uint8)


def length(buffers: Sequence[Buffer]) -> int:
    """Return the total number of bytes of several buffers."""
    return sum(memoryview(buffer).nbytes for buffer in buffers)


def _frames(buffers: Sequence[Buffer], total: int) -> Iterator[list[Buffer]]:
    """Yield a message's frames as lists of buffers: the frame's header, then its parts."""
    if total <= framing.MAX_FRAME:
        yield [framing.HEADER.pack(total, framing.DATA), *buffers]
        return
    frame: list[Buffer] = []
    room = 0
    for part in framing.encode([memoryview(buffer) for buffer in buffers], total):
        if not room:
            if frame:
                yield frame
            frame, room = [part], framing.MAX_FRAME
            continue
        frame.append(part)
        room -= len(part)
    yield frame
