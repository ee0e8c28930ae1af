"""The channels of a process: one stream of inbound events, and an outgoing queue for each channel."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from smpc_dp.decoding import Buffer
from smpc_dp.errors import Code, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.awaited import Awaited
from smpc_dp.session.deadline import now
from smpc_dp.session.events import Event, OnEvent, warning
from smpc_dp.session.member import ConnectedMember
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.interfaces import PeerChannel
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

# Bytes of a message that a party may send early, or after its exclusion: a hello or a leave.
SMALL_MESSAGE = 4096
OUTBOX_LIMIT = 64
# Stored messages of later requests, for each peer.
EARLY_LIMIT = 16


# Handles a message that is no envelope, given its sender and content; False if it is an envelope.
Divert = Callable[[str, Buffer], Awaitable[bool]]


@dataclass(slots=True)
class Connection:
    """State of one open connection: channel, outgoing queue, and the tasks that read and write.

    The first task ends when everything that was received, the loss of the channel included, was taken. A
    process that calls in the place of an earlier one knows nothing of the run under way: nothing is sent to
    it before it is `heard`, when its first message is taken. `clean`: the peer has said goodbye. `answered`:
    the newest request whose stored messages were sent again over it. `lost`: when it ended.
    """

    channel: PeerChannel
    outbox: asyncio.Queue[tuple[Any, ...] | None]
    heard: bool
    clean: bool = False
    answered: int = 0
    lost: float = math.inf
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class InboundEvent:
    """An incoming message of a request, or (without an envelope) the loss of a connection.

    `clean`: whether the peer said goodbye before its connection was lost. `failure`: in the place of a
    message that this process could not store.
    """

    peer: str
    request: int = 0
    envelope: Envelope | None = None
    clean: bool = False
    failure: LocalError | None = None
    connection: Connection | None = field(default=None, compare=False, repr=False)


# Event of no peer: another condition of the receiver may have changed.
WAKE = InboundEvent("")


class FairQueue:
    """Queue of incoming events in which each connection has at most one at a time, so that none floods.

    A connection appends its next event at the end. One whose event is not taken yet reads no further message,
    so a party that sends much is held back by its connection, and waits behind one message of every other
    connection.
    """

    def __init__(self) -> None:
        # By future, which compares by identity: finding an inbound event by equality takes a time that grows
        # with the number of connections.
        self._waiting: OrderedDict[asyncio.Future[None], InboundEvent] = OrderedDict()
        self._arrived = asyncio.Event()

    async def put(self, inbound: InboundEvent) -> None:
        """Add an event to the queue, and wait until it is taken."""
        taken = asyncio.get_running_loop().create_future()
        self._waiting[taken] = inbound
        # It stays no longer than its taker needs it.
        del inbound
        self._arrived.set()
        try:
            await taken
        finally:
            self._waiting.pop(taken, None)

    @property
    def is_empty(self) -> bool:
        """Whether no event waits in the queue."""
        return not self._waiting

    def wake(self, inbound: InboundEvent = WAKE) -> None:
        """Add an event without waiting until it is taken, by default one that only wakes the reader."""
        self._waiting[asyncio.get_running_loop().create_future()] = inbound
        self._arrived.set()

    async def get(self) -> InboundEvent:
        """Wait for the next event, and remove and return it."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    def take_all(self) -> list[InboundEvent]:
        """Remove and return all events that wait now, at most one of each connection."""
        return [self._take() for _ in range(len(self._waiting))]

    def _take(self) -> InboundEvent:
        """Remove and return the first event, and let its connection add the next."""
        taken, inbound = self._waiting.popitem(last=False)
        if not taken.done():
            taken.set_result(None)
        if inbound.connection is not None and inbound.envelope is not None:
            inbound.connection.heard = True
        return inbound


