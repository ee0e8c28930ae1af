"""Sessions whose members go on after their processes have ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from examples.false_total import aggregator_with, one_more
from smpc_dp.errors import Code
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.deadlines import WAIT
from tests.faults.saved_session_schedules import without_syncs

PARTIES = ("alice", "bob", "carol", "dave")
GIVEN: dict[str, object] = {
    "length": 1,
    "kind": "integer",
    "lower": 0,
    "upper": 100,
    "dropout": 0.25,
    "corrupt": 0.0,
    "same_survivors": False,
}
EVERYONE = 1 + 2 + 3 + 4
TIMEOUTS = Timeouts(connect=20.0, step=20.0, gather=20.0)


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


def killed(*options: str) -> str:
    """Play sessions whose members are killed; return what is printed."""
    command = [sys.executable, "-m", "tests.processes.saved_sessions", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("first", "runs"), [(1, 4), (5, 3), (8, 3)])
def test_sessions_go_on_though_members_are_killed(tmp_path: Path, first: int, runs: int) -> None:
    options = ("--first", str(first), "--runs", str(runs), "--requests", "1", "--parties", "3")
    printed = killed(*options, "--folder", str(tmp_path))
    assert f"{runs} of {runs} went on" in printed
    assert re.search(r"killed (?!nobody)", printed)


@pytest.mark.long
def test_averages_go_on_though_members_are_killed(tmp_path: Path) -> None:
    """Verifiable ones, whose logs both auditors accept."""
    options = ("--runs", "2", "--requests", "1", "--parties", "3", "--kind", "verifiable")
    assert "2 of 2 went on" in killed(*options, "--folder", str(tmp_path))


@pytest.mark.long
@pytest.mark.slow
def test_sessions_go_on_in_a_long_series(tmp_path: Path) -> None:
    assert "100 of 100 went on" in killed("--runs", "100", "--first", "11", "--folder", str(tmp_path))


@pytest.mark.long
@pytest.mark.slow
def test_without_counters_no_two_totals_differ(tmp_path: Path) -> None:
    """Members that are killed late are lost: requests stop, or go on without them."""
    killed("--runs", "20", "--no-counter", "--folder", str(tmp_path))


class Scene:
    """A session whose members can crash: connections end without a goodbye, and nothing is recorded."""

    def __init__(self, folder: Path, given: dict[str, object], timeouts: Timeouts, protocol: str) -> None:
        self.folder = folder
        self.path = create_local_session(folder, PARTIES, given, protocol=protocol, timeouts=timeouts)
        self.events: list[Event] = []
        # Called with each event of the aggregator.
        self.watch: OnEvent = ignore
        self._serving: asyncio.Task[Any] | None = None

    def media(self, name: str) -> dict[str, Any]:
        (self.folder / f"{name}.counter").mkdir(exist_ok=True)
        return {"state": self.folder / f"{name}.state", "counter": self.folder / f"{name}.counter"}

    def serve(self, requests: int = 0) -> asyncio.Task[Any]:
        def on_event(event: Event) -> None:
            self.events.append(event)
            self.watch(event)

        served = smpc_dp.serve(self.path, requests=requests, on_event=on_event, **self.media("aggregator"))
        self._serving = asyncio.create_task(served)
        return self._serving

    def cut(self) -> None:
        assert self._serving is not None
        self._serving.cancel()

    async def stop(self) -> None:
        if self._serving is not None:
            self.cut()
            await asyncio.gather(self._serving, return_exceptions=True)

    async def open(self, name: str, on_event: OnEvent = ignore, **more: Any) -> smpc_dp.Session:
        return await smpc_dp.Session.open(self.path, name, on_event=on_event, **self.media(name), **more)

    def connect(self, name: str) -> contextlib.AbstractAsyncContextManager[smpc_dp.Session]:
        return smpc_dp.connect(self.path, name, **self.media(name))

    async def sum(self, name: str, label: str, value: int | None = None, number: int | None = None) -> Any:
        """Return the result of a party's call in a session of its own, which is closed as a program does."""
        async with self.connect(name) as session:
            given = [1 + PARTIES.index(name) if value is None else value]
            return await session.sum(given, label=label, number=number)

    async def everyone(self, label: str) -> list[int]:
        """Return the sum of all parties, as each has it."""
        return values(await asyncio.gather(*(self.sum(name, label) for name in PARTIES)))

    async def crash_at(self, name: str, step: str, label: str) -> None:
        """Let a party ask, and crash when it waits in a step."""
        reached = asyncio.Event()
        session = await self.open(name, lambda event: reached.set() if event.step == step else None)
        asked = asyncio.create_task(session.sum([1 + PARTIES.index(name)], label=label))
        async with asyncio.timeout(WAIT):
            await reached.wait()
        asked.cancel()
        await crash(session, asked)

    def done(self) -> list[int]:
        return [event.request for event in self.events if event.kind == "done"]


