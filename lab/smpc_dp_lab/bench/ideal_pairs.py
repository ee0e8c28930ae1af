"""The ideal functionality of the two-party protocol as arithmetic: kernel values of pairs with exact noise.

For figures, at any epsilon: coins in a circuit, which `simulate.pairwise` tosses, allow at most 12 per
evaluation.
"""

from __future__ import annotations

from smpc_dp.capabilities.pairs.kernels.fields import Codes
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.privacy.distributions import DiscreteLaplaceDistribution
from smpc_dp.privacy.pairwise_plan import sampling_error
from smpc_dp.privacy.sampling import NoiseSource


def noise_distribution(kernel: Kernel, epsilon: float, partners: int) -> DiscreteLaplaceDistribution:
    """Return the noise of scale P (max h - min h) / epsilon, in steps of the kernel's grid."""
    return DiscreteLaplaceDistribution.for_epsilon(partners * kernel.steps, epsilon)


def noisy_mean(kernel: Kernel, codes: Codes, matchings: Codes, epsilon: float, source: NoiseSource) -> float:
    """Return the mean of kernel values with discrete Laplace noise over given pairs [Bellet 2021, 3.3.4].

    `codes` (n, fields) are the records, n even; `matchings` (P, n) permutations: neighbours are a pair.
    """
    first, second = codes[matchings[:, ::2].ravel()], codes[matchings[:, 1::2].ravel()]
    noise = noise_distribution(kernel, epsilon, len(matchings))
    integers = kernel.integer(first, second) + noise.draw(source, len(first))
    return float(kernel.low + kernel.unit * integers.mean())


def noisy_mean_variance(
    kernel: Kernel, parties: int, epsilon: float, partners: int, zeta_1: float, zeta_2: float
) -> float:
    """Return the variance of `noisy_mean`, by a formula, for independent records.

    Theorem 3.7, corrected, with the variance of the discrete noise.
    """
    noise = kernel.unit**2 * noise_distribution(kernel, epsilon, partners).variance
    return sampling_error(parties, partners, zeta_1, zeta_2) + noise * 2 / (partners * parties)
