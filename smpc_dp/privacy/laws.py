"""Integer noise as probability mass functions: the laws that mechanisms add, and what a shift of them shows.

Every law is symmetric about its centre and log-concave (for sums of discrete Gaussians see
`accountant.events`), so the set that tells a shift best is a half-line, and a larger shift shows more.
Masses are held as logarithms, relative to each other, on a range that leaves out at most `TAIL` of the mass.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from smpc_dp.errors import ConfigError

Floats = NDArray[np.float64]

# The mass that a truncated range leaves out, at most; e^-46.
TAIL = 1.1e-20
_LOG_TAIL = 46.0
# Above the error of summing masses whose logarithms are good to about 1e-11.
MARGIN = 1e-9
# The widest range that is summed; wider laws need a bound instead.
MAX_SUPPORT = 1 << 20
# Convolutions, and recurrences without a vector form, are quadratic or slow.
MAX_CONVOLUTION = 1 << 13
MAX_RECURRENCE = 1 << 17


class Law(msgspec.Struct, frozen=True, tag_field="law", forbid_unknown_fields=True):
    """The law of one share of noise on the integers, centred at 0."""

    @property
    def variance_of_one(self) -> Fraction:
        """The variance in squared grid steps; of the discrete Gaussian its parameter, which is no less."""
        raise NotImplementedError


class DiscreteGaussianLaw(Law, frozen=True, tag="discrete-gaussian"):
    """Mass proportional to exp(-x^2 / (2 variance)) [Canonne, Kamath, Steinke 2020, Definition 1]."""

    variance: Fraction

    @property
    def variance_of_one(self) -> Fraction:
        return self.variance


class DiscreteLaplaceLaw(Law, frozen=True, tag="discrete-laplace"):
    """Mass proportional to exp(-|x| / scale)."""

    scale: Fraction

    @property
    def variance_of_one(self) -> Fraction:
        # 2q/(1-q)^2 = 1/(2 sinh^2(1/(2 scale))), as a float made exact
        half = 1 / (2 * float(self.scale))
        return Fraction(1 / (2 * math.sinh(half) ** 2)) if half < 300 else Fraction(0)


class SkellamLaw(Law, frozen=True, tag="skellam"):
    """The difference of two Poisson variables of mean variance / 2."""

    variance: Fraction

    @property
    def variance_of_one(self) -> Fraction:
        return self.variance


class BinomialLaw(Law, frozen=True, tag="binomial"):
    """Heads of `trials` fair coins; centred by subtracting trials // 2 (a public constant)."""

    trials: int

    @property
    def variance_of_one(self) -> Fraction:
        return Fraction(self.trials, 4)


AnyLaw = DiscreteGaussianLaw | DiscreteLaplaceLaw | SkellamLaw | BinomialLaw


@functools.lru_cache(maxsize=64)
def log_masses(law: AnyLaw, shares: int = 1, more: int = 0) -> Floats:
    """Return the log masses of a sum of `shares` draws on -W..W, `more` wider than the tail asks for.

    The binomial stands on 0..trials, or what of it is not in the tails. Raises ConfigError where the range
    would be too wide to sum, and for a sum of discrete Gaussians, which has no simple form.
    """
    match law:
        case DiscreteGaussianLaw():
            if shares != 1:
                raise ConfigError("a sum of discrete Gaussians is not a discrete Gaussian")
            variance = float(law.variance)
            x = _symmetric(math.sqrt(2 * (_LOG_TAIL + 1) * variance) + more)
            logs = -(x**2) / (2 * variance)
        case DiscreteLaplaceLaw() if shares == 1:
            x = _symmetric(float(law.scale) * (_LOG_TAIL + 1) + more)
            logs = -np.abs(x) / float(law.scale)
        case DiscreteLaplaceLaw():
            logs = _laplace_sum(float(law.scale), shares, more)
        case SkellamLaw():
            logs = _skellam(float(law.variance * shares), more)
        case BinomialLaw():
            logs = _binomial(law.trials * shares, more)
    logs = logs - logsumexp(logs)
    logs.setflags(write=False)
    return logs


def _symmetric(width: float) -> Floats:
    if not width < MAX_SUPPORT / 2:
        raise ConfigError(f"noise over {2 * width:.3g} grid steps is too wide to sum, at most {MAX_SUPPORT}")
    reach = math.ceil(width) + 1
    return np.arange(-reach, reach + 1, dtype=np.float64)


