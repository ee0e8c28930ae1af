"""Theorem 4.1 and Corollary 4.1 of Bellet's habilitation thesis (2021), as printed, for values in [0, 1].

For the domain [lo, hi] the noise is in units of hi - lo. `n_honest` is n_H = rho n; logarithms are natural.
"""

from __future__ import annotations

import math

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue


class TheoremGuarantee(msgspec.Struct, frozen=True):
    """Guarantee of a paper's Theorem 4.1: GOPA on a random graph is (epsilon, delta)-DP."""

    theta: float
    delta: float
    """3 times the least delta that satisfies its conditions."""


def spread(n_honest: int, rho: float, k: int) -> float:
    """Return the pairwise part of Theorem 4.1's theta on a random k-out graph; ConfigError for small k.

    1/(floor((k-1) rho/3) - 1) + (12 + 6 ln n_H)/n_H; raises ConfigError if the first term has no sense.
    """
    below = math.floor((k - 1) * rho / 3 + 1e-9) - 1
    if below < 1:
        reason = f"condition floor((k - 1) rho/3) > 1 of Theorem 4.1 fails for k = {k}, rho = {rho:g}"
        raise ConfigError.at("k", reason, ConfigCheck.INFEASIBLE)
    return 1 / below + (12 + 6 * math.log(n_honest)) / n_honest


def theta(n_honest: int, rho: float, k: int, sigma_eta: float, sigma_delta: float) -> float:
    """Return theta of GOPA's Theorem 4.1, on which its privacy conditions rest; smaller is more private."""
    return 1 / (n_honest * sigma_eta**2) + spread(n_honest, rho, k) / sigma_delta**2


def smallest_k(n_honest: int, rho: float, delta: float) -> int:
    """Return the least number of drawn neighbours that GOPA's Theorem 4.1 admits for total `delta`."""
    third = delta / 3
    required = (
        4 * math.log(2 * n_honest / (3 * third)),
        6 * math.log(n_honest / 3),
        1.5 + 2.25 * math.log(2 * math.e / third),
    )
    return math.ceil(max(required) / rho)


def corollary_kappa(curator_delta: float, delta: float) -> float:
    """Return kappa of Corollary 4.1 that turns a curator's delta into the asked one, or ConfigError."""
    share = math.log(delta / 3.75) / math.log(curator_delta / 1.25)
    if not 0 < share < 1:
        reason = f"Corollary 4.1 needs curator_delta < delta/3, is {curator_delta:g} for {delta:g}"
        raise ConfigError.at("delta", reason, ConfigCheck.INFEASIBLE)
    return share / (1 - share)


def corollary_sigma_eta(parties: int, epsilon: float, curator_delta: float) -> float:
    """Return sigma of each party's own noise by GOPA's Corollary 4.1; `parties`: the honest ones.

    `parties` is n_H.
    """
    return math.sqrt(2 * math.log(1.25 / curator_delta) / parties) / epsilon


def corollary_sigma_delta(n_honest: int, rho: float, k: int, sigma_eta: float, kappa: float) -> float:
    """Return the pairwise noise by GOPA's Corollary 4.1 for this many honest parties."""
    return sigma_eta * math.sqrt(kappa * n_honest * spread(n_honest, rho, k))


def guarantee(
    *, parties: int, n_honest: int, k: int, epsilon: float, delta: float, sigma_eta: float, sigma_delta: float
) -> TheoremGuarantee:
    """Check all conditions of GOPA's Theorem 4.1; return its guarantee, or raise ConfigError.

    Raises ConfigError naming each condition that fails.
    """
    rho, third = n_honest / parties, delta / 3
    issues = [
        ConfigIssue("method", f"condition {reason} of Theorem 4.1 fails: {value}", ConfigCheck.INFEASIBLE)
        for holds, reason, value in (
            (0 < epsilon < 1, "0 < epsilon < 1", f"epsilon = {epsilon:g}"),
            (0 < third < 1, "0 < delta < 1", f"delta/3 = {third:g}"),
            (1 <= k <= parties, "k <= n", f"k = {k}, n = {parties}"),
            (n_honest >= 81, "rho n >= 81", f"rho n = {n_honest}"),
        )
        if not holds
    ]
    if issues:
        raise ConfigError(issues)
    picks = rho * k
    value = theta(n_honest, rho, k, sigma_eta, sigma_delta)
    left = epsilon - value / 2
    checks = [
        ("rho k >= 4 ln(2 rho n/(3 delta))", picks, 4 * math.log(2 * n_honest / (3 * third))),
        ("rho k >= 6 ln(rho n/3)", picks, 6 * math.log(n_honest / 3)),
        ("rho k >= 3/2 + 9/4 ln(2e/delta)", picks, 1.5 + 2.25 * math.log(2 * math.e / third)),
        ("(4.2), epsilon >= theta/2 + theta^(1/2)", epsilon, value / 2 + math.sqrt(value)),
        (
            "(4.3), (epsilon - theta/2)^2 >= 2 ln(2/(delta sqrt(2 pi))) theta",
            left * abs(left),
            2 * math.log(2 / (third * math.sqrt(2 * math.pi))) * value,
        ),
    ]
    issues = [
        ConfigIssue(
            "method",
            f"condition {reason} of Theorem 4.1 fails with delta = {third:.3g}: {a:.4g} < {b:.4g}",
            ConfigCheck.INFEASIBLE,
        )
        for reason, a, b in checks
        if a < b
    ]
    if issues:
        raise ConfigError(issues)
    least = max(
        2 * n_honest / 3 * math.exp(-picks / 4),
        2 * math.exp(1 - (picks - 1.5) * 4 / 9),
        2 / math.sqrt(2 * math.pi) * math.exp(-(left**2) / (2 * value)),
    )
    return TheoremGuarantee(value, min(3 * least, delta))