class ConnectionPool:
    """All open connections of a member, with one merged stream of incoming messages.

    `outbox`: how many messages may wait for one party. `aggregator`: a party that is told of its exclusion
    from the request under way may send only small messages until the next one. `divert` is given every
    message first.
    """

    def __init__(
        self,
        membership: ConnectedMember,
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
        # Set with each new connection.
        self.arrived = asyncio.Event()
        self.awaited = Awaited(membership.name, self.is_live, on_event)
        self._early: dict[str, list[InboundEvent]] = {}
        # Parties that were told of their exclusion from the request under way.
        self._excluded: set[str] = set()
        self._largest = self._heard = membership.largest_message()

    def welcome(self, channel: PeerChannel, *, resumes: bool = False) -> Connection:
        """Add a member's new connection in place of its earlier one, whose queued messages are dropped.

        `resumes`: whether the peer goes on where its last connection ended, and is no new process.
        """
        heard = resumes or channel.peer not in self.connections
        connection = Connection(channel, asyncio.Queue(self._outbox), heard)
        channel.max_received = self._longest(channel.peer)
        channel.on_twice = lambda: self._on_event(warning(self._membership.name, channel.peer))
        before = None
        if channel.peer in self.connections:
            before, writer = self.connections[channel.peer].tasks
            writer.cancel()
        self.connections[channel.peer] = connection
        connection.tasks += [
            self._loop.create_task(self._read(connection, before, resumes)),
            self._loop.create_task(self._write(connection)),
        ]
        self._on_event(Event(self._membership.name, "connected", detail=channel.peer))
        self.arrived.set()
        return connection

    async def gather(self, names: Sequence[str], enough: int | None = None) -> bool:
        """Wait until `enough` of the named members are connected; return whether they are in time."""
        until = now() + self._membership.session.timeouts.connect
        many = len(names) if enough is None else enough
        self.awaited.begin(0, "", lambda: [name for name in names if not self.is_live(name)])
        return await self.awaited.gather(self.arrived, until, lambda: sum(map(self.is_live, names)) >= many)

    def refused(self, who: str, error: SmpcError) -> None:
        """Report to the watcher a connection that was refused, or ended with an error."""
        self._on_event(Event(self._membership.name, "refused", detail=f"{who}: {error}"))

    async def _read(self, connection: Connection, before: asyncio.Task[None] | None, resumes: bool) -> None:
        """Task: after `before`, queue a connection's messages until it ends, then its loss."""
        channel = connection.channel
        if before is not None:
            # The loss of a party's last channel is reported before any event of this one.
            await asyncio.wait([before])
        # However a connection ends, its party is lost for this run.
        try:
            while True:
                # No variable: what was taken must not stay until the next message comes.
                await self.inbound.put(await self._receive(connection))
        except ChannelClosed as closed:
            connection.clean = closed.clean
        except SmpcError as error:
            self.refused(channel.peer, error)
        finally:
            sent, received = channel.bytes_sent, channel.bytes_received
            name, peer = self._membership.name, channel.peer
            self._on_event(Event(name, "traffic", detail=peer, sent=sent, received=received))
        channel.abort()
        connection.lost = now()
        await self.inbound.put(InboundEvent(channel.peer, clean=connection.clean))
        if not resumes:
            # The process that has asked for later requests is gone.
            self._early.pop(channel.peer, None)

    async def _receive(self, connection: Connection) -> InboundEvent:
        """Return a connection's next message that `divert` does not take, or the failure to store one."""
        peer = connection.channel.peer
        while True:
            try:
                message = await connection.channel.receive()
            except LocalError as error:
                self.refused(peer, error)
                return InboundEvent(peer, failure=error, connection=connection)
            if self._divert is None or not await self._divert(peer, message):
                request, envelope = self._membership.from_wire(message, peer)
                return InboundEvent(peer, request, envelope, connection=connection)

    async def _write(self, connection: Connection) -> None:
        """Task of a connection: send its queued messages, until it ends."""
        while await self._send_next(connection):
            pass

    async def _send_next(self, connection: Connection) -> bool:
        """Send a connection's next queued message; return False once the queue is closed."""
        message = await connection.outbox.get()
        try:
            if message is not None:
                await connection.channel.send(*message)
        except (ChannelClosed, TimeoutFault, PeerFault):
            # The reader reports a broken connection; its queued messages are dropped.
            pass
        except SmpcError as error:
            self.refused(connection.channel.peer, error)
            connection.channel.abort()
        return message is not None

    def send(self, request: int, envelopes: Sequence[Envelope], *, excludes: bool = True) -> None:
        """Queue messages for connected receivers, drop others; cut a connection whose queue is full.

        `excludes`: whether an abort among them excludes its receiver from the request under way.
        """
        for envelope in envelopes:
            connection = self.connections.get(envelope.receiver)
            if connection is None or not connection.channel.live or not connection.heard:
                continue
            if self._aggregator and envelope.step == ABORT and excludes:
                self._excluded.add(envelope.receiver)
                connection.channel.max_received = self._longest(envelope.receiver)
            try:
                connection.outbox.put_nowait(self._membership.to_wire(request, envelope))
            except asyncio.QueueFull:
                connection.channel.abort()

    def refuse_request(
        self,
        context: Context,
        inbound: InboundEvent,
        code: Code,
        number: int = 0,
        lacking: Collection[str] = (),
    ) -> None:
        """Answer a member's hello with the reason why its request is not served.

        `number`: as of `Abort`; `lacking`: the members that have not asked, if that is the reason.
        """
        step = inbound.envelope.step if lacking and inbound.envelope is not None else ""
        missing = [(name, Code.MISSING) for name in sorted(lacking)] or [(inbound.peer, code)]
        to, abort = (inbound.peer,), Abort(code, "", missing, step, number)
        identity = self._membership.identity
        sent = context.write(identity, context.session_digest, ABORT, to, abort)
        # Where its request is over, or too few ask, the party may still take part in the one under way.
        self.send(inbound.request, sent, excludes=code not in (Code.PAST, Code.FEW))

    async def post(self, request: int, envelopes: Sequence[Envelope]) -> None:
        """Send messages directly, not queued; return when the transport has taken them.

        A closed channel drops them: its reader reports the loss after what the peer has sent before.
        """
        for envelope in envelopes:
            channel = self.connections[envelope.receiver].channel
            with contextlib.suppress(ChannelClosed):
                await channel.send(*self._membership.to_wire(request, envelope))

    async def next(self, until: float, look: float = math.inf) -> InboundEvent | None:
        """Wait for the next incoming event; return None at either time limit.

        Reports the expected members, and the deadline, meanwhile.
        """
        return await self.awaited.next(self.inbound.get, until, look)

    def keep(self, inbound: InboundEvent, most: int = EARLY_LIMIT, size: int = SMALL_MESSAGE) -> None:
        """Store a small early message if its sender has fewer than `most` stored; else drop it."""
        retained = self._early.setdefault(inbound.peer, [])
        if inbound.envelope is not None and len(inbound.envelope.body) <= size and len(retained) < most:
            retained.append(inbound)

    def take_early(self, request: int) -> list[InboundEvent]:
        """Remove and return the stored messages of a request, and drop those of earlier ones."""
        retained = {
            peer: [item for item in inbound if item.request > request]
            for peer, inbound in self._early.items()
        }
        expected = [item for inbound in self._early.values() for item in inbound if item.request == request]
        self._early = {peer: inbound for peer, inbound in retained.items() if inbound}
        return expected

    def early(self, request: int) -> list[Envelope]:
        """Return the stored messages of a later request, without removing them."""
        stored = [item for inbound in self._early.values() for item in inbound if item.request == request]
        return [item.envelope for item in stored if item.envelope is not None]

    def ahead(self, hellos: Collection[str]) -> dict[str, int]:
        """Return, for each member that has said hello to a later request, the latest such request.

        `hellos`: the steps of such messages.
        """
        asked: dict[str, int] = {}
        for peer, retained in self._early.items():
            for inbound in retained:
                if inbound.envelope is not None and inbound.envelope.step in hellos:
                    asked[peer] = max(inbound.request, asked.get(peer, 0))
        return asked

    async def drain(self, name: str) -> None:
        """Drop incoming events until the reader of the named member's ended connection is done."""
        if name in self.connections:
            reader = self.connections[name].tasks[0]
            while not reader.done():
                self.inbound.take_all()
                await asyncio.sleep(0)

    def is_live(self, name: str) -> bool:
        """Return whether the named member is connected now."""
        connection = self.connections.get(name)
        return connection is not None and connection.channel.live

    def is_cut(self, name: str) -> bool:
        """Return whether a member lost its connection, without a goodbye, within the last step's time."""
        connection = self.connections.get(name)
        if connection is None or connection.channel.live or connection.clean:
            return False
        return now() < connection.lost + self._membership.session.timeouts.step

    def is_gone(self, name: str) -> bool:
        """Return whether a member is not connected, and all that it has sent has been taken."""
        connection = self.connections.get(name)
        return connection is None or (not connection.channel.live and connection.tasks[0].done())

    def admit_all(self) -> None:
        """Allow messages of full size from all members, since a request begins."""
        self._excluded.clear()
        self.hear(self._largest)

    def hear(self, most: int) -> None:
        """Set the largest message, in bytes, that members may send in this request.

        A party that sends a longer one loses its connection.
        """
        self._heard = most
        for name, connection in self.connections.items():
            connection.channel.max_received = self._longest(name)

    def _longest(self, name: str) -> int:
        """Return the largest message, in bytes, that a member may send now."""
        return min(self._heard, SMALL_MESSAGE) if name in self._excluded else self._heard

    def abort(self) -> None:
        """Cut every open connection and end all tasks at once."""
        for connection in self.connections.values():
            connection.channel.abort()
            for task in connection.tasks:
                task.cancel()

    async def close(self) -> None:
        """Send queued messages, say goodbye to all members, and end all tasks."""

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
