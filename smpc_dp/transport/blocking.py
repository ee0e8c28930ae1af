"""Channels for bulk data: the same TLS, pins, hello and frames as `channel`, over blocking sockets.

asyncio carries about a third of what TLS can do; two parties that stream garbled tables want the rest. Each
channel has one thread, which alone touches the connection, so that we compute while it encrypts or decrypts.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from smpc_dp.errors import ConfigError, Fault, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.roster import Member, split_address
from smpc_dp.transport import framing, handshake, tls
from smpc_dp.transport.channel import CLOSE_SECONDS, ChannelClosed
from smpc_dp.transport.endpoint import FIRST_PAUSE, LONGEST_PAUSE, Endpoint

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

# Messages that wait on their way out, or in.
DEPTH = 4
SOCKET_BYTES = 1 << 21
# Messages that stay as they were received while later ones come.
KEPT = DEPTH + 2
# Smaller parts of a message are joined: each write is at least one TLS record.
JOIN_BYTES = 1 << 12
# What somebody who connects has to show who it is: nobody else is accepted meanwhile.
HANDSHAKE_SECONDS = 2.0


class Link:
    """A blocking TLS connection to the member `peer`, for one thread at a time, and the messages on it."""

    def __init__(self, peer: str, sock: ssl.SSLSocket, timeout: float) -> None:
        self.peer = peer
        self.max_message = handshake.MAX_GREETING
        self.bytes_sent = 0
        self.bytes_received = 0
        # Fresh memory for each message would cost as much as decrypting it.
        self._buffers = [bytearray() for _ in range(KEPT + 1)]
        self._next = 0
        self._socket = sock
        self._timeout = timeout
        sock.settimeout(timeout)

    async def send(self, *buffers: Buffer) -> None:
        """Be a channel's `send` to the hello, which never waits for anything else."""
        self.write(buffers)

    async def receive(self) -> bytes:
        """Be a channel's `receive` to the hello."""
        return bytes(self.read(self.max_message))

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send one message, the bytes of all `buffers` in order.

        Raises TimeoutFault when the peer does not read in time, ChannelClosed when the connection is gone.
        """
        total = sum(memoryview(buffer).nbytes for buffer in buffers)
        try:
            small = bytearray()
            for piece in _frames(buffers, total):
                if len(piece) < JOIN_BYTES:
                    small += piece
                    continue
                if small:
                    self._socket.sendall(small)
                    small = bytearray()
                self._socket.sendall(piece)
            if small:
                self._socket.sendall(small)
        except TimeoutError:
            raise TimeoutFault({self.peer}, "send", f"it did not read for {self._timeout} s") from None
        except ssl.SSLError as error:
            raise PeerFault(self.peer, tls.describe(error)) from None
        except OSError:
            raise ChannelClosed(self.peer, clean=False) from None
        self.bytes_sent += total

    def read(self, limit: int) -> memoryview:
        """Return the next message, of at most `limit` bytes; it stays until KEPT more have been read.

        Raises PeerFault when the peer breaks the framing or sends more, TimeoutFault when it is late,
        ChannelClosed at the end.
        """
        try:
            total, kind = self._header()
            if kind == framing.BYE and total == 0:
                raise ChannelClosed(self.peer, clean=True)
            if kind != framing.DATA:
                raise PeerFault(
                    self.peer, f"sent a frame header that means nothing (kind {kind}, length {total})"
                )
            if total > limit:
                raise PeerFault(self.peer, f"announced a message of {total} bytes, the limit is {limit}")
            buffer, have = self._buffer(total), 0
            while True:
                frame = min(total - have, framing.MAX_FRAME)
                # Memory grows with the bytes that have come, not with the announced length.
                if len(buffer) < have + frame:
                    buffer += bytes(min(max(frame, have), total - have))
                with memoryview(buffer) as view:
                    self._fill(view[have : have + frame])
                have += frame
                if have == total:
                    break
                if (header := self._header()) != (total - have, framing.DATA):
                    raise PeerFault(self.peer, f"sent the frame header {header} inside a message")
        except TimeoutError:
            raise TimeoutFault({self.peer}, "receive", f"nothing came for {self._timeout} s") from None
        except ssl.SSLError as error:
            raise PeerFault(self.peer, tls.describe(error)) from None
        except OSError:
            raise ChannelClosed(self.peer, clean=False) from None
        self.bytes_received += total
        return memoryview(buffer)[:total]

    def wait(self, seconds: float) -> None:
        """Wait so long for the peer from now on; not while another thread uses the connection."""
        self._timeout = seconds
        self._socket.settimeout(seconds)

    def close(self, goodbye: bool) -> None:
        """Close; with a goodbye, wait a little until the peer has closed, so that nothing of ours is lost."""
        if goodbye:
            with contextlib.suppress(OSError):
                self._socket.sendall(framing.HEADER.pack(0, framing.BYE))
                self._socket.shutdown(socket.SHUT_WR)
                self._socket.settimeout(CLOSE_SECONDS)
                while self._socket.recv(framing.MAX_FRAME):
                    pass
        self._socket.close()

    def cut(self) -> None:
        """Make whoever uses the connection now fail."""
        with contextlib.suppress(OSError):
            # Not the TLS socket's own, after which another thread's send would go out in the clear.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _buffer(self, size: int) -> bytearray:
        if size > framing.MAX_FRAME:
            return bytearray(framing.MAX_FRAME)
        self._next = (self._next + 1) % len(self._buffers)
        if size > len(self._buffers[self._next]):
            self._buffers[self._next] = bytearray(size)
        return self._buffers[self._next]

    def _header(self) -> tuple[int, int]:
        data = bytearray(framing.HEADER.size)
        self._fill(memoryview(data))
        length, kind = framing.HEADER.unpack(data)
        return length, kind

    def _fill(self, view: memoryview) -> None:
        have = 0
        while have < len(view):
            got = self._socket.recv_into(view[have:])
            if not got:
                raise ChannelClosed(self.peer, clean=False)
            have += got


class Halt:
    """Stops, from any thread, those who wait for connections, or on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self.halted = False

    def watch(self, link: Link) -> None:
        """Cut `link` when it is time, or now."""
        with self._lock:
            self._links.append(link)
            halted = self.halted
        if halted:
            link.cut()

    def now(self) -> None:
        """Cut every connection; whoever waits finds out by its error, or by `halted`."""
        with self._lock:
            self.halted = True
            links = list(self._links)
        for link in links:
            link.cut()


