"""Channels in WebSocket messages, through proxies and servers that end TLS, and what is no smpc-dp."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from websockets.utils import accept_key

from smpc_dp.errors import ConfigError, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.identity.address import WebAddress
from smpc_dp.identity.roster import Roster
from smpc_dp.session.local import free_port
from smpc_dp.transport import web_dial, web_listener, web_server
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.endpoint import Endpoint, dial, listen
from smpc_dp.web_settings import WebSettings
from tests.faults.conftest import SESSION, WAIT, Net, Server, digest_of
from tests.outer_certificates import Authority
from tests.relays import ConnectProxy, Relay

PATH = "/smpc"
UPGRADED = re.compile(rb"GET /smpc HTTP/1\.1\r\n")
# An upgrade of a client that knows RFC 6455 alone.
REQUEST = (
    b"GET /smpc HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
SECRET = b"a row of a patient"


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


class WebNet(Net):
    """Members of `Net` and an aggregator at wss://localhost:PORT/smpc; PORT is the listener's or another."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.authority = Authority(folder)
        self.files = self.authority.sign("localhost")
        self.client = WebSettings(ca_file=self.authority.file)
        self.own_port = free_port()
        self.lead_to(self.own_port)

    def lead_to(self, port: int, host: str = "localhost", path: str = PATH) -> None:
        """Write another address into the roster."""
        address = f"wss://{host}:{port}{path}"
        self.address = address
        self.roster = Roster(
            replace(member, address=address) if member.name == "agg" else member for member in self.members
        )

    def web(
        self, who: str, web: WebSettings | None = None, seconds: float = 30.0, frames: float = 30.0
    ) -> Endpoint:
        return Endpoint(
            identity=self.identities[who],
            roster=self.roster,
            session_digest=digest_of(SESSION),
            session=lambda: SESSION,
            connect_timeout=seconds,
            frame_timeout=frames,
            web=web or self.client,
        )

    async def serve(
        self, *, tls: bool = True, proxies: tuple[str, ...] = (), seconds: float = 30.0
    ) -> Server:
        """Listen, with the outer TLS or for plain HTTP."""
        channels: asyncio.Queue[Channel] = asyncio.Queue()
        refusals: asyncio.Queue[tuple[str, SmpcError]] = asyncio.Queue()

        def refuse(who: str, error: SmpcError) -> None:
            refusals.put_nowait((who, error))

        files = self.files if tls else (None, None)
        settings = WebSettings(certificate=files[0], certificate_key=files[1], proxies=proxies)
        endpoint = self.web("agg", settings, seconds)
        listener = await listen(endpoint, "127.0.0.1", self.own_port, channels.put_nowait, refuse)
        self.listeners.append(listener)
        return Server(listener, channels, refusals)

    async def call(self, who: str = "alice", *, seconds: float = 30.0) -> Channel:
        channel = await dial(self.web(who, seconds=seconds), "agg")
        self.opened.append(channel)
        return channel


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[WebNet]:
    made = WebNet(tmp_path)
    yield made
    await made.close()


def stop_reading(writer: asyncio.StreamWriter) -> None:
    assert isinstance(writer.transport, asyncio.Transport)
    writer.transport.pause_reading()


async def exchange(mine: Channel, theirs: Channel, *contents: bytes) -> None:
    """Send messages both ways at once."""
    for content in contents or (SECRET,):
        for one, other in ((mine, theirs), (theirs, mine)):
            _, received = await asyncio.gather(one.send(content), other.receive())
            assert bytes(received) == content


async def test_messages_of_all_sizes_go_both_ways(web: WebNet) -> None:
    server = await web.serve()
    mine = await web.call()
    theirs = await server.channel()
    assert (mine.peer, theirs.peer) == ("agg", "alice")
    await exchange(mine, theirs, b"", b"x", bytes(65_536), bytes(65_537), bytes(range(256)) * 12_000)
    assert await mine.answers()
    assert await theirs.answers()
    await asyncio.gather(mine.close(), theirs.close())
    with pytest.raises(ChannelClosed) as ended:
        await theirs.receive()
    assert ended.value.clean


