"""Dialling over HTTPS: the steps from an address to the byte stream that the channel's TLS runs over.

Each step is a function that raises ConnectionError where a later attempt may succeed, and otherwise
PeerFault, which blames the address: none of these steps authenticates a member. Both say what to do.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import socket
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from websockets.client import ClientProtocol
from websockets.http11 import Response
from websockets.uri import parse_uri

from smpc_dp.errors import Check, ConfigCheck, ConfigError, PeerFault
from smpc_dp.identity.address import WebAddress
from smpc_dp.transport.channel import CLOSE_SECONDS, Stream
from smpc_dp.transport.listener import BACKUP
from smpc_dp.transport.sockets import reason_of, tune
from smpc_dp.transport.tls import Contexts
from smpc_dp.transport.websocket import MESSAGE_BYTES, WebSocketTransport, within
from smpc_dp.web_settings import WebSettings

# Bytes of the head of a proxy's answer.
HEAD_BYTES = 1 << 14
# Seconds for one TLS handshake with a proxy or a balancer.
TLS_SECONDS = 15.0
# Seconds for a connection to one of several addresses: the first may be one of IPv6 that leads nowhere.
ADDRESS_SECONDS = 4.0

# X509 errors of the outer certificate, by OpenSSL's number: its time is not yet or no more, it is signed by
# itself or its issuer is not known, or it is of another host or address.
_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN = (2, 18, 19, 20, 21)
_OTHER_HOST = (62, 64)

_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")
_LOCATION = re.compile(rb"(?im)^location:[ \t]*([^\r\n]*)")
_SWITCHING = 101

_LOG = logging.getLogger("smpc_dp.transport")


@dataclass(frozen=True, slots=True)
class Proxy:
    """Address of an HTTP proxy, and its credentials, which its text does not show."""

    scheme: str
    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    """Way to a web address: direct, or through a proxy."""

    address: WebAddress
    proxy: Proxy | None

    @property
    def first(self) -> tuple[str, int]:
        """Host and port to connect to: the proxy's if there is one."""
        return (self.proxy or self.address).host, (self.proxy or self.address).port


def find_route(address: WebAddress) -> Route:
    """Return the route to an address, by the proxy of HTTPS_PROXY or direct; ConfigError for a wrong URL."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    url = urllib.request.getproxies().get("https")
    # An address of IPv6 is listed without brackets.
    if not url or any(map(urllib.request.proxy_bypass, (f"{host}:{address.port}", address.host))):
        return Route(address, None)
    return Route(address, _proxy(url))


def _proxy(url: str) -> Proxy:
    """Parse a proxy's URL: host, port and credentials; raise ConfigError if it is wrong."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urllib.parse.urlsplit(""), None
    # Such a character in a password that is not written as %23 or %3F ends the part with the host there.
    is_bare = parts.path in ("", "/") and not parts.query and not parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_bare:
        # Its text may hold a password.
        reason = "is no URL of an HTTP proxy, as http://proxy.example.org:3128; SOCKS is not supported"
        raise ConfigError.at("HTTPS_PROXY", reason, ConfigCheck.FORMAT)
    credentials = None
    if parts.username is not None:
        name, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
        credentials = base64.b64encode(f"{name}:{password}".encode()).decode("ascii")
    return Proxy(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), credentials)


async def look_up(route: Route) -> Sequence[str]:
    """Step 1 of dialling: return the IP addresses of the host or proxy; ConnectionError if not found."""
    host, port = route.first
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        whose = "of the proxy in HTTPS_PROXY" if route.proxy else "of the aggregator's address"
        raise ConnectionError(
            f"the host name {host} {whose} is not found ({error.strerror}): check it, and this machine's DNS"
        ) from None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def reach(route: Route, addresses: Sequence[str], context: ssl.SSLContext, silence: float) -> ProxyTalk:
    """Step 2 of dialling: connect to one of the addresses; return the connection's protocol, or raise.

    `context`: of the TLS with a proxy at `https://`; `silence` as of `tune`.
    """
    host, port = route.first
    secured: dict[str, Any] = {}
    if route.proxy is not None and route.proxy.scheme == "https":
        secured = {"ssl": context, "server_hostname": host, "ssl_handshake_timeout": TLS_SECONDS}
    reason = "no address"
    for address in addresses:
        try:
            async with asyncio.timeout(ADDRESS_SECONDS if len(addresses) > 1 else None):
                _, talk = await asyncio.get_running_loop().create_connection(
                    ProxyTalk, address, port, **secured
                )
        except ssl.SSLCertVerificationError as error:
            fault = _certificate_fault(error, host, "the proxy's certificate")
            raise PeerFault(str(route.proxy), fault, Check.TLS) from None
        except OSError as error:
            reason = reason_of(error) or "no answer"
            continue
        tune(talk.transport.get_extra_info("socket"), silence)
        return talk
    named = f"the proxy {route.proxy} of HTTPS_PROXY" if route.proxy else f"{host}:{port}"
    hint = "" if route.proxy else "; where only a proxy may go out, set HTTPS_PROXY"
    raise ConnectionError(f"{named} does not accept a connection ({reason}){hint}")


