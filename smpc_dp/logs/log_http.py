"""Downloads a log over HTTP from a server that need not be honest, within one deadline."""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError

# From the first connection to the last byte, unless the caller gives another limit.
HTTP_SECONDS = 600.0
# Longest wait for a single connection attempt or answer.
_STEP_SECONDS = 60.0
_MAX_REDIRECTS = 4
_PORTS = {"http": 80, "https": 443}


@contextlib.contextmanager
def open_url(url: str, seconds: float) -> Iterator[tuple[BinaryIO, int | None]]:
    """Context manager of a download within `seconds`; yields a stream, and its size or None; LocalError.

    Raises LocalError if it cannot be read, also later, or takes longer than `seconds`.
    """
    if not seconds > 0:
        raise ConfigError.at("timeout", f"must be above 0, is {seconds:g}", ConfigCheck.RANGE)
    deadline = _Deadline(seconds)
    try:
        with _opener(deadline).open(url, timeout=deadline.left()) as answer:
            length = answer.headers.get("Content-Length", "")
            yield io.BufferedReader(cast("io.RawIOBase", answer)), int(length) if length.isdecimal() else None
    except urllib.error.URLError as error:
        raise LocalError(f"{url}: cannot read the log ({error.reason})") from None
    except (OSError, ValueError) as error:
        raise LocalError(f"{url}: cannot read the log ({error})") from None
    except http.client.HTTPException as error:
        raise LocalError(f"{url}: cannot read the log ({type(error).__name__}: no right HTTP)") from None


class _Deadline:
    """Deadline of one download over HTTP: connecting, reads and writes must end before this time."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def left(self) -> float:
        """Return how many seconds the next wait may take; raise TimeoutError after the deadline."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.passed()
        return min(left, _STEP_SECONDS)

    def passed(self) -> TimeoutError:
        """Return the TimeoutError that says that the server is too slow."""
        return TimeoutError(
            f"nothing for {_STEP_SECONDS:g} s, or not all of it within {self._seconds:g} s, the timeout"
        )

    def connect(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Return a socket connected to a host's first address that answers in time; OSError if none does."""
        failure: OSError | None = None
        for family, kind, number, _name, index in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, number)
            try:
                connection.settimeout(self.left())
                connection.connect(index)
            except OSError as error:
                connection.close()
                failure = error
            else:
                return connection
        self.left()
        raise failure or OSError(f"{address[0]} has no address")


class _TimedFile(io.RawIOBase):
    """Raw stream of the bytes that a socket receives; reads fail after a deadline."""

    def __init__(self, connection: socket.socket, deadline: _Deadline) -> None:
        super().__init__()
        self._connection, self._deadline = connection, deadline
        self._file = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Receive bytes into a buffer; return how many, 0 at the end; TimeoutError after the deadline."""
        self._connection.settimeout(self._deadline.left())
        try:
            return cast("io.RawIOBase", self._file).readinto(buffer)
        except TimeoutError:
            raise self._deadline.passed() from None

    def close(self) -> None:
        """Close the stream; the socket itself stays open until its own `close`."""
        self._file.close()
        super().close()


class _TimedSocket:
    """Wrapper of a socket, with the methods that `http.client` uses, that keeps to a deadline."""

    def __init__(self, connection: socket.socket, deadline: _Deadline) -> None:
        self._connection, self._deadline = connection, deadline

    def sendall(self, content: bytes) -> None:
        """Send all bytes; raise TimeoutError after the deadline."""
        self._connection.settimeout(self._deadline.left())
        self._connection.sendall(content)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """Return a buffered reader of the socket that raises TimeoutError after the deadline."""
        return io.BufferedReader(_TimedFile(self._connection, self._deadline))

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()


class _TimedHTTP(http.client.HTTPConnection):
    """HTTP connection whose connecting, reads and writes keep to a deadline."""

    def __init__(self, *args: Any, deadline: _Deadline, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline = deadline
        self._create_connection = deadline.connect

    def connect(self) -> None:
        """Connect to the server, with a socket that keeps to the deadline."""
        super().connect()
        self.sock = cast("Any", _TimedSocket(self.sock, self._deadline))


class _TimedHTTPS(_TimedHTTP, http.client.HTTPSConnection):
    """HTTPS connection whose connecting, reads and writes keep to a deadline."""


class _HTTP(urllib.request.HTTPHandler):
    """Handler of `urllib` that opens http URLs within a deadline."""

    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._connection = functools.partial(_TimedHTTP, deadline=deadline)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an http URL over a connection that keeps to the deadline; return the response."""
        return self.do_open(cast("Any", self._connection), req)


class _HTTPS(urllib.request.HTTPSHandler):
    """Handler of `urllib` that opens https URLs within a deadline."""

    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._connection = functools.partial(_TimedHTTPS, deadline=deadline)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an https URL over a connection that keeps to the deadline; return the response."""
        return self.do_open(cast("Any", self._connection), req)


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Handler of `urllib` that follows a redirection only to the server that was asked."""

    max_redirections = _MAX_REDIRECTS

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the request for a redirection to the same server; raise URLError for another server."""
        if _server(req.full_url) != _server(newurl):
            raise urllib.error.URLError(f"redirects to another server: {newurl[:200]!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _server(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of a URL (the scheme's own if not written), to compare servers."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _opener(deadline: _Deadline) -> urllib.request.OpenerDirector:
    """Return a `urllib` opener for http and https URLs only, within a deadline."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        _HTTP(deadline),
        _HTTPS(deadline),
        urllib.request.HTTPDefaultErrorHandler(),
        _SameServer(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
