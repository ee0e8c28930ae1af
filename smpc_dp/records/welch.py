"""Welch's test of two noisy means, with a standard error at the hypothesis that does not move with the noise.

The noise that moves a mean moves the estimated variance of its values too: with the standard error at the
estimates a test rejects too often on one side and too seldom on the other. So the standard error is that at
the tested difference: the means are the nearest ones that have this difference, and of the values' variances
the part is subtracted that goes with the error of the difference.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from smpc_dp.privacy.search import bisect
from smpc_dp.records.intervals import (
    NORMAL,
    ErrorDistribution,
    Interval,
    Part,
    normal_quantile,
    sum_quantile,
    within,
)
from smpc_dp.records.population import p_value, two_sided

# The least variance of the rows over that of the noise. Cut at 0, where the truth may be, it would be too
# large on average, and the test would reject too seldom.
_LEAST = -0.5
_HALVINGS = 44


@dataclass(frozen=True)
class NoisyMean:
    """Noisy mean of one group, less the middle of the column's range, with variances of noise and values.

    Attributes:
        rows, total: the noisy number of values, and their sum less the middle of the range times that number.
        variance: of the values, corrected for the bias that noise brings; variance_error: its noise error.
        errors: the noise deviations of the total, of the rows, and of the sum of squares.
        distributions: of the first two noises.
    """

    rows: float
    total: float
    variance: float
    variance_error: float
    errors: tuple[float, float, float]
    distributions: tuple[ErrorDistribution, ErrorDistribution]

    @property
    def value(self) -> float:
        """The noisy total over the noisy number of rows."""
        return self.total / self.rows

    @property
    def noise(self) -> float:
        """The standard error that the noise brings to the mean, to first order."""
        return math.sqrt(self.noise_variance(self.value))

    def noise_variance(self, mean: float) -> float:
        """Return the variance that the noise brings to the mean, if this is the mean without noise."""
        return (self.errors[0] ** 2 + (mean * self.errors[1]) ** 2) / self.rows**2

    @property
    def parts(self) -> list[Part]:
        """The errors that the noise of the total and of the rows brings to the mean."""
        errors = self.errors[0] / self.rows, self.value * self.errors[1] / self.rows
        return list(zip(errors, self.distributions, strict=True))

    @property
    def sampling_variance(self) -> float:
        """The variance of the mean over samples of rows, 0 at least."""
        return max(self.uncut_sampling_variance, 0.0)

    @property
    def uncut_sampling_variance(self) -> float:
        """The variance of the mean over samples of rows, which its own noise may make negative."""
        return self.variance / (self.rows - 1)

    @property
    def whole(self) -> float:
        """The variance of the mean by noise and sampling."""
        return self.noise_variance(self.value) + self.sampling_variance

    @property
    def by_noise(self) -> float:
        """The part of a mean's squared error by which noise makes the values' squares about it too small.

        The error of sampling makes them too small by its square as well, for which rows less 1 allow.
        """
        return 1 - (self.sampling_variance / self.whole) ** 2 if self.whole > 0 else 0.0

    def sampling_variance_noise(self, mean: float) -> float:
        """Return the variance that noise brings to the mean's sampling variance."""
        total, rows, squares = self.errors
        return (squares**2 + (2 * mean * total) ** 2 + (mean**2 * rows) ** 2) / self.rows**4

    def shared(self, mean: float) -> float:
        """Return the covariance that noise brings between the mean and its sampling variance."""
        total, rows, _ = self.errors
        return -mean * (2 * total**2 + (mean * rows) ** 2) / self.rows**3


@dataclass(frozen=True)
class WelchTest:
    """Test of the difference of two noisy means, first less second, and the interval that belongs to it."""

    first: NoisyMean
    second: NoisyMean

    @property
    def difference(self) -> float:
        """The first noisy mean less the second."""
        return self.first.value - self.second.value

    @property
    def noise(self) -> float:
        """The standard error that the noise brings to the difference, to first order."""
        return math.hypot(self.first.noise, self.second.noise)

    @property
    def sampling(self) -> float:
        """The standard error of the difference over samples of rows."""
        return math.sqrt(self.first.sampling_variance + self.second.sampling_variance)

    @property
    def parts(self) -> list[Part]:
        """All independent errors of the difference, those of sampling as one."""
        return [*self.first.parts, *self.second.parts, (self.sampling, NORMAL)]

    @functools.cached_property
    def _has_normal_errors(self) -> bool:
        return all(distribution.is_normal for _, distribution in self.parts)

    def ends(self, outside: float, most: float) -> Interval:
        """Return the interval of all differences that the test does not reject, each end within `most`.

        Args:
            outside: the level of the test.
            most: the size of the greatest difference that is possible.
        """
        if self.noise == self.sampling == 0:
            return self.difference, self.difference
        # Student's t is exceeded as seldom as a normal number is at the quantile of the sum.
        rare = outside if self._has_normal_errors else two_sided(sum_quantile(self.parts, outside))
        reach = most + abs(self.difference)

        def end(sign: float) -> float:
            if self._probability(sign * reach) > rare:
                return -sign * math.inf
            return (
                self.difference
                - sign
                * bisect(lambda error: self._probability(sign * error) > rare, 0.0, reach, _HALVINGS)[1]
            )

        return within((end(1.0), end(-1.0)), -most, most)

    def p_value(self) -> float | None:
        """Return the two-sided p-value of the difference being 0, the noise included; None without errors."""
        if self.noise == self.sampling == 0:
            return None
        probability = self._probability(self.difference)
        if probability <= 0 or self._has_normal_errors:
            return probability
        whole = math.hypot(*(error for error, _ in self.parts))
        return p_value(normal_quantile(probability) * whole, self.parts)

    def _probability(self, error: float) -> float:
        """Return the two-sided probability of an error of the difference, by Student's t."""
        square, freedom = self._at(error)
        return two_sided(error / math.sqrt(square), freedom)

    def _at(self, error: float) -> tuple[float, float]:
        """Return variance and degrees of freedom of the difference, if it has this error."""
        whole = self.first.whole + self.second.whole
        noise = squares = sampled = moved = shared = 0.0
        for sign, group in ((1.0, self.first), (-1.0, self.second)):
            part = group.whole / whole
            # of both means this error is distributed by their variances
            mean = group.value - sign * part * error
            noise += group.noise_variance(mean)
            squares += (
                group.uncut_sampling_variance + group.by_noise * part**2 * (error**2 - whole) / group.rows
            )
            sampled += 2 * group.sampling_variance**2 / (group.rows - 1)
            moved += group.sampling_variance_noise(mean)
            shared += sign * group.shared(mean)
        squares -= shared / whole * error
        square = noise + max(squares, _LEAST * noise)
        # The noise's part of the variance is known; its ratio to the square of the variance is overestimated
        # where the variance is small: so much that the level is right for a variance of two such deviations.
        own = max(moved - shared**2 / whole, 0.0)
        own *= square**2 / (square**2 + 2 * own)
        uncertain = sampled + own
        return square, 2 * square**2 / uncertain if uncertain > 0 else math.inf
