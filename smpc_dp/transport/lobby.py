"""A member's own address while it does other things: others may call before anybody here asks for them."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time

from smpc_dp.errors import ConfigError, Fault, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.roster import split_address
from smpc_dp.transport.blocking import BlockingChannel, Halt, Link
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.transport.connect import BACKLOG, Door, answer, dial_blocking, greeted
from smpc_dp.transport.endpoint import Endpoint

# Who waits longest goes when more than this are there.
MAX_WAITING = 256
# What the caller says after the welcome: it is still there, and stays.
_READY = b"\1"
# How long it takes at most to see that the lobby is closed, or a wait over.
LOOK_SECONDS = 0.1

_LOG = logging.getLogger("smpc_dp.transport")


def call(endpoint: Endpoint, peer: str, patience: float, halt: Halt) -> BlockingChannel:
    """Return a channel to `peer`, which may keep us waiting in its lobby for `patience` seconds.

    Errors as for `dial_blocking`; TimeoutFault too when we were halted.
    """
    channel = dial_blocking(endpoint, peer, patience=patience, halt=halt)
    channel.send([_READY])
    return channel


class Lobby:
    """Lets members of the roster in, one connection each, and keeps them waiting until they are claimed.

    Of two connections of one member the later counts. Whoever is no member is dropped.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Listen at our address of the roster; LocalError when it cannot be had, ConfigError for none."""
        self._endpoint = endpoint
        self._own = endpoint.roster.member(endpoint.identity.name)
        if self._own.address is None:
            raise ConfigError([Fault("roster", f"'{self._own.name}' has no address to be reached at")])
        try:
            self._server = socket.create_server(split_address(self._own.address), backlog=BACKLOG)
        except OSError as error:
            raise LocalError(f"cannot listen on {self._own.address}: {error.strerror}") from None
        self._waiting: dict[str, Link] = {}
        self._news = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name=f"lobby of {self._own.name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"Lobby({self._own.name!r})"

    def claim(self, endpoint: Endpoint, peer: str, patience: float, halt: Halt) -> BlockingChannel:
        """Return the channel to `peer` once it has called and its hello is that of our `endpoint`'s session.

        `patience`: seconds. Raises TimeoutFault when the peer has not called by then, or we were halted;
        ConfigError when it has another session, saying in what; PeerFault when it breaks the hello.
        """
        deadline = time.monotonic() + patience
        while True:
            link = self._next(peer, deadline, halt)
            halt.watch(link)
            link.wait(endpoint.frame_timeout)
            # Who has gone meanwhile may have called again.
            with contextlib.suppress(ChannelClosed):
                channel = greeted(link, answer(endpoint, link, self._own))
                if self._is_ready(channel):
                    return channel

    def close(self) -> None:
        """Stop listening, and hang up on everybody who has not been claimed."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._thread.join()
        self._server.close()
        for link in self._waiting.values():
            link.close()

    def _is_ready(self, channel: BlockingChannel) -> bool:
        """Return False if the caller has gone; raise PeerFault if it says something else."""
        try:
            said = bytes(channel.receive(len(_READY)))
        except ChannelClosed:
            channel.close()
            return False
        except SmpcError:
            channel.close()
            raise
        if said != _READY:
            channel.close()
            raise PeerFault(channel.peer, "said something else than that it is ready")
        return True

    def _next(self, peer: str, deadline: float, halt: Halt) -> Link:
        with self._news:
            while True:
                # Before a look at who waits: whoever has called now is for the next claim.
                left = deadline - time.monotonic()
                if left <= 0 or self._closed or halt.halted:
                    raise TimeoutFault({peer}, "connect", "it has not called")
                if (link := self._waiting.pop(peer, None)) is not None:
                    return link
                self._news.wait(min(left, LOOK_SECONDS))

    def _accept(self) -> None:
        with Door(self._endpoint, self._server) as door:
            while not self._closed:
                if (came := door.wait(time.monotonic() + LOOK_SECONDS)) is None:
                    continue
                link, found = came
                with self._news:
                    before = self._waiting.pop(found.name, None)
                    self._waiting[found.name] = link
                    self._news.notify_all()
                    if before is None and len(self._waiting) > MAX_WAITING:
                        before = self._waiting.pop(next(iter(self._waiting)))
                if before is not None:
                    _LOG.info("%s: %s is superseded before it was claimed", self._own.name, before.peer)
                    before.close()
