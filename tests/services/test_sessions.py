"""Five parties that can only go out: through an HTTP proxy, and a web server that ends TLS, to an aggregator.

Each party has a network namespace of its own, from which only the proxy can be reached. 200 ms are between
the proxy and the web server. `make test-services` runs these tests, as root.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from smpc_dp.identity.keys import Identity
from smpc_dp.session.member import default_key
from smpc_dp.session.session_file import Timeouts, write_session
from tests.outer_certificates import Authority
from tests.services.hosts import ROOT, Hosts, service
from tests.services.websocket_bytes import opened, recorded

HERE = Path(__file__).parent
PARTIES = ("alice", "bob", "carol", "dave", "erin")
PARAMETERS: dict[str, object] = {"length": 1, "kind": "integer", "lower": 0, "upper": 100}
PROTOCOL, VERSION = "secagg", 2
TOTAL = 1 + 2 + 3 + 4 + 5
HOST, PATH = "hub.test", "/a-session"
AGGREGATOR = "coordinator"
# Seconds: between pings, until the web server closes a silent connection, of one direction of the long line.
PING, IDLE, DELAY = 0.5, 4, 0.1
TIMEOUTS = Timeouts(connect=30.0, step=20.0, gather=20.0)
# What clocks are off by, through the library of faketime; timers go on as they are.
CLOCKS = {"carol": "+3600", "dave": "-3600", AGGREGATOR: "+1800"}

pytestmark = pytest.mark.skipif("SMPC_DP_SERVICES" not in os.environ, reason="`make test-services` runs it")


def off(name: str) -> dict[str, str]:
    """Return the environment in which the clock of a member is off."""
    if name not in CLOCKS:
        return {}
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    assert library is not None, "missing: faketime"
    return {"LD_PRELOAD": str(library), "FAKETIME": CLOCKS[name], "FAKETIME_DONT_FAKE_MONOTONIC": "1"} | {
        "DONT_FAKE_MONOTONIC": "1"
    }


@dataclass
class Site:
    """The aggregator's host, with the web server `front`, the proxy and five parties.

    `password`: NAME:PASSWORD that the proxy wants.
    """

    hosts: Hosts
    folder: Path
    front: str
    password: str = ""
    authority: Authority = field(init=False)
    outside: str = ""
    proxies: dict[str, str] = field(default_factory=dict)
    aggregator: asyncio.subprocess.Process | None = None
    proxy: asyncio.subprocess.Process | None = None
    parties: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder)

    @property
    def session(self) -> Path:
        return self.folder / "session.toml"

    @property
    def record(self) -> Path:
        return self.folder / "seen-by-the-web-server"

    async def start(self) -> None:
        self._write_session()
        self.hosts.add("cloud")
        self.hosts.add("edge")
        _, self.outside = self.hosts.join("edge", "cloud", "10.78.0")
        for number, name in enumerate(PARTIES, 1):
            self.hosts.add(name)
            self.proxies[name], _ = self.hosts.join("edge", name, f"10.77.{number}")
        relay = (sys.executable, str(HERE / "relay.py"))
        await self.hosts.start(
            "cloud", *relay, f"{self.outside}:443", "127.0.0.1:8443", str(DELAY), log="relay"
        )
        await self.hosts.start("cloud", *relay, "127.0.0.1:8000", "127.0.0.1:8001", "0", str(self.record))
        self._write_front()
        await self.hosts.start("cloud", *self._front_command(), log="web")
        await self.start_proxy()
        await self.start_aggregator()
        for name in PARTIES:
            self.parties[name] = await self.hosts.start(
                name,
                *(
                    sys.executable,
                    str(HERE / "member.py"),
                    str(self.session),
                    name,
                    str(self.authority.file),
                    str(PING),
                ),
                environment={"HTTPS_PROXY": self.proxy_of(name), **off(name)},
                pipes=True,
            )
        started = await self.sums()
        clocks = [float(str(party["clock"])) for party in started]
        ahead = {name: clock - clocks[0] for name, clock in zip(PARTIES, clocks, strict=True)}
        assert ahead["carol"] > 3000
        assert ahead["dave"] < -3000

    def proxy_of(self, name: str) -> str:
        """Return the URL of the proxy as a party has it."""
        return f"http://{self.password}{'@' if self.password else ''}{self.proxies[name]}:3128"

    def _write_session(self) -> None:
        members = []
        default_key(self.session, AGGREGATOR).parent.mkdir(mode=0o700)
        for name in (AGGREGATOR, *PARTIES):
            identity = Identity.generate(name)
            identity.save(default_key(self.session, name))
            members.append(
                identity.entry("aggregator", f"wss://{HOST}{PATH}")
                if name == AGGREGATOR
                else identity.entry()
            )
        write_session(self.session, PROTOCOL, VERSION, PARAMETERS, members, TIMEOUTS)

    def _write_front(self) -> None:
        """Write the configuration of the web server: that of `deploy/`, with this test's files and times."""
        chain, key = map(str, self.authority.sign(HOST, first=-2, last=2))
        if self.front == "nginx":
            text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
            changes = {
                "listen 443 ssl;": "listen 127.0.0.1:8443 ssl;",
                "/etc/nginx/hub.pem": chain,
                "/etc/nginx/hub.key": key,
                "hub.example.org": HOST,
                "/smpc": PATH,
                "60s": f"{IDLE}s",
            }
            before = f"pid {self.folder}/nginx.pid;\nerror_log stderr;\nworker_shutdown_timeout 1s;\n"
            temporary = "".join(
                f"{kind}_temp_path {self.folder}/{kind};\n"
                for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            whole = f"{before}events {{}}\nhttp {{\naccess_log off;\n{temporary}%s}}\n"
        else:
            text = (ROOT / "deploy" / "Caddyfile").read_text("utf-8")
            changes = {
                "hub.example.org {": f"https://{HOST}:8443 {{\n\tbind 127.0.0.1",
                "/etc/caddy/hub.pem": chain,
                "/etc/caddy/hub.key": key,
                "/smpc": PATH,
                "aggregator:8000": "127.0.0.1:8000",
                "stream_close_delay 10m": "stream_close_delay 1s",
                "admin off": f"admin unix/{self.folder}/caddy.sock\n\tauto_https off",
            }
            whole = "%s"
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        (self.folder / self.front).write_text(whole % text, "utf-8")

    def _front_command(self, *, again: bool = False) -> Sequence[str]:
        """Return the command that starts the web server, or loads its configuration again."""
        file = str(self.folder / self.front)
        if self.front == "nginx":
            return (
                service("nginx"),
                "-c",
                file,
                "-p",
                str(self.folder),
                *(("-s", "reload") if again else ("-g", "daemon off;")),
            )
        options = ("--config", file, "--adapter", "caddyfile")
        # Nothing differs: Caddy would do nothing.
        return (service("caddy"), "reload" if again else "run", *options, *(("--force",) if again else ()))

    async def reload_front(self) -> None:
        """Load the configuration of the web server again, as after a new certificate."""
        process = await self.hosts.start("cloud", *self._front_command(again=True), log="reload")
        assert await process.wait() == 0

    async def start_proxy(self) -> None:
        if self.proxy is not None:
            await self.hosts.stop(self.proxy)
        command = (service("proxy"), "--hostname", "0.0.0.0", "--port", "3128", "--num-workers", "1")  # noqa: S104
        options = ["--num-acceptors", "1", "--log-level", "w", "--data-dir", str(self.folder / "proxy")]
        options += ["--basic-auth", self.password] if self.password else []
        names = f"{self.outside} {HOST}"
        self.proxy = await self.hosts.start("edge", *command, *options, names=names, log="proxy.log")

    async def start_aggregator(self, number: int = signal.SIGTERM) -> None:
        """Start the aggregator, after its end by a signal if it runs."""
        if self.aggregator is not None:
            await self.hosts.stop(self.aggregator, number)
        self.aggregator = await self.hosts.start(
            "cloud",
            *(sys.executable, "-m", "smpc_dp", "party", str(self.session), "--as", AGGREGATOR),
            *("--requests", "0", "--listen", "127.0.0.1:8001", "--behind", "127.0.0.1"),
            environment=off(AGGREGATOR),
            log="aggregator.log",
        )

    async def read(self, name: str) -> dict[str, object]:
        """Return the next line of a party."""
        output = self.parties[name].stdout
        assert output is not None
        line = await asyncio.wait_for(output.readline(), 60.0)
        assert line, (self.folder / f"{name}.log").read_text()
        return dict(json.loads(line))

    def ask(self, *names: str) -> None:
        """Let parties take part in the next sum."""
        for name in names or PARTIES:
            entry = self.parties[name].stdin
            assert entry is not None
            entry.write(f"{1 + PARTIES.index(name)}\n".encode())

    async def ask_until(self, step: str) -> None:
        """Let all parties take part in the next sum; return when the aggregator is at a step of it."""
        log = self.folder / "aggregator.log"
        before = log.stat().st_size
        self.ask()
        async with asyncio.timeout(60.0):
            while f"{AGGREGATOR}: {step}: ".encode() not in log.read_bytes()[before:]:
                await asyncio.sleep(0.02)

    async def sums(self, *names: str) -> list[dict[str, object]]:
        """Return what parties, by default all, have of the next sum."""
        return [*await asyncio.gather(*(self.read(name) for name in names or PARTIES))]

    async def check_whole(self) -> None:
        """Take part in a sum with all parties, which must be exact."""
        self.ask()
        assert await self.sums() == [{"total": TOTAL, "survivors": [*PARTIES]}] * 5

    async def check_again(self) -> None:
        """Take part in sums until one has all parties: those before it have errors that name who is missing.

        After all connections were cut, enough parties for a run may be back before the last one is.
        """
        for _ in range(3):
            self.ask()
            results = await self.sums()
            if "error" not in results[0]:
                assert results == [{"total": TOTAL, "survivors": [*PARTIES]}] * 5
                return
            for result in results:
                assert any(name in str(result["error"]) for name in PARTIES), results
        raise AssertionError(results)

    async def check(self, name: str, **environment: str) -> tuple[int | None, list[dict[str, str]]]:
        """Run `smpc-dp check` of a party on its host."""
        process = await self.hosts.start(
            name,
            *(sys.executable, "-m", "smpc_dp", "check", str(self.session), "--as", name, "--json"),
            *("--ca", str(self.authority.file)),
            environment={"HTTPS_PROXY": self.proxy_of(name), **off(name), **environment},
            pipes=True,
            log="check.log",
        )
        output, _ = await process.communicate()
        return process.returncode, json.loads(output)["lines"]


@contextlib.asynccontextmanager
async def site(folder: Path, front: str, password: str = "") -> AsyncIterator[Site]:
    hosts = Hosts(folder)
    try:
        result = Site(hosts, folder, front, password)
        await result.start()
        yield result
    finally:
        await hosts.close()


async def test_sessions_survive_what_networks_do(tmp_path: Path) -> None:
    """Restarts, a web server that is loaded again, a new proxy, and a party that is cut off for a while."""
    async with site(tmp_path, "nginx") as place:
        await place.check_whole()
        # Connections that are idle for longer than the web server's limit stay: members ping.
        await asyncio.sleep(IDLE + 1.0)
        await place.check_whole()
        # The aggregator, between two requests and killed within one.
        await place.start_aggregator()
        await place.check_whole()
        await place.ask_until("deal")
        await place.start_aggregator(signal.SIGKILL)
        # The run has begun for all, and ends with an error that names the aggregator.
        for result in await place.sums():
            assert AGGREGATOR in str(result["error"])
        await place.check_whole()
        # The web server, and the proxy.
        await place.reload_front()
        await asyncio.sleep(1.5)
        await place.check_again()
        await place.start_proxy()
        await place.check_again()
        # A party is cut off for longer than the web server waits, and misses a request.
        place.hosts.cut("erin")
        await asyncio.sleep(IDLE + 1.0)
        place.ask()
        # Exact sums over other parties than before would show what erin has.
        for result in await place.sums(*PARTIES[:4]):
            assert "erin" in str(result["error"])
        place.hosts.mend("erin")
        [missed] = await place.sums("erin")
        assert "error" in missed
        await place.check_again()
        # A check through the same way, beside the sessions.
        code, lines = await place.check("alice")
        assert code == 0, lines
        assert {line["state"] for line in lines} <= {"ok", "note"}
        code, lines = await place.check("alice", HTTPS_PROXY="http://10.77.1.1:3129")
        assert code == 1
        assert [line["check"] for line in lines if line["state"] == "fix"] == ["tcp"]
        code, lines = await place.check("carol")
        [clock] = [line for line in lines if line["state"] == "note"]
        assert (code, clock["check"]) == (0, "clock")
        assert "minutes ahead of" in clock["text"]
        check_bytes(place)


async def test_the_same_through_caddy_and_a_proxy_with_a_password(tmp_path: Path) -> None:
    async with site(tmp_path, "caddy", "hospital:secret") as place:
        await place.check_whole()
        await place.start_aggregator()
        await place.check_whole()
        await place.reload_front()
        await asyncio.sleep(1.5)
        await place.check_again()
        code, lines = await place.check("alice", HTTPS_PROXY=f"http://{place.proxies['alice']}:3128")
        [line] = [line for line in lines if line["state"] == "fix"]
        assert (code, line["check"]) == (1, "proxy")
        assert "it wants a name and a password" in line["text"]
        check_bytes(place)


def check_bytes(place: Site) -> None:
    """Assert that the web server has seen the path, no name of a member, and no message."""
    streams = {side: opened(stream) for side, stream in recorded(place.record).items()}
    requests = [head for side, (head, _) in streams.items() if side.endswith("up")]
    # Each party's first connection, and another one after each restart.
    assert sum(head.startswith(f"GET {PATH} ".encode()) for head in requests) >= 2 * len(PARTIES)
    assert sum(len(content) > 1000 for _, content in streams.values()) >= 2 * len(PARTIES)
    for head, content in streams.values():
        # A handshake of TLS is the first of its records (RFC 8446, 5.1).
        assert content[:2] in (b"", b"\x16\x03")
        for name in (*PARTIES, AGGREGATOR, "masked", "neighbours", "smpc-dp"):
            assert name.encode() not in head
            assert name.encode() not in content