async def pass_proxy(route: Route, talk: ProxyTalk) -> None:
    """Step 3 of dialling: ask the proxy, if any, for a tunnel to the host; raise an error if it refuses."""
    if route.proxy is None:
        return
    target = f"{route.address.host}:{route.address.port}"
    if ":" in route.address.host:
        target = f"[{route.address.host}]:{route.address.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if route.proxy.credentials is not None:
        lines.append(f"Proxy-Authorization: Basic {route.proxy.credentials}")
    head = await talk.ask("".join(f"{line}\r\n" for line in lines).encode("ascii") + b"\r\n")
    status = _STATUS.match(head)
    if status is None:
        raise PeerFault(
            str(route.proxy), "answers something else than HTTP: is HTTPS_PROXY right?", Check.MALFORMED
        )
    code = int(status[1])
    if 200 <= code < 300:
        return
    if code >= 500:
        raise ConnectionError(f"the proxy {route.proxy} does not reach {target} (status {code})")
    todo = {
        403: f"its rules forbid it: ask those who run it to allow CONNECT to {target}",
        404: "is HTTPS_PROXY the address of a proxy?",
        405: "is HTTPS_PROXY the address of a proxy?",
        407: "it wants a name and a password: HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT",
    }.get(code, "is HTTPS_PROXY right?")
    raise PeerFault(
        str(route.proxy), f"refuses the connection to {target} (status {code}): {todo}", Check.REFUSED
    )


async def secure(route: Route, talk: ProxyTalk, context: ssl.SSLContext) -> asyncio.Transport:
    """Step 4 of dialling: run the outer TLS with the web server; return the transport, or raise."""
    host = route.address.host
    shown = str(route.address)
    try:
        transport = await asyncio.get_running_loop().start_tls(
            talk.transport,
            talk,
            context,
            server_hostname=host,
            ssl_handshake_timeout=TLS_SECONDS,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )
    except ssl.SSLCertVerificationError as error:
        raise PeerFault(
            shown, _certificate_fault(error, host, "the certificate of its HTTPS server"), Check.TLS
        ) from None
    except ssl.SSLEOFError:
        raise ConnectionError(f"{host} hangs up during the outer TLS handshake") from None
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise PeerFault(
            shown,
            f"the outer TLS failed ({reason}): does HTTPS answer at {route.address.server}?",
            Check.TLS,
        ) from None
    except OSError as error:
        reason = error.strerror or str(error) or "end of file"
        raise ConnectionError(f"the connection to {host} broke in the outer TLS ({reason})") from None
    if transport is None:
        raise ConnectionError(f"the connection to {host} broke in the outer TLS")
    talk.transport = transport
    return transport


async def upgrade(route: Route, transport: asyncio.Transport, ping: float) -> WebSocketTransport:
    """Step 5 of dialling: open a WebSocket, pinged every `ping` seconds; return its byte stream, or raise."""
    uri = parse_uri(str(route.address))
    stream = _Dialled(ClientProtocol(uri, max_size=MESSAGE_BYTES, logger=_LOG))
    transport.set_protocol(stream)
    stream.connection_made(transport)
    try:
        await stream.ask()
    except BaseException:
        stream.abort()
        raise
    stream.ping_every(ping)
    return stream


class WebDialler:
    """Dialler of web addresses (wss://): DNS, proxy, outer TLS and WebSocket, then the members' TLS.

    `step`: what the attempt under way waits for.
    """

    def __init__(
        self, address: WebAddress, settings: WebSettings, contexts: Contexts, silence: float
    ) -> None:
        """`contexts`: of the channel's TLS; `silence` as of `tune`."""
        self._route = find_route(address)
        self._settings = settings
        self._outer = settings.client_context()
        self._contexts = contexts
        self._silence = silence
        self.step = ""

    async def attempt(self) -> tuple[asyncio.Transport, Stream]:
        """Connect once through the web server; return (inner TLS transport, stream), or raise an error."""
        route = self._route
        first = "{}:{}".format(*route.first)
        self.step = f"the addresses of {route.first[0]}"
        addresses = await look_up(route)
        self.step = f"a connection to {first}"
        talk = await reach(route, addresses, self._outer, self._silence)
        try:
            self.step = f"the answer of the proxy {route.proxy}"
            await pass_proxy(route, talk)
            self.step = f"the outer TLS with {route.address.server}"
            transport = await secure(route, talk, self._outer)
            self.step = f"the answer of {route.address} to the upgrade"
            stream = await upgrade(route, transport, self._settings.ping)
            self.step = f"the TLS of the member at {route.address}"
        except BaseException:
            talk.transport.abort()
            raise
        return await within(stream, self._contexts.client, server_side=False, seconds=TLS_SECONDS + BACKUP)


