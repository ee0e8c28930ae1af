"""A member that is cancelled while a thread uses its state leaves the folder to the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import smpc_dp
from smpc_dp.engine.events import Start
from smpc_dp.errors import LocalError
from smpc_dp.records.requests import record_requests
from smpc_dp.session import saved_session
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import Event, ignore
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.opening import open_state
from smpc_dp.session.saved_session import SavedSessionState
from smpc_dp.session.session import Session
from smpc_dp.session.threads import finish_in_thread
from tests.faults.saved_session_schedules import without_syncs

GIVEN: dict[str, object] = {"length": 1, "kind": "integer", "lower": 0, "upper": 9, "corrupt": 0}
# Milliseconds before the cancellation, at most: members connect after fewer.
MILLISECONDS = 16


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_syncs(monkeypatch)
    return create_local_session(tmp_path, ("alice", "bob", "carol"), GIVEN)


class Held:
    """Work that a thread has begun, and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(60.0)
        self.ended.set()
        return "result"

    async def cancel(self, using: Coroutine[Any, Any, object], times: int = 1) -> bool:
        """Cancel what uses the work while its thread is in it; return whether it has waited for the end."""
        task = asyncio.ensure_future(using)
        await asyncio.to_thread(self.begun.wait)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        waits = not task.done()
        self.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return waits and self.ended.is_set()


@pytest.mark.parametrize("times", [1, 3])
def test_who_is_cancelled_waits_for_the_thread_and_drops_the_result(times: int) -> None:
    held, dropped = Held(), list[str]()
    using = finish_in_thread(held.__call__, dropped.append)
    assert asyncio.run(held.cancel(using, times))
    assert dropped == ["result"]


def test_the_result_of_a_thread_is_dropped_that_has_ended_before_the_cancellation() -> None:
    dropped = list[str]()

    async def cancelled() -> None:
        held = Held()
        held.may_end.set()
        task = asyncio.ensure_future(finish_in_thread(held.__call__, dropped.append))
        await asyncio.sleep(0)
        assert held.ended.wait(60.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert dropped == ["result"]


def test_a_result_that_is_taken_is_not_dropped() -> None:
    dropped = list[str]()
    assert asyncio.run(finish_in_thread(lambda: "result", dropped.append)) == "result"
    assert dropped == []


def test_an_error_of_the_thread_of_a_cancelled_caller_is_not_raised() -> None:
    held = Held()

    def fail() -> str:
        held()
        raise LocalError("the disk is full")

    assert asyncio.run(held.cancel(finish_in_thread(fail)))


def test_an_opening_that_is_cancelled_in_its_thread_locks_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, member, folder = Held(), Membership.load(path, "alice"), path.parent / "state"
    locked = saved_session._locked

    def lock_and_wait(*given: Any) -> int:
        descriptor = locked(*given)
        held()
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(saved_session, "_locked", lock_and_wait)
        assert asyncio.run(held.cancel(open_state(member, folder, None, ignore)))
    SavedSessionState(member, folder).close()


def test_a_watcher_that_fails_leaves_no_lock(path: Path) -> None:
    member, folder = Membership.load(path, "alice"), path.parent / "state"

    def fail(_event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(open_state(member, folder, None, fail))
    SavedSessionState(member, folder).close()


async def opened_and_cancelled(milliseconds: int, begin: Callable[[], Coroutine[Any, Any, object]]) -> None:
    task = asyncio.ensure_future(begin())
    for _ in range(milliseconds):
        await asyncio.sleep(0.001)
        if task.done():
            break
    task.cancel()
    (end,) = await asyncio.gather(task, return_exceptions=True)
    assert not isinstance(end, Exception), end


@pytest.mark.parametrize("name", ["alice", AGGREGATOR])
def test_a_member_that_is_cancelled_at_any_time_locks_nothing(path: Path, name: str) -> None:
    """Of a party the aggregator is away: it opens its state, and calls."""
    folder = path.parent / "state"
    member = Membership.load(path, name, role="aggregator" if name == AGGREGATOR else "party")

    def begin() -> Coroutine[Any, Any, object]:
        if name == AGGREGATOR:
            return smpc_dp.serve(path, state=folder, requests=0)
        return smpc_dp.Session.open(path, party=name, state=folder)

    async def cancelled_again_and_again() -> None:
        for milliseconds in range(MILLISECONDS):
            await opened_and_cancelled(milliseconds, begin)
            SavedSessionState(member, folder).close()

    asyncio.run(cancelled_again_and_again())


def test_a_step_of_a_saved_role_has_ended_when_its_caller_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held()
    anything: Any = SimpleNamespace(releases=frozenset())
    drive = Drive(1, anything, anything, anything, anything, ignore)
    drive.saved = True
    monkeypatch.setattr(drive, "_act", lambda _event: held())
    assert asyncio.run(held.cancel(drive.act(Start())))


def test_what_a_cancelled_call_keeps_of_a_session_log_is_there_for_the_next_one() -> None:
    """A call that read it before would take the thread of the cancelled one for another process."""
    held, anything = Held(), SimpleNamespace(receipt=None, state=SimpleNamespace(seen=1))
    retained: Any = SimpleNamespace(seen=0, keep=lambda _seen: held())
    no: Any = anything
    drive = Drive(1, no, no, no, no, ignore, retained=retained)
    assert asyncio.run(held.cancel(drive._keep()))


def closing(state: SavedSessionState, stopped: list[str], evaluations: Any) -> Session:
    """Return a session whose connection says that it was closed, and closes the state."""

    async def close() -> None:
        stopped.append("connection")
        state.close()

    connection: Any = SimpleNamespace(state=state, close=close)
    session = Session(SimpleNamespace(name="alice"), connection, ignore)  # type: ignore[arg-type]
    session._requests.evaluations = evaluations
    return session


def test_a_session_that_is_cancelled_while_it_stops_listening_closes_its_state(path: Path) -> None:
    held, stopped = Held(), list[str]()
    member, folder = Membership.load(path, "alice"), path.parent / "state"
    session = closing(SavedSessionState(member, folder), stopped, SimpleNamespace(close=held.__call__))
    assert asyncio.run(held.cancel(session.close()))
    assert stopped == ["connection"]
    SavedSessionState(member, folder).close()


def test_a_failed_step_of_records_is_kept_when_its_caller_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held()

    def fail(_number: int) -> None:
        raise LocalError("the disk is full")

    def keep(_error: LocalError) -> None:
        held()

    call = SimpleNamespace(first=1, last=1, take=fail, fail=keep)
    monkeypatch.setattr(record_requests, "begin_steps", lambda *_given: call)
    monkeypatch.setattr(record_requests, "_parameters_of", lambda *_given: SimpleNamespace(steps=1))
    requests: Any = SimpleNamespace(number=1, check_expected=lambda _expect: None)
    source: Any = object()
    asking = record_requests.request_statistics(
        requests, source, None, expect={}, label="", number=1, level=0.95, simultaneous=False, hide=None
    )
    assert asyncio.run(held.cancel(asking))
