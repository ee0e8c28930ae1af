"""Discrete Gaussian noise of any width, drawn by servers on shares, for vectors of bounded L2 norm.

A draw is the sum of k^j D_j over j < J, each D_j from one table of 512 places: a uniform place, and whether a
uniform number is below the place's threshold (Walker's alias method). So wide noise costs a few short draws;
docs/proofs/servers.md shows that the sum is as good as a discrete Gaussian.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Context, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.circuit_noise import Source
from smpc_dp.privacy.distributions import DiscreteGaussianDistribution

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import AnyDescription, Event
    from smpc_dp.privacy.guarantee import Relation
    from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity

SLOT_BITS, NUMBER_BITS = 9, 87
"""Fair bits of a draw: its place in the table, and the number held against the threshold."""
SLOTS = 1 << SLOT_BITS
WHOLE_BITS = SLOT_BITS + NUMBER_BITS
GREATEST_EPSILON = 20.0
"""Of all releases together: up to it the tables' distance from the ideal distribution is counted."""
DISTANCE = 2.0**-85
"""Total variation between a table and the discrete Gaussian, at most."""
# Greatest variance of a table: beyond 255 steps there is less than 2^-86 of the mass.
MOST_VARIANCE = 500
# A ripple of it is 4e-15.
_SMOOTH = Fraction(7, 4)
MOST_LEVELS = 8
_VARIANCE_STEPS = 1 << 10


