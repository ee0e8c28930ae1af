"""Work in a thread that keeps no failed test from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(work: Callable[..., T], *args: Any) -> Future[T]:
    """Begin `work(*args)` in a daemon thread; return its future result."""
    ended: Future[T] = Future()

    def target() -> None:
        try:
            ended.set_result(work(*args))
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=target, daemon=True).start()
    return ended
