"""Blocking work in threads, beside the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from smpc_dp.errors import LocalError, SmpcError

T = TypeVar("T")


def start_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Begin `work()` in a daemon thread, for which neither the event loop nor the process waits.

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
    """Return what a coroutine returns, run in the loop of another thread; LocalError if that loop ends."""
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    except concurrent.futures.CancelledError:
        raise LocalError("the process ends") from None
    except RuntimeError:
        if not loop.is_closed():
            raise
        work.close()
        raise LocalError("the process ends") from None
