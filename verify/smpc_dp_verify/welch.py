"""Test of the difference of two noisy means, and the interval that belongs to it.

Specification: protocols/records/README.md, "Difference of means".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from smpc_dp_verify.distributions import NORMAL, Distribution, Part, distribution_of
from smpc_dp_verify.intervals import Ends, within
from smpc_dp_verify.population import TINY, is_clear, outside_of, two_sided

# The least variance of rows over that of the noise, and halvings of the range of an error.
LEAST, HALVINGS = -0.5, 44


@dataclass(frozen=True)
class NoisyMean:
    """Noisy sums of one group, of values in [-1, 1], and their variance with the error that noise brings.

    `errors`: deviations of the noise in the sum, in the rows and in the sum of squares; `laws`: of the first
    two.
    """

    rows: float
    total: float
    variance: float
    variance_error: float
    errors: tuple[float, float, float]
    distributions: tuple[Distribution, Distribution]

    @property
    def value(self) -> float:
        """The mean."""
        return self.total / self.rows

    @property
    def is_clear(self) -> bool:
        """Whether the variance is clear of its noise."""
        return is_clear(self.variance, self.variance_error)

    @property
    def uncut(self) -> float:
        """The variance of the mean over samples of rows, which noise may make negative."""
        return self.variance / (self.rows - 1)

    @property
    def sampling(self) -> float:
        """The variance of the mean over samples of rows."""
        return max(self.uncut, 0.0)

    @property
    def whole(self) -> float:
        """The variance of the mean by noise and by sampling."""
        return self.noise(self.value) + self.sampling

    def noise(self, mean: float) -> float:
        """Return the variance that noise brings to this mean."""
        return (self.errors[0] ** 2 + (mean * self.errors[1]) ** 2) / self.rows**2

    def of_sampling(self, mean: float) -> float:
        """Return the variance that noise brings to the variance over samples."""
        e, e_1, e_2 = self.errors
        return (e_2**2 + (2 * mean * e) ** 2 + (mean**2 * e_1) ** 2) / self.rows**4

    def shared(self, mean: float) -> float:
        """Return the covariance that noise brings between the mean and the variance over samples."""
        e, e_1, _ = self.errors
        return -mean * (2 * e**2 + (mean * e_1) ** 2) / self.rows**3

    @property
    def parts(self) -> list[Part]:
        """The errors that the noises of the sum and of the rows bring to the mean."""
        return [
            *zip(
                (self.errors[0] / self.rows, self.value * self.errors[1] / self.rows),
                self.distributions,
                strict=True,
            )
        ]


@dataclass(frozen=True)
class WelchTest:
    """Test of the difference of two noisy means, first less second."""

    first: NoisyMean
    second: NoisyMean

    @property
    def difference(self) -> float:
        """The first mean less the second."""
        return self.first.value - self.second.value

    @property
    def noise(self) -> float:
        """The standard error of the difference by noise."""
        return math.sqrt(sum(group.noise(group.value) for group in (self.first, self.second)))

    @property
    def sampling(self) -> float:
        """The standard error of the difference over samples of rows."""
        return math.sqrt(self.first.sampling + self.second.sampling)

    @property
    def _parts(self) -> list[Part]:
        return [*self.first.parts, *self.second.parts, (self.sampling, NORMAL)]

    def _probability(self, error: float) -> float:
        """Return the two-sided probability of an error of the difference."""
        whole = self.first.whole + self.second.whole
        noise = squares = of_rows = of_noise = shared = 0.0
        for sign, group in ((1.0, self.first), (-1.0, self.second)):
            part = group.whole / whole
            mean = group.value - sign * part * error
            noise += group.noise(mean)
            by_noise = 1 - (group.sampling / group.whole) ** 2 if group.whole > 0 else 0.0
            squares += group.uncut + by_noise * part**2 * (error**2 - whole) / group.rows
            of_rows += 2 * group.sampling**2 / (group.rows - 1)
            of_noise += group.of_sampling(mean)
            shared += sign * group.shared(mean)
        squares -= shared / whole * error
        square = noise + max(squares, LEAST * noise)
        own = max(of_noise - shared**2 / whole, 0.0)
        own *= square**2 / (square**2 + 2 * own)
        uncertain = of_rows + own
        freedom = 2 * square**2 / uncertain if uncertain > 0 else math.inf
        return two_sided(error / math.sqrt(square), freedom)

    def closeness(self, most: float) -> float:
        """Return how closely ends are found."""
        return math.ldexp(most + abs(self.difference), 1 - HALVINGS)

    def ends(self, outside: float, most: float) -> Ends:
        """Return the ends of the differences that are not rejected; `most`: the greatest possible one."""
        if self.noise == self.sampling == 0:
            return self.difference, self.difference
        distribution, rare = distribution_of(self._parts), outside
        if not distribution.is_normal:
            rare = two_sided(distribution.quantile(outside), math.inf)
        if math.isnan(rare):
            return math.nan, math.nan
        return within((self._end(1.0, rare, most), self._end(-1.0, rare, most)), -most, most)

    def _end(self, sign: float, rare: float, most: float) -> float:
        low, high = 0.0, most + abs(self.difference)
        if self._probability(sign * high) > rare:
            return -sign * math.inf
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._probability(sign * middle) > rare else (low, middle)
        return self.difference - sign * high

    def p_value(self) -> float | None:
        """Return the p-value of no difference; None without errors, NaN where programs may differ."""
        if self.noise == self.sampling == 0:
            return None
        probability, distribution = self._probability(self.difference), distribution_of(self._parts)
        if distribution.is_normal:
            return probability
        # some programs have 0 for what others have a number for
        return outside_of(distribution, NORMAL.quantile(probability)) if probability > TINY else math.nan