async def test_a_party_behind_a_proxy_reaches_an_aggregator_behind_what_ends_tls(
    web: WebNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What proxy and balancer see holds host and path, and nothing of the members or of their messages."""
    server = await web.serve(tls=False)
    credentials = base64.b64encode(b"ward:pass word").decode()
    async with (
        Relay(web.own_port, web.files).open() as balancer,
        ConnectProxy(credentials=credentials).open() as proxy,
    ):
        web.lead_to(balancer.port)
        monkeypatch.setenv("HTTPS_PROXY", f"http://ward:pass%20word@127.0.0.1:{proxy.port}")
        server_side = await web_pair(web, server)
        await exchange(*server_side, SECRET * 100)
        assert proxy.targets == [f"localhost:{balancer.port}"]
        assert balancer.connections == 1
        unmasked = balancer.unmasked()
        # The inner TLS begins with a record of its handshake.
        assert unmasked.startswith(b"\x16\x03")
        assert len(unmasked) > len(SECRET * 100)
        seen = bytes(balancer.sent + balancer.received + unmasked)
        assert UPGRADED.match(balancer.sent)
        for hidden in (SECRET[:8], b"alice", b"agg\x00", b"greeting", b"welcome", digest_of(SESSION)):
            assert hidden not in seen
        assert b"localhost" in seen
        assert b"GET /smpc" not in proxy.seen


async def test_a_proxy_may_be_reached_over_tls(web: WebNet, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await web.serve()
    async with ConnectProxy(certificate=web.files).open() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        await exchange(*await web_pair(web, server), bytes(300_000))
        assert proxy.targets == [f"localhost:{web.own_port}"]
        with pytest.raises(PeerFault, match="the proxy's certificate is signed by none") as raised:
            await dial(web.web("bob", WebSettings()), "agg")
        assert raised.value.culprit == proxy.url
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("localhost", "127.0.0.1"))
        with pytest.raises(PeerFault, match="the proxy's certificate is of another host than 127"):
            await web.call("bob")
        assert len(proxy.targets) == 1


@pytest.mark.parametrize(
    ("host", "listed", "direct"),
    [
        ("hub.example.org", "example.org", True),
        ("hub.example.org", "hub.example.org:8443", False),
        ("badexample.org", "example.org", False),
        ("192.0.2.7", "192.0.2.7", True),
        ("2001:db8::1", "2001:db8::1", True),
        ("2001:db8::1", "[2001:db8::1]:443", True),
        ("2001:db8::1", "2001:db8::2", False),
    ],
)
def test_hosts_that_need_no_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str, listed: str, direct: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setenv("NO_PROXY", listed)
    assert (web_dial.find_route(WebAddress(host, 443, PATH)).proxy is None) == direct


async def web_pair(web: WebNet, server: Server, who: str = "alice") -> tuple[Channel, Channel]:
    mine = await web.call(who)
    return mine, await server.channel()


async def test_no_proxy_is_used_for_hosts_that_need_none(
    web: WebNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await web.serve()
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "other.example.org,localhost")
    await exchange(*await web_pair(web, server))


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:3128", "socks5://127.0.0.1:1080", "http://", "http://a:b@127.0.0.1:99999", "http://h/p"],
)
async def test_a_proxy_that_is_none_is_refused_without_its_password(
    web: WebNet, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", url)
    with pytest.raises(ConfigError, match="HTTPS_PROXY: is no URL of an HTTP proxy") as raised:
        await web.call()
    assert "a:b" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n", "407.*name and a password: HTTPS_PROXY="),
        (b"HTTP/1.1 403 No\r\n\r\n<html>", "403.*ask those who run it to allow CONNECT to localhost:"),
        (b"HTTP/1.1 405 Method Not Allowed\r\n\r\n", "405.*HTTPS_PROXY the address of a proxy"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "something else than HTTP"),
        (b"x" * 20_000, "something else than HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 4000, "something else than HTTP"),
    ],
)
async def test_refusals_of_a_proxy_say_what_to_do(
    web: WebNet, monkeypatch: pytest.MonkeyPatch, answer: bytes, match: str
) -> None:
    async with ConnectProxy(answer).open() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(PeerFault, match=match) as raised:
            await web.call()
        assert raised.value.culprit == proxy.url


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (
            b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            r"the proxy http://127\.0\.0\.1:[0-9]+ does not reach localhost",
        ),
        (b"", "the proxy ends the connection"),
    ],
)
async def test_what_may_pass_at_a_proxy_is_tried_again(
    web: WebNet, monkeypatch: pytest.MonkeyPatch, answer: bytes, match: str
) -> None:
    async with ConnectProxy(answer).open() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(TimeoutFault, match=match):
            await web.call(seconds=1.0)
        assert len(proxy.targets) > 1


async def test_a_proxy_that_is_not_there_is_named(web: WebNet, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    with pytest.raises(
        TimeoutFault, match=f"the proxy http://127.0.0.1:{port} of HTTPS_PROXY does not accept"
    ):
        await web.call(seconds=0.5)


async def test_an_unknown_host_is_named(web: WebNet) -> None:
    web.lead_to(443 + 1, "hub.invalid")
    with pytest.raises(
        TimeoutFault, match=r"the host name hub\.invalid of the aggregator's address is not found"
    ):
        await web.call(seconds=0.5)


@pytest.mark.parametrize(
    ("certificate", "match"),
    [
        ({"host": "localhost", "first": -5, "last": -1}, "has expired: whoever runs localhost must renew it"),
        ({"host": "localhost", "first": 1, "last": 5}, "not valid yet: is this machine's clock right"),
        ({"host": "hub.example.org"}, "is of another host than localhost"),
    ],
)
async def test_a_wrong_outer_certificate_says_what_is_wrong(
    web: WebNet, certificate: dict[str, object], match: str
) -> None:
    web.files = web.authority.sign(**certificate)  # type: ignore[arg-type]
    server = await web.serve()
    with pytest.raises(PeerFault, match=match) as raised:
        await web.call()
    assert raised.value.culprit == web.address
    assert (await server.refused())[0].startswith("127.0.0.1:")


async def test_an_outer_certificate_of_an_unknown_authority_names_the_option(
    web: WebNet, tmp_path: Path
) -> None:
    await web.serve()
    other = WebSettings(ca_file=Authority(tmp_path, "other").file)
    for settings in (WebSettings(), other):
        with pytest.raises(PeerFault, match=r"signed by none that this machine trusts .*CA file \(--ca\)"):
            await dial(web.web("alice", settings), "agg")


async def test_files_that_cannot_be_read_are_named(web: WebNet, tmp_path: Path) -> None:
    absent, text = tmp_path / "absent.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    for file, match in ((absent, "No such file"), (text, "no PEM")):
        with pytest.raises(LocalError, match=match):
            await dial(web.web("alice", WebSettings(ca_file=file)), "agg")
        with pytest.raises(LocalError, match=match):
            WebSettings(certificate=file, certificate_key=web.files[1]).server_context()
    other = web.authority.sign("localhost", last=2)
    with pytest.raises(LocalError, match="no pair"):
        WebSettings(certificate=web.files[0], certificate_key=other[1]).server_context()


@contextlib.asynccontextmanager
async def answering(web: WebNet, answer: bytes, *, ends: bool = True) -> AsyncIterator[list[bytes]]:
    """Run an HTTPS server at the aggregator's address that gives every request one answer."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
            if not ends:
                await reader.read()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*web.files)
    server = await asyncio.start_server(serve, "127.0.0.1", web.own_port, ssl=context)
    try:
        yield requests
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "status 200: another server, or a page"),
        (
            b"HTTP/1.1 301 Moved\r\nLocation: https://else.example.org/\r\nContent-Length: 0\r\n\r\n",
            r"status 301: it redirects to 'https://else\.example\.org/': redirects are not followed",
        ),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", "status 400: .*must pass on Upgrade"),
        (b"HTTP/1.1 401 Who\r\nContent-Length: 0\r\n\r\n", "status 401: it wants a login"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "status 403: a firewall or balancer forbids it"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "status 404: nothing has this path there"),
        (b"HTTP/1.1 418 Tea\r\nContent-Length: 0\r\n\r\n", "status 418: it is no aggregator"),
        # A page of a firewall ends with the connection, or never.
        (b"HTTP/1.1 403 No\r\nConnection: close\r\n\r\n<html>", "status 403: a firewall or balancer forbids"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 9999\r\n\r\n<html>", "status 404: nothing has this path there"),
        (b"HTTP/1.0 302 Found\r\nlocation:/login\r\n\r\n", "status 302: it redirects to '/login':"),
        (b"220 mail.example.org ESMTP\r\n\r\n", "answers no WebSocket upgrade"),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            "answers no WebSocket upgrade",
        ),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
            "answers no WebSocket upgrade",
        ),
    ],
)
async def test_what_is_no_aggregator_is_refused_at_once(web: WebNet, answer: bytes, match: str) -> None:
    async with answering(web, answer) as requests:
        with pytest.raises(PeerFault, match=match) as raised:
            await web.call()
    assert raised.value.culprit == web.address
    assert len(requests) == 1
    for absent in (b"Sec-WebSocket-Extensions", b"Sec-WebSocket-Protocol", b"Cookie", b"alice"):
        assert absent not in requests[0]


