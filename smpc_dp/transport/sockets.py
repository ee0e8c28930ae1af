"""Options of TCP connections, and delays between attempts to connect."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import sys
import termios
from collections.abc import Iterator

# Seconds after which a peer is gone that neither acknowledges nor says anything; see `Endpoint.silence`.
SILENCE_SECONDS = 60.0
# When the system asks an idle peer's system whether it is there; SILENCE_SECONDS in all.
KEEPALIVE_IDLE = 30
KEEPALIVE_INTERVAL = 10
KEEPALIVE_PROBES = 3
# Seconds between two attempts to connect: doubled each time, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 1.0


def reason_of(error: OSError) -> str:
    """Return the system's words for why a connection failed; "" for a timeout.

    asyncio puts another text, with the address, in their place.
    """
    if isinstance(error, ConnectionRefusedError) and error.errno is not None:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def tune(connection: socket.socket, silence: float) -> None:
    """Set socket options: no delay, and keepalive that gives up after `silence` seconds where possible.

    `silence`: seconds after which the system ends it, if the peer's acknowledges nothing or has no room.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        # What was sent and not acknowledged keeps the system from asking: it would try again for a quarter
        # of an hour.
        ("TCP_USER_TIMEOUT", round(1000 * silence)),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def unsent(connection: socket.socket) -> int:
    """Return how many sent bytes the peer's system has not acknowledged; 0 if unknown."""
    try:
        waiting = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(waiting, sys.byteorder)


def pauses() -> Iterator[float]:
    """Yield growing, randomised seconds to wait between attempts to connect.

    They are randomised, so that many callers do not come at once.
    """
    pause = FIRST_PAUSE
    while True:
        yield pause * secrets.SystemRandom().uniform(0.5, 1.0)
        pause = min(2 * pause, LONGEST_PAUSE)
