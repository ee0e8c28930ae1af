"""An executor that runs calls in another order than they come in, and what blocks of an audit draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest

from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy import empirical


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


def noise_of_blocks(monkeypatch: pytest.MonkeyPatch, audit: Callable[[], object]) -> list[bytes]:
    """Return the noise of each block of 3,000 releases, or fewer, that an audit draws."""
    noise: list[bytes] = []

    def drawn(*given: Any) -> Iterator[np.ndarray[Any, Any]]:
        for block in run_shards(*given):
            # Without the input, which is the same in all releases of a block.
            noise.append((block - block[0])[:1_000].tobytes())
            yield block

    monkeypatch.setattr(empirical, "BLOCK", 3_000)
    monkeypatch.setattr(empirical, "run_shards", drawn)
    audit()
    return noise
