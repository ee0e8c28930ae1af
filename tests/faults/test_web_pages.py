"""Pages of an aggregator's logs on its own port: what they show, to whom, and what they do not let in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from anyio.to_thread import current_default_thread_limiter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smpc_dp.errors import LocalError
from smpc_dp.logs.audits import log_watch
from smpc_dp.logs.audits.log_watch import LogWatch
from smpc_dp.logs.log import read_header
from smpc_dp.session import pages
from smpc_dp.session.pages import showing_logs
from smpc_dp.transport import web_server
from smpc_dp.transport.web_server import WebServer
from smpc_dp.web_settings import WebSettings

VECTORS = Path(__file__).resolve().parents[2] / "protocols" / "gopa" / "vectors"
WAIT = 60.0
BOARD = "/smpc/board"


def log_of(name: str) -> list[bytes]:
    stored = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return [line.encode() for line in stored["log"]]


LINES = log_of("verifiable-run-honest")
HEADER = read_header(LINES[0])


class Site:
    """The aggregator of the session of LINES, or of another one, at a path of a server."""

    def __init__(self, folder: Path, server: WebServer, path: str, session: str = HEADER.session) -> None:
        self.folder = folder
        folder.mkdir()
        member = SimpleNamespace(address=f"wss://hub.example.org{path}")
        self._membership = SimpleNamespace(
            web=WebSettings(pages=True),
            name="relay",
            session=SimpleNamespace(
                digest=b"\x00" * 32 if session != HEADER.session else bytes.fromhex(DIGEST),
                canonical_json=session.encode,
                roster=SimpleNamespace(member=lambda _name: member),
            ),
        )
        self._listener = SimpleNamespace(show=lambda routes: server.show(path, routes))

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with showing_logs(cast("Any", self._membership), self.folder) as show:
            show(cast("Any", self._listener))
            yield

    def put_log(self, lines: list[bytes] = LINES, name: str = "request-1-d9c6243b2c1eae3a.jsonl") -> None:
        (self.folder / name).write_bytes(b"".join(line + b"\n" for line in lines))


DIGEST = "b5168ceeef29a04919d2ad0ea4f227eb5e4f69789739871238201817cf2fdc26"


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_watch, "LOOK_SECONDS", 0.01)


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    made = await web_server.open_server("127.0.0.1", 0, WebSettings(), 256, 60.0, lambda *_: None, "pages")
    yield made
    await made.close()


async def get(server: WebServer, path: str, *headers: str) -> tuple[int, str]:
    """Return the status and the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"GET {path} HTTP/1.1", "Host: evil.example", "Accept: text/html", *headers]
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    async with asyncio.timeout(WAIT):
        answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer


async def wait_for(server: WebServer, words: str) -> str:
    async with asyncio.timeout(WAIT):
        while words not in (page := (await get(server, f"{BOARD}/"))[1]):
            await asyncio.sleep(0.02)
    return page


