"""Options of TCP connections, and delays between attempts to connect."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator

# A peer whose host disappears is noticed after about IDLE + PROBES * INTERVAL seconds.
KEEPALIVE_IDLE = 30
KEEPALIVE_INTERVAL = 10
KEEPALIVE_PROBES = 3
# Seconds between two attempts to connect: doubled each time, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 1.0


def tune(connection: socket.socket) -> None:
    """Set the options of a connection: no delay, and keepalive where the system has it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait after each failed attempt.

    They are randomised, so that many callers do not come at once.
    """
    pause = FIRST_PAUSE
    while True:
        yield pause * secrets.SystemRandom().uniform(0.5, 1.0)
        pause = min(2 * pause, LONGEST_PAUSE)