def _laplace_sum(scale: float, shares: int, more: int) -> Floats:
    """Each draw is the difference of two geometric variables, so the sum is one of negative binomials."""
    q = math.exp(-1 / scale)
    # Chernoff: the sum exceeds W with probability at most exp(shares log M(t) - t W), for any t < 1/scale
    widths = []
    for part in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        t = part / scale
        log_m = 2 * math.log1p(-q) - math.log1p(-q * math.exp(t)) - math.log1p(-q * math.exp(-t))
        widths.append((shares * log_m + _LOG_TAIL + 1) / t)
    reach = math.ceil(min(widths)) + 1 + more
    # A negative binomial has the heavier tail of the two: its mean and the same Chernoff width
    length = reach + math.ceil(shares * q / (1 - q)) + math.ceil(scale * (_LOG_TAIL + shares)) + 1
    if 2 * length > MAX_CONVOLUTION:
        raise ConfigError(f"a sum of discrete Laplace noise over {2 * length} grid steps is too wide to sum")
    k = np.arange(1, length, dtype=np.float64)
    logs = np.concatenate(([0.0], np.cumsum(np.log((k + shares - 1) / k) - 1 / scale)))
    masses = np.exp(logs - logsumexp(logs))
    whole = np.convolve(masses, masses[::-1])
    centre = len(masses) - 1
    return np.log(whole[centre - reach : centre + reach + 1])


def _skellam(variance: float, more: int) -> Floats:
    """exp(-v) I_k(v): ratios of Bessel functions by their downward recurrence, which is stable."""
    # Bennett: P(X >= W) <= exp(-W^2 / (2 (v + W/3)))
    width = (_LOG_TAIL + 1) / 3 + math.sqrt(((_LOG_TAIL + 1) / 3) ** 2 + 2 * (_LOG_TAIL + 1) * variance)
    width += more
    if not width < MAX_RECURRENCE:
        raise ConfigError(f"Skellam noise over {2 * width:.3g} grid steps is too wide to sum")
    reach = math.ceil(width) + 1
    ratio, logs = 0.0, np.empty(reach)
    for k in range(reach + 50 + 4 * math.isqrt(math.ceil(variance)), 0, -1):
        ratio = 1 / (2 * k / variance + ratio)  # I_k / I_{k-1}
        if k <= reach:
            logs[k - 1] = math.log(ratio)
    right = np.cumsum(logs)
    return np.concatenate((right[::-1], [0.0], right))


def _binomial(trials: int, more: int) -> Floats:
    """From the middle outwards by ratios; Hoeffding: P(|X - n/2| >= W) <= 2 exp(-2 W^2 / n)."""
    reach = math.ceil(math.sqrt((_LOG_TAIL + 1) * trials / 2)) + 1 + more
    if 2 * reach > MAX_SUPPORT:
        raise ConfigError(f"binomial noise of {trials} trials is too wide to sum")
    lowest, highest = max(0, trials // 2 - reach), min(trials, trials // 2 + reach)
    x = np.arange(lowest, highest, dtype=np.float64)
    return np.concatenate(([0.0], np.cumsum(np.log((trials - x) / (x + 1)))))


def losses(law: AnyLaw, shares: int, shift: int) -> tuple[Floats, Floats, float]:
    """Return (loss log P(x)/P(x - shift), log mass P(x), mass whose loss counts as infinite), shift >= 1.

    By symmetry the loss of the moved noise against the one in place has the same law.
    """
    logs = log_masses(law, shares, shift)
    if shift >= len(logs):
        return np.empty(0), np.empty(0), 1.0
    infinite = TAIL + math.fsum(np.exp(logs[:shift]))
    return logs[shift:] - logs[:-shift], logs[shift:], infinite


def hockey_stick(law: AnyLaw, shares: int, shift: int, epsilon: float) -> float:
    """Return the least delta at `epsilon` between the noise and the noise moved by `shift`, rounded up."""
    if shift == 0:
        return 0.0
    loss, mass, infinite = losses(law, shares, shift)
    gain = loss > epsilon
    total = math.fsum(np.exp(mass[gain]) * -np.expm1(epsilon - loss[gain]))
    return min(1.0, (total + infinite) * (1 + MARGIN))
