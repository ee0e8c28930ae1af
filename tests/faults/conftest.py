"""A small network for transport tests: real sockets on localhost, a man in the middle, raw clients."""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from smpc_dp.errors import SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member, Roster
from smpc_dp.transport import framing, handshake, tls
from smpc_dp.transport.channel import Channel
from smpc_dp.transport.endpoint import Endpoint, dial, listen
from smpc_dp.transport.listener import Listener
from smpc_dp.wire.canonical_session import session_json

SESSION: dict[str, object] = {"protocol": "secagg", "version": 1, "parameters": {"length": 10}}
WAIT = 60.0
# A file system in memory, where the system has one: some tests write a thousand states.
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder that is made for the test


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a folder of the test, which is deleted after it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


def digest_of(session: Mapping[str, object]) -> bytes:
    return hashlib.sha256(session_json(session)).digest()


@dataclass
class Server:
    """A listening member with what it has accepted and refused."""

    listener: Listener
    channels: asyncio.Queue[Channel]
    refusals: asyncio.Queue[tuple[str, SmpcError]]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.port}"

    async def channel(self) -> Channel:
        return await asyncio.wait_for(self.channels.get(), WAIT)

    async def refused(self) -> tuple[str, SmpcError]:
        return await asyncio.wait_for(self.refusals.get(), WAIT)


@dataclass
class Raw:
    """A client that speaks TLS (or nothing at all) and then whatever the test says."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: str

    async def write(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def write_message(self, content: bytes) -> None:
        await self.write(framing.HEADER.pack(len(content), framing.DATA) + content)

    async def read_message(self) -> bytes:
        length, kind = framing.HEADER.unpack(await self.reader.readexactly(framing.HEADER.size))
        assert kind == framing.DATA
        return await self.reader.readexactly(length)

    async def greet(self, name: str, to: str = "agg", **changes: object) -> None:
        greeting = handshake.Greeting(handshake.PROTOCOL, handshake.VERSION, name, to, digest_of(SESSION))
        await self.write_message(msgspec.msgpack.encode(msgspec.structs.replace(greeting, **changes)))


@dataclass
class Proxy:
    """Forwards TCP to `target`, records what the client sends, and may change bytes either way."""

    target: str
    port: int = 0
    recorded: bytearray = field(default_factory=bytearray)
    upstream: Callable[[bytes], bytes] | None = None
    downstream: Callable[[bytes], bytes] | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.target.split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        for pump in (self.pump(reader, far_writer, True), self.pump(far_reader, writer, False)):
            self.tasks.add(asyncio.create_task(pump))

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool) -> None:
        try:
            while content := await reader.read(1 << 16):
                if up:
                    self.recorded += content
                change = self.upstream if up else self.downstream
                writer.write(change(content) if change else content)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


class Net:
    """Three parties, an aggregator and an outsider; everything that it opens is closed after the test."""

    def __init__(self) -> None:
        names = ("alice", "bob", "carol", "agg", "mallory")
        self.identities = {name: Identity.from_seed(name, name.encode().ljust(32, b".")) for name in names}
        self.members: list[Member] = [self.identities[name].entry() for name in ("alice", "bob", "carol")]
        self.members.append(self.identities["agg"].entry("aggregator", "127.0.0.1:7000"))
        self.roster = Roster(self.members)
        self.listeners: list[Listener] = []
        self.opened: list[Channel] = []
        self.raws: list[Raw] = []
        self.servers: list[asyncio.Server] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def endpoint(
        self,
        who: str | Identity,
        *,
        roster: Roster | None = None,
        session: Mapping[str, object] = SESSION,
        connect_timeout: float = 30.0,
        frame_timeout: float = 30.0,
        max_message: int = 64 << 20,
        max_pending: int = 64,
    ) -> Endpoint:
        return Endpoint(
            identity=who if isinstance(who, Identity) else self.identities[who],
            roster=roster or self.roster,
            session_digest=digest_of(session),
            session=lambda: session,
            connect_timeout=connect_timeout,
            frame_timeout=frame_timeout,
            max_message=max_message,
            max_pending=max_pending,
        )

    async def listen(self, endpoint: Endpoint | None = None, port: int = 0) -> Server:
        channels: asyncio.Queue[Channel] = asyncio.Queue()
        refusals: asyncio.Queue[tuple[str, SmpcError]] = asyncio.Queue()

        def accept(channel: Channel) -> None:
            self.opened.append(channel)
            channels.put_nowait(channel)

        def refuse(who: str, error: SmpcError) -> None:
            refusals.put_nowait((who, error))

        listener = await listen(endpoint or self.endpoint("agg"), "127.0.0.1", port, accept, refuse)
        self.listeners.append(listener)
        return Server(listener, channels, refusals)

    async def dial(self, who: str | Endpoint, address: str, peer: str = "agg") -> Channel:
        channel = await dial(self.endpoint(who) if isinstance(who, str) else who, peer, address)
        self.opened.append(channel)
        return channel

    async def pair(
        self, client: Endpoint | None = None, server: Endpoint | None = None
    ) -> tuple[Channel, Channel]:
        """Return alice's channel to agg and agg's to alice."""
        listening = await self.listen(server)
        mine = await self.dial(client or self.endpoint("alice"), listening.address)
        return mine, await listening.channel()

    def client_context(self, who: str) -> ssl.SSLContext:
        return tls.contexts(self.identities[who], self.roster).client

    async def raw(self, address: str, context: ssl.SSLContext | None = None) -> Raw:
        """Return a connection that has done no hello, with TLS if there is a context."""
        host, port = address.split(":")
        shutdown = None if context is None else 0.1
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=context, ssl_shutdown_timeout=shutdown
        )
        host, own_port = writer.get_extra_info("sockname")[:2]
        raw = Raw(reader, writer, f"{host}:{own_port}")
        self.raws.append(raw)
        return raw

    async def welcomed(self, server: Server, who: str = "alice") -> tuple[Raw, Channel]:
        """Return a raw client after a correct hello, and the server's channel to it."""
        raw = await self.raw(server.address, self.client_context(who))
        await raw.greet(who)
        msgspec.msgpack.decode(await raw.read_message(), type=handshake.Welcome)
        return raw, await server.channel()

    async def proxy(self, target: str) -> Proxy:
        proxy = Proxy(target)
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        self.servers.append(server)
        self.tasks = proxy.tasks
        return proxy

    async def close(self) -> None:
        for listener in self.listeners:
            await listener.close()
        for server in self.servers:
            server.close()
        for channel in self.opened:
            channel.abort()
        for raw in self.raws:
            raw.writer.transport.abort()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.sleep(0)


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    network = Net()
    yield network
    await network.close()


ProcessOutcome = Callable[[Channel], Coroutine[None, None, SmpcError]]


@pytest.fixture
def outcome() -> ProcessOutcome:
    """Return a function that receives until the channel ends and returns why."""

    async def wait(channel: Channel) -> SmpcError:
        while True:
            try:
                await asyncio.wait_for(channel.receive(), WAIT)
            except SmpcError as error:
                return error

    return wait
