"""Sessions of real processes over HTTPS: through a proxy, and what ends TLS and cuts idle connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import smpc_dp
from smpc_dp.errors import ConfigError
from smpc_dp.logs.audits.log_watch import LogWatch
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session, free_port
from smpc_dp.session.session_file import Timeouts, load_session
from tests.command import smpc_dp as command
from tests.deadlines import WAIT
from tests.outer_certificates import Authority
from tests.relays import ConnectProxy, Relay
from tests.web_sessions import create_web_session

PARTIES = ("alice", "boris", "carol")
GIVEN: dict[str, object] = {
    "length": 3,
    "kind": "integer",
    "lower": 0,
    "upper": 100,
    "dropout": 0.0,
    "corrupt": 0.0,
}
VECTORS = {"alice": [1, 2, 3], "boris": [10, 20, 30], "carol": [50, 60, 7]}
SUM = [61, 82, 40]
TIMEOUTS = Timeouts(connect=60.0, step=30.0, gather=60.0)


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


async def start(*arguments: str | Path, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "smpc_dp",
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )


async def end(process: asyncio.subprocess.Process) -> str:
    """Return what a process has printed, once it has ended without error."""
    out, errors = await asyncio.wait_for(process.communicate(), WAIT)
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_parties_behind_a_proxy_get_their_sum(tmp_path: Path) -> None:
    """Nobody between them sees a name, a message, or the end of one."""
    authority, listened = Authority(tmp_path), free_port()
    async with (
        Relay(listened, authority.sign("localhost"), forwarded="192.0.2.7").open() as balancer,
        ConnectProxy().open() as proxy,
    ):
        path = create_web_session(tmp_path, PARTIES, GIVEN, balancer.port, timeouts=TIMEOUTS)
        served = await start(
            "party", path, "--as", "aggregator", "--listen", f"127.0.0.1:{listened}", "--behind", "127.0.0.1"
        )
        parties = []
        for name, vector in VECTORS.items():
            file = tmp_path / f"{name}.json"
            file.write_text(json.dumps(vector))
            options = ("--input", file, "--operation", "sum", "--json", "--ca", authority.file)
            parties.append(await start("party", path, "--as", name, *options, HTTPS_PROXY=proxy.url))
        for process in parties:
            assert json.loads(await end(process))["value"] == SUM
        await end(served)
    # Whoever came before the aggregator listened has called again.
    assert {*proxy.targets} == {f"localhost:{balancer.port}"}
    unmasked = balancer.unmasked()
    assert unmasked.count(b"\x16\x03\x01") >= len(PARTIES)
    seen = bytes(balancer.sent + balancer.received + proxy.seen + unmasked)
    for hidden in (b"alice", b"boris", b"carol", b"aggregator", b"secagg", b"smpc-dp", b"hello", b"masked"):
        assert hidden not in seen


@contextlib.asynccontextmanager
async def serving(path: Path, port: int, events: list[Event]) -> AsyncIterator[None]:
    served = asyncio.create_task(
        smpc_dp.serve(path, requests=0, listen_on=f"127.0.0.1:{port}", on_event=events.append)
    )
    try:
        yield
    finally:
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)


async def test_parties_come_back_after_a_balancer_has_cut_them(tmp_path: Path) -> None:
    """It cuts what is idle, as with pings that are too rare; the next request opens the connection anew."""
    authority, listened = Authority(tmp_path), free_port()
    rare = smpc_dp.WebSettings(ca_file=authority.file, ping=3600.0)
    events: list[Event] = []
    async with Relay(listened, authority.sign("localhost"), idle=1.0).open() as balancer:
        path = create_web_session(tmp_path, PARTIES, GIVEN, balancer.port, timeouts=TIMEOUTS)
        async with serving(path, listened, events), contextlib.AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(smpc_dp.connect(path, party=name, web=rare))
                for name in PARTIES
            ]
            for _ in range(2):
                results = await asyncio.wait_for(
                    asyncio.gather(
                        *(session.sum(VECTORS[name]) for name, session in zip(PARTIES, sessions, strict=True))
                    ),
                    WAIT,
                )
                assert [result.value.tolist() for result in results] == [SUM] * 3
                before = balancer.cut
                while balancer.cut == before:
                    await asyncio.sleep(0.1)
        assert balancer.connections > len(PARTIES)


async def test_an_aggregator_is_started_again_behind_its_balancer(tmp_path: Path) -> None:
    authority, listened = Authority(tmp_path), free_port()
    web = smpc_dp.WebSettings(ca_file=authority.file)
    async with Relay(listened, authority.sign("localhost")).open() as balancer:
        path = create_web_session(tmp_path, PARTIES, GIVEN, balancer.port, timeouts=TIMEOUTS)
        async with contextlib.AsyncExitStack() as stack:
            sessions: list[smpc_dp.Session] = []
            for _ in range(2):
                async with serving(path, listened, []):
                    if not sessions:
                        opening = (smpc_dp.Session.open(path, name, web=web) for name in PARTIES)
                        sessions += await asyncio.gather(*opening)
                    calls = (
                        session.sum(VECTORS[name]) for name, session in zip(PARTIES, sessions, strict=True)
                    )
                    results = await asyncio.wait_for(asyncio.gather(*calls), WAIT)
                    assert [result.value.tolist() for result in results] == [SUM] * 3
            for session in sessions:
                stack.push_async_callback(session.close)


async def test_a_round_trip_of_200_ms_only_takes_longer(tmp_path: Path) -> None:
    authority, listened = Authority(tmp_path), free_port()
    web = smpc_dp.WebSettings(ca_file=authority.file)
    async with Relay(listened, authority.sign("localhost"), delay=0.1).open() as balancer:
        path = create_web_session(tmp_path, PARTIES, GIVEN, balancer.port, timeouts=TIMEOUTS)

        async def take_part(name: str) -> list[int]:
            async with smpc_dp.connect(path, party=name, web=web) as session:
                return list((await session.sum(VECTORS[name])).value.tolist())

        async with serving(path, listened, []):
            assert await asyncio.wait_for(asyncio.gather(*map(take_part, PARTIES)), WAIT) == [SUM] * 3
        assert balancer.connections >= len(PARTIES)


async def test_an_aggregator_that_starts_late_behind_its_balancer_is_waited_for(tmp_path: Path) -> None:
    """Status 502 until it is there."""
    authority, listened = Authority(tmp_path), free_port()
    web = smpc_dp.WebSettings(ca_file=authority.file)
    async with Relay(listened, authority.sign("localhost")).open() as balancer:
        path = create_web_session(tmp_path, PARTIES, GIVEN, balancer.port, timeouts=TIMEOUTS)

        async def take_part(name: str) -> list[int]:
            async with smpc_dp.connect(path, party=name, web=web) as session:
                return list((await session.sum(VECTORS[name])).value.tolist())

        parties = [asyncio.create_task(take_part(name)) for name in PARTIES]
        while balancer.connections < 2 * len(PARTIES):
            await asyncio.sleep(0.05)
        async with serving(path, listened, []):
            assert await asyncio.wait_for(asyncio.gather(*parties), WAIT) == [SUM] * 3


async def test_an_aggregator_may_end_the_outer_tls_itself(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    certificate, key = authority.sign("localhost")
    path = create_web_session(tmp_path, PARTIES, GIVEN, port, timeouts=TIMEOUTS)
    options = ("--tls-certificate", certificate, "--tls-key", key)
    served = await start("party", path, "--as", "aggregator", *options)
    web = smpc_dp.WebSettings(ca_file=authority.file)

    async def take_part(name: str) -> list[int]:
        async with smpc_dp.connect(path, party=name, web=web) as session:
            return list((await session.sum(VECTORS[name])).value.tolist())

    assert await asyncio.wait_for(asyncio.gather(*map(take_part, PARTIES)), WAIT) == [SUM] * 3
    await end(served)


async def test_settings_of_https_are_refused_where_there_is_none(tmp_path: Path) -> None:
    path = create_web_session(tmp_path, PARTIES, GIVEN, 8443)
    text = path.read_text().replace("wss://localhost:8443/smpc", "127.0.0.1:8443")
    path.write_text(text)
    with pytest.raises(ConfigError, match="an aggregator at wss://, which this session has not"):
        await smpc_dp.Session.open(path, "alice", web=smpc_dp.WebSettings())


async def test_a_run_on_one_machine_refuses_the_address_by_name(tmp_path: Path) -> None:
    path = create_web_session(tmp_path, PARTIES, GIVEN, 8443)
    assert load_session(path).roster.aggregator is not None
    for name, vector in VECTORS.items():
        (tmp_path / "inputs").mkdir(exist_ok=True)
        (tmp_path / "inputs" / f"{name}.json").write_text(json.dumps(vector))
    process = await start("run", path)
    _, errors = await asyncio.wait_for(process.communicate(), WAIT)
    assert process.returncode
    assert "on one machine members meet at host:port" in " ".join(errors.decode().split())


async def test_an_auditor_takes_the_log_from_the_port_of_the_aggregator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the aggregator serves its session; pages and log are there for everybody."""
    authority, listened = Authority(tmp_path), free_port()
    parameters = {
        "length": 2,
        "l2_bound": 5.0,
        "precision": 1.0,
        "epsilon": 8.0,
        "delta": 1e-3,
        "corrupt": 0.0,
        "verifiable": True,
    }
    shown, own = smpc_dp.WebSettings(pages=True), smpc_dp.WebSettings(ca_file=authority.file)
    at_end: list[bool] = []
    stop = LogWatch.stop

    def look_and_stop(watch: LogWatch) -> None:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", listened)):
            at_end.append(True)
        at_end.append(False)
        stop(watch)

    monkeypatch.setattr(LogWatch, "stop", look_and_stop)
    async with Relay(listened, authority.sign("localhost")).open() as balancer:
        path = create_web_session(
            tmp_path, PARTIES, parameters, balancer.port, protocol="gopa", timeouts=TIMEOUTS
        )
        served = asyncio.create_task(
            smpc_dp.serve(path, requests=1, listen_on=f"127.0.0.1:{listened}", web=shown)
        )
        async with contextlib.AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(smpc_dp.connect(path, party=name, web=own))
                for name in PARTIES
            ]
            results = await asyncio.gather(*(session.average([3.0, 4.0]) for session in sessions))
            log = f"http://127.0.0.1:{listened}/smpc/board/board.jsonl"
            run = results[0].evidence.run_id.hex()
            report = await asyncio.to_thread(smpc_dp.audit, log, session=path, run=run)
            assert report.ok, report.conclusion
            page = f"http://127.0.0.1:{listened}/smpc/board/parties"
            with await asyncio.to_thread(urllib.request.urlopen, page) as answer:
                assert b"Parties and their states" in answer.read()
        await asyncio.wait_for(served, WAIT)
    # While the last audit is waited for, nobody is admitted who would get no answer.
    assert at_end == [False]


def test_pages_are_for_an_aggregator_at_wss(tmp_path: Path) -> None:
    path = create_web_session(tmp_path / "web", PARTIES, GIVEN, 1)
    own = create_local_session(tmp_path / "tcp", PARTIES, GIVEN)
    refused = command("party", str(path), "--as", "alice", "--pages")
    assert refused.returncode == 2
    assert "--pages is for the aggregator, and 'alice' is a party" in " ".join(refused.stderr.split())
    refused = command("party", str(own), "--as", "aggregator", "--pages")
    assert refused.returncode == 1
    assert "settings of HTTPS are for an aggregator at wss://" in " ".join(refused.stderr.split())