class BlockingChannel:
    """Messages to and from one authenticated member; sends and receives happen in the order they were asked.

    A send returns before the message is out; its buffers must not change any more. An error of the connection
    is raised by the next call.
    """

    def __init__(self, link: Link) -> None:
        self.peer = link.peer
        # The hello does not count.
        link.bytes_sent = link.bytes_received = 0
        self._link = link
        self._jobs: queue.Queue[Sequence[Buffer] | tuple[int, int] | None] = queue.Queue(DEPTH)
        self._messages: queue.Queue[memoryview | SmpcError] = queue.Queue(DEPTH)
        self._awaited = 0
        self._error: SmpcError | None = None
        self._thread = threading.Thread(target=self._work, name=f"link to {link.peer}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"BlockingChannel({self.peer!r})"

    @property
    def bytes_sent(self) -> int:
        """Content of whole messages, without frames and TLS."""
        return self._link.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Content of whole messages, without frames and TLS."""
        return self._link.bytes_received

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send one message; wait while DEPTH others are on their way.

        Raises ChannelClosed, TimeoutFault or PeerFault for what went wrong since the last call.
        """
        self._check()
        self._jobs.put(list(buffers))

    def receive(self, limit: int, ahead: int = 0) -> memoryview:
        """Return the next message, of at most `limit` bytes; read `ahead` more meanwhile: they will come.

        The message stays as it is until the next call.

        Errors as for `send`, once the messages that came before are used up.
        """
        if not self._awaited:
            self._check()
            self._awaited = 1 + ahead
            self._jobs.put((limit, self._awaited))
        message = self._messages.get()
        self._awaited -= 1
        if isinstance(message, SmpcError):
            self._awaited = 0
            self._error = message
            raise message
        if len(message) > limit:
            raise PeerFault(self.peer, f"sent a message of {len(message)} bytes, the limit is {limit}")
        return message

    def close(self, last: Sequence[Buffer] | None = None) -> None:
        """Send what waits and the message `last`, say goodbye and close; drop what still comes.

        Cuts the connection when that takes more than twice CLOSE_SECONDS.
        """
        deadline = time.monotonic() + 2 * CLOSE_SECONDS
        jobs: list[Sequence[Buffer] | None] = [None] if last is None else [list(last), None]
        while self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                while jobs:
                    self._jobs.put_nowait(jobs[0])
                    del jobs[0]
            with contextlib.suppress(queue.Empty):
                self._messages.get_nowait()
            self._thread.join(0.001 if jobs else 0.01)
            if time.monotonic() > deadline:
                self._link.cut()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        failed = False
        while (job := self._jobs.get()) is not None:
            if failed:
                # What waits has nowhere to go; who waits must not wait for ever.
                if isinstance(job, tuple) and self._error is not None:
                    self._messages.put(self._error)
                continue
            try:
                if isinstance(job, tuple):
                    limit, count = job
                    for _ in range(count):
                        self._messages.put(self._link.read(limit))
                else:
                    self._link.write(job)
            except SmpcError as error:
                failed, self._error = True, error
                if isinstance(job, tuple):
                    self._messages.put(error)
        self._link.close(goodbye=not failed)


def dial_blocking(
    endpoint: Endpoint, peer: str, *, patience: float | None = None, halt: Halt | None = None
) -> BlockingChannel:
    """Return a channel to the member `peer` at the roster's address; errors as for `endpoint.dial`.

    `patience`: seconds that the peer may take to welcome us, by default the `frame_timeout`.
    """
    target = endpoint.roster.member(peer).address
    if target is None:
        raise ConfigError([Fault("roster", f"'{peer}' has no address to be reached at")])
    host, port = split_address(target)
    deadline = time.monotonic() + endpoint.connect_timeout
    pause, last = FIRST_PAUSE, "no answer"
    while (left := deadline - time.monotonic()) > 0 and not (halt is not None and halt.halted):
        try:
            raw = socket.create_connection((host, port), timeout=left)
        except OSError as error:
            last = error.strerror or str(error)
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        link, found = secure(endpoint, raw, peer, endpoint.connect_timeout, server=False)
        if found.name != peer:
            link.close(goodbye=False)
            raise PeerFault(found.name, f"answers at {target} in the place of '{peer}'")
        if halt is not None:
            halt.watch(link)
        greeting = handshake.greet(link, endpoint.identity.name, endpoint.session_digest, endpoint.session)
        link.wait(endpoint.frame_timeout if patience is None else patience)
        channel = greeted(link, greeting)
        link.wait(endpoint.frame_timeout)
        return channel
    detail = f"{target} not reached in {endpoint.connect_timeout} s: {last}"
    raise TimeoutFault({peer}, "connect", detail)


def accept_blocking(endpoint: Endpoint, peers: Sequence[str]) -> dict[str, BlockingChannel]:
    """Listen at our address of the roster until each of `peers` has connected, and return the channels.

    Whoever does not show in HANDSHAKE_SECONDS that it is a member is dropped, and nothing else comes of it.

    Raises:
        LocalError: the address cannot be had.
        PeerFault, ConfigError: another member came, a peer broke the hello, or has another session.
        TimeoutFault: names who did not come in time, and why the last one that was dropped was.
    """
    own = endpoint.roster.member(endpoint.identity.name)
    if own.address is None:
        raise ConfigError([Fault("roster", f"'{own.name}' has no address to be reached at")])
    channels: dict[str, BlockingChannel] = {}
    deadline = time.monotonic() + endpoint.connect_timeout
    dropped = ""
    try:
        server = socket.create_server(split_address(own.address))
    except OSError as error:
        raise LocalError(f"cannot listen on {own.address}: {error.strerror}") from None
    try:
        with server:
            while missing := set(peers) - channels.keys():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutFault(
                        missing, "connect", f"not here in {endpoint.connect_timeout} s{dropped}"
                    )
                server.settimeout(left)
                try:
                    raw, address = server.accept()
                except (TimeoutError, ConnectionAbortedError):
                    continue
                patience = min(left, HANDSHAKE_SECONDS)
                try:
                    link, found = secure(endpoint, raw, f"{address[0]}:{address[1]}", patience, server=True)
                except PeerFault as error:
                    dropped = f"; dropped {error}"
                    continue
                if found.name not in missing:
                    link.close(goodbye=False)
                    raise PeerFault(found.name, f"connects to '{own.name}', which waits for others")
                channels[found.name] = greeted(link, answer(endpoint, link, own))
    except BaseException:
        for channel in channels.values():
            channel.close()
        raise
    return channels


async def answer(endpoint: Endpoint, link: Link, own: Member) -> None:
    """Be the server of the hello on a link, for `greeted`; errors as for `handshake.answer_greeting`."""
    error = await handshake.answer_greeting(
        link, own, lambda: False, endpoint.session_digest, endpoint.session
    )
    if error is not None:
        raise error
    await handshake.welcome(link, own, endpoint.session_digest)


def secure(
    endpoint: Endpoint, raw: socket.socket, address: str, timeout: float, *, server: bool
) -> tuple[Link, Member]:
    """Return the link to the member that the other end shows to be; raise PeerFault if it does not.

    `address` names the other end until then; `timeout` is for the TLS handshake.
    """
    context = endpoint.contexts.server if server else endpoint.contexts.client
    try:
        raw.settimeout(timeout)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            raw.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        sock = context.wrap_socket(raw, server_side=server)
        found = tls.authenticated(sock, endpoint.roster, address)
    except ssl.SSLError as error:
        raw.close()
        raise PeerFault(address, tls.describe(error)) from None
    except OSError as error:
        raw.close()
        what = f"the connection broke during the TLS handshake ({error.strerror or error})"
        raise PeerFault(address, what) from None
    except PeerFault:
        raw.close()
        raise
    return Link(found.name, sock, endpoint.frame_timeout), found


def greeted(link: Link, hello: Coroutine[Any, Any, None]) -> BlockingChannel:
    """Run the hello, which is written for asyncio but only ever waits for `link`, and start the channel."""
    try:
        hello.send(None)
    except StopIteration:
        return BlockingChannel(link)
    except BaseException:
        link.close(goodbye=False)
        raise
    raise RuntimeError("the hello waited for something else than its link")


def _frames(buffers: Sequence[Buffer], total: int) -> Sequence[Buffer]:
    """Return the frames of one message, as `framing.encode` does; a message of one frame is not cut up."""
    if total <= framing.MAX_FRAME:
        return [framing.HEADER.pack(total, framing.DATA), *buffers]
    return list(framing.encode([memoryview(buffer) for buffer in buffers], total))
