"""Checks of single entries in batches, on other threads; the first failure in the log is raised first."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from smpc_dp.errors import VerificationError

T = TypeVar("T")
# Line and first byte of an entry.
Position = tuple[int, int]
# Most entries that are checked together, and bytes that wait for it.
ENTRIES, BYTES = 64, 1 << 20
# Most batches under way.
AHEAD = 16


class Workers(Protocol):
    """Interface of workers: submits work and returns a function that waits for its result."""

    def __call__(self, work: Callable[[], T], /) -> Callable[[], T]: ...


def at_once(work: Callable[[], T], /) -> Callable[[], T]:
    """Run the work now; return its result."""
    done = work()
    return lambda: done


class EarlierFault(VerificationError):
    """Failed check of an entry at `position`, before the entry that was read last."""

    def __init__(self, position: Position, error: VerificationError) -> None:
        self.position = position
        super().__init__(str(error), error.check)


class BatchVerifier(Generic[T]):
    """Checks of entries that wait to be done in batches.

    Args:
        workers: run the checks.
        check: returns an error or None for each item. It runs on any thread.
    """

    def __init__(
        self, workers: Workers, check: Callable[[Sequence[T]], Sequence[VerificationError | None]]
    ) -> None:
        self._workers, self._check = workers, check
        self._items: list[T] = []
        self._indices: list[Position] = []
        self._bytes = 0
        self._waiting: collections.deque[
            tuple[list[Position], Callable[[], Sequence[VerificationError | None]]]
        ] = collections.deque()
        self.first: EarlierFault | None = None

    def add(self, position: Position, item: T, size: int) -> None:
        """Add an item of `size` bytes to be checked."""
        self._items.append(item)
        self._indices.append(position)
        self._bytes += size
        if len(self._items) >= ENTRIES or self._bytes >= BYTES:
            self._hand_over()
        while len(self._waiting) > AHEAD:
            self._collect()

    def settle(self) -> None:
        """Wait for all checks; set `first` to the first failure, if any."""
        self._hand_over()
        while self._waiting:
            self._collect()

    def _hand_over(self) -> None:
        """Hand the waiting items to the workers."""
        if self._items:
            items, check = self._items, self._check
            self._waiting.append((self._indices, self._workers(lambda: check(items))))
            self._items, self._indices, self._bytes = [], [], 0

    def _collect(self) -> None:
        """Wait for the oldest batch."""
        indices, result = self._waiting.popleft()
        for position, error in zip(indices, result(), strict=True):
            if error is not None and (self.first is None or position < self.first.position):
                self.first = EarlierFault(position, error)


def raise_first(*queues: BatchVerifier[Any]) -> None:
    """Wait for all queues and raise the EarlierFault of the first entry that failed."""
    for queue in queues:
        queue.settle()
    faults = [queue.first for queue in queues if queue.first is not None]
    if faults:
        raise min(faults, key=lambda fault: fault.position)
