"""The noise that a session plans, derived from its epsilon and delta [docs/proofs/verifiable-plan.md]."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

from smpc_dp_verify.draws import Draws, disconnected, plan_draws
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.gaussian import gaussian_mu
from smpc_dp_verify.losses import (
    ALLOWANCE,
    GREATEST_EPSILON,
    Composition,
    Grid,
    binomial,
    binomial_delta,
    least_epsilon,
    pure_delta,
    pure_delta_of,
    renyi_delta,
    renyi_epsilon,
)

# Up to so many parties all are neighbours.
COMPLETE = 64
PART, SMOOTHING = 1e-3, 6.0
# So many different widths are composed one by one; of more, and of a ball, part 7 has the bound.
MOST_WIDTHS, MOST_BITS = 16, 1 << 16
# By how much two right computations of delta may differ: as a part of it, and beside that on the grid.
ROUNDED, COMPOSED = 1e-8, 2 * ALLOWANCE
# A loss beyond the one counts as infinite, and of losses with a greater deviation together delta is 1.
GREATEST_LOSS, GREATEST_DEVIATION = 200.0, 50.0
# The least delta that is resolved after exclusions and of several releases.
LEAST_DELTA = 1e-11


@dataclass(frozen=True)
class Noise:
    """Plan of a session's noise: corrupt, lost and honest parties, budget, and how far a unit moves sums.

    `widths`: of the range of each coordinate, or of all; `squared`: b, in their place. `hidden`: where
    a row is protected, so that all are neighbours, the least variance of pairwise noise that hides totals.
    """

    parties: int
    corrupt: int
    lost: int
    epsilon: float
    delta: float
    length: int
    widths: tuple[int, ...]
    squared: int | None
    more: int = 0
    hidden: int | None = None

    def __post_init__(self) -> None:
        fits = 1e-100 < self.epsilon < 100 and 1e-100 < self.delta < 1 and self.honest >= 2
        required(fits, "epsilon, delta and honest parties")

    @property
    def honest(self) -> int:
        """The number n_H of honest parties whose noise the guarantee counts on."""
        return self.parties - self.lost - self._curious

    @property
    def _curious(self) -> int:
        return max(self.corrupt, 1) + self.more

    @cached_property
    def draws(self) -> Draws | None:
        """The plan of how parties draw neighbours; None if all parties are neighbours."""
        if self.parties <= COMPLETE or self.hidden is not None:
            return None
        return plan_draws(self.parties, max(self.corrupt, 1), self.lost, self.delta)

    @property
    def most_neighbours(self) -> int:
        """The greatest number of neighbours that a party's commitment message may list."""
        others = self.parties - 1
        return others if self.draws is None else min(self.draws.degree + self.draws.drawn_by, others)

    @property
    def _each(self) -> list[int]:
        """The greatest change of each coordinate by one unit, in steps; one entry for each coordinate."""
        if self.squared is not None:
            return [2 * math.isqrt(self.squared)] * self.length
        return list(self.widths) * (self.length // len(self.widths))

    @property
    def _apart(self) -> int:
        """The greatest sum of the squares of all coordinates' changes by one unit, in steps."""
        if self.squared is not None and self.length > 1:
            return 4 * self.squared
        return sum(width * width for width in self._each)

    @property
    def _among(self) -> int:
        return self.honest if self.draws is None else max(self.honest, self.parties - self._curious)

    @property
    def _farthest(self) -> float:
        """The greatest move D sqrt(N - 1) on a path through all honest parties (part 5)."""
        return math.sqrt(self._apart * (self._among - 1))

    @property
    def _tail(self) -> float:
        return math.sqrt(2 * math.log(1 / (PART * self.delta)))

    def _of_pairs(self, sigma: float) -> float:
        """Return the part of epsilon that pairwise noise of deviation `sigma` costs."""
        mu = self._farthest / sigma
        return mu * mu / 2 + mu * self._tail

    @property
    def _delta_left(self) -> float:
        """The part of delta that is left after pairwise noise and a disconnected graph."""
        apart = 0.0
        if self.draws is not None:
            draws = self.draws
            apart = disconnected(self.parties, self._curious, draws.degree, draws.losses)
        return self.delta * (1 - PART) - apart

    @cached_property
    def _is_ball(self) -> bool:
        return len({*self._each}) > MOST_WIDTHS or (self.squared is not None and self.length > 1)

    def _rho(self, bits: int) -> float:
        """Return rho: the Rényi divergence of honest parties' coins at order a is at most a rho (part 7)."""
        coins, moved = self.honest * bits, min(self.length, self._apart)
        width = math.sqrt(coins * math.log(moved / (PART * self.delta)) / 2)
        u = (2 * width + 2 * max(self._each) - 1) / (coins + 1)
        return math.inf if u >= 1 else 2 * self._apart / (coins + 1) / (1 - u * u) ** 2 * (1 + 1e-12)

    def _shown(self, bits: int, epsilon: float) -> float:
        """Return delta at epsilon of the honest parties' coins: each has `bits` for each coordinate."""
        if bits < 1:
            return 1.0
        if self._is_ball:
            rho = self._rho(bits)
            return (
                min(1.0, PART * self.delta + renyi_delta(lambda a: rho * a, epsilon))
                if rho < math.inf
                else 1.0
            )
        if self.length == 1:
            return binomial_delta(self.honest * bits, self._each[0], epsilon)
        return _composed_delta(self.honest * bits, tuple(self._each), epsilon)

    def _suffices(self, bits: int, rounded: int = 0) -> bool:
        """Tell whether `bits` of noise keep delta in budget; `rounded` 1 or -1: the budget widened or cut."""
        grid = 0.0 if self.length == 1 or self._is_ball else COMPOSED
        most = self._delta_left * (1 + rounded * ROUNDED) + rounded * grid
        return self._shown(bits, self.epsilon - self._of_pairs(self.sigma)) <= most

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of pairwise noise that a session plans, a power of two, in steps."""
        w, among = self._tail, self._among
        mu = PART * self.epsilon / (w + math.sqrt(w * w + 2 * PART * self.epsilon))
        rank = max(1, (among - 1) * (among - 2) // 2)
        least = max(self._farthest / mu, SMOOTHING * math.sqrt(among * rank / (2 * math.pi)))
        return float(2.0 ** math.ceil(math.log2(least)))

    @property
    def pair(self) -> int:
        """The planned variance of pairwise noise, in squared steps, rounded up."""
        return math.ceil(self.sigma**2)

    def check(self, bits: int, pair: int) -> None:
        """Raise Refused unless the session's bits of noise and pairwise variance are the planned ones."""
        planned = max(self.pair, self.hidden or 0)
        required(pair == planned, "the pairwise noise that the session plans")
        left = self.epsilon - self._of_pairs(self.sigma), self._delta_left
        required(min(left) > 0, "epsilon, delta and honest parties")
        is_planned = bits % 4 == 0 and any(
            self._is_reached(least) and self._suffices(least, 1) and not self._suffices(least - 2, -1)
            for least in (bits - 2, bits)
        )
        required(is_planned, "the noise that the session plans")

    def _tried(self) -> Iterator[int]:
        """Yield, ascending, half of each number of bits that the planning search tries ["Bits"]."""
        needed = 2 * self._apart / gaussian_mu(self.epsilon, self.delta) ** 2 / self.honest
        half = max(1, math.ceil(needed))
        while 2 * half * self.length <= MOST_BITS:
            yield half
            half += max(1, half // 4)

    def _is_reached(self, bits: int) -> bool:
        """Tell whether the planning search can reach so many bits, so that checking them is feasible."""
        return any(bits <= 2 * half for half in self._tried())

    def planned_bits(self) -> int:
        """Return the bits of noise that a session plans for each coordinate; raise Refused if none."""
        required(self._delta_left > 0, "epsilon, delta and honest parties")
        low = high = 0
        for half in self._tried():
            low, high = high, half
            if self._suffices(2 * high):
                break
        else:
            raise Refused("epsilon, delta and honest parties")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._suffices(2 * middle) else (middle, high)
        return -(-high // 2) * 4

    def epsilon_after(self, excluded: int, bits: int, pair: int) -> float | None:
        """Return epsilon after `excluded` exclusions; None if no guarantee is left ["Privacy"]."""
        more = excluded - self.corrupt
        if more <= 0:
            return self.epsilon
        if self.honest - more < 2:
            return None
        left = replace(self, more=more)
        epsilon = left._least_epsilon(bits)
        return None if epsilon == math.inf else max(self.epsilon, epsilon + left._of_pairs(math.sqrt(pair)))

    def _least_epsilon(self, bits: int) -> float:
        delta = self._delta_left
        if delta < LEAST_DELTA:
            return math.inf
        if self._is_ball:
            rho, delta = self._rho(bits), delta - PART * self.delta
            return renyi_epsilon(lambda a: rho * a, delta) if rho < math.inf and delta > 0 else math.inf
        greatest = GREATEST_EPSILON if self.length == 1 else math.inf
        return least_epsilon(lambda epsilon: self._shown(bits, epsilon), delta, greatest)

    def all_of(self, count: int, bits: int, delta: float) -> float:
        """Return epsilon at delta of `count` averages together with this noise ["Several averages"]."""
        tail = PART * self.delta if self._is_ball else 0.0
        slack = self.delta - self._delta_left + tail
        left, alone, more = delta - count * slack, self.delta - slack, self._of_pairs(self.sigma)
        if left <= COMPOSED:
            return math.inf
        if not self._is_ball:
            return self._all_of_one(count, bits, left, alone)
        rho = self._rho(bits)
        known = partial(pure_delta_of, count, self.epsilon, alone)
        if count == 1:
            known = partial(pure_delta, self.epsilon, alone)
        together = renyi_epsilon(lambda a: count * (more + rho * a), left)
        return min(together, least_epsilon(known, left))

    def _all_of_one(self, count: int, bits: int, left: float, alone: float) -> float:
        """Return epsilon of several averages together, for noise in a single coordinate."""
        coins, width, close = self.honest * bits, self._each[0], count * self._of_pairs(self.sigma)
        if count > 1:
            known = _composed(coins, (width,) * count).delta
            return least_epsilon(known, left * math.exp(-close)) + close

        def delta(epsilon: float) -> float:
            whole = (
                math.exp(close) * binomial_delta(coins, width, epsilon - close) if epsilon > close else 1.0
            )
            return min(whole, pure_delta(self.epsilon, alone, epsilon))

        return least_epsilon(delta, left, GREATEST_EPSILON)


@lru_cache(64)
def _composed_delta(coins: int, widths: tuple[int, ...], epsilon: float) -> float:
    """Return delta at epsilon of coins in several coordinates, each shifted by its width."""
    return _composed(coins, widths).delta(epsilon)


def _bounded(
    losses: list[tuple[float, float]], infinite: float
) -> tuple[list[tuple[float, float]], float, float]:
    """Return losses capped at the greatest, the probability of infinite loss, and the variance of losses."""
    infinite += math.fsum(mass for loss, mass in losses if loss > GREATEST_LOSS)
    within = [(max(loss, -GREATEST_LOSS), mass) for loss, mass in losses if loss <= GREATEST_LOSS]
    mean = math.fsum(loss * mass for loss, mass in within)
    return within, infinite, math.fsum(mass * (loss - mean) ** 2 for loss, mass in within)


# Of few, as of binomials.
@lru_cache(4)
def _composed(coins: int, widths: tuple[int, ...]) -> Composition:
    """Return the privacy loss of coins in all coordinates, each shifted by its width (parts 1, 4, 8)."""
    result, last, variance = Grid(), Grid(), 0.0
    for width, count in Counter(widths).items():
        finite, infinite, spread = _bounded(*binomial(coins, width))
        variance += count * spread
        if infinite > 0.5 or variance > GREATEST_DEVIATION**2:
            return Composition(Grid(finite=0.0), last)
        result, last = result.then(last), Grid.of(finite, infinite)
        result = result.then(last.times(count - 1))
    return Composition(result, last)
