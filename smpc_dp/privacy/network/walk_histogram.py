"""Plan histograms by a token's random walk over the complete graph (Remark 4.6), by randomised response.

Two observers, as in `complete`; statement and proof in docs/proofs/network.md.
"""

from __future__ import annotations

import functools

import numpy as np

from smpc_dp.errors import ConfigCheck
from smpc_dp.privacy.arguments import LEAST_NUMERICAL_DELTA, ArgumentChecks, checks_numbers, delta_warnings
from smpc_dp.privacy.network.complete import seen_steps, walk_assumption
from smpc_dp.privacy.network.curves import Curve, Floats, composed_delta, group_counts, sampled, upper_count
from smpc_dp.privacy.network.histogram import count_std, least_beta, local_delta
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.response import ResponseDistribution

# Of delta, for the number of visits.
_SIDE = 1e-3
_MOST_SEEN = 1_000


def response_curve(beta: float, categories: int, answers: int) -> Curve:
    """Return the privacy curve (delta by epsilon) of `answers` randomised responses that are all seen.

    The loss of an answer is e0, 0 or -e0 with e0 = ln(1 + (1 - beta) d / beta); the losses add up.
    """
    single, masses = ResponseDistribution.of_beta(categories, beta).losses()
    chances = np.ones(1)
    for _ in range(answers):
        chances = np.convolve(chances, masses)
    losses = np.arange(answers, -answers - 1, -1) * single[0]

    def curve(epsilon: Floats) -> Floats:
        gain = np.maximum(0.0, -np.expm1(np.asarray(epsilon)[:, None] - losses[None, :]))
        bound: Floats = np.minimum(1.0, gain @ chances * (1 + 1e-12))
        return bound

    return curve


def sampled_response(rate: float, beta: float, categories: int) -> Curve:
    """Return the privacy curve of a response that is the party's at `rate`, secretly, else another's."""
    return sampled(rate, response_curve(beta, categories, 1))


def seen_responses(chances: int, rate: float, beta: float, categories: int) -> Curve:
    """Return the privacy curve of Binomial(chances, rate) many seen responses, rounded up."""
    counts, weights, beyond = group_counts(chances, rate)
    parts = [response_curve(beta, categories, int(count)) for count in counts]

    def curve(epsilon: Floats) -> Floats:
        bound = np.full(np.shape(epsilon), beyond)
        for weight, part in zip(weights, parts, strict=True):
            bound = bound + weight * part(epsilon)
        return np.minimum(1.0, bound * (1 + 1e-12))

    return curve


# A learner needs its plan for its check, for its ledger and for its run.
@checks_numbers
@functools.lru_cache(maxsize=16, typed=True)
def plan_walk_histogram(
    parties: int,
    steps: int,
    categories: int,
    epsilon: float,
    delta: float,
    *,
    colluding: int = 1,
    paths: str = "neighbours",
) -> NetworkPlan:
    """Plan the least chance beta of random answers for a histogram by a random walk, for network DP.

    The histogram has d categories. `paths`: `hidden` or `neighbours`, the colluders' knowledge of the path.
    Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 3, 10_000_000)
    checks.require_integer("steps", steps, 2, 10_000_000)
    checks.require_integer("categories", categories, 2, 1_000_000)
    checks.require_choice("paths", paths, ("hidden", "neighbours"), " for histograms")
    if not checks:
        checks.require_integer("colluding", colluding, 1, parties - 2)
    checks.require_budget(epsilon, delta, least=LEAST_NUMERICAL_DELTA)
    checks.raise_issues()
    tail, rate = delta * _SIDE, 1 / (parties - colluding)
    visits, beyond = upper_count(steps, colluding / parties, tail) if paths == "neighbours" else (0, 0.0)
    if paths == "neighbours" and seen_steps(visits) * rate > _MOST_SEEN:
        checks.add_issue(
            "steps",
            f"a party may be seen {seen_steps(visits) * rate:.0f} times: too many to compute",
            ConfigCheck.TOO_LARGE,
        )
        checks.raise_issues()

    def total(beta: float) -> float:
        parts = [(sampled_response(rate, beta, categories), steps)]
        if paths == "neighbours":
            parts.append((seen_responses(seen_steps(visits), rate, beta, categories), 1))
        return beyond + composed_delta(epsilon, parts)

    most, over = upper_count(steps, 1 / parties, tail)
    local = least_beta(lambda b: over + local_delta(epsilon, b, most, categories), delta)
    beta = min(least_beta(total, delta), local)
    if beta >= 1:
        checks.add_issue(
            "epsilon",
            f"{epsilon:g} at delta {delta:g} leaves only random answers (beta = 1)",
            ConfigCheck.INFEASIBLE,
        )
        checks.raise_issues()
    return NetworkPlan(
        topology="complete",
        task="histogram",
        method="exact",
        paths=paths,
        parties=parties,
        steps=steps,
        colluding=colluding,
        epsilon=epsilon,
        delta=delta,
        beta=beta,
        error_std=count_std(beta, 1, steps, 0, categories),
        local=min(local, 1.0),
        local_error_std=count_std(local, 1, steps, 0, categories) if local < 1 else None,
        assumption=walk_assumption("histogram", colluding, paths, None, None),
        proven=True,
        warnings=delta_warnings(delta, parties),
    )
