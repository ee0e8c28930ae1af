"""Privacy losses: of moved binomials, composed on a grid, and by Rényi divergences.

Specification: protocols/gopa/verifiable.md, "How a plan is computed".
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from itertools import accumulate

from smpc_dp_verify.draws import log_choose

# What is counted as infinite beside the sum of a binomial; masses beyond e^-47 are not summed.
TAIL, LOG_TAIL = 1.1e-20, 47
# The step of the grid, what is added before losses are rounded up to it, and delta's allowance.
STEP, UP, ALLOWANCE = 1e-4, 1e-6, 1e-12
# Digits of a probability on the grid, and those of the least one at either end.
DIGITS, LEAST = 30, 22
# Digits of a sum of products of two of them.
CELL = 2 * DIGITS + 8
# So many products of two probabilities take less time than one of long numbers.
FEW = 1 << 20
MARGIN = 1 + 1e-9
ORDERS: tuple[float, ...] = (
    *(1 + 0.01 * 99.0 ** (i / 59) for i in range(60)),
    *range(2, 257),
    *sorted({math.floor(257 * (2**20 / 257) ** (i / 119)) for i in range(119)} | {1 << 20}),
    *(order + 0.5 for order in range(2, 62)),
)
GREATEST_EPSILON = 200.0
_LONG = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def binomial(coins: int, width: int) -> tuple[list[tuple[float, float]], float]:
    """Return the privacy losses, with probabilities, of coins shifted by `width`, and the infinite mass."""
    reach = math.ceil(math.sqrt(LOG_TAIL * coins / 2)) + 1 + width
    low, high = max(0, coins // 2 - reach), min(coins, coins // 2 + reach)
    if width > high - low:
        return [], 1.0
    logs = [0.0]
    for x in range(low, high):
        logs.append(logs[-1] + math.log((coins - x) / (x + 1)))
    top = max(logs)
    whole = top + math.log(math.fsum(math.exp(log - top) for log in logs))
    masses = [math.exp(log - whole) for log in logs]
    finite = [(logs[i] - logs[i - width], masses[i]) for i in range(width, len(logs))]
    return finite, TAIL + math.fsum(masses[:width])


def binomial_delta(coins: int, width: int, epsilon: float) -> float:
    """Return delta at epsilon of a sum of fair coins that is shifted by `width`, rounded up."""
    finite, infinite = _binomial(coins, width)
    shown = math.fsum(mass * -math.expm1(epsilon - loss) for loss, mass in finite if loss > epsilon)
    return min(1.0, (shown + infinite) * MARGIN)


# Of few, which are asked for again at once: a search looks at many, each of which may have megabytes.
_binomial = lru_cache(4)(binomial)


class Grid:
    """Distribution of privacy loss on a grid; probabilities are integers, in units of 10^-DIGITS."""

    def __init__(self, first: int = 0, masses: list[int] | None = None, finite: float = 1.0) -> None:
        self.first, self.masses, self.finite = first, masses or [10**DIGITS], finite

    @classmethod
    def of(cls, losses: Iterable[tuple[float, float]], infinite: float) -> Grid:
        """Return the distribution on the grid of (loss, probability) pairs, each loss rounded up."""
        cells: dict[int, float] = {}
        for loss, mass in losses:
            at = math.ceil(loss / STEP + UP)
            cells[at] = cells.get(at, 0.0) + mass
        there = [at for at, mass in cells.items() if mass > 10**-LEAST]
        each = range(min(there), max(there) + 1)
        masses = [int(cells.get(at, 0.0) * (1 + 1e-12) * 10**DIGITS) for at in each]
        return cls(each.start, masses, 1 - infinite)

    @cached_property
    def cells(self) -> list[tuple[int, int]]:
        """Pairs (loss in grid steps, integer probability), without those of probability 0."""
        return [(at, mass) for at, mass in enumerate(self.masses, self.first) if mass]

    @cached_property
    def _number(self) -> decimal.Decimal:
        """The probabilities joined into one long decimal number, CELL digits for each."""
        return decimal.Decimal("".join([f"%0{CELL}d" % mass for mass in self.masses]))

    def then(self, other: Grid) -> Grid:
        """Return the distribution of the sum of two independent losses (their convolution)."""
        if (self.first, self.masses, self.finite) == (0, [10**DIGITS], 1.0):
            # Nothing was lost before.
            return other
        count = len(self.masses) + len(other.masses) - 1
        if len(self.cells) * len(other.cells) <= FEW:
            sums = [0] * count
            for at, mass in self.cells:
                for beside, more in other.cells:
                    sums[at + beside - self.first - other.first] += mass * more
            masses = [total // 10**DIGITS for total in sums]
        else:
            text = str(_LONG.multiply(self._number, other._number)).zfill(CELL * count)
            masses = [int(text[at : at + CELL - DIGITS]) for at in range(0, CELL * count, CELL)]
        # What is nothing at both ends is left out.
        there = [i for i, mass in enumerate(masses) if mass > 10 ** (DIGITS - LEAST)]
        first, last = there[0], there[-1] + 1
        return Grid(self.first + other.first + first, masses[first:last], self.finite * other.finite)

    def times(self, count: int) -> Grid:
        """Return the distribution of the sum of `count` independent losses of this distribution."""
        result, power = Grid(), self
        while count:
            result = result.then(power) if count & 1 else result
            count >>= 1
            power = power.then(power) if count else power
        return result


class Composition:
    """Sum of two independent privacy losses, whose delta is computed without their convolution."""

    def __init__(self, grid: Grid, few: Grid) -> None:
        self._grid, self._few, self._finite = grid, few, grid.finite * few.finite

    @cached_property
    def _tails(self) -> tuple[list[float], list[float]]:
        """For each grid cell, the sums of p and of p e^-(loss above it) over higher cells; 0 last."""
        chances = [mass / 10**DIGITS for mass in reversed(self._grid.masses)]
        less = math.exp(-STEP)
        plain = accumulate(chances, initial=0.0)
        lowered = accumulate(chances, lambda total, chance: total * less + chance, initial=0.0)
        return [*plain][::-1], [*lowered][::-1]

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon: the sum of p (1 - e^(epsilon - loss)) over losses above epsilon."""
        plain, lowered = self._tails
        first, shown = self._grid.first, []
        for at, mass in self._few.cells:
            left = epsilon / STEP - at
            if left < first + len(self._grid.masses) - 1:
                cell = max(math.floor(left) + 1, first)
                above = plain[cell - first] - math.exp((left - cell) * STEP) * lowered[cell - first]
                shown.append(mass / 10**DIGITS * above)
        return min(1.0, 1 - self._finite + math.fsum(shown) + ALLOWANCE)


