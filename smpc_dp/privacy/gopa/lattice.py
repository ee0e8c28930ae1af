"""The cost of discrete noise: delta of the lattice mechanism from that of the continuous one, and a check.

All noise is discrete Gaussian on the grid. The view is then within a factor exp(+-log_ratio), at every
point, of a post-processing of the continuous mechanism with sigma_eta^2 less by s^2, s a few grid steps; so

    delta(epsilon) <= exp(log_ratio) delta_gauss(epsilon - 2 log_ratio, mu at sigma_eta^2 - s^2).

Proof in docs/proofs/gopa-plan.md: Poisson summation, and convolution as in Peikert, CRYPTO 2010.
"""

from __future__ import annotations

import math

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import checks_numbers
from smpc_dp.privacy.gaussian import GREATEST_MU, LEAST_DELTA, gaussian_delta

# Each of the two smoothing errors is brought below this where the grid allows it.
_TINY = 1e-18


class Smoothing(msgspec.Struct, frozen=True):
    """Privacy cost of discrete noise on a grid compared with continuous Gaussian noise."""

    step: float
    """The grid step; 0 for continuous noise."""
    s: float
    """Standard deviation by which the independent noise counts less: sigma_eta^2 - s^2."""
    log_ratio: float
    """Natural logarithm of the largest ratio of the two mass functions, either way."""
    log_ratio_zcdp: float
    """The same for the view against the discrete Gaussian of covariance M; enters the zCDP bound."""

    def delta(self, epsilon: float, mu: float) -> float:
        """Return delta at epsilon of the noise on the grid, for mean shift mu; at most 1.

        `mu` is the continuous mechanism's at sigma_eta^2 - s^2.
        """
        left = epsilon - 2 * self.log_ratio
        if left < 0 or mu > GREATEST_MU:
            return 1.0
        return min(1.0, gaussian_delta(left, mu) * math.exp(self.log_ratio))


CONTINUOUS = Smoothing(0.0, 0.0, 0.0, 0.0)


def theta_excess(width: float) -> float:
    """Return a bound on how far a Gaussian summed over a grid is from its integral, rounded up.

    |rho(Z - c)/rho(R) - 1| is at most this, for the Gaussian rho of standard deviation `width`.
    """
    power = 2 * math.pi**2 * width**2
    if power > 700:
        return 1e-300
    if width < 0.1:
        return math.inf
    total, k = 0.0, 1
    while True:
        term = 2 * math.exp(-power * k * k)
        total += term
        if term <= total * 1e-17:
            # The rest is at most a geometric series, which the margin covers many times over.
            return total * (1 + 1e-9)
        k += 1


def smoothing_for(
    *,
    step: float,
    sigma_eta: float,
    sigma_delta: float,
    parties: int,
    edges: int,
    greatest: float,
    length: int,
    s: float | None = None,
) -> Smoothing:
    """Return the privacy cost of GOPA's noise on a grid of this step; ConfigError for a coarse grid.

    Args:
        sigma_eta, sigma_delta: parameters of the discrete Gaussians, in the unit of `step`.
        parties, edges: of the graph of honest parties (at most; the price grows with them).
        greatest: an upper bound on the largest eigenvalue of its Laplacian.
        length: coordinates of a vector.
        s: in the unit of `step`; None: just large enough that its error is negligible.

    Raises:
        ConfigError: the grid is too coarse for this noise.
    """
    if step == 0:
        return CONTINUOUS
    if s is None:
        s = step * math.sqrt((math.log(2 * parties * length) - math.log(_TINY)) / (2 * math.pi**2))
    # Least eigenvalue of the covariance of the edges' noise given the view, in steps squared.
    retained = 1 / (1 / sigma_delta**2 + greatest / sigma_eta**2) / step**2
    first = _power_excess(theta_excess(math.sqrt(retained)), edges * length)
    second = _power_excess(theta_excess(s / step), parties * length)
    if not (s < sigma_eta and first < 0.2 and second < 0.2):
        reason = (
            f"a grid of step {step:g} is too coarse for sigma_eta = {sigma_eta:.4g}: the noise "
            "on it is not close to Gaussian; use a finer precision"
        )
        raise ConfigError.at("precision", reason, ConfigCheck.INFEASIBLE)
    one, two = (math.log1p(e) - math.log1p(-e) for e in (first, second))
    return Smoothing(step, s, (one + two) * (1 + 1e-9), one * (1 + 1e-9))


def _power_excess(excess: float, dimension: int) -> float:
    """Return (1 + excess)^dimension - 1, accurately for small excesses."""
    return math.expm1(min(dimension * math.log1p(excess), 700.0)) if dimension else 0.0


@checks_numbers
def zcdp_delta(epsilon: float, mu: float, log_ratio: float = 0.0) -> float:
    """Return a bound on delta by zero-concentrated DP, independent of the exact one and weaker.

    The view satisfies D_alpha <= alpha mu^2 / 2 + (2 alpha - 1)/(alpha - 1) log_ratio for every alpha > 1,
    mu being at the full sigma_eta^2 or less [Canonne, Kamath, Steinke 2020].
    """
    if mu == 0 and log_ratio == 0:
        return 0.0

    def log_delta(alpha: float) -> float:
        divergence = alpha * mu**2 / 2 + (2 * alpha - 1) / (alpha - 1) * log_ratio
        return (alpha - 1) * (divergence - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)

    # One valley; every alpha gives a bound, so the search needs no proof.
    low, high = 1e-6, 4 * (1 + epsilon / max(mu, 1e-9) ** 2)
    ratio = (math.sqrt(5) - 1) / 2
    left, right = math.log(low), math.log(high)
    for _ in range(120):
        first, second = right - ratio * (right - left), left + ratio * (right - left)
        if log_delta(1 + math.exp(first)) < log_delta(1 + math.exp(second)):
            right = second
        else:
            left = first
    value = log_delta(1 + math.exp((left + right) / 2))
    return min(1.0, max(LEAST_DELTA, math.exp(min(value, 0.0)) * (1 + 1e-9)))
