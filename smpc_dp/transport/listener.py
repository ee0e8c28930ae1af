"""A member's listener: from an accepted connection to a channel, one live channel for each other member."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from smpc_dp.errors import Check, Code, PeerFault, SmpcError, TimeoutFault
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.transport import handshake, tls
from smpc_dp.transport.accept_loop import AcceptLoop, OnRefused
from smpc_dp.transport.channel import CLOSE_SECONDS, Channel, ChannelClosed, Stream, now
from smpc_dp.transport.difference import DescribedSession
from smpc_dp.transport.read_buffers import share_read_buffer
from smpc_dp.transport.sockets import tune
from smpc_dp.transport.strangers import HANDSHAKE_SECONDS, Strangers
from smpc_dp.web_settings import WebSettings

OnChannel = Callable[[Channel], object]
# Yields the channel of a connection to the member that authenticates in time; cuts it on failure.
Securing = AbstractAsyncContextManager[Channel]

# Seconds from a member's certificate to the welcome; its connections in that time.
HELLO_SECONDS = 30.0
HELLOS = 4
# Seconds between two pings to one member.
PING_PAUSE = 10.0
# asyncio has its own limit on the TLS handshake; this one is shorter.
BACKUP = 1.0

_LOG = logging.getLogger("smpc_dp.transport")


class ListeningEndpoint(Protocol):
    """Interface of what a listener needs of an endpoint: identity, roster, session and limits."""

    @property
    def identity(self) -> Identity:
        """Name and key pair of this member."""

    @property
    def roster(self) -> Roster:
        """Members of the session with their public keys."""

    @property
    def session_digest(self) -> bytes:
        """Digest of the session file, which both ends compare."""

    @property
    def described(self) -> DescribedSession:
        """Session in the form in which differences to a peer's are found."""

    @property
    def contexts(self) -> tls.Contexts:
        """TLS contexts of this member."""

    @property
    def connect_timeout(self) -> float:
        """Most seconds for the TLS handshake of a caller, and as many again for its hello."""

    @property
    def silence(self) -> float:
        """Seconds without a byte after which a peer counts as gone."""

    @property
    def max_message(self) -> int:
        """Greatest length of a message, in bytes."""

    @property
    def max_pending(self) -> int:
        """Greatest number of connections that are unauthenticated at a time."""

    @property
    def web(self) -> WebSettings:
        """Settings of web addresses (wss://): certificates, proxies and pages."""

    def channel(self, peer: str, stream: Stream, transport: asyncio.Transport) -> Channel:
        """Return a channel over a TLS connection whose handshake is done."""
        ...


