"""Noise for sums of clipped gradients of records, released several times by one party.

A record's gradient, times a factor, is truncated to a grid of steps 2^-bits within an l2 norm of `bound`
steps. So the sum over records is exact, and two tables that differ in one record have sums at most 2 `bound`
apart. Noise is discrete Gaussian, or gives pure epsilon: K-norm noise for the l2 norm, discrete Laplace noise
for the l1 norm. Proofs: docs/proofs/personalized.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.guarantee import LEAST_DELTA, PrivacyGuarantee
from smpc_dp.privacy.k_norm import k_norm
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian, discrete_laplace

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mechanism = Literal["gaussian", "k-norm", "laplace"]

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
# Scales of an exponential that it exceeds with a probability below 1e-86.
_FAR = 200


@dataclass(frozen=True)
class GradientNoise:
    """Plan and sampler of a party's discrete Gaussian noise on sums of its records' gradients.

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
        """Rho of zero-concentrated DP of all the party's releases together."""
        return self.mu**2 / 2

    @property
    def releases(self) -> int:
        """Number of releases that the noise is planned for."""
        return len(self.variances)

    def draw(self, source: NoiseSource, length: int, release: int) -> Integers:
        """Draw the noise vector of release number `release` (from 0), in grid steps."""
        return discrete_gaussian(source, length, self.variances[release])

    def mean_square(self, length: int, release: int) -> float:
        """Return the mean squared L2 norm of a release's noise, in squared grid steps."""
        return length * float(self.variances[release])

    def far(self, length: int) -> float:
        """Return an L2 norm, in grid steps, that noise exceeds only with negligible probability."""
        return 16 * math.sqrt(max(self.variances, default=Fraction(0)) * length)

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """Privacy guarantee for one record of the party, over all releases."""
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
        """Return all releases together as one event for a privacy ledger."""
        # Not at the top: the accountant loads scipy.
        from smpc_dp.privacy.accountant.events import Event, Gaussian, Line, Pure, Renyi

        claim = self.guarantee
        known = (
            Gaussian(self.mu, CLOSENESS),
            Renyi((Line(0.0, self.rho),), all_orders=True),
            Pure(self.epsilon, self.delta),
        )
        return Event(claim.mechanism, claim.relation, known, unit="record")


@dataclass(frozen=True)
class PureNoise:
    """Plan and sampler of a party's K-norm or Laplace noise on its gradient sums, for pure epsilon-DP.

    Attributes:
        mechanism: "k-norm": `bound` is of the l2 norm; "laplace": of the l1 norm.
        bits, bound: see `GradientNoise`.
        scales: of the noise of each release, in grid steps; a release has epsilon 2 bound/scale.
        epsilon: of all releases together.
    """

    mechanism: Literal["k-norm", "laplace"]
    bits: int
    bound: int
    scales: tuple[int, ...]
    epsilon: float

    @property
    def rho(self) -> float:
        """Rho of zero-concentrated DP of all the party's releases together."""
        # Pure epsilon is epsilon^2/2-zCDP [Bun and Steinke 2016, Proposition 1.4]; rounded up.
        return math.fsum((2 * self.bound / scale) ** 2 / 2 for scale in self.scales) * (1 + 1e-12)

    @property
    def releases(self) -> int:
        """Number of releases that the noise is planned for."""
        return len(self.scales)

    def draw(self, source: NoiseSource, length: int, release: int) -> Integers:
        """Draw the noise vector of release number `release` (from 0), in grid steps."""
        scale = self.scales[release]
        if self.mechanism == "laplace" or length == 1:
            return discrete_laplace(source, length, scale)
        return k_norm(source, length, scale)

    def mean_square(self, length: int, release: int) -> float:
        """Return the mean squared L2 norm of a release's noise, in squared grid steps."""
        each = 2 if self.mechanism == "laplace" else length + 1
        return float(length * each * self.scales[release] ** 2)

    def far(self, length: int) -> float:
        """Return an L2 norm, in grid steps, that noise exceeds only with negligible probability."""
        return float(max(self.scales, default=0)) * (_FAR + 2.0 * length)

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """Privacy guarantee for one record of the party, over all releases."""
        name = "discrete Laplace" if self.mechanism == "laplace" else "K-norm"
        return record_guarantee(
            self.epsilon,
            0.0,
            self.bound,
            norm="l1" if self.mechanism == "laplace" else "l2",
            mechanism=f"{name} noise on at most {self.releases} sums of gradients",
            assumption=_ASSUMPTION,
            proof="simple composition of all releases: docs/proofs/personalized.md",
        )

    def event(self) -> Event:
        """Return all releases together as one event for a privacy ledger."""
        from smpc_dp.privacy.accountant.events import Event, Line, Pure, Renyi

        claim = self.guarantee
        known = (Pure(self.epsilon), Renyi((Line(0.0, self.rho),), all_orders=True))
        return Event(claim.mechanism, claim.relation, known, unit="record")


