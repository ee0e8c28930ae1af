"""The privacy of verifiable GOPA: independent noise of fair coin flips, pairwise noise as always.

On a complete graph of n honest users with b bits each, a user's change by R steps in each of d coordinates
shows no more than these two together (docs/verifiable.md has the proof):

    Binomial(n b, 1/2) moved by R, d times
    a Gaussian mechanism with mu^2 = 2 d R^2 / (n sigma_delta^2 - s^2)

The first is what the total shows. Given the total, moving the bits that make up for the change leaves a
difference of at most R (e_u - e_v) in each coordinate to the pairwise noise, whose effective resistance on
the complete graph is 2/n. The grid costs s^2 and the factor `closeness`.
"""

from __future__ import annotations

import functools
import math

import msgspec

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Gaussian, Shift
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.gopa.lattice import power_excess, theta_excess
from smpc_dp.privacy.laws import BinomialLaw

# The pairwise noise takes this part of what mu^2 may be.
PAIR_SHARE = 0.04
# bits / 4 is the variance, which is an integer.
BITS_STEP = 4
_TINY = 1e-18


class BinomialNoise(msgspec.Struct, frozen=True):
    """Bits of each user and coordinate (variance bits / 4), and sigma_delta^2, in squared grid steps.

    `epsilon` is reached at `delta`; `curator_deviation` is that of a trusted curator's Gaussian noise on the
    sum at the same epsilon and delta, in steps.
    """

    bits: int
    pair_variance: int
    epsilon: float
    delta: float
    curator_deviation: float


def events(honest: int, width: int, length: int, bits: int, pair_variance: int) -> tuple[Event, Event]:
    """Return what the total and what the pairwise noise show; `width` is R in grid steps, of each coordinate.

    Raises ConfigError if the pairwise noise is too small for the grid.
    """
    users = honest
    # s^2 of the lattice of sum zero, whose Gram matrix is below n times the unit matrix.
    s_squared = users * (math.log(2 * users * length) - math.log(_TINY)) / (2 * math.pi**2)
    # Cycles of the complete graph: Z^E' with a form between 1 and n times the unit one.
    cycles = (users - 1) * (users - 2) // 2 * length
    first = power_excess(theta_excess(math.sqrt(pair_variance / users)), cycles)
    second = power_excess(theta_excess(math.sqrt(s_squared / users)), (users - 1) * length)
    left = users * pair_variance - s_squared
    if not (first < 0.2 and second < 0.2 and left > 0):
        raise ConfigError(
            [Fault("precision", "the grid is too coarse for the pairwise noise: make it finer")]
        )
    closeness = sum(math.log1p(e) - math.log1p(-e) for e in (first, second)) * (1 + 1e-9)
    mu = width * math.sqrt(2 * length / left) * (1 + 1e-9)
    total = Shift(BinomialLaw(bits), honest, width, length, length)
    return (
        Event("GOPA, the total", "substitution", (total,)),
        Event("GOPA, what pairwise noise hides", "substitution", (Gaussian(mu, closeness),)),
    )


def delta_of(honest: int, width: int, length: int, bits: int, pair_variance: int, epsilon: float) -> float:
    """Return the least delta that is proven at epsilon, rounded up."""
    return Composition(events(honest, width, length, bits, pair_variance)).delta(epsilon)


def epsilon_of(honest: int, width: int, length: int, bits: int, pair_variance: int, delta: float) -> float:
    """Return the least epsilon that is proven at delta, rounded up."""
    return Composition(events(honest, width, length, bits, pair_variance)).epsilon(delta)


@functools.lru_cache(maxsize=64)
def plan_binomial(
    honest: int, width: int, length: int, epsilon: float, delta: float, most_bits: int
) -> BinomialNoise:
    """Return the fewest bits, to about 2 %, that give (epsilon, delta).

    Args:
        honest: users whose noise is counted on, at least 2.
        width: R, the steps of the grid in the range of a coordinate, at least 1.
        length: coordinates.
        most_bits: of each user and coordinate.

    Raises:
        ConfigError: it takes more than `most_bits`.
    """
    mu = gaussian_mu(epsilon, delta)
    diameter = width * math.sqrt(length)
    pair_variance = max(1, math.ceil(2 * diameter**2 / (PAIR_SHARE * mu**2 * honest)))
    while True:
        try:
            events(honest, width, length, BITS_STEP, pair_variance)
            break
        except ConfigError:
            # Too little for the grid: more does not show in the average.
            pair_variance *= 2
    least = 4 * (diameter / mu) ** 2 / honest
    bits = max(BITS_STEP, math.ceil(least / BITS_STEP) * BITS_STEP)
    while bits <= most_bits:
        if delta_of(honest, width, length, bits, pair_variance, epsilon) <= delta:
            return BinomialNoise(bits, pair_variance, epsilon, delta, diameter / mu)
        bits += max(BITS_STEP, math.ceil(bits / 50 / BITS_STEP) * BITS_STEP)
    raise ConfigError(
        [
            Fault(
                "precision",
                f"this privacy takes over {bits - BITS_STEP} bits of noise for each coordinate, at most "
                f"{most_bits} can be proven: make the grid coarser, or epsilon larger",
            )
        ]
    )
