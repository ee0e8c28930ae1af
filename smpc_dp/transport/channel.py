"""Channel: messages to and from one authenticated member, over one connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from smpc_dp.crypto.tls import TlsError
from smpc_dp.decoding import Buffer
from smpc_dp.errors import (
    Check,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    SmpcError,
    TimeoutFault,
    printable,
)
from smpc_dp.transport import framing, tls
from smpc_dp.transport.inbox import Budgets, Inbox, Message
from smpc_dp.transport.read_buffers import decrypted_view
from smpc_dp.transport.sockets import unsent
from smpc_dp.transport.stream_reader import StreamReader

CLOSE_SECONDS = 2.0
# Between two looks whether the peer's system has all that was sent.
TAKEN_SECONDS = 0.02
# Bytes of undecoded input of a connection above which its sender is held back (asyncio allows twice that).
READ_AHEAD = 1 << 17
# The most bytes of a record of TLS.
TLS_RECORD = 1 << 14
# A peer that was pinged and neither sends nor takes a byte for so many seconds is disconnected; the second
# number is the longest wait for one that does.
PING_SECONDS = 5.0
PING_LIMIT = 20.0
# The dialler looks so many times whether the peer is silent, and pings it, before it cuts the connection.
LOOKS = 3
# Control frames that a peer may send: so many at once, and one more each second.
CONTROL_FRAMES = 20
# Unread bytes of a peer above which it gets no control frames.
CONTROL_ROOM = 1 << 16
# A piece of this size is sent only when the peer's system has taken most of the earlier ones.
_PROGRESS_BYTES = 1 << 16
_NO_BYTES = memoryview(b"")

T = TypeVar("T")

_LOG = logging.getLogger("smpc_dp.transport")


def now() -> float:
    """Return the event loop's clock in seconds."""
    return asyncio.get_running_loop().time()


class ChannelClosed(SmpcError):
    """Error: the channel to `peer` has ended, `clean` by a goodbye or else by a cut connection.

    `reason`: of a cut, if it is known. Nobody is at fault for that: whoever carries the bytes can do it.
    """

    def __init__(self, peer: str, clean: bool, reason: str = "") -> None:
        self.peer = printable(peer)
        self.clean = clean
        super().__init__(
            f"{peer}: the channel was {'closed' if clean else 'cut'}{f' ({reason})' if reason else ''}"
        )


def broken(error: OSError, peer: str) -> ChannelClosed:
    """Return the ChannelClosed error for a connection's OSError, with the reason if known."""
    if isinstance(error, ssl.SSLZeroReturnError):
        return ChannelClosed(peer, clean=False)
    reason = tls.describe(error) if isinstance(error, ssl.SSLError | TlsError) else str(error)
    return ChannelClosed(peer, clean=False, reason=reason)


def is_of_system(error: TimeoutError) -> bool:
    """Tell whether a TimeoutError is the operating system's, not a time limit of this process."""
    return error.errno is not None


