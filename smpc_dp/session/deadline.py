"""Time limits of a process that waits for others. A deadline is absolute: no message moves it.

All limits follow from the session file and from public numbers of the request, and are known when a step
begins. Messages that have arrived when a deadline passes are still taken: no party is late because of
messages before its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from smpc_dp.session.session_file import Timeouts

# Steps in which a collector may wait for others, and then compute, before it answers.
PATIENCE = 4.0


class StepTimer:
    """Clock of one request: deadlines of its steps and of connecting."""

    def __init__(self, timeouts: Timeouts, first: bool, *, is_endless: bool = False) -> None:
        """`is_endless`: whether parties may connect once the request is open, until enough have asked."""
        self._timeouts = timeouts
        self._is_endless = is_endless
        self._late_until = -math.inf
        self._connected = now() + (timeouts.connect if first else 0.0)
        self.at = math.inf
        self._shortened = False

    @property
    def connecting(self) -> bool:
        """Whether parties may still be connecting for the first time."""
        return now() < max(self._connected, self._late_until)

    @property
    def passed(self) -> bool:
        """Whether the deadline of the current step has passed."""
        return now() >= self.at

    def begin(self) -> None:
        """Set the deadline until which further parties may ask, after enough have asked."""
        self.at = self.others_until()
        if self._is_endless:
            self._late_until = self.at

    def others_until(self) -> float:
        """Return the time until which further parties may join a request that is opened now."""
        return max(now() + self._timeouts.gather, self._connected)

    def shorten(self) -> None:
        """Move up the deadline for further parties, since enough have sent their messages.

        Only the first call changes the wait, which becomes no longer.
        """
        if not self._shortened:
            self._shortened = True
            self._late_until = -math.inf
            self.at = min(self.at, max(now() + self._timeouts.step, self._connected))

    def step(self, seconds: float) -> None:
        """Start a step, and set its deadline `seconds` from now."""
        self.at = now() + seconds

    def pause(self) -> float:
        """Return the time until which to wait for events: the deadline, or the earlier end of connecting."""
        return min(self.at, self._connected) if now() < self._connected else self.at


def pairs_seconds(matchings: int, timeouts: Timeouts) -> float:
    """Return how many seconds a party may take for the pairs of all its matchings."""
    return matchings * (timeouts.gather + PATIENCE * timeouts.step)


def pair_seconds(matching: int, timeouts: Timeouts) -> tuple[float, float]:
    """Return (seconds until the partner must begin, until the pair must end) from the first matching's start.

    In seconds from the beginning of the first matching, 0, which all parties notice at about the same time:
    whom an earlier partner has kept to the end of its time is still waited for. In the last `step` of the
    pair's time nobody is waited for. A party then judges what its partner has signed at the last moment, and
    is at the next pair, and with its report at the aggregator, in time.
    """
    begins = pairs_seconds(matching, timeouts) + timeouts.gather
    return begins, begins + (PATIENCE - 1) * timeouts.step


def aggregator_step_seconds(matchings: int, timeouts: Timeouts) -> float:
    """Return how many seconds an aggregator waits for the parties' messages of a step.

    `matchings`: the number of matchings whose pairs are evaluated in it.
    """
    return timeouts.step + pairs_seconds(matchings, timeouts)


def aggregator_run_seconds(steps: int, matchings: int, timeouts: Timeouts, first: bool = False) -> float:
    """Return an upper bound in seconds on a request at an aggregator, computing apart.

    Args:
        steps: at most so many steps after the hello, as `AggregatorRole.most_steps` says.
        matchings: of a pairwise statistic, the matchings of its draw; else 0.
        timeouts: those of the session.
        first: whether it is the session's first request, in which parties may still connect.
    """
    gather = max(timeouts.gather, timeouts.connect) if first else timeouts.gather
    return gather + steps * timeouts.step + pairs_seconds(matchings, timeouts)


def party_run_seconds(steps: int, timeouts: Timeouts, before: int = 0) -> float:
    """Return an upper bound in seconds on what a party waits in a request at an aggregator.

    `steps` as for `aggregator_run_seconds`; `before`: requests that others may be at still.
    """
    return hello_seconds(timeouts, before) + steps * PATIENCE * timeouts.step


def hello_seconds(timeouts: Timeouts, before: int = 0) -> float:
    """Return how many seconds a party waits for the answer to its first message of a request.

    The request has `gather` to open, and the others as much again; so have the `before` requests that others
    may be at still.
    """
    return timeouts.connect + (1 + before) * (2 * timeouts.gather + PATIENCE * timeouts.step)


def direct_run_seconds(patience: Sequence[bool], timeouts: Timeouts) -> float:
    """Return an upper bound in seconds on a direct request; `patience`: which of its steps wait longer."""
    return timeouts.gather + sum(PATIENCE if patient else 1.0 for patient in patience) * timeouts.step


def servers_run_seconds(computing: float, timeouts: Timeouts) -> float:
    """Return an upper bound in seconds on a request to servers, their computing included.

    The steps are `ComputingServer`'s: the hellos; the other servers' hellos; shares, what is held and its
    seals; the computation, and that of the other servers.
    """
    hellos = 2 * timeouts.connect + 3 * timeouts.gather
    return hellos + 2 * computing + (1 + 4 * PATIENCE) * timeouts.step


def now() -> float:
    """Return the event loop's time in seconds."""
    return asyncio.get_running_loop().time()
