"""Processor time of a process by part: functions that are measured where they stand."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

REST = "the rest"


class Parts:
    """Collector of processor time, and of memory if traced, by member and named part of its work.

    Attributes:
        seconds: of processor time, by member and part.
        copied: the most bytes that a call of the part held at once, of those allocated since it began; of
            calls within it those count that the part is left with. Empty unless `memory` is traced.
    """

    def __init__(self, member: str, *, memory: bool = False) -> None:
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.copied: dict[tuple[str, str], int] = {}
        self._member, self._memory = member, memory
        # The parts that are under way, each with the traced bytes at its begin.
        self._open = [(REST, self._traced())]
        self._last = time.process_time()

    @contextmanager
    def of(self, member: str) -> Iterator[None]:
        """Context manager: time within the block counts for another member."""
        before = self._member
        with self.part(REST):
            self._member = member
            try:
                yield
            finally:
                self._count()
                self._member = before

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Context manager: time within the block counts for the part `name` of the current member."""
        self._count()
        self._open.append((name, self._traced()))
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def begin(self) -> None:
        """Set all times and memory peaks to zero; the measurement begins here."""
        self._count()
        self.seconds.clear()
        self.copied.clear()

    def end(self) -> None:
        """Add the time since the last count to the current part; the measurement is over."""
        self._count()

    def measure(self, name: str, *functions: Any) -> None:
        """Replace functions, in all modules of `smpc_dp`, by ones whose time counts for a part."""
        for function in functions:
            wrapped = self._wrapped(name, function)
            for module in list(sys.modules.values()):
                if module.__name__.partition(".")[0] == "smpc_dp":
                    for key, value in list(vars(module).items()):
                        if value is function:
                            setattr(module, key, wrapped)

    def measure_methods(self, name: str, owner: Any, *methods: str) -> None:
        """Replace methods (by default all public ones) by ones whose time counts for a part."""
        public = [key for key, value in vars(owner).items() if key[0] != "_" and callable(value)]
        for method in methods or public:
            wrapped = self._wrapped(name, getattr(owner, method))
            bound = isinstance(vars(owner).get(method), classmethod)
            setattr(owner, method, staticmethod(wrapped) if bound else wrapped)

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def measured(*arguments: Any, **named: Any) -> Any:
            with self.part(name):
                return function(*arguments, **named)

        return measured

    def _traced(self) -> int:
        return tracemalloc.get_traced_memory()[0] if self._memory else 0

    def _count(self) -> None:
        """Add time and peak memory since the last count to the innermost open part."""
        now, (part, begun) = time.process_time(), self._open[-1]
        key = self._member, part
        self.seconds[key] += now - self._last
        if self._memory:
            held = tracemalloc.get_traced_memory()[1] - begun
            self.copied[key] = max(held, self.copied.get(key, 0))
            tracemalloc.reset_peak()
        self._last = time.process_time()
