"""Distance of discrete Gaussians and their sums from Gaussians: the constants, with their derivation.

Write g_v(x) = exp(-x^2 / 2v). For any real a and s > 0, Poisson summation gives
    sum over integers y of g_s(y - a) = sqrt(2 pi s) (1 + 2 sum_{j>=1} q^(j^2) cos(2 pi j a)),
    q = exp(-2 pi^2 s),
which lies between theta_4(q) and theta_3(q) times sqrt(2 pi s). `ripple(s)` is log(theta_3 / theta_4), the
range of the logarithm of that sum over all a. docs/proofs/accounting.md derives from it both uses below.
"""

from __future__ import annotations

import math


def ripple(s: float) -> float:
    """Return the range of the log ratio of a Gaussian of variance s summed over shifted grids, rounded up."""
    q = math.exp(-2 * math.pi**2 * s)
    # theta_3 = 1 + 2 (q + q^4 + ...), theta_4 = 1 - 2 (q - q^4 + ...) >= 1 - 2q
    if q > 0.25:
        return math.inf
    above = 2 * (q + q**4 / (1 - q))
    return (math.log1p(above) - math.log1p(-2 * q)) * (1 + 1e-12)


def sum_ripple(variance: float, shares: int) -> float:
    """Return the range of log mass ratios of a sum of discrete Gaussians to one discrete Gaussian.

    The sum is of `shares` discrete Gaussians, the single one has their summed variance. Adding one
    share to k of them folds g_(k variance) with g_variance: one ripple of s = variance k / (k + 1).
    """
    # s grows with k: bound the long tail of equal terms by the term where we stop
    exact = min(shares - 1, 1000)
    total = math.fsum(ripple(variance * k / (k + 1)) for k in range(1, exact + 1))
    if shares - 1 > exact:
        total += (shares - 1 - exact) * ripple(variance * exact / (exact + 1))
    return total * (1 + 1e-12)


def smoothing_variance(coordinates: int) -> float:
    """Return the variance at which a discrete Gaussian's log deviations sum to 1e-9 over all coordinates."""
    return math.log(4 * coordinates / 1e-9) / (2 * math.pi**2)


def kairouz_liu_steinke_zcdp(*, variance: float, shares: int, dimension: int, l1: float, l2: float) -> float:
    """Return rho of zCDP for a sum with `shares` discrete Gaussian noises; infinite for a variance below 1/4.

    [Kairouz, Liu, Steinke 2021, Proposition 14: the two bounds that are zCDP]
    """
    if variance < 0.25:
        return math.inf
    exact = min(shares - 1, 1000)
    tau = math.fsum(math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, exact + 1))
    if shares - 1 > exact:
        tau += (shares - 1 - exact) * math.exp(-2 * math.pi**2 * variance * exact / (exact + 1))
    tau *= 10
    deviation = math.sqrt(shares * variance)
    one, two = l1 / deviation, l2 / deviation
    spread = two**2 + 2 * one * tau + tau**2 * dimension
    added = (two + tau * math.sqrt(dimension)) ** 2
    return min(spread, added) / 2 * (1 + 1e-12)
