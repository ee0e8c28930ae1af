"""Addresses of members: `host:port`, and over HTTPS `wss://host[:port]/path`."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

SCHEME = "wss://"
HTTPS_PORT = 443
MOST_SEGMENTS = 8
# First segments of the pages that the same server has.
PAGES = ("board", "healthz", "metrics", "readyz")

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]{2,45}\]")
_SEGMENT = re.compile(r"[A-Za-z0-9_~-]{1,64}")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[ipv6]:port`; raise ValueError for other text."""
    host, colon, port = address.rpartition(":")
    if not colon or not (_HOST.fullmatch(host) or _IPV6.fullmatch(host)):
        raise ValueError(f"'{address}' is not of the form host:port")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError(f"the port in '{address}' is not in 1 to 65535")
    return host.strip("[]"), int(port)


def is_web_address(address: str) -> bool:
    """Tell whether a member's address is a WebSocket URL (wss://), not `host:port`."""
    return address.startswith(SCHEME)


class WebAddress(NamedTuple):
    """Address of an aggregator as a WebSocket URL (wss://): host, port and path."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.server}{self.path}"

    @property
    def server(self) -> str:
        """Host of the URL, with the port unless it is the default of HTTPS."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == HTTPS_PORT else f"{host}:{self.port}"

    @property
    def segments(self) -> tuple[str, ...]:
        """Parts of the URL's path between slashes."""
        return tuple(self.path[1:].split("/"))

    @classmethod
    def parse(cls, address: str) -> Self:
        """Parse a wss:// URL; raise ValueError for text that is not in its one canonical form."""
        server, slash, rest = address.removeprefix(SCHEME).partition("/")
        segments = rest.split("/")
        fits = slash and len(segments) <= MOST_SEGMENTS and all(map(_SEGMENT.fullmatch, segments))
        if not (is_web_address(address) and fits):
            raise ValueError(
                f"'{address}' is not of the form wss://host[:port]/path, with a path of 1 to {MOST_SEGMENTS} "
                "segments of A-Z, a-z, 0-9, '-', '_' and '~'"
            )
        if segments[0] in PAGES:
            raise ValueError(f"the path in '{address}' begins with '{segments[0]}', a page of the server")
        bare = ":" not in server.rpartition("]")[2]
        host, port = split_address(f"{server}:{HTTPS_PORT}" if bare else server)
        result = cls(host, port, f"/{rest}")
        if str(result) != address:
            raise ValueError(f"'{address}' is written '{result}'")
        return result


def check_address(address: str, role: str) -> None:
    """Raise ValueError unless the address is well-formed and, if a URL, its member an aggregator."""
    if not is_web_address(address):
        split_address(address)
        return
    WebAddress.parse(address)
    if role != "aggregator":
        raise ValueError(f"'{address}' is for an aggregator: a {role} is reached at host:port, over TCP")
