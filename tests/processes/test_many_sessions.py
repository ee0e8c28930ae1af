"""Several sessions in one process, by the paths of their aggregators' addresses."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import smpc_dp
from smpc_dp.cli.serve import serve as serve_command
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, PeerFault, SmpcError
from smpc_dp.session import awaited, many_sessions
from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.events import Event
from smpc_dp.session.local import free_port
from smpc_dp.session.many_sessions import HostedSession, find_sessions, serve_sessions
from smpc_dp.session.operations import Operations
from smpc_dp.session.session_file import SessionFile, Timeouts
from smpc_dp.session.tasks import task_of
from smpc_dp.web_settings import WebSettings
from tests.deadlines import WAIT
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
        self.changes: list[tuple[str, str]] = []
        self.again = asyncio.Event()

    def move(self, cohort: str, target: Path) -> None:
        """Put the folder of a session elsewhere."""
        self.files[cohort].parent.rename(target)
        self.files[cohort] = target / "session.toml"

    async def told(self, name: str, text: str) -> str:
        """Return what was said of a session, once it was."""
        async with asyncio.timeout(WAIT):
            while not (said := [said for of, said in self.changes if of == name and text in said]):
                await asyncio.sleep(0.02)
        return said[-1]

    @contextlib.asynccontextmanager
    async def serving(self, sessions: Sequence[HostedSession] | None = None) -> AsyncIterator[None]:
        task = asyncio.create_task(
            serve_sessions(
                self.folder,
                find_sessions(self.folder).sessions if sessions is None else sessions,
                "127.0.0.1",
                self.listened,
                WebSettings(proxies=("127.0.0.1",)),
                lambda session: lambda event: self.events.append((session.name, event)),
                lambda name, error: self.problems.append((name, error)),
                lambda name, text: self.changes.append((name, text)),
                again=self.again,
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
    found = find_sessions(hosted.folder)
    assert [session.name for session in found.sessions] == ["one", "three", "two"]
    assert not found.issues
    async with hosted.serving():
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
    sessions = find_sessions(hosted.folder).sessions
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
    for folder in ("six", "seven", "eight"):
        (hosted.folder / folder).mkdir()
    (hosted.folder / "eight" / "session.toml").write_text("nothing")
    (hosted.folder / "seven" / "session.toml").write_text("a = " + "[" * 100_000)
    pipe = hosted.folder / "six" / "session.toml"
    os.mkfifo(pipe)
    # Whoever reads the pipe gets an end, and does not wait for ever.
    writer = threading.Thread(target=pipe.write_bytes, args=(b"",), daemon=True)
    writer.start()
    found = find_sessions(hosted.folder)
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    writer.join(WAIT)
    assert [session.name for session in found.sessions] == ["four"]
    shown = "\n".join(str(issue) for issues in found.issues.values() for issue in issues)
    assert re.search(r"one/session.toml: roster: its aggregator has no address wss://", shown)
    assert re.search(r"two/session.toml: .*unknown", shown)
    assert re.search(r"three/session.toml: the path /cohorts/three is that of the session in four", shown)
    assert f"{hosted.folder}/six/session.toml: is no file" in shown
    assert f"{hosted.folder}/seven/session.toml: nested too deeply" in shown
    assert re.search(r"eight/session.toml:1: Expected", shown)
    assert {shown.count(f"{name}/session.toml") for name in ("six", "seven", "eight")} == {1}


async def test_a_session_that_is_cancelled_within_does_not_stop_another(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = find_sessions(hosted.folder).sessions
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
    sessions = find_sessions(hosted.folder).sessions
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
            await asyncio.wait_for(done.wait(), WAIT)
    finally:
        free.set()


async def test_sessions_are_added_and_removed_while_others_are_served(
    hosted: Hosted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is removed while a request is under way, one while it waits; one comes to the place of another."""
    heard: set[str] = set()
    hold = Operations.hold

    def held(self: Operations, inbound: InboundEvent) -> None:
        heard.add(inbound.peer)
        hold(self, inbound)

    monkeypatch.setattr(Operations, "hold", held)
    monkeypatch.setattr(awaited, "WAITING_SECONDS", 0.2)
    outside = tmp_path / "outside"
    outside.mkdir()
    hosted.move("three", outside / "three")
    async with hosted.serving():
        async with asyncio.timeout(WAIT):
            while not (waiting := [event for _, event in hosted.events if event.kind == "waiting"]):
                await asyncio.sleep(0.02)
        # Until the time to connect is over, though it is looked each second whether the session is to end.
        soon = (time.localtime(time.time() + seconds) for seconds in range(-20, 5))
        assert waiting[0].until not in {time.strftime("%H:%M:%S", at) for at in soon}
        asked = asyncio.create_task(hosted.take_part("one", "alice", [1, 2]))
        async with asyncio.timeout(WAIT):
            while not heard:
                await asyncio.sleep(0.02)
        hosted.move("one", outside / "one")
        hosted.move("two", hosted.folder / "other")
        hosted.move("three", hosted.folder / "three")
        hosted.again.set()
        # The path of the one that ends is free then.
        assert "waits for the path /cohorts/two until the session in two ends" in await hosted.told(
            "other", "waits"
        )
        await hosted.told("two", "has ended")
        await hosted.told("other", "begins: wss://")
        assert await hosted.sum("two", 5) == [[15, 3]] * 3
        assert await hosted.sum("three", 6) == [[18, 3]] * 3
        assert ("one", "has ended") not in hosted.changes
        assert not asked.done()
        others = (hosted.take_part("one", name, [1, 2]) for name in ("bob", "carol"))
        assert await asyncio.gather(asked, *others) == [[3, 6]] * 3
        await hosted.told("one", "has ended")
        with pytest.raises(PeerFault, match="status 404"):
            await hosted.take_part("one", "alice", [1, 2])
        # Without a change nothing happens.
        before = len(hosted.changes)
        hosted.again.set()
        await asyncio.sleep(0.3)
        assert len(hosted.changes) == before
    assert not hosted.problems


