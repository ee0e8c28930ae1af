"""Blocking work in threads, beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from smpc_dp.errors import SmpcError

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Return `work()`, run in a daemon thread, so that neither the event loop nor the process waits for it.

    A cancelled caller goes on at once; the work is not stopped.
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
    return await done