@pytest.mark.parametrize(
    ("sent", "match"),
    [
        (b"\x81\x01x", "it sends a text message"),
        (b"\x82\x00", "it sends an empty message"),
        (b"\x82\x81\x00\x00\x00\x00x", "no WebSocket message"),
        (b"\x82\x7f\x00\x00\x00\xff\xff\xff\xff\xff", "no WebSocket message"),
        (b"\x88\x02\x03\xe8", "it ends the connection after the upgrade"),
    ],
    ids=["text", "empty", "masked", "huge", "close"],
)
async def test_what_comes_with_the_upgrade_against_the_rules_ends_the_attempt(
    web: WebNet, sent: bytes, match: str
) -> None:
    """It has come before TLS can be told; the attempt ends at once, and others are made."""
    attempts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            key = accept_key(head.partition("Sec-WebSocket-Key: ")[2].split()[0])
            answer = "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            writer.write(f"{answer}{key}\r\n\r\n".encode() + sent)
            await reader.read()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*web.files)
    server = await asyncio.start_server(serve, "127.0.0.1", web.own_port, ssl=context)
    with pytest.raises(TimeoutFault, match=match):
        await web.call(seconds=1.0)
    assert attempts > 1
    server.close()


@pytest.mark.parametrize(
    ("answer", "ends", "match"),
    [
        (
            b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n",
            True,
            "status 503: a balancer that does not reach",
        ),
        (b"", True, "ends the connection instead of an answer to the upgrade"),
        (b"", False, "no answer: it waited for the answer of wss://localhost:[0-9]+/smpc to the upgrade"),
    ],
)
async def test_what_may_pass_at_a_balancer_is_tried_again(
    web: WebNet, answer: bytes, ends: bool, match: str
) -> None:
    async with answering(web, answer, ends=ends) as requests:
        with pytest.raises(TimeoutFault, match=match):
            await web.call(seconds=1.0)
    assert len(requests) >= 1 + ends


