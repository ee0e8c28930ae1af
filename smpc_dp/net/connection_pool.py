"""The channels of a process that has several: one stream of what they bring, and a queue to each."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from smpc_dp.errors import Code, PeerFault, SmpcError, TimeoutFault
from smpc_dp.net.awaited import Awaited
from smpc_dp.net.deadline import now
from smpc_dp.net.events import Event, OnEvent, warning
from smpc_dp.net.member import Linked, from_wire, to_wire
from smpc_dp.net.transport.channel import Channel, ChannelClosed
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

# What a party may send early, and what an excluded one may send at all, in bytes: a hello or a leave.
SMALL_MESSAGE = 4096
OUTBOX_LIMIT = 64
# Messages of later requests that are kept of one peer.
EARLY_LIMIT = 16


# Takes a message that is no envelope, given its sender and content; False if it is one.
Divert = Callable[[str, bytes], Awaitable[bool]]


@dataclass(slots=True)
class Connection:
    """A connected party: its channel, what waits to be sent to it, and the tasks that serve both ends."""

    channel: Channel
    outbox: asyncio.Queue[tuple[bytes, bytes] | None]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class InboundEvent:
    """What the links report: a message of a request, or (envelope None) that a link is gone.

    `clean`: whether the peer has said goodbye before its link was gone.
    """

    peer: str
    request: int = 0
    envelope: Envelope | None = None
    clean: bool = False


# Of nobody: what else the receiver waits for may have happened.
WAKE = InboundEvent("")


class FairQueue:
    """News in turns: each link has one message in it, and waits at the end again for its next one.

    A link whose message is not taken yet reads no other, so who sends much is held back by its connection,
    and waits behind one message of every other link.
    """

    def __init__(self) -> None:
        # By future, which compares by identity: to find an inbound event by equality takes a time that grows
        # with the number of links.
        self._waiting: OrderedDict[asyncio.Future[None], InboundEvent] = OrderedDict()
        self._arrived = asyncio.Event()

    async def put(self, inbound: InboundEvent) -> None:
        """Add an inbound event of a connection; return when it is taken."""
        taken = asyncio.get_running_loop().create_future()
        self._waiting[taken] = inbound
        self._arrived.set()
        try:
            await taken
        finally:
            self._waiting.pop(taken, None)

    def wake(self) -> None:
        """Add `WAKE`."""
        self._waiting[asyncio.get_running_loop().create_future()] = WAKE
        self._arrived.set()

    async def get(self) -> InboundEvent:
        """Return the next inbound event."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    def take_all(self) -> list[InboundEvent]:
        """Return what has arrived by now: of each link one message at most."""
        return [self._take() for _ in range(len(self._waiting))]

    def _take(self) -> InboundEvent:
        taken, inbound = self._waiting.popitem(last=False)
        if not taken.done():
            taken.set_result(None)
        return inbound


