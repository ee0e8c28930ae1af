"""Serves a log to auditors, read-only, over plain HTTP: all of it is public and signed.

GET /board.jsonl is the log as JSON lines; GET / describes it, as JSON. Other requests are refused.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from smpc_dp.errors import LocalError
from smpc_dp.logs.store import Store, is_store

LOG = "/board.jsonl"
# Concurrent requests; further ones are refused.
MAX_REQUESTS = 16
# Seconds for a whole request, and for an answer besides the time at the least rate.
REQUEST_SECONDS = 10.0
ANSWER_SECONDS = 30.0
LEAST_RATE = 1 << 16
CHUNK = 1 << 16


class BoardServer(ThreadingHTTPServer):
    """HTTP server of the board at `path`, a SQLite file or JSON lines, once `serve_forever` is called.

    A slow client is disconnected: it has `request_seconds` for its whole request, and for the answer
    `answer_seconds` and the time that `LEAST_RATE` bytes a second need. The server listens from its creation
    on. Raises LocalError if there is no such file, or the address is not available.
    """

    daemon_threads = True
    handler: ClassVar[type[BaseHTTPRequestHandler]]

    def __init__(
        self,
        path: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        request_seconds: float = REQUEST_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.request_seconds, self.answer_seconds = request_seconds, answer_seconds
        if not path.exists():
            raise LocalError(f"{path}: no such board")
        self.path = path
        self._indices = threading.BoundedSemaphore(MAX_REQUESTS)
        try:
            super().__init__((host, port), self.handler)
        except OSError as error:
            raise LocalError(f"cannot listen on {host}:{port} ({error.strerror})") from None

    def log_path(self) -> Path:
        """Return the path of the log that is served; raise LocalError if there is none yet."""
        return self.path

    @property
    def url(self) -> str:
        """URL of the log."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}{LOG}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or disconnect if there are too many requests."""
        if not self._indices.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self._indices.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._indices.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the errors of clients that disconnect."""


class LogHandler(BaseHTTPRequestHandler):
    """Handler of one HTTP request."""

    server: BoardServer
    protocol_version = "HTTP/1.0"
    _timer: threading.Timer | None = None

    def setup(self) -> None:
        self.limit(self.server.request_seconds)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def limit(self, seconds: float) -> None:
        """Disconnect after so many seconds from now: each read or write under way then ends."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._hang_up)
        self._timer.daemon = True
        self._timer.start()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: strangers would write a line for each request."""

    def answer(self, *, body: bool) -> None:
        """Send the answer to a GET or, without its body, to a HEAD."""
        try:
            if self.path == LOG:
                self.send_lines(self.server.log_path(), "application/jsonl", body=body)
            elif self.path == "/":
                text = json.dumps({"log": LOG, "format": "smpc-dp board"}).encode() + b"\n"
                self.send_head("application/json", len(text))
                if body:
                    self.wfile.write(text)
            else:
                self.send_error(HTTPStatus.NOT_FOUND)
        except LocalError:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def send_lines(self, path: Path, kind: str, *, body: bool) -> None:
        """Send a file, or the lines of a store, as far as it goes now."""
        size, parts = _content(path)
        self.send_head(kind, size)
        if body:
            for part in parts:
                self.wfile.write(part)

    def send_head(
        self, kind: str, size: int, more: Mapping[str, str] | None = None, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        """Send the headers of an answer of `size` bytes, with further ones, and set its time limit."""
        self.limit(self.server.answer_seconds + size / LEAST_RATE)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()


BoardServer.handler = LogHandler


def _content(path: Path) -> tuple[int, Iterator[bytes]]:
    """Return the current size of a log in bytes, and its parts.

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
    """Yield the lines of a SQLite store up to entry `last`."""
    with store:
        for line in store.lines(last):
            yield line + b"\n"


def _parts(path: Path, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file in blocks."""
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(CHUNK, size))):
            size -= len(part)
            yield part