async def crash(session: smpc_dp.Session, *tasks: asyncio.Task[Any]) -> None:
    """End a session as its process ends."""
    session._requests.connection.connections.abort()
    await asyncio.gather(*tasks, return_exceptions=True)
    session._state.close()


@contextlib.asynccontextmanager
async def scene(
    folder: Path,
    given: dict[str, object] = GIVEN,
    timeouts: Timeouts = TIMEOUTS,
    protocol: str = "secagg",
) -> AsyncIterator[Scene]:
    made = Scene(folder, given, timeouts, protocol)
    try:
        yield made
    finally:
        await made.stop()


def values(results: list[Any]) -> list[int]:
    return [int(result.value[0]) for result in results]


@pytest.mark.thin(4)
@pytest.mark.parametrize("step", ["start", "participants", "survivors", "result"])
async def test_a_party_that_crashes_goes_on_with_its_stored_vector(tmp_path: Path, step: str) -> None:
    async with scene(tmp_path) as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        await session.crash_at("alice", step, "round 1")
        # After the release the stored vector counts, and before it no other one is accepted.
        if step in ("start", "participants"):
            with pytest.raises(smpc_dp.LocalError, match="another input"):
                await session.sum("alice", "round 1", 100)
            result = await session.sum("alice", "round 1")
        else:
            result = await session.sum("alice", "round 1", 100)
        assert values([result, *await asyncio.gather(*others)]) == [EVERYONE] * 4
        assert result.resumed
        assert not (await others[0]).resumed
        assert "resumed" in str(result)


@pytest.mark.thin(4)
@pytest.mark.parametrize("step", ["hello", "advertise", "masked", "unmask"])
async def test_an_aggregator_that_crashes_goes_on(tmp_path: Path, step: str) -> None:
    async with scene(tmp_path) as session:
        reached = asyncio.Event()

        def watch(event: Event) -> None:
            if event.step == step and not reached.is_set():
                reached.set()
                session.cut()

        session.watch = watch
        session.serve()
        asked = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES]
        await reached.wait()
        await session.stop()
        session.serve()
        results = await asyncio.gather(*asked)
        assert values(results) == [EVERYONE] * 4
        # The parties' processes were there all the time.
        assert not any(result.resumed for result in results)
        assert (
            values(await asyncio.gather(*(session.sum(name, "round 2") for name in PARTIES)))
            == [EVERYONE] * 4
        )
        assert session.done()[-2:] in ([1, 2], [2])


async def test_a_result_is_there_until_the_next_call(tmp_path: Path) -> None:
    """Whether its process ended before its caller had it, or the aggregator has ended long ago."""
    async with scene(tmp_path) as session:
        serving = session.serve(requests=1)
        alice = await session.open("alice")
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        first = await alice.sum([1], label="round 1")
        await asyncio.gather(*others)
        await crash(alice)
        await serving
        again = await session.sum("alice", "round 1", 100)
        assert again.resumed
        assert (again.value, again.evidence.run_id) == (first.value, first.evidence.run_id)
        # It was taken when that session was closed; by its number it is still there.
        session.serve()
        assert (await session.sum("alice", "round 1", 100, number=1)).resumed
        with pytest.raises(smpc_dp.ConfigError, match="request 1 was for 'sum round 1'"):
            await session.sum("alice", "round 2", number=1)


