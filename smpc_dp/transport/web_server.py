"""HTTP server of an aggregator: sessions by the paths of their addresses, and pages (Starlette and uvicorn).

Pages are those of the server itself, and below the path of a session those of its logs.

uvicorn speaks HTTP/1.1 up to a page's answer or the upgrade; `websocket` takes over from there. Connections
are accepted as those over TCP, and bounded alike: uvicorn alone would wait for a request for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as PageRequest
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState
from websockets.http11 import Request
from websockets.server import ServerProtocol

from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError, TimeoutFault
from smpc_dp.transport.accept_loop import AcceptLoop, OnRefused, listening
from smpc_dp.transport.channel import CLOSE_SECONDS, now
from smpc_dp.transport.listener import BACKUP, as_fault
from smpc_dp.transport.sockets import tune
from smpc_dp.transport.strangers import HANDSHAKE_SECONDS, source_of
from smpc_dp.transport.websocket import MESSAGE_BYTES, WebSocketTransport
from smpc_dp.web_settings import Network, WebSettings, networks

HEAD_BYTES = 1 << 14
# Below the path of a session: its pages.
BOARD = "/board"
# Pages of a session, or of the server, that are answered at a time; seconds for an answer, unless the page
# says more.
MOST_ANSWERS = 16
ANSWER_SECONDS = 10.0
# Threads that make pages: the event loop of sessions waits for few of them where they all compute.
MAKERS = 2
# Characters of a text that is the port behind an address in a header.
_PORT = frozenset("0123456789")

# Admits the byte stream of a connection, which comes from an address, to a session.
Admit = Callable[["WebSocketTransport", socket.socket, str, AcceptLoop], Awaitable[None]]

T = TypeVar("T")

_LOG = logging.getLogger("smpc_dp.transport")


class WebServer:
    """HTTP server for sessions, each at a path: upgrades members to WebSockets and serves pages.

    Sessions are added by the paths of their addresses.
    """

    def __init__(
        self,
        sock: socket.socket,
        settings: WebSettings,
        most: int,
        silence: float,
        on_refused: OnRefused,
        label: str,
        pages: Sequence[Route] = (),
        *,
        seconds: float | None = None,
    ) -> None:
        """Arguments as of `AcceptLoop` and `tune`; raises LocalError for certificate files.

        `pages`: beside `/healthz` and `/readyz`; `seconds`: for a request, by default HANDSHAKE_SECONDS.
        """
        self._seconds = seconds
        self._sites: dict[str, Admit] = {}
        # Calls whose page is made, or has not been taken.
        self.answering: set[Call] = set()
        # Paths of sessions that are not served at the moment.
        self._expected: set[str] = set()
        self._pages = _Pages(self, pages)
        self._making = asyncio.Semaphore(MAKERS)
        # By the path of a session: one page of each is made at a time, and none waits for many of another.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._on_refused = on_refused
        self._silence = silence
        self._proxies = networks(settings.proxies)
        self._outer: dict[str, Any] = {}
        if (context := settings.server_context()) is not None:
            limits = {
                "ssl_handshake_timeout": HANDSHAKE_SECONDS + BACKUP,
                "ssl_shutdown_timeout": CLOSE_SECONDS,
            }
            self._outer = {"ssl": context, **limits}
        self._config = Config(
            self._pages,
            http=_Http,
            ws=_Upgrade,
            lifespan="off",
            # The logs of uvicorn may be those of another server in this process.
            log_config=None,
            # It would believe the header of anyone at 127.0.0.1.
            proxy_headers=False,
            server_header=False,
            date_header=False,
            headers=[("Connection", "close")],
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self._config.load()
        self._state = ServerState()
        self._state.default_headers = self._config.encoded_headers
        self.accepting = AcceptLoop(sock, most, self._serve, on_refused, label, self._source)

    @property
    def port(self) -> int:
        """Port on which the server listens."""
        return self.accepting.port

    def expect(self, path: str) -> None:
        """Answer 503 (try again later) at a path until a session is served there."""
        self._expected.add(path)

    def forget(self, path: str) -> None:
        """Answer 404 again at a path where a session was expected."""
        self._expected.discard(path)

    def refusal(self, path: str) -> tuple[int, str]:
        """Return HTTP status and text for a path without a session: 503 if expected, else 404."""
        return (503, "not served yet\n") if path in self._expected else (404, "no session has this path\n")

    def add(self, path: str, admit: Admit) -> None:
        """Serve a session at a path: `admit` gets its connections. ConfigError if the path is taken."""
        if path in self._sites:
            reason = f"another session is served at the path {path} already"
            raise ConfigError.at("address", reason, ConfigCheck.DUPLICATE)
        self._sites[path] = admit

    def remove(self, path: str) -> None:
        """Admit no more members at a path, whose session has ended."""
        self._sites.pop(path, None)

    def show(self, path: str, pages: Sequence[Route]) -> None:
        """Serve HTML pages of a session at PATH/board/."""
        self._pages.show(path, pages)

    def hide(self, path: str) -> None:
        """Stop serving the HTML pages of the session at a path."""
        self._pages.hide(path)
        self._locks.pop(path, None)

    @contextlib.asynccontextmanager
    async def making(self, path: str) -> AsyncIterator[None]:
        """Context manager that waits for the turn to render a page of a session, held within the block."""
        async with self._locks[path], self._making:
            yield

    def site(self, path: str) -> Admit | None:
        """Return the function that admits members at a path; None if no session is there."""
        return self._sites.get(path)

    @property
    def is_ready(self) -> bool:
        """Whether a session is served, so that members can connect."""
        return bool(self._sites)

    async def close(self) -> None:
        """Stop accepting and drop connections that are no channels; channels stay open."""
        await self.accepting.close()

    async def _serve(self, connection: socket.socket, address: str) -> None:
        """Serve one connection: answer with a page, or pass an upgraded one on; report a failure."""
        loop = asyncio.get_running_loop()
        call = Call(self, connection, address)
        admitted = None
        try:
            tune(connection, self._silence)
            async with asyncio.timeout(
                HANDSHAKE_SECONDS if self._seconds is None else self._seconds
            ) as limit:
                call.limit = limit
                await loop.connect_accepted_socket(
                    lambda: _Http(self._config, self._state, {"call": call}, loop), connection, **self._outer
                )
                admitted = await call.upgraded
        except TimeoutError:
            self._on_refused(call.address, TimeoutFault({call.address}, "connect", "no request in time"))
            return
        except OSError as error:
            self._on_refused(call.address, as_fault(error, call.address))
            return
        finally:
            call.release()
            # Not by the future: the task may be cancelled after that is set, and before it is seen here.
            if admitted is None:
                call.cut()
        if admitted is not None:
            admit, stream = admitted
            await admit(stream, connection, call.address, self.accepting)

    def _source(self, host: str, port: int) -> str:
        """Return the source that a connection counts as; each one from a proxy counts separately."""
        return f"{host}:{port}" if self.is_proxy(host) else source_of(host)

    def is_proxy(self, host: str) -> bool:
        """Tell whether an IP address is a proxy that the settings trust."""
        return _is_in(host, self._proxies)


async def open_server(
    host: str,
    port: int,
    settings: WebSettings,
    most: int,
    silence: float,
    on_refused: OnRefused,
    label: str,
    pages: Sequence[Route] = (),
) -> WebServer:
    """Return an HTTP server that listens at `host`:`port`; raise LocalError if nothing can listen there."""
    sock = await asyncio.to_thread(listening, host, port)
    sock.setblocking(False)
    try:
        server = WebServer(sock, settings, most, silence, on_refused, label, pages)
    except BaseException:
        sock.close()
        raise
    _LOG.info("%s: listens on %s:%d for HTTP", label, host, server.port)
    return server


class Call:
    """State of one HTTP connection to the server, up to a page's answer or the upgrade to a WebSocket.

    `address` names it in errors: by the header of a proxy, once the head of the request has come. `shown`:
    the path of the session whose page it asks for, "" for those of the server.
    """

    def __init__(self, server: WebServer, connection: socket.socket, address: str) -> None:
        self.server = server
        self.address = address
        self.shown = ""
        # Held by its connection, and while a page is made for it: that goes on when the connection has ended.
        self._holders = 1
        self.limit: asyncio.Timeout | None = None
        self.transport: asyncio.Transport | None = None
        self.upgraded: asyncio.Future[tuple[Admit, WebSocketTransport] | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._connection = connection

    def settle(self, result: tuple[Admit, WebSocketTransport] | None) -> None:
        """Set what the connection has become: an upgraded stream, or None if it has ended."""
        if not self.upgraded.done():
            self.upgraded.set_result(result)

    def cut(self) -> None:
        """Cut the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def take_header(self, values: Iterable[str]) -> None:
        """Set the address by a trusted proxy's X-Forwarded-For header, and count the connection there."""
        host = self.transport.get_extra_info("peername")[0] if self.transport is not None else ""
        if not self.server.is_proxy(host):
            return
        named = _forwarded(values, self.server.is_proxy)
        if named is not None:
            self.address = named
        self.server.accepting.comes_from(self._connection, source_of(named or host))

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Context manager within which the connection counts among those being answered."""
        self._holders += 1
        self.server.answering.add(self)
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Drop one hold on the connection; the last one takes it off those being answered."""
        self._holders -= 1
        if not self._holders:
            self.server.answering.discard(self)

    def answer(self, seconds: float) -> None:
        """Allow this many seconds for the answer; the connection no longer counts as a stranger's."""
        if self.limit is None or self.upgraded.done():
            # The connection has ended meanwhile.
            return
        self.server.accepting.authenticated(self._connection)
        self.limit.reschedule(now() + seconds)


