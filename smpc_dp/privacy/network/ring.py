"""Plan sums by a token on a ring [Bellet 2021, 4.2.3], with one more noise than Algorithm 4.2 has."""

from __future__ import annotations

import math

from smpc_dp.errors import ConfigCheck
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers, delta_warnings
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.network.plan import NetworkPlan, describe_observers, without_grid
from smpc_dp.privacy.network.published import ring_sum_sigma

MAX_ROUNDS = 1_000_000


def single_noises(parties: int, rounds: int) -> int:
    """Return how often noise is added to a token on a ring: every n - 1 hops, and before the end.

    The last hop is noisy already if the (K - 1) hops after the last noise are a multiple of n - 1.
    """
    return -(-rounds * parties // (parties - 1)) + (1 if (rounds - 1) % (parties - 1) else 0)


def distributed_variance(parties: int, rounds: int) -> float:
    """Return the variance of a ring's sum, over sigma^2, if every party adds a part of the noise.

    The first and the last hop have variance 1, each other hop 1 / (n - 1): any n - 1 hops in a row, any that
    begin with the first and any that end with the last have 1 at least.
    """
    return 2 + (rounds * parties - 2) / (parties - 1)


@checks_numbers
def plan_ring_sum(
    parties: int,
    rounds: int,
    epsilon: float,
    delta: float,
    *,
    sensitivity: float,
    noise: str = "single",
    colluding: int = 1,
    method: str = "exact",
) -> NetworkPlan:
    """Plan the least noise for a private sum by a token on a ring, K rounds, for network DP.

    Exact: sigma = sensitivity sqrt(K) / mu for the greatest mu of (epsilon, delta) `without_grid`. From two
    colluding parties on, both neighbours of a party may be among them: `single` is refused, and `distributed`
    noise must then protect each hop for itself, as local DP does. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 3, 100_000_000)
    checks.require_integer("rounds", rounds, 1, MAX_ROUNDS)
    checks.require_positive("sensitivity", sensitivity)
    checks.require_budget(epsilon, delta)
    checks.require_choice("noise", noise, ("single", "distributed"))
    checks.require_choice("method", method, ("exact", "theorem"), " for sums on the ring")
    if not checks:
        checks.require_integer("colluding", colluding, 1, parties - 2)
        if colluding > 1 and noise == "single":
            checks.add_issue(
                "colluding",
                "two colluding neighbours of a party see its contribution bare where it adds no noise; "
                "use --noise distributed",
                ConfigCheck.UNSUPPORTED,
            )
        if colluding > 1 and method == "theorem":
            checks.add_issue(
                "colluding",
                "Theorem 4.3 is for one curious party; use --method exact",
                ConfigCheck.UNSUPPORTED,
            )
    checks.raise_issues()
    inner = without_grid(epsilon, delta)
    local = sensitivity * math.sqrt(rounds) / gaussian_mu(*inner)
    sigma = local if method == "exact" else ring_sum_sigma(*inner, rounds, sensitivity)
    if noise == "single":
        variance = float(single_noises(parties, rounds))
    elif colluding == 1:
        variance = distributed_variance(parties, rounds)
    else:
        variance = float(parties * rounds)
    return NetworkPlan(
        topology="ring",
        task="sum",
        method=method,
        noise=noise,
        parties=parties,
        rounds=rounds,
        colluding=colluding,
        epsilon=epsilon,
        delta=delta,
        sensitivity=sensitivity,
        sigma=sigma,
        error_std=sigma * math.sqrt(variance),
        local=local,
        local_error_std=local * math.sqrt(parties * rounds),
        assumption=(
            "all parties follow the protocol and draw their noise honestly; the order on the ring is public; "
            f"channels are private; {describe_observers(colluding)} the tokens received; everybody "
            "sees the final token"
        ),
        proven=True,
        warnings=delta_warnings(delta, parties),
    )