async def test_a_result_is_there_again_where_an_exception_ends_the_block(tmp_path: Path) -> None:
    """What failed may be the storing of the result: the vector of the call is in no second request."""

    def blocking(value: int, *, fails: bool) -> Any:
        media = session.media("bob")
        with smpc_dp.sync.connect(session.path, "bob", **media) as opened:
            result = opened.sum([value], label="round 1")
            if fails:
                raise OSError("the disk is full")
            return result

    async def failing(name: str) -> None:
        async with session.connect(name) as opened:
            await opened.sum([1 + PARTIES.index(name)], label="round 1")
            raise OSError("the disk is full")

    async with scene(tmp_path) as session:
        session.serve()
        calls = [failing(name) for name in PARTIES if name != "bob"]
        ended = await asyncio.gather(
            asyncio.to_thread(blocking, 2, fails=True), *calls, return_exceptions=True
        )
        assert [type(error) for error in ended] == [OSError] * 4
        again = [await asyncio.to_thread(blocking, 100, fails=False)]
        again += [await session.sum(name, "round 1", 100) for name in PARTIES if name != "bob"]
        assert values(again) == [EVERYONE] * 4
        assert all(result.resumed for result in again)
        assert session.done() == [1]
        assert await session.everyone("round 2") == [EVERYONE] * 4


async def test_an_error_of_a_request_is_raised_once(tmp_path: Path) -> None:
    """It ends the block, and the next call is of the next request."""
    short = Timeouts(connect=3.0, step=1.0, gather=1.0)
    async with scene(tmp_path, timeouts=short) as session:
        session.serve()
        with pytest.raises(smpc_dp.SmpcError):
            async with session.connect("alice") as opened:
                await opened.sum([1], label="round 1")
        opened = await session.open("alice")
        assert not opened._state.is_under_way
        assert opened._state.following(0) == 2
        await opened.close()


async def test_who_comes_back_after_the_end_of_a_request_is_sent_its_result(tmp_path: Path) -> None:
    """Also by an aggregator that was started again since."""
    async with scene(tmp_path) as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        await session.crash_at("alice", "result", "round 1")
        await asyncio.gather(*others)
        await session.stop()
        session.serve()
        result = await session.sum("alice", "round 1")
        assert values([result]) == [EVERYONE]
        assert result.resumed
        assert (
            values(await asyncio.gather(*(session.sum(name, "round 2") for name in PARTIES)))
            == [EVERYONE] * 4
        )


async def test_a_call_that_reaches_nobody_goes_on_when_it_is_made_again(tmp_path: Path) -> None:
    short = Timeouts(connect=3.0, step=20.0, gather=20.0)
    async with scene(tmp_path, timeouts=short) as session:
        session.watch = lambda event: session.cut() if event.step == "masked" else None
        session.serve()
        async with contextlib.AsyncExitStack() as stack:
            parties = [await stack.enter_async_context(session.connect(name)) for name in PARTIES]
            calls = (party.sum([1], label="round 1") for party in parties)
            ended = await asyncio.gather(*calls, return_exceptions=True)
            for error in ended:
                assert isinstance(error, smpc_dp.TimeoutFault)
                assert re.search("may be in a total|is in no total", str(error))
            await session.stop()
            session.watch = ignore
            session.serve()
            results = await asyncio.gather(*(party.sum([1], label="round 1") for party in parties))
            assert values(results) == [4] * 4
            assert all(result.resumed for result in results)


async def test_who_comes_back_too_late_learns_whether_its_vector_may_be_in_a_total(tmp_path: Path) -> None:
    short = Timeouts(connect=20.0, step=3.0, gather=20.0)
    async with scene(tmp_path, timeouts=short) as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        await session.crash_at("alice", "participants", "round 1")
        assert values(await asyncio.gather(*others)) == [EVERYONE - 1] * 3
        await session.stop()
        session.serve()
        with pytest.raises(smpc_dp.TimeoutFault, match="this party's vector is in no total") as caught:
            await session.sum("alice", "round 1")
        assert caught.value.code in (Code.PAST, Code.LATE)
        # The next call is of the next request.
        assert (
            values(await asyncio.gather(*(session.sum(name, "round 2") for name in PARTIES)))
            == [EVERYONE] * 4
        )


