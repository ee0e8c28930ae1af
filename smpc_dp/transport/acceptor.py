"""A member's listener that accepts connections before any evaluation here asks for them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable

from smpc_dp.errors import Check, PeerFault, SmpcError, TimeoutFault
from smpc_dp.transport import handshake
from smpc_dp.transport.blocking import BlockingChannel, BlockingStream, Halt
from smpc_dp.transport.channel import PING_SECONDS, ChannelClosed
from smpc_dp.transport.connect import (
    AuthenticatingListener,
    answer,
    dial_blocking,
    exchange_hello,
    listen_at_own_address,
)
from smpc_dp.transport.endpoint import Endpoint

# Members that wait at once, and connections of each; further connections are dropped.
MAX_WAITING = 256
MAX_EACH = 4
# The caller's message after the welcome: it is still connected, and stays.
_READY = b"\1"
# Longest time, in seconds, until the end of the acceptor, or of a wait, is noticed.
LOOK_SECONDS = 0.1

_LOG = logging.getLogger("smpc_dp.transport")


def call(endpoint: Endpoint, peer: str, patience: float, halt: Halt) -> BlockingChannel:
    """Connect to `peer` and wait to be accepted; return the blocking channel; TimeoutFault if late or halted.

    Errors as for `dial_blocking`; TimeoutFault too when halted.
    """
    channel = dial_blocking(endpoint, peer, welcome_timeout=patience, halt=halt)
    channel.send([_READY])
    return channel


async def _used_twice() -> handshake.Reason:
    """Return the reason for refusing a connection: two processes use one member's key."""
    return "twice"


class Acceptor:
    """Listener that authenticates members' connections and keeps them until `claim` asks for one.

    Connections of one member are claimed in the order in which they came, as long as their caller answers: a
    later one with a stolen key does not take the place of the first. If the first answers while another
    waits, the other is refused, and both are told that the key is used twice. A caller that is no member is
    dropped.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Listen at this member's address in the roster.

        Raises LocalError when it is not available, ConfigError for none.
        """
        self._endpoint = endpoint
        self._own = endpoint.roster.member(endpoint.identity.name)
        self._server = listen_at_own_address(endpoint)
        self._waiting: dict[str, deque[BlockingStream]] = {}
        self._inbound = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name=f"lobby of {self._own.name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"Lobby({self._own.name!r})"

    def claim(self, endpoint: Endpoint, peer: str, patience: float, halt: Halt) -> BlockingChannel:
        """Wait up to `patience` seconds for `peer` to call for this session; return the channel, or raise.

        `patience`: seconds. Raises TimeoutFault when the peer has not called by then, or the wait was halted;
        ConfigError that names the differences when it has another session; PeerFault when it breaks the
        hello.
        """
        deadline = time.monotonic() + patience
        while True:
            stream, last = self._next(peer, deadline, halt)
            halt.watch(stream)
            # A connection that no longer answers must not block the one behind it.
            stream.wait(endpoint.frame_timeout if last else min(PING_SECONDS, endpoint.frame_timeout))
            try:
                channel = exchange_hello(stream, answer(endpoint, stream, self._own))
                if self._is_ready(channel):
                    stream.wait(endpoint.frame_timeout)
                    self._refuse_others(endpoint, peer, stream)
                    return channel
            except (ChannelClosed, handshake.InquiredError):
                # Its caller may have called again.
                continue
            except TimeoutFault:
                if last and not self._has(peer):
                    raise
                _LOG.info(
                    "%s: a connection of %s that no longer answers is passed over", self._own.name, peer
                )

    def close(self) -> None:
        """Stop listening, and close all connections that nobody has claimed."""
        with self._inbound:
            self._closed = True
            self._inbound.notify_all()
        self._thread.join()
        self._server.close()
        for stream in itertools.chain.from_iterable(self._waiting.values()):
            stream.close()

    def _has(self, peer: str) -> bool:
        """Tell whether a connection of `peer` waits to be claimed."""
        with self._inbound:
            return peer in self._waiting

    def _refuse_others(self, endpoint: Endpoint, peer: str, stream: BlockingStream) -> None:
        """Refuse a member's further connections, if any; warn both sides that its key is used twice."""
        with self._inbound:
            others = self._waiting.pop(peer, None)
        if others:
            _LOG.warning("%s: two connections of %s are live: its key is used twice", self._own.name, peer)
            stream.warn()
            # Their callers may be slow to take the refusal.
            refusing = functools.partial(self._refuse, endpoint, others)
            threading.Thread(target=refusing, name=f"refuses {peer}", daemon=True).start()

    def _refuse(self, endpoint: Endpoint, streams: Iterable[BlockingStream]) -> None:
        """Refuse connections because a key is used twice."""
        for stream in streams:
            stream.wait(PING_SECONDS)
            with contextlib.suppress(SmpcError):
                exchange_hello(stream, answer(endpoint, stream, self._own, _used_twice))

    def _is_ready(self, channel: BlockingChannel) -> bool:
        """Wait for the caller's ready message: False if it has gone, PeerFault for another message."""
        try:
            if bytes(channel.receive(len(_READY))) != _READY:
                raise PeerFault(
                    channel.peer, "said something else than that it is ready", Check.UNEXPECTED_STEP
                )
        except SmpcError as error:
            channel.close()
            if isinstance(error, ChannelClosed):
                return False
            raise
        return True

    def _next(self, peer: str, deadline: float, halt: Halt) -> tuple[BlockingStream, bool]:
        """Remove and return (first connection of `peer`, whether none is behind it); or TimeoutFault."""
        with self._inbound:
            while True:
                # Before the queue is read: a member that has called by now is for the next claim.
                left = deadline - time.monotonic()
                if left <= 0 or self._closed or halt.halted:
                    raise TimeoutFault({peer}, "connect", "it has not called")
                if (streams := self._waiting.get(peer)) is not None:
                    stream = streams.popleft()
                    if not streams:
                        del self._waiting[peer]
                    return stream, not streams
                self._inbound.wait(min(left, LOOK_SECONDS))

    def _accept(self) -> None:
        """Accept and authenticate connections until closed: the main function of a thread."""
        with AuthenticatingListener(self._endpoint, self._server) as door:
            while not self._closed:
                if (came := door.wait(time.monotonic() + LOOK_SECONDS)) is None:
                    continue
                stream, result = came
                with self._inbound:
                    streams = self._waiting.get(result.name, deque())
                    full = len(streams) >= MAX_EACH or (not streams and len(self._waiting) >= MAX_WAITING)
                    if not full:
                        streams.append(stream)
                        self._waiting[result.name] = streams
                        self._inbound.notify_all()
                if full:
                    _LOG.info(
                        "%s: too many connections wait, one of %s is dropped", self._own.name, result.name
                    )
                    stream.close()