class _Http(H11Protocol):
    """HTTP/1.1 protocol of one connection (uvicorn's), for one request or the upgrade to a WebSocket."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = _LOG
        self.access_log = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of a new HTTP connection (called by asyncio)."""
        if isinstance(transport, asyncio.Transport):
            self.app_state["call"].transport = transport
            super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the state of an HTTP connection that is lost (called by asyncio)."""
        super().connection_lost(exc)
        self.app_state["call"].settle(None)


class _Upgrade(WebSocketTransport):
    """Server's end of a WebSocket, as a byte stream; made by uvicorn for an upgrade request."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:  # noqa: ARG002
        self._server = ServerProtocol(max_size=MESSAGE_BYTES, logger=_LOG)
        super().__init__(self._server)
        self._call: Call = app_state["call"]

    def requested(self, request: Request) -> None:
        """Accept the upgrade if a session is served at the request's path; else refuse."""
        self._call.take_header(request.headers.get_all("X-Forwarded-For"))
        admit = self._call.server.site(request.path)
        if admit is None:
            self._server.send_response(self._server.reject(*self._call.server.refusal(request.path)))
            return
        response = self._server.accept(request)
        self._server.send_response(response)
        if response.status_code == 101:
            self.pause_reading()
            self._call.settle((admit, self))

    def lost(self, error: Exception | None) -> None:  # noqa: ARG002 - TLS is told
        """End the state of an upgraded connection that is lost."""
        self._call.settle(None)