async def test_a_session_whose_file_changes_goes_on_as_it_was(hosted: Hosted) -> None:
    digests = {session.name: session.loaded.digest.hex() for session in find_sessions(hosted.folder).sessions}
    async with hosted.serving():
        async with asyncio.timeout(WAIT):
            while {name for name, event in hosted.events if event.kind == "step"} < {*digests}:
                await asyncio.sleep(0.02)
        text = {name: file.read_text() for name, file in hosted.files.items()}
        hosted.files["one"].write_text(text["one"].replace("upper = 100", "upper = 99"))
        hosted.files["two"].write_text("broken")
        hosted.files["three"].write_text(text["three"].replace("step = 30.0", "step = 31.0"))
        (hosted.folder / "four").mkdir()
        (hosted.folder / "four" / "session.toml").write_text("broken")
        hosted.again.set()
        goes_on = {name: f"the session goes on with the digest {digest}" for name, digest in digests.items()}
        said = await hosted.told("one", goes_on["one"])
        assert re.search(r"one/session.toml is now of a session with the digest [0-9a-f]{64}, which is", said)
        assert "two/session.toml" in await hosted.told("two", goes_on["two"])
        assert "has other timeouts, which are not taken" in await hosted.told("three", goes_on["three"])
        assert [name for name, _ in hosted.problems] == ["four"]
        # Parties have the files as they were.
        for name, content in text.items():
            hosted.files[name].write_text(content)
        assert await asyncio.gather(*(hosted.sum(name, 1) for name in text)) == [[[3, 3]] * 3] * 3
        hosted.folder.rename(hosted.folder.with_name("away"))
        hosted.again.set()
        assert "No such file" in await hosted.told("", "nothing is changed")
        assert not any("has ended" in text for _, text in hosted.changes)


async def test_a_session_whose_key_is_missing_is_served_when_it_is_there_and_ends_when_it_is_removed(
    hosted: Hosted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_sessions, "FIRST_PAUSE", 0.1)
    key = hosted.files["one"].parent / "keys" / "aggregator.key"
    key.rename(tmp_path / "key")
    async with hosted.serving():
        assert await hosted.sum("two", 1) == [[3, 3]] * 3
        assert {name for name, _ in hosted.problems} == {"one"}
        assert "keys/aggregator.key" in str(hosted.problems[0][1])
        (tmp_path / "key").rename(key)
        assert await hosted.sum("one", 2) == [[6, 3]] * 3
    hosted.problems.clear()
    key.rename(tmp_path / "key")
    text = hosted.files["one"].read_text()
    async with hosted.serving():
        async with asyncio.timeout(WAIT):
            while not hosted.problems:
                await asyncio.sleep(0.02)
            # Another session in its place is not served instead.
            hosted.files["one"].write_text(text.replace("upper = 100", "upper = 99"))
            (tmp_path / "key").rename(key)
            while "is now of a session with the digest" not in str(hosted.problems[-1][1]):
                await asyncio.sleep(0.02)
    hosted.problems.clear()
    hosted.files["one"].write_text(text)
    key.rename(tmp_path / "key")
    monkeypatch.setattr(many_sessions, "FIRST_PAUSE", 10 * WAIT)
    async with hosted.serving():
        async with asyncio.timeout(WAIT):
            while not hosted.problems:
                await asyncio.sleep(0.02)
        hosted.move("one", tmp_path / "one")
        hosted.again.set()
        await hosted.told("one", "has ended")


