"""Sessions without `await` over real sockets: with and without a running loop, interrupted and closed."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.engine.result import Result
from smpc_dp.errors import Check, ConfigCheck
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.sync import _Background
from tests.threads import in_thread

PARTIES = ("alice", "bob", "carol", "dave")
REAL: dict[str, object] = {"length": 2, "lower": -10.0, "upper": 10.0, "precision": 1e-6, "corrupt": 0.0}
FAST = Timeouts(connect=8.0, step=20.0)


def create(folder: Path, timeouts: Timeouts = FAST, **parameters: object) -> Path:
    return create_local_session(folder, PARTIES, {**REAL, "dropout": 0.25, **parameters}, timeouts=timeouts)


SERVING: list[Future[Any]] = []


@pytest.fixture(scope="module", autouse=True)
def _aggregators_end() -> Iterator[None]:
    """Wait once for all aggregators that no test waits for: they give parties time to connect again."""
    yield
    for serving in SERVING:
        serving.result()


def serve(path: Path) -> Future[Any]:
    SERVING.append(in_thread(lambda: asyncio.run(smpc_dp.serve(path))))
    return SERVING[-1]


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("smpc-dp session")]


def is_closed(error: pytest.ExceptionInfo[smpc_dp.ConfigError]) -> bool:
    (issue,) = error.value.issues
    return issue.check is ConfigCheck.CONFLICT and "alice: is closed" in issue.reason


def act_for(path: Path, name: str) -> list[Result]:
    session = smpc_dp.sync.connect(path, party=name)
    try:
        own = float(PARTIES.index(name))
        return [session.average([own, effect]) for effect in (1.0, 2.0)] + [session.sum([own, 0.0])]
    finally:
        session.close()


def test_sessions_block_where_no_loop_runs(tmp_path: Path) -> None:
    path = create(tmp_path)
    serving = serve(path)
    acting = [in_thread(act_for, path, name) for name in PARTIES]
    for results in (each.result() for each in acting):
        assert [result.value.tolist() for result in results] == [[1.5, 1.0], [1.5, 2.0], [6.0, 0.0]]
    assert len(serving.result()) == 3
    assert not names_of_threads()


async def test_a_session_blocks_a_running_loop_and_works(tmp_path: Path) -> None:
    path = create(tmp_path)
    serving = serve(path)
    others = [in_thread(act_for, path, name) for name in PARTIES[1:]]
    # In the thread of this test's own loop, as in a notebook.
    assert act_for(path, "alice")[0].value.tolist() == [1.5, 1.0]
    assert [other.result()[1].survivors for other in others] == [PARTIES] * 3
    assert len(serving.result()) == 3


def test_a_session_closed_twice_says_so(tmp_path: Path) -> None:
    path = create(tmp_path)
    serve(path)
    with smpc_dp.sync.Session.open(path, "alice") as session:
        assert (session.party, session.length, session.closed) == ("alice", 2, False)
        session.close()
        assert session.closed
        for call in (session.close, lambda: session.sum([0.0, 0.0]), session.log):
            with pytest.raises(smpc_dp.ConfigError) as error:
                call()
            assert is_closed(error)
    assert "closed" in repr(session)
    assert not names_of_threads()


def test_the_loop_is_of_asyncio_whatever_the_policy_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = asyncio.get_event_loop_policy()
    monkeypatch.setattr(type(policy), "new_event_loop", lambda _: pytest.fail("another loop"))
    background = _Background("smpc-dp session of nobody")
    assert isinstance(background._loop, asyncio.BaseEventLoop)
    background.stop()


def test_a_forked_process_has_no_session(tmp_path: Path) -> None:
    """It has none of the threads: a call would wait for ever, and write into a connection of another."""
    path = create(tmp_path)
    serve(path)
    with smpc_dp.sync.connect(path, party="alice") as session:
        child = os.fork()
        if not child:
            # A call that waits ends the process.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            calls = (lambda: session.sum([0.0, 0.0]), session.close, session.log, session._session.check_open)
            try:
                os._exit(sum(not _is_refused(call) for call in calls))
            finally:
                # By another error too: nothing of this process may go on as the test's.
                os._exit(100)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _is_refused(call: Callable[[], object]) -> bool:
    """Tell whether a call raises that the session is of another process."""
    try:
        call()
    except smpc_dp.ConfigError as error:
        return f"alice: is of process {os.getppid()}, which was forked" in str(error)
    return False


async def test_a_session_stays_open_between_blocks_of_code(tmp_path: Path) -> None:
    path = create(tmp_path)
    serving = asyncio.create_task(smpc_dp.serve(path))
    sessions = [await smpc_dp.Session.open(path, name) for name in PARTIES]
    for _ in range(2):
        results = await asyncio.gather(*(session.average([1.0, 2.0]) for session in sessions))
        assert results[0].value.tolist() == [1.0, 2.0]
    for session in sessions:
        await session.close()
    assert len(await serving) == 2
    alice = sessions[0]
    evaluated = alice.evaluate("add64", [1], peer="bob", role="garbler")
    for call in (alice.close(), alice.average([1.0, 2.0]), alice.pairwise("gini", 1, 1.0), evaluated):
        with pytest.raises(smpc_dp.ConfigError) as error:
            await call
        assert is_closed(error)
    with pytest.raises(smpc_dp.ConfigError, match="alice: is closed"):
        alice.log()


async def test_connect_leaves_a_session_that_was_closed_in_its_block(tmp_path: Path) -> None:
    path = create(tmp_path)
    serve(path)
    async with smpc_dp.connect(path, "alice") as session:
        await session.close()
    assert session.closed


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt: a shell starts background processes with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_cancels_the_request_and_closes_the_session(tmp_path: Path) -> None:
    path = create(tmp_path)
    serving = serve(path)
    # Of four parties one may be lost: the others end the request that alice was interrupted in.
    others = [smpc_dp.sync.connect(path, name) for name in PARTIES[1:]]
    waits = threading.Event()

    def on_event(event: Event) -> None:
        if event.kind == "step":
            waits.set()

    alice = smpc_dp.sync.connect(path, "alice", on_event=on_event)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        assert waits.wait(60)
        signal.pthread_kill(main, signal.SIGINT)

    interrupting = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        alice.sum([1.0, 1.0])
    interrupting.result()
    assert alice.closed
    with pytest.raises(smpc_dp.ConfigError, match="alice: is closed"):
        alice.sum([1.0, 1.0])
    requests = [in_thread(session.sum, [1.0, 1.0]) for session in others]
    for request in requests:
        result = request.result()
        assert (result.value.tolist(), result.absent) == ([3.0, 3.0], ("alice",))
    for session in others:
        session.close()
    assert len(serving.result()) == 1
    assert not names_of_threads()


@pytest.mark.usefixtures("interrupts")
def test_what_a_cancelled_request_finds_is_the_cause_of_the_interrupt() -> None:
    fault = smpc_dp.PeerFault("bob", "cheated", Check.CONVICTED, {"certificate": b"c"})
    main, background = threading.main_thread().ident, _Background("test")
    assert main is not None

    async def judge() -> None:
        # Once the main thread waits.
        await asyncio.sleep(0.3)
        try:
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise fault from None

    with pytest.raises(KeyboardInterrupt) as caught:
        background.call(judge())
    assert caught.value.__cause__ is fault
    background.stop()


def test_an_error_of_a_request_leaves_the_session_open(tmp_path: Path) -> None:
    path = create(tmp_path)
    serving = serve(path)
    with smpc_dp.sync.connect(path, "alice") as session:
        with pytest.raises(smpc_dp.PrivacyError, match=r"alice: vector\[0\] is outside"):
            session.sum([11.0, 0.0])
        assert not session.closed
    assert len(serving.result()) == 1


def test_a_session_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    path = create(tmp_path, Timeouts(connect=1.0))
    for name, error in (("mallory", smpc_dp.ConfigError), ("alice", smpc_dp.TimeoutFault)):
        with pytest.raises(error):
            smpc_dp.sync.connect(path, name)
    assert not names_of_threads()


def test_a_call_in_the_sessions_own_thread_is_refused(tmp_path: Path) -> None:
    path = create(tmp_path)
    serving = serve(path)
    refused: list[smpc_dp.ConfigError] = []

    def on_event(event: Event) -> None:
        if event.kind == "step" and not refused:
            for call in (lambda: session.sum([0.0, 0.0]), session.close):
                try:
                    call()
                except smpc_dp.ConfigError as error:
                    refused.append(error)

    with smpc_dp.sync.connect(path, "alice", on_event=on_event) as session:
        others = [in_thread(act_for, path, name) for name in PARTIES[1:]]
        for effect in (1.0, 2.0):
            assert session.average([0.0, effect]).survivors == PARTIES
        session.sum([0.0, 0.0])
    for other in others:
        other.result()
    serving.result()
    assert len(refused) == 2
    assert all("in its own thread" in str(error) for error in refused)


def test_a_forgotten_session_leaves(tmp_path: Path) -> None:
    path = create(tmp_path)
    serve(path)
    session = smpc_dp.sync.connect(path, "alice")
    (thread,) = [each for each in threading.enumerate() if each.name.endswith("of alice")]
    del session
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_the_blocking_calls_have_the_arguments_of_the_others() -> None:
    for name in ("sum", "average", "statistics", "learn", "evaluate", "pairwise"):
        blocking, other = getattr(smpc_dp.sync.Session, name), getattr(smpc_dp.Session, name)
        assert inspect.signature(blocking) == inspect.signature(other)
        assert not inspect.iscoroutinefunction(blocking)
    opening = inspect.signature(smpc_dp.connect).parameters
    for opened in (smpc_dp.sync.connect, smpc_dp.Session.open):
        assert inspect.signature(opened).parameters == opening


def test_it_has_the_public_calls_of_a_session() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    # Calls of other modules of the library, in the session's own loop.
    internal = {"check_open", "check_process", "sum_encoded"}
    assert public(smpc_dp.Session) - public(smpc_dp.sync.Session) == internal
