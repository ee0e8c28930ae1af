"""Serves a log that grows, with its pages, over plain HTTP: read-only, without cookies, no other origin.

Each connection is answered by a thread of this process, which only reads: a run never waits for a viewer.
"""

from __future__ import annotations

import re
import select
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path

from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.logs.audits.log_page import MOST_RECEIPT, LogPages
from smpc_dp.logs.audits.log_watch import LogWatch
from smpc_dp.logs.serve import BoardServer, LogHandler
from smpc_dp.report.pages import style_source

# Streams of events at a time, and seconds of one: browsers open the next one by themselves.
MOST_STREAMS, STREAM_SECONDS = 8, 600.0
# Seconds between two looks whether a viewer has left, and in which an event must be taken.
LOOK_SECONDS, TAKE_SECONDS = 1.0, 10.0
# Bytes of a posted receipt, each of its own up to three.
_MOST_BODY = 3 * MOST_RECEIPT
_MOST_FIELDS = 4
_ENTRY = re.compile(r"/entry/([1-9][0-9]{0,11})(\.json)?")
_NUMBER = re.compile(r"[1-9][0-9]{0,11}")
_POLICY = (
    f"default-src 'none'; style-src {style_source()}; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept",
}


class LogPageServer(BoardServer):
    """HTTP server of a log, or of the newest log of a folder, and of its pages; see `BoardServer`.

    `watch` audits the log meanwhile.
    """

    def __init__(self, watch: LogWatch, host: str = "127.0.0.1", port: int = 0, **limits: float) -> None:
        super().__init__(watch.path, host, port, **limits)
        self.watch = watch
        self.pages = LogPages(watch, self.url.removesuffix("/board.jsonl"))
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)

    def log_path(self) -> Path:
        """Return the path of the newest log."""
        run = self.watch.run
        if run is None:
            raise LocalError(f"{self.path}: has no log yet")
        return run.path


class _PageHandler(LogHandler):
    """Handler of one HTTP request for a page."""

    server: LogPageServer

    def answer(self, *, body: bool) -> None:
        """Send the answer to a GET or, without its body, to a HEAD."""
        path, _, query = self.path.partition("?")
        given = _fields(query) if len(query) < 1024 else {}
        first = int(given["from"]) if _NUMBER.fullmatch(given.get("from", "")) else 1
        pages = self.server.pages
        plain: dict[str, Callable[[], str]] = {
            "/parties": lambda: pages.parties(first, given.get("name", "")),
            "/entries": lambda: pages.entries(first),
            "/receipt": pages.receipt,
        }
        try:
            if path == "/" and "text/html" in self.headers.get("Accept", ""):
                self._send_page(pages.overview(self.headers.get("Host", "")), body=body)
            elif path in plain:
                self._send_page(plain[path](), body=body)
            elif (entry := _ENTRY.fullmatch(path)) is not None:
                self._send_entry(int(entry[1]), line=entry[2] is not None, body=body)
            elif path == "/page.js":
                content = files("smpc_dp.report").joinpath("templates", "board.js").read_bytes()
                self._send(content, "text/javascript; charset=utf-8", body=body)
            elif path in ("/session-log.jsonl", "/checkpoint"):
                self._send_beside("jsonl" if path.endswith("jsonl") else "checkpoint", body=body)
            elif path == "/events" and body:
                self._stream()
            else:
                super().answer(body=body)
        except SmpcError:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def do_POST(self) -> None:  # noqa: N802 - a name of http.server
        """Find a receipt; it is not stored."""
        length = self.headers.get("Content-Length", "")
        if self.path != "/receipt":
            self.send_error(HTTPStatus.NOT_IMPLEMENTED)
        elif not _NUMBER.fullmatch(length):
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
        elif int(length) > _MOST_BODY:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            content = self.rfile.read(int(length)).decode("ascii", "replace")
            try:
                page = self.server.pages.receipt(_fields(content).get("receipt", ""))
            except SmpcError:
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            else:
                self._send_page(page, body=True)

    def _send_entry(self, number: int, *, line: bool, body: bool) -> None:
        """Send the page of an entry, or its line."""
        pages = self.server.pages
        if line:
            content, _ = pages.line(number)
            if content is not None:
                self._send(content + b"\n", "application/json", body=body)
                return
        else:
            page = pages.entry(number)
            if page is not None:
                self._send_page(page, body=body)
                return
        self.send_error(HTTPStatus.NOT_FOUND)

    def _send_beside(self, kind: str, *, body: bool) -> None:
        """Send the session log, or its checkpoint, which stand beside the log."""
        path = self.server.pages.beside(kind)
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_lines(
            path, "application/jsonl" if kind == "jsonl" else "text/plain; charset=utf-8", body=body
        )

    def _send_page(self, page: str, *, body: bool) -> None:
        self._send(page.encode("utf-8", "replace"), "text/html; charset=utf-8", body=body)

    def _send(self, content: bytes, kind: str, *, body: bool) -> None:
        self.send_head(kind, len(content), _HEADERS)
        if body:
            self.wfile.write(content)

    def _stream(self) -> None:
        """Send an event for each change, at most as fast as they are taken; then end."""
        if not self.server.streams.acquire(blocking=False):
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self.limit(TAKE_SECONDS)
            self.send_response(HTTPStatus.OK)
            for name, value in {"Content-Type": "text/event-stream", **_HEADERS}.items():
                self.send_header(name, value)
            self.end_headers()
            self._send_events()
        finally:
            self.server.streams.release()

    def _send_events(self) -> None:
        watch, known = self.server.watch, -1
        end = time.monotonic() + STREAM_SECONDS
        while time.monotonic() < end and not watch.stopped and not self._has_left():
            # An event that is not taken in time ends the stream.
            self.limit(LOOK_SECONDS + TAKE_SECONDS)
            version = watch.wait(known, LOOK_SECONDS)
            if version != known:
                known = version
                self.wfile.write(f"event: change\ndata: {version}\n\n".encode())
                self.wfile.flush()

    def _has_left(self) -> bool:
        """Tell whether the viewer has closed the connection: its place is for the next one."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


LogPageServer.handler = _PageHandler


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a query or a form; none of one with too many."""
    try:
        return dict(urllib.parse.parse_qsl(text, max_num_fields=_MOST_FIELDS, keep_blank_values=True))
    except ValueError:
        return {}