class _Pages:
    """ASGI application that serves sessions' HTML pages and health checks, with a limit per session."""

    def __init__(self, server: WebServer, pages: Sequence[Route]) -> None:
        self._server = server
        health = {"/healthz": self._healthz, "/readyz": self._readyz}
        self._health = frozenset(health)
        own = [*(Route(path, answer) for path, answer in health.items()), *pages]
        # By the path of the session; "" are those of the server.
        self._shown = {"": _application(own)}

    def show(self, path: str, pages: Sequence[Route]) -> None:
        """Serve HTML pages of a session at PATH/board/."""

        async def below(_request: PageRequest) -> Response:
            return RedirectResponse(f"{path}{BOARD}/", 308)

        # A redirection to a path with a slash would name the scheme and the host of this server.
        below_it = Router(pages, redirect_slashes=False)
        self._shown[path] = _application([Route(path + BOARD, below), Mount(path + BOARD, below_it)])

    def hide(self, path: str) -> None:
        """Stop serving the HTML pages of the session at a path."""
        self._shown.pop(path, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        call: Call = scope["state"]["call"]
        headers = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        call.take_header(headers)
        # Of two paths, one of which begins with the other and goes on with /board, both have their pages: no
        # page has such a segment in its own path.
        before = f"{scope['path']}/".rpartition(f"{BOARD}/")[0]
        call.shown = before if before in self._shown else ""
        app = self._shown[call.shown]
        if scope["path"] in self._health:
            await app(scope, receive, send)
            return
        # Until the connection ends: what the client does not take is held for it.
        if sum(other.shown == call.shown for other in self._server.answering) >= MOST_ANSWERS:
            await PlainTextResponse("too many requests at once\n", 503)(scope, receive, send)
            return
        call.answer(ANSWER_SECONDS)
        with call.answering():
            await app(scope, receive, send)

    async def _healthz(self, _request: PageRequest) -> Response:
        """Answer a health check with status 200: this process is alive."""
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: PageRequest) -> Response:
        """Answer a readiness check: status 200 if members can connect, else 503."""
        if self._server.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("no session is served\n", 503)


def _application(routes: Sequence[BaseRoute]) -> Starlette:
    """Return an ASGI application of these routes; its errors tell clients nothing."""
    return Starlette(routes=routes, exception_handlers={SmpcError: _failed})


async def made(request: PageRequest, make: Callable[..., T], *arguments: Any) -> T:
    """Run a function in a worker thread, in its session's turn to render a page; return its result."""
    call: Call = request.scope["state"]["call"]
    async with call.server.making(call.shown):
        return await run_in_threadpool(make, *arguments)


def answer_within(request: PageRequest, seconds: float) -> None:
    """Allow the HTTP answer to a request this many seconds from now."""
    call: Call = request.scope["state"]["call"]
    call.answer(seconds)


def no_such_page() -> Response:
    """Return the HTTP answer 404, not found."""
    return PlainTextResponse("Not Found", 404)


async def _failed(_request: PageRequest, _error: Exception) -> Response:
    """Return the HTTP answer for a page that failed, without the error's text."""
    return PlainTextResponse("Internal Server Error", 500)


def _forwarded(values: Iterable[str], is_proxy: Callable[[str], bool]) -> str | None:
    """Return the last address in X-Forwarded-For that is not a trusted proxy; None if there is none."""
    for entry in reversed(",".join(values).split(",")):
        host = _bare(entry.strip())
        if host is None:
            return None
        if not is_proxy(host):
            return host
    return None


def _bare(entry: str) -> str | None:
    """Return the IP address in a header's entry, without a port; None for other text."""
    host, colon, port = entry.rpartition(":")
    # The address of a zone has a free text, and is none that came through a network.
    if "%" in entry:
        return None
    for text in (entry, host if colon and port and _PORT.issuperset(port) else ""):
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    return None


def _is_in(host: str, listed: tuple[Network, ...]) -> bool:
    """Tell whether an IP address lies in one of these networks."""
    if not listed:
        return False
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in listed)