class Stream(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """asyncio protocol of a TLS connection, which records when the last bytes came and if it is lost.

    TLS decrypts into a buffer: a bytes object of each record, and another one of all, would be copied. The
    frames of a large message are stored from that buffer.
    """

    def __init__(self) -> None:
        self.stream = StreamReader(limit=READ_AHEAD)
        self.gone = asyncio.Event()
        self.moved = 0.0
        self._buffer = _NO_BYTES
        super().__init__(self.stream)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a buffer in which asyncio puts received bytes (called by asyncio).

        asyncio leaves what does not fit for its next turn, and drops it if the peer has closed by then.
        """
        self._buffer = decrypted_view(max(0, sizehint) + TLS_RECORD)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes from the shared buffer (called by asyncio)."""
        self.moved = now()
        received, self._buffer = self._buffer[:nbytes], _NO_BYTES
        self.stream.feed_data(received)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the connection has ended, and wake tasks that wait for this."""
        super().connection_lost(exc)
        self.gone.set()


class Channel:
    """Channel of messages to one member over TLS, for asyncio: with pings, limits and a clean end.

    Cancelling a send within a message cuts the channel: the stream would be out of step. A few messages are
    read before they are asked for, so that pings are answered while no task receives.
    """

    def __init__(
        self,
        peer: str,
        stream: Stream,
        writer: asyncio.StreamWriter,
        *,
        max_message: int,
        frame_timeout: float,
        message_timeout: float,
        budgets: Budgets,
    ) -> None:
        """Sizes in bytes, `frame_timeout` in seconds; `max_message` from 0 to 2**32 - 1.

        What is received may be bounded further, by setting `max_received`.
        `bytes_sent` and `bytes_received` count the content of whole messages, without frames and TLS.
        `on_twice` is called when the peer reports that another process has called it with this member's key.
        """
        if not 0 <= max_message <= framing.MAX_MESSAGE:
            raise ConfigError(
                f"max_message: {max_message}, not between 0 and {framing.MAX_MESSAGE}", ConfigCheck.RANGE
            )
        self.peer = peer
        self.max_message = max_message
        self.max_received = framing.MAX_MESSAGE
        self.frame_timeout = frame_timeout
        self.bytes_sent = 0
        self.bytes_received = 0
        self.on_twice: Callable[[], None] | None = None
        self._stream = stream
        self._writer = writer
        self._message_timeout = message_timeout
        self._budgets = budgets
        self._sending = asyncio.Lock()
        self._ended: SmpcError | None = None
        # The message that was received last.
        self._held: Message | None = None
        # Messages read ahead, from `begin` on.
        self._reader: asyncio.Task[None] | None = None
        self._inbox = Inbox()
        self._receiving = self._waits_for_us = False
        self._control: set[int] = set()
        self._controls, self._begun = 0, 0.0
        self._pong: asyncio.Future[bool] | None = None
        # Pings that were sent and have no answer yet.
        self._pings = 0
        self._pinger: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Channel({self.peer!r}, {'live' if self.live else 'ended'})"

    @property
    def live(self) -> bool:
        """Whether the connection stands, and this side has not closed the channel or received its end."""
        return self._ended is None and not self._stream.gone.is_set()

    def begin(self, max_message: int, silence: float | None = None) -> None:
        """Start the channel after the handshake: set the message limit, and start reading ahead.

        `silence`: of the dialler, seconds without a sign of the peer after which the connection is cut.
        """
        self.max_message = max_message
        self.bytes_sent = self.bytes_received = 0
        self._begun = now()
        loop = asyncio.get_running_loop()
        self._reader = loop.create_task(self._read_ahead())
        if silence is not None:
            self._pinger = loop.create_task(self._ping_until_silent(silence))

    async def send(self, *buffers: bytes | memoryview) -> None:
        """Send one message from several buffers; return when the transport has all of it, or raise.

        The buffers are not copied and must not change meanwhile. Raises ConfigError above `max_message`
        (nothing is sent), TimeoutFault when the peer does not read for `frame_timeout` seconds, PeerFault
        when TLS fails and ChannelClosed when the channel is over.
        """
        total = sum(memoryview(buffer).nbytes for buffer in buffers)
        if total > self.max_message:
            raise ConfigError(
                f"a message of {total} bytes to '{self.peer}' is above the limit {self.max_message}",
                ConfigCheck.TOO_LARGE,
            )
        async with self._sending:
            await self._write(framing.encode(buffers, total, self._take_control))
        self._send_control()
        self.bytes_sent += total

    async def receive(self) -> Buffer:
        """Wait, without limit, for the next message and return it; raise the error that ends the channel.

        One that was stored in a file is a read-only view. Raises LocalError in the place of one that could
        not be stored; the channel goes on.

        Raises ChannelClosed at the end (`clean` tells a goodbye from a cut), PeerFault when the peer breaks
        the framing, exceeds a limit or TLS fails, TimeoutFault when a frame takes more than
        `frame_timeout` seconds. Any of these ends the channel, and is raised again by the next call.
        """
        if self._ended is not None:
            raise self._ended
        self._release_held()
        self._receiving = True
        try:
            message = await (self._read() if self._reader is None else self._inbox.next())
        except SmpcError as error:
            _LOG.debug("the channel ends: %s", error)
            self._ended = error
            if isinstance(error, ChannelClosed) and error.clean:
                self._writer.close()
            else:
                self.abort()
            raise
        finally:
            self._receiving = False
        if message.failure is not None:
            raise message.failure
        self._held = message
        self.bytes_received += len(message.content)
        return message.content

    async def aside(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, computed in another thread so that the event loop goes on."""
        return await asyncio.to_thread(work)

    async def answers(self) -> bool | None:
        """Ping the peer; return True if it answers, False if it is silent or gone, None if unknown.

        It is unknown where this side does not read now, or a long message is under way.
        """
        if self._reader is None:
            return None
        if self._pong is None:
            self._pong = asyncio.get_running_loop().create_future()
            self._ping()
        pong, began = self._pong, now()
        self._stream.moved = began
        while not pong.done() and self.live:
            left = min(self._stream.moved + PING_SECONDS, began + PING_LIMIT) - now()
            if left <= 0:
                undecided = self._waits_for_us or now() >= began + PING_LIMIT
                return None if undecided else False
            await asyncio.wait([pong], timeout=left)
        return pong.done() and pong.result()

    async def _ping_until_silent(self, silence: float) -> None:
        """Ping a silent peer, until the channel ends; cut it after `silence` seconds without a sign.

        Looks are counted, and not time: while this process is stopped the peer is not silent. Bytes that its
        system acknowledges are a sign of it too: on a slow line a ping waits behind what was sent before.
        """
        sock, looks, sign = self._writer.get_extra_info("socket"), 0, (-1.0, 0)
        while self.live:
            await asyncio.sleep(silence / (LOOKS + 1))
            before, sign = sign, (self._stream.moved, unsent(sock))
            held_back = self._waits_for_us or self._sending.locked()
            looks = 0 if held_back or sign[0] != before[0] or sign[1] < before[1] else looks + 1
            if looks == LOOKS:
                self._fail(TimeoutFault({self.peer}, "receive", f"it was silent for {silence} s"))
                self._writer.transport.abort()
            elif looks:
                self._ping()

    def _ping(self) -> None:
        """Queue a ping to the peer, whose answer will show that the connection stands."""
        self._pings += framing.PING not in self._control
        self._put_control(framing.PING)

    def warn(self) -> None:
        """Tell the peer that another process uses its key."""
        self._put_control(framing.TWICE)

    async def close(self) -> None:
        """Say goodbye and close once the peer has what was sent; discard what it sends meanwhile.

        A peer that takes nothing for `frame_timeout` seconds loses the rest.
        """
        if self.live:
            with contextlib.suppress(SmpcError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS), self._sending:
                    # Not by `_write`, which waits for room, and cuts the channel when it waits in vain.
                    self._writer.write(framing.control_frame(framing.BYE))
                async with asyncio.timeout(self._message_timeout):
                    await self._until_taken()
                self._ended = self._ended or ChannelClosed(self.peer, clean=True)
                # Closing with unread input would reset the connection and could destroy the last messages
                # sent.
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._until_peer_ends()
        self._writer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._stream.gone.wait()
        self.abort()

    def abort(self) -> None:
        """Cut the connection at once, without a goodbye."""
        if self._ended is None:
            self._ended = ChannelClosed(self.peer, clean=False)
        self._fail(ChannelClosed(self.peer, clean=False))
        for task in (self._reader, self._pinger):
            if task is not None:
                task.cancel()
        self._inbox.drop()
        self._release_held()
        self._writer.transport.abort()

    def _fail(self, error: SmpcError) -> None:
        """Record the error that ends the channel; wake tasks that wait for a message or an answer."""
        self._inbox.fail(error)
        if self._pong is not None and not self._pong.done():
            self._pong.set_result(False)

    def _release_held(self) -> None:
        """Return the last received message's bytes to the memory budget, unless that is done."""
        if self._held is not None:
            self._held.release()
            self._held = None

    async def _read_ahead(self) -> None:
        """Read messages into the inbox until the channel ends (a task)."""
        try:
            while True:
                self._inbox.put(await self._read())
        except SmpcError as error:
            self._fail(error)
            if not (isinstance(error, ChannelClosed) and error.clean):
                self._writer.transport.abort()

    async def _until_taken(self) -> None:
        """Wait until the peer's system has acknowledged all sent bytes, or no longer makes progress."""
        transport, left, moved = self._writer.transport, -1, now()
        while not transport.is_closing() and now() < moved + self.frame_timeout:
            if (sock := transport.get_extra_info("socket")) is None:
                return
            before, left = left, unsent(sock) + transport.get_write_buffer_size()
            # Nothing is left twice: what this process held back until the system had room has gone, too.
            if left == before == 0:
                return
            if left != before:
                moved = now()
            await asyncio.sleep(TAKEN_SECONDS)

    async def _until_peer_ends(self) -> None:
        """Discard incoming bytes until the peer closes."""
        if self._receiving:
            await self._stream.gone.wait()
        elif self._reader is not None:
            self._inbox.drop()
            await asyncio.wait([self._reader])
        else:
            while True:
                (await self._read()).release()

    async def _admit(self, message: Message, size: int) -> framing.Share:
        """Wait for room in the inbox and the memory budget for a message; return its share."""
        message.share = framing.Share(self._budgets.of(size), size)
        self._waits_for_us = True
        try:
            await self._inbox.room()
            await message.share.admit()
        finally:
            self._waits_for_us = False
        return message.share

    async def _read(self) -> Message:
        """Return the next message, with `failure` if it cannot be stored; raise when the channel ends."""
        message = Message()
        try:
            message.content = await self._read_content(partial(self._admit, message))
        except LocalError as error:
            message.failure = error
        except TimeoutError as error:
            if is_of_system(error):
                raise broken(error, self.peer) from None
            raise TimeoutFault({self.peer}, "receive", self._lateness(message.share)) from None
        except OSError as error:
            raise broken(error, self.peer) from None
        finally:
            if not message.content:
                message.release()
        return message

    def _lateness(self, share: framing.Share | None) -> str:
        """Return words for an error on which part of a message took too long."""
        if share is not None and share.stopped:
            return f"the slowest of many messages: {share}"
        seen = "" if share is None else f": {share}"
        return f"a frame took more than {self.frame_timeout} s, or a message {self._message_timeout} s{seen}"

    async def _read_content(self, admit: Callable[[int], Awaitable[framing.Share]]) -> Buffer:
        """Return the next message's content, handling control frames before it; ChannelClosed at the end."""
        while True:
            first = await self._stream.stream.read(1)
            if not first:
                raise ChannelClosed(self.peer, clean=False)
            try:
                content = await framing.read_message(
                    self._stream.stream,
                    first,
                    self.peer,
                    min(self.max_message, self.max_received),
                    self.frame_timeout,
                    self._message_timeout,
                    admit,
                    self._on_control,
                )
            except asyncio.CancelledError:
                self.abort()
                raise
            if not isinstance(content, int):
                return content
            if content == framing.BYE:
                raise ChannelClosed(self.peer, clean=True)
            self._on_control(content)

    def _take_control(self) -> bytes:
        """Return and clear the control frames that wait to be sent."""
        frames = b"".join(framing.control_frame(kind) for kind in sorted(self._control))
        self._control.clear()
        return frames

    def _put_control(self, kind: int) -> None:
        """Queue a control frame, such as a ping; send it at once unless a message is being sent."""
        self._control.add(kind)
        if not self._sending.locked():
            self._send_control()

    def _send_control(self) -> None:
        """Send queued control frames between messages; drop them if the peer does not read."""
        if self.live and self._control and not self._sending.locked():
            frames = self._take_control()
            if self._writer.transport.get_write_buffer_size() < CONTROL_ROOM:
                self._writer.write(frames)

    def _on_control(self, kind: int) -> None:
        """Answer a ping, take an answer or a warning; PeerFault for an unexpected or excess frame."""
        self._controls += 1
        if self._reader is None or self._controls > CONTROL_FRAMES + (now() - self._begun):
            raise PeerFault(
                self.peer,
                f"sends control frames (kind {kind}) that are not expected, or too many",
                Check.BAD_FRAME,
            )
        if kind == framing.PING:
            self._put_control(framing.PONG)
        elif kind == framing.TWICE:
            if self.on_twice is not None:
                self.on_twice()
        elif not self._pings:
            raise PeerFault(self.peer, "answers a ping that was not sent", Check.BAD_FRAME)
        else:
            self._pings -= 1
            if self._pong is not None and not self._pong.done():
                self._pong.set_result(True)
            self._pong = None

    async def _write(self, frames: Iterable[bytes | memoryview]) -> None:
        """Write frames to the transport, each when it has room; raise and cut if the peer does not read."""
        whole = False
        try:
            for piece in frames:
                if not self.live:
                    raise ChannelClosed(
                        self.peer, clean=isinstance(self._ended, ChannelClosed) and self._ended.clean
                    )
                self._writer.write(piece)
                async with asyncio.timeout(self.frame_timeout):
                    await self._writer.drain()
                if len(piece) >= _PROGRESS_BYTES:
                    self._stream.moved = now()
            whole = True
        except TimeoutError as error:
            if is_of_system(error):
                raise broken(error, self.peer) from None
            detail = f"it did not read for {self.frame_timeout} s"
            raise TimeoutFault({self.peer}, "send", detail) from None
        except OSError as error:
            raise broken(error, self.peer) from None
        finally:
            if not whole:
                self.abort()