@dataclass(frozen=True)
class WideGaussian:
    """Nearly discrete Gaussian noise that servers draw on secret shares, as a sum of scaled table draws.

    Attributes:
        dimension: coordinates of a vector, each with a draw of its own.
        l1, l2, linf: bounds on the distance of two sums of neighbouring inputs; in grid steps.
        variance_0: of each D_j, as the parameter of the discrete Gaussian.
        relation: which inputs are neighbours.
    """

    dimension: int
    l1: float
    l2: float
    linf: float
    variance_0: Fraction
    factor: int
    levels: int
    relation: Relation = "substitution"

    name = "discrete Gaussian"

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, bounds: Sensitivity) -> WideGaussian:
        """Return about the least noise for an (epsilon, delta)-DP release by a curator; or ConfigError.

        Raises ConfigError for an invalid budget, and for noise wider than the tables allow.
        """
        from smpc_dp.privacy.accountant.compose import Composition
        from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian

        variance = DiscreteGaussian.calibrate(epsilon, delta, bounds).variance
        # Ripples and tables cost a little, and so does what the accountant rounds.
        for more in (Fraction(0), *(Fraction(2**trial, 1 << 20) for trial in range(20))):
            shape = _levels(variance * (1 + more))
            made = cls(bounds.dimension, bounds.l1, bounds.l2, bounds.linf, *shape, bounds.relation)
            if Composition([made.event()]).epsilon(delta) <= epsilon:
                return made
        reason = f"no noise on shares makes a release ({epsilon:g}, {delta:g})-differentially private"
        raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)

    @property
    def parameter(self) -> Fraction:
        """Variance parameter of the discrete Gaussian that this noise is close to, in squared steps."""
        return self.variance_0 * sum(powers(self.factor**2, self.levels))

    @property
    def variance(self) -> float:
        """Variance of one noise draw, in squared grid steps."""
        return float(self.parameter)

    @property
    def sensitivity(self) -> float:
        """Greatest L2 distance between the sums of neighbouring inputs, in grid steps."""
        return self.l2

    @property
    def reach(self) -> int:
        """Upper bound on the absolute value of a noise draw."""
        return (SLOTS // 2) * sum(powers(self.factor, self.levels))

    @property
    def closeness(self) -> float:
        """Bound on the range of the log ratio of this noise's masses to the discrete Gaussian's.

        Adding D to k times what there is folds two Gaussians: one ripple of v0 v / (v0 + k^2 v).
        """
        from smpc_dp.privacy.mechanisms.smoothing import ripple

        first, near = float(self.variance_0), 0.0
        there = first
        for _ in range(1, self.levels):
            whole = first + self.factor**2 * there
            near += ripple(first * there / whole * (1 - 1e-12))
            there = whole
        return near * (1 + 1e-12)

    @functools.cached_property
    def _event(self) -> Event:
        """This release as an event for a privacy ledger, computed once."""
        from smpc_dp.privacy.accountant.events import Event
        from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
        from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity

        bounds = Sensitivity.on_integers(
            self.relation, dimension=self.dimension, l1=self.l1, l2=self.l2, linf=self.linf
        )
        ideal = DiscreteGaussian(bounds, self.parameter)
        near = self.closeness * bounds.coordinates
        known = tuple(_loosened(one, near) for one in ideal.descriptions(1))
        # P(S) <= e^eps Q(S) + delta for the ideal distributions costs (1 + e^eps) times their distance, of
        # all draws.
        slack = (1 + math.exp(GREATEST_EPSILON)) * DISTANCE * self.dimension * self.levels
        return Event(self.describe(), self.relation, known, slack)

    def event(self) -> Event:
        """Return one release with this noise as an accountant's event, for a total epsilon up to 20."""
        return self._event

    def describe(self) -> str:
        """Return words that name the noise and its parameter."""
        return f"discrete Gaussian noise on shares, of variance parameter {float(self.parameter):.10g}"

    def draws(self, source: Source, count: int) -> NDArray[np.int64]:
        """Return `count` noise values, drawn from random bytes in the way the servers draw them."""
        _, thresholds, aliases = table_of(self.variance_0)
        low_bits = NUMBER_BITS - 63
        high = np.array([cut >> low_bits for cut in thresholds], dtype=np.uint64)
        low = np.array([cut & ((1 << low_bits) - 1) for cut in thresholds], dtype=np.uint64)
        words = np.frombuffer(source.bytes(16 * count * self.levels), "<u8").reshape(-1, 2)
        index = (words[:, 0] & np.uint64(SLOTS - 1)).astype(np.intp)
        lows = words[:, 0] >> np.uint64(64 - low_bits)
        highs = words[:, 1] >> np.uint64(1)
        retained = (highs < high[index]) | ((highs == high[index]) & (lows < low[index]))
        drawn = np.where(retained, index, np.array(aliases)[index]) - SLOTS // 2
        weights = np.array(powers(self.factor, self.levels), dtype=np.int64)
        return np.asarray(drawn.reshape(count, self.levels) @ weights)

    def draw(self, integer: int, source: Source) -> int:
        """Return an integer plus one noise value: what the servers would reveal."""
        return integer + int(self.draws(source, 1)[0])

    def read(self, result: int) -> Fraction:
        """Convert a revealed integer to the estimate; here unchanged, since the noise has mean 0."""
        return Fraction(result)


def powers(base: int, count: int) -> list[int]:
    """Return the first `count` powers of `base`: [1, base, ..., base^(count - 1)]."""
    result = [1]
    while len(result) < count:
        result.append(result[-1] * base)
    return result


@functools.lru_cache(maxsize=64)
def table_of(variance: Fraction) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return (masses, thresholds, aliases) of the alias table that draws a discrete Gaussian.

    Masses are those of the discrete Gaussian rounded down; what is left over goes to 0.
    """
    middle = SLOTS // 2
    with localcontext(Context(prec=60)):
        bell = DiscreteGaussianDistribution(variance).weights(middle - 1)
        # The tail is below 2^-86 of the whole: without it the masses are not too small.
        whole = bell[0] + 2 * sum(bell[1:])
        share = [int(mass / whole * (1 << WHOLE_BITS)) for mass in bell]
    masses = [0, *reversed(share[1:]), 0, *share[1:]]
    masses[middle] = (1 << WHOLE_BITS) - sum(masses)
    return (tuple(masses), *_aliases(masses))


def _aliases(masses: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return thresholds and aliases of an alias table (Walker's method) for integer masses."""
    full = 1 << NUMBER_BITS
    left = list(masses)
    thresholds, aliases = [0] * SLOTS, list(range(SLOTS))
    short = [index for index in range(SLOTS) if left[index] < full]
    rich = [index for index in range(SLOTS) if left[index] > full]
    while short:
        index, giver = short.pop(), rich[-1]
        thresholds[index], aliases[index] = left[index], giver
        left[giver] -= full - left[index]
        if left[giver] <= full:
            rich.pop()
            if left[giver] < full:
                short.append(giver)
    # A place that is exactly full is its own alias.
    return tuple(thresholds), tuple(aliases)


def _levels(variance: Fraction) -> tuple[Fraction, int, int]:
    """Return (table variance, factor, levels) with the fewest levels for this variance, or ConfigError."""
    for levels in range(1, MOST_LEVELS + 1):
        for factor in range(17, 1, -1) if levels > 1 else (1,):
            scale = sum(powers(factor**2, levels))
            first = Fraction(math.ceil(variance * _VARIANCE_STEPS / scale), _VARIANCE_STEPS)
            smooth = levels == 1 or first >= _SMOOTH * (factor**2 + 1)
            if smooth and first <= MOST_VARIANCE:
                return first, factor, levels
    reason = f"noise of variance {float(variance):.3g} is wider than tables on shares are made for"
    raise ConfigError.at("epsilon", reason, ConfigCheck.TOO_LARGE)


def _loosened(known: AnyDescription, near: float) -> AnyDescription:
    """Return a bound weakened for noise whose log mass ratios to the described one span `near`."""
    from smpc_dp.privacy.accountant.events import Gaussian, Line, Renyi, Shift

    match known:
        case Gaussian() | Shift():
            return msgspec.structs.replace(known, closeness=known.closeness + near)
        case Renyi():
            # alpha / (alpha - 1) is 2 at most at integer orders.
            return Renyi(tuple(Line(line.offset + 2 * near, line.slope) for line in known.lines))
    raise ConfigError.at(
        "noise", f"nothing is known of {type(known).__name__} up to a ripple", ConfigCheck.UNSUPPORTED
    )
