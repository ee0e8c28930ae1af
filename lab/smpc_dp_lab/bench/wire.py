"""A TLS connection over loopback whose both ends are in this process, for floors that count messages."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Self

from smpc_dp.crypto.garble import Bytes
from smpc_dp.crypto.tls import TlsContext
from smpc_dp.identity.keys import Identity

CALLED, CALLING = 0, 1
# Bytes of a handshake that are read at once.
_SHAKE_BYTES = 1 << 14

Timed = Callable[..., Any]


def untimed(_side: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call and return its value: the stand-in for a function that also times calls."""
    return call(*arguments)


class Wire:
    """Both ends of a connection, CALLED and CALLING; `timed(side, call, ...)` makes each call of a side."""

    def __init__(self, timed: Timed = untimed) -> None:
        """Connect, and make the TLS handshake."""
        names = [Identity.generate(name) for name in ("called", "calling")]
        certificates = [own.certificate for own in names]
        contexts = [TlsContext(own.private_key_pem(), own.certificate, certificates) for own in names]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            calling = socket.socket()
            timed(CALLING, calling.connect, listener.getsockname())
            called, _ = timed(CALLED, listener.accept)
        self._sockets = called, calling
        self._ends = timed(CALLED, contexts[CALLED].accept), timed(CALLING, contexts[CALLING].connect)
        message, _ = timed(CALLING, self._ends[CALLING].shake, b"")
        for sender, receiver in ((CALLING, CALLED), (CALLED, CALLING), (CALLING, CALLED)):
            timed(sender, self._sockets[sender].sendall, message)
            received = timed(receiver, self._sockets[receiver].recv, _SHAKE_BYTES)
            message, _ = timed(receiver, self._ends[receiver].shake, received)
        for end in self._sockets:
            # As of a channel: a short message does not wait for the acknowledgement of the one before.
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._sockets:
            end.close()

    def carry(self, content: Bytes, room: Bytes, timed: Timed = untimed, sender: int = CALLING) -> None:
        """Send content from `sender`, and receive it in room of the same size at the other side."""
        sent, done, have = 0, False, 0
        receiver = CALLED + CALLING - sender
        while have < len(room):
            if not done:
                send = self._ends[sender].send
                sent, done = timed(sender, send, self._sockets[sender].fileno(), [content], sent)
            receive = self._ends[receiver].receive
            have, _ = timed(receiver, receive, self._sockets[receiver].fileno(), room, have)
