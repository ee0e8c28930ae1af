"""Listening and dialling: from an address to an authenticated channel."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Protocol

from smpc_dp.errors import Check, Code, ConfigCheck, ConfigError, LocalError, PeerFault, TimeoutFault
from smpc_dp.identity.address import WebAddress, is_web_address, split_address
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.transport import framing, handshake, tls
from smpc_dp.transport.accept_loop import OnRefused, listening
from smpc_dp.transport.channel import CLOSE_SECONDS, Channel, ChannelClosed, Stream
from smpc_dp.transport.difference import DescribedSession
from smpc_dp.transport.inbox import Budgets
from smpc_dp.transport.interfaces import OnFailed
from smpc_dp.transport.listener import BACKUP, Listener, OnChannel, SocketListener
from smpc_dp.transport.read_buffers import share_read_buffer
from smpc_dp.transport.sockets import SILENCE_SECONDS, pauses, reason_of, tune
from smpc_dp.transport.strangers import STRANGERS
from smpc_dp.web_settings import WebSettings

# Closed connections after TLS and before the answer that count as the peer's fault.
MAX_HANGUPS = 3
# Seconds for one attempt up to the peer's certificate.
ATTEMPT_SECONDS = 15.0
# Bytes of messages of at most one frame in all channels of an endpoint.
SMALL_BUDGET = 64 << 20

_LOG = logging.getLogger("smpc_dp.transport")


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Settings of one member's channels: identity, roster, session and limits; opens the channels.

    `session` returns the canonical session (JSON types) whose 32-byte digest is `session_digest`; peers
    compare digests, and describe their sessions to each other when these differ: only then it is called.
    Sizes in bytes, times in seconds.
    `connect_timeout` covers everything from the first attempt to the welcome; `frame_timeout` one frame of at
    most 1 MiB, `message_timeout` a message, from when its budget admits it: `budget` if it is above 1 MiB,
    else `small_budget`. `max_pending`: connections that have not shown a certificate. `web`: settings of
    connections over HTTPS, where an address is `wss://host/path`. `prepared`: contexts made before, for
    `identity` and this roster or a larger one; peers are held to this one.

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
    web: WebSettings = field(default_factory=WebSettings)
    prepared: InitVar[tls.Contexts | None] = None
    contexts: tls.Contexts = field(init=False, repr=False)
    described: DescribedSession = field(init=False, repr=False)

    def __post_init__(self, prepared: tls.Contexts | None) -> None:
        contexts = tls.contexts(self.identity, self.roster) if prepared is None else prepared
        object.__setattr__(self, "contexts", contexts)
        object.__setattr__(self, "described", DescribedSession(self.session_digest, self.session))

    @property
    def silence(self) -> float:
        """Seconds without a byte after which a peer counts as gone."""
        return max(SILENCE_SECONDS, 2 * self.frame_timeout)

    async def dial(self, peer: str, on_failed: OnFailed | None = None) -> Channel:
        """Connect to a member, with repeated attempts, and authenticate it; return the channel, or raise."""
        return await dial(self, peer, on_failed=on_failed)

    async def listen(self, host: str, port: int, on_channel: OnChannel, on_refused: OnRefused) -> Listener:
        """Listen for other members, pass authenticated channels to `on_channel`; return the listener."""
        return await listen(self, host, port, on_channel, on_refused)

    def channel(self, peer: str, stream: Stream, transport: asyncio.Transport) -> Channel:
        """Return a channel over a TLS connection whose handshake is done."""
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
    """Return a member's address from the roster; raise ConfigError if it has none."""
    address = roster.member(name).address
    if address is None:
        raise ConfigError.at("roster", f"'{name}' has no address to be reached at", ConfigCheck.MISSING)
    return address


async def listen(
    endpoint: Endpoint, host: str, port: int, on_channel: OnChannel, on_refused: OnRefused
) -> Listener:
    """Listen on `host`:`port` (0: any free port), over HTTP for a `wss://` address; return the listener.

    `on_channel` gets each authenticated channel. `on_refused` gets each connection that was not accepted: the
    name of the member if it has shown its certificate, else its network address, and the error. Both are
    called in the event loop and must not block. Raises LocalError that names host and port when they cannot
    be had.
    """
    _check_loop()
    # In a thread, and before anybody can call: it takes long for many members.
    await asyncio.to_thread(lambda: endpoint.contexts.server)
    address = endpoint.roster.member(endpoint.identity.name).address
    if address is not None and is_web_address(address):
        # Not at the top: most sessions need no HTTP.
        from smpc_dp.transport.web_listener import listen_over_https

        path = WebAddress.parse(address).path
        return await listen_over_https(endpoint, host, port, path, on_channel, on_refused)
    sock = await asyncio.to_thread(listening, host, port)
    sock.setblocking(False)
    _LOG.info("%s: listens on %s:%d", endpoint.identity.name, host, sock.getsockname()[1])
    return SocketListener(endpoint, sock, on_channel, on_refused)


