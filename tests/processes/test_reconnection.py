"""Sessions whose aggregator is started again, or has no parties for a while."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.session import awaited
from smpc_dp.session.events import Event, Kind
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.deadlines import HOURS, WAIT

PARTIES = ("alice", "bob", "carol", "dave", "erin")
GIVEN: dict[str, object] = {
    "length": 1,
    "kind": "integer",
    "lower": 0,
    "upper": 100,
    "dropout": 0.25,
    "corrupt": 0.0,
}
EVERYONE = 1 + 2 + 3 + 4 + 5
Start = Callable[..., Awaitable[asyncio.subprocess.Process]]
TIMEOUTS = Timeouts(connect=20.0, step=20.0, gather=20.0)
NOISY: dict[str, object] = {
    "length": 1,
    "lower": 0.0,
    "upper": 9.0,
    "precision": 3.0,
    "epsilon": 10.0,
    "delta": 1e-6,
}
RECORDS: dict[str, object] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "records": {"max_rows": 9, "columns": {"age": {"lower": 0, "upper": 99}}},
    "ask": ["mean(age)"],
}


def average(session: smpc_dp.Session) -> Awaitable[Any]:
    return session.average([1.0])


# Protocol, parameters, and the call of a party.
KINDS: dict[str, tuple[str, dict[str, object], Callable[[smpc_dp.Session], Awaitable[Any]]]] = {
    "noisy": ("secagg", NOISY, average),
    "gopa": ("gopa", NOISY, average),
    "verifiable": ("gopa", NOISY | {"verifiable": True}, average),
    "records": ("secagg", RECORDS, lambda session: session.statistics({"age": [30, 40]})),
    "pairs": ("secagg", GIVEN, lambda session: session.pairwise("collision", 7, 12.0, 1, covert=0)),
}


class Aggregator:
    """An aggregator that serves until it is stopped, and is started again at the same address."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        # Called with each event, the number of its process before it.
        self.watch: Callable[[int, Event], None] = lambda _process, _event: None
        self.processes = 0
        self._serving: asyncio.Task[object] | None = None

    def start(self) -> None:
        self.processes += 1
        number = self.processes

        def on_event(event: Event) -> None:
            self.events.append(event)
            self.watch(number, event)

        self._serving = asyncio.create_task(smpc_dp.serve(self.path, requests=0, on_event=on_event))

    def cut(self) -> None:
        """Cancel the aggregator, which says no goodbye."""
        assert self._serving is not None
        self._serving.cancel()

    async def stop(self) -> None:
        assert self._serving is not None
        self.cut()
        await asyncio.gather(self._serving, return_exceptions=True)

    @property
    def running(self) -> bool:
        return self._serving is not None and not self._serving.done()

    def done(self) -> list[int]:
        return [event.request for event in self.events if event.kind == "done"]


@contextlib.asynccontextmanager
async def aggregator(path: Path) -> AsyncIterator[Aggregator]:
    served = Aggregator(path)
    served.start()
    try:
        yield served
    finally:
        await served.stop()


async def summed(session: smpc_dp.Session) -> int:
    result = await session.sum([1 + PARTIES.index(session.party)])
    return int(result.value[0])


async def until_reported(events: list[Event], kind: Kind, times: int) -> None:
    async with asyncio.timeout(WAIT):
        while sum(event.kind == kind for event in events) < times:
            await asyncio.sleep(0.02)