async def test_who_comes_back_after_its_exclusion_is_told_of_it(tmp_path: Path) -> None:
    """Its stored hello is the same as before, and too late."""
    short = Timeouts(connect=7200.0, step=3.0, gather=7200.0)
    async with scene(tmp_path, timeouts=short) as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[2:]]
        # The request waits a step for alice, and then for bob.
        later = asyncio.create_task(session.crash_at("bob", "participants", "round 1"))
        alice, begun = await session.open("alice"), asyncio.Event()
        asked = asyncio.create_task(alice.sum([1], label="round 1"))

        def watch(event: Event) -> None:
            if event.step == "advertise" and not begun.is_set():
                # Before she is sent `start`.
                begun.set()
                asked.cancel()
                alice._requests.connection.connections.abort()

        session.watch = watch
        await begun.wait()
        await crash(alice, asked)
        await later
        async with asyncio.timeout(WAIT):
            with pytest.raises(smpc_dp.TimeoutFault, match="this party's vector is in no total"):
                await session.sum("alice", "round 1")
        await asyncio.gather(session.sum("bob", "round 1"), *others, return_exceptions=True)


async def test_a_call_that_was_cancelled_is_made_again(tmp_path: Path) -> None:
    """Over the same connection, to an aggregator without a state: the hello is sent twice."""
    async with scene(tmp_path) as session:
        serving = asyncio.create_task(smpc_dp.serve(session.path, requests=1))
        async with contextlib.AsyncExitStack() as stack:
            alice = await stack.enter_async_context(session.connect("alice"))
            others = [
                await stack.enter_async_context(smpc_dp.connect(session.path, name)) for name in PARTIES[1:]
            ]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(alice.sum([1], label="round 1"), 1.0)
            calls = [each.sum([1], label="round 1") for each in others]
            assert values(await asyncio.gather(alice.sum([1], label="round 1"), *calls)) == [4] * 4
        await serving


async def test_an_error_about_the_total_says_where_the_vector_may_be(tmp_path: Path) -> None:
    """As the error of a lost member: a party that was shown a false total has sent its vector."""
    given = GIVEN | {"total": "checked"}
    path = create_local_session(tmp_path, PARTIES, given, timeouts=TIMEOUTS)

    async def ask(name: str) -> None:
        async with smpc_dp.connect(path, name, state=tmp_path / name) as session:
            with pytest.raises(smpc_dp.PeerFault, match="may be in a total that others have") as caught:
                await session.sum([1], label="round 1")
        assert caught.value.culprit == "aggregator"

    serving = asyncio.create_task(smpc_dp.serve(path, requests=1, role=aggregator_with(one_more, {1})))
    await asyncio.gather(*map(ask, PARTIES))
    await serving


async def test_a_request_that_was_stopped_does_not_stop_the_next_process(tmp_path: Path) -> None:
    short = Timeouts(connect=20.0, step=1.0, gather=20.0)
    async with scene(tmp_path, timeouts=short) as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[2:]]
        crashes = (session.crash_at(name, "participants", "round 1") for name in PARTIES[:2])
        await asyncio.gather(*crashes)
        for error in await asyncio.gather(*others, return_exceptions=True):
            assert isinstance(error, smpc_dp.TimeoutFault)
        await session.stop()
        session.serve()
        for name in PARTIES[:2]:
            with pytest.raises(smpc_dp.TimeoutFault, match="in no total"):
                await session.sum(name, "round 1")
        assert await session.everyone("round 2") == [EVERYONE] * 4


async def test_a_party_that_was_away_is_shown_the_request(tmp_path: Path) -> None:
    """Its number is not moved by itself: a vector is for one request."""
    short = Timeouts(connect=3.0, step=20.0, gather=3.0)
    async with scene(tmp_path, timeouts=short) as session:
        session.serve()
        async with contextlib.AsyncExitStack() as stack:
            others = [await stack.enter_async_context(session.connect(name)) for name in PARTIES[1:]]
            for number in (1, 2):
                calls = (each.sum([number], label=f"round {number}") for each in others)
                assert values(await asyncio.gather(*calls)) == [3 * number] * 3
            with pytest.raises(smpc_dp.OtherRequestError) as caught:
                await session.sum("alice", "round 1")
            assert (caught.value.number, caught.value.asked, caught.value.next) == (1, 2, 3)
            calls = (each.sum([3], label="round 3") for each in others)
            late = session.sum("alice", "round 3", 3, number=caught.value.next)
            assert values(await asyncio.gather(late, *calls)) == [12] * 4


