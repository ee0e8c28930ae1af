"""An executor that runs calls in another order than they come in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Backwards(Executor):
    """Runs what was submitted, the last call first, when a value is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.ran = 0

    def submit(self, function: Callable[..., Any], /, *call: Any, **named: Any) -> Future[Any]:
        executor = self

        class Asked(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                while executor.calls:
                    future, work = executor.calls.pop()
                    future.set_result(work())
                    executor.ran += 1
                return super().result(timeout)

        future = Asked()
        self.calls.append((future, lambda: function(*call, **named)))
        return future
