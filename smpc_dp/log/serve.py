"""Serves a log to auditors, read-only, over plain HTTP: everything in it is public and signed.

GET /board.jsonl is the log as JSON lines; GET / says what is served, as JSON. Nothing else is answered.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from smpc_dp.errors import LocalError
from smpc_dp.log.store import Store, is_store

LOG = "/board.jsonl"
# Requests at a time; one more is turned away.
MAX_REQUESTS = 16
# Seconds for a whole request, however it drips in; for an answer, besides what the least rate needs.
REQUEST_SECONDS = 10.0
ANSWER_SECONDS = 30.0
LEAST_RATE = 1 << 16
CHUNK = 1 << 16


class BoardServer(ThreadingHTTPServer):
    """Serves the board at `path`, a SQLite file or JSON lines, once `serve_forever` is called.

    A client that is slow is hung up on: it has `request_seconds` for its whole request, and to take the
    answer `answer_seconds` and the time that `LEAST_RATE` bytes a second need. It listens from the beginning.
    Raises LocalError if there is no such file, or the address cannot be had.
    """

    daemon_threads = True

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
        if not path.is_file():
            raise LocalError(f"{path}: no such board")
        self.path = path
        self._indices = threading.BoundedSemaphore(MAX_REQUESTS)
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise LocalError(f"cannot listen on {host}:{port} ({error.strerror})") from None

    @property
    def url(self) -> str:
        """Where the log is."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}{LOG}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or hang up if there are too many."""
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
        """Say nothing of a client that hangs up."""


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    protocol_version = "HTTP/1.0"

    def setup(self) -> None:
        self._limit(self.server.request_seconds)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self._timer.cancel()

    def _limit(self, seconds: float) -> None:
        """Hang up after so many seconds from now, whatever is under way: each read or write then ends."""
        self._timer = threading.Timer(seconds, self._hang_up)
        self._timer.daemon = True
        self._timer.start()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: a line for each request would be written by strangers."""

    def _answer(self, *, body: bool) -> None:
        try:
            if self.path == LOG:
                size, parts = _content(self.server.path)
                self._head("application/jsonl", size)
                if body:
                    for part in parts:
                        self.wfile.write(part)
            elif self.path == "/":
                text = json.dumps({"log": LOG, "format": "smpc-dp board"}).encode() + b"\n"
                self._head("application/json", len(text))
                if body:
                    self.wfile.write(text)
            else:
                self.send_error(HTTPStatus.NOT_FOUND)
        except LocalError:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _head(self, kind: str, size: int) -> None:
        self._timer.cancel()
        self._limit(self.server.answer_seconds + size / LEAST_RATE)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()


def _content(path: Path) -> tuple[int, Iterator[bytes]]:
    """Return the size of a log and its parts, as it is now: what is appended meanwhile is left out."""
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
    with store:
        for line in store.lines(last):
            yield line + b"\n"


def _parts(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(CHUNK, size))):
            size -= len(part)
            yield part