async def test_a_command_of_an_aggregator_serves_what_is_left(tmp_path: Path) -> None:
    async with scene(tmp_path) as session, contextlib.AsyncExitStack() as stack:
        session.serve(requests=2)
        parties = [await stack.enter_async_context(session.connect(name)) for name in PARTIES]
        await asyncio.gather(*(party.sum([1], label="round 1") for party in parties))
        await session.stop()
        serving = session.serve(requests=2)
        results = await asyncio.gather(*(party.sum([2], label="round 2") for party in parties))
        assert values(results) == [8] * 4
        # What was not returned comes again.
        assert values(await asyncio.wait_for(serving, WAIT))[-2:] in ([4, 8], [8])
    assert session.done()[-1] == 2


async def test_a_call_needs_a_label_or_a_number(tmp_path: Path) -> None:
    async with scene(tmp_path) as session:
        session.serve()
        alice = await session.open("alice")
        with pytest.raises(smpc_dp.ConfigError, match="number: alice: with a state each call has a number"):
            await alice.sum([1])
        with pytest.raises(smpc_dp.ConfigError, match="a request for 'similarities' is not saved yet"):
            await alice.similarities([1.0, 2.0], 1.0)
        await alice.close()


async def test_no_two_processes_have_one_state(tmp_path: Path) -> None:
    async with scene(tmp_path) as session:
        session.serve()
        alice = await session.open("alice")
        with pytest.raises(smpc_dp.LocalError, match=r"alice\.state: another process uses this state"):
            await session.open("alice")
        await alice.close()
        await (await session.open("alice")).close()
        # Nor has the aggregator.
        with pytest.raises(smpc_dp.LocalError, match=r"aggregator\.state: another process uses this state"):
            await smpc_dp.serve(session.path, listen_on="127.0.0.1:1", **session.media("aggregator"))


@pytest.mark.long
@pytest.mark.slow
async def test_a_command_that_was_killed_goes_on(tmp_path: Path) -> None:
    """The same command again: its vector, and one request for all of its processes."""
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=TIMEOUTS)
    for number, name in enumerate(PARTIES, 1):
        (tmp_path / f"{name}.json").write_text(json.dumps([number]), "utf-8")
    processes: list[asyncio.subprocess.Process] = []

    async def start(name: str, *options: str) -> asyncio.subprocess.Process:
        for part in ("states", "counters"):
            (tmp_path / part / name).mkdir(parents=True, exist_ok=True)
        media = ("--state", str(tmp_path / "states" / name), "--counter", str(tmp_path / "counters" / name))
        command = (sys.executable, "-m", "smpc_dp", "party", str(path), "--as", name, *media, *options)
        pipe = asyncio.subprocess.PIPE
        processes.append(await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe))
        return processes[-1]

    def party(name: str) -> Awaitable[asyncio.subprocess.Process]:
        return start(name, "--input", str(tmp_path / f"{name}.json"), "--operation", "sum", "--json")

    async def until(process: asyncio.subprocess.Process, text: bytes) -> None:
        assert process.stderr is not None
        async with asyncio.timeout(WAIT):
            while text not in (line := await process.stderr.readline()):
                assert line, "the process has ended"

    try:
        serving = await start("aggregator", "--requests", "0")
        alice = await party("alice")
        await until(alice, b"goes on from any step")
        await until(alice, b"start: waits for 1")
        alice.send_signal(signal.SIGKILL)
        await alice.wait()
        serving.send_signal(signal.SIGKILL)
        await serving.wait()
        serving = await start("aggregator", "--requests", "0")
        for process in [await party(name) for name in PARTIES]:
            printed, errors = await asyncio.wait_for(process.communicate(), WAIT)
            assert process.returncode == 0, errors
            assert json.loads(printed)["value"] == [EVERYONE]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
