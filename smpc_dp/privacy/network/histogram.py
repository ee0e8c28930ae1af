"""Plan histograms by a token on a ring: k-ary randomised response, hidden among others' random answers.

[Bellet 2021, Algorithm 4.3], with random elements at the end as well as at the beginning. The numerical bound
is the privacy blanket of [Balle, Bell, Gascon, Nissim 2019], which for randomised response has a simple form
that docs/proofs/planners.md proves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.special import gammaln

from smpc_dp.errors import ConfigCheck
from smpc_dp.privacy.arguments import LEAST_NUMERICAL_DELTA, ArgumentChecks, checks_numbers, delta_warnings
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.network.published import (
    clones_local_epsilon,
    epsilon_of_each,
    shuffled_local_epsilon,
)
from smpc_dp.privacy.response import ResponseDistribution
from smpc_dp.privacy.search import least_sufficient

# Groups of blanket sizes; each counts as its smallest.
_GROUPS = 6
_CUT = 1e-14
_INTERVAL = 2e-4
_MOST_PAIRS = 4_000_000


def blanket_losses(blanket: int, beta: float, categories: int) -> tuple[Any, Any, float]:
    """Return privacy losses of an answer among `blanket` uniform ones, their chances, and the mass left out.

    Answers of the party: the truth i with probability 1 - beta, uniform otherwise. Given h_i and h_j counts
    of i and of j among the blanket and the party's answer, i is likelier than j by the ratio (beta m +
    (1 - beta) d h_i) / (beta m + (1 - beta) d h_j), m = blanket + 1.
    """
    # Not at the top: it takes long to load.
    from scipy.stats import binom

    d, m = categories, blanket + 1
    pairs = 2 / d
    low = int(binom.ppf(_CUT, m, pairs)) if d > 2 else m
    high = int(binom.isf(_CUT, m, pairs)) if d > 2 else m
    both = np.arange(low, high + 1)
    width = int(9 * math.sqrt(high / 4 + 1)) + 9
    offsets = np.arange(-width, width + 1)
    first = both[:, None] // 2 + offsets[None, :]
    inside = (first >= 0) & (first <= both[:, None])
    total, first = np.broadcast_to(both[:, None], first.shape)[inside], first[inside]
    second = total - first
    halves = gammaln(total + 1) - gammaln(first + 1) - gammaln(second + 1) - total * math.log(2)
    row = binom.pmf(both, m, pairs) if d > 2 else np.ones(1)
    halves = np.exp(halves)  # up to a factor for each row, which rounding leaves
    base = row[total - low] * halves / np.bincount(total - low, weights=halves)[total - low]
    floor = beta * m
    above, below = floor + (1 - beta) * d * first, floor + (1 - beta) * d * second
    left_out = 1 - float(row @ (beta + (1 - beta) * d / m * both / 2))
    return np.log(above) - np.log(below), base * above / m, max(0.0, left_out)


def _segment(blankets: list[tuple[int, float]], beta: float, categories: int, lost: float) -> Any:
    """Return the privacy loss distribution of one answer among random numbers of uniform answers.

    The probability `lost` has an infinite loss.
    """
    parts = []
    for size, weight in blankets:
        losses, chances, left_out = blanket_losses(size, beta, categories)
        index = np.ceil(losses / _INTERVAL - 1e-9).astype(np.int64)
        parts.append((int(index.min()), np.bincount(index - index.min(), weights=weight * chances)))
        lost += weight * left_out
    start = min(low for low, _ in parts)
    masses = np.zeros(max(low + len(mass) for low, mass in parts) - start)
    for low, mass in parts:
        masses[low - start : low - start + len(mass)] += mass
    return pld_pmf.DensePLDPmf(_INTERVAL, start, masses, min(1.0, lost), True)


def _blankets(others: int, beta: float) -> tuple[list[tuple[int, float]], float]:
    """Return (groups of (number of uniform answers among `others`, chance), the chance of fewer)."""
    # Not at the top: it takes long to load.
    from scipy.stats import binom

    low, high = int(binom.ppf(_CUT, others, beta)), int(binom.isf(_CUT, others, beta))
    edges = np.unique(np.linspace(low, high + 1, _GROUPS + 1).astype(np.int64))
    below = binom.cdf(edges - 1, others, beta)
    groups = [
        (int(edge), float(weight))
        for edge, weight in zip(edges[:-1], np.append(below[1:-1], 1.0) - below[:-1], strict=True)
    ]
    return groups, float(below[0])


def histogram_delta(epsilon: float, beta: float, parties: int, rounds: int, categories: int) -> float:
    """Return delta at epsilon of a party's answers in a ring histogram towards another party, rounded up.

    All contributions but one are hidden among n - 2 answers of others. The other one, in the first or in the
    last segment of what the observer sees, is hidden among ceil(beta n) random elements at least.
    """
    total: Any = _segment([(math.ceil(beta * parties), 1.0)], beta, categories, 0.0)
    if rounds > 1:
        inner, lost = _blankets(parties - 2, beta)
        total = total.compose(_several(_segment(inner, beta, categories, lost), rounds - 1))
    return _delta(total, epsilon)


def local_delta(epsilon: float, beta: float, rounds: int, categories: int) -> float:
    """Return delta at epsilon of a party's `rounds` randomised answers if all are seen, rounded up."""
    return _delta(_several(_segment([(0, 1.0)], beta, categories, 0.0), rounds), epsilon)


