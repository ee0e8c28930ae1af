"""Laws of noises of statistics of records, and of their sums [docs/proofs/records.md].

Probabilities are sums over a normal mixture, or, of more than two noises of Laplace shares, over the
characteristic function.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# By these parts quantiles are raised: of normal noise, of the noise of one block, of a sum of noises.
OF_NORMAL, OF_BLOCK, OF_SUM = 1e-12, 1e-9, 1e-6
# Of the sum over a characteristic function: its period in deviations, where it ends at first and at the
# latest, by how much later each time, and the logarithm that is negligible.
PERIOD, FIRST, LAST, LATER, NEGLIGIBLE = 120.0, 8.0, 4000.0, 1.5, -34.0
STEP = 2 * math.pi / PERIOD
# A rounding error of such a sum, and the part of a probability that errors may be for two programs to agree.
ROUNDED, AGREED = 4e-15, 5e-10
# Of the mixture, for one noise of Laplace shares and for two: steps of the logarithm of a gamma number, the
# logarithm of the probability of smaller ones, and the least probability of a law.
FINE, BELOW, LEAST = (0.15, 0.25), (-38.0, -28.0), (0.0, 1e-18)
# How far gamma numbers reach, and for which probabilities such mixtures have all digits.
NEAR, FAR, KNOWN = 12.0, 400.0, (1e-9, 1e-6)
# From here on the tail of a normal law is taken from its asymptotic series.
ASYMPTOTIC = -25.0
HALVINGS = 200

Part = tuple[float, "Distribution"]
"""A deviation, and the law of an independent noise over its deviation."""


@dataclass(frozen=True)
class Distribution:
    """Law of a noise of variance 1: the sum of a normal number and of noises of Laplace shares.

    `normal`: the deviation of the former. `laplace`: deviation and shape of each of the latter: a normal
    number times the root of a gamma number of this shape. `raised`: by which part quantiles are raised.
    """

    normal: float = 1.0
    laplace: tuple[tuple[float, float], ...] = ()
    raised: float = OF_NORMAL

    @property
    def is_normal(self) -> bool:
        """Whether the noise is normal, without Laplace shares."""
        return not self.laplace

    def log_below(self, value: float) -> float:
        """Return the logarithm of the probability that the noise is at most this many deviations."""
        if self.is_normal:
            return log_normal(value)
        if len(self.laplace) > 2:
            within = math.copysign(self._within(min(abs(value), PERIOD / 2)), value)
            return math.log(max((1 + within) / 2, 1e-300))
        scale = -value / math.sqrt(2)
        chance = math.fsum(weight * math.erfc(scale * inverse) for inverse, weight in self._mixture) / 2
        return math.log(chance) if chance else -math.inf

    def outside(self, z: float) -> float:
        """Return the probability that the noise is more than z deviations from 0."""
        if len(self.laplace) > 2:
            return 1 - self._within(min(z, PERIOD / 2))
        return 2 * math.exp(self.log_below(-z))

    def quantile(self, outside: float) -> float:
        """Return z beyond which the noise is with this probability; NaN where two programs may differ."""
        return _quantile(self, outside)

    def agrees(self, outside: float) -> bool:
        """Tell whether the quantile here does not depend on how a program computes it."""
        if self.raised != OF_SUM:
            return self.is_normal or outside >= KNOWN[len(self.laplace) - 1]
        # here the mixture has the terms that those programs leave out, which nearly cancel
        left = 0.5 * math.exp(self._log_transform(self._end)) / self._end if len(self.laplace) < 3 else 0.0
        return ROUNDED + left <= AGREED * outside

    @functools.cached_property
    def _mixture(self) -> list[tuple[float, float]]:
        """Inverse deviations of normal laws, with weights, whose mixture this law is."""
        kind, pairs = len(self.laplace) - 1, [(self.normal**2, 1.0)]
        for deviation, shape in self.laplace:
            own, least = _variances(deviation, shape, kind), LEAST[kind]
            pairs = [(a + b, v * w) for a, v in pairs for b, w in own if v * w > least]
        return [(1 / math.sqrt(variance), weight) for variance, weight in pairs]

    def _log_transform(self, at: float) -> float:
        """Return the logarithm of the characteristic function."""
        parts = Counter(self.laplace).items()
        logs = (
            count * shape * math.log1p((at * weight) ** 2 / (2 * shape)) for (weight, shape), count in parts
        )
        return -((self.normal * at) ** 2) / 2 - sum(logs)

    @functools.cached_property
    def _end(self) -> float:
        end = FIRST
        while end < LAST and self._log_transform(end) > NEGLIGIBLE:
            end *= LATER
        return end

    @functools.cached_property
    def _terms(self) -> list[tuple[float, float]]:
        """Points of the sum over the characteristic function, with weights."""
        points = ((number + 0.5) * STEP for number in range(math.ceil(self._end / STEP)))
        return [(at, 2 * STEP / math.pi * math.exp(self._log_transform(at)) / at) for at in points]

    def _within(self, z: float) -> float:
        """Return the probability that the noise is within z deviations of 0."""
        return math.fsum(math.sin(z * at) * weight for at, weight in self._terms)


NORMAL = Distribution()


def laplace_distribution(shape: float, parts: Iterable[float] = (1.0,)) -> Distribution:
    """Return the law of a block with Laplace shares, or of one that is the difference of two such blocks.

    `shape`: shares in the sum over those that are one Laplace noise. `parts`: deviations of the blocks.
    """
    return Distribution(0.0, tuple((part, shape) for part in parts), OF_BLOCK)


def distribution_of(parts: Iterable[Part], *, is_sum: bool = False) -> Distribution:
    """Return the law of a sum of independent noises over its deviation.

    `is_sum`: a sum of one noise of Laplace shares is one too, whose quantile is raised as that of others.
    """
    used = [(abs(deviation), distribution) for deviation, distribution in parts if deviation]
    whole = math.hypot(*(deviation for deviation, _ in used))
    laplace = [
        (deviation / whole * weight, shape)
        for deviation, distribution in used
        for weight, shape in distribution.laplace
    ]
    if not laplace:
        return NORMAL
    normal = math.hypot(*(deviation / whole * distribution.normal for deviation, distribution in used))
    raised = OF_SUM if is_sum or normal or len(laplace) > 1 else OF_BLOCK
    return Distribution(normal, tuple(sorted(laplace)), raised)


def log_normal(value: float) -> float:
    """Return the logarithm of the probability that a standard normal number is at most this value."""
    if value > ASYMPTOTIC:
        return math.log(math.erfc(-value / math.sqrt(2)) / 2)
    square, term, series = value**2, 1.0, 1.0
    for odd in range(1, 16, 2):
        term *= -odd / square
        series += term
    return -square / 2 - math.log(-value * math.sqrt(2 * math.pi)) + math.log(series)


def _variances(deviation: float, shape: float, kind: int) -> list[tuple[float, float]]:
    """Return values of the variance of a noise of Laplace shares, with their probabilities."""
    low = (math.lgamma(shape + 1) + BELOW[kind]) / shape
    high = math.log(shape + NEAR * math.sqrt(shape) + FAR)
    count = math.ceil((high - low) / (FINE[kind] * min(1.0, 1 / math.sqrt(shape))))
    points = [low + (high - low) * number / count for number in range(count + 1)]
    logs = [shape * point - math.exp(point) - math.lgamma(shape) for point in points]
    weights = [math.exp(one) for one in logs]
    whole = math.fsum(weights)
    return [
        (deviation**2 / shape * math.exp(point), weight / whole)
        for point, weight in zip(points, weights, strict=True)
    ]


@functools.lru_cache(maxsize=4096)
def _quantile(distribution: Distribution, outside: float) -> float:
    if not distribution.agrees(outside):
        return math.nan
    high, wanted = 1.0, math.log(outside)
    while distribution.outside(high) > outside and high < PERIOD / 2:
        high *= 2
    z = solved(lambda z: wanted - math.log(max(distribution.outside(z), 1e-300)), 0.0, high)
    return z * (1 + distribution.raised)


def solved(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Return where an increasing function is 0, or the end that is nearest to it.

    By the rule of false position, in which the value at an end that stays is halved.
    """
    below, above = increasing(low), increasing(high)
    if below >= 0 or above <= 0:
        return low if below >= 0 else high
    side, last = 0, math.nan
    for _ in range(HALVINGS):
        point = (low * above - high * below) / (above - below)
        if not low < point < high:
            point = (low + high) / 2
        value = increasing(point)
        if value == 0 or abs(point - last) <= 1e-15 * abs(point) or high - low <= 1e-15 * abs(point):
            return point
        last = point
        if value < 0:
            low, below, above = point, value, above / 2 if side < 0 else above
            side = -1
        else:
            high, above, below = point, value, below / 2 if side > 0 else below
            side = 1
    return last