class ProxyTalk(asyncio.Protocol):
    """asyncio protocol of a new connection: can ask a proxy for a tunnel, before the outer TLS starts."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the connection (called by asyncio)."""
        if isinstance(transport, asyncio.Transport):
            self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect the proxy's answer; end the wait of `ask` after its header (called by asyncio)."""
        self._received += data
        # What a proxy sends before it is asked, or after its head, is no HTTP: the host speaks second.
        if self._answer is None or self._answer.done():
            return
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if end:
            # A refusal has a body, which nobody reads.
            self._answer.set_result(bytes(head + end))
        elif len(head) > HEAD_BYTES:
            self._answer.set_result(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the awaited answer: the proxy has closed the connection (called by asyncio)."""
        if self._answer is not None and not self._answer.done():
            reason = "" if exc is None else f" ({exc})"
            self._answer.set_exception(
                ConnectionError(f"the proxy ends the connection instead of an answer{reason}")
            )

    async def ask(self, request: bytes) -> bytes:
        """Send a request to the proxy and return its answer's header; b"" if that is too long."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer


class _Dialled(WebSocketTransport):
    """Client's end of a WebSocket, as a byte stream for TLS."""

    def __init__(self, client: ClientProtocol) -> None:
        super().__init__(client)
        self._client = client
        self._shown = str(WebAddress(client.uri.host, client.uri.port, client.uri.path))
        self._head = bytearray()
        self._is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask(self) -> None:
        """Ask the web server for a WebSocket upgrade; return when it agrees, raise if it refuses."""
        self._client.send_request(self._client.connect())
        self._flush()
        await self._is_open

    def opened(self, response: Response) -> None:  # noqa: ARG002 - its errors are in `handshake_exc`
        """End the wait for the upgrade if it is accepted; hold incoming bytes until TLS reads them."""
        if self._client.handshake_exc is None:
            self.pause_reading()
            self._settle(None)

    def data_received(self, data: bytes) -> None:
        """Read the answer to the upgrade; end the wait with PeerFault if it is no WebSocket."""
        if not self._is_open.done() and self._is_refused(data):
            return
        super().data_received(data)
        error = self._client.handshake_exc
        if error is not None:
            self._settle(
                PeerFault(
                    self._shown,
                    f"answers no WebSocket upgrade ({error}): another server is there, or a balancer that "
                    "is not set to pass on WebSockets",
                    Check.MALFORMED,
                )
            )

    def _is_refused(self, data: bytes) -> bool:
        """Collect the answer's head; if that refuses, return True, and end the wait once it is whole."""
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        status = _STATUS.match(head + end)
        if status is None or int(status[1]) == _SWITCHING:
            return False
        if end or len(head) > HEAD_BYTES:
            location = _LOCATION.search(head)
            where = "" if location is None else location[1].decode("latin-1")
            self._settle(self._refusal(int(status[1]), where))
        return True

    def lost(self, error: Exception | None) -> None:
        """End the wait for the upgrade, if it lasts, with an error: the connection has ended."""
        reason = "" if error is None else f" ({error})"
        self._settle(
            ConnectionError(f"{self._shown} ends the connection instead of an answer to the upgrade{reason}")
        )

    def _settle(self, error: Exception | None) -> None:
        """End the wait for the upgrade, with an error if given; only the first call counts."""
        if self._is_open.done():
            return
        if error is None:
            self._is_open.set_result(None)
        else:
            self._is_open.set_exception(error)

    def _refusal(self, code: int, location: str) -> Exception:
        """Return the error for an HTTP status that refuses the upgrade."""
        if code >= 500:
            return ConnectionError(
                f"{self._shown} answers with status {code}: a balancer that does not reach the aggregator, "
                "which may not be running"
            )
        todo = {
            200: "another server, or a page, is there: compare host and path with the aggregator's",
            400: "a balancer or firewall takes the WebSocket headers away: it must pass on Upgrade",
            401: "it wants a login, which this address has no room for",
            403: "a firewall or balancer forbids it",
            404: "nothing has this path there: compare it with the aggregator's address in its session file",
            426: "a balancer or firewall takes the WebSocket headers away: it must pass on Upgrade",
        }.get(code, "it is no aggregator")
        if 300 <= code < 400:
            todo = f"it redirects to {location[:200]!r}: redirects are not followed, write the final address"
        return PeerFault(self._shown, f"refuses the upgrade with status {code}: {todo}", Check.REFUSED)


def _certificate_fault(error: ssl.SSLCertVerificationError, host: str, whose: str) -> str:
    """Return words on what is wrong with a web server's or proxy's certificate, and what to do."""
    code = error.verify_code
    date = time.strftime("it shows %Y-%m-%d %H:%M UTC", time.gmtime())
    if code == _EXPIRED:
        return (
            f"{whose} has expired: whoever runs {host} must renew it (or this machine's clock is wrong, "
            f"{date})"
        )
    if code == _NOT_YET:
        return f"{whose} is not valid yet: is this machine's clock right ({date})?"
    if code in _OTHER_HOST:
        return f"{whose} is of another host than {host}: compare the address, or get one for {host}"
    if code in _UNKNOWN:
        return (
            f"{whose} is signed by none that this machine trusts ({error.verify_message}): where a firewall "
            "inspects TLS, or an organisation signs its own, name its CA file (--ca)"
        )
    return f"{whose} is refused ({error.verify_message})"
