"""Serves a log that grows, with its pages, over HTTP: read-only, without cookies, no other origin.

Answers are made in threads, which only read: a run never waits for a viewer.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from smpc_dp.errors import LocalError
from smpc_dp.logs.audits.log_page import MOST_RECEIPT, LogPages
from smpc_dp.logs.audits.log_server import ANSWER_SECONDS, HEADERS, LOG, LogServer, LogSite
from smpc_dp.logs.audits.log_watch import LogWatch
from smpc_dp.report.pages import style_source
from smpc_dp.transport.web_server import answer_within, made, no_such_page

# Streams of events at a time, and seconds of one: browsers open the next one by themselves.
MOST_STREAMS, STREAM_SECONDS = 8, 600.0
# Seconds between two looks whether there is a change, and in which an event must be taken.
LOOK_SECONDS, TAKE_SECONDS = 1.0, 10.0
# Bytes of a posted receipt, each of its own up to three.
_MOST_BODY = 3 * MOST_RECEIPT
_MOST_FIELDS = 4
_ENTRY = re.compile(r"([1-9][0-9]{0,11})(\.json)?")
_NUMBER = re.compile(r"[1-9][0-9]{0,11}")
_POLICY = (
    f"default-src 'none'; style-src {style_source()}; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept",
}


class LogPageSite(LogSite):
    """Web site of a log, or of the newest in a folder: HTTP handlers for the log and its HTML pages.

    `watch` audits the log meanwhile.
    """

    def __init__(
        self, watch: LogWatch, pages: LogPages, root: str = "", answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        super().__init__(watch.path, root, answer_seconds)
        self.watch = watch
        self.pages = pages
        self._streams = 0

    def log_path(self) -> Path:
        """Return the path of the newest log at this moment; LocalError if there is none yet."""
        run = self.watch.run if self.watch.is_looked_at else None
        path = self.watch.newest() if run is None else run.path
        if path is None:
            raise LocalError(f"{self.path}: has no log yet")
        return path

    def routes(self) -> list[Route]:
        """Return the site's routes: which handler answers which URL path."""
        return [
            Route("/parties", self._parties),
            Route("/entries", self._entries),
            Route("/receipt", self._receipt),
            Route("/receipt", self._find_receipt, methods=["POST"]),
            Route("/entry/{number}", self._entry),
            Route("/page.js", self._script),
            Route("/session-log.jsonl", self._session_log),
            Route("/checkpoint", self._checkpoint),
            Route("/events", self._events),
            *super().routes(),
        ]

    async def describe(self, request: Request) -> Response:
        """Handle `/`: send a browser the HTML overview, other clients a JSON description of the log."""
        if "text/html" not in request.headers.get("Accept", ""):
            return await super().describe(request)
        return await self._page(request, lambda: self.pages.overview(request.headers.get("Host", "")))

    async def _parties(self, request: Request) -> Response:
        """Handle a request for the HTML page of parties, from the number or name in the query."""
        given = _fields(request.url.query)
        return await self._page(request, lambda: self.pages.parties(_first(given), given.get("name", "")))

    async def _entries(self, request: Request) -> Response:
        """Handle a request for the HTML page of log entries, from the number in the query."""
        return await self._page(request, lambda: self.pages.entries(_first(_fields(request.url.query))))

    async def _receipt(self, request: Request) -> Response:
        """Handle a request for the HTML page with the form that checks a receipt."""
        return await self._page(request, self.pages.receipt)

    async def _find_receipt(self, request: Request) -> Response:
        """Handle a posted receipt: send a page saying if the log has it. The receipt is not stored."""
        length = request.headers.get("Content-Length", "")
        if not _NUMBER.fullmatch(length) or "Transfer-Encoding" in request.headers:
            return PlainTextResponse("Length Required", 411)
        if int(length) > _MOST_BODY:
            return PlainTextResponse("Content Too Large", 413)
        # As long as its header says: in chunks it could be of any length, whatever that says.
        content = (await request.body()).decode("ascii", "replace")
        return await self._page(request, lambda: self.pages.receipt(_fields(content).get("receipt", "")))

    async def _entry(self, request: Request) -> Response:
        """Handle a request for a log entry: send its HTML page, or its raw line."""
        asked = _ENTRY.fullmatch(request.path_params["number"])
        if asked is None:
            return no_such_page()
        number = int(asked[1])
        if asked[2] is not None:
            line, _ = await made(request, self.pages.line, number)
            return no_such_page() if line is None else _answer(line + b"\n", "application/json")
        page = await made(request, self.pages.entry, number)
        return no_such_page() if page is None else _html(page)

    async def _script(self, _request: Request) -> Response:
        """Send the JavaScript that reloads a page when its log grows."""
        content = files("smpc_dp.report").joinpath("templates", "board.js").read_bytes()
        return _answer(content, "text/javascript")

    async def _session_log(self, request: Request) -> Response:
        """Send the session log file; a 404 if there is none."""
        return await self._send_beside(request, "jsonl", "application/jsonl")

    async def _checkpoint(self, request: Request) -> Response:
        """Send the checkpoint file of the session log; a 404 if there is none."""
        return await self._send_beside(request, "checkpoint", "text/plain")

    async def _send_beside(self, request: Request, kind: str, media: str) -> Response:
        """Send a file beside the log, the session log or its checkpoint; a 404 if it is missing."""
        path = await made(request, self.pages.beside, kind)
        return no_such_page() if path is None else await self.send_lines(request, path, media)

    async def _events(self, request: Request) -> Response:
        """Send server-sent events when the log has changed; refuse beyond a number of viewers."""
        if request.method == "HEAD":
            return no_such_page()
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Service Unavailable", 503)
        self._streams += 1
        return _Stream(self._changes(request), self._end_stream)

    async def _page(self, request: Request, make: Callable[[], str]) -> Response:
        """Return an HTTP response with a page, rendered by `make` in a worker thread."""
        self.watch.look()
        return _html(await made(request, make))

    def _end_stream(self) -> None:
        """Reduce the count of open event streams by one."""
        self._streams -= 1

    async def _changes(self, request: Request) -> AsyncIterator[str]:
        """Yield a server-sent event whenever the log is found changed, for at most STREAM_SECONDS."""
        known, end = -1, time.monotonic() + STREAM_SECONDS
        while time.monotonic() < end and not self.watch.stopped:
            # An event that is not taken in time ends the stream.
            answer_within(request, LOOK_SECONDS + TAKE_SECONDS)
            self.watch.look()
            if (version := self.watch.version) != known:
                known = version
                yield f"event: change\ndata: {version}\n\n"
            # In no thread: viewers of many sessions would take those that make pages.
            await asyncio.sleep(LOOK_SECONDS)