class ConnectionPool:
    """Holds all connections and merges their messages into one stream of inbound events.

    `outbox`: how many messages may wait for one party. `aggregator`: who is told that it is out of a request
    sends nothing of size until the next one. `divert` is shown every message first.
    """

    def __init__(
        self,
        membership: Linked,
        on_event: OnEvent,
        *,
        outbox: int = OUTBOX_LIMIT,
        aggregator: bool = True,
        divert: Divert | None = None,
    ) -> None:
        self._divert = divert
        self._outbox = outbox
        self._aggregator = aggregator
        self._membership = membership
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        # A reader that has to wait holds its message against the budget of the endpoint, so the memory for
        # large vectors does not grow with the number of parties.
        self.inbound = FairQueue()
        self.connections: dict[str, Connection] = {}
        # Set with each new link.
        self.arrived = asyncio.Event()
        self.awaited = Awaited(membership.name, self.is_live, on_event)
        self._early: dict[str, list[InboundEvent]] = {}
        self._largest = self._heard = membership.largest_message()

    def welcome(self, channel: Channel) -> Connection:
        """Take a channel in; the last one of a party counts."""
        connection = Connection(channel, asyncio.Queue(self._outbox))
        channel.max_received = self._heard
        channel.on_twice = lambda: self._on_event(warning(self._membership.name, channel.peer))
        before = None
        if channel.peer in self.connections:
            before, writer = self.connections[channel.peer].tasks
            writer.cancel()
        self.connections[channel.peer] = connection
        connection.tasks += [
            self._loop.create_task(self._read(channel, before)),
            self._loop.create_task(self._write(connection)),
        ]
        self._on_event(Event(self._membership.name, "connected", detail=channel.peer))
        self.arrived.set()
        return connection

    async def gather(self, names: Sequence[str], enough: int | None = None) -> bool:
        """Wait until so many of these (None: all) have links, or `connect` seconds; return which."""
        until = now() + self._membership.session.timeouts.connect
        many = len(names) if enough is None else enough
        self.awaited.begin(0, "", lambda: [name for name in names if not self.is_live(name)])
        return await self.awaited.gather(self.arrived, until, lambda: sum(map(self.is_live, names)) >= many)

    def refused(self, who: str, error: SmpcError) -> None:
        """Tell of a connection that did not become a channel."""
        self._on_event(Event(self._membership.name, "refused", detail=f"{who}: {error}"))

    async def _read(self, channel: Channel, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            # The loss of a party's last channel is told before anything of this one.
            await asyncio.wait([before])
        # However a link ends, cleanly, cut or by a fault in its framing, its party is lost for this run.
        clean = False
        try:
            while True:
                message = await channel.receive()
                if self._divert is not None and await self._divert(channel.peer, message):
                    continue
                request, envelope = from_wire(message, channel.peer)
                await self.inbound.put(InboundEvent(channel.peer, request, envelope))
        except ChannelClosed as closed:
            clean = closed.clean
        except SmpcError:
            pass
        channel.abort()
        await self.inbound.put(InboundEvent(channel.peer, clean=clean))

    async def _write(self, connection: Connection) -> None:
        while (message := await connection.outbox.get()) is not None:
            try:
                await connection.channel.send(*message)
            except (ChannelClosed, TimeoutFault, PeerFault):
                # The reader reports a link that breaks; what is left for it has nobody to go to.
                continue
            except SmpcError as error:
                self.refused(connection.channel.peer, error)
                connection.channel.abort()

    def send(self, request: int, envelopes: Sequence[Envelope]) -> None:
        """Queue messages; a link whose party does not read what waits for it is cut."""
        for envelope in envelopes:
            connection = self.connections.get(envelope.receiver)
            if connection is None or not connection.channel.live:
                continue
            if self._aggregator and envelope.step == ABORT:
                connection.channel.max_message = SMALL_MESSAGE
            try:
                connection.outbox.put_nowait(to_wire(request, envelope))
            except asyncio.QueueFull:
                connection.channel.abort()

    def refuse_request(self, context: Context, inbound: InboundEvent, code: Code, number: int = 0) -> None:
        """Tell a peer that its request is over, or asks for something else; `number`: as of `Abort`."""
        to, abort = (inbound.peer,), Abort(code, "", [(inbound.peer, code)], number=number)
        identity = self._membership.identity
        self.send(inbound.request, context.write(identity, context.session_digest, ABORT, to, abort))

    async def post(self, request: int, envelopes: Sequence[Envelope]) -> None:
        """Send messages past the queue; return when the transport has taken them, or raise TimeoutFault."""
        for envelope in envelopes:
            channel = self.connections[envelope.receiver].channel
            try:
                await channel.send(*to_wire(request, envelope))
            except ChannelClosed as error:
                raise TimeoutFault({channel.peer}, envelope.step, str(error)) from None

    async def next(self, until: float) -> InboundEvent | None:
        """Return the next inbound event, or None at the deadline; notify the watcher of whom we wait for."""
        return await self.awaited.next(self.inbound.get, until)

    def keep(self, inbound: InboundEvent, most: int = EARLY_LIMIT, size: int = SMALL_MESSAGE) -> None:
        """Keep a message of a later request, of at most `size` bytes; of each peer `most` messages."""
        retained = self._early.setdefault(inbound.peer, [])
        if inbound.envelope is not None and len(inbound.envelope.body) <= size and len(retained) < most:
            retained.append(inbound)

    def take_early(self, request: int) -> list[InboundEvent]:
        """Return what has come for a request before it began, and drop what was for earlier ones."""
        retained = {
            peer: [item for item in inbound if item.request > request]
            for peer, inbound in self._early.items()
        }
        expected = [item for inbound in self._early.values() for item in inbound if item.request == request]
        self._early = {peer: inbound for peer, inbound in retained.items() if inbound}
        return expected

    def is_live(self, name: str) -> bool:
        """Tell whether a party has a link."""
        connection = self.connections.get(name)
        return connection is not None and connection.channel.live

    def admit_all(self) -> None:
        """Let everyone send messages of full size, at the beginning of a request."""
        self.hear(self._largest)
        for connection in self.connections.values():
            connection.channel.max_message = self._largest

    def hear(self, most: int) -> None:
        """Take messages of at most so many bytes in this request; who sends a longer one loses its link."""
        self._heard = most
        for connection in self.connections.values():
            connection.channel.max_received = most

    def abort(self) -> None:
        """Cut every link that is still open and end all tasks."""
        for connection in self.connections.values():
            connection.channel.abort()
            for task in connection.tasks:
                task.cancel()

    async def close(self) -> None:
        """Send what waits, say goodbye and end all tasks."""

        async def finish(connection: Connection) -> None:
            reader, writer = connection.tasks
            if connection.channel.live:
                await connection.outbox.put(None)
                await asyncio.wait([writer], timeout=self._membership.session.timeouts.step)
                await connection.channel.close()
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

        await asyncio.gather(*(finish(connection) for connection in self.connections.values()))
