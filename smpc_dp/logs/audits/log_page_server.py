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
    """What a server answers of a log, or of the newest log of a folder, and its pages; see `LogSite`.

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
        """Return the path of the newest log."""
        run = self.watch.run if self.watch.is_looked_at else None
        path = self.watch.newest() if run is None else run.path
        if path is None:
            raise LocalError(f"{self.path}: has no log yet")
        return path

    def routes(self) -> list[Route]:
        """Return what is answered at which path."""
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
        """Answer with the first page to who asks for one, else with a description of the log."""
        if "text/html" not in request.headers.get("Accept", ""):
            return await super().describe(request)
        return await self._page(request, lambda: self.pages.overview(request.headers.get("Host", "")))

    async def _parties(self, request: Request) -> Response:
        given = _fields(request.url.query)
        return await self._page(request, lambda: self.pages.parties(_first(given), given.get("name", "")))

    async def _entries(self, request: Request) -> Response:
        return await self._page(request, lambda: self.pages.entries(_first(_fields(request.url.query))))

    async def _receipt(self, request: Request) -> Response:
        return await self._page(request, self.pages.receipt)

    async def _find_receipt(self, request: Request) -> Response:
        """Find a receipt; it is not stored."""
        length = request.headers.get("Content-Length", "")
        if not _NUMBER.fullmatch(length) or "Transfer-Encoding" in request.headers:
            return PlainTextResponse("Length Required", 411)
        if int(length) > _MOST_BODY:
            return PlainTextResponse("Content Too Large", 413)
        # As long as its header says: in chunks it could be of any length, whatever that says.
        content = (await request.body()).decode("ascii", "replace")
        return await self._page(request, lambda: self.pages.receipt(_fields(content).get("receipt", "")))

    async def _entry(self, request: Request) -> Response:
        """Answer with the page of an entry, or its line."""
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
        content = files("smpc_dp.report").joinpath("templates", "board.js").read_bytes()
        return _answer(content, "text/javascript")

    async def _session_log(self, request: Request) -> Response:
        return await self._send_beside(request, "jsonl", "application/jsonl")

    async def _checkpoint(self, request: Request) -> Response:
        return await self._send_beside(request, "checkpoint", "text/plain")

    async def _send_beside(self, request: Request, kind: str, media: str) -> Response:
        """Answer with the session log, or its checkpoint, which stand beside the log."""
        path = await made(request, self.pages.beside, kind)
        return no_such_page() if path is None else await self.send_lines(request, path, media)

    async def _events(self, request: Request) -> Response:
        """Answer with an event for each change, at most as fast as they are taken."""
        if request.method == "HEAD":
            return no_such_page()
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Service Unavailable", 503)
        self._streams += 1
        return _Stream(self._changes(request), self._end_stream)

    async def _page(self, request: Request, make: Callable[[], str]) -> Response:
        """Return the answer with a page, which is made in a thread."""
        self.watch.look()
        return _html(await made(request, make))

    def _end_stream(self) -> None:
        self._streams -= 1

    async def _changes(self, request: Request) -> AsyncIterator[str]:
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
    """HTTP server of a log, or of the newest log of a folder, and of its pages; see `LogServer`."""

    def __init__(self, watch: LogWatch, host: str = "127.0.0.1", port: int = 0, **limits: float) -> None:
        self.watch = watch
        super().__init__(watch.path, host, port, **limits)

    def make_site(self, answer_seconds: float) -> LogPageSite:
        """Return what is answered."""
        pages = LogPages(self.watch, self.url.removesuffix(LOG))
        return LogPageSite(self.watch, pages, answer_seconds=answer_seconds)


class _Stream(StreamingResponse):
    """Answer with events, whose place is free when the viewer has left, however that ends."""

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
    return _answer(page.encode("utf-8", "replace"), "text/html")


def _answer(content: bytes, media: str) -> Response:
    return Response(content, headers=_HEADERS, media_type=media)


def _first(given: dict[str, str]) -> int:
    """Return the number of the first row to show."""
    return int(given["from"]) if _NUMBER.fullmatch(given.get("from", "")) else 1


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a query or a form; none of one with too many."""
    try:
        return dict(urllib.parse.parse_qsl(text, max_num_fields=_MOST_FIELDS, keep_blank_values=True))
    except ValueError:
        return {}
