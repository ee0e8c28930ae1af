"""Shards of a computation: calls of a function that depend on their arguments alone.

A shard draws randomness from a seed among its arguments, and from nothing that depends on who runs it. So its
value is the same on any executor, with any number of workers, and if it is computed a second time.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any, TypeVar

from smpc_dp.errors import LocalError

T = TypeVar("T")

# It bounds the memory of arguments and values.
AHEAD = 128


def run_shards(
    executor: Executor | None,
    function: Callable[..., T],
    calls: Iterable[Sequence[Any]],
    name: str,
    ahead: int = AHEAD,
) -> Iterator[T]:
    """Yield the values of `function(*call)` in the order of the calls, computed by the executor.

    Args:
        executor: runs the calls; None runs each in this process, when its value is asked for.
        function: of the top level of a module, so that another process finds it.
        name: of a shard, in errors: "problem" makes "problem 3: ...".
        ahead: calls that are made before the first value is taken, at most; fewer where arguments are large.

    Raises:
        LocalError: a process that ran a shard has ended, or memory was exhausted. Else what `function`
            raises.
    """
    if executor is None:
        yield from (function(*call) for call in calls)
        return
    waiting: collections.deque[Future[T]] = collections.deque()
    taken = 0
    try:
        for call in calls:
            if len(waiting) == ahead:
                taken += 1
                yield value_of(waiting.popleft(), f"{name} {taken}")
            waiting.append(submit(executor, function, *call))
        while waiting:
            taken += 1
            yield value_of(waiting.popleft(), f"{name} {taken}")
    finally:
        for future in waiting:
            future.cancel()


def submit(executor: Executor, function: Callable[..., T], *call: Any) -> Future[T]:
    """Submit a call to an executor; return a future, also if the executor's processes have ended."""
    try:
        return executor.submit(function, *call)
    except BrokenExecutor as error:
        broken: Future[T] = Future()
        broken.set_exception(error)
        return broken


def value_of(future: Future[T], name: str) -> T:
    """Wait for and return a call's value; LocalError if it was lost or memory ran out, else its own error."""
    try:
        return future.result()
    except LostShard as error:
        raise LocalError(f"{name}: {error}") from None
    except (BrokenExecutor, CancelledError):
        reason = "a process that computes has ended: it was killed, or the machine has too little memory"
        raise LocalError(f"{name}: {reason}") from None
    except MemoryError:
        raise LocalError(f"{name}: memory is exhausted") from None


class LostShard(LocalError):
    """Error: an executor could not finish a part of a computation, for the reason in the text."""
