"""Several sessions in one process, by the paths of their aggregators' addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import smpc_dp
from smpc_dp.cli.serve import serve as serve_command
from smpc_dp.errors import ConfigError, LocalError, SmpcError
from smpc_dp.session import many_sessions
from smpc_dp.session.events import Event
from smpc_dp.session.local import free_port
from smpc_dp.session.many_sessions import HostedSession, find_sessions, serve_sessions
from smpc_dp.session.session_file import SessionFile, Timeouts
from smpc_dp.session.tasks import task_of
from smpc_dp.web_settings import WebSettings
from tests.outer_certificates import Authority
from tests.relays import Relay
from tests.web_sessions import create_web_session

PARTIES = ("alice", "bob", "carol")
GIVEN: dict[str, object] = {
    "length": 2,
    "kind": "integer",
    "lower": 0,
    "upper": 100,
    "dropout": 0.0,
    "corrupt": 0.0,
}
TIMEOUTS = Timeouts(connect=60.0, step=30.0, gather=60.0)
WAIT = 300.0


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


class Hosted:
    """Three sessions behind one balancer, served by this process."""

    def __init__(self, folder: Path, balancer: Relay, listened: int, web: WebSettings) -> None:
        self.port, self.listened, self.web = balancer.port, listened, web
        self.files = {
            name: create_web_session(
                folder / name, PARTIES, GIVEN, balancer.port, path=f"/cohorts/{name}", timeouts=TIMEOUTS
            )
            for name in ("one", "two", "three")
        }
        self.folder = folder
        self.events: list[tuple[str, Event]] = []
        self.problems: list[tuple[str, SmpcError]] = []

    @contextlib.asynccontextmanager
    async def serving(self, sessions: list[HostedSession]) -> AsyncIterator[None]:
        task = asyncio.create_task(
            serve_sessions(
                sessions,
                "127.0.0.1",
                self.listened,
                WebSettings(proxies=("127.0.0.1",)),
                lambda session: lambda event: self.events.append((session.name, event)),
                lambda session, error: self.problems.append((session.name, error)),
            )
        )
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def take_part(self, cohort: str, name: str, vector: list[int]) -> list[int]:
        async with smpc_dp.connect(self.files[cohort], party=name, web=self.web) as session:
            return list((await session.sum(vector)).value.tolist())

    async def sum(self, cohort: str, first: int) -> list[list[int]]:
        calls = (self.take_part(cohort, name, [first, 1]) for name in PARTIES)
        return list(await asyncio.wait_for(asyncio.gather(*calls), WAIT))


@pytest.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[Hosted]:
    authority, listened = Authority(tmp_path), free_port()
    async with Relay(listened, authority.sign("localhost")).open() as balancer:
        yield Hosted(tmp_path / "sessions", balancer, listened, WebSettings(ca_file=authority.file))


async def test_sessions_run_side_by_side(hosted: Hosted) -> None:
    sessions, issues = find_sessions(hosted.folder)
    assert [session.name for session in sessions] == ["one", "three", "two"]
    assert not issues
    async with hosted.serving(sessions):
        sums = await asyncio.gather(
            *(hosted.sum(name, 10 * number) for number, name in enumerate(hosted.files))
        )
    assert sums == [[[30 * number, 3]] * 3 for number in range(3)]
    assert not hosted.problems
    assert {name for name, event in hosted.events if event.kind == "done"} == set(hosted.files)


async def test_a_session_that_waits_or_fails_does_not_stop_another(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One waits for its last party, one cannot be served at first, one fails by an error of the program."""
    sessions, _ = find_sessions(hosted.folder)
    failures = {"two": 2, "three": 100}

    class Failing:
        """The task of a session, which fails a few times."""

        def __init__(self, session: HostedSession) -> None:
            self._task, self._name = task_of(session.loaded), session.name

        async def serve(self, *arguments: object) -> list[str]:
            if failures.get(self._name, 0):
                failures[self._name] -= 1
                if self._name == "three":
                    raise RuntimeError("a bug")
                raise LocalError("the disk is full")
            return await self._task.serve(*arguments)  # type: ignore[arg-type]

    by_digest = {session.loaded.digest: session for session in sessions}
    monkeypatch.setattr(many_sessions, "task_of", lambda loaded: Failing(by_digest[loaded.digest]))
    monkeypatch.setattr(many_sessions, "FIRST_PAUSE", 0.05)
    async with hosted.serving(sessions):
        waiting = [asyncio.create_task(hosted.take_part("one", name, [1, 1])) for name in ("alice", "bob")]
        assert await hosted.sum("two", 7) == [[21, 3]] * 3
        assert not any(task.done() for task in waiting)
        assert await hosted.take_part("one", "carol", [1, 1]) == [3, 3]
        assert await asyncio.gather(*waiting) == [[3, 3]] * 2
    assert sorted(name for name, _ in hosted.problems) == ["three", "two", "two"]
    assert [str(error) for name, error in hosted.problems if name == "two"] == ["the disk is full"] * 2


