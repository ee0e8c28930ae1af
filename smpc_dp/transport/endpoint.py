"""Listening and dialling: from an address to an authenticated channel."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import InitVar, dataclass, field

from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    SmpcError,
    TimeoutFault,
)
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster, split_address
from smpc_dp.transport import framing, handshake, tls
from smpc_dp.transport.channel import CLOSE_SECONDS, Channel, ChannelClosed, Stream, now
from smpc_dp.transport.difference import DescribedSession
from smpc_dp.transport.inbox import Budgets
from smpc_dp.transport.sockets import SILENCE_SECONDS, pauses, tune
from smpc_dp.transport.strangers import HANDSHAKE_SECONDS, STRANGERS, Strangers, source_of

OnChannel = Callable[[Channel], object]
OnRefused = Callable[[str, SmpcError], None]

BACKLOG = 1024
# Closed connections after TLS and before the answer that count as the peer's fault.
MAX_HANGUPS = 3
# Seconds from a member's certificate to the welcome; its connections in that time.
HELLO_SECONDS = 30.0
HELLOS = 4
# Seconds for one attempt up to the peer's certificate.
ATTEMPT_SECONDS = 15.0
# Seconds between two pings to one member.
PING_PAUSE = 10.0
# Seconds after a failed accept.
ACCEPT_PAUSE = 1.0
# asyncio has its own limit on the TLS handshake; this one is shorter.
BACKUP = 1.0
# Bytes of messages of at most one frame in all channels of an endpoint.
SMALL_BUDGET = 64 << 20

_LOG = logging.getLogger("smpc_dp.transport")


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One member's side of all its channels: its identity, the roster, the session, and limits.

    `session` returns the canonical session (JSON types) whose 32-byte digest is `session_digest`; peers
    compare digests, and describe their sessions to each other when these differ: only then it is called.
    Sizes in bytes, times in seconds.
    `connect_timeout` covers everything from the first attempt to the welcome; `frame_timeout` one frame of at
    most 1 MiB, `message_timeout` a message, from when its budget admits it: `budget` if it is above 1 MiB,
    else `small_budget`. `max_pending`: connections that have not shown a certificate. `prepared`: contexts
    made before, for `identity` and this roster or a larger one; peers are held to this one.

    Raises ConfigError when the roster does not hold the identity.
    """

    identity: Identity
    roster: Roster
    session_digest: bytes
    session: Callable[[], Mapping[str, object]]
    connect_timeout: float = 30.0
    frame_timeout: float = 30.0
    message_timeout: float = math.inf
    max_message: int = 64 << 20
    max_pending: int = STRANGERS
    budget: framing.InflightBudget = field(default_factory=lambda: framing.InflightBudget(256 << 20))
    small_budget: framing.InflightBudget = field(default_factory=lambda: framing.InflightBudget(SMALL_BUDGET))
    prepared: InitVar[tls.Contexts | None] = None
    contexts: tls.Contexts = field(init=False, repr=False)
    described: DescribedSession = field(init=False, repr=False)

    def __post_init__(self, prepared: tls.Contexts | None) -> None:
        contexts = tls.contexts(self.identity, self.roster) if prepared is None else prepared
        object.__setattr__(self, "contexts", contexts)
        object.__setattr__(self, "described", DescribedSession(self.session_digest, self.session))

    @property
    def silence(self) -> float:
        """Seconds after which a silent peer is gone: it may hold a sender back for a frame's time or two."""
        return max(SILENCE_SECONDS, 2 * self.frame_timeout)

    async def dial(self, peer: str) -> Channel:
        """Return a channel to a member; see `dial`."""
        return await dial(self, peer)

    async def listen(self, host: str, port: int, on_channel: OnChannel, on_refused: OnRefused) -> Listener:
        """Accept channels of other members; see `listen`."""
        return await listen(self, host, port, on_channel, on_refused)

    def channel(self, peer: str, stream: Stream, transport: asyncio.Transport) -> Channel:
        """Return the channel of a connection whose TLS handshake is done."""
        loop = asyncio.get_running_loop()
        writer = asyncio.StreamWriter(transport, stream, stream.stream, loop)
        return Channel(
            peer,
            stream,
            writer,
            max_message=self.max_message,
            frame_timeout=self.frame_timeout,
            message_timeout=self.message_timeout,
            budgets=Budgets(self.budget, self.small_budget),
        )


