"""Serves a log to auditors, read-only, over plain HTTP: all of it is public and signed.

GET /board.jsonl is the log as JSON lines; GET / describes it, as JSON. Other requests are refused.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.logs.store import Store, is_store
from smpc_dp.transport.accept_loop import listening
from smpc_dp.transport.sockets import SILENCE_SECONDS
from smpc_dp.transport.strangers import STRANGERS
from smpc_dp.transport.web_server import WebServer, answer_within, made, no_such_page
from smpc_dp.web_settings import WebSettings

LOG = "/board.jsonl"
# Seconds for a whole request, and for an answer besides the time at the least rate.
REQUEST_SECONDS = 10.0
ANSWER_SECONDS = 30.0
LEAST_RATE = 1 << 16
CHUNK = 1 << 16
HEADERS: Mapping[str, str] = {"X-Content-Type-Options": "nosniff"}

_LOG = logging.getLogger("smpc_dp.logs")


class LogSite:
    """HTTP handlers that serve one log, a SQLite file or JSON lines, read-only."""

    def __init__(self, path: Path, root: str = "", answer_seconds: float = ANSWER_SECONDS) -> None:
        """`root`: the path below which the answers are; `answer_seconds`: as of `LogServer`."""
        self.path = path
        self.root = root
        self._answer_seconds = answer_seconds

    def log_path(self) -> Path:
        """Return the path of the served log; raise LocalError if there is none yet."""
        return self.path

    def routes(self) -> list[Route]:
        """Return the site's routes: which handler answers which URL path."""
        return [Route(LOG, self.send_log), Route("/", self.describe)]

    async def send_log(self, request: Request) -> Response:
        """Handle a request for the log: send all its lines up to now."""
        if request.url.query:
            return no_such_page()
        return await self.send_lines(request, await made(request, self.log_path), "application/jsonl")

    async def describe(self, _request: Request) -> Response:
        """Handle `/`: send a JSON description of the log."""
        return JSONResponse({"log": self.root + LOG, "format": "smpc-dp board"}, headers=dict(HEADERS))

    async def send_lines(self, request: Request, path: Path, kind: str) -> Response:
        """Send the present content of a file, or the lines of a SQLite log, as media type `kind`."""
        size, parts = await made(request, _content, path)
        answer_within(request, self._answer_seconds + size / LEAST_RATE)
        headers = {**HEADERS, "Content-Length": str(size)}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=kind)
        return StreamingResponse(parts, headers=headers, media_type=kind)


class LogServer:
    """HTTP server that lets anyone download one log; `serve_forever` answers requests.

    A slow client is disconnected: it has `request_seconds` for its whole request, and for the answer
    `answer_seconds` and the time that `LEAST_RATE` bytes a second need. The server listens from its creation
    on. Raises LocalError if there is no such file, or the address is not available.
    """

    def __init__(
        self,
        path: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        request_seconds: float = REQUEST_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        if not path.exists():
            raise LocalError(f"{path}: no such board")
        self.path = path
        self._request_seconds = request_seconds
        self._socket = listening(host, port)
        self._socket.setblocking(False)
        bound = self._socket.getsockname()
        self._host: str = bound[0]
        self.server_port: int = bound[1]
        self._stopping = threading.Event()
        self._serving: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.site = self.make_site(answer_seconds)

    def make_site(self, answer_seconds: float) -> LogSite:
        """Return the HTTP handlers of this server; called once, when the port is bound."""
        return LogSite(self.path, answer_seconds=answer_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def url(self) -> str:
        """The URL at which the log is served."""
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{shown}:{self.server_port}{LOG}"

    def serve_forever(self) -> None:
        """Answer HTTP requests until another thread calls `shutdown`."""
        asyncio.run(self._serve())

    def shutdown(self) -> None:
        """Make `serve_forever` return, now or when it is called."""
        self._stopping.set()
        if self._serving is not None:
            loop, stopped = self._serving
            loop.call_soon_threadsafe(stopped.set)

    async def _serve(self) -> None:
        """Run the web server until `shutdown` was called."""
        stopped = asyncio.Event()
        self._serving = asyncio.get_running_loop(), stopped
        server = WebServer(
            self._socket,
            WebSettings(),
            STRANGERS,
            SILENCE_SECONDS,
            _refused,
            "log",
            self.site.routes(),
            seconds=self._request_seconds,
        )
        try:
            if not self._stopping.is_set():
                await stopped.wait()
        finally:
            self._serving = None
            await server.close()


def _refused(who: str, error: SmpcError) -> None:
    """Write a debug message on a connection that was refused, for instance as too slow."""
    _LOG.debug("refused %s: %s", who, error)


def _content(path: Path) -> tuple[int, Iterator[bytes]]:
    """Return the log's size in bytes, and an iterator of its content; LocalError if it is unreadable.

    What is appended meanwhile is left out.
    """
    if is_store(path):
        store = Store.open(path)
        last, size = store.extent()
        return size, _stored(store, last)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise LocalError(f"{path}: cannot read the log ({error.strerror})") from None
    return size, _parts(path, size)


def _stored(store: Store, last: int) -> Iterator[bytes]:
    """Yield the lines of a log in SQLite, with line feeds, through entry number `last`."""
    with store:
        for line in store.lines(last):
            yield line + b"\n"


def _parts(path: Path, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file in blocks."""
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(CHUNK, size))):
            size -= len(part)
            yield part
