"""Noise distributions on the integers, each defined once for sampler, accountant, mechanisms and plans.

Every distribution is symmetric about its centre and log-concave (sums of discrete Gaussians are not handled
here: see `mechanisms.smoothing`), so the set that distinguishes a shift best is a half-line, and a larger
shift costs more. Masses are held as logarithms, relative to each other, on a range that leaves out at most
`TAIL` of the mass.
"""

from __future__ import annotations

import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy import sampling
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The mass that a truncated range leaves out, at most; e^-46.
TAIL = 1.1e-20
_LOG_TAIL = 46.0
# Above the error of summing masses whose logarithms are good to about 1e-11.
MARGIN = 1e-9
# The widest range that is summed; wider distributions need a bound instead.
MAX_SUPPORT = 1 << 20
# Convolutions, and recurrences without a vector form, are quadratic or slow.
MAX_CONVOLUTION = 1 << 13
MAX_RECURRENCE = 1 << 17


class NoiseDistribution(msgspec.Struct, frozen=True, tag_field="law", forbid_unknown_fields=True):
    """Base of distributions of integer noise centred at 0, each a family with one parameter."""

    words: ClassVar[str]
    """The family and its parameter."""
    pure: ClassVar[bool] = False
    """Whether a bounded shift shows a bounded epsilon without a delta."""

    @classmethod
    def parameter(cls) -> str:
        """Return the name of the family's parameter: scale, variance or trials."""
        return cls.__struct_fields__[0]

    @classmethod
    def checked(cls, value: object) -> Fraction | int:
        """Convert a value to the family's parameter; raise ConfigError if it is not permitted."""
        return checked_parameter(cls.parameter(), value)

    @classmethod
    def rounded(cls, parameter: Fraction) -> Fraction | int:
        """Return the least permitted parameter that is at least this one."""
        return parameter

    @classmethod
    def start(cls, _l1: float, l2: float) -> Fraction:
        """Return the parameter at which the search for the least noise starts, from L2 sensitivity."""
        return Fraction(math.ceil(l2**2))

    @property
    def value(self) -> Fraction:
        """Parameter of this distribution as an exact fraction."""
        return Fraction(getattr(self, self.parameter()))

    def describe(self) -> str:
        """Return words that name the family and its parameter."""
        value = self.value
        return self.words.format(value.numerator if value.denominator == 1 else f"{float(value):.10g}")

    def share(self, shares: int) -> Fraction:
        """Return the parameter of one of `shares` noises that sum to about this: value/shares, >= 1/4."""
        return max(self.value / shares, Fraction(1, 4))

    def draw(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` independent noise integers; here NotImplementedError, for subclasses."""
        raise NotImplementedError

    def unscaled_log_masses(self, shares: int, margin: int) -> Floats:
        """Return unnormalised log masses of a sum of draws; here NotImplementedError."""
        raise NotImplementedError


class DiscreteGaussianDistribution(NoiseDistribution, frozen=True, tag="discrete-gaussian"):
    """Discrete Gaussian noise: mass ~ exp(-x^2 / (2 variance)) [Canonne, Kamath, Steinke 2020]."""

    variance: Fraction
    words = "discrete Gaussian noise of variance parameter {}"

    def weights(self, reach: int) -> list[Decimal]:
        """Return exp(-x^2 / (2 variance)) for x = 0..reach as decimals."""
        rate = self.variance.denominator / (2 * Decimal(self.variance.numerator))
        return [(-rate * x * x).exp() for x in range(reach + 1)]

    def draw(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` independent discrete Gaussian integers, exactly."""
        return sampling.discrete_gaussian(source, count, self.variance)

    def unscaled_log_masses(self, shares: int, margin: int) -> Floats:
        """Return unnormalised log masses of a draw, without tails; ConfigError unless `shares` is 1."""
        if shares != 1:
            raise ConfigError(
                "a sum of discrete Gaussians is not a discrete Gaussian", ConfigCheck.UNSUPPORTED
            )
        variance = float(self.variance)
        return -(_symmetric(math.sqrt(2 * (_LOG_TAIL + 1) * variance) + margin) ** 2) / (2 * variance)


class DiscreteLaplaceDistribution(NoiseDistribution, frozen=True, tag="discrete-laplace"):
    """Discrete Laplace noise: mass ~ exp(-|x| / scale) [Ghosh, Roughgarden, Sundararajan 2009]."""

    scale: Fraction
    words = "discrete Laplace noise of scale {}"
    pure = True

    @classmethod
    def for_epsilon(cls, l1: float, epsilon: float) -> Self:
        """Return the distribution that makes a shift by `l1` exactly epsilon-DP."""
        return cls(Fraction(l1) / Fraction(epsilon))

    @classmethod
    def start(cls, l1: float, _l2: float) -> Fraction:
        """Return the scale at which the search for the least noise starts: the L1 sensitivity."""
        return Fraction(max(1, math.ceil(l1)))

    @property
    def variance(self) -> float:
        """Variance of one draw."""
        step = 1 / float(self.scale)
        return 2 * math.exp(-step) / math.expm1(-step) ** 2

    def epsilon(self, l1: float) -> float:
        """Return epsilon of a shift by `l1` with delta 0, rounded up."""
        exact = Fraction(l1) / self.scale
        near = float(exact)
        return near if Fraction(near) >= exact else math.nextafter(near, math.inf)

    def share(self, shares: int) -> Fraction:  # noqa: ARG002
        """Return the scale of a party's noise: the whole scale, so a sum has more noise than asked."""
        return self.scale

    def draw(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` independent discrete Laplace integers."""
        return sampling.discrete_laplace(source, count, self.scale)

    def unscaled_log_masses(self, shares: int, margin: int) -> Floats:
        """Return unnormalised log masses of a sum of draws; ConfigError if it is too wide."""
        scale = float(self.scale)
        if shares == 1:
            return -np.abs(_symmetric(scale * (_LOG_TAIL + 1) + margin)) / scale
        # Each draw is the difference of two geometric variables, so the sum is one of negative binomials.
        q = math.exp(-1 / scale)
        # Chernoff: the sum exceeds W with probability at most exp(shares log M(t) - t W), for any t < 1/scale
        widths = []
        for part in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
            t = part / scale
            log_m = 2 * math.log1p(-q) - math.log1p(-math.exp((part - 1) / scale))
            log_m -= math.log1p(-math.exp(-(part + 1) / scale))
            widths.append((shares * log_m + _LOG_TAIL + 1) / t)
        reach = math.ceil(min(widths)) + 1 + margin
        # A negative binomial has the heavier tail of the two: its mean and the same Chernoff width
        length = reach + math.ceil(shares * q / (1 - q)) + math.ceil(scale * (_LOG_TAIL + shares)) + 1
        if 2 * length > MAX_CONVOLUTION:
            reason = f"a sum of discrete Laplace noise over {2 * length} grid steps"
            raise ConfigError(f"{reason} is too wide to sum", ConfigCheck.TOO_LARGE)
        k = np.arange(1, length, dtype=np.float64)
        logs = np.concatenate(([0.0], np.cumsum(np.log((k + shares - 1) / k) - 1 / scale)))
        masses = np.exp(_normalised(logs))
        whole = np.convolve(masses, masses[::-1])
        centre = len(masses) - 1
        # what underflows is far below TAIL, which is counted as lost
        return np.asarray(np.log(np.maximum(whole[centre - reach : centre + reach + 1], 1e-300)))


class SkellamDistribution(NoiseDistribution, frozen=True, tag="skellam"):
    """Skellam noise: the difference of two Poisson variables; sums of draws are Skellam again."""

    variance: Fraction
    words = "Skellam noise of variance {}"

    def draw(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` independent Skellam integers."""
        return sampling.skellam(source, count, self.variance)

    def unscaled_log_masses(self, shares: int, margin: int) -> Floats:
        """Return unnormalised log masses of a sum of draws; ConfigError if it is too wide."""
        # exp(-v) I_k(v): ratios of Bessel functions by their downward recurrence, which is stable.
        variance = float(self.variance * shares)
        # Bennett: P(X >= W) <= exp(-W^2 / (2 (v + W/3)))
        width = (_LOG_TAIL + 1) / 3 + math.sqrt(((_LOG_TAIL + 1) / 3) ** 2 + 2 * (_LOG_TAIL + 1) * variance)
        width += margin
        if not width < MAX_RECURRENCE:
            raise ConfigError(
                f"Skellam noise over {2 * width:.3g} grid steps is too wide to sum", ConfigCheck.TOO_LARGE
            )
        reach = math.ceil(width) + 1
        ratio, logs = 0.0, np.empty(reach)
        for k in range(reach + 50 + 4 * math.isqrt(math.ceil(variance)), 0, -1):
            ratio = 1 / (2 * k / variance + ratio)  # I_k / I_{k-1}
            if k <= reach:
                logs[k - 1] = math.log(ratio)
        right = np.cumsum(logs)
        return np.concatenate((right[::-1], [0.0], right))


class BinomialDistribution(NoiseDistribution, frozen=True, tag="binomial"):
    """Centred binomial noise: heads of `trials` fair coins less trials // 2; sums are binomial again."""

    trials: int
    words = "binomial noise of {} fair coins"

    @classmethod
    def checked(cls, value: object) -> int:
        """Return a number of coins if it is even, 2 to 2^62; raise ConfigError for others."""
        if not isinstance(value, int) or isinstance(value, bool) or not 2 <= value < 1 << 62 or value % 2:
            raise ConfigError.at(
                "trials", f"must be an even integer from 2 to 2^62, is {value!r}", ConfigCheck.RANGE
            )
        return value

    @classmethod
    def rounded(cls, parameter: Fraction) -> int:
        """Return the least even number of coins that is at least `parameter`."""
        return 2 * max(1, math.ceil(parameter / 2))

    @classmethod
    def start(cls, l1: float, l2: float) -> Fraction:
        """Return a number of coins at which the search for the least noise starts."""
        return 2 * super().start(l1, l2)

    @property
    def variance(self) -> Fraction:
        """Variance of one draw."""
        return Fraction(self.trials, 4)

    def share(self, shares: int) -> Fraction:
        """Return the number of coins of a party's noise: the whole number divided by `shares`."""
        return Fraction(max(2, self.trials // shares))

    def draw(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` independent centred binomial integers."""
        return sampling.binomial(source, count, self.trials, Fraction(1, 2)) - self.trials // 2

    def unscaled_log_masses(self, shares: int, margin: int) -> Floats:
        """Return unnormalised log masses of a sum of draws; ConfigError if it is too wide."""
        # From the middle outwards by ratios; Hoeffding: P(|X - n/2| >= W) <= 2 exp(-2 W^2 / n).
        trials = self.trials * shares
        reach = math.ceil(math.sqrt((_LOG_TAIL + 1) * trials / 2)) + 1 + margin
        if 2 * reach > MAX_SUPPORT:
            raise ConfigError(f"binomial noise of {trials} trials is too wide to sum", ConfigCheck.TOO_LARGE)
        lowest, highest = max(0, trials // 2 - reach), min(trials, trials // 2 + reach)
        x = np.arange(lowest, highest, dtype=np.float64)
        return np.concatenate(([0.0], np.cumsum(np.log((trials - x) / (x + 1)))))


AnyDistribution = (
    DiscreteGaussianDistribution | DiscreteLaplaceDistribution | SkellamDistribution | BinomialDistribution
)


def checked_parameter(name: str, value: object) -> Fraction:
    """Return a noise parameter as a fraction; ConfigError unless it is an int or Fraction above 0."""
    if not isinstance(value, Fraction | int) or isinstance(value, bool) or value <= 0:
        raise ConfigError.at(
            name, f"must be an integer or a fractions.Fraction above 0, is {value!r}", ConfigCheck.TYPE
        )
    return Fraction(value)


@functools.lru_cache(maxsize=64)
def log_masses(distribution: AnyDistribution, shares: int = 1, more: int = 0) -> Floats:
    """Return log probabilities of a sum of `shares` noise draws at -W..W, W being `more` beyond its tail.

    The binomial stands on 0..trials, or what of it is not in the tails. Raises ConfigError where the range
    would be too wide to sum, and for a sum of discrete Gaussians, which has no simple form.
    """
    normal = _normalised(distribution.unscaled_log_masses(shares, more))
    normal.setflags(write=False)
    return normal


def _normalised(logs: Floats) -> Floats:
    """Return log masses shifted so that the masses sum to 1."""
    # Not at the top: parties draw from distributions, and do not sum them.
    from scipy.special import logsumexp

    return np.asarray(logs - logsumexp(logs))


def _symmetric(width: float) -> Floats:
    """Return all integers from about -width to width; raise ConfigError if there are too many."""
    if not width < MAX_SUPPORT / 2:
        raise ConfigError(
            f"noise over {2 * width:.3g} grid steps is too wide to sum, at most {MAX_SUPPORT}",
            ConfigCheck.TOO_LARGE,
        )
    reach = math.ceil(width) + 1
    return np.arange(-reach, reach + 1, dtype=np.float64)


def losses(distribution: AnyDistribution, shares: int, shift: int) -> tuple[Floats, Floats, float]:
    """Return (privacy losses of noise against shifted noise, their log masses, mass of infinite loss).

    By symmetry the loss of the shifted noise against the unshifted one has the same distribution.
    """
    logs = log_masses(distribution, shares, shift)
    if shift >= len(logs):
        return np.empty(0), np.empty(0), 1.0
    infinite = TAIL + math.fsum(np.exp(logs[:shift]))
    return logs[shift:] - logs[:-shift], logs[shift:], infinite


def hockey_stick(distribution: AnyDistribution, shares: int, shift: int, epsilon: float) -> float:
    """Return delta at `epsilon` between a sum of noise draws and the sum shifted by `shift`, rounded up."""
    if shift == 0:
        return 0.0
    loss, mass, infinite = losses(distribution, shares, shift)
    gain = loss > epsilon
    total = math.fsum(np.exp(mass[gain]) * -np.expm1(epsilon - loss[gain]))
    return min(1.0, (total + infinite) * (1 + MARGIN))