def address_of(roster: Roster, name: str) -> str:
    """Return the address of a member; raise ConfigError when it has none."""
    address = roster.member(name).address
    if address is None:
        raise ConfigError.at("roster", f"'{name}' has no address to be reached at", ConfigCheck.MISSING)
    return address


class Listener:
    """Accepts the other members, one live channel each, until it is closed. Made by `listen`."""

    def __init__(
        self, endpoint: Endpoint, sock: socket.socket, on_channel: OnChannel, on_refused: OnRefused
    ) -> None:
        self._endpoint = endpoint
        self._socket = sock
        self.port: int = sock.getsockname()[1]
        self._on_channel = on_channel
        self._on_refused = on_refused
        self._own = endpoint.roster.member(endpoint.identity.name)
        self._live: dict[str, Channel] = {}
        self._pinged: dict[str, float] = {}
        half = max(1, endpoint.max_pending // 2)
        self._strangers: Strangers[socket.socket] = Strangers(endpoint.max_pending, half)
        self._greeting: Strangers[socket.socket] = Strangers(math.inf, HELLOS)
        self._pending: dict[socket.socket, asyncio.Task[None]] = {}
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def close(self) -> None:
        """Stop accepting and drop connections that are not yet channels; channels stay open."""
        tasks = [self._accepting, *self._pending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        """Accept connections until closed."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._socket)
            except OSError as error:
                self._on_refused("unknown", LocalError(f"cannot accept a connection: {error.strerror}"))
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            _LOG.debug("%s: is called from %s", self._own.name, _printable(address))
            dropped = self._strangers.admit(connection, source_of(address[0]), now())
            if dropped is connection:
                connection.close()
            else:
                self._pending[connection] = loop.create_task(self._admit(connection, _printable(address)))
                if dropped is not None:
                    self._pending[dropped].cancel("dropped for a newer connection")
            # The listening socket may always be ready: other tasks must run, and this connection's task
            # start.
            await asyncio.sleep(0)

    async def _admit(self, connection: socket.socket, address: str) -> None:
        """Admit a connection, or drop one if there are too many."""
        who = address
        try:
            async with self._tls(connection, address) as channel:
                who = channel.peer
                self._strangers.remove(connection)
                if (dropped := self._greeting.admit(connection, who, now())) is not None:
                    self._pending[dropped].cancel("dropped for a newer connection")
                async with asyncio.timeout(min(HELLO_SECONDS, self._endpoint.connect_timeout)):
                    await self._hello(channel)
        except TimeoutError:
            self._on_refused(who, TimeoutFault({who}, "connect", "no hello in time"))
        except (SmpcError, OSError) as error:
            self._on_refused(who, _as_fault(error, who))
        finally:
            self._strangers.remove(connection)
            self._greeting.remove(connection)
            del self._pending[connection]

    @contextlib.asynccontextmanager
    async def _tls(self, connection: socket.socket, address: str) -> AsyncIterator[Channel]:
        """Yield a channel to the member that authenticates in time; cut it on failure."""
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
        try:
            peer = tls.authenticated(transport.get_extra_info("ssl_object"), endpoint.roster, address)
            yield endpoint.channel(peer.name, stream, transport)
        except BaseException:
            transport.abort()
            raise

    async def _hello(self, channel: Channel) -> None:
        """Run the hello on a channel, and pass the channel on."""
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
        """Return the reason for refusing a second connection in the peer's name; None if there is no other.

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


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host`:`port`; raise LocalError that names them."""
    try:
        result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = result[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise LocalError(f"cannot listen on {host}:{port}: {reason}") from None


async def listen(
    endpoint: Endpoint, host: str, port: int, on_channel: OnChannel, on_refused: OnRefused
) -> Listener:
    """Listen on `host`:`port` (0: any free port) and return the listener.

    `on_channel` gets each authenticated channel. `on_refused` gets each connection that was not accepted: the
    name of the member if it has shown its certificate, else its network address, and the error. Both are
    called in the event loop and must not block. Raises LocalError that names host and port when they cannot
    be had.
    """
    _check_loop()
    # In a thread, and before anybody can call: it takes long for many members.
    await asyncio.to_thread(lambda: endpoint.contexts.server)
    sock = await asyncio.to_thread(listening, host, port)
    sock.setblocking(False)
    _LOG.info("%s: listens on %s:%d", endpoint.identity.name, host, sock.getsockname()[1])
    return Listener(endpoint, sock, on_channel, on_refused)


def _check_loop() -> None:
    """Raise LocalError in another event loop than asyncio's own, whose TLS differs."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        kind = type(loop)
        raise LocalError(
            f"the event loop is {kind.__module__}.{kind.__qualname__}: sessions need that of asyncio; use "
            "asyncio.run without another policy, or smpc_dp.sync"
        )


async def dial(endpoint: Endpoint, peer: str, address: str | None = None) -> Channel:
    """Return a channel to the member `peer`, at `address` or else at the roster's `host:port`.

    Tries until `connect_timeout`, since processes start in any order: what may pass is tried again, such as a
    refused connection; a wrong certificate does not. Raises TimeoutFault that names `peer` when it is not
    reached in time or hangs up, PeerFault when another answers in its place (named by the address unless it
    has shown a certificate of the roster), it refuses us or breaks the hello, and ConfigError when it has no
    address or its session differs from ours (`faults` says in what).
    """
    _check_loop()
    target = address if address is not None else address_of(endpoint.roster, peer)
    try:
        host, port = split_address(target)
    except ValueError as error:
        raise ConfigError(str(error), ConfigCheck.FORMAT) from None
    _LOG.debug("%s: calls %s at %s", endpoint.identity.name, peer, target)
    last, hangups, pause = "no answer", 0, pauses()
    try:
        async with asyncio.timeout(endpoint.connect_timeout):
            while True:
                try:
                    return await _attempt(endpoint, peer, host, port)
                except ssl.SSLEOFError:
                    last = "hangs up during the TLS handshake"
                except ssl.SSLError as error:
                    # Whoever answers at the address has shown no certificate of the roster.
                    raise PeerFault(target, tls.describe(error, dialled=True), Check.TLS) from None
                except ChannelClosed:
                    # A listener that does not know our certificate looks like this: asyncio sends no alert.
                    hangups += 1
                    last = "hangs up before the hello: does its roster hold our certificate?"
                    if hangups == MAX_HANGUPS:
                        raise TimeoutFault({peer}, "connect", last, code=Code.LOST) from None
                except handshake.Busy as error:
                    last = str(error)
                except OSError as error:
                    last = error.strerror or str(error) or "no answer"
                _LOG.debug("%s: %s is not reached yet: %s", endpoint.identity.name, peer, last)
                await asyncio.sleep(next(pause))
    except TimeoutError:
        detail = f"{target} not reached in {endpoint.connect_timeout} s: {last}"
        raise TimeoutFault({peer}, "connect", detail) from None


async def _attempt(endpoint: Endpoint, peer: str, host: str, port: int) -> Channel:
    """Make one attempt to open a channel."""
    async with asyncio.timeout(ATTEMPT_SECONDS):
        transport, stream = await asyncio.get_running_loop().create_connection(
            Stream,
            host,
            port,
            ssl=endpoint.contexts.client,
            ssl_handshake_timeout=ATTEMPT_SECONDS + BACKUP,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )
    try:
        tune(transport.get_extra_info("socket"), endpoint.silence)
        secured = transport.get_extra_info("ssl_object")
        result = tls.authenticated(secured, endpoint.roster, f"{host}:{port}")
        if result.name != peer:
            # It may not know: whoever leads the way to the address can lead to it.
            raise PeerFault(
                f"{host}:{port}",
                f"'{result.name}' answers there in the place of '{peer}'",
                Check.OTHER_MEMBER,
            )
        channel = endpoint.channel(peer, stream, transport)
        try:
            await handshake.greet(channel, endpoint.identity.name, endpoint.described)
        except ConfigError:
            # Not an abort: what we have just shown the peer must still reach it.
            await channel.close()
            raise
    except BaseException:
        transport.abort()
        raise
    channel.begin(endpoint.max_message, endpoint.silence)
    return channel


def _as_fault(error: SmpcError | OSError, who: str) -> SmpcError:
    """Return the error about a peer, for an error that no attempt can recover from."""
    if isinstance(error, ChannelClosed):
        return TimeoutFault({who}, "hello", str(error), code=Code.LOST)
    if isinstance(error, SmpcError):
        return error
    if isinstance(error, ssl.SSLError):
        return PeerFault(who, tls.describe(error), Check.TLS)
    return PeerFault(
        who, f"the connection broke during the TLS handshake ({error.strerror or error})", Check.TLS
    )


def _printable(address: object) -> str:
    """Return an address as printable text."""
    match address:
        case (str() as host, int() as port, *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
