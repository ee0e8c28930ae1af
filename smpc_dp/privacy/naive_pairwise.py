"""Plan a U-statistic over all pairs by two-party computation, the baseline of the protocol on few pairs.

[Bellet 2021, 3.3.4]: every party is in n - 1 noisy kernel values, which compose; epsilon is not pure any
more.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.theorems import advanced_composition, optimal_composition
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.pairwise_plan import check_zetas, complete_error
from smpc_dp.privacy.search import narrowed

CompositionTheorem = Literal["advanced", "optimal"]


class NaivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a pairwise statistic where every pair of parties adds its own noise: noise and error."""

    parties: int
    epsilon: float
    delta: float
    composition: CompositionTheorem
    """Composition of the n - 1 values of a party: advanced, or the optimal one for pure mechanisms."""
    pairs: int
    """Two-party computations: n (n - 1) / 2."""
    pair_epsilon: float
    """What each may cost."""
    noise_scale: float
    """Of the Laplace noise on each kernel value: width / pair_epsilon."""
    noise_error: float
    sampling_error: float
    mean_squared_error: float


@checks_numbers
def plan_naive(
    parties: int,
    epsilon: float,
    delta: float,
    zeta_1: float,
    zeta_2: float,
    *,
    width: float = 1.0,
    composition: CompositionTheorem = "optimal",
) -> NaivePlan:
    """Plan noise per pair with which a party's n - 1 values are (epsilon, delta)-DP; or ConfigError.

    n at least 3; 0 <= 2 zeta_1 <= zeta_2 <= width^2 / 4; delta in (0, 1). Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 3, 1_000_000_000)
    checks.require_budget(epsilon, delta)
    checks.require_positive("width", width, 1e9)
    check_zetas(checks, zeta_1, zeta_2, width)
    if composition not in get_args(CompositionTheorem):
        checks.add_issue(
            "composition", f"must be advanced or optimal, is {composition!r}", ConfigCheck.CHOICE
        )
    checks.raise_issues()
    count = parties - 1

    def enough(share: float) -> bool:
        """Return whether so much of epsilon for each value is within the budget."""
        if composition == "optimal":
            return optimal_composition(share, count, epsilon) <= delta
        # Simple composition is a bound as well.
        return min(count * share, advanced_composition(share, 0.0, count, delta)[0]) <= epsilon

    low = epsilon / count
    if not enough(low):
        raise ConfigError.at("epsilon", "nothing is left for a pair", ConfigCheck.INFEASIBLE)
    low, _ = narrowed(lambda share: not enough(share), low, epsilon, 1e-9)
    pairs = parties * (parties - 1) // 2
    noise = 2 * (width / low) ** 2 / pairs
    sampling = complete_error(parties, zeta_1, zeta_2)
    return NaivePlan(
        parties=parties,
        epsilon=epsilon,
        delta=delta,
        composition=composition,
        pairs=pairs,
        pair_epsilon=low,
        noise_scale=width / low,
        noise_error=noise,
        sampling_error=sampling,
        mean_squared_error=noise + sampling,
    )
