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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.guarantee import PrivacyGuarantee

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Of a standard deviation in grid steps.
_MOST_DEVIATION = 1 << 38
# Variance, in squared steps, that goes into being a rounded Gaussian: a ripple of 4 is 2.1e-34, in each
# coordinate of each release.
SMOOTHING = 4
CLOSENESS = 1e-15
# Of the budget, for the closeness of all releases of at most 10^18 coordinates.
_SPARE = 1e-9
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
        mu: all releases together are as private as one Gaussian mechanism with means mu deviations apart.
        epsilon, delta: what mu was planned for.
    """

    bits: int
    bound: int
    variances: tuple[Fraction, ...]
    mu: float
    epsilon: float
    delta: float

    @property
    def rho(self) -> float:
        """Rho of zero-concentrated DP, of all releases together."""
        return self.mu**2 / 2

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """What holds for one record of the party, of all releases together."""
        return record_guarantee(
            self.epsilon,
            self.delta,
            self.bound,
            mechanism=f"discrete Gaussian noise on at most {len(self.variances)} sums of gradients",
            assumption=_ASSUMPTION,
            proof=f"{self.mu:.6g}-Gaussian DP and {self.rho:.6g}-zCDP of all releases: "
            "docs/proofs/personalized.md",
        )

    def event(self) -> Event:
        """Return all releases together as one event for a ledger."""
        # Not at the top: the accountant loads scipy.
        from smpc_dp.privacy.accountant.events import Event, Gaussian, Line, Pure, Renyi

        claim = self.guarantee
        known = (
            Gaussian(self.mu, CLOSENESS),
            Renyi((Line(0.0, self.rho),), all_orders=True),
            Pure(self.epsilon, self.delta),
        )
        return Event(claim.mechanism, claim.relation, known, unit="record")


def planned_mu(epsilon: float, delta: float) -> float:
    """Return mu of Gaussian DP for this budget, a little within it: for the closeness of all releases.

    Raises ConfigError for a budget out of range.
    """
    # Not at the top: the accountant loads scipy.
    from smpc_dp.privacy.accountant.compose import LEAST_DELTA

    checks = ArgumentChecks()
    checks.require_budget(epsilon, delta, least=LEAST_DELTA)
    checks.raise_issues()
    return gaussian_mu(epsilon * (1 - _SPARE), delta * (1 - _SPARE))


def record_guarantee(
    epsilon: float, delta: float, bound: int, *, mechanism: str, assumption: str, proof: str
) -> PrivacyGuarantee:
    """Return the guarantee of one record whose contribution is at most `bound` grid steps in the l2 norm."""
    return PrivacyGuarantee(
        epsilon=epsilon,
        delta=delta,
        relation="substitution",
        sensitivity={"l2": 2.0 * bound},
        unit="grid step",
        protects="record",
        mechanism=mechanism,
        assumption=assumption,
        proof=proof,
    )


def plan_gradient_noise(
    epsilon: float, delta: float, shares: Sequence[float], reach: float, bits: int
) -> GradientNoise:
    """Return the noise of one party's releases.

    Args:
        epsilon, delta: of all releases, for one record.
        shares: of the budget mu^2 for each release, above 0; their sum is taken for 1.
        reach: the l2 norm of a record's contribution, in the caller's unit.
        bits: of the grid; see `grid_bits`.

    Raises:
        ConfigError: an argument is out of range, or the noise is too large for the grid.
    """
    bound = math.ceil(Fraction(reach) * Fraction(2) ** bits)
    mu, total = planned_mu(epsilon, delta), math.fsum(shares)
    if not mu > 0:
        reason = f"{epsilon:g} at delta {delta:g} leaves no room"
        raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
    # (2 B)^2 / (variance - smoothing) = mu^2 share, rounded up: a sampler takes denominators of bounded size.
    square = Fraction(mu) ** 2
    variances = tuple(
        Fraction(math.ceil(4 * bound**2 * Fraction(total) / (square * Fraction(one))) + SMOOTHING)
        for one in shares
    )
    if max(variances, default=Fraction(0)) > _MOST_DEVIATION**2:
        raise ConfigError.at(
            "epsilon", f"{epsilon:g} for {len(shares)} releases needs too much noise", ConfigCheck.INFEASIBLE
        )
    return GradientNoise(bits, bound, variances, mu, epsilon, delta)


def grid_bits(reaches: Floats, least: int = 1 << 12) -> int:
    """Return the bits of a grid on which each of these contributions has at least `least` steps."""
    return max(0, math.ceil(math.log2(least / float(np.min(reaches)))))


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
