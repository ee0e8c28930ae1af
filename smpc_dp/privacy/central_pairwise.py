"""Sensitivity, noise and error of a private U-statistic with one noise for the whole sum.

The servers compute the integer S, the sum over pairs of a kernel's integers 0..steps. Substitution of one
record moves it by at most a table's entry; the proofs are in docs/proofs/servers.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

import msgspec

from smpc_dp.errors import ConfigCheck
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers, is_number
from smpc_dp.privacy.central_noise import CentralNoise, CoarseGaussian, FlooredLaplace
from smpc_dp.privacy.pairwise_plan import check_zetas, complete_error, plan_pairwise, sampling_error

CentralDistribution = Literal["laplace", "gaussian"]
DISTRIBUTIONS = ("laplace", "gaussian")
COUNT_SHARE = Fraction(1, 4)
"""Of epsilon, what the number of records of label 1 gets beside the sum over pairs, with private labels."""


@checks_numbers
def sum_sensitivity(
    steps: int, parties: int, public_labels: tuple[int, int] | None = None, partners: int = 0
) -> int:
    """Return the most grid steps that a substituted record moves a pairwise sum; `public_labels`: counts.

    | design | pairs | S moves by | the mean moves by |
    |---|---|---|---|
    | all pairs | n (n - 1) / 2 | (n - 1) steps | 2/n of the range |
    | public labels, n+ and n- of them | n+ n- | max(n+, n-) steps | 1 / min(n+, n-) of the range |
    | P partners each | P n / 2 | P steps | 2/n of the range |

    It is reached by every kernel of this package on all pairs. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("steps", steps, 1, 1 << 128)
    checks.require_integer("parties", parties, 2, 1_000_000)
    checks.require_integer("partners", partners, 0, 1_000_000)
    for count in public_labels or ():
        checks.require_integer("public_labels", count, 0, 1_000_000)
    checks.raise_issues()
    if partners:
        return partners * steps
    return (max(public_labels) if public_labels else parties - 1) * steps


def split(epsilon: float, shares: list[Fraction]) -> list[float]:
    """Return epsilon times each of the shares, rounded down to floats."""
    result = []
    for share in shares:
        part = float(Fraction(epsilon) * share)
        result.append(part if Fraction(part) <= Fraction(epsilon) * share else math.nextafter(part, 0.0))
    return result


def design_central(
    distribution: CentralDistribution,
    sensitivities: list[int],
    spans: list[int],
    epsilon: float,
    delta: float,
) -> list[CentralNoise]:
    """Return noise for one integer, or a sum and a count, so that revealing all is (epsilon, delta)-DP.

    One integer, or the sum over pairs and a count; the count gets a quarter of epsilon, and of delta.
    Raises ConfigError for delta 0 with Gaussian noise, or above 0 with Laplace.
    """
    checks = ArgumentChecks()
    if distribution not in DISTRIBUTIONS:
        checks.add_issue(
            "noise", f"{distribution!r} is none of {', '.join(DISTRIBUTIONS)}", ConfigCheck.CHOICE
        )
    elif not is_number(delta) or not (0 < delta < 1 if distribution == "gaussian" else delta == 0):
        checks.add_issue("delta", f"{delta!r}: in (0, 1) for Gaussian noise, else 0", ConfigCheck.RANGE)
    checks.require_budget(epsilon)
    checks.raise_issues()
    shares = [Fraction(1)] if len(spans) == 1 else [1 - COUNT_SHARE, COUNT_SHARE]
    budgets, deltas = split(epsilon, shares), split(delta, shares) if delta else [0.0] * len(shares)
    return [
        CoarseGaussian.design(sensitivity, span, part, loss)
        if distribution == "gaussian"
        else FlooredLaplace.design(sensitivity, span, part)
        for sensitivity, span, part, loss in zip(sensitivities, spans, budgets, deltas, strict=True)
    ]


class CentralPlan(msgspec.Struct, frozen=True, kw_only=True, rename={"distribution": "law"}):
    """Plan of a pairwise statistic that servers compute on secret shares: noise and expected error."""

    parties: int
    epsilon: float
    delta: float
    distribution: CentralDistribution
    partners: int
    """Pairs of each party; 0 for all pairs."""
    pairs: int
    zeta_1: float
    zeta_2: float
    width: float
    steps: int
    """Of the kernel's grid: its range in integers."""
    sensitivity: float
    """Of the mean over pairs, for one record."""
    noise_error: float
    """Variance of the noise in the mean, that of its grid with it."""
    sampling_error: float
    mean_squared_error: float
    standard_error: float
    two_party_error: float | None
    """Mean squared error of the two-party protocol with its best number of partners; None for odd n."""
    gain: float | None
    """That divided by this one's."""
    relation: str
    assumption: str


@checks_numbers
def plan_central(
    parties: int,
    epsilon: float,
    zeta_1: float,
    zeta_2: float,
    *,
    delta: float = 0.0,
    distribution: CentralDistribution = "laplace",
    width: float = 1.0,
    steps: int = 2,
    partners: int = 0,
) -> CentralPlan:
    """Plan noise and error of a pairwise statistic on servers, over all pairs or random matchings.

    n at least 3; 0 <= 2 zeta_1 <= zeta_2 <= width^2 / 4. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 3, 1_000_000)
    checks.require_budget(epsilon)
    checks.require_positive("width", width, 1e9)
    checks.require_integer("steps", steps, 1, 1 << 40)
    checks.require_integer("partners", partners, 0, 1_000_000)
    check_zetas(checks, zeta_1, zeta_2, width)
    checks.raise_issues()
    pairs = partners * (parties // 2) if partners else parties * (parties - 1) // 2
    moved = sum_sensitivity(steps, parties, None, partners)
    (noise,) = design_central(distribution, [moved], [pairs * steps], epsilon, delta)
    unit = width / steps
    noise_error = noise.variance * (unit / pairs) ** 2
    sampling = (
        sampling_error(parties, partners, zeta_1, zeta_2)
        if partners
        else complete_error(parties, zeta_1, zeta_2)
    )
    baseline = None
    if parties % 2 == 0 and parties >= 4:
        baseline = plan_pairwise(parties, epsilon, zeta_1, zeta_2, width=width).mean_squared_error
    total = noise_error + sampling
    return CentralPlan(
        parties=parties,
        epsilon=epsilon,
        delta=delta,
        distribution=distribution,
        partners=partners,
        pairs=pairs,
        zeta_1=zeta_1,
        zeta_2=zeta_2,
        width=width,
        steps=steps,
        sensitivity=moved * unit / pairs,
        noise_error=noise_error,
        sampling_error=sampling,
        mean_squared_error=total,
        standard_error=math.sqrt(total),
        two_party_error=baseline,
        gain=None if baseline is None else baseline / total,
        relation="substitution of one user's record",
        assumption=(
            "fewer than half of the servers pool what they see, and all of them follow the protocol; "
            "epsilon holds for what is opened, against computationally bounded observers; "
            "records are independent and of one distribution for the error"
        ),
    )


def auc_sampling_error(positives: int, negatives: int) -> float:
    """Return the greatest sampling variance of an AUC, 1 / (4 min(n+, n-)) [Birnbaum, Klose 1957]."""
    return 1 / (4 * min(positives, negatives))
