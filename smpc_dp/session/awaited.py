"""Reports of the members that a process waits for."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from smpc_dp.session.deadline import now
from smpc_dp.session.events import Event, OnEvent

# Seconds between two reports of the expected members, at first and after the first minute of a wait, and the
# number of names in one.
WAITING_SECONDS = 5.0
LONG_SECONDS = 60.0
WAITING_NAMES = 10

T = TypeVar("T")


class Awaited:
    """Reporter that tells a session's watcher, from time to time, which members are waited for.

    Every WAITING_SECONDS in the first LONG_SECONDS of a wait, then every LONG_SECONDS.
    """

    def __init__(self, party: str, is_live: Callable[[str], bool], on_event: OnEvent) -> None:
        self._party = party
        self._is_live = is_live
        self._on_event = on_event
        self.begin(0, "", frozenset)

    def begin(self, request: int, step: str, names: Callable[[], Collection[str]]) -> None:
        """Set the request and step that are waited for, and a function that names the members."""
        self._request, self._step, self._names = request, step, names
        self._failure = ""
        self._often_until = now() + LONG_SECONDS
        self.next_report = now() + WAITING_SECONDS

    def failed(self, reason: str) -> None:
        """Set the reason, shown in later reports, why the last attempt to connect failed."""
        self._failure = f": {reason}; `smpc-dp check` says what to do"

    async def gather(self, inbound: asyncio.Event, until: float, enough: Callable[[], bool]) -> bool:
        """Wait until `enough()` is true or the time has come; return whether it is true.

        It is evaluated after each `inbound`.
        """
        while not enough():
            inbound.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(until, self.next_report)):
                    await inbound.wait()
            self.notify(until)
            if now() >= until:
                return enough()
        return True

    async def next(self, get: Callable[[], Awaitable[T]], until: float, look: float = math.inf) -> T | None:
        """Wait for the result of `get`, reporting meanwhile; return None at either time limit."""
        while True:
            try:
                async with asyncio.timeout_at(min(until, look, self.next_report)):
                    return await get()
            except TimeoutError:
                self.notify(until)
                if now() >= min(until, look):
                    return None

    async def follow(self, work: Awaitable[T], seconds: float) -> T:
        """Wait for `work` and return its result; report meanwhile that this takes at most `seconds`."""
        until, task = now() + seconds, asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([task], timeout=max(0.0, self.next_report - now())))[0]:
                self.notify(until)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def notify(self, until: float) -> None:
        """Report which members are waited for, and until when, if the next report is due."""
        if now() < self.next_report:
            return
        self.next_report = now() + (WAITING_SECONDS if now() < self._often_until else LONG_SECONDS)
        if names := self._names():
            listed = sorted(names, key=lambda name: (self._is_live(name), name))
            absent = f"(not connected{self._failure})"
            shown = [name if self._is_live(name) else f"{name} {absent}" for name in listed[:WAITING_NAMES]]
            more = f" and {len(listed) - len(shown)} more" * (len(listed) > len(shown))
            detail = ", ".join(shown) + more
            end = _clock(until)
            self._on_event(
                Event(self._party, "waiting", self._request, self._step, len(listed), detail, until=end)
            )


def _clock(until: float) -> str:
    """Return a time of the event loop as local clock time in text; "" for infinity."""
    if math.isinf(until):
        return ""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + until - now()))
