"""Noise for sums of clipped gradients of records, released several times by one party.

A record's gradient, times a factor, is truncated to a grid of steps 2^-bits within an l2 norm of `bound`
steps. So the sum over records is exact, and two tables that differ in one record have sums at most 2 `bound`
apart. Proofs: docs/proofs/personalized.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.guarantee import PrivacyGuarantee

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Grid steps in the contribution of one record, at least.
_FINE = 1 << 12
# Of a standard deviation in grid steps.
_MOST_DEVIATION = 1 << 38
_ASSUMPTION = (
    "the party follows the protocol and draws its noise honestly; others may see all messages of all "
    "parties, and know all records but one; how many records each party has is public"
)


@dataclass(frozen=True)
class GradientNoise:
    """Discrete Gaussian noise on the sums that one party releases.

    Attributes:
        bits: the grid has steps of 2^-bits.
        bound: B, the l2 norm of a record's contribution in grid steps.
        variances: of the noise of each release, in squared grid steps.
        rho: of zero-concentrated DP, of all releases together.
        epsilon, delta: what rho was planned for.
    """

    bits: int
    bound: int
    variances: tuple[Fraction, ...]
    rho: float
    epsilon: float
    delta: float

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """What holds for one record of the party, of all releases together."""
        return PrivacyGuarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            relation="substitution",
            sensitivity={"l2": 2.0 * self.bound},
            unit="grid step",
            protects="record",
            mechanism=f"discrete Gaussian noise on {len(self.variances)} sums of gradients",
            assumption=_ASSUMPTION,
            proof=f"{self.rho:.6g}-zCDP [Canonne, Kamath, Steinke 2020, Theorem 4], "
            "converted by Rényi divergences",
        )


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return a rho whose zero-concentrated DP gives (epsilon, delta), rounded down; raise ConfigError."""
    # Not at the top: the accountant loads scipy.
    from smpc_dp.privacy.accountant.compose import LEAST_DELTA, Composition
    from smpc_dp.privacy.accountant.events import Event, Line, Renyi

    result = ArgumentChecks()
    result.require_budget(epsilon, delta, least=LEAST_DELTA)
    result.raise_issues()

    def cost(rho: float) -> float:
        return Composition(
            [Event("zcdp", "substitution", (Renyi((Line(0.0, rho),), all_orders=True),))]
        ).epsilon(delta)

    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    if not low > 0:
        raise ConfigError.at(
            "epsilon", f"{epsilon:g} at delta {delta:g} leaves no room", ConfigCheck.INFEASIBLE
        )
    return low


def plan_gradient_noise(
    epsilon: float, delta: float, shares: Sequence[float], reach: float, bits: int
) -> GradientNoise:
    """Return the noise of one party's releases.

    Args:
        epsilon, delta: of all releases, for one record.
        shares: of the budget rho for each release, above 0; their sum is taken for 1.
        reach: the l2 norm of a record's contribution, in the caller's unit.
        bits: of the grid; see `grid_bits`.

    Raises:
        ConfigError: an argument is out of range, or the noise is too large for the grid.
    """
    bound = math.ceil(Fraction(reach) * Fraction(2) ** bits)
    rho, total = zcdp_rho(epsilon, delta), math.fsum(shares)
    # (2 B)^2 / (2 variance) = rho share
    variances = tuple(
        Fraction(2 * bound**2) * Fraction(total) / (Fraction(rho) * Fraction(one)) for one in shares
    )
    # Rounded up: a sampler takes denominators of bounded size.
    variances = tuple(Fraction(math.ceil(variance)) for variance in variances)
    if max(variances, default=Fraction(0)) > _MOST_DEVIATION**2:
        raise ConfigError.at(
            "epsilon", f"{epsilon:g} for {len(shares)} releases needs too much noise", ConfigCheck.INFEASIBLE
        )
    return GradientNoise(bits, bound, variances, rho, epsilon, delta)


def grid_bits(reaches: Floats) -> int:
    """Return the bits of a grid on which each of these contributions has at least 2^12 steps."""
    return max(0, math.ceil(math.log2(_FINE / float(np.min(reaches)))))


def contributions(gradients: Floats, factor: Floats, clip: float, bits: int) -> Integers:
    """Return each party's sum of its records' contributions, in grid steps.

    Args:
        gradients: shape (rows, records, length), zero where there is no record.
        factor: shape (rows,), above 0.
        clip: the l2 norm that a record's gradient is scaled down to.
    """
    norms = np.linalg.norm(gradients, axis=2, keepdims=True)
    # A little below, so that no rounding lifts a norm over the bound.
    scale = np.minimum(1.0, clip / np.maximum(norms, 1e-300)) * (1 - 1e-9)
    parts = np.ldexp(gradients * scale * factor[:, None, None], bits)
    # Toward zero: truncation adds nothing to a norm.
    summed: Integers = np.trunc(parts).astype(np.int64).sum(axis=1)
    return summed
