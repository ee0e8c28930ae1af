"""Sessions without `await`: the calls of `smpc_dp.connect`, blocking, in programs with and without a loop.

    session = smpc_dp.sync.connect("session.toml", party="alice")
    result = session.average(vector)
    session.close()

Each session has one thread of its own with an event loop, so that it works in notebooks and inside programs
that run a loop themselves, which waits meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError
from smpc_dp.session import session as asynchronous
from smpc_dp.session.events import OnEvent, ignore

if TYPE_CHECKING:
    from smpc_dp.engine.session_protocol import MakeParty
    from smpc_dp.logs.audits.audit_report import Report
    from smpc_dp.logs.audits.served_log import ServedLog as AsynchronousLog
    from smpc_dp.records.table import Source, Table
    from smpc_dp.session.planned import SessionPlan
    from smpc_dp.session.session_state import StateFolder
    from smpc_dp.trees import Bounds
    from smpc_dp.web_settings import WebSettings

__all__ = ["Session", "connect"]

P = ParamSpec("P")
T = TypeVar("T")


class _Background:
    """Thread that runs an event loop, in which the asynchronous session of a blocking one works."""

    def __init__(self, name: str) -> None:
        self._began: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._began.result()

    def _work(self) -> None:
        """Run the event loop until it is told to stop: the main function of the thread."""
        # Whatever policy the program has set: sessions need a loop of asyncio.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            self._loop = runner.get_loop()
            self._stopping = asyncio.Event()
            self._loop.call_soon(self._began.set_result, None)
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        """Wait, in the event loop, for the signal to stop."""
        await self._stopping.wait()

    def check_caller(self) -> None:
        """Raise ConfigError if called in the loop's own thread, where waiting would never end.

        A forked process has no such thread: `Session.check_process` is asked before.
        """
        if threading.current_thread() is self._thread:
            reason = "is called in its own thread, in which on_event runs: the call would never end"
            raise ConfigError.at("session", reason, ConfigCheck.CONFLICT)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result; an interrupt cancels the coroutine."""
        ended: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self._loop.create_task(work)
            tasks.append(task)
            task.add_done_callback(lambda task: _settle(ended, task))

        self._loop.call_soon_threadsafe(begin)
        try:
            return ended.result()
        except BaseException as interrupt:
            if ended.done():
                raise
            # Runs after `begin`.
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            wait([ended])
            # A conviction, say, that was made meanwhile.
            error = ended.exception()
            raise interrupt from (error if isinstance(error, SmpcError) else None)

    def stop(self) -> None:
        """Stop the event loop and wait until its thread has ended."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def abandon(self, session: asynchronous.Session) -> None:
        """Close a session that was garbage-collected and end the thread, without waiting."""

        async def close() -> None:
            try:
                await session.close()
            finally:
                self._stopping.set()

        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(close(), self._loop)


def _settle(ended: Future[T], task: asyncio.Task[T]) -> None:
    """Copy the result, error or cancellation of an ended task to a future."""
    if task.cancelled():
        ended.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(task.result())


def _blocking(
    method: Callable[Concatenate[asynchronous.Session, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Session, P], T]:
    """Convert an asynchronous session's method into a blocking method that returns its result."""

    @functools.wraps(method)
    def call(self: Session, /, *args: P.args, **options: P.kwargs) -> T:
        return self.wait_for(lambda session: method(session, *args, **options))

    return call


