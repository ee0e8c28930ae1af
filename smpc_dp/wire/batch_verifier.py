"""Checks of single entries in batches, by other workers; the first failure in the log is raised first."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from smpc_dp.errors import VerificationError
from smpc_dp.executors.shards import submit, value_of

T = TypeVar("T")
# Line and first byte of an entry.
Position = tuple[int, int]
# Waits for the error of each item, None where there is none.
Errors = Callable[[], Sequence[VerificationError | None]]
# Most entries that are checked together, and bytes that wait for it.
ENTRIES, BYTES = 64, 1 << 20
# Most batches under way.
AHEAD = 16
# Calls of an executor that wait or are under way, at most; of threads, for each of them.
SUBMITTED, OF_A_THREAD = 64, 2


class Workers:
    """Runner of expensive checks in parallel: shards on an executor, others in threads of this process.

    At most so many calls are under way: giving one more waits, and raises the error of the call that it waits
    for, if that raised one.

    Args:
        threads: of this process, which also run the shards if there is no executor; 1: none.
        executor: runs the shards.
    """

    def __init__(self, threads: int = 1, executor: Executor | None = None) -> None:
        self._threads = None if threads == 1 else ThreadPoolExecutor(threads)
        self._executor = executor or self._threads
        most = OF_A_THREAD * threads
        # Each with its name.
        self._under_way: dict[bool, tuple[int, collections.deque[tuple[Future[Any], str]]]] = {
            True: (SUBMITTED if executor else most, collections.deque()),
            False: (most, collections.deque()),
        }

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads; the executor is the caller's."""
        for _most, calls in self._under_way.values():
            for future, _name in calls:
                future.cancel()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def shard(self, name: str, function: Callable[..., T], *call: Any) -> Callable[[], T]:
        """Start a call that may run in another process; return a function that waits for its value.

        That function raises LocalError, which names the shard, where an executor has lost it.
        """
        return self._start(True, self._executor, name, function, *call)

    def here(self, function: Callable[..., T], *call: Any) -> Callable[[], T]:
        """Start a call in a thread, or make it now; return a function that waits for its value."""
        return self._start(False, self._threads, "a check", function, *call)

    def _start(
        self, shard: bool, executor: Executor | None, name: str, function: Callable[..., T], *call: Any
    ) -> Callable[[], T]:
        """Start a call on an executor, or make it now if None; return a function that waits for its value."""
        if executor is None:
            done = function(*call)
            return lambda: done
        most, calls = self._under_way[shard]
        while len(calls) >= most:
            # By its value: an executor may compute when it is asked for one.
            value_of(*calls.popleft())
        future = submit(executor, function, *call)
        calls.append((future, name))
        return lambda: value_of(future, name)


class EarlierFault(VerificationError):
    """Error: a log entry at `position`, before the one read last, failed a check done later."""

    def __init__(self, position: Position, error: VerificationError) -> None:
        self.position = position
        super().__init__(str(error), error.check)


class BatchVerifier(Generic[T]):
    """Queue that collects items of log entries and verifies them in batches.

    Args:
        start: starts the check of some items and returns a function that waits for an error or None of each,
            as the methods of `Workers` do.
    """

    def __init__(self, start: Callable[[Sequence[T]], Errors]) -> None:
        self._start = start
        self._items: list[T] = []
        self._indices: list[Position] = []
        self._bytes = 0
        self._waiting: collections.deque[tuple[list[Position], Errors]] = collections.deque()
        self.first: EarlierFault | None = None

    def add(self, position: Position, item: T, size: int) -> None:
        """Queue an item of `size` bytes at a log position; start a batch when enough are queued."""
        self._items.append(item)
        self._indices.append(position)
        self._bytes += size
        if len(self._items) >= ENTRIES or self._bytes >= BYTES:
            self._hand_over()
        while len(self._waiting) > AHEAD:
            self._collect()

    def settle(self) -> None:
        """Wait for all queued checks; set `first` to the first failure, if any."""
        self._hand_over()
        while self._waiting:
            self._collect()

    def _hand_over(self) -> None:
        """Start the verification of the queued items as a batch."""
        if self._items:
            self._waiting.append((self._indices, self._start(self._items)))
            self._items, self._indices, self._bytes = [], [], 0

    def _collect(self) -> None:
        """Wait for the oldest running batch; set `first` to its earliest failure if none is earlier."""
        indices, result = self._waiting.popleft()
        for position, error in zip(indices, result(), strict=True):
            if error is not None and (self.first is None or position < self.first.position):
                self.first = EarlierFault(position, error)


def raise_first(*queues: BatchVerifier[Any]) -> None:
    """Wait for all queues of checks; raise EarlierFault for the first entry that failed, if any."""
    for queue in queues:
        queue.settle()
    faults = [queue.first for queue in queues if queue.first is not None]
    if faults:
        raise min(faults, key=lambda fault: fault.position)