async def test_another_member_behind_the_address_is_blamed_on_the_address(web: WebNet) -> None:
    """What ends the outer TLS may lead anywhere: the inner certificate decides."""
    server = await web.serve(tls=False)
    stranger = web.identities["mallory"]
    roster = Roster(
        stranger.entry("aggregator", web.address) if member.name == "agg" else member for member in web.roster
    )
    async with Relay(web.own_port, web.files).open() as balancer:
        web.lead_to(balancer.port)
        endpoint = Endpoint(
            identity=web.identities["alice"],
            roster=roster,
            session_digest=digest_of(SESSION),
            session=lambda: SESSION,
            web=web.client,
        )
        with pytest.raises(PeerFault, match="its certificate is not of a roster's member") as raised:
            await dial(endpoint, "mallory", web.address)
        assert raised.value.culprit == web.address
        await server.refused()


def frame(opcode: int, content: bytes, *, fin: bool = True, mask: bool = True) -> bytes:
    """Return a frame of a client, masked with zeros."""
    length = len(content)
    head = bytes([(0x80 if fin else 0) | opcode])
    bit = 0x80 if mask else 0
    if length < 126:
        head += bytes([bit | length])
    elif length < 65_536:
        head += bytes([bit | 126]) + struct.pack(">H", length)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", length)
    return head + bytes(4 if mask else 0) + content


