"""Public randomness of gossip: the edge that is used at each tick. No secret may be drawn here.

Draws are calculated from the raw words of numpy's PCG64, whose stream is stable over its versions: processes
with one seed have one schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import ALONE
from smpc_dp.capabilities.learn.topology import Topology
from smpc_dp.errors import ConfigCheck, ConfigError

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]

MAX_SEED = 2**63 - 1


class PublicDraws:
    """A reproducible stream of public random numbers, equal for all who know its seed."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        """`stream` separates draws of one seed that are to be independent. Raises ConfigError."""
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= MAX_SEED:
            raise ConfigError.at("seed", f"must be 0 to {MAX_SEED}, is {seed!r}", ConfigCheck.RANGE)
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, stream]))

    def uniform(self, count: int) -> Floats:
        """Return the stream's next `count` numbers from [0, 1), multiples of 2^-53."""
        raw = np.asarray(self._bits.random_raw(count), dtype=np.uint64)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int, count: int) -> Ints:
        """Return the stream's next `count` integers in [0, bound), uniform up to a factor 1 + bound 2^-53."""
        return (self.uniform(count) * bound).astype(np.intp)


class Clock(Protocol):
    """Interface of a random clock: draws the two parties that meet at each tick."""

    @property
    def topology(self) -> Topology:
        """The graph whose edges are the pairs of parties that may meet."""
        ...

    @property
    def chances(self) -> Floats:
        """The probability p_u that a tick concerns party u, shape (n,); they add up to 2."""
        ...

    def draw(self, ticks: int) -> Ints:
        """Return the two parties of each of the next ticks, shape (ticks, 2)."""
        ...


class EdgeClock:
    """Global clock: at each tick, the two ends of an edge drawn uniformly from the graph meet."""

    def __init__(self, topology: Topology, seed: int, stream: int = 0) -> None:
        """Set the graph and the seed; raise ConfigError if the graph is disconnected."""
        topology.require_connected()
        self.topology = topology
        self._draws = PublicDraws(seed, stream)

    @property
    def chances(self) -> Floats:
        """The probability p_u = d_u / |E| that a tick concerns party u, shape (n,)."""
        return self.topology.degrees / len(self.topology.edges)

    def draw(self, ticks: int) -> Ints:
        """Return the two parties of the edge drawn for each of the next ticks, shape (ticks, 2)."""
        return self.topology.edges[self._draws.below(len(self.topology.edges), ticks)]


class PoissonClock:
    """Clocks of rate 1 at each party; one that wakes up meets a random neighbour [Remark 3.2].

    `now` is the time of the last tick that was drawn.
    """

    def __init__(self, topology: Topology, seed: int, stream: int = 0) -> None:
        """Set the graph and the seed; raise ConfigError if the graph is disconnected."""
        topology.require_connected()
        self.topology = topology
        self.now = 0.0
        self._draws = PublicDraws(seed, stream)

    @property
    def chances(self) -> Floats:
        """The probability p_u that a tick concerns party u, shape (n,).

        p_u = (1 + the sum over neighbours v of 1/d_v) / n.
        """
        inverse = 1.0 / self.topology.degrees
        return np.asarray(1.0 + self.topology.adjacency @ inverse) / self.topology.parties

    def draw(self, ticks: int) -> Ints:
        """Return the waking party and its neighbour at each of the next ticks, shape (ticks, 2)."""
        return self.draw_timed(ticks)[1]

    def draw_timed(self, ticks: int) -> tuple[Floats, Ints]:
        """Return the next ticks' ascending times, (ticks,), and the waking and called parties, (ticks, 2)."""
        graph = self.topology
        # Row by row, so that ticks do not depend on how many are drawn at once.
        drawn = self._draws.uniform(3 * ticks).reshape(ticks, 3)
        times = self.now + np.cumsum(-np.log1p(-drawn[:, 0])) / graph.parties
        self.now = float(times[-1]) if ticks else self.now
        awake = (drawn[:, 1] * graph.parties).astype(np.intp)
        choice = (drawn[:, 2] * graph.degrees[awake]).astype(np.intp)
        called = graph.adjacency.indices[graph.adjacency.indptr[awake] + choice]
        return times, np.stack([awake, called.astype(np.intp)], axis=1)


def by_level(level: Ints) -> list[Ints]:
    """Return an array of event indices for each level, in ascending order of levels."""
    order = np.argsort(level, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(level[order])) + 1) if len(order) else []


@dataclass(frozen=True, eq=False)
class Round:
    """Meetings of pairs in which each party takes part at most once, so that all can be held at once.

    Attributes:
        partner: shape (n,): the partner of each party, itself if it meets nobody.
        pairing: shape (n,): the row of that meeting in the grouped pairs; -1 for a party that meets nobody.
    """

    partner: Ints
    pairing: Ints


def rounds(parties: int, pairs: Ints) -> Iterator[Round]:
    """Yield rounds of simultaneous meetings that keep each party's meetings in the order of `pairs`.

    As meetings of different parties do not affect each other, the outcome is that of one after the other. A
    meeting is held in the first round in which it is next for both parties.

    Args:
        parties: n. pairs: shape (meetings, 2), parties 0 to n - 1, the two of a row different.
    """
    person = pairs.ravel()
    # A radix sort, where numbers are small.
    order = np.argsort(person.astype(np.uint16) if parties <= 1 << 16 else person, kind="stable")
    own = np.arange(parties)
    # All meetings of party 0, then those of party 1, ..., each party's followed by one that is never held.
    last = np.cumsum(np.bincount(person, minlength=parties)) + own
    slots = np.arange(len(person)) + person[order]
    queue, other = (
        np.empty(len(person) + parties, dtype=np.intp),
        np.empty(len(person) + parties, dtype=np.intp),
    )
    queue[slots], other[slots] = order >> 1, person[order ^ 1]
    queue[last], other[last] = -1 - own, (own + 1) % parties
    index = np.concatenate([[0], last[:-1] + 1])
    left = len(person)
    while left:
        head, opposite = queue[index], other[index]
        ready = head[opposite] == head
        yield Round(np.where(ready, opposite, own), np.where(ready, head, ALONE))
        index += ready
        left -= int(np.count_nonzero(ready))


@dataclass(frozen=True, eq=False)
class Span:
    """Consecutive ticks start + 1 to end of a clock, with the pairs of parties that meet.

    Attributes:
        pairs: shape (meetings, 2): the two parties of each meeting, in order.
        parties: n. copies: meetings of one tick.
    """

    start: int
    end: int
    pairs: Ints
    parties: int
    copies: int

    @property
    def rounds(self) -> Iterator[Round]:
        """The span's meetings in rounds of simultaneous ones, with each party's meetings in order."""
        return rounds(self.parties, self.pairs)

    def tick(self, pairing: Ints) -> Ints:
        """Return the tick at which each meeting takes place, for meetings given by row of `pairs`."""
        passed = pairing if self.copies == 1 else pairing // self.copies
        return passed + (self.start + 1)


def spans(clock: Clock, parties: int, ticks: int, every: int, *, pairings: int = 1) -> Iterator[Span]:
    """Yield a clock's next `ticks` ticks in spans of `every` ticks; each tick has `pairings` meetings."""
    for start in range(0, ticks, every):
        end = min(ticks, start + every)
        pairs = clock.draw((end - start) * pairings)
        yield Span(start, end, pairs, parties, len(pairs) // (end - start))
