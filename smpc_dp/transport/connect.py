"""Opens blocking channels: one side calls, the other listens, and both authenticate."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from smpc_dp.crypto.tls import TlsConnection, TlsError
from smpc_dp.errors import Check, LocalError, PeerFault, TimeoutFault
from smpc_dp.identity.address import split_address
from smpc_dp.identity.roster import Member
from smpc_dp.transport import handshake, tls
from smpc_dp.transport.blocking import BlockingChannel, BlockingStream, Halt
from smpc_dp.transport.endpoint import ATTEMPT_SECONDS, Endpoint, address_of
from smpc_dp.transport.sockets import pauses, tune
from smpc_dp.transport.strangers import HANDSHAKE_SECONDS, STRANGERS, Strangers, source_of

SOCKET_BYTES = 1 << 21
# Bytes of a handshake that are read at once.
SHAKE_BYTES = 1 << 14
BACKLOG = 2 * STRANGERS

_LOG = logging.getLogger("smpc_dp.transport")


def dial_blocking(
    endpoint: Endpoint, peer: str, *, welcome_timeout: float | None = None, halt: Halt | None = None
) -> BlockingChannel:
    """Connect to `peer`, with repeated attempts, and authenticate; return the blocking channel, or raise.

    `welcome_timeout`: seconds until the peer's welcome, by default the `frame_timeout`.
    """
    target = address_of(endpoint.roster, peer)
    host, port = split_address(target)
    deadline = time.monotonic() + endpoint.connect_timeout
    pause, last = pauses(), "no answer"
    while (left := deadline - time.monotonic()) > 0 and not (halt is not None and halt.halted):
        try:
            stream, result = _call(endpoint, (host, port), min(left, ATTEMPT_SECONDS))
            if result.name != peer:
                stream.close()
                raise PeerFault(
                    target, f"'{result.name}' answers there in the place of '{peer}'", Check.OTHER_MEMBER
                )
            if halt is not None:
                halt.watch(stream)
            stream.wait(endpoint.frame_timeout if welcome_timeout is None else welcome_timeout)
            own = endpoint.identity.name
            channel = exchange_hello(stream, handshake.greet(stream, own, endpoint.described))
            stream.wait(endpoint.frame_timeout)
            return channel
        except handshake.Busy as error:
            last = str(error)
        except OSError as error:
            last = error.strerror or str(error) or "no answer"
        time.sleep(min(next(pause), left))
    detail = f"{target} not reached in {endpoint.connect_timeout} s: {last}"
    raise TimeoutFault({peer}, "connect", detail)


@dataclass
class _Caller:
    """State of a caller that has connected but is not yet authenticated."""

    socket: socket.socket
    address: str
    secured: TlsConnection
    deadline: float


class AuthenticatingListener:
    """Listener that accepts callers and runs several TLS handshakes at once, in one thread."""

    def __init__(self, endpoint: Endpoint, server: socket.socket) -> None:
        self._endpoint = endpoint
        self._server = server
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, _Caller] = {}
        self._strangers: Strangers[int] = Strangers(STRANGERS, STRANGERS // 2)
        self.dropped = ""
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ)

    def __enter__(self) -> AuthenticatingListener:
        return self

    def __exit__(self, *error: object) -> None:
        self._selector.close()
        for caller in self._callers.values():
            caller.socket.close()

    def wait(self, deadline: float) -> tuple[BlockingStream, Member] | None:
        """Wait for the next authenticated member; return (stream, member), or None at the deadline."""
        while (now := time.monotonic()) < deadline:
            for number, caller in list(self._callers.items()):
                if caller.deadline <= now:
                    self._drop(number, f"{caller.address}: no TLS handshake in {HANDSHAKE_SECONDS} s")
            until = min([deadline, *(caller.deadline for caller in self._callers.values())])
            for key, _ in self._selector.select(max(0.0, until - now)):
                if key.fileobj is self._server:
                    self._admit()
                elif key.fd not in self._callers:
                    # It was dropped for a newer one.
                    continue
                elif (result := self._shake(key.fd)) is not None:
                    return result
        return None

    def _admit(self) -> None:
        """Accept a connection, if one waits, and start its TLS handshake; drop one of too many."""
        try:
            raw, address = self._server.accept()
        except OSError:
            return
        dropped = self._strangers.admit(raw.fileno(), source_of(address[0]), time.monotonic())
        if dropped == raw.fileno():
            raw.close()
            return
        if dropped is not None:
            self._drop(dropped, f"{self._callers[dropped].address}: too many at once")
        with contextlib.suppress(OSError):
            _set_options(raw, self._endpoint.silence)
        raw.setblocking(False)
        secured = self._endpoint.contexts.blocking.accept()
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        self._callers[raw.fileno()] = _Caller(raw, f"{address[0]}:{address[1]}", secured, deadline)
        self._selector.register(raw, selectors.EVENT_READ)

    def _shake(self, number: int) -> tuple[BlockingStream, Member] | None:
        """Continue a caller's TLS handshake; return (stream, member) when done, None before or if dropped."""
        caller = self._callers[number]
        try:
            done = _step(caller.socket, caller.secured, caller.address, caller.socket.recv(SHAKE_BYTES))
            if not done:
                return None
            result = tls.member_of(caller.secured.certificate(), self._endpoint.roster, caller.address)
        except BlockingIOError:
            return None
        except PeerFault as error:
            self._drop(number, str(error))
            return None
        except OSError as error:
            self._drop(number, f"{caller.address}: {_broken(error)}")
            return None
        self._selector.unregister(caller.socket)
        self._strangers.remove(number)
        del self._callers[number]
        stream = BlockingStream(result.name, caller.socket, caller.secured, self._endpoint.frame_timeout)
        return stream, result

    def _drop(self, number: int, why: str) -> None:
        """Close a caller's connection before it is authenticated, and log why."""
        caller = self._callers.pop(number)
        self._strangers.remove(number)
        self._selector.unregister(caller.socket)
        caller.socket.close()
        self.dropped = f"; dropped {why}"
        _LOG.warning("%s: refused %s", self._endpoint.identity.name, why)


