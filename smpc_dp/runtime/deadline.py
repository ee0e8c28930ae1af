"""How long an aggregator waits, in the event loop's time."""

from __future__ import annotations

import asyncio
import math

from smpc_dp.runtime.session_file import Timeouts


class Deadline:
    """How long the hub waits in one request."""

    def __init__(self, timeouts: Timeouts, first: bool) -> None:
        self._timeouts = timeouts
        self._connected = now() + (timeouts.connect if first else 0.0)
        self._latest = self.at = math.inf
        self._enough = False

    @property
    def connecting(self) -> bool:
        """True while parties of the first request may still be on their way."""
        return now() < self._connected

    def begin(self) -> None:
        """Somebody has asked: others have `gather` to ask too."""
        self.at = max(now() + self._timeouts.gather, self._connected)

    def enough(self) -> None:
        """Enough have asked: the rest have one `step`, or what is left to connect."""
        if not self._enough:
            self._enough = True
            self.at = min(self.at, max(now() + self._timeouts.step, self._connected))

    def step(self) -> None:
        """A step begins."""
        self.at = now() + self._timeouts.step
        self._latest = now() + 2 * self._timeouts.step

    def progress(self) -> None:
        """A message of the step has come: who queues behind it is not late, up to twice the time."""
        self.at = min(self._latest, now() + self._timeouts.step)

    def pause(self) -> float:
        """Return until when to wait for news."""
        return min(self.at, self._connected) if self.connecting else self.at


def now() -> float:
    """Return the time."""
    return asyncio.get_running_loop().time()
