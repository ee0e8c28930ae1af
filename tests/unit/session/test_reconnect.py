"""A party that connects again: to an aggregator that hangs up, and cancelled while it connects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smpc_dp.errors import TimeoutFault
from smpc_dp.session.aggregator import RequestServer
from smpc_dp.session.connection import MOST_RENEWALS, AggregatorConnection, AggregatorWaits
from smpc_dp.session.deadline import hello_seconds
from smpc_dp.session.events import ignore
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.session_file import Timeouts
from tests.faults.virtual import Pipe, connect, run_virtually

NAMES = ("ann", "bob", "eve")
TIMEOUTS = Timeouts(connect=8.0, step=30.0, gather=20.0)


@pytest.fixture
def member(tmp_path: Path) -> Membership:
    given = {"length": 1, "lower": 0, "upper": 9, "kind": "integer", "corrupt": 0.0}
    return Membership.load(create_local_session(tmp_path, NAMES, given, timeouts=TIMEOUTS), "ann")


class Endpoint:
    """An aggregator that may be called at once, or when `ready` is set; `hangs_up` after each call."""

    connect_timeout = 8.0
    contexts = None

    def __init__(self, *, hangs_up: bool = False) -> None:
        self.ready = asyncio.Event()
        self.hangs_up = hangs_up
        self.calls: list[float] = []
        self.channels: list[Pipe] = []

    async def dial(self, _peer: str, _on_failed: object = None) -> Any:
        await self.ready.wait()
        self.calls.append(asyncio.get_running_loop().time())
        near, far = connect("ann", AGGREGATOR, 0.0)
        self.channels.append(near)
        if self.hangs_up:
            asyncio.get_running_loop().call_later(0.01, far.abort)
        return near


def test_the_time_of_a_step_begins_anew_a_few_times_alone() -> None:
    """A party of a saved run that is cut again and again: its call ends."""

    async def main() -> None:
        begun: list[float] = []

        async def nothing() -> None:
            return

        pool: Any = SimpleNamespace(is_live=lambda _: False)
        run = SimpleNamespace(step="participants")
        drive: Any = SimpleNamespace(connections=pool, run=run, saved=True, resend=nothing)
        drive.notify_lost = drive.begin_wait = lambda *_: None
        drive.timer = SimpleNamespace(step=begun.append)
        waits = AggregatorWaits(1.0, 2.0, None, nothing)
        for _ in range(3 * MOST_RENEWALS):
            await waits._resume(drive, AGGREGATOR, nothing)
        assert begun == [2.0] * MOST_RENEWALS

    run_virtually(main)


def test_an_aggregator_that_hangs_up_is_called_ever_less_often(member: Membership) -> None:
    async def main() -> None:
        endpoint: Any = Endpoint(hangs_up=True)
        endpoint.ready.set()
        connection = await AggregatorConnection.open(member, endpoint, ignore)
        vector, _ = member.parameters.encoding.encode([1], party="ann")

        async def no_charge(run_id: bytes, raised: object = None) -> None:
            raise AssertionError("nothing is sent but the hello")

        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutFault) as caught:
            await connection.run(1, "sum", vector, no_charge, label="")
        assert caught.value.missing == {AGGREGATOR}
        ended = asyncio.get_running_loop().time()
        assert ended - began == pytest.approx(hello_seconds(TIMEOUTS), abs=2.0)
        gaps = [after - before for before, after in zip(endpoint.calls, endpoint.calls[1:], strict=False)]
        assert all(0.5 <= gap <= 1.1 for gap in gaps[12:])
        assert len(set(gaps[12:])) > 1
        connection.connections.abort()

    run_virtually(main)


@pytest.mark.parametrize("again", [False, True])
def test_who_is_cancelled_when_the_connection_is_open_leaves_none_behind(
    member: Membership, again: bool
) -> None:
    async def main() -> None:
        endpoint: Any = Endpoint()
        connection = AggregatorConnection(member, ignore, endpoint=endpoint)
        opening = connection.reconnect() if again else AggregatorConnection.open(member, endpoint, ignore)
        task = asyncio.create_task(opening)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        endpoint.ready.set()
        await asyncio.sleep(0)
        assert len(endpoint.channels) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        connection.connections.abort()
        assert not endpoint.channels[0].live

    run_virtually(main)


@pytest.mark.parametrize(
    ("asked", "following"),
    [
        # Requests that five parties ask for after the fourth, where a run needs four of them.
        ((), 5),
        ((1000, 1000, 1000), 5),
        ((1000, 1000, 1000, 1000), 1000),
        ((1000, 1000, 1000, 1000, 6), 1000),
        ((1000, 1000, 1000, 1000, 2**31 - 1), 1000),
        ((2**31 - 1, 5, 5, 5, 5), 5),
        ((1000, 1001, 1001, 1001, 1001), 1001),
        ((1000, 1000, 1001, 1001, 1001), 1000),
    ],
)
@pytest.mark.parametrize("is_endless", [False, True])
def test_a_restarted_aggregator_goes_on_where_enough_for_a_run_are(
    asked: Iterable[int], following: int, *, is_endless: bool
) -> None:
    names = ("ann", "bob", "eve", "joe", "kim")
    server: Any = RequestServer.__new__(RequestServer)
    server._is_endless = is_endless
    server._membership = SimpleNamespace(names=names, parameters=SimpleNamespace(tolerated=(5, 1, 0)))
    numbers = {"stranger": 7, **dict(zip(names, asked, strict=False))}
    server._pool = SimpleNamespace(ahead=lambda _steps: numbers)
    assert server.following(4) == (following if is_endless else 5)