def listen_at_own_address(endpoint: Endpoint) -> socket.socket:
    """Return a socket that listens at this member's address in the roster; LocalError if it cannot.

    Raises LocalError when the address is not available, ConfigError for none.
    """
    address = address_of(endpoint.roster, endpoint.identity.name)
    try:
        return socket.create_server(split_address(address), backlog=BACKLOG)
    except OSError as error:
        raise LocalError(f"cannot listen on {address}: {error.strerror}") from None


def accept_blocking(
    endpoint: Endpoint, server: socket.socket, peers: Sequence[str]
) -> dict[str, BlockingChannel]:
    """Accept callers until all `peers` have connected; return their channels by name, or raise a fault.

    `server` is that of `listen_at_own_address`, and stays open. A connection that does not authenticate as a
    member in HANDSHAKE_SECONDS is dropped, without other consequences. Of more than STRANGERS at once some
    are dropped before.

    Raises:
        PeerFault, ConfigError: another member came, a peer broke the hello, or has another session.
        TimeoutFault: names the peers that did not come in time, and why the last dropped one was dropped.
    """
    own = endpoint.roster.member(endpoint.identity.name)
    channels: dict[str, BlockingChannel] = {}
    deadline = time.monotonic() + endpoint.connect_timeout
    try:
        with AuthenticatingListener(endpoint, server) as door:
            while missing := set(peers) - channels.keys():
                if (came := door.wait(deadline)) is None:
                    late = f"not here in {endpoint.connect_timeout} s{door.dropped}"
                    raise TimeoutFault(missing, "connect", late)
                stream, result = came
                if result.name not in missing:
                    stream.close()
                    raise PeerFault(
                        result.name, f"connects to '{own.name}', which waits for others", Check.OTHER_MEMBER
                    )
                with contextlib.suppress(handshake.InquiredError):
                    channels[result.name] = exchange_hello(stream, answer(endpoint, stream, own))
    except BaseException:
        for channel in channels.values():
            channel.close()
        raise
    return channels


async def _no_duplicate() -> handshake.Reason | None:
    """Return None: this server does not check here for a second connection of the client."""
    return None


async def answer(
    endpoint: Endpoint,
    stream: BlockingStream,
    own: Member,
    duplicate: handshake.DuplicateCheck = _no_duplicate,
) -> None:
    """Run the server's side of the handshake on a new connection; raise an error if it is refused."""
    error = await handshake.answer_greeting(stream, own, duplicate, endpoint.described)
    if error is not None:
        raise error
    await handshake.welcome(stream, own, endpoint.session_digest)


def _call(endpoint: Endpoint, address: tuple[str, int], seconds: float) -> tuple[BlockingStream, Member]:
    """Connect to an address by TLS; return (stream, member whose certificate it shows); PeerFault if none.

    Raises PeerFault without a member's certificate, which names the address, OSError when the connection
    breaks or takes longer.
    """
    deadline, shown = time.monotonic() + seconds, f"{address[0]}:{address[1]}"
    raw = socket.create_connection(address, timeout=seconds)
    try:
        _set_options(raw, endpoint.silence)
        secured = endpoint.contexts.blocking.connect()
        hello, done = secured.shake(b"")
        raw.sendall(hello)
        while not done:
            # Whoever answers a byte at a time has no longer.
            raw.settimeout(max(deadline - time.monotonic(), 0.001))
            done = _step(raw, secured, shown, raw.recv(SHAKE_BYTES))
        result = tls.member_of(secured.certificate(), endpoint.roster, shown)
    except (OSError, PeerFault) as error:
        raw.close()
        if isinstance(error, OSError):
            raise ConnectionError(_broken(error)) from None
        raise
    return BlockingStream(result.name, raw, secured, endpoint.frame_timeout), result


def _broken(error: OSError) -> str:
    """Return words for an error in which a connection's TLS handshake broke."""
    return f"the connection broke during the TLS handshake ({error.strerror or error})"


def _step(sock: socket.socket, secured: TlsConnection, address: str, received: bytes) -> bool:
    """Feed bytes to a TLS handshake, send the answer; return True when done; PeerFault or ConnectionError."""
    if not received:
        raise ConnectionError("end of file")
    try:
        answer, done = secured.shake(received)
    except TlsError as error:
        with contextlib.suppress(OSError):
            sock.sendall(secured.rest())
        raise PeerFault(address, tls.describe(error), Check.TLS) from None
    # It is small beside the buffer of an unused socket.
    sock.sendall(answer)
    return done


def _set_options(raw: socket.socket, silence: float) -> None:
    """Set a new socket's options: no delay, keepalive, an end after `silence` seconds, and buffer sizes."""
    tune(raw, silence)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        raw.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)


def exchange_hello(stream: BlockingStream, hello: Coroutine[Any, Any, None]) -> BlockingChannel:
    """Run a handshake coroutine over a blocking stream; return the channel, or close the stream and raise."""
    try:
        hello.send(None)
    except StopIteration:
        _LOG.info("connected to %s, directly", stream.peer)
        return BlockingChannel(stream)
    except BaseException:
        stream.close()
        raise
    raise RuntimeError("the handshake waited for something other than its connection")
