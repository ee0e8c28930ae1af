"""Blocking work in threads, beside the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from smpc_dp.errors import LocalError, SmpcError

T = TypeVar("T")


def _leave(_result: object) -> None:
    """Do nothing with a value: the default for results that nobody waits for."""


async def finish_in_thread(work: Callable[[], T], drop: Callable[[T], object] = _leave) -> T:
    """Run `work()` in a thread and return its value; a cancelled caller waits until it has ended.

    So nothing is closed, or locked again, that a thread still uses. `drop`: called with a result that its
    caller does not get, to close what was opened.
    """
    # No task, which the end of the event loop would cancel.
    running = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled() and running.exception() is None:
            drop(running.result())
        raise


def start_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Start `work()` in a daemon thread, and return a future of its value.

    The result is no task, which the end of the event loop would cancel.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]

    def notify(value: T | None, error: BaseException | None) -> None:
        # The loop may be over before the work.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    def target() -> None:
        try:
            value = work()
        except SmpcError as error:
            notify(None, error)
        except BaseException as error:
            notify(None, error)
            raise
        else:
            notify(value, None)

    threading.Thread(target=target, daemon=True).start()
    return done


def run_in_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine in another thread's event loop and return its value; LocalError if the loop ends."""
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    except concurrent.futures.CancelledError:
        raise LocalError("the process ends") from None
    except RuntimeError:
        if not loop.is_closed():
            raise
        work.close()
        raise LocalError("the process ends") from None
