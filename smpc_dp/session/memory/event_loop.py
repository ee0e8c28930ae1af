"""An event loop for simulations: its time passes only while every task waits, and work in threads is inline.

So a deadline passes when nothing else can happen, however long the roles compute, and a run with seeds takes
the same course each time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Selector of an event loop that advances simulated time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready events; if there are none, advance the simulated time to the next timer."""
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self.passed += max(timeout, 0.0)
        return ready


class SimulationLoop(asyncio.SelectorEventLoop):
    """Asyncio event loop with simulated time, which jumps to the next timer instead of waiting."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._waits.passed

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call the function at once in this thread, and return a finished future of its value.

        At once, so that a member's message can go as soon as it was processed: those of thousands together
        would fill the memory.
        """
        done = self.create_future()
        done.set_result(func(*args))
        return done


def run_simulation(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop with simulated time, and return its value.

    Where a loop runs already, as in a notebook, it runs in a thread of its own, with the context
    variables of the caller.
    """
    begun: list[asyncio.Task[Any] | None] = []

    async def begin() -> T:
        begun.append(asyncio.current_task())
        return await main()

    def run() -> T:
        # Not `asyncio.Runner`: an interrupt would wait until all roles have computed their step.
        loop = SimulationLoop()
        try:
            return loop.run_until_complete(begin())
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
            loop.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_beside = False
    else:
        is_beside = True
    if not is_beside:
        # Not in the handler above, whose error would be the context of every error of the run.
        return run()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        running = thread.submit(contextvars.copy_context().run, run)
        try:
            return running.result()
        except KeyboardInterrupt:
            for task in begun:
                if task is not None:
                    task.get_loop().call_soon_threadsafe(task.cancel)
            raise