async def test_an_aggregator_shows_its_log_below_its_path(tmp_path: Path, server: WebServer) -> None:
    site = Site(tmp_path / "board", server, "/smpc")
    async with site.serving():
        assert "No run has begun" in (await get(server, f"{BOARD}/"))[1]
        site.put_log()
        page = await wait_for(server, "Every check of this log passed")
        # Behind what ends TLS neither scheme nor host are known.
        assert ">https://hub.example.org/smpc/board/board.jsonl</span>" in page
        assert "evil" not in page
        links = re.findall(r'(?:href|src|action)="([^"]*)"', page)
        assert len(links) > 20
        for link in {*links} - {f"{BOARD}/checkpoint", f"{BOARD}/session-log.jsonl"}:
            assert link.startswith(f"{BOARD}/") or link.startswith("#")
            if not link.startswith("#"):
                assert (await get(server, link))[0] == 200
        status, log = await get(server, f"{BOARD}/board.jsonl")
        assert (status, log.partition("\r\n\r\n")[2].encode()) == (200, b"".join(x + b"\n" for x in LINES))
        status, answer = await get(server, BOARD)
        assert status == 308
        assert f"location: {BOARD}/\r\n" in answer
    assert (await get(server, f"{BOARD}/"))[0] == 200
    server.hide("/smpc")
    assert (await get(server, f"{BOARD}/"))[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/board/",
        "/board.jsonl",
        "/smpc",
        "/smpc/",
        "/smpc/parties",
        f"{BOARD}/../session.toml",
        f"{BOARD}/..%2f..%2fkeys%2faggregator.key",
        f"{BOARD}/%2e%2e/keys/aggregator.key",
        f"{BOARD}//board.jsonl",
        f"{BOARD}/board/",
        f"{BOARD}/request-1-d9c6243b2c1eae3a.jsonl",
        f"{BOARD}/entry/../board.jsonl",
        f"{BOARD}/entry/9999999999999",
        f"{BOARD}/board.jsonl?path=/etc/passwd",
        f"{BOARD}/other.jsonl",
        f"{BOARD}/parties/",
        "/other/board/",
        f"/other{BOARD}/",
    ],
)
async def test_nothing_else_is_reached(tmp_path: Path, server: WebServer, path: str) -> None:
    site = Site(tmp_path / "board", server, "/smpc")
    site.put_log()
    (tmp_path / "board" / "other.jsonl").write_bytes(b"secret\n")
    async with site.serving():
        status, answer = await get(server, path)
    assert status == 404
    assert "secret" not in answer


async def test_sessions_show_none_of_each_others_logs(tmp_path: Path, server: WebServer) -> None:
    """Not even where both keep theirs in one folder."""
    one = Site(tmp_path / "one", server, "/smpc")
    other = Site(tmp_path / "other", server, "/smpc/board", '{"another": "session"}')
    async with one.serving(), other.serving():
        one.put_log()
        other.put_log()
        await wait_for(server, "Every check of this log passed")
        for _ in range(3):
            assert "No run has begun" in (await get(server, "/smpc/board/board/"))[1]
            await asyncio.sleep(0.05)
        assert (await get(server, "/smpc/board/board/board.jsonl"))[0] == 500
        assert (await get(server, "/smpc/board/board/entry/1"))[0] == 404
        assert (await get(server, "/smpc/board/entry/1"))[0] == 200
        # A newer one of another session does not take the place of the own one.
        one.put_log([LINES[0].replace(b"lower", b"loWer")], "request-2-0000000000000000.jsonl")
        assert (await get(server, f"{BOARD}/board.jsonl"))[1].encode().endswith(LINES[-1] + b"\n")
        assert "Every check of this log passed" in (await get(server, f"{BOARD}/"))[1]


async def test_no_pages_unless_the_settings_say_so(tmp_path: Path, server: WebServer) -> None:
    site = Site(tmp_path / "board", server, "/smpc")
    site._membership.web = WebSettings()
    async with site.serving():
        assert (await get(server, f"{BOARD}/"))[0] == 404


async def test_a_log_is_audited_only_while_somebody_looks(tmp_path: Path, server: WebServer) -> None:
    site = Site(tmp_path / "board", server, "/smpc")
    site.put_log()
    watches: list[LogWatch] = []

    class Watch(LogWatch):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            watches.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_watch, "LogWatch", Watch)
        patch.setattr(pages, "IDLE_SECONDS", 0.5)
        async with site.serving():
            assert (await get(server, f"{BOARD}/board.jsonl"))[0] == 200
            await asyncio.sleep(0.1)
            [watch] = watches
            assert watch.run is None
            await wait_for(server, "Every check of this log passed")
            async with asyncio.timeout(WAIT):
                while watch.is_looked_at:
                    await asyncio.sleep(0.05)
            followed = watch.run
            site.put_log(name="request-2-d9c6243b2c1eae3a.jsonl")
            await asyncio.sleep(0.1)
            assert watch.run is followed
            await get(server, f"{BOARD}/")
            async with asyncio.timeout(WAIT):
                while watch.run is followed:
                    await asyncio.sleep(0.02)