async def test_parties_go_on_after_a_restart_between_requests(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=TIMEOUTS)
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(aggregator(path))
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES]
        for _ in range(3):
            assert await asyncio.gather(*map(summed, sessions)) == [EVERYONE] * 5
        await until_reported(served.events, "done", 3)
        await served.stop()
        served.start()
        assert await asyncio.gather(*map(summed, sessions)) == [EVERYONE] * 5
        await until_reported(served.events, "done", 4)
        await served.stop()
        # All notice the loss before they call.
        await asyncio.sleep(0.2)
        served.start()
        assert await asyncio.gather(*map(summed, sessions)) == [EVERYONE] * 5
        await until_reported(served.events, "done", 5)
    # A process that begins anew skips what was served before.
    assert served.done() == [1, 2, 3, 4, 5]
    assert {event.request for event in served.events if event.kind == "failed"} == {1}


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_of_other_kinds_go_on_as_well(tmp_path: Path, kind: str) -> None:
    protocol, given, call = KINDS[kind]
    names = PARTIES[:4]
    path = create_local_session(tmp_path, names, given, protocol=protocol, timeouts=TIMEOUTS)
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(aggregator(path))
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in names]
        for number in (1, 2):
            results = await asyncio.gather(*map(call, sessions))
            assert [result.survivors for result in results] == [names] * 4
            # Parties may have a result before the aggregator has ended the request.
            await until_reported(served.events, "done", number)
            await served.stop()
            # Only sums are asked for again where the loss is noticed after the call.
            await asyncio.sleep(0.2)
            served.start()
    assert served.done() == [1, 2]


async def test_who_waits_for_others_asks_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited, "WAITING_SECONDS", 0.2)
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=TIMEOUTS)
    reported: list[Event] = []
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(aggregator(path))
        alice = await stack.enter_async_context(
            smpc_dp.connect(path, party="alice", on_event=reported.append)
        )
        early = asyncio.create_task(summed(alice))
        await until_reported(reported, "step", 1)
        for restarts in (1, 2):
            await served.stop()
            await until_reported(reported, "lost", restarts)
            served.start()
            await until_reported(reported, "connected", 1 + restarts)
        # It says that it waits for the request again, and not to connect.
        reported.clear()
        await until_reported(reported, "waiting", 1)
        assert reported[-1].step == "start"
        others = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES[1:]]
        assert await asyncio.gather(early, *map(summed, others)) == [EVERYONE] * 5
    assert served.processes == 3


async def test_one_party_alone_skips_no_request(tmp_path: Path) -> None:
    """A restarted aggregator goes on with a later request only where enough have asked for one."""
    short = Timeouts(connect=2.0, step=20.0, gather=1.0)
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=short)
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(aggregator(path))
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES]
        ahead = asyncio.create_task(sessions[4].sum([5], number=1000))
        await asyncio.sleep(0.5)
        assert await asyncio.gather(*map(summed, sessions[:4])) == [EVERYONE - 5] * 4
        assert await asyncio.gather(*map(summed, sessions[:4])) == [EVERYONE - 5] * 4
        await until_reported(served.events, "done", 2)
        assert served.done() == [1, 2]
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)


@pytest.mark.parametrize(("count", "corrupt"), [(3, 0.0), (5, 0.2)])
async def test_parties_that_come_one_after_the_other_meet(tmp_path: Path, count: int, corrupt: float) -> None:
    """However late: neither the first one nor two that open the request end it."""
    short = Timeouts(connect=1.0, step=20.0, gather=20.0)
    names = PARTIES[:count]
    path = create_local_session(tmp_path, names, GIVEN | {"dropout": 0.0, "corrupt": corrupt}, timeouts=short)
    async with aggregator(path) as served:
        await asyncio.sleep(1.2)

        async def take_part(index: int) -> int:
            await asyncio.sleep(0.6 * index)
            async with smpc_dp.connect(path, party=names[index]) as session:
                return await summed(session)

        assert await asyncio.gather(*map(take_part, range(count))) == [sum(range(1, count + 1))] * count
        await until_reported(served.events, "done", 1)
    assert [event.request for event in served.events if event.kind == "failed"] == []


async def test_who_is_absent_is_not_waited_for_once_enough_have_asked(tmp_path: Path) -> None:
    short = Timeouts(connect=1.0, step=3600.0, gather=3600.0)
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=short)
    async with aggregator(path), contextlib.AsyncExitStack() as stack:
        await asyncio.sleep(1.2)
        sessions = [
            await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES[:4]
        ]
        async with asyncio.timeout(WAIT):
            assert await asyncio.gather(*map(summed, sessions)) == [EVERYONE - 5] * 4


