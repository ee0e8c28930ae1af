"""Plan a token's random walk over the complete graph: sums and gradient descent [Bellet 2021, 4.2.4].

Three observers, by the colluders' knowledge of the path: `hidden`, when and what they receive themselves;
`neighbours`, from whom and to whom as well, which is Definition 4.1; `known`, the whole path. Proofs of what
is computed for each: docs/proofs/planners.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import LEAST_NUMERICAL_DELTA, ArgumentChecks, checks_numbers, delta_warnings
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.network.curves import composed_delta, sampled_gaussian, seen_gaussians, upper_count
from smpc_dp.privacy.network.mixture import ShiftDistribution, grid_end, summed, tabulate, with_direct
from smpc_dp.privacy.network.plan import NetworkPlan, describe_observers, without_grid
from smpc_dp.privacy.network.published import sgd_sigma
from smpc_dp.privacy.search import least_sufficient

MAX_STEPS = 10_000_000
# Of delta, for events that are bounded apart from the noise.
_SIDE = 1e-3
# Cells of a distribution that is evaluated, and of one that is summed: at most, and with a cap on edges.
_SIZE = 1 << 18
_FINEST, _FINEST_CAPPED = 1 << 24, 1 << 20


# A learner needs its plan for its check, for its ledger and for its run.
@checks_numbers
@functools.lru_cache(maxsize=16, typed=True)
def plan_walk(
    task: str,
    parties: int,
    steps: int,
    epsilon: float,
    delta: float,
    *,
    sensitivity: float,
    colluding: int = 1,
    paths: str = "neighbours",
    method: str = "exact",
    max_contributions: int | None = None,
    edge_cap: int | None = None,
) -> NetworkPlan:
    """Plan the least noise of a token that walks at random among all parties, for network DP.

    task `sum` [Algorithm 4.4] or `sgd` [Algorithm 4.5]; `sensitivity` is how far one contribution moves, the
    interval's width for a sum and 2 L for gradients of norm at most L. `max_contributions` and
    `edge_cap` need `paths="known"`, see docs/proofs/planners.md. For sgd `known` needs convex, s-smooth
    losses and one constant step size of at most 2/s; the others need nothing of the kind. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_choice("task", task, ("sum", "sgd"), " on the complete graph")
    checks.require_choice("paths", paths, ("hidden", "neighbours", "known"))
    checks.require_choice("method", method, ("exact", "theorem"), " on the complete graph")
    if method == "theorem" and task == "sum":
        checks.add_issue(
            "method",
            "Theorem 4.5 is asymptotic and states no constant; use --method exact",
            ConfigCheck.UNSUPPORTED,
        )
    checks.require_integer("parties", parties, 3, 10_000_000)
    checks.require_integer("steps", steps, 1, MAX_STEPS)
    if not checks:
        checks.require_integer("colluding", colluding, 1, parties - 2)
    checks.require_positive("sensitivity", sensitivity)
    checks.require_budget(epsilon, delta, least=LEAST_NUMERICAL_DELTA)
    checks.raise_issues()
    _check_caps(steps, paths, method, max_contributions, edge_cap)
    inner = without_grid(epsilon, delta)
    local = local_sigma(parties, steps, *inner, sensitivity, max_contributions)
    if method == "theorem":
        sigma = sgd_sigma(*inner, steps, parties // colluding, sensitivity / 2)
    else:
        of = _curve(parties, steps, *inner, colluding, paths, max_contributions, edge_cap)
        tolerance = 1e-3 if paths == "neighbours" else 1e-4
        sigma = least_sufficient(lambda s: of(sensitivity / s) <= inner[1], local, tolerance=tolerance)
        sigma = min(sigma, local)
    return NetworkPlan(
        topology="complete",
        task=task,
        method=method,
        paths="hidden" if method == "theorem" else paths,
        parties=parties,
        steps=steps,
        colluding=colluding,
        max_contributions=max_contributions,
        edge_cap=edge_cap,
        epsilon=epsilon,
        delta=delta,
        sensitivity=sensitivity,
        sigma=sigma,
        error_std=sigma * math.sqrt(steps) if task == "sum" else sigma,
        local=local,
        local_error_std=local * math.sqrt(steps) if task == "sum" else local,
        assumption=walk_assumption(
            task, colluding, "theorem" if method == "theorem" else paths, max_contributions, edge_cap
        ),
        proven=method == "exact",
        warnings=delta_warnings(delta, parties),
    )


def local_sigma(
    parties: int, steps: int, epsilon: float, delta: float, sensitivity: float, contributions: int | None
) -> float:
    """Return the sigma for local DP, all of a party's contributions being public.

    Exact for `contributions` of them; without a limit for Bin(steps, 1/parties), known to the observer.
    """
    # Not at the top: it takes long to load.
    from scipy.stats import binom

    if contributions is not None:
        return sensitivity * math.sqrt(contributions) / gaussian_mu(epsilon, delta)
    most, beyond = upper_count(steps, 1 / parties, delta * _SIDE)
    distribution = ShiftDistribution(binom.pmf(np.arange(most + 1), steps, 1 / parties), 1.0, beyond)
    start = sensitivity / gaussian_mu(epsilon, delta)
    return least_sufficient(lambda s: distribution.delta(epsilon, sensitivity / s) <= delta, start)


def hidden_delta(epsilon: float, mu: float, steps: int, others: int) -> float:
    """Return delta of a walk of `steps` steps, each by an unseen one of `others`, the protected one too.

    `others` parties take each step with equal probability.
    """
    return composed_delta(epsilon, [(sampled_gaussian(1 / others, mu), steps)])


def seen_steps(visits: int) -> int:
    """Return how many steps of a walk are known to observers who are visited so often: 2 visits + 1.

    One before and one after each visit, and the step of the party that publishes.
    """
    return 2 * visits + 1


def gaps_distribution(
    parties: int, colluding: int, contributions: int, edge_cap: int | None, tail: float
) -> ShiftDistribution:
    """Return an upper distribution of S, the sum of 1/g over a party's contributions to a walk of known path.

    g counts the noisy steps from a contribution to the next visit to the same party or to a colluder. `tail`
    is the probability that each cut of the distribution may leave out; with `edge_cap` a colluder is next
    after that many contributions only.
    """
    stop = (colluding + 1) / parties
    longest = min(50_000_000, math.ceil(math.log(tail) / math.log1p(-stop)))
    gaps = np.unique(np.geomspace(1, longest + 1, 20_000).astype(np.int64))
    # A gap within [gaps[i], gaps[i + 1]) counts as the shorter, so S is rounded up.
    left = (1 - stop) ** (gaps - 1.0)
    weights = left - np.append(left[1:], 0.0)
    values = 1 / gaps.astype(np.float64)
    end = 1.01 * grid_end(values, weights, contributions, tail)
    # Each value is rounded up, so the sum grows by up to `contributions` steps: they have their place on the
    # grid, and are few of its cells.
    size = _grid_size(contributions, _FINEST if edge_cap is None else _FINEST_CAPPED)
    step = end / (size - contributions)
    if edge_cap is None:
        return summed(tabulate(values, weights, step, size), contributions, tail).coarser(_SIZE)
    direct = colluding / parties
    rest = weights.copy()
    rest[0] -= direct
    distribution = tabulate(values, rest / (1 - direct), step, size)
    return with_direct(distribution, contributions, direct, edge_cap * colluding, tail).coarser(_SIZE)


def _grid_size(contributions: int, finest: int) -> int:
    """Return how many grid cells keep the rounding of so many contributions small, or ConfigError."""
    size = _SIZE
    while size < finest and size < 128 * contributions:
        size *= 2
    if contributions > size // 8:
        reason = f"a party may contribute {contributions} times, known paths are computed for {size // 8}"
        raise ConfigError.at(
            "steps", f"{reason}: limit contributions, or plan for fewer steps", ConfigCheck.RANGE
        )
    return size


def _curve(
    parties: int,
    steps: int,
    epsilon: float,
    delta: float,
    colluding: int,
    paths: str,
    contributions: int | None,
    edge_cap: int | None,
) -> Callable[[float], float]:
    """Return the function that gives delta of a walk from mu = sensitivity / sigma."""
    tail = delta * _SIDE
    others = parties - colluding
    if paths == "hidden":
        return lambda mu: hidden_delta(epsilon, mu, steps, others)
    if paths == "neighbours":
        visits, beyond = upper_count(steps, colluding / parties, tail)
        return lambda mu: (
            beyond
            + composed_delta(
                epsilon,
                [
                    (sampled_gaussian(1 / others, mu), steps),
                    (seen_gaussians(seen_steps(visits), 1 / others, mu), 1),
                ],
            )
        )
    beyond = 0.0
    if contributions is None:
        contributions, beyond = upper_count(steps, 1 / parties, tail)
    distribution = gaps_distribution(parties, colluding, contributions, edge_cap, tail)
    return lambda mu: beyond + distribution.delta(epsilon, mu)


_SEEN = {
    "hidden": "the tokens received and when, not senders or receivers (Remark 4.5)",
    "neighbours": "the tokens received, when, from whom and to whom they go (Definition 4.1)",
    "known": "the tokens received and the whole path",
    "theorem": "the tokens received, not senders or receivers (Remark 4.5)",
}


def walk_assumption(
    task: str, colluding: int, seen: str, max_contributions: int | None, edge_cap: int | None
) -> str:
    """Return words on what a walk's privacy assumes of parties, channels and losses."""
    text = (
        "all parties follow the protocol, and draw noise and next parties honestly; channels are private; "
        f"{describe_observers(colluding)} {_SEEN[seen]}; everybody sees the final token"
    )
    if max_contributions is not None:
        text += f"; a party contributes {max_contributions} times at most and then only noise"
    if edge_cap is not None:
        text += f"; on an edge used {edge_cap} times its sender adds noise alone, a contribution spent"
    if task == "sgd" and seen in ("known", "theorem"):
        text += "; losses are convex and s-smooth and the step size is constant, at most 2/s"
    return text


def _check_caps(
    steps: int, paths: str, method: str, max_contributions: int | None, edge_cap: int | None
) -> None:
    """Raise ConfigError if limits on contributions and edges do not fit the paths and the method."""
    checks = ArgumentChecks()
    for name, value in (("max_contributions", max_contributions), ("edge_cap", edge_cap)):
        if value is None:
            continue
        checks.require_integer(name, value, 1, steps)
        if paths != "known" or method == "theorem":
            checks.add_issue(
                name,
                "a limit makes who contributes depend on the hidden path, which is proven for --paths known "
                "and --method exact alone",
                ConfigCheck.UNSUPPORTED,
            )
    checks.raise_issues()
