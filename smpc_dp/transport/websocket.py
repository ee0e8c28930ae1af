"""Byte stream in binary WebSocket messages (RFC 6455): what TLS runs over where TCP is not let through.

The messages are made and parsed by the `websockets` package, without its sockets and tasks: backpressure
passes from the TLS above to the connection below, and back, and nothing is queued between them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio.transports import BaseTransport
from collections import deque
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol, State

from smpc_dp.transport.channel import CLOSE_SECONDS, Stream

# Bytes of a message, at most.
MESSAGE_BYTES = 1 << 16
# Unread bytes of a peer above which its pings are not answered, and it gets none.
CONTROL_ROOM = 1 << 16
# Of a close: a normal one, a message of the wrong kind, and one that is too long.
NORMAL, WRONG_KIND, TOO_LONG = 1000, 1003, 1009

_LOG = logging.getLogger("smpc_dp.transport")


class WebSocketTransport(asyncio.Protocol, asyncio.Transport):
    """WebSocket connection as an asyncio transport of bytes, over which TLS can run.

    A subclass does the opening handshake in `opened` or `requested`; reading is paused from then on until TLS
    begins. What the peer sends against the rules ends the connection with an error that says what it was.
    """

    # asyncio asks for this, by which transports say that start_tls may take them.
    _start_tls_compatible = True

    def __init__(self, messages: Protocol) -> None:
        super().__init__()
        self._messages = messages
        self._below: asyncio.Transport | None = None
        self._above: asyncio.BaseProtocol | None = None
        self._error: Exception | None = None
        self._received: deque[bytes | bytearray | memoryview] = deque()
        self._reading = True
        # Whether TLS was told that nothing more comes; whether it then held back what the channel has not
        # taken yet, and has not closed.
        self._has_ended = self._is_held = False
        # Whether what is above waits until it may write.
        self._is_full = False
        # Bytes of the message that is received in fragments.
        self._length = 0
        self._ping_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._messages.state.name.lower()})"

    def check_open(self) -> None:
        """Raise the connection's error if it has already ended."""
        if self.is_closing():
            raise self._error or ConnectionResetError("it ends the connection after the upgrade")

    # Opening handshake.

    def requested(self, request: Request) -> None:
        """Handle a client's upgrade request; here NotImplementedError, for servers to override."""
        raise NotImplementedError

    def opened(self, response: Response) -> None:
        """Handle a server's answer to the upgrade; here NotImplementedError, for clients to override."""
        raise NotImplementedError

    def lost(self, error: Exception | None) -> None:
        """Do nothing: subclasses handle the end of the connection here, maybe before the upgrade."""

    # Protocol of the connection below.

    def connection_made(self, transport: BaseTransport) -> None:
        """Store the underlying transport (called by asyncio); TypeError if it is no stream's."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"no transport of a stream: {transport!r}")
        self._below = transport

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and handle each complete frame (called by asyncio)."""
        self._messages.receive_data(data)
        for event in self._messages.events_received():
            self._take(event)
        self._flush()
        if self._messages.parser_exc is not None and self._error is None:
            self._fail(f"it sends what is no WebSocket message ({self._messages.parser_exc})")

    def eof_received(self) -> bool | None:
        """Handle the peer's end of sending; return whether the transport stays open."""
        self._finish_reading()
        # asyncio's TLS below closes in any case.
        return self._is_held and self.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol above that the connection has ended (called by asyncio)."""
        error = self._error or exc
        if error is None:
            self._finish_reading()
        self._stop_pings()
        self._below = None
        self._received.clear()
        self.lost(error)
        # Who waits to write must be told.
        self._is_held = self._is_held and not self._is_full
        if self._above is not None and not self._is_held:
            self._above.connection_lost(error)

    def pause_writing(self) -> None:
        """Tell the protocol above to stop writing: the buffer below is full."""
        self._is_full = True
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol above that it may write again."""
        self._is_full = False
        if self._above is not None:
            self._above.resume_writing()

    # Transport of the TLS above.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol above (TLS), which receives the frames' content."""
        self._above = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above (TLS); raise RuntimeError if none is set."""
        if self._above is None:
            raise RuntimeError("nothing runs over this WebSocket yet")
        return self._above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information on the connection from the underlying transport."""
        return default if self._below is None else self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Tell whether the connection is closed or closing."""
        return self._below is None or self._below.is_closing() or self._messages.state is not State.OPEN

    def close(self) -> None:
        """Send what was written and a close frame, then close the connection."""
        self._release()
        if self._below is None:
            return
        if self._messages.state is State.OPEN:
            self._messages.send_close(NORMAL)
        self._end()

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        self._release()
        if self._below is not None:
            self._below.abort()

    def _force_close(self, exc: Exception | None) -> None:
        """Close the connection at once for an error (asyncio's TLS calls this)."""
        self._error = self._error or exc
        self.abort()

    def is_reading(self) -> bool:
        """Tell whether received content is passed to the protocol above, not held back."""
        return self._reading

    def pause_reading(self) -> None:
        """Hold received content back, and stop reading below."""
        self._reading = False
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Pass on content that was held back, and read again."""
        self._reading = True
        self._deliver()
        if self._reading and self._below is not None:
            self._below.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as binary frames of at most MESSAGE_BYTES each; drop them once closing."""
        if self.is_closing():
            return
        view = memoryview(data)
        for start in range(0, len(view), MESSAGE_BYTES):
            self._messages.send_binary(view[start : start + MESSAGE_BYTES])
        self._flush()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes waiting to be sent below."""
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many waiting bytes pause and resume writing."""
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        """Return False: a WebSocket cannot be closed in one direction."""
        return False

    # Messages.

    def ping_every(self, seconds: float) -> None:
        """Send a ping every `seconds`, so that proxies do not close an idle connection."""
        loop = asyncio.get_running_loop()

        def ping() -> None:
            if self._messages.state is State.OPEN and self.get_write_buffer_size() < CONTROL_ROOM:
                self._messages.send_ping(b"")
                self._flush()
            self._ping_timer = loop.call_later(seconds, ping)

        self._ping_timer = loop.call_later(seconds, ping)

    def _stop_pings(self) -> None:
        """Cancel the next ping."""
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None

    def _take(self, event: Request | Response | Frame) -> None:
        """Handle one frame, upgrade request or answer; close the connection for a forbidden frame."""
        if isinstance(event, Request):
            self.requested(event)
        elif isinstance(event, Response):
            self.opened(event)
        elif event.opcode in (Opcode.BINARY, Opcode.CONT):
            self._take_bytes(event)
        elif event.opcode is Opcode.TEXT:
            self._fail("it sends a text message", WRONG_KIND)
        elif event.opcode is Opcode.PING and self.get_write_buffer_size() >= CONTROL_ROOM:
            # The answer is in the queue of `websockets`: it would grow without bound.
            self._fail("it sends pings and reads no answers")
        elif event.opcode is Opcode.CLOSE:
            self._finish_reading()
            if not self._is_held:
                self._end()

    def _take_bytes(self, frame: Frame) -> None:
        """Handle a received binary frame: keep its content for the protocol above."""
        self._length += len(frame.data)
        if frame.fin:
            if not self._length:
                self._fail("it sends an empty message", WRONG_KIND)
            self._length = 0
        if frame.data:
            self._received.append(frame.data)
            self._deliver()

    def _deliver(self) -> None:
        """Pass received content to the protocol above, while it takes any."""
        above = self._above
        while self._reading and self._received and isinstance(above, asyncio.BufferedProtocol):
            left = memoryview(self._received.popleft())
            while left:
                room = memoryview(above.get_buffer(len(left)))
                count = min(len(room), len(left))
                room[:count] = left[:count]
                above.buffer_updated(count)
                left = left[count:]

    def _finish_reading(self) -> None:
        """Tell the protocol above, once, that no more bytes come."""
        if self._has_ended or not isinstance(self._above, asyncio.BufferedProtocol):
            return
        self._has_ended = self._reading = True
        self._deliver()
        self._is_held = bool(self._above.eof_received())

    def _release(self) -> None:
        """Tell a closing TLS layer that the connection below has already ended."""
        if self._is_held and self._below is None and self._above is not None:
            asyncio.get_running_loop().call_soon(self._above.connection_lost, self._error)
        self._is_held = False

    def _flush(self) -> None:
        """Write queued frames to the transport below, if any; close it after the last one."""
        if self._below is None:
            return
        contents = self._messages.data_to_send()
        # At once: what the peer has sent may have thousands of short answers.
        if content := b"".join(contents):
            self._below.write(content)
        if b"" in contents:
            # `websockets` asks for the end of the stream.
            self._below.close()

    def _fail(self, reason: str, code: int = NORMAL) -> None:
        """Close the connection, with the reason as its error: the peer broke the WebSocket protocol."""
        if self._error is None:
            _LOG.debug("a WebSocket ends: %s", reason)
            self._error = ConnectionError(reason)
        if self._messages.state is State.OPEN:
            self._messages.fail(code, "")
        if self.get_write_buffer_size() >= CONTROL_ROOM:
            self.abort()
            return
        self._end()

    def _end(self) -> None:
        """Send the queued frames and close the connection."""
        self._flush()
        if self._below is not None:
            self._below.close()


async def within(
    stream: WebSocketTransport, context: ssl.SSLContext, *, server_side: bool, seconds: float
) -> tuple[asyncio.Transport, Stream]:
    """Run the members' TLS inside a WebSocket; return (transport, stream), or cut the stream and raise.

    No name is sent in the clear: there is no SNI. The byte stream is cut on failure.
    """
    inner = Stream()
    try:
        stream.check_open()
        transport = await asyncio.get_running_loop().start_tls(
            stream,
            inner,
            context,
            server_side=server_side,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )
        if transport is None:
            raise ConnectionResetError("end of file")
    except BaseException:
        stream.abort()
        raise
    inner.connection_made(transport)
    return transport, inner
