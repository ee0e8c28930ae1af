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
    """Reporter of the expected members, those without a connection first.

    Every WAITING_SECONDS in the first LONG_SECONDS of a wait, then every LONG_SECONDS.
    """

    def __init__(self, party: str, is_live: Callable[[str], bool], on_event: OnEvent) -> None:
        self._party = party
        self._is_live = is_live
        self._on_event = on_event
        self.begin(0, "", frozenset)

    def begin(self, request: int, step: str, names: Callable[[], Collection[str]]) -> None:
        """Wait for `names()` from now on, in this step of a request."""
        self._request, self._step, self._names = request, step, names
        self._failure = ""
        self._often_until = now() + LONG_SECONDS
        self.next_report = now() + WAITING_SECONDS

    def failed(self, reason: str) -> None:
        """Report from now on why the expected members are not connected: what the last attempt ended with."""
        self._failure = f": {reason}; `smpc-dp check` says what to do"

    async def gather(self, inbound: asyncio.Event, until: float, enough: Callable[[], bool]) -> bool:
        """Wait until `enough()` holds, or until the time; return whether it holds.

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
        """Return the result of `get`, or None when the time, or that to look at other things, comes first."""
        while True:
            try:
                async with asyncio.timeout_at(min(until, look, self.next_report)):
                    return await get()
            except TimeoutError:
                self.notify(until)
                if now() >= min(until, look):
                    return None

    async def follow(self, work: Awaitable[T], seconds: float) -> T:
        """Return the result of `work`, which ends by itself after so many seconds."""
        until, task = now() + seconds, asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([task], timeout=max(0.0, self.next_report - now())))[0]:
                self.notify(until)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def notify(self, until: float) -> None:
        """Report the expected members and until when they are waited for, if it is time."""
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
    """Return a time of the event loop in local time; empty if it never comes."""
    if math.isinf(until):
        return ""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + until - now()))