RecordNoise = GradientNoise | PureNoise


@checks_numbers
def planned_mu(epsilon: float, delta: float) -> float:
    """Return mu of Gaussian DP for a budget, with a margin for noise that is discrete.

    Raises ConfigError for a budget out of range.
    """
    # Not at the top: the accountant loads scipy.

    checks = ArgumentChecks()
    checks.require_budget(epsilon, delta, least=LEAST_DELTA)
    checks.raise_issues()
    return gaussian_mu(epsilon * (1 - _SPARE), delta * (1 - _SPARE))


def record_guarantee(
    epsilon: float,
    delta: float,
    bound: int,
    *,
    mechanism: str,
    assumption: str,
    proof: str,
    norm: Literal["l1", "l2"] = "l2",
) -> PrivacyGuarantee:
    """Return the guarantee for one record whose contribution has a norm of at most `bound` grid steps."""
    return PrivacyGuarantee(
        epsilon=epsilon,
        delta=delta,
        relation="substitution",
        sensitivity={norm: 2.0 * bound},
        unit="grid step",
        protects="record",
        mechanism=mechanism,
        assumption=assumption,
        proof=proof,
    )


@checks_numbers
def plan_gradient_noise(
    epsilon: float, delta: float, shares: Sequence[float], reach: float, bits: int
) -> GradientNoise:
    """Plan Gaussian noise with which all releases are (epsilon, delta)-DP; ConfigError if too large.

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


@checks_numbers
def plan_pure_noise(
    mechanism: Literal["k-norm", "laplace"], epsilon: float, shares: Sequence[float], reach: float, bits: int
) -> PureNoise:
    """Plan Laplace or K-norm noise with which all releases are epsilon-DP; ConfigError if too large.

    Args:
        epsilon: of all releases, for one record.
        shares: of epsilon for each release, above 0; their sum is taken for 1.
        reach, bits: see `plan_gradient_noise`; "laplace": the l1 norm.

    Raises:
        ConfigError: an argument is out of range, or the noise is too large for the grid.
    """
    checks = ArgumentChecks()
    checks.require_budget(epsilon)
    checks.raise_issues()
    bound = math.ceil(Fraction(reach) * Fraction(2) ** bits)
    total = sum(map(Fraction, shares))
    scales = tuple(math.ceil(2 * bound * total / (Fraction(epsilon) * Fraction(one))) for one in shares)
    if max(scales, default=0) > _MOST_DEVIATION:
        reason = f"{epsilon:g} for {len(shares)} releases needs too much noise"
        raise ConfigError.at("epsilon", reason, ConfigCheck.INFEASIBLE)
    return PureNoise(mechanism, bits, bound, scales, epsilon)


@checks_numbers
def plan_record_noise(
    mechanism: Mechanism,
    epsilon: float,
    delta: float | None,
    shares: Sequence[float],
    reach: float,
    bits: int,
) -> RecordNoise:
    """Plan noise by the named mechanism so that all releases keep the budget; only gaussian uses delta."""
    if mechanism == "gaussian":
        return plan_gradient_noise(epsilon, 0.0 if delta is None else delta, shares, reach, bits)
    return plan_pure_noise(mechanism, epsilon, shares, reach, bits)


def grid_bits(reaches: Floats, least: int = 1 << 12) -> int:
    """Return the bits, at least 0, of a grid on which each contribution spans at least `least` steps."""
    return max(0, math.ceil(math.log2(least / float(np.min(reaches)))))


def contributions(
    gradients: Floats, factor: Floats, clip: float, bits: int, order: Literal[1, 2] = 2
) -> Integers:
    """Return each party's sum of clipped, weighted record gradients, as integers of grid steps.

    Args:
        gradients: shape (rows, records, length), zero where there is no record.
        factor: shape (rows,), above 0.
        clip: the norm that a record's gradient is scaled down to.
        order: of the norm.
    """
    parts = np.ldexp(clip_records(gradients, clip, order) * factor[:, None, None], bits)
    # Toward zero: truncation adds nothing to a norm.
    summed: Integers = np.trunc(parts).astype(np.int64).sum(axis=1)
    return summed


def clip_records(gradients: Floats, clip: float, order: Literal[1, 2] = 2) -> Floats:
    """Scale each record's gradient, last axis, down to an L1 or L2 norm of at most `clip`."""
    norms = np.linalg.norm(gradients, ord=order, axis=2, keepdims=True)
    # A little below, so that no rounding lifts a norm over the bound.
    return np.asarray(gradients * (np.minimum(1.0, clip / np.maximum(norms, 1e-300)) * (1 - 1e-9)))
