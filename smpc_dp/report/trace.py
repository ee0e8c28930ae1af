"""What the members of a run did and when: their steps, the bytes between them, and who was lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from smpc_dp.report.pages import MOST_TEXT

# Losses of a run that a trace keeps: a peer can make any number.
MOST_LOSSES = 1_000
# So many of the last ones are compared with a further one.
REPEATED = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """Record of a member that was lost or failed: time, step, what happened, and who reported it."""

    seconds: float
    step: str
    text: str
    reporter: str


@dataclass(slots=True)
class Trace:
    """Collector of the steps, traffic and losses of one run, by member, for its report.

    Attributes:
        unit: what the seconds of a step are.
        steps: by member and step, seconds.
        sent: by sender and receiver, the bytes of whole messages, as the sender counted them; where it could
            not, as the receiver did.
        losses: in the order of time.
        names: the order in which tables list members; others follow.
    """

    unit: str = "seconds on the clock, waiting for messages included"
    steps: dict[str, dict[str, float]] = field(default_factory=dict)
    sent: dict[tuple[str, str], int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    names: tuple[str, ...] = ()
    clock: Callable[[], float] = time.monotonic
    _began: float | None = None
    _at: dict[str, tuple[str, float]] = field(default_factory=dict)
    _received: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds since the trace's first entry, or since this was first read, which starts the clock."""
        now = self.clock()
        if self._began is None:
            self._began = now
        return now - self._began

    def begin(self, member: str, step: str) -> None:
        """End a member's present step and begin `step` ("" for none); do nothing if it is the present one."""
        now = self.seconds
        before, since = self._at.get(member, ("", now))
        if before == step:
            return
        if before:
            self.spend(member, before, now - since)
        self._at[member] = (step, now)

    def spend(self, member: str, step: str, seconds: float) -> None:
        """Add seconds to a member's time in a step."""
        own = self.steps.setdefault(member, {})
        own[step] = own.get(step, 0.0) + seconds

    def count(self, member: str, peer: str, sent: int, received: int = 0) -> None:
        """Add bytes that a member has sent to a peer and received from it."""
        self.sent[member, peer] = self.sent.get((member, peer), 0) + sent
        self._received[peer, member] = self._received.get((peer, member), 0) + received

    def lose(self, text: str, reporter: str, step: str = "") -> None:
        """Record a loss at this time, unless it repeats one of the last, or MOST_LOSSES are recorded."""
        cut = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
        repeated = any((loss.text, loss.reporter) == (cut, reporter) for loss in self.losses[-REPEATED:])
        if not repeated and len(self.losses) < MOST_LOSSES:
            self.losses.append(Loss(self.seconds, step, cut, reporter))

    @property
    def total(self) -> int:
        """Total of bytes sent between members."""
        return sum({**self._received, **self.sent}.values())

    def ordered(self) -> dict[str, dict[str, float]]:
        """Return the seconds of each step by member: those of `names` in order, then others by name."""
        return {name: self.steps[name] for name in sorted(self.steps, key=self._sort_key())}

    def _sort_key(self) -> Callable[[str], tuple[int, str]]:
        """Return a sort key for members: those in `names` first, in order, then others by name."""
        index = {name: number for number, name in enumerate(self.names)}
        return lambda name: (index.get(name, len(index)), name)

    def connections(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield each pair of members with traffic: both names, bytes from first to second, and bytes back."""
        sent = {**self._received, **self.sent}
        position = self._sort_key()
        pairs = {(one, other) if position(one) < position(other) else (other, one) for one, other in sent}
        for one, other in sorted(pairs, key=lambda pair: (position(pair[0]), position(pair[1]))):
            yield one, other, sent.get((one, other), 0), sent.get((other, one), 0)
