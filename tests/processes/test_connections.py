"""Runs over real sockets beside idle strangers, frozen processes and stolen keys."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import smpc_dp
from smpc_dp.cli.live import LiveBoard
from smpc_dp.cli.party import _show as show_event
from smpc_dp.engine.phases.messages import ATTEST_TOTAL, PARTY_STEPS
from smpc_dp.engine.result import Result
from smpc_dp.identity.address import split_address
from smpc_dp.session import awaited
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts, load_session
from smpc_dp.transport import channel as channels

PARTIES = ("alice", "bob", "carol", "dave", "erin")
PARAMETERS: dict[str, object] = {
    "length": 1,
    "kind": "integer",
    "lower": 0,
    "upper": 100,
    "dropout": 0.25,
    "corrupt": 0.0,
}
TIMEOUTS = Timeouts(connect=20.0, step=10.0, gather=60.0)
EVERYONE = 1 + 2 + 3 + 4 + 5

# Connects as erin, says so, and asks for a sum once it is told to.
WAITING_PARTY = """
import asyncio, sys, smpc_dp

async def main():
    async with smpc_dp.connect(sys.argv[1], party="erin") as session:
        print("connected", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await session.sum([5])
        except smpc_dp.SmpcError as error:
            print(type(error).__name__, error, flush=True)

asyncio.run(main())
"""


async def take_part(path: Path, name: str) -> Result:
    async with smpc_dp.connect(path, party=name) as session:
        return await session.sum([1 + PARTIES.index(name)])


@contextlib.asynccontextmanager
async def serving(path: Path, events: list[Event]) -> AsyncIterator[asyncio.Task[object]]:
    task = asyncio.create_task(smpc_dp.serve(path, requests=1, on_event=events.append))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(events: list[Event], right: Callable[[Event], bool]) -> Event:
    async with asyncio.timeout(300):
        while True:
            for event in events:
                if right(event):
                    return event
            await asyncio.sleep(0.02)


async def reach(address: tuple[str, int]) -> socket.socket:
    """Return a connection that will say nothing."""
    while True:
        stranger = socket.socket()
        stranger.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(stranger, address)
            return stranger
        except ConnectionRefusedError:
            stranger.close()
            await asyncio.sleep(0.02)


async def test_500_idle_connections_do_not_stop_a_run(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)
    address = split_address(load_session(path).roster.member("aggregator").address or "")
    events: list[Event] = []
    async with serving(path, events) as served:
        with contextlib.ExitStack() as strangers:
            for _ in range(500):
                strangers.enter_context(await reach(address))
            results = await asyncio.gather(*(take_part(path, name) for name in PARTIES))
        assert [result.value.tolist() for result in results] == [[EVERYONE]] * 5
        await served
    # All came while the strangers were there, and none was late.
    assert {event.detail for event in events if event.kind == "connected"} == set(PARTIES)
    assert [event.survivors for event in events if event.kind == "done"] == [PARTIES]


async def test_a_party_whose_process_was_frozen_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process takes the place of one that is stopped; the old one, continued, sees that it is out."""
    monkeypatch.setattr(channels, "PING_SECONDS", 1.0)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)
    events: list[Event] = []
    async with serving(path, events) as served:
        frozen = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WAITING_PARTY,
            str(path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert frozen.stdout is not None
        assert await asyncio.wait_for(frozen.stdout.readline(), 300) == b"connected\n"
        frozen.send_signal(signal.SIGSTOP)
        results = await asyncio.gather(*(take_part(path, name) for name in PARTIES))
        assert [result.value.tolist() for result in results] == [[EVERYONE]] * 5
        await served
        frozen.send_signal(signal.SIGCONT)
        claimed, _ = await asyncio.wait_for(frozen.communicate(b"\n"), 300)
    assert claimed.startswith(b"TimeoutFault")


async def test_a_stolen_key_does_not_evict_its_owner(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)
    events: list[Event] = []
    reported: list[Event] = []
    async with serving(path, events) as served:
        async with smpc_dp.connect(path, party="erin", on_event=reported.append) as owner:
            with pytest.raises(smpc_dp.PeerFault, match="this key is used twice"):
                await take_part(path, "erin")
            warned = await until(reported, lambda event: event.kind == "warned")
            results = await asyncio.gather(
                owner.sum([5]), *(take_part(path, name) for name in PARTIES if name != "erin")
            )
        await served
    assert "our key is used twice" in warned.detail
    assert [result.value.tolist() for result in results] == [[EVERYONE]] * 5
    refused = [event.detail for event in events if event.kind == "refused"]
    assert len(refused) == 1
    assert refused[0].startswith("erin: erin: this key is used twice")


async def test_the_aggregator_says_for_whom_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "WAITING_SECONDS", 0.2)
    monkeypatch.setattr(awaited, "WAITING_NAMES", 2)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)
    events: list[Event] = []
    async with serving(path, events) as served:
        first = await until(events, lambda event: event.kind == "waiting")
        assert (first.request, first.waiting) == (1, 5)
        assert first.detail == "alice (not connected), bob (not connected) and 3 more"
        early = [asyncio.create_task(take_part(path, name)) for name in PARTIES[:4]]
        await until(events, lambda event: event.detail == "erin (not connected)")
        async with smpc_dp.connect(path, party="erin") as last:
            await until(events, lambda event: event.kind == "waiting" and event.detail == "erin")
            await last.sum([5])
        await asyncio.gather(*early)
        await served


async def test_a_party_waits_for_an_aggregator_that_starts_later(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)
    waiting: list[Awaitable[Result]] = [asyncio.create_task(take_part(path, name)) for name in PARTIES]
    await asyncio.sleep(1.0)
    async with serving(path, []) as served:
        results = await asyncio.gather(*waiting)
        await served
    assert [result.value.tolist() for result in results] == [[EVERYONE]] * 5


def test_whom_the_aggregator_waits_for_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    waits = Event("hub", "waiting", 1, "hello", 2, "alice (not connected), bob")
    board = LiveBoard(["hub", "alice"])
    for _ in range(3):
        board.show(waits)
    board.show(Event("alice", "warned", detail="the key is used twice"))
    show_event([], waits)
    reported = capsys.readouterr().err.splitlines()
    assert reported[:2] == ["hub: waits for alice (not connected), bob", "alice: the key is used twice"]
    assert reported[2].endswith(" hub: waits for alice (not connected), bob")
    assert len(reported) == 3


def test_the_bar_of_a_checker_is_full() -> None:
    """It waits in a step that others do not have, after all of theirs."""
    board = LiveBoard(["hub", "alice", "bob"], quiet=True)
    for name, step in (("alice", ATTEST_TOTAL), ("bob", PARTY_STEPS[1])):
        board.show(Event(name, "step", 1, step, 1))
    _, progress, state, _ = board._table().columns
    whole = len(PARTY_STEPS)
    assert [*progress.cells] == ["·" * whole, "■" * whole, "■" + "·" * (whole - 1)]
    assert [*state.cells][1] == f"{ATTEST_TOTAL} (waits for 1)"
