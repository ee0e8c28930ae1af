"""Channels between the members of a session that all run in one process and one event loop, without TLS.

They are as channels over sockets, except that sending never waits, and that a second channel in the name of
a member is accepted beside its first one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from smpc_dp.errors import Check, ConfigCheck, ConfigError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.framing import MAX_MESSAGE
from smpc_dp.transport.interfaces import OnFailed, PeerChannel
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import encode_envelope

# Of the request number before each envelope.
REQUEST_BYTES = 4
# A message: its request and its envelope, the same object for its sender and its receiver.
Message = tuple[int, Envelope]
# Called with each envelope that is sent, and the bytes that a socket would have carried.
OnMessage = Callable[[Envelope, int], None]
# Called with the envelope that a member does not send, because it is killed.
OnKill = Callable[[Envelope], None]


def _size(envelope: Envelope) -> int:
    """Return how many bytes a message would have on a socket."""
    body = len(envelope.body)
    head = 0 if body < 1 << 8 else 1 if body < 1 << 16 else 3
    return REQUEST_BYTES + len(encode_envelope(replace(envelope, body=b""))) + head + body


class MemoryChannel:
    """One end of a channel between two members in one process, which carries requests and envelopes."""

    def __init__(self, own: str, peer: str, connections: MemoryConnections) -> None:
        self.peer = peer
        self.max_received = MAX_MESSAGE
        self.bytes_sent = self.bytes_received = 0
        self.on_twice: Callable[[], None] | None = None
        self._own = own
        self._connections = connections
        # Messages with their sizes, the last entry being whether the other side said goodbye.
        self._inbox: asyncio.Queue[tuple[Message, int] | bool] = asyncio.Queue()
        self._other: MemoryChannel = self
        self._ended: SmpcError | None = None
        # Whether the peer has closed or cut the channel; what it sent before is still received.
        self._over = False

    def __repr__(self) -> str:
        return f"MemoryChannel({self.peer!r}, {'live' if self.live else 'ended'})"

    @staticmethod
    def pair(one: str, other: str, connections: MemoryConnections) -> tuple[MemoryChannel, MemoryChannel]:
        """Return both ends of a new channel between two members."""
        first, second = MemoryChannel(one, other, connections), MemoryChannel(other, one, connections)
        first._other, second._other = second, first
        return first, second

    @property
    def live(self) -> bool:
        """Whether neither side has closed or cut the channel."""
        return self._ended is None and not self._over

    async def send(self, request: int, envelope: Envelope) -> None:
        """Send a message of a numbered request to the other end; ChannelClosed if an end is gone."""
        size = _size(envelope)
        if not self.live or not self._connections.may_send(self._own, envelope, size):
            raise ChannelClosed(self.peer, clean=False)
        self.bytes_sent += size
        self._other._inbox.put_nowait(((request, envelope), size))

    async def receive(self) -> Message:
        """Wait for and return the next message; ChannelClosed at the end, PeerFault if it is too long."""
        if self._ended is not None:
            raise self._ended
        entry = await self._inbox.get()
        if isinstance(entry, bool):
            self._ended = self._ended or ChannelClosed(self.peer, clean=entry)
            raise self._ended
        message, size = entry
        if size > self.max_received:
            reason = f"announced a message of {size} bytes, the limit is {self.max_received}"
            fault = PeerFault(self.peer, reason, Check.TOO_LONG)
            self._end(fault, clean=False)
            raise fault
        self.bytes_received += size
        return message

    async def close(self) -> None:
        """Close this end with a goodbye to the other."""
        self._end(ChannelClosed(self.peer, clean=True), clean=True)

    def abort(self) -> None:
        """Cut the channel at once, without a goodbye."""
        self._end(ChannelClosed(self.peer, clean=False), clean=False)

    def _end(self, error: SmpcError, clean: bool) -> None:
        """End this side with `error`, and the other after pending messages; only once."""
        if self._ended is not None:
            return
        self._ended = error
        # A task of this side that receives ends too.
        self._inbox.put_nowait(clean)
        if not self._over:
            self._other._over = True
            self._other._inbox.put_nowait(clean)


@dataclass(frozen=True, slots=True)
class MemoryListener:
    """Listener of a member for channels in memory."""

    name: str
    on_channel: Callable[[PeerChannel], object]
    connections: MemoryConnections = field(repr=False)

    async def close(self) -> None:
        """Accept no more channels; those that are open stay open."""
        self.connections.listeners.pop(self.name, None)


@dataclass(slots=True)
class MemoryConnections:
    """All channels between the members of one process, for simulations; counts messages, kills members.

    Attributes:
        kill: by member, the number of the message (1 is its first) in whose place all its channels are cut,
            for good.
        on_message, on_kill: called with each message that is sent, and that a killed member does not send.
        listeners: the members that accept channels.
        sent: how many messages were sent.
    """

    kill: Mapping[str, int] = field(default_factory=dict)
    on_message: OnMessage | None = None
    on_kill: OnKill | None = None
    listeners: dict[str, MemoryListener] = field(default_factory=dict)
    sent: int = 0
    # The messages of each member that is to be killed.
    _counted: Counter[str] = field(default_factory=Counter)
    _channels: dict[str, list[MemoryChannel]] = field(default_factory=dict)
    _killed: set[str] = field(default_factory=set)
    _listened: asyncio.Event = field(default_factory=asyncio.Event)

    def endpoint(self, name: str, connect_timeout: float) -> MemoryEndpoint:
        """Return a member's endpoint for channels in memory."""
        return MemoryEndpoint(name, connect_timeout, self)

    def may_send(self, sender: str, envelope: Envelope, size: int) -> bool:
        """Count and report a message to be sent; return False if its sender is killed, now or before."""
        if sender in self._killed:
            return False
        if sender in self.kill:
            self._counted[sender] += 1
            if self._counted[sender] >= self.kill[sender]:
                self._kill(sender, envelope)
                return False
        self.sent += 1
        if self.on_message is not None:
            self.on_message(envelope, size)
        return True

    def _kill(self, name: str, envelope: Envelope) -> None:
        """Kill a member in the simulation: cut all its channels for good."""
        self._killed.add(name)
        self.listeners.pop(name, None)
        if self.on_kill is not None:
            self.on_kill(envelope)
        for channel in self._channels.pop(name, []):
            channel.abort()

    def accept(self, listener: MemoryListener) -> None:
        """Register a listener of a member, which can then be dialled."""
        self.listeners[listener.name] = listener
        self._listened.set()
        self._listened = asyncio.Event()

    async def open(self, own: str, peer: str, timeout: float) -> MemoryChannel:
        """Once `peer` listens, give it one end of a new channel, return the other; or TimeoutFault."""
        try:
            async with asyncio.timeout(timeout):
                while peer not in self.listeners or own in self._killed:
                    await self._listened.wait()
        except TimeoutError:
            raise TimeoutFault({peer}, "connect", f"not reached in {timeout} s") from None
        ours, theirs = MemoryChannel.pair(own, peer, self)
        for name, channel in ((own, ours), (peer, theirs)):
            if name in self.kill:
                self._channels.setdefault(name, []).append(channel)
        self.listeners[peer].on_channel(theirs)
        return ours