class LogPageServer(LogServer):
    """HTTP server of a log (or of the newest log in a folder), and of HTML pages about that log."""

    def __init__(self, watch: LogWatch, host: str = "127.0.0.1", port: int = 0, **limits: float) -> None:
        self.watch = watch
        super().__init__(watch.path, host, port, **limits)

    def make_site(self, answer_seconds: float) -> LogPageSite:
        """Return the request handlers of the site; each answer must be done in `answer_seconds`."""
        pages = LogPages(self.watch, self.url.removesuffix(LOG))
        return LogPageSite(self.watch, pages, answer_seconds=answer_seconds)


class _Stream(StreamingResponse):
    """HTTP response of server-sent events that calls `on_end` when it ends, for whatever reason."""

    def __init__(self, events: AsyncIterator[str], on_end: Callable[[], None]) -> None:
        super().__init__(events, headers={**_HEADERS, "Content-Type": "text/event-stream"})
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def _html(page: str) -> Response:
    """Return an HTTP response that contains an HTML page."""
    return _answer(page.encode("utf-8", "replace"), "text/html")


def _answer(content: bytes, media: str) -> Response:
    """Return an HTTP response with this content and media type, and the site's usual headers."""
    return Response(content, headers=_HEADERS, media_type=media)


def _first(given: dict[str, str]) -> int:
    """Return the number of the first row to show, from a query's field `from`; 1 if missing or wrong."""
    return int(given["from"]) if _NUMBER.fullmatch(given.get("from", "")) else 1


def _fields(text: str) -> dict[str, str]:
    """Parse a URL query or form to a dict; return an empty dict if it has too many fields."""
    try:
        return dict(urllib.parse.parse_qsl(text, max_num_fields=_MOST_FIELDS, keep_blank_values=True))
    except ValueError:
        return {}
