"""Bounds on unauthenticated connections: their number, their duration, and which one is dropped."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Generic, TypeVar

# Seconds in which a connection must show its certificate.
HANDSHAKE_SECONDS = 5.0
# Such connections at once; from one source half of that.
STRANGERS = 256
# Seconds that a connection has before a newer one of equal standing may take its place: enough for an honest
# handshake.
GRACE = 1.0

K = TypeVar("K")


class Strangers(Generic[K]):
    """Register of unauthenticated connections by source, which decides which to drop when too many.

    It closes none: the caller does.
    """

    def __init__(self, most: float = STRANGERS, each: int = STRANGERS // 2) -> None:
        """`most`: connections in all; `each`: from one source."""
        self._most = most
        self._each = each
        self._arrivals: dict[K, tuple[str, float]] = {}

    def admit(self, key: K, source: str, now: float) -> K | None:
        """Add a connection; return the one to drop (maybe the new one), or None if there is room.

        Where there are too many, the oldest one of the source with the most is dropped. If it is younger than
        GRACE and the new connection's source has as many, the new one is dropped: it can call again. The
        dropped one is forgotten.
        """
        self._arrivals[key] = (source, now)
        counts = Counter(each for each, _ in self._arrivals.values())
        if counts[source] > self._each:
            crowd = source
        elif len(self._arrivals) > self._most:
            crowd = counts.most_common(1)[0][0]
        else:
            return None
        oldest, since = next((k, at) for k, (each, at) in self._arrivals.items() if each == crowd)
        spared = now - since < GRACE and counts[crowd] <= counts[source] + 1
        dropped = key if spared else oldest
        self.remove(dropped)
        return dropped

    def remove(self, key: K) -> None:
        """Remove a connection that was authenticated or closed; ignore unknown ones."""
        self._arrivals.pop(key, None)


def source_of(host: str) -> str:
    """Return the source that an IP address counts as: itself for IPv4, its /64 network for IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
