"""Lines about the way to an address `wss://host/path`: name, TCP, proxy, outer TLS and upgrade."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from smpc_dp.errors import ConfigError, LocalError, PeerFault
from smpc_dp.identity.address import WebAddress
from smpc_dp.session.check.lines import ConnectionCheck, FailedCheck
from smpc_dp.transport.endpoint import ATTEMPT_SECONDS, Endpoint
from smpc_dp.transport.inquiry import certificate_within

if TYPE_CHECKING:
    from smpc_dp.transport.web_dial import Route
    from smpc_dp.transport.websocket import WebSocketTransport

# Takes the check and the text of a step that has passed.
OnPassed = Callable[[ConnectionCheck, str], object]
T = TypeVar("T")


class WebWay:
    """Diagnosis of the way to an aggregator behind a web server (`wss://`): proxy, TLS, WebSocket."""

    def __init__(self, address: WebAddress, endpoint: Endpoint) -> None:
        self._address = address
        self._endpoint = endpoint

    async def open(self, on_passed: OnPassed) -> WebSocketTransport:
        """Connect to the web address, and return the byte stream; raise FailedCheck at a failing step."""
        # Not at the top: most sessions need no HTTP.
        from smpc_dp.transport import web_dial

        address, host = self._address, self._address.host
        route, outer = self._route(), self._outer()
        proxy = route.proxy
        named = f"the proxy {proxy}" if proxy else host
        todo = (
            "Correct HTTPS_PROXY on this host; where no proxy is needed, leave it unset, or list the host in "
            "NO_PROXY."
            if proxy
            else "Correct the address in the session file. Where only a proxy may go out, set HTTPS_PROXY to "
            "http://PROXY:PORT."
        )
        addresses = await _step("name", web_dial.look_up(route), todo)
        on_passed("name", f"{named} is {', '.join(addresses)}")
        if not proxy:
            todo = (
                f"Whoever runs {host} starts the web server, or the aggregator, that has port {address.port} "
                f"there, and opens it in the firewall. {todo}"
            )
        talk = await _step("tcp", web_dial.reach(route, addresses, outer, self._endpoint.silence), todo)
        on_passed("tcp", f"{named} accepts connections")
        try:
            await _step(
                "proxy",
                web_dial.pass_proxy(route, talk),
                f"Correct HTTPS_PROXY on this host, or ask those who run {named} to let CONNECT to "
                f"{host}:{address.port} pass.",
            )
            passed = f"{named} lets connections to {host}:{address.port} pass" if proxy else "none is set"
            on_passed("proxy", passed)
            transport = await _step(
                "outer TLS",
                web_dial.secure(route, talk, outer),
                f"Compare the clock of this host (`date -u`). If it is right, whoever runs {host} renews or "
                "corrects its certificate; where a firewall inspects TLS, "
                "name its certificates with --ca. The members' own TLS is another one, inside of this.",
            )
            on_passed("outer TLS", f"{host} has a certificate that this host trusts")
            stream = await _step(
                "upgrade",
                web_dial.upgrade(route, transport, self._endpoint.web.ping),
                f"Compare host and path with the aggregator's session file. Whoever runs {host} must pass "
                f"WebSockets of {address.path} on to the aggregator, which must be running.",
            )
        except BaseException:
            talk.transport.abort()
            raise
        on_passed("upgrade", f"{address.path} answers with a WebSocket")
        return stream

    async def shown_certificate(self) -> bytes | None:
        """Connect, and return the TLS certificate (DER) shown inside the WebSocket, or None."""
        return await certificate_within(await self.open(lambda _check, _text: None))

    def _route(self) -> Route:
        """Return the route to the web address, by a proxy if set; FailedCheck for a wrong proxy setting."""
        from smpc_dp.transport.web_dial import find_route

        try:
            return find_route(self._address)
        except ConfigError as error:
            raise FailedCheck("proxy", str(error), "Correct HTTPS_PROXY on this host.") from None

    def _outer(self) -> ssl.SSLContext:
        """Return the TLS context for the web server; raise FailedCheck if it cannot be made."""
        try:
            return self._endpoint.web.client_context()
        except LocalError as error:
            raise FailedCheck(
                "outer TLS", str(error), "Name a file of certificates (PEM) with --ca."
            ) from None


async def _step(check: ConnectionCheck, step: Awaitable[T], todo: str) -> T:
    """Wait for a step of connecting, with a time limit; raise FailedCheck with advice if it fails."""
    try:
        async with asyncio.timeout(ATTEMPT_SECONDS):
            return await step
    except TimeoutError:
        raise FailedCheck(check, f"no answer in {ATTEMPT_SECONDS:g} s", todo) from None
    except PeerFault as error:
        raise FailedCheck(check, str(error), todo) from None
    except OSError as error:
        raise FailedCheck(check, str(error), todo) from None