def _check_loop() -> None:
    """Raise LocalError unless the running event loop is asyncio's own, on whose TLS channels rely."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        kind = type(loop)
        raise LocalError(
            f"the event loop is {kind.__module__}.{kind.__qualname__}: sessions need that of asyncio; use "
            "asyncio.run without another policy, or smpc_dp.sync"
        )


class Dialler(Protocol):
    """Interface of what connects to one kind of address; `step` says what an attempt waits for."""

    @property
    def step(self) -> str:
        """Words on what the present attempt waits for, for errors."""

    async def attempt(self) -> tuple[asyncio.Transport, Stream]:
        """Connect once; return the TLS transport and stream, the peer not yet checked."""
        ...


class SocketDialler:
    """Dialler of `host:port` addresses: TLS over TCP."""

    step = ""

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        self._endpoint, self._host, self._port = endpoint, host, port

    async def attempt(self) -> tuple[asyncio.Transport, Stream]:
        """Connect once by TCP and TLS; return the transport and stream."""
        transport, stream = await asyncio.get_running_loop().create_connection(
            Stream,
            self._host,
            self._port,
            ssl=self._endpoint.contexts.client,
            ssl_handshake_timeout=ATTEMPT_SECONDS + BACKUP,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )
        tune(transport.get_extra_info("socket"), self._endpoint.silence)
        share_read_buffer(transport)
        return transport, stream


async def dial(
    endpoint: Endpoint, peer: str, address: str | None = None, on_failed: OnFailed | None = None
) -> Channel:
    """Connect to the member `peer`, with repeated attempts until a timeout; return the channel, or raise.

    `on_failed` gets the reason of each attempt that is followed by another one.

    Tries until `connect_timeout`, since processes start in any order: what may pass is tried again, such as a
    refused connection; a wrong certificate does not. Raises TimeoutFault that names `peer` when it is not
    reached in time or hangs up, PeerFault when another answers in its place (named by the address unless it
    has shown a certificate of the roster), it refuses us or breaks the hello, and ConfigError when it has no
    address, the proxy that is set is none, or its session differs from ours (`faults` says in what).
    """
    _check_loop()
    target = address if address is not None else address_of(endpoint.roster, peer)
    dialler = _dialler(endpoint, target)
    _LOG.debug("%s: calls %s at %s", endpoint.identity.name, peer, target)
    last, hangups, pause = "", 0, pauses()
    try:
        async with asyncio.timeout(endpoint.connect_timeout):
            while True:
                try:
                    return await _attempt(endpoint, peer, target, dialler)
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
                    # Without a text the time of the attempt was over.
                    last = reason_of(error) or _silence(dialler)
                _LOG.debug("%s: %s is not reached yet: %s", endpoint.identity.name, peer, last)
                if on_failed is not None:
                    on_failed(last)
                await asyncio.sleep(next(pause))
    except TimeoutError:
        detail = f"{target} not reached in {endpoint.connect_timeout} s: {last or _silence(dialler)}"
        raise TimeoutFault({peer}, "connect", detail) from None


def _silence(dialler: Dialler) -> str:
    """Return words for an attempt that timed out: what it was waiting for."""
    return f"no answer: it waited for {dialler.step}" if dialler.step else "no answer"


def _dialler(endpoint: Endpoint, target: str) -> Dialler:
    """Return the dialler for an address of this form; raise ConfigError for an invalid address."""
    try:
        if not is_web_address(target):
            return SocketDialler(endpoint, *split_address(target))
        address = WebAddress.parse(target)
    except ValueError as error:
        raise ConfigError(str(error), ConfigCheck.FORMAT) from None
    # Not at the top: most sessions need no HTTP.
    from smpc_dp.transport.web_dial import WebDialler

    return WebDialler(address, endpoint.web, endpoint.contexts, endpoint.silence)


async def _attempt(endpoint: Endpoint, peer: str, target: str, dialler: Dialler) -> Channel:
    """Connect once to a peer and run the handshake; return the channel; PeerFault for another member."""
    async with asyncio.timeout(ATTEMPT_SECONDS):
        transport, stream = await dialler.attempt()
    try:
        secured = transport.get_extra_info("ssl_object")
        result = tls.authenticated(secured, endpoint.roster, target)
        if result.name != peer:
            # It may not know: whoever leads the way to the address can lead to it.
            raise PeerFault(
                target, f"'{result.name}' answers there in the place of '{peer}'", Check.OTHER_MEMBER
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
