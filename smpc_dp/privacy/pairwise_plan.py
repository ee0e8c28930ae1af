"""Plan a private pairwise statistic on randomly drawn pairs: its error and the number of pairs.

[Bellet 2021, Theorem 3.7] with the two corrections of docs/proofs/errata.md; proof in
docs/proofs/planners.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers

__all__ = [
    "PairwisePlan",
    "best_partners",
    "complete_error",
    "noise_error",
    "plan_pairwise",
    "sampling_error",
    "total_error",
]

MAX_PARTNERS = 1_000_000


class PairwisePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a private pairwise statistic: partners of each party, noise and mean squared error."""

    parties: int
    """n, even."""
    epsilon: float
    partners: int
    """P, the pairs of each party; one matching of all parties for each."""
    zeta_1: float
    """Var(E[h(X_1, X_2) given X_1])."""
    zeta_2: float
    """Var(h(X_1, X_2))."""
    width: float
    """Largest minus smallest value of the kernel h."""
    noise_scale: float
    """Of the Laplace noise on each kernel value: P width / epsilon."""
    sampling_error: float
    """Part of the mean squared error that comes from the data and the drawn pairs."""
    noise_error: float
    """Part that comes from the noise: 4 P width^2 / (n epsilon^2)."""
    mean_squared_error: float
    best_partners: int
    best_error: float
    complete_error: float
    """Mean squared error of all n (n - 1) / 2 pairs without noise."""
    relation: str
    assumption: str


@checks_numbers
def sampling_error(parties: int, partners: int, zeta_1: float, zeta_2: float) -> float:
    """Return the variance of a pairwise statistic over random perfect matchings, without noise.

    [Bellet 2021, Theorem 3.7]
    """
    n, p = parties, partners
    first = 2 * (p - 1) * (1 - 1 / (n - 1)) * zeta_1
    return 2 / (p * n) * (first + (1 + (p - 1) / (n - 1)) * zeta_2)


@checks_numbers
def noise_error(parties: int, partners: int, epsilon: float, width: float = 1.0) -> float:
    """Return the variance that the pairs' Laplace noise adds to a pairwise statistic.

    4 P width^2 / (n epsilon^2).
    """
    return 4 * partners * (width / epsilon) ** 2 / parties


@checks_numbers
def total_error(
    parties: int, partners: int, epsilon: float, zeta_1: float, zeta_2: float, width: float = 1.0
) -> float:
    """Return the mean squared error of a private pairwise statistic: sampling plus noise."""
    return sampling_error(parties, partners, zeta_1, zeta_2) + noise_error(parties, partners, epsilon, width)


@checks_numbers
def complete_error(parties: int, zeta_1: float, zeta_2: float) -> float:
    """Return the variance of a pairwise statistic (U-statistic) over all pairs [Hoeffding 1948]."""
    return 2 * (2 * (parties - 2) * zeta_1 + zeta_2) / (parties * (parties - 1))


@checks_numbers
def best_partners(parties: int, epsilon: float, zeta_1: float, zeta_2: float, width: float = 1.0) -> int:
    """Return in how many pairs each party should be, for a pairwise statistic's least squared error.

    The error is a + b/P + c P with b = 2 (1 - 1/(n-1)) (zeta_2 - 2 zeta_1) / n and c = 4 width^2 / (n
    epsilon^2): one of the two integers around sqrt(b / c).
    """
    spread = max(0.0, zeta_2 - 2 * zeta_1)
    ideal = epsilon / width * math.sqrt((1 - 1 / (parties - 1)) * spread / 2)
    low = min(max(1, math.floor(ideal)), MAX_PARTNERS)
    return min(
        (low, min(low + 1, MAX_PARTNERS)),
        key=lambda p: total_error(parties, p, epsilon, zeta_1, zeta_2, width),
    )


def check_zetas(checks: ArgumentChecks, zeta_1: float, zeta_2: float, width: float) -> None:
    """Record a fault unless 0 <= 2 zeta_1 <= zeta_2 <= width^2 / 4, for a valid width."""
    if not checks:
        checks.require_within("zeta_2", zeta_2, 0, width**2 / 4)
        checks.require_within("zeta_1", zeta_1, 0, max(zeta_2 / 2, 0))


def given_zetas(zetas: Sequence[float], width: float) -> tuple[float, float]:
    """Return a kernel's two given variances as floats; raise ConfigError unless two that its width allows."""
    try:
        first, second = (float(zeta) for zeta in zetas)
    except (TypeError, ValueError):
        raise ConfigError.at("zetas", f"{zetas!r} is not two numbers", ConfigCheck.TYPE) from None
    if not 0 <= 2 * first <= second <= width**2 / 4:
        reason = f"0 <= 2 zeta_1 <= zeta_2 <= {width**2 / 4:g} does not hold of {first:g}, {second:g}"
        raise ConfigError.at("zetas", reason, ConfigCheck.RANGE)
    return first, second


@checks_numbers
def plan_pairwise(
    parties: int,
    epsilon: float,
    zeta_1: float,
    zeta_2: float,
    *,
    width: float = 1.0,
    partners: int | None = None,
) -> PairwisePlan:
    """Plan the noise and error of a pairwise statistic, with the best number of partners if not given.

    n even and at least 4; 0 <= 2 zeta_1 <= zeta_2 <= width^2 / 4, as holds for every kernel of that width.
    epsilon is for the substitution of one party's record. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 4, 1_000_000_000)
    if not checks and parties % 2:
        checks.add_issue(
            "parties",
            f"{parties} is odd: a matching leaves nobody out, so it must be even",
            ConfigCheck.INFEASIBLE,
        )
    checks.require_budget(epsilon)
    checks.require_positive("width", width, 1e9)
    check_zetas(checks, zeta_1, zeta_2, width)
    if partners is not None:
        checks.require_integer("partners", partners, 1, MAX_PARTNERS)
    checks.raise_issues()
    best = best_partners(parties, epsilon, zeta_1, zeta_2, width)
    chosen = best if partners is None else partners
    return PairwisePlan(
        parties=parties,
        epsilon=epsilon,
        partners=chosen,
        zeta_1=zeta_1,
        zeta_2=zeta_2,
        width=width,
        noise_scale=chosen * width / epsilon,
        sampling_error=sampling_error(parties, chosen, zeta_1, zeta_2),
        noise_error=noise_error(parties, chosen, epsilon, width),
        mean_squared_error=total_error(parties, chosen, epsilon, zeta_1, zeta_2, width),
        best_partners=best,
        best_error=total_error(parties, best, epsilon, zeta_1, zeta_2, width),
        complete_error=complete_error(parties, zeta_1, zeta_2),
        relation="substitution of one user's record",
        assumption=(
            "pairs are drawn independently of the data; each noisy kernel value comes from a two-party "
            "computation that shows nothing else, so epsilon holds against computationally bounded observers "
            "alone, against the aggregator with any other parties as far as that computation does: garblers "
            "are semi-honest or, with covert = c, by default 4, deterred by conviction, over all pairs: an "
            "undetected cheat (probability 1/c for each pair) loses that pair's epsilon, and is no part of "
            "delta; with security 'malicious' nothing is assumed of garblers, and delta is 2^-40 for each "
            "pair of a party; the noise is continuous Laplace noise that nobody knows; records are "
            "independent and of one distribution for the error"
        ),
    )