async def test_the_only_party_that_is_connected_passes_no_request(tmp_path: Path) -> None:
    """By its plan one party opens a request here, but cannot take part in one alone."""
    short = Timeouts(connect=1.0, step=20.0, gather=1.0)
    names = PARTIES[:4]
    path = create_local_session(tmp_path, names, GIVEN | {"dropout": 0.0}, timeouts=short)
    async with aggregator(path) as served:
        await asyncio.sleep(1.2)
        async with smpc_dp.connect(path, party="alice") as alice:
            ahead = asyncio.create_task(alice.sum([1], number=1000))
            await asyncio.sleep(2.2)
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
        assert [event.request for event in served.events if event.kind == "failed"] == []
        async with contextlib.AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in names]
            assert await asyncio.gather(*map(summed, sessions)) == [EVERYONE - 5] * 4
            await until_reported(served.events, "done", 1)
    assert served.done() == [1]


async def test_one_party_keeps_no_others_at_earlier_requests(tmp_path: Path) -> None:
    """Who asks for an earlier one may be among the first four, and is not after it."""
    path = create_local_session(
        tmp_path, PARTIES, GIVEN, timeouts=Timeouts(connect=5.0, step=20.0, gather=5.0)
    )
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(aggregator(path))
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES]
        behind = asyncio.create_task(sessions[4].sum([5], number=2))
        await asyncio.sleep(0.3)
        others = [session.sum([1], number=1000) for session in sessions[:4]]
        assert [int(result.value[0]) for result in await asyncio.gather(*others)] == [4] * 4
        with pytest.raises((smpc_dp.OtherRequestError, smpc_dp.TimeoutFault)):
            await behind
        await until_reported(served.events, "done", 1)
    assert served.done() == [1000]
    assert {event.request for event in served.events if event.kind == "failed"} <= {1, 2}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start members as processes, which are killed at the end."""
    processes: list[asyncio.subprocess.Process] = []

    async def run(path: Path, name: str, *options: str) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "smpc_dp", "party", str(path), "--as", name, *options)
        pipe = asyncio.subprocess.PIPE
        processes.append(await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe))
        return processes[-1]

    yield run
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until_printed(process: asyncio.subprocess.Process, text: bytes) -> None:
    assert process.stderr is not None
    async with asyncio.timeout(WAIT):
        while text not in (line := await process.stderr.readline()):
            assert line, "the process has ended"


async def test_commands_go_on_after_a_killed_aggregator(tmp_path: Path, start: Start) -> None:
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=HOURS)
    for number, name in enumerate(PARTIES, 1):
        (tmp_path / f"{name}.txt").write_text(str(number), "utf-8")

    def party(name: str) -> Awaitable[asyncio.subprocess.Process]:
        return start(path, name, "--input", str(tmp_path / f"{name}.txt"), "--operation", "sum", "--json")

    serving = await start(path, "aggregator", "--requests", "0")
    alice = await party("alice")
    # Not before its call: a loss that is noticed between calls is not reported.
    await until_printed(alice, b"alice: start: waits for 1")
    serving.kill()
    await serving.wait()
    await until_printed(alice, b"alice: lost aggregator")
    serving = await start(path, "aggregator", "--requests", "0")
    processes = [alice, *[await party(name) for name in PARTIES[1:]]]
    for process in processes:
        printed, _ = await asyncio.wait_for(process.communicate(), WAIT)
        assert (process.returncode, json.loads(printed)["value"]) == (0, [EVERYONE])
    await until_printed(serving, b"request 1: done")
    # All have left, and it waits for the next ones.
    await asyncio.sleep(0.5)
    assert serving.returncode is None
    serving.terminate()
    assert await serving.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("step", ["masked", "unmask"])
async def test_a_request_that_was_under_way_ends_and_the_next_one_goes_on(tmp_path: Path, step: str) -> None:
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=TIMEOUTS)
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(aggregator(path))

        def cut(process: int, event: Event) -> None:
            if process == 1 and event.kind == "step" and event.step == step:
                served.cut()

        served.watch = cut
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES]
        ended = await asyncio.gather(*map(summed, sessions), return_exceptions=True)
        assert [type(error) for error in ended] == [smpc_dp.TimeoutFault] * 5
        await served.stop()
        served.start()
        assert await asyncio.gather(*map(summed, sessions)) == [EVERYONE] * 5
        await until_reported(served.events, "done", 1)
    assert served.done() == [2]


async def test_an_aggregator_waits_for_parties_beyond_connect(tmp_path: Path) -> None:
    """It goes on when all have left as well, and when too few asked in time."""
    short = Timeouts(connect=1.0, step=20.0, gather=3.0)
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=short)
    async with aggregator(path) as served:
        await asyncio.sleep(2.2)
        async with smpc_dp.connect(path, party="alice") as alone:
            with pytest.raises(smpc_dp.TimeoutFault) as caught:
                await summed(alone)
            assert caught.value.missing == set(PARTIES[1:])
        for number in (1, 2):

            async def take_part(name: str, number: int = number) -> int:
                async with smpc_dp.connect(path, party=name) as session:
                    result = await session.sum([1 + PARTIES.index(name)], number=number)
                    return int(result.value[0])

            assert await asyncio.gather(*map(take_part, PARTIES)) == [EVERYONE] * 5
            await asyncio.sleep(1.2)
        assert served.running
        assert served.done() == [1, 2]


async def test_the_end_of_a_session_is_no_loss(tmp_path: Path) -> None:
    """An aggregator that has said goodbye is not called again."""
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=HOURS)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES]
        assert await asyncio.gather(*map(summed, sessions)) == [EVERYONE] * 5
        await serving
        for session in sessions:
            async with asyncio.timeout(WAIT):
                with pytest.raises(smpc_dp.TimeoutFault, match="has ended the session"):
                    await summed(session)


async def test_a_goodbye_after_a_message_that_nobody_has_taken_is_one(tmp_path: Path) -> None:
    """A party that is cancelled in a request is sent its messages, and then that the session has ended."""
    short = Timeouts(connect=7200.0, step=3.0, gather=7200.0)
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=short)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES]
        cancelled = asyncio.create_task(summed(sessions[0]))
        await asyncio.sleep(0.5)
        cancelled.cancel()
        assert await asyncio.gather(*map(summed, sessions[1:])) == [EVERYONE - 1] * 4
        await serving
        async with asyncio.timeout(WAIT):
            with pytest.raises(smpc_dp.TimeoutFault, match="has ended the session"):
                await summed(sessions[0])


async def test_an_aggregator_that_stays_away_is_named(tmp_path: Path) -> None:
    short = Timeouts(connect=1.0, step=20.0, gather=1.0)
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=short)
    async with aggregator(path) as served, smpc_dp.connect(path, party="alice") as alice:
        await served.stop()
        for _ in range(2):
            with pytest.raises(smpc_dp.TimeoutFault, match=r"not reached in 1\.0 s") as caught:
                await summed(alice)
            assert caught.value.missing == {"aggregator"}
        served.start()
        await asyncio.sleep(0.2)


async def test_an_aggregator_of_another_session_is_refused(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=TIMEOUTS)
    async with aggregator(path) as served, smpc_dp.connect(path, party="alice") as alice:
        await served.stop()
        text = path.read_text("utf-8")
        path.write_text(text.replace("upper = 100", "upper = 101"), "utf-8")
        served.start()
        with pytest.raises(smpc_dp.ConfigError, match="upper"):
            await summed(alice)


@pytest.mark.parametrize("requests", [-1])
async def test_no_negative_number_of_requests_is_served(tmp_path: Path, requests: int) -> None:
    path = create_local_session(tmp_path, PARTIES, GIVEN, timeouts=TIMEOUTS)
    with pytest.raises(smpc_dp.ConfigError, match="at least 0"):
        await smpc_dp.serve(path, requests=requests)
