"""Reports of a waiting process: the members it waits for, the step and the end of its patience."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from smpc_dp.errors import TimeoutFault
from smpc_dp.session.awaited import Awaited
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.events import Event
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.session_file import Timeouts
from tests.faults.virtual import connect, run_virtually

NAMES = ("ann", "bob", "eve")
TIMEOUTS = Timeouts(connect=8.0, step=30.0, gather=20.0)


@pytest.fixture(autouse=True)
def midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of the machine stand at 0:00 in its zone; the event loop's goes on."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "localtime", time.gmtime)


def test_a_line_names_the_members_the_step_and_the_end() -> None:
    events: list[Event] = []

    async def main() -> None:
        waiting = Awaited("hub", lambda name: name == "bob", events.append)
        waiting.begin(2, "roll", lambda: ["bob", "ann"])
        until = asyncio.get_running_loop().time() + 12.0
        assert await waiting.next(asyncio.Event().wait, until) is None

    run_virtually(main)
    assert [event.text for event in events] == [
        "waits for ann (not connected), bob in step 'roll', until 00:00:07",
        "waits for ann (not connected), bob in step 'roll', until 00:00:02",
    ]
    assert {event.request for event in events} == {2}


def test_work_that_ends_by_itself_is_followed() -> None:
    events: list[Event] = []

    async def main() -> None:
        waiting = Awaited("ann", lambda _: False, events.append)
        waiting.begin(0, "", lambda: ["hub"])
        assert await waiting.follow(asyncio.sleep(6.0, "done"), 60.0) == "done"
        with pytest.raises(TimeoutFault):
            await waiting.follow(fail(), 60.0)

    async def fail() -> None:
        raise TimeoutFault({"hub"}, "connect")

    run_virtually(main)
    assert [event.text for event in events] == ["waits for hub (not connected) to connect, until 00:00:55"]


def test_a_line_says_why_the_last_attempt_has_failed() -> None:
    events: list[Event] = []

    async def main() -> None:
        waiting = Awaited("ann", lambda _: False, events.append)
        waiting.begin(0, "", lambda: ["hub"])
        waiting.failed("Connection refused")
        assert await waiting.follow(asyncio.sleep(6.0, "done"), 60.0) == "done"
        # Another wait has had no attempt yet.
        waiting.begin(0, "", lambda: ["hub"])
        assert await waiting.follow(asyncio.sleep(6.0, "done"), 60.0) == "done"

    run_virtually(main)
    why = "Connection refused; `smpc-dp check` says what to do"
    assert [event.text for event in events] == [
        f"waits for hub (not connected: {why}) to connect, until 00:00:55",
        "waits for hub (not connected) to connect, until 00:00:55",
    ]


def test_a_party_says_that_it_waits_for_the_aggregator(tmp_path: Path) -> None:
    given = {"length": 1, "lower": 0, "upper": 9, "kind": "integer", "corrupt": 0.0}
    member = Membership.load(create_local_session(tmp_path, NAMES, given, timeouts=TIMEOUTS), "ann")
    events: list[Event] = []

    async def main() -> None:
        connection = AggregatorConnection(member, events.append)
        near, _far = connect("ann", AGGREGATOR, 0.01)
        connection.connections.welcome(near)  # type: ignore[arg-type]
        vector, _ = member.parameters.encoding.encode([1], party="ann")

        async def no_charge(run_id: bytes, raised: object = None) -> None:
            """Charge nothing."""

        running = asyncio.create_task(connection.run(1, "sum", vector, no_charge))
        await asyncio.sleep(6.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        connection.connections.abort()

    run_virtually(main)
    [line] = [event for event in events if event.kind == "waiting"]
    # connect, twice gather and four times step, after the five seconds of the report.
    assert line.text == "waits for aggregator in step 'start', until 00:02:43"


def test_a_long_wait_is_reported_every_minute() -> None:
    async def main() -> None:
        clock, reported = asyncio.get_running_loop().time, list[float]()
        began = clock()
        waiting = Awaited("ann", lambda _: False, lambda _: reported.append(clock() - began))
        waiting.begin(0, "", lambda: ["hub"])
        assert await waiting.next(asyncio.Event().wait, began + 200.0) is None
        assert reported == pytest.approx([*range(5, 61, 5), 120, 180])
        # Another wait begins with reports every five seconds again.
        waiting.begin(1, "start", lambda: ["hub"])
        again = clock()
        assert await waiting.next(asyncio.Event().wait, again + 7.0) is None
        assert reported[-1] == pytest.approx(again - began + 5.0)

    run_virtually(main)
