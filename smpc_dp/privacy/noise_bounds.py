"""Bounds that noise of known distributions stays within, with a probability: for confidence intervals.

Each is proven: a bound holds with at least the probability that is asked for, and is at most a step wider
than the exact one where the distribution has a tight comparison. docs/reference/results.md has the cases.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.distributions import (
    TAIL,
    BinomialDistribution,
    DiscreteGaussianDistribution,
    SkellamDistribution,
    log_masses,
)
from smpc_dp.privacy.mechanisms.smoothing import ripple

Summed = DiscreteGaussianDistribution | SkellamDistribution | BinomialDistribution
# A distribution on the integers, in grid steps, and how many independent draws of it are in a sum.
Part = tuple[Summed, int]
# The constant of Berry and Esseen's theorem for sums of equally distributed terms [Shevtsova 2011].
BERRY_ESSEEN = 0.4748
# A comparison with a normal distribution may use up this part of the probability outside, not more.
_SHARE = 0.25


def half_width(parts: Sequence[Part], level: float) -> float:
    """Return w, in grid steps: a sum of noise draws is in [-w, w] with probability at least `level`.

    Draws of one family are added up exactly or compared with a normal distribution; several families share
    what may be outside.
    """
    families: dict[type[Summed], list[Part]] = defaultdict(list)
    for distribution, count in parts:
        if count:
            families[type(distribution)].append((distribution, count))
    outside = (1 - level) / max(1, len(families))
    return math.fsum(_WIDTHS[family](each, outside) for family, each in families.items())


def half_width_of_any(deviation: float, level: float) -> float:
    """Return w such that noise of mean 0 and this deviation is in [-w, w] at `level`, by Chebyshev."""
    return deviation / math.sqrt(1 - level)


def _variance(parts: Sequence[Part]) -> float:
    """Return the variance of a sum of counted independent noise draws."""
    return math.fsum(count * float(distribution.variance) for distribution, count in parts)


def _of_gaussians(parts: Sequence[Part], outside: float) -> float:
    """Return w that a sum of discrete Gaussians exceeds in size with probability at most `outside`.

    Each further draw moves the ratio of the masses by one ripple at most, and ripples fall with the variance
    (`mechanisms.smoothing`). For a discrete Gaussian X, P(X >= w + 1) <= P(N(0, V) >= w): the sum of
    exp(-x^2 / 2V) from w + 1 on is below its integral from w on, and over all integers it is at least sqrt(2
    pi V), by Poisson summation, which also gives E exp(tX) <= exp(t^2 V / 2), the bound for small V
    [Canonne, Kamath, Steinke 2020].
    """
    variance = _variance(parts)
    draws = sum(count for _, count in parts)
    least = min(float(distribution.variance) for distribution, _ in parts)
    apart = 0.0 if draws == 1 else (draws - 1) * ripple(least / 2)
    if apart > 0.01:
        return _of_subgaussian(variance, outside)
    return math.ceil(_normal(variance, outside * math.exp(-apart)))


def _of_subgaussian(variance: float, outside: float) -> float:
    """Return w that a subgaussian variable exceeds in size with probability at most `outside`."""
    return math.sqrt(2 * variance * math.log(2 / outside))


def _of_skellam(parts: Sequence[Part], outside: float) -> float:
    """Return w that a sum of Skellam draws exceeds in size with probability at most `outside`.

    Skellam noise of variance V is a sum of any number of equal terms, whose third absolute moments add up to
    V in the limit: Berry and Esseen's theorem leaves BERRY_ESSEEN / sqrt(V).
    """
    variance = sum((count * distribution.value for distribution, count in parts), Fraction(0))
    logs = math.log(2 / outside)
    # P(X >= w) <= exp(-w^2 / (2 (V + w/3))) [Bennett]
    bennett = logs / 3 + math.sqrt((logs / 3) ** 2 + 2 * logs * float(variance))
    return _compared(SkellamDistribution(variance), float(variance), 1.0, outside, bennett)


def _of_binomials(parts: Sequence[Part], outside: float) -> float:
    """Return w that a sum of binomial draws exceeds in size with probability at most `outside`.

    Of fair coins, +1/2 or -1/2, the third absolute moments add up to V / 2.
    """
    trials = sum(count * int(distribution.value) for distribution, count in parts)
    variance = trials / 4
    return _compared(BinomialDistribution(trials), variance, 0.5, outside, _of_subgaussian(variance, outside))


def _compared(
    distribution: SkellamDistribution | BinomialDistribution,
    variance: float,
    third: float,
    outside: float,
    otherwise: float,
) -> float:
    """Return a tail bound by exact masses if they can be summed, else by Berry-Esseen, else `otherwise`.

    `third`: the third absolute moments of the terms, divided by the variance.
    """
    try:
        logs = log_masses(distribution)
    except ConfigError as error:
        if error.issues[0].check is not ConfigCheck.TOO_LARGE:
            raise
    else:
        right = np.exp(logs[len(logs) // 2 :])
        # beyond[w] is P(X > w), summed from the far end, where the terms are small
        beyond = np.append(np.cumsum(right[:0:-1])[::-1], 0.0)
        return int(np.flatnonzero(2 * beyond <= outside - TAIL)[0])
    lost = 2 * BERRY_ESSEEN * third / math.sqrt(variance)
    return math.ceil(_normal(variance, outside - lost)) if lost <= _SHARE * outside else otherwise


def _normal(variance: float, outside: float) -> float:
    """Return w with P(|N(0, variance)| > w) = outside."""
    # Not at the top: sessions without an interval need no quantiles.
    from scipy.special import ndtri

    return -math.sqrt(variance) * float(ndtri(outside / 2))


_WIDTHS: dict[type[Summed], Callable[[Sequence[Part], float], float]] = {
    DiscreteGaussianDistribution: _of_gaussians,
    SkellamDistribution: _of_skellam,
    BinomialDistribution: _of_binomials,
}