class Session:
    """Blocking session of one party: requests sums and statistics from ordinary code. Context manager.

    Calls of several threads wait for each other. A KeyboardInterrupt in a call cancels the request and closes
    the session: the others see that this party has left. `on_event` is called in the session's own thread.
    """

    sum = _blocking(asynchronous.Session.sum)
    average = _blocking(asynchronous.Session.average)
    statistics = _blocking(asynchronous.Session.statistics)
    report = _blocking(asynchronous.Session.report)
    learn = _blocking(asynchronous.Session.learn)
    evaluate = _blocking(asynchronous.Session.evaluate)
    pairwise = _blocking(asynchronous.Session.pairwise)
    similarities = _blocking(asynchronous.Session.similarities)

    def __init__(self, session: asynchronous.Session, background: _Background) -> None:
        self._session, self._background = session, background
        self._lock = threading.RLock()
        self._abandon = weakref.finalize(self, background.abandon, session)
        self._abandon.atexit = False

    @classmethod
    def open(
        cls,
        session: str | os.PathLike[str],
        party: str,
        *,
        key: str | os.PathLike[str] | None = None,
        ledger: str | os.PathLike[str] | None = None,
        listen_on: str | None = None,
        on_event: OnEvent = ignore,
        role: MakeParty | None = None,
        table: Source | Table | None = None,
        web: WebSettings | None = None,
        state: StateFolder | None = None,
        counter: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Connect a party to the session's other members; return the open session.

        Arguments and errors as of `smpc_dp.connect`.
        """
        background = _Background(f"smpc-dp session of {party}")
        try:
            opened = background.call(
                asynchronous.Session.open(
                    session,
                    party,
                    key=key,
                    ledger=ledger,
                    listen_on=listen_on,
                    on_event=on_event,
                    role=role,
                    table=table,
                    web=web,
                    state=state,
                    counter=counter,
                )
            )
        except BaseException:
            background.stop()
            raise
        return cls(opened, background)

    def close(self) -> None:
        """Send what is queued, leave the session and end its thread; ConfigError if closed already."""
        self._session.check_process()
        self._background.check_caller()
        with self._lock:
            self._session.check_open()
            self._abandon.detach()
            try:
                self._background.call(self._session.close())
            finally:
                self._background.stop()

    @property
    def closed(self) -> bool:
        """Whether the session has been closed."""
        return self._session.closed

    @property
    def party(self) -> str:
        """Name of the party whose session this is."""
        return self._session.party

    @property
    def length(self) -> int:
        """Number of coordinates of the session's vectors."""
        return self._session.length

    @property
    def max_weight(self) -> int:
        """Largest weight that a party may give; 0 in a session without weights."""
        return self._session.max_weight

    def __sklearn_clone__(self) -> Self:
        """Return this session: clones of an estimator of scikit-learn share it."""
        return self

    def plan(self) -> SessionPlan | None:
        """Return the predicted charge and standard errors of a request; None where no cost is known."""
        return self._session.plan()

    def compare(self, tree: Mapping[str, Any], structure: str, bounds: Bounds | None = None) -> str:
        """Return words on where a tree of arrays differs from the structure that others asked for."""
        return self._session.compare(tree, structure, bounds)

    def log(self) -> ServedLog:
        """Return the log of the last request as the aggregator serves it, with blocking methods."""
        return ServedLog(self, self._session.log())

    def wait_for(self, work: Callable[[asynchronous.Session], Coroutine[Any, Any, T]]) -> T:
        """Run a function of the asynchronous session in its thread; wait and return its result."""
        self._session.check_process()
        self._background.check_caller()
        with self._lock:
            self._session.check_open()
            try:
                return self._background.call(work(self._session))
            except (KeyboardInterrupt, SystemExit):
                if not self._session.closed:
                    self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._session._state.interrupt()
        if not self.closed:
            self.close()

    def __repr__(self) -> str:
        return f"sync.{self._session!r}"


connect = Session.open


class ServedLog:
    """Log of a session's last request as the aggregator serves it, with blocking methods."""

    def __init__(self, session: Session, log: AsynchronousLog) -> None:
        self._session, self._log = session, log

    def __len__(self) -> int:
        return len(self._log)

    def lines(self, first: int = 0, last: int | None = None) -> list[bytes]:
        """Download and check lines `first` to `last` (both included) of the log; line 0 is the header."""
        return self._session.wait_for(lambda _: self._log.lines(first, last))

    def audit(self, keep: str | os.PathLike[str] | None = None) -> Report:
        """Download and audit the whole log; copy it to the file `keep` if given. Return the report."""
        return self._session.wait_for(lambda _: self._log.audit(keep))
