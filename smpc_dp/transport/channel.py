"""A channel: messages to and from one authenticated member, over one connection."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable

from smpc_dp.errors import ConfigError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.transport import framing, tls

CLOSE_SECONDS = 2.0
# Bytes of undecoded input that a connection holds before its sender is held back (asyncio allows twice that).
READ_AHEAD = 1 << 17


class ChannelClosed(SmpcError):
    """The channel to `peer` is over: `clean` when the peer said goodbye or we closed it, else it was cut."""

    def __init__(self, peer: str, clean: bool) -> None:
        self.peer = peer
        self.clean = clean
        super().__init__(f"{peer}: the channel was {'closed' if clean else 'cut'}")


class Link(asyncio.StreamReaderProtocol):
    """asyncio's stream protocol, which also says when the connection is gone."""

    def __init__(self) -> None:
        self.stream = asyncio.StreamReader(limit=READ_AHEAD)
        self.gone = asyncio.Event()
        super().__init__(self.stream)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.gone.set()


class Channel:
    """A connection to the member `peer`. One task may receive while others send; sends do not interleave.

    Cancelling a send or a receive in the middle of a message cuts the channel: the stream would be out of
    step.
    """

    def __init__(
        self,
        peer: str,
        link: Link,
        writer: asyncio.StreamWriter,
        *,
        max_message: int,
        frame_timeout: float,
        message_timeout: float,
        budget: framing.InflightBudget,
    ) -> None:
        """Sizes in bytes, `frame_timeout` in seconds; `max_message` from 0 to 2**32 - 1.

        What is received may be bounded further, by setting `max_received`.
        `bytes_sent` and `bytes_received` count the content of whole messages, without frames and TLS.
        """
        if not 0 <= max_message <= framing.MAX_MESSAGE:
            raise ConfigError(f"max_message: {max_message}, not between 0 and {framing.MAX_MESSAGE}")
        self.peer = peer
        self.max_message = max_message
        self.max_received = framing.MAX_MESSAGE
        self.frame_timeout = frame_timeout
        self.bytes_sent = 0
        self.bytes_received = 0
        self._link = link
        self._writer = writer
        self._message_timeout = message_timeout
        self._budget = budget
        self._reserved = 0
        self._sending = asyncio.Lock()
        self._receiving = False
        self._ended: SmpcError | None = None

    def __repr__(self) -> str:
        return f"Channel({self.peer!r}, {'live' if self.live else 'ended'})"

    @property
    def live(self) -> bool:
        """False once either side has closed the channel, or the link is gone."""
        return self._ended is None and not self._link.gone.is_set()

    def begin(self, max_message: int) -> None:
        """Start the channel proper after the hello: set the limit of its messages and count from zero."""
        self.max_message = max_message
        self.bytes_sent = self.bytes_received = 0

    async def send(self, *buffers: bytes | memoryview) -> None:
        """Send one message, the bytes of all `buffers` in order; return when the transport has taken them.

        The buffers are not copied and must not change meanwhile. Raises ConfigError above `max_message`
        (nothing is sent), TimeoutFault when the peer does not read for `frame_timeout` seconds, PeerFault
        when TLS fails and ChannelClosed when the channel is over.
        """
        total = sum(memoryview(buffer).nbytes for buffer in buffers)
        if total > self.max_message:
            raise ConfigError(
                f"a message of {total} bytes to '{self.peer}' is above the limit {self.max_message}"
            )
        async with self._sending:
            await self._write(framing.encode(buffers, total))
        self.bytes_sent += total

    async def receive(self) -> bytes:
        """Return the next message; wait for its first byte without limit.

        Raises ChannelClosed at the end (`clean` tells a goodbye from a cut), PeerFault when the peer breaks
        the framing, exceeds a limit or TLS fails, TimeoutFault when a frame takes more than
        `frame_timeout` seconds. Any of them ends the channel, and is raised again by the next call.
        """
        if self._ended is not None:
            raise self._ended
        self._give_back()
        self._receiving = True
        try:
            message = await self._read()
        except SmpcError as error:
            self._ended = error
            self.abort()
            raise
        finally:
            self._receiving = False
        if message is None:
            self._ended = ChannelClosed(self.peer, clean=True)
            self._give_back()
            self._writer.close()
            raise self._ended
        self.bytes_received += len(message)
        return message

    async def close(self) -> None:
        """Say goodbye and close, in a few seconds at most; what the peer still sends is read and dropped."""
        if self.live:
            with contextlib.suppress(SmpcError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS), self._sending:
                    await self._write([framing.HEADER.pack(0, framing.BYE)])
                self._ended = self._ended or ChannelClosed(self.peer, clean=True)
                # Closing with unread input would reset the connection and could destroy our last messages.
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._until_peer_ends()
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._link.gone.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Cut the connection at once: the peer sees a cut, not a goodbye."""
        self._give_back()
        if self._ended is None:
            self._ended = ChannelClosed(self.peer, clean=False)
        self._writer.transport.abort()

    async def _reserve(self, size: int) -> None:
        self._reserved += await self._budget.take(size)

    def _give_back(self) -> None:
        reserved, self._reserved = self._reserved, 0
        self._budget.give_back(reserved)

    async def _until_peer_ends(self) -> None:
        if self._receiving:
            await self._link.gone.wait()
            return
        while await self._read() is not None:
            self._give_back()

    async def _read(self) -> bytes | None:
        stream = self._link.stream
        first = b""
        try:
            if not (first := await stream.read(1)):
                raise ChannelClosed(self.peer, clean=False)
            return await framing.read_message(
                stream,
                first,
                self.peer,
                min(self.max_message, self.max_received),
                self.frame_timeout,
                self._message_timeout,
                self._reserve,
            )
        except TimeoutError:
            detail = f"a frame took more than {self.frame_timeout} s, or a message {self._message_timeout} s"
            raise TimeoutFault({self.peer}, "receive", detail) from None
        except ssl.SSLError as error:
            raise PeerFault(self.peer, tls.describe(error)) from None
        except OSError:
            raise ChannelClosed(self.peer, clean=False) from None
        except asyncio.CancelledError:
            if first:
                self.abort()
            raise

    async def _write(self, frames: Iterable[bytes | memoryview]) -> None:
        """Write pieces of at most a few hundred KiB, waiting each time until the transport wants more."""
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
            whole = True
        except TimeoutError:
            detail = f"it did not read for {self.frame_timeout} s"
            raise TimeoutFault({self.peer}, "send", detail) from None
        except ssl.SSLError as error:
            raise PeerFault(self.peer, tls.describe(error)) from None
        except OSError:
            raise ChannelClosed(self.peer, clean=False) from None
        finally:
            if not whole:
                self.abort()
