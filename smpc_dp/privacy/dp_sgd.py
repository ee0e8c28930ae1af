"""Noise of local, central and network DP-SGD, side by side [Bellet 2021, 4.2.5].

`published_sigmas` follows the formulas of the paper's own script
(totilas/privacy-amplification-by-decentralization, file fig2/findSigma.py, read for its formulas): three
analyses with different neighbours and different care. `plan_sgd` has all three as well under one relation
and one kind of accounting; only it may be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.theorems import advanced_composition
from smpc_dp.privacy.arguments import LEAST_NUMERICAL_DELTA, ArgumentChecks, checks_numbers, delta_warnings
from smpc_dp.privacy.network.complete import MAX_STEPS, hidden_delta, local_sigma, plan_walk
from smpc_dp.privacy.network.plan import SUBSTITUTE_PARTY
from smpc_dp.privacy.search import bisect, least_sufficient

# The script's search: the factors of its candidate and its split, and the ratio at which the two parts count
# as equal.
_STEP, _SPLIT, _ALIKE = 1.15, 0.01, 1.05


class Sigmas(msgspec.Struct, frozen=True, kw_only=True):
    """Standard deviations of Gaussian noise per gradient in DP-SGD: with local, central and network DP."""

    local: float
    central: float
    network: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Row of a comparison of noise in DP-SGD: local, central or network setting, its sigma and assumption."""

    setting: str
    sigma: float
    assumption: str


class SgdPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of DP-SGD at one privacy budget: the noise that local, central and network DP need, compared."""

    parties: int
    """n."""
    steps: int
    """T."""
    max_contributions: int
    """K = ceil(slack T / n)."""
    lipschitz: float
    """L, the bound on a gradient's L2 norm."""
    epsilon: float
    delta: float
    published: Sigmas | None
    """By the script's formulas; null where its conditions fail."""
    published_relation: str
    fair: Sigmas
    """All three under `relation`: local with K contributions, central and network as drawn."""
    relation: str
    rows: list[Row]
    """The fair sigmas and variants, each with what it assumes; the last is for convex losses."""
    warnings: list[str]


@checks_numbers
def published_sigmas(
    parties: int, steps: int, epsilon: float, delta: float, lipschitz: float, contributions: int
) -> Sigmas:
    """Return the noise of DP-SGD with local, central and network DP by a paper's script, as printed.

    Local: advanced composition of K = contributions and the classical Gaussian. Central: the bound of
    Bassily et al. 2014. Network: Theorem 4.6's numerical form for contributions that are not seen
    directly, and composition for those that are, epsilon split so that both need about the same noise.
    Raises ConfigError where that search does not end.
    """
    n, k, part = parties, contributions, delta / contributions
    each = _solve(lambda e: advanced_composition(e, 0.0, k, part)[0], epsilon, epsilon / math.sqrt(k))
    central = (
        16
        * lipschitz
        * math.sqrt(steps * math.log(2 / delta) * math.log(1.25 * steps / (delta * n)))
        / (n * epsilon)
    )
    return Sigmas(
        local=math.sqrt(2 * math.log(1.25 / part)) * lipschitz / each,
        central=central,
        network=_published_network(n, epsilon, delta, lipschitz, k),
    )


def _published_network(n: int, epsilon: float, delta: float, lipschitz: float, k: int) -> float:
    """Return the paper's sigma for network DP; ConfigError if its search for a split of epsilon fails."""
    part = delta / k
    spotted = math.ceil(2 * k / n + math.sqrt(6 * k * math.log(1 / delta) / n))
    share = 0.5
    for _ in range(2_000):
        direct = share * epsilon
        each = _solve(
            lambda e: min(spotted * e, advanced_composition(e, 0.0, spotted, part)[0]),
            direct,
            direct / math.sqrt(spotted),
        )
        seen = math.sqrt(2 * math.log(1.25 / part)) * lipschitz / each
        unseen = _published_unseen(n, epsilon - direct, delta, lipschitz, k)
        if seen > _ALIKE * unseen:
            share *= 1 + _SPLIT
        elif unseen > _ALIKE * seen:
            share *= 1 - _SPLIT
        else:
            return max(seen, unseen)
        if not 1e-6 < share < 1:
            break
    raise ConfigError.at(
        "epsilon", "the published script finds no split of it between its two parts", ConfigCheck.INFEASIBLE
    )


