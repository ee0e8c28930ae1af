"""Discrete Gaussian noise of a Boolean circuit that inverts a table of the distribution function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.circuit_noise import LOOKUP_BITS, Coin, Integers, Noise, Randomiser, Raw, Source
from smpc_dp.privacy.distributions import DiscreteGaussianDistribution
from smpc_dp.privacy.search import narrowed

MAX_CUTS = 512
# Beyond, the circuit's distance from the ideal distribution would count: e^20 2^-63 is 5e-11.
GREATEST_EPSILON = 20.0
MAX_EVALUATIONS = 64
# Magnitudes whose chance is below 2**-63 together are left out: that far in standard deviations.
REACH = 9.4
# Above the rounding of sums in floating point.
MARGIN = 1e-9


@dataclass(frozen=True)
class TableGaussian(Noise):
    """Discrete Gaussian noise that a garbled circuit draws from a table of magnitudes, with a fair sign.

    The guarantee is for all `evaluations` of one party together: (epsilon, delta).
    """

    steps: int
    evaluations: int
    epsilon: float
    delta: float
    sigma: float
    cuts: tuple[int, ...]
    """The magnitude is how many of these the number reaches."""

    name = "discrete Gaussian"

    @classmethod
    def design(cls, steps: int, epsilon: float, delta: float, evaluations: int) -> TableGaussian:
        """Return the least noise that makes all evaluations (epsilon, delta)-DP; ConfigError if none.

        Raises ConfigError for arguments out of range, and where the table would be too long: then it says
        which is the smallest epsilon that works.
        """
        checks = ArgumentChecks()
        checks.require_positive("epsilon", epsilon, GREATEST_EPSILON, ", for Gaussian noise")
        # Written so that NaN fails.
        if not 1e-12 <= delta < 1:
            checks.add_issue("delta", f"{delta!r} is not a number in [1e-12, 1)", ConfigCheck.RANGE)
        if not 1 <= evaluations <= MAX_EVALUATIONS:
            checks.add_issue("partners", f"{evaluations} is not 1 to {MAX_EVALUATIONS}", ConfigCheck.RANGE)
        checks.raise_issues()
        high = MAX_CUTS / REACH
        if total_delta(high, steps, epsilon, evaluations) > delta:
            works = "none works"
            if total_delta(high, steps, GREATEST_EPSILON, evaluations) <= delta:
                _, least = narrowed(
                    lambda e: total_delta(high, steps, e, evaluations) <= delta,
                    epsilon,
                    GREATEST_EPSILON,
                    1e-6,
                )
                works = f"the smallest that works is {least:.3g}"
            reason = f"{epsilon:g} is too small for {steps} grid steps and Gaussian noise; {works}"
            raise ConfigError.at(
                "epsilon", f"{reason}: take a coarser grid, or Laplace noise", ConfigCheck.TOO_LARGE
            )

        def enough(sigma: float) -> bool:
            return total_delta(sigma, steps, epsilon, evaluations) <= delta

        sigma = 0.1 if enough(0.1) else narrowed(enough, 0.1, high, 1e-6)[1]
        # Rounded up, so that small differences in floating point make no other circuit.
        sigma = math.ceil(sigma * 1000 + 1e-3) / 1000
        return cls(steps, evaluations, epsilon, delta, sigma, _table(sigma))

    @property
    def randomiser(self) -> Randomiser:
        """The circuit's description of this noise: biased coins of the table, and output bits."""
        cuts = tuple(Coin(cut, LOOKUP_BITS) for cut in self.cuts)
        # An output is kernel integer + noise + greatest magnitude, which is not negative.
        return Randomiser("gaussian", cuts, (self.steps + 2 * len(cuts)).bit_length())

    @property
    def variance(self) -> float:
        """Variance of the noise, in squared grid steps."""
        edges = np.array([0, *self.cuts, 1 << LOOKUP_BITS], dtype=np.float64)
        return float(np.sum(np.diff(edges) / 2.0**LOOKUP_BITS * np.arange(len(edges) - 1) ** 2))

    def draw(self, integers: Integers, source: Source) -> Raw:
        """Return integers with this noise, drawn in Python as the circuit would output them."""
        words = np.frombuffer(source.bytes(8 * len(integers)), "<u8")
        magnitude = np.searchsorted(np.array(self.cuts, np.uint64), words >> np.uint64(1), side="right")
        noise = np.where(words & np.uint64(1), -magnitude, magnitude)
        return (integers + noise + len(self.cuts)).astype(np.uint64)

    def read(self, raw: Raw) -> NDArray[np.float64]:
        """Convert circuit outputs to noisy integers, without bias."""
        return raw.astype(np.float64) - len(self.cuts)

    def terms(self) -> dict[str, object]:
        """Return the noise's parameters as JSON data, which two parties compare before a run."""
        return {"noise": "gaussian", "cuts": list(self.cuts)}


def total_delta(sigma: float, steps: int, epsilon: float, evaluations: int) -> float:
    """Return an upper bound on delta at `epsilon` of evaluations whose integers each move by `steps`.

    With ideal noise the loss depends on its sum alone, whose distribution is a convolution. The circuit's
    distribution differs from that in total variation, once for each evaluation on either side.
    """
    reach = math.ceil(REACH * sigma) + 1
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    one = np.exp(-(x**2) / (2 * sigma**2))
    one /= one.sum()
    distribution = np.ones(1)
    for number in range(1, evaluations + 1):
        # What is cut off is below 2^-62 each time: sums are sub-Gaussian with sigma sqrt(number).
        distribution = _middle(
            np.convolve(distribution, one), math.ceil(REACH * sigma * math.sqrt(number)) + 1
        )
    total = np.arange(len(distribution), dtype=np.float64) - len(distribution) // 2
    loss = (evaluations * steps**2 - 2 * steps * total) / (2 * sigma**2)
    gain = loss > epsilon
    ideal = float(np.sum(distribution[gain] * -np.expm1(epsilon - loss[gain]))) * (1 + MARGIN)
    variation = (reach + 4) * 2.0**-LOOKUP_BITS
    return ideal + evaluations * (1 + math.exp(min(epsilon, 700))) * variation + 1e-15


def _middle(distribution: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    """Return the part of a symmetric distribution within `reach` of its middle entry."""
    cut = max(0, len(distribution) // 2 - reach)
    return distribution[cut : len(distribution) - cut]


def _table(sigma: float) -> tuple[int, ...]:
    """Return cumulative probabilities of the noise's magnitude at 0, 1, ..., in units of 2**-63."""
    with localcontext(Context(prec=60)):
        bell = DiscreteGaussianDistribution(Fraction(sigma) ** 2).weights(math.ceil(REACH * sigma))
        masses = [bell[0], *(2 * mass for mass in bell[1:])]
        whole = sum(masses)
        cuts, reached = [], Decimal(0)
        for mass in masses[:-1]:
            reached += mass
            cut = int((reached / whole * (1 << LOOKUP_BITS)).to_integral_value())
            if cut < 1 << LOOKUP_BITS:
                cuts.append(cut)
    return tuple(cuts)
