"""An event loop for simulations: its time passes only while every task waits, and work in threads is inline.

So a deadline passes when nothing else can happen, however long the roles compute, and a run with seeds takes
the same course each time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Selector that moves the loop's time in the place of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; without anything, pass the time until the next timer."""
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None:
            self.passed += max(timeout, 0.0)
        return ready


class SimulationLoop(asyncio.SelectorEventLoop):
    """Event loop of a simulation."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._waits.passed

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Return the future of a call that is made in this thread."""

        async def call() -> T:
            return func(*args)

        return self.create_task(call())


def run_simulation(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine returns, run in a simulation's event loop; also where another loop runs."""

    def run() -> T:
        with asyncio.Runner(loop_factory=SimulationLoop) as runner:
            return runner.run(main())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    # As in a notebook.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()
