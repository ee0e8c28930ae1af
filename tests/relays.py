"""What stands between a member and an aggregator in a hospital: an HTTP proxy, and a server that ends TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from websockets.frames import Frame
from websockets.protocol import State
from websockets.server import ServerProtocol

READ_BYTES = 1 << 16

Writer = asyncio.StreamWriter


def _context(certificate: tuple[Path, Path] | None) -> ssl.SSLContext | None:
    """Return the context of a server with these files; None without any."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@dataclass
class Relay:
    """Forwards each connection to a port of 127.0.0.1, and records what it sees; changes it where told to.

    `certificate`: files of a certificate and key, to end TLS; None: TCP as it is. `forwarded`: added as
    header `X-Forwarded-For` to the first request of a connection. `change`: of the bytes from a client, given
    with their number so far. `idle`: seconds without a byte after which a connection is cut; `delay`: seconds
    by which each way is slower.
    """

    target: int
    certificate: tuple[Path, Path] | None = None
    forwarded: str = ""
    change: Callable[[bytes, int], bytes] | None = None
    idle: float | None = None
    delay: float = 0.0
    port: int = 0
    clients: list[bytearray] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    connections: int = 0
    cut: int = 0
    writers: set[Writer] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Listen until the end of the block."""
        server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=_context(self.certificate)
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut_all()

    @property
    def sent(self) -> bytes:
        """What clients have sent."""
        return b"".join(self.clients)

    def unmasked(self) -> bytes:
        """Return what clients have sent in WebSocket messages, which anybody can read who sees them."""
        contents = b""
        for sent in self.clients:
            server = ServerProtocol(state=State.OPEN, max_size=None)
            server.receive_data(sent.partition(b"\r\n\r\n")[2])
            contents += b"".join(event.data for event in server.events_received() if isinstance(event, Frame))
        return contents

    def cut_all(self) -> None:
        """Cut all connections."""
        for writer in self.writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        self.writers.add(far_writer)
        sent = bytearray()
        self.clients.append(sent)
        if self.forwarded:
            head = await reader.readuntil(b"\r\n")
            sent += head
            far_writer.write(head + f"X-Forwarded-For: {self.forwarded}\r\n".encode())
        await asyncio.gather(
            self._pump(reader, far_writer, sent, self.change),
            self._pump(far_reader, writer, self.received, None),
        )

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: Writer,
        seen: bytearray,
        change: Callable[[bytes, int], bytes] | None,
    ) -> None:
        count = 0
        try:
            while True:
                async with asyncio.timeout(self.idle):
                    content = await reader.read(READ_BYTES)
                if not content:
                    break
                seen += content
                await asyncio.sleep(self.delay)
                writer.write(content if change is None else change(content, count))
                count += len(content)
                await writer.drain()
        except TimeoutError:
            self.cut += 1
            writer.transport.abort()
        except OSError:
            pass
        finally:
            writer.close()


@dataclass
class ConnectProxy:
    """HTTP proxy that knows CONNECT alone, and resolves every host name to 127.0.0.1.

    `answer`: in the place of a connection. `credentials`: of its `Proxy-Authorization`, which it demands.
    `certificate`: files of a certificate and key, to be reached at `https://localhost`.
    """

    answer: bytes | None = None
    credentials: str = ""
    certificate: tuple[Path, Path] | None = None
    port: int = 0
    targets: list[str] = field(default_factory=list)
    seen: bytearray = field(default_factory=bytearray)
    writers: set[Writer] = field(default_factory=set)

    @property
    def url(self) -> str:
        return (
            f"http://127.0.0.1:{self.port}" if self.certificate is None else f"https://localhost:{self.port}"
        )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Listen until the end of the block."""
        server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=_context(self.certificate)
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self.writers:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            return
        target = head.split()[1].decode()
        self.targets.append(target)
        if self.answer is not None:
            writer.write(self.answer)
            writer.close()
            return
        if self.credentials and f"Basic {self.credentials}".encode() not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        self.writers.add(far_writer)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(READ_BYTES):
                self.seen += content
                writer.write(content)
                await writer.drain()
        writer.close()