@dataclass(frozen=True, slots=True)
class MemoryEndpoint:
    """Endpoint of one member, to dial others and accept their channels, within a process, without TLS."""

    name: str
    connect_timeout: float
    connections: MemoryConnections = field(repr=False)

    @property
    def contexts(self) -> None:
        """None: channels in memory have no TLS."""

    async def dial(
        self,
        peer: str,
        on_failed: OnFailed | None = None,  # noqa: ARG002 - there is one attempt
    ) -> PeerChannel:
        """Return a channel to a member; raise TimeoutFault if it does not listen in time."""
        return await self.connections.open(self.name, peer, self.connect_timeout)

    async def listen(
        self,
        host: str,  # noqa: ARG002 - members are found by their names
        port: int,  # noqa: ARG002
        on_channel: Callable[[PeerChannel], object],
        on_refused: Callable[[str, SmpcError], None],  # noqa: ARG002 - all are accepted
    ) -> MemoryListener:
        """Return a new listener that passes channels to `on_channel`; ConfigError if there is one."""
        if self.name in self.connections.listeners:
            reason = f"'{self.name}' accepts channels already"
            raise ConfigError.at("listen_on", reason, ConfigCheck.CONFLICT)
        listener = MemoryListener(self.name, on_channel, self.connections)
        self.connections.accept(listener)
        return listener
