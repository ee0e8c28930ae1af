"""Logs from servers that want to hold their auditor up, or send it elsewhere."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.logs import log_http
from smpc_dp.logs.audits.audit import audit
from smpc_dp_lab.vectors.verifiable_runs import honest

LOG = b"".join(line + b"\n" for line in honest().lines)
# Answers one request; it may send as it likes until the client is gone.
Answer = Callable[[socket.socket, str], None]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """Serve each request by `answer`; yield the URL of the server and the paths that were asked for."""
    paths: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    path = connection.recv(1 << 16).split(b" ")[1].decode()
                    paths.append(path)
                    answer(connection, path)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", paths
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def the_log(connection: socket.socket, _path: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LOG) + LOG)


def moved(connection: socket.socket, where: str) -> None:
    connection.sendall(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % where.encode())


def test_a_redirect_to_the_same_server_is_followed() -> None:
    def answer(connection: socket.socket, path: str) -> None:
        if path == "/there":
            the_log(connection, path)
        else:
            moved(connection, "/there")

    with serving(answer) as (url, paths):
        assert audit(f"{url}/here", threads=1).entries == len(honest().entries)
    assert paths == ["/here", "/there"]


@pytest.mark.parametrize("scheme", ["http", "https", "ftp", "file"])
def test_a_redirect_to_another_server_is_not_followed(scheme: str) -> None:
    with serving(the_log) as (other, requested):
        target = other.replace("http:", f"{scheme}:") + "/log"
        with serving(lambda connection, _: moved(connection, target)) as (url, _):
            with pytest.raises(LocalError, match="cannot read the log"):
                audit(f"{url}/log")
            # By another name it is another server too.
            by_name = url.replace("127.0.0.1", "localhost")
        with (
            serving(lambda connection, _: moved(connection, by_name)) as (url, _),
            pytest.raises(LocalError, match="redirects to another server"),
        ):
            audit(f"{url}/log")
    assert requested == []


def test_redirects_end() -> None:
    numbers = itertools.count()
    with (
        serving(lambda connection, _: moved(connection, f"/{next(numbers)}")) as (url, paths),
        pytest.raises(LocalError, match="cannot read the log"),
    ):
        audit(f"{url}/log")
    assert len(paths) <= 6


def drip(connection: socket.socket, content: bytes) -> None:
    """Send a byte each 20 ms, which no timeout of a single read ever notices."""
    for index in range(len(content)):
        connection.sendall(content[index : index + 1])
        threading.Event().wait(0.02)


@pytest.mark.parametrize("where", ["status", "headers", "body"])
def test_a_server_that_drips_is_given_up(where: str) -> None:
    whole = b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 30_000 + b"\r\n\r\n" + LOG
    start = {"status": 0, "headers": 25, "body": whole.index(b"\r\n\r\n") + 4}[where]

    def answer(connection: socket.socket, _path: str) -> None:
        connection.sendall(whole[:start])
        drip(connection, whole[start:])

    with serving(answer) as (url, _), pytest.raises(LocalError, match=r"not all of it within 0\.3 s"):
        audit(f"{url}/log", timeout=0.3)


def test_a_server_that_says_nothing_is_given_up() -> None:
    gone = threading.Event()

    def answer(_connection: socket.socket, _path: str) -> None:
        gone.wait(30)

    with serving(answer) as (url, _):
        with pytest.raises(LocalError, match="cannot read the log"):
            audit(f"{url}/log", timeout=0.2)
        gone.set()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_timeout_that_is_none(seconds: float) -> None:
    with pytest.raises(ConfigError, match="timeout: must be above 0"):
        audit("http://127.0.0.1:9/log", timeout=seconds)


def test_the_deadline_is_the_one_that_the_documents_name() -> None:
    assert log_http.HTTP_SECONDS == 600
