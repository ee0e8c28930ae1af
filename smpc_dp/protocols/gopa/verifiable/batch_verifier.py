"""Checks of single entries that are done together, on other threads. What fails first is raised first."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from smpc_dp.errors import VerificationError

T = TypeVar("T")
# Line and first byte of an entry.
Position = tuple[int, int]
# Entries that are checked together, at most, and bytes that wait for it.
ENTRIES, BYTES = 64, 1 << 20
# Parts that are under way, at most.
AHEAD = 16


class Workers(Protocol):
    """Begins some work; what it returns waits for the outcome."""

    def __call__(self, work: Callable[[], T], /) -> Callable[[], T]: ...


def at_once(work: Callable[[], T], /) -> Callable[[], T]:
    """Do it now."""
    done = work()
    return lambda: done


class EarlierFault(VerificationError):
    """A check failed of an entry at `position`, before the one that was read last."""

    def __init__(self, position: Position, error: VerificationError) -> None:
        self.position = position
        super().__init__(str(error), error.check)


class BatchVerifier(Generic[T]):
    """Checks that wait.

    Args:
        workers: do them.
        check: returns of each item an error, or None. It runs on any thread.
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
        """Check an item of `size` bytes later."""
        self._items.append(item)
        self._indices.append(position)
        self._bytes += size
        if len(self._items) >= ENTRIES or self._bytes >= BYTES:
            self._hand_over()
        while len(self._waiting) > AHEAD:
            self._collect()

    def settle(self) -> None:
        """Wait for all; set `first` to what failed first, if anything did."""
        self._hand_over()
        while self._waiting:
            self._collect()

    def _hand_over(self) -> None:
        if self._items:
            items, check = self._items, self._check
            self._waiting.append((self._indices, self._workers(lambda: check(items))))
            self._items, self._indices, self._bytes = [], [], 0

    def _collect(self) -> None:
        indices, result = self._waiting.popleft()
        for position, error in zip(indices, result(), strict=True):
            if error is not None and (self.first is None or position < self.first.position):
                self.first = EarlierFault(position, error)


def raise_first(*queues: BatchVerifier[Any]) -> None:
    """Wait for all and raise the EarlierFault of the first entry that failed; of one entry, the first."""
    for queue in queues:
        queue.settle()
    faults = [queue.first for queue in queues if queue.first is not None]
    if faults:
        raise min(faults, key=lambda fault: fault.position)