async def test_one_log_is_audited_at_a_time(tmp_path: Path, server: WebServer) -> None:
    """One that waits for more, or is stopped, leaves the turn to others."""
    one, other = Site(tmp_path / "one", server, "/one"), Site(tmp_path / "other", server, "/smpc")
    one.put_log(LINES[:-1])
    other.put_log()
    async with one.serving():
        async with asyncio.timeout(WAIT):
            while f"{len(LINES) - 2} entries hold so far" not in (await get(server, "/one/board/"))[1]:
                await asyncio.sleep(0.02)
        assert await asyncio.to_thread(log_watch.AUDITING.acquire, timeout=WAIT)
        try:
            async with other.serving():
                assert "A log begins" in await wait_for(server, "A log begins")
                await asyncio.sleep(0.1)
                assert "A log begins" in (await get(server, f"{BOARD}/"))[1]
        finally:
            log_watch.AUDITING.release()
        async with other.serving():
            await wait_for(server, "Every check of this log passed")
    assert log_watch.AUDITING.acquire(timeout=0)
    log_watch.AUDITING.release()


def test_a_watch_that_is_stopped_takes_no_further_entry(tmp_path: Path) -> None:
    watch = LogWatch(tmp_path)
    watch.start()
    watch.stop()
    with pytest.raises(LocalError, match="is watched no longer"):
        watch.took(cast("Any", None), 0, cast("Any", None))


async def test_a_page_that_nobody_waits_for_is_counted_until_it_is_made(server: WebServer) -> None:
    """Else who asks and leaves fills the memory, and all others wait."""
    go_on = threading.Event()
    made: list[str] = []

    def make(path: str) -> str:
        if path == "/one":
            go_on.wait(WAIT)
        made.append(path)
        return path

    def page(path: str) -> Route:
        async def answer(request: Request) -> Response:
            return Response(await web_server.made(request, make, path))

        return Route("/page", answer)

    for path in ("/one", "/two"):
        server.show(path, [page(path)])
    for _ in range(2 * web_server.MOST_ANSWERS):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /one/board/page HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.transport.abort()
    async with asyncio.timeout(WAIT):
        while len(server.answering) < web_server.MOST_ANSWERS:
            await asyncio.sleep(0.01)
    assert (await get(server, "/one/board/page"))[0] == 503
    # Nor does another session wait for pages of this one.
    assert (await get(server, "/two/board/page"))[0] == 200
    assert made == ["/two"]
    go_on.set()
    async with asyncio.timeout(WAIT):
        while server.answering:
            await asyncio.sleep(0.01)
    assert made.count("/one") == web_server.MOST_ANSWERS
    assert (await get(server, "/one/board/page"))[0] == 200


async def test_streams_of_events_take_no_thread(tmp_path: Path, server: WebServer) -> None:
    """Those that are there make the pages of all sessions."""
    site = Site(tmp_path / "board", server, "/smpc")
    async with site.serving():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET {BOARD}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(WAIT):
            await reader.readuntil(b"event: change")
        await asyncio.sleep(0.05)
        assert current_default_thread_limiter().borrowed_tokens == 0
        writer.transport.abort()


async def test_answers_of_one_session_leave_those_of_another(server: WebServer) -> None:
    async def page(_request: Request) -> Response:
        return Response(bytes(16 << 20))

    for path in ("/one", "/two"):
        server.show(path, [Route("/page", page)])

    async def ask(path: str) -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(WAIT):
            return (await reader.readline()).split()[1], writer

    asked = [await ask("/one/board/page") for _ in range(web_server.MOST_ANSWERS + 1)]
    assert [status for status, _ in asked] == [b"200"] * web_server.MOST_ANSWERS + [b"503"]
    asked.append(await ask("/two/board/page"))
    assert asked[-1][0] == b"200"
    for _, writer in asked:
        writer.transport.abort()