def _published_unseen(n: int, epsilon: float, delta: float, lipschitz: float, k: int) -> float:
    """Return the paper's sigma for network DP against contributions that are not directly seen.

    By Rényi DP at the largest order allowed.
    """
    if k >= n * math.log(1 / delta) / (2 * math.log(n)):
        return 4 * lipschitz * math.sqrt(2 * k * math.log(n) * math.log(1 / delta) / n) / epsilon
    sigma = math.sqrt(2 * math.log(1.25 / delta)) * lipschitz / epsilon
    while True:
        # sigma = L sqrt(2 a (a - 1)) is the condition of weak convexity, for the order a
        order = (1 + math.sqrt(1 + 2 * (sigma / lipschitz) ** 2)) / 2
        renyi = 2 * k * lipschitz**2 * order * math.log(n) / (sigma**2 * n)
        if renyi + math.log(1 / delta) / (order - 1) < epsilon:
            return sigma
        sigma *= _STEP


def _solve(rising: Callable[[float], float], target: float, most: float) -> float:
    """Return, by bisection, the argument up to `most` at which a rising function reaches the target."""
    return bisect(lambda at: rising(at) <= target, 0.0, most, 200)[0]


@checks_numbers
def plan_sgd(
    parties: int, steps: int, epsilon: float, delta: float, *, lipschitz: float = 1.0, slack: float = 1.2
) -> SgdPlan:
    """Plan noise for local, central and network DP-SGD, by the published formulas and by exact accounting.

    A contribution moves by 2 L when its party's data is substituted, in all three settings.
    Local: K = ceil(slack T/n) contributions, everybody sees all. Central: a trusted curator publishes every
    iterate and not who was drawn. Network: Definition 4.1, one curious party (`plan_walk` with `neighbours`);
    for convex losses the smaller of that and of `known`, which covers it. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 3, 10_000_000)
    checks.require_integer("steps", steps, 1, MAX_STEPS)
    checks.require_positive("lipschitz", lipschitz)
    checks.require_within("slack", slack, 1, 1000)
    checks.require_budget(epsilon, delta, least=LEAST_NUMERICAL_DELTA)
    checks.raise_issues()
    contributions = math.ceil(slack * steps / parties * (1 - 1e-12))
    width = 2 * lipschitz
    warnings = delta_warnings(delta, parties)
    try:
        published = published_sigmas(parties, steps, epsilon, delta, lipschitz, contributions)
    except ConfigError as error:
        published, warnings = None, [*warnings, str(error)]
    local = local_sigma(parties, steps, epsilon, delta, width, contributions)
    central = least_sufficient(lambda s: hidden_delta(epsilon, width / s, steps, parties) <= delta, local)
    limits = {"neighbours": None, "hidden": None, "known": contributions}
    walks = [
        plan_walk(
            "sgd", parties, steps, epsilon, delta, sensitivity=width, paths=paths, max_contributions=most
        )
        for paths, most in limits.items()
    ]
    sigmas = [walk.sigma for walk in walks if walk.sigma is not None]
    rows = [
        Row(
            setting="local",
            sigma=local,
            assumption=(
                "nobody is trusted; every message is public; "
                f"a party contributes {contributions} times at most"
            ),
        ),
        Row(
            setting="central",
            sigma=min(central, local),
            assumption=(
                "the curator is trusted; every iterate is public, who was drawn is not; draws are not limited"
            ),
        ),
        *(
            Row(setting=f"network, path {walk.paths}", sigma=sigma, assumption=walk.assumption)
            for walk, sigma in zip(walks, sigmas, strict=True)
        ),
    ]
    # An observer of the whole path knows senders and receivers: either claim covers Definition 4.1.
    least, walk = min(((sigmas[0], walks[0]), (sigmas[2], walks[2])), key=lambda one: one[0])
    rows.append(Row(setting="network, convex losses", sigma=least, assumption=walk.assumption))
    return SgdPlan(
        parties=parties,
        steps=steps,
        max_contributions=contributions,
        lipschitz=lipschitz,
        epsilon=epsilon,
        delta=delta,
        published=published,
        published_relation=(
            "a gradient moves by L (one party's gradient set to 0) for local and network; record of one "
            "party out of n for central; different accounting in each, so not to be compared"
        ),
        fair=Sigmas(local=local, central=min(central, local), network=sigmas[0]),
        relation=SUBSTITUTE_PARTY,
        rows=rows,
        warnings=warnings,
    )
