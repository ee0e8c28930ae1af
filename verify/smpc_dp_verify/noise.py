"""The noise that a session plans, derived from its epsilon and delta [docs/proofs/verifiable-plan.md]."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from smpc_dp_verify.draws import Draws, disconnected, log_choose, plan_draws
from smpc_dp_verify.errors import required

# Up to so many parties all are neighbours.
COMPLETE = 64
PART, SMOOTHING = 1e-3, 6.0
# So many different widths are composed one by one; of more, and of a ball, part 7 has the bound.
MOST_WIDTHS = 16
# By which factor delta may be off, and the bits where losses are composed on a grid.
ROUNDED, COMPOSED, BITS_FACTOR = 1.001, 1.02, 0.97
# Standard deviations that are composed, points of the grid in one of them, bits of a probability, and those
# of the least one that counts.
REACH, POINTS, BITS, LEAST = 16, 24, 200, 20
# Up to which epsilon, and how often halved, one is looked for after exclusions.
MOST_EPSILON, BISECTIONS = 1 << 16, 50


@dataclass(frozen=True)
class Noise:
    """Noise of a session: `corrupt` is c, `lost` is D, and of `more` corrupt parties the noise is known.

    `widths`: of the range of each coordinate, or of all; `squared`: b, in their place. `of_records`: whether
    a row is protected, so that all are neighbours and more pairwise noise may hide a party's totals.
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
    of_records: bool = False

    def __post_init__(self) -> None:
        fits = 1e-100 < self.epsilon < 100 and 1e-100 < self.delta < 1 and self.honest >= 2
        required(fits, "epsilon, delta and honest parties")

    @property
    def honest(self) -> int:
        """n_H, those whose noise counts."""
        return self.parties - self.lost - self._curious

    @property
    def _curious(self) -> int:
        return max(self.corrupt, 1) + self.more

    @cached_property
    def draws(self) -> Draws | None:
        """How neighbours are drawn; None: all are."""
        if self.parties <= COMPLETE or self.of_records:
            return None
        return plan_draws(self.parties, max(self.corrupt, 1), self.lost, self.delta)

    @property
    def most_neighbours(self) -> int:
        """The most neighbours that a party's commitment may have."""
        others = self.parties - 1
        return others if self.draws is None else min(self.draws.degree + self.draws.drawn_by, others)

    @property
    def _each(self) -> list[int]:
        """How far each coordinate may move."""
        if self.squared is not None:
            return [2 * math.isqrt(self.squared)] * self.length
        return list(self.widths) * (self.length // len(self.widths))

    @property
    def _apart(self) -> int:
        """The most that the squares of the moves may sum to."""
        if self.squared is not None and self.length > 1:
            return 4 * self.squared
        return sum(width * width for width in self._each)

    @property
    def _among(self) -> int:
        return self.honest if self.draws is None else max(self.honest, self.parties - self._curious)

    @property
    def _farthest(self) -> float:
        """D sqrt(N - 1), on a path of all honest parties (part 5)."""
        return math.sqrt(self._apart * (self._among - 1))

    @property
    def _tail(self) -> float:
        return math.sqrt(2 * math.log(1 / (PART * self.delta)))

    def _of_pairs(self, sigma: float) -> float:
        """Return what pairwise noise takes of epsilon."""
        mu = self._farthest / sigma
        return mu * mu / 2 + mu * self._tail

    @property
    def _delta_left(self) -> float:
        """What pairwise noise and the graph leave of delta."""
        apart = 0.0
        if self.draws is not None:
            draws = self.draws
            apart = disconnected(self.parties, self._curious, draws.degree, draws.losses)
        return self.delta * (1 - PART) - apart

    def _shown(self, bits: int, epsilon: float) -> float:
        """Return delta at epsilon of the honest parties' coins, `bits` of each in each coordinate."""
        coins, each = self.honest * bits, self._each
        if bits < 1 or coins <= max(each):
            return 1.0
        if len({*each}) > MOST_WIDTHS or (self.squared is not None and self.length > 1):
            return _ball(coins, self.length, self._apart, max(each), epsilon, PART * self.delta)
        return _box(coins, each, epsilon)

    def check(self, bits: int, pair: int) -> None:
        """Refuse other noise than the planned one."""
        w, among = self._tail, self._among
        mu = PART * self.epsilon / (w + math.sqrt(w * w + 2 * PART * self.epsilon))
        rank = max(1, (among - 1) * (among - 2) // 2)
        least = max(self._farthest / mu, SMOOTHING * math.sqrt(among * rank / (2 * math.pi)))
        sigma = 2.0 ** math.ceil(math.log2(least))
        planned = pair == math.ceil(sigma * sigma) or (self.of_records and pair > sigma * sigma)
        required(planned, "the pairwise noise that the session plans")
        epsilon, delta = self.epsilon - self._of_pairs(sigma), self._delta_left
        required(epsilon > 0 and delta > 0, "epsilon, delta and honest parties")
        fewer, factor = bits - 4, ROUNDED
        if self.length > 1:
            fewer, factor = min(fewer, math.floor(BITS_FACTOR * bits / 2) * 2), COMPOSED
        is_planned = bits % 4 == 0 and self._shown(bits, epsilon) <= factor * delta
        required(is_planned, "the noise that the session plans")
        required(self._shown(fewer, epsilon) > delta / factor, "the noise that the session plans")

    def epsilon_after(self, excluded: int, bits: int, pair: int) -> float | None:
        """Return epsilon at delta after so many exclusions, None if nothing is claimed ["Privacy"]."""
        more = excluded - self.corrupt
        if more <= 0:
            return self.epsilon
        if self.honest - more < 2:
            return None
        left = replace(self, more=more)
        delta, low, high = left._delta_left, 0.0, float(MOST_EPSILON)
        if delta <= 0 or left._shown(bits, high) > delta:
            return None
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if left._shown(bits, middle) <= delta else (middle, high)
        return max(self.epsilon, high + left._of_pairs(math.sqrt(pair)))


def _ball(coins: int, length: int, apart: int, most: int, epsilon: float, tail: float) -> float:
    """Return delta of coins in each coordinate, of moves whose squares sum to `apart` (part 7)."""
    width = math.sqrt(coins * math.log(min(length, apart) / tail) / 2)
    u = (2 * width + 2 * most - 1) / (coins + 1)
    if u >= 1:
        return 1.0
    rho = 2 * apart / (coins + 1) / (1 - u * u) ** 2
    # [Canonne, Kamath, Steinke 2020, Proposition 12], ln of it at the order 1 + s.
    low, high = math.log(1e-6), math.log(1e9)

    def bound(log: float) -> float:
        s = math.exp(log)
        return s * (rho * (1 + s) - epsilon) + (1 + s) * math.log1p(-1 / (1 + s)) - log

    for _ in range(200):
        third = (high - low) / 3
        if bound(low + third) < bound(high - third):
            high -= third
        else:
            low += third
    return min(1.0, tail + math.exp(min(bound(low), 0.0)))


def _box(coins: int, widths: Sequence[int], epsilon: float) -> float:
    """Return delta of coins in each coordinate that moves by its width (parts 1, 4 and 8)."""
    if len(widths) == 1:
        return _one(coins, widths[0], epsilon)
    finite, losses, step = _composed(coins, tuple(widths))
    return 1 - finite + finite * losses.delta(step, epsilon)


@cache
def _composed(coins: int, widths: tuple[int, ...]) -> tuple[float, _Losses, float]:
    """Return the chance that all losses are finite, these on a grid, and its step."""
    step = 2 * math.sqrt(sum(width * width for width in widths) / coins) / (POINTS * math.sqrt(len(widths)))
    finite, losses = 1.0, _Losses({0: 1.0})
    for width, count in Counter(widths).items():
        one: dict[int, float] = {}
        beyond = 0.0
        for loss, chance in _losses(coins, width):
            if loss == math.inf:
                beyond += chance
                continue
            # Between two points of the grid: the mean is kept.
            at = math.floor(loss / step)
            above = loss / step - at
            one[at] = one.get(at, 0.0) + chance * (1 - above)
            one[at + 1] = one.get(at + 1, 0.0) + chance * above
        finite *= (1 - beyond) ** count
        losses = losses.then(_Losses(one).times(count))
    return finite, losses, step


def _losses(coins: int, width: int) -> list[tuple[float, float]]:
    """Return the losses of a binomial that moves by `width`, with their probabilities."""
    reach = REACH / 2 * math.sqrt(coins)
    low, high = max(0, math.floor(coins / 2 - reach)), min(coins, math.ceil(coins / 2 + reach))
    result = []
    for x in range(low, high + 1):
        log = log_choose(coins, x)
        loss = log - log_choose(coins, x - width) if x >= width else math.inf
        result.append((loss, math.exp(log - coins * math.log(2))))
    return result


def _one(coins: int, width: int, epsilon: float) -> float:
    return sum(chance * -math.expm1(min(epsilon - loss, 0.0)) for loss, chance in _losses(coins, width))


class _Losses:
    """Probabilities of losses on a grid, as whole numbers of 2^-BITS: products of them are exact."""

    def __init__(self, chances: dict[int, float]) -> None:
        self.first = min(chances)
        self.masses = [int(chances.get(at, 0.0) * (1 << BITS)) for at in range(self.first, max(chances) + 1)]

    def then(self, other: _Losses) -> _Losses:
        """Return the losses of both together: one product of long numbers is the convolution."""
        size = (2 * BITS + 7) // 8 + 4
        count = len(self.masses) + len(other.masses) - 1
        one, two = (
            int.from_bytes(b"".join(mass.to_bytes(size, "little") for mass in each.masses), "little")
            for each in (self, other)
        )
        packed = (one * two).to_bytes(size * (count + 1), "little")
        masses = [int.from_bytes(packed[size * i : size * (i + 1)], "little") >> BITS for i in range(count)]
        result = _Losses({0: 0.0})
        # What is nothing at both ends is left out.
        there = [i for i, mass in enumerate(masses) if mass >> LEAST] or [0]
        result.first = self.first + other.first + there[0]
        result.masses = masses[there[0] : there[-1] + 1]
        return result

    def times(self, count: int) -> _Losses:
        """Return the losses of `count` independent ones."""
        result, power = _Losses({0: 1.0}), self
        while count:
            if count & 1:
                result = result.then(power)
            count >>= 1
            if count:
                power = power.then(power)
        return result

    def delta(self, step: float, epsilon: float) -> float:
        """Return delta at epsilon."""
        return sum(
            mass / (1 << BITS) * -math.expm1(min(epsilon - at * step, 0.0))
            for at, mass in enumerate(self.masses, self.first)
        )