async def test_a_session_that_is_over_is_not_begun_again(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that learns; one that could not be served is tried again."""
    served: list[str] = []

    class Ends:
        """The task of a session, which ends, in one with an error."""

        def __init__(self, loaded: SessionFile) -> None:
            self._address = str(loaded.roster.aggregator)

        async def serve(self, *_arguments: object) -> None:
            name = next(name for name in hosted.files if f"/cohorts/{name}" in self._address)
            served.append(name)
            if name == "one":
                raise ConfigError.at("key", "is another one", ConfigCheck.CONFLICT)

    monkeypatch.setattr(many_sessions, "task_of", Ends)
    async with hosted.serving():
        for looks in (1, 2):
            async with asyncio.timeout(WAIT):
                while len(hosted.problems) < looks:
                    await asyncio.sleep(0.01)
            hosted.again.set()
    assert sorted(served)[:3] == ["one", "one", "three"]
    assert served.count("two") == 1


def refused(*arguments: object) -> str:
    with pytest.raises(SmpcError) as caught:
        serve_command(*arguments)  # type: ignore[arg-type]
    return str(caught.value)


def test_wrong_folders_and_addresses_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    before = signal.getsignal(signal.SIGHUP)
    assert "has no folder with a session.toml" in refused(tmp_path)
    assert "--listen: 'everywhere' is not of the form host:port" in refused(tmp_path, "everywhere")
    assert f"{tmp_path}/none: cannot read the folder of sessions (No such file" in refused(tmp_path / "none")
    assert "cannot read the folder of sessions (Not a directory)" in refused(tmp_path / "file")

    def scandir(_folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        assert "cannot read the folder of sessions (Permission denied)" in refused(tmp_path)
    only = Path("key.pem")
    assert "--tls-certificate: a certificate and its key go together" in refused(
        tmp_path, "127.0.0.1:1", None, only
    )
    assert "--behind: 'balancer' is no IP address" in refused(
        tmp_path, "127.0.0.1:1", None, None, ["balancer"]
    )
    # Who stops this process by SIGHUP does so again.
    assert signal.getsignal(signal.SIGHUP) == before


async def test_the_command_serves_until_it_is_stopped(hosted: Hosted) -> None:
    third = hosted.files["three"].read_text()
    hosted.files["three"].write_text("nothing")
    options = ("--sessions", str(hosted.folder), "--listen", f"127.0.0.1:{hosted.listened}")
    command = (sys.executable, "-m", "smpc_dp", "serve", *options)
    process = await asyncio.create_subprocess_exec(
        *command,
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await hosted.sum("one", 3) == [[9, 3]] * 3
        assert await hosted.sum("two", 4) == [[12, 3]] * 3
        hosted.files["three"].write_text(third)
        process.send_signal(signal.SIGHUP)
        assert await hosted.sum("three", 5) == [[15, 3]] * 3
        taken = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        _, reason = await asyncio.wait_for(taken.communicate(), WAIT)
        assert taken.returncode == 1
        assert f"cannot listen on 127.0.0.1:{hosted.listened}: the port is in use" in " ".join(
            reason.decode().split()
        )
    finally:
        process.send_signal(signal.SIGTERM)
        _, shown = await asyncio.wait_for(process.communicate(), WAIT)
    assert process.returncode == 143
    text = " ".join(shown.decode().split())
    assert re.search(r"not served: \S*three/session\.toml", text)
    assert re.search(r"three: begins: wss://localhost", text)
    assert re.search(r"one: request 1: done", text)
    assert json.dumps(GIVEN) not in text
