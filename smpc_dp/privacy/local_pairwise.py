"""Pairwise statistics under local differential privacy, a baseline of the two-party protocol.

Algorithm 3.3 of [Bellet 2021]: each party quantises its record to k values and sends it by k-ary randomised
response; the aggregator averages the unbiased kernel (3.10) over all pairs. Variance and bounds for kernels
with values in [0, 1]; proofs in docs/proofs/planners.md, misprints in docs/proofs/errata.md.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.pairwise_plan import complete_error
from smpc_dp.privacy.response import ResponseDistribution

Floats = npt.NDArray[np.float64]

MAX_BINS = 100_000


@checks_numbers
def published_variance_bound(parties: int, bins: int, epsilon: float) -> float:
    """Return a paper's bound (Theorem 3.3) on the variance of a pairwise statistic with local DP."""
    n, rest = parties, ResponseDistribution.of_epsilon(bins, epsilon).retained
    return 1 / (n * rest**2) + (2 - rest) ** 2 / (2 * n * (n - 1) * rest**4)


@checks_numbers
def variance_bound(parties: int, bins: int, epsilon: float) -> float:
    """Return a bound on the variance of a pairwise statistic with local DP, below the published one.

    docs/proofs/planners.md proves it.
    """
    n, rest = parties, ResponseDistribution.of_epsilon(bins, epsilon).retained
    return 1 / (n * rest**2) + 1 / (2 * n * (n - 1) * rest**4)


def zetas(kernel: Floats, distribution: Floats) -> tuple[float, float]:
    """Return the variance components zeta_1 and zeta_2 of a pairwise kernel for records of a distribution."""
    conditional = kernel @ distribution
    mean = float(distribution @ conditional)
    return (
        max(0.0, float(distribution @ conditional**2) - mean**2),
        max(0.0, float(distribution @ kernel**2 @ distribution) - mean**2),
    )


def exact_variance(kernel: Floats, distribution: Floats, parties: int, epsilon: float) -> float:
    """Return the exact variance of a locally private pairwise statistic; ConfigError for unfit shapes.

    Covers both the sampling of records and the randomised response. Raises ConfigError for shapes, an
    asymmetric kernel, or chances that are negative or do not add up to 1.
    """
    k = len(distribution)
    if kernel.shape != (k, k) or not np.allclose(kernel, kernel.T):
        raise ConfigError.at(
            "kernel", f"shape {kernel.shape} is not a symmetric ({k}, {k}) matrix", ConfigCheck.SHAPE
        )
    if np.any(distribution < 0) or not math.isclose(float(distribution.sum()), 1.0, rel_tol=1e-9):
        raise ConfigError.at("distribution", "not chances that add up to 1", ConfigCheck.RANGE)
    response = ResponseDistribution.of_epsilon(k, epsilon)
    values = response.unbiased_pairs(kernel)
    answers = response.retained * distribution + response.lie
    return complete_error(parties, *zetas(values, answers))


def two_sample_variance(kernel: Floats, first: Floats, second: Floats, epsilon: float) -> float:
    """Return the variance that randomised response adds to a mean of pairs of two samples (as counts).

    `kernel` (k, k), symmetric or not; `first` and `second` (k,) count the records of the samples. Raises
    ConfigError for shapes, negative counts or an empty sample.
    """
    k = len(first)
    if kernel.shape != (k, k) or first.shape != second.shape:
        raise ConfigError.at("kernel", f"shape {kernel.shape} does not fit the counts", ConfigCheck.SHAPE)
    if min(first.min(), second.min()) < 0 or not min(first.sum(), second.sum()) > 0:
        raise ConfigError.at("counts", "negative, or a sample is empty", ConfigCheck.RANGE)
    response = ResponseDistribution.of_epsilon(k, epsilon)
    rest, b = response.retained, response.lie

    def covariance(counts: Floats) -> Floats:
        """Return the covariance of the unbiased histogram; each answer e has diag(q) - q q'."""
        n = counts.sum()
        lies = np.full(k, b)
        products = b * b * n + b * rest * (counts[:, None] + counts[None, :]) + rest**2 * np.diag(counts)
        return np.asarray((np.diag(rest * counts + n * lies) - products) / rest**2)

    one, other = covariance(first), covariance(second)
    right, left = kernel @ second, first @ kernel
    mixed = float(np.sum((kernel @ other) * (one @ kernel)))
    total = float(right @ one @ right) + float(left @ other @ left) + mixed
    return total / float(first.sum() * second.sum()) ** 2


def quantisation_error(
    bins: int, *, lipschitz: float | None = None, density_lipschitz: float | None = None
) -> float:
    """Return a bound on squared bias from rounding [0, 1] to `bins` cells, by one given constant.

    `lipschitz`: the kernel is L-Lipschitz in each argument and taken at the cells' centres: L^2 / k^2.
    `density_lipschitz`: the records' density on [0, 1] is L-Lipschitz and the kernel is averaged over
    pairs of cells: L^2 / (9 k^2). Theorem 3.4 prints other constants, see docs/proofs/errata.md. Exactly one
    is given.
    """
    if lipschitz is not None and density_lipschitz is None:
        return float((lipschitz / bins) ** 2)
    if density_lipschitz is None or lipschitz is not None:
        raise ConfigError.at("lipschitz", "give either lipschitz or density_lipschitz", ConfigCheck.CONFLICT)
    return float((density_lipschitz / (3 * bins)) ** 2)


@checks_numbers
def corollary_bins(parties: int, epsilon: float, constant: float) -> float:
    """Return a paper's number of cells, n^(1/4) sqrt(L epsilon); ConfigError unless epsilon <= 1.

    It balances the two errors in order.
    """
    if epsilon > 1:
        raise ConfigError.at(
            "epsilon", f"Corollary 3.1 needs epsilon <= 1, not {epsilon:g}", ConfigCheck.INFEASIBLE
        )
    return math.sqrt(math.sqrt(parties) * constant * epsilon)


@checks_numbers
def plan_quantisation(
    parties: int,
    epsilon: float,
    *,
    lipschitz: float | None = None,
    density_lipschitz: float | None = None,
) -> tuple[int, float]:
    """Return the number of cells with the least bound on a pairwise statistic's error, and that bound."""
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 2, 1_000_000_000)
    checks.require_budget(epsilon)
    for name, value in (("lipschitz", lipschitz), ("density_lipschitz", density_lipschitz)):
        if value is not None:
            checks.require_positive(name, value, 1e6)
    checks.raise_issues()

    def error(bins: int) -> float:
        """Return the bound on the mean squared error for so many cells."""
        bias = quantisation_error(bins, lipschitz=lipschitz, density_lipschitz=density_lipschitz)
        return variance_bound(parties, bins, epsilon) + bias

    # The variance rises and is convex in k, the bias falls and is convex: the sum has one minimum.
    low, high = 1, MAX_BINS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= error(middle + 1) else (middle + 1, high)
    return low, error(low)