def renyi_delta(divergence: Callable[[float], float], epsilon: float) -> float:
    """Return delta at epsilon, by Rényi divergences of each order [Canonne, Kamath, Steinke 2020]."""
    least = min(
        (a - 1) * (divergence(a) * MARGIN - epsilon) - math.log(a - 1) + a * math.log1p(-1 / a)
        for a in ORDERS
    )
    return min(1.0, math.exp(min(least, 0.0)) * MARGIN)


def renyi_epsilon(divergence: Callable[[float], float], delta: float) -> float:
    """Return epsilon at delta, by Rényi divergences of each order [Canonne, Kamath, Steinke 2020]."""
    least = min(
        divergence(a) * MARGIN + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)
        for a in ORDERS
    )
    return max(0.0, least * MARGIN)


def pure_delta_of(count: int, whole: float, delta: float, epsilon: float) -> float:
    """Return delta at epsilon of `count` releases, each (whole, delta)-private, on the grid of losses.

    Each has two losses [Kairouz, Oh, Viswanath 2015].
    """
    up, down = (math.ceil(loss / STEP + UP) * STEP for loss in (whole, -whole))
    chances = [math.log1p(-delta) - math.log1p(math.exp(-loss)) for loss in (whole, -whole)]
    shown = -math.expm1(count * math.log1p(-delta)) + ALLOWANCE
    for often in range(count + 1):
        if (loss := often * up + (count - often) * down) > epsilon:
            log = log_choose(count, often) + often * chances[0] + (count - often) * chances[1]
            shown += math.exp(log) * (1 + 1e-12) ** count * -math.expm1(epsilon - loss)
    return min(1.0, shown)


def pure_delta(whole: float, delta: float, epsilon: float) -> float:
    """Return delta at epsilon of one release that is (whole, delta)-private."""
    if whole <= epsilon:
        return delta
    gain = -math.expm1(epsilon - whole) / (1 + math.exp(-whole))
    return min(1.0, (delta + (1 - delta) * gain) * (1 + 1e-12))


def least_epsilon(delta: Callable[[float], float], most: float, greatest: float = math.inf) -> float:
    """Return the least epsilon, to the last digit, at which a falling delta is at most `most`.

    Infinite if it is above `most` at `greatest`.
    """
    if delta(greatest) > most:
        return math.inf
    low, high = 0.0, 1.0
    if delta(low) <= most:
        return low
    while delta(high) > most:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if delta(middle) > most else (low, middle)
    return high