class Listener(ABC):
    """Base of listeners that accept other members, one live channel for each, until closed.

    `on_channel` gets each channel, `on_refused` each connection that is not accepted; see `listen`.
    """

    def __init__(self, endpoint: ListeningEndpoint, on_channel: OnChannel, on_refused: OnRefused) -> None:
        self._endpoint = endpoint
        self._on_channel = on_channel
        self._on_refused = on_refused
        self._own = endpoint.roster.member(endpoint.identity.name)
        self._live: dict[str, Channel] = {}
        self._pinged: dict[str, float] = {}
        self._greeting: Strangers[socket.socket] = Strangers(math.inf, HELLOS)

    @property
    @abstractmethod
    def port(self) -> int:
        """Port on which this member listens."""

    @abstractmethod
    async def close(self) -> None:
        """Stop accepting and drop connections that are no channels yet; channels stay open."""

    async def admit(
        self, connection: socket.socket, address: str, securing: Securing, accepting: AcceptLoop
    ) -> None:
        """Authenticate an accepted connection and run its handshake; report a refusal or a failure."""
        who = address
        try:
            async with securing as channel:
                who = channel.peer
                accepting.authenticated(connection)
                if (dropped := self._greeting.admit(connection, who, now())) is not None:
                    accepting.drop(dropped)
                async with asyncio.timeout(min(HELLO_SECONDS, self._endpoint.connect_timeout)):
                    await self._hello(channel)
        except TimeoutError:
            self._on_refused(who, TimeoutFault({who}, "connect", "no hello in time"))
        except (SmpcError, OSError) as error:
            self._on_refused(who, as_fault(error, who))
        finally:
            self._greeting.remove(connection)

    async def _hello(self, channel: Channel) -> None:
        """Run the server's handshake on a channel; if welcome, pass the channel to `on_channel`."""
        endpoint, peer = self._endpoint, channel.peer
        before = self._live.get(peer)
        error = await handshake.answer_greeting(
            channel,
            self._own,
            lambda: self._duplicate(peer),
            endpoint.described,
            is_connected=before is not None and before.live,
        )
        if error is not None:
            if isinstance(error, handshake.InquiredError):
                _LOG.info("%s: %s", self._own.name, error)
            else:
                self._on_refused(peer, error)
            await channel.close()
            return
        # Nothing was awaited since the other's end: two connections in one name cannot both come this far.
        self._live[peer] = channel
        await handshake.welcome(channel, self._own, endpoint.session_digest)
        channel.begin(endpoint.max_message)
        self._on_channel(channel)

    async def _duplicate(self, peer: str) -> handshake.Reason | None:
        """Ping a member's live connection: "twice" if it answers, "busy" if unknown, else cut it, None.

        The other one is pinged, and cut if it does not answer; if it does, the peer is told there that its
        key is used twice.
        """
        old = self._live.get(peer)
        if old is None or not old.live:
            return None
        if now() < self._pinged.get(peer, -math.inf) + PING_PAUSE:
            return "busy"
        self._pinged[peer] = now()
        answered = await old.answers()
        if answered is None:
            return "busy"
        if answered:
            old.warn()
            return "twice"
        _LOG.info("%s: a connection that no longer answers is superseded by another one", peer)
        old.abort()
        return None


class SocketListener(Listener):
    """Listener for members at `host:port`: TLS over TCP."""

    def __init__(
        self, endpoint: ListeningEndpoint, sock: socket.socket, on_channel: OnChannel, on_refused: OnRefused
    ) -> None:
        super().__init__(endpoint, on_channel, on_refused)
        self._accepting = AcceptLoop(
            sock, endpoint.max_pending, self._serve, on_refused, endpoint.identity.name
        )

    @property
    def port(self) -> int:
        """Port on which this listener accepts connections."""
        return self._accepting.port

    async def close(self) -> None:
        """Stop accepting and drop connections that are no channels yet; channels stay open."""
        await self._accepting.close()

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """Authenticate an accepted connection and run its handshake; report a refusal."""
        await self.admit(connection, address, self._tls(connection, address), self._accepting)

    @contextlib.asynccontextmanager
    async def _tls(self, connection: socket.socket, address: str) -> AsyncIterator[Channel]:
        """Context manager that runs TLS and yields the member's channel; cuts the connection on failure."""
        endpoint = self._endpoint
        tune(connection, endpoint.silence)
        limit = min(HANDSHAKE_SECONDS, endpoint.connect_timeout)
        async with asyncio.timeout(limit):
            transport, stream = await asyncio.get_running_loop().connect_accepted_socket(
                Stream,
                connection,
                ssl=endpoint.contexts.server,
                ssl_handshake_timeout=limit + BACKUP,
                ssl_shutdown_timeout=CLOSE_SECONDS,
            )
        share_read_buffer(transport)
        try:
            peer = tls.authenticated(transport.get_extra_info("ssl_object"), endpoint.roster, address)
            yield endpoint.channel(peer.name, stream, transport)
        except BaseException:
            transport.abort()
            raise


def as_fault(error: SmpcError | OSError, who: str) -> SmpcError:
    """Convert a connection's error to this library's error about the peer `who`."""
    if isinstance(error, ChannelClosed):
        return TimeoutFault({who}, "hello", str(error), code=Code.LOST)
    if isinstance(error, SmpcError):
        return error
    if isinstance(error, ssl.SSLError):
        return PeerFault(who, tls.describe(error), Check.TLS)
    return PeerFault(
        who, f"the connection broke during the TLS handshake ({error.strerror or error})", Check.TLS
    )