def _several(pmf: Any, times: int) -> Any:
    """Return a privacy loss distribution composed with itself `times` times."""
    return pmf if times == 1 else pmf.self_compose(times)


def _delta(pmf: Any, epsilon: float) -> float:
    """Return delta at epsilon of a privacy loss distribution, with an allowance for rounding."""
    # The convolutions and the binomial chances are in floating point; their error is far below this.
    delta = float(PrivacyLossDistribution(pmf).get_delta_for_epsilon(epsilon))
    return min(1.0, delta * (1 + 1e-6) + 1e-12)


def count_std(beta: float, parties: int, rounds: int, random: int, categories: int) -> float:
    """Return the greatest standard deviation of an estimated count in a randomised-response histogram.

    (token - random/d - n K beta/d) / (1 - beta) with `random` uniform elements [T, Algorithm 4.3, corrected].
    """
    distribution = ResponseDistribution.of_beta(categories, beta)
    uniform = random * (1 / categories) * (1 - 1 / categories) / distribution.retained**2
    return math.sqrt(parties * rounds * distribution.count_variance() + uniform)


def least_beta(total: Callable[[float], float], delta: float) -> float:
    """Return about the least chance beta of a random answer with total(beta) <= delta; >= 1 if none below 1.

    1 or more if only such would do.
    """
    return least_sufficient(lambda b: b >= 1 or total(b) <= delta, 0.5, tolerance=2e-3, name="beta")


# A learner needs its plan for its check, for its ledger and for its run.
@checks_numbers
@functools.lru_cache(maxsize=16, typed=True)
def plan_ring_histogram(
    parties: int, rounds: int, categories: int, epsilon: float, delta: float, *, method: str = "exact"
) -> NetworkPlan:
    """Plan the least probability of random answers for a histogram by a token on a ring, for network DP.

    method `exact` computes the composed privacy; `theorem` is Theorem 4.4 as corrected in
    docs/proofs/errata.md, `clones` the closed form of Feldman et al. in its place (Remark 4.3), both with
    advanced composition over the rounds and half of delta for its slack. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 3, 10_000_000)
    checks.require_integer("rounds", rounds, 1, 100_000)
    checks.require_integer("categories", categories, 2, 1_000_000)
    checks.require_budget(epsilon, delta, least=LEAST_NUMERICAL_DELTA)
    checks.require_choice("method", method, ("exact", "theorem", "clones"), " for histograms on the ring")
    checks.raise_issues()
    if method == "exact":
        rows = 16 * math.sqrt(2 * parties / categories) if categories > 2 else 1
        if rows * 18 * math.sqrt(parties / (2 * categories)) > _MOST_PAIRS:
            checks.add_issue(
                "parties",
                f"{parties} with {categories} categories make too large a table for --method exact; "
                "use --method clones",
                ConfigCheck.TOO_LARGE,
            )
            checks.raise_issues()
        beta = least_beta(lambda b: histogram_delta(epsilon, b, parties, rounds, categories), delta)
    else:
        each, part = epsilon_of_each(epsilon, rounds, delta / 2), delta / (2 * rounds)
        if method == "theorem":
            answer = shuffled_local_epsilon(each, part, parties)
        else:
            answer = clones_local_epsilon(each, part, parties - 1)
        beta = ResponseDistribution.of_epsilon(categories, answer).beta
    local = least_beta(lambda b: local_delta(epsilon, b, rounds, categories), delta)
    if min(beta, local) >= 1:
        checks.add_issue(
            "epsilon",
            f"{epsilon:g} at delta {delta:g} leaves only random answers (beta = 1)",
            ConfigCheck.INFEASIBLE,
        )
        checks.raise_issues()
    beta = min(beta, local) if method == "exact" else beta
    ends = 2 * math.ceil(beta * parties)
    return NetworkPlan(
        topology="ring",
        task="histogram",
        method=method,
        parties=parties,
        rounds=rounds,
        epsilon=epsilon,
        delta=delta,
        beta=beta,
        error_std=count_std(beta, parties, rounds, ends, categories),
        local=min(local, 1.0),
        local_error_std=count_std(local, parties, rounds, 0, categories) if local < 1 else None,
        assumption=(
            "all parties follow the protocol and draw their answers honestly; the order on the ring is "
            "public; channels are private; any one of them may observe the tokens received; everybody sees "
            f"the final token; {ends // 2} random elements are added by the first party at the start and as "
            "many by the last at the end"
        ),
        proven=method == "exact",
        warnings=delta_warnings(delta, parties),
    )