TEXT, BINARY, CONTINUED, PING = 1, 2, 0, 9


@pytest.mark.parametrize(
    ("sent", "match"),
    [
        (frame(TEXT, b"hello"), "it sends a text message"),
        (frame(BINARY, b""), "it sends an empty message"),
        (frame(BINARY, b"", fin=False) + frame(CONTINUED, b""), "it sends an empty message"),
        (frame(BINARY, bytes(65_537)), "no WebSocket message .*65537"),
        (frame(BINARY, b"", fin=False) + frame(CONTINUED, bytes(65_537)), "no WebSocket message"),
        (frame(BINARY, b"x")[:1] + b"\xff" + b"\x7f" + bytes(11), "no WebSocket message"),
        (frame(BINARY, b"x", mask=False), "no WebSocket message"),
        (frame(3, b"x"), "no WebSocket message"),
        (frame(BINARY, b"no TLS at all"), "TLS failed"),
        (frame(8, struct.pack(">H", 1000)), "TLS handshake"),
    ],
    ids=[
        "text",
        "empty",
        "empty-fragments",
        "huge",
        "huge-fragments",
        "2^63",
        "unmasked",
        "opcode",
        "no-tls",
        "close",
    ],
)
async def test_what_is_against_the_rules_ends_the_connection_by_name(
    web: WebNet, sent: bytes, match: str
) -> None:
    server = await web.serve(tls=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
    writer.write(REQUEST)
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(sent)
    who, error = await server.refused()
    assert re.search(match, str(error)), error
    assert who.startswith("127.0.0.1:")
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(WAIT):
            await reader.read()
    writer.close()
    # Nobody else is disturbed.
    async with Relay(web.own_port, web.files).open() as balancer:
        web.lead_to(balancer.port)
        await exchange(*await web_pair(web, server))


@pytest.mark.parametrize(
    "request_head",
    [
        REQUEST.replace(PATH.encode(), b"/other"),
        REQUEST.replace(PATH.encode(), b"/smpc?x=1"),
        REQUEST.replace(PATH.encode(), b"/smpc/"),
        REQUEST.replace(PATH.encode(), b"//smpc"),
    ],
)
async def test_another_path_is_not_found(web: WebNet, request_head: bytes) -> None:
    await web.serve(tls=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
    writer.write(request_head)
    assert b" 404 " in await reader.readline()
    writer.close()
    web.lead_to(web.own_port)


async def test_answers_that_nobody_takes_are_bounded(web: WebNet) -> None:
    """A page is made and given away at once: its place is free when the client has it."""

    async def page(_request: Request) -> Response:
        return Response(bytes(16 << 20))

    server = await web_server.open_server(
        "127.0.0.1", 0, WebSettings(), 256, 60.0, lambda *_: None, "pages", [Route("/page", page)]
    )

    async def ask(path: str) -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(WAIT):
            return await reader.readline(), writer

    asked = [await ask("/page") for _ in range(web_server.MOST_ANSWERS + 4)]
    answers = [line.split()[1] for line, _ in asked]
    assert answers == [b"200"] * web_server.MOST_ANSWERS + [b"503"] * 4
    assert (await ask("/healthz"))[0].split()[1] == b"200"
    for _, writer in asked:
        writer.transport.abort()
    async with asyncio.timeout(WAIT):
        while server.answering:
            await asyncio.sleep(0.01)
    last, writer = await ask("/page")
    assert last.split()[1] == b"200"
    writer.transport.abort()
    await server.close()


async def test_the_logs_of_another_server_in_the_process_stay_as_they_are(web: WebNet) -> None:
    logger, handler = logging.getLogger("uvicorn.access"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        await web.serve(tls=False)
        assert logger.handlers == [handler]
        assert logger.propagate
    finally:
        logger.removeHandler(handler)


async def test_pages_say_whether_the_server_is_there(web: WebNet) -> None:
    await web.serve(tls=False)

    async def get(path: str, method: str = "GET") -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(WAIT):
            answer = await reader.read()
        writer.close()
        return answer

    assert (await get("/healthz")).startswith(b"HTTP/1.1 200 OK")
    assert (await get("/readyz")).endswith(b"ready\n")
    assert b" 404 " in await get("/metrics")
    assert b" 405 " in await get("/healthz", "POST")
    # No name of a library, with its version, and no date.
    assert not re.search(rb"(?i)uvicorn|starlette|python|date:", await get("/healthz"))


@pytest.mark.parametrize("sent", [b"", b"GET /smpc HTTP/1.1\r\nHost:", REQUEST])
async def test_who_says_nothing_is_dropped_in_time(
    web: WebNet, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(web_server, "HANDSHAKE_SECONDS", 0.3)
    server = await web.serve(tls=False, seconds=0.6)
    reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
    writer.write(sent)
    async with asyncio.timeout(WAIT):
        await reader.read()
    who, error = await server.refused()
    assert isinstance(error, TimeoutFault)
    assert who == "{}:{}".format(*writer.get_extra_info("sockname")[:2])
    writer.close()


async def test_the_address_of_a_proxy_of_the_settings_is_that_of_its_header(web: WebNet) -> None:
    server = await web.serve(tls=False, proxies=("127.0.0.0/8",))

    async def refused_from(header: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
        writer.write(REQUEST.replace(b"Upgrade: w", f"{header}Upgrade: w".encode()))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(TEXT, b"x"))
        who, _ = await server.refused()
        writer.close()
        return who

    assert await refused_from("X-Forwarded-For: 192.0.2.7\r\n") == "192.0.2.7"
    # The client may write what it likes before its proxy's entry.
    assert await refused_from("X-Forwarded-For: 198.51.100.1, 192.0.2.8, 127.0.0.2\r\n") == "192.0.2.8"
    assert await refused_from("X-Forwarded-For: 192.0.2.9:4711\r\n") == "192.0.2.9"
    assert await refused_from("X-Forwarded-For: [2001:db8::1]:80\r\n") == "2001:db8::1"
    for wrong in ("unknown", "192.0.2.7, nobody", "fe80::1%alice"):
        assert (await refused_from(f"X-Forwarded-For: {wrong}\r\n")).startswith("127.0.0.1:")
    assert (await refused_from("")).startswith("127.0.0.1:")


async def test_the_header_of_anyone_else_is_ignored(web: WebNet) -> None:
    server = await web.serve(tls=False, proxies=("198.51.100.0/24",))
    reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
    writer.write(REQUEST.replace(b"Upgrade: w", b"X-Forwarded-For: 192.0.2.7\r\nUpgrade: w"))
    await reader.readuntil(b"\r\n\r\n")
    writer.write(frame(TEXT, b"x"))
    assert (await server.refused())[0].startswith("127.0.0.1:")
    writer.close()


async def test_connections_of_one_address_behind_a_proxy_do_not_shut_out_another(web: WebNet) -> None:
    """Of a crowd behind the balancer one address is bounded; a party at another address gets in."""
    server = await web.serve(tls=False, proxies=("127.0.0.1",))
    crowd = []
    for _ in range(300):
        reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
        writer.write(REQUEST.replace(b"Upgrade: w", b"X-Forwarded-For: 192.0.2.66\r\nUpgrade: w"))
        crowd.append((reader, writer))
    async with Relay(web.own_port, web.files, forwarded="192.0.2.7").open() as balancer:
        web.lead_to(balancer.port)
        await exchange(*await web_pair(web, server))
        assert balancer.connections == 1
    for _, writer in crowd:
        writer.close()


def changed_after(first: int, change: Callable[[bytes], bytes]) -> Callable[[bytes, int], bytes]:
    """Return a change of the first chunk that begins after so many bytes."""
    done: list[int] = []

    def apply(content: bytes, count: int) -> bytes:
        if count < first or done:
            return content
        done.append(count)
        return change(content)

    return apply


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content + content,
        lambda _content: b"",
        lambda content: content + frame(TEXT, b"x"),
        lambda content: content + frame(BINARY, b"injected"),
    ],
    ids=["changed", "repeated", "dropped", "text", "injected"],
)
async def test_what_a_balancer_changes_ends_the_channel(
    web: WebNet, change: Callable[[bytes], bytes]
) -> None:
    server = await web.serve(tls=False)
    async with Relay(web.own_port, web.files).open() as balancer:
        web.lead_to(balancer.port)
        # The handshakes and the hello take less.
        balancer.change = changed_after(20_000, change)
        mine, theirs = await web_pair(web, server)
        # What is dropped at the end of all bytes is only late.
        theirs.frame_timeout = 2.0

        async def send() -> None:
            for number in range(100):
                await mine.send(bytes([number]) * 1000)

        async def receive() -> None:
            for number in range(100):
                assert bytes(await theirs.receive()) == bytes([number]) * 1000

        sending = asyncio.create_task(send())
        with pytest.raises((ChannelClosed, TimeoutFault)) as ended:
            await asyncio.wait_for(receive(), WAIT)
        assert not (isinstance(ended.value, ChannelClosed) and ended.value.clean)
        assert not theirs.live
        await asyncio.gather(sending, return_exceptions=True)


async def test_pings_keep_a_connection_that_a_balancer_would_cut(web: WebNet) -> None:
    server = await web.serve(tls=False)
    async with Relay(web.own_port, web.files, idle=1.0).open() as balancer:
        web.lead_to(balancer.port)
        lively = WebSettings(ca_file=web.authority.file, ping=0.2)
        mine = await dial(web.web("alice", lively), "agg")
        web.opened.append(mine)
        theirs = await server.channel()
        quiet = await web.call("bob")
        other = await server.channel()
        with pytest.raises(ChannelClosed):
            await other.receive()
        assert not quiet.live or balancer.cut
        await asyncio.sleep(1.5)
        await exchange(mine, theirs)


async def test_a_cut_within_a_message_is_a_cut(web: WebNet) -> None:
    server = await web.serve(tls=False)
    async with Relay(web.own_port, web.files).open() as balancer:
        web.lead_to(balancer.port)
        mine, theirs = await web_pair(web, server)
        sending = asyncio.create_task(mine.send(bytes(30_000_000)))
        while len(balancer.sent) < 1_000_000:
            await asyncio.sleep(0.01)
        balancer.cut_all()
        with pytest.raises(ChannelClosed) as ended:
            await theirs.receive()
        assert not ended.value.clean
        await asyncio.gather(sending, return_exceptions=True)
        assert not mine.live
        await exchange(*await web_pair(web, server))


async def test_a_peer_that_does_not_read_holds_its_sender_back(web: WebNet) -> None:
    """What waits below the inner TLS is bounded: the sender's own limit of time ends it."""
    server = await web.serve(tls=False)
    async with Relay(web.own_port, web.files).open() as balancer:
        web.lead_to(balancer.port)
        mine, theirs = await web_pair(web, server)
        theirs.frame_timeout = 0.5
        for writer in balancer.writers:
            stop_reading(writer)
        with pytest.raises(TimeoutFault, match=r"it did not read for 0\.5 s"):
            await theirs.send(bytes(60_000_000))
        mine.abort()


@pytest.mark.parametrize("who", ["party", "aggregator"])
async def test_a_slow_reader_gets_all_that_came_before_the_end(
    web: WebNet, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """It has taken nothing yet when the other has closed, and the connection has ended."""
    monkeypatch.setattr("smpc_dp.transport.channel.CLOSE_SECONDS", 0.2)
    server = await web.serve(tls=False)
    async with Relay(web.own_port, web.files).open() as balancer:
        web.lead_to(balancer.port)
        mine, theirs = await web_pair(web, server)
        reader, sender = (mine, theirs) if who == "party" else (theirs, mine)
        # More than the channel reads ahead, less than TLS and the system hold.
        contents = [bytes([number]) * 10_000 for number in range(60)]
        for content in contents:
            await sender.send(content)
        await sender.close()
        assert not sender.live
        await asyncio.sleep(0.5)
        assert [bytes(await reader.receive()) for _ in contents] == contents
        with pytest.raises(ChannelClosed):
            await reader.receive()
        assert not reader.live


async def test_who_waits_to_send_is_told_of_the_end_though_bytes_are_held(web: WebNet) -> None:
    server = await web.serve(tls=False)
    async with Relay(web.own_port, web.files).open() as balancer:
        web.lead_to(balancer.port)
        mine, theirs = await web_pair(web, server)
        for number in range(60):
            await mine.send(bytes([number]) * 10_000)
        while len(balancer.sent) < 600_000:
            await asyncio.sleep(0.01)
        for writer in balancer.writers:
            stop_reading(writer)
        sending = asyncio.create_task(theirs.send(bytes(60_000_000)))
        await asyncio.sleep(0.5)
        assert not sending.done()
        inner = next(writer for writer in balancer.writers if writer.can_write_eof())
        inner.write_eof()
        await asyncio.sleep(0.2)
        assert not sending.done()
        balancer.cut_all()
        with pytest.raises(ChannelClosed):
            await asyncio.wait_for(sending, WAIT)


async def test_a_channel_that_is_cut_while_it_holds_bytes_ends(
    web: WebNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smpc_dp.transport.channel.CLOSE_SECONDS", 0.2)
    server = await web.serve()
    mine, theirs = await web_pair(web, server)
    for number in range(60):
        await theirs.send(bytes([number]) * 10_000)
    await theirs.close()
    await asyncio.sleep(0.3)
    mine.abort()
    async with asyncio.timeout(WAIT):
        await mine._stream.gone.wait()


async def test_a_connection_that_is_dropped_while_it_is_upgraded_ends(
    web: WebNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come to the server at once: nothing serves the connection, and nothing would end it later."""
    settle = web_server.Call.settle

    def settle_and_drop(call: web_server.Call, result: object) -> None:
        settle(call, result)  # type: ignore[arg-type]
        call.server.accepting.drop(call._connection)

    monkeypatch.setattr(web_server.Call, "settle", settle_and_drop)
    await web.serve(tls=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", web.own_port)
    writer.write(REQUEST)
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(WAIT):
            await reader.read()
    writer.close()


async def test_an_address_that_leads_nowhere_leaves_time_for_the_next(
    web: WebNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await web.serve()
    monkeypatch.setattr(web_dial, "ADDRESS_SECONDS", 0.3)

    async def addresses(_route: web_dial.Route) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    monkeypatch.setattr(web_dial, "look_up", addresses)
    with socket.socket() as full:
        # The system answers no call that the queue has no place for.
        full.bind(("127.0.0.2", web.own_port))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.2", web.own_port))
        await exchange(*await web_pair(web, server))
        for sock in waiting:
            sock.close()


async def test_a_flood_of_pings_is_answered_only_to_who_reads(
    web: WebNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_listener, "HANDSHAKE_SECONDS", 3600)
    server = await web.serve(tls=False)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", web.own_port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 10)
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    stop_reading(writer)
    flood = frame(PING, bytes(125)) * 1000
    with contextlib.suppress(OSError):
        async with asyncio.timeout(WAIT):
            while server.refusals.empty():
                writer.write(flood)
                await writer.drain()
                await asyncio.sleep(0)
    _, error = await server.refused()
    assert "it sends pings and reads no answers" in str(error)
    writer.transport.abort()


async def test_a_stolen_key_does_not_evict_its_owner(web: WebNet) -> None:
    server = await web.serve()
    mine, theirs = await web_pair(web, server)
    with pytest.raises(PeerFault, match="this key is used twice"):
        await web.call()
    await exchange(mine, theirs)