async def test_a_session_that_cannot_be_served_is_named_and_the_others_are_found(hosted: Hosted) -> None:
    text = hosted.files["one"].read_text()
    hosted.files["one"].write_text(text.replace("wss://localhost", "localhost").replace("/cohorts/one", ""))
    hosted.files["two"].write_text(hosted.files["two"].read_text() + "\nunknown = 1\n")
    for folder in ("four", "five"):
        (hosted.folder / folder).mkdir()
    (hosted.folder / "four" / "session.toml").write_text(hosted.files["three"].read_text())
    for folder in ("six", "seven"):
        (hosted.folder / folder).mkdir()
    (hosted.folder / "seven" / "session.toml").write_text("a = " + "[" * 100_000)
    pipe = hosted.folder / "six" / "session.toml"
    os.mkfifo(pipe)
    # Whoever reads the pipe gets an end, and does not wait for ever.
    writer = threading.Thread(target=pipe.write_bytes, args=(b"",), daemon=True)
    writer.start()
    sessions, issues = find_sessions(hosted.folder)
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    writer.join(WAIT)
    assert [session.name for session in sessions] == ["four"]
    shown = "\n".join(map(str, issues))
    assert re.search(r"one/session.toml: roster: its aggregator has no address wss://", shown)
    assert re.search(r"two/session.toml: .*unknown", shown)
    assert re.search(r"three/session.toml: the path /cohorts/three is that of the session in four", shown)
    assert f"{hosted.folder}/six/session.toml: is no file" in shown
    assert f"{hosted.folder}/seven/session.toml: nested too deeply" in shown
    assert shown.count("six/session.toml") == shown.count("seven/session.toml") == 1
    with pytest.raises(LocalError, match="no such folder"):
        find_sessions(hosted.folder / "none")


async def test_a_session_that_is_cancelled_within_does_not_stop_another(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, _ = find_sessions(hosted.folder)
    waiting = asyncio.Event()

    class Cancelled:
        """The task of a session, cancelled by itself; those of the others wait."""

        def __init__(self, loaded: SessionFile) -> None:
            self._path = str(loaded.roster.aggregator)

        async def serve(self, *_arguments: object) -> None:
            if "/cohorts/two" in self._path:
                raise asyncio.CancelledError
            await waiting.wait()

    monkeypatch.setattr(many_sessions, "task_of", Cancelled)
    async with hosted.serving(sessions):
        async with asyncio.timeout(WAIT):
            while not hosted.problems:
                await asyncio.sleep(0.01)
    assert [name for name, _ in hosted.problems] == ["two"]


async def test_slow_steps_of_sessions_do_not_hold_up_another(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, _ = find_sessions(hosted.folder)
    free, done = threading.Event(), asyncio.Event()

    class Slow:
        """The task of a session, with slow steps in threads; one has a fast one."""

        def __init__(self, loaded: SessionFile) -> None:
            self._is_fast = "/cohorts/two" in str(loaded.roster.aggregator)

        async def serve(self, *_arguments: object) -> None:
            if self._is_fast:
                # The others have begun theirs.
                await asyncio.sleep(0.2)
                await asyncio.to_thread(str)
                done.set()
            await asyncio.gather(*(asyncio.to_thread(free.wait) for _ in range(many_sessions.THREADS)))

    monkeypatch.setattr(many_sessions, "task_of", Slow)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(many_sessions.THREADS))
    try:
        async with hosted.serving(sessions):
            await asyncio.wait_for(done.wait(), 20.0)
    finally:
        free.set()


def test_a_folder_without_sessions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no session that can be served"):
        serve_command(tmp_path)
    with pytest.raises(ConfigError, match="--listen: 'everywhere' is not of the form host:port"):
        serve_command(tmp_path, "everywhere")


async def test_the_command_serves_until_it_is_stopped(hosted: Hosted) -> None:
    (hosted.files["three"]).write_text("nothing")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "smpc_dp",
        "serve",
        "--sessions",
        str(hosted.folder),
        "--listen",
        f"127.0.0.1:{hosted.listened}",
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await hosted.sum("one", 3) == [[9, 3]] * 3
        assert await hosted.sum("two", 4) == [[12, 3]] * 3
    finally:
        process.send_signal(signal.SIGTERM)
        _, shown = await asyncio.wait_for(process.communicate(), WAIT)
    assert process.returncode == 143
    text = " ".join(shown.decode().split())
    assert re.search(r"not served: \S*three/session\.toml", text)
    assert re.search(r"one: request 1: done", text)
    assert json.dumps(GIVEN) not in text
