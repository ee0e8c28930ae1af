"""Exact samplers: integers in, integers out, from cryptographic randomness, with no rounding anywhere.

Each function draws `count` independent values of one distribution, whose probabilities are exactly as stated:
no floating point takes part in any decision. What is read from the randomness, and in which order, is
specified in `protocols/sampling/README.md`; two parties with equal `NoiseSource.keyed` sources that make the
same calls in the same order get the same values. Running times depend on the values: see there what that
gives away.

Parameters are integers or fractions. Each is refused with a ConfigError that names it unless it is in the
range stated; numerators and denominators are below 2**256. `count` is 0 to 2**32, `threads` 1 to 256, which
does not change the values. Within the ranges a value beyond int64 has a probability below 2**-500, and
raises OverflowError; MemoryError if so many values do not fit into memory.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.noise import NoiseSource
from smpc_dp.errors import ConfigCheck, ConfigError

__all__ = [
    "NoiseSource",
    "bernoulli_exp",
    "binomial",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "skellam",
    "uniform",
]

Integers = NDArray[np.int64]
Rational = Fraction | int

MAX_COUNT = 1 << 32
"""Most values of one call."""
MAX_SCALE = 1 << 50
"""Largest standard deviation, scale, and 1/x of a geometric distribution."""
MAX_VARIANCE = MAX_SCALE**2
MAX_TRIALS = 1 << 62
TERM_BITS = 256
"""Bits of a numerator or denominator."""
MAX_THREADS = 256


def bernoulli_exp(source: NoiseSource, count: int, x: Rational, *, threads: int = 1) -> NDArray[np.bool_]:
    """Draw booleans that are true with probability exp(-x), exactly, for x >= 0."""
    x = _rational("x", x, low=Fraction(0))
    return _draw(source, "bernoulli-exp", count, threads, x).astype(np.bool_)


def geometric(source: NoiseSource, count: int, x: Rational, *, threads: int = 1) -> Integers:
    """Draw geometric integers, P(k) = (1 - exp(-x)) exp(-x k) for k >= 0; x is at least 2**-50."""
    x = _rational("x", x, low=Fraction(1, MAX_SCALE))
    return _draw(source, "geometric", count, threads, x)


def discrete_laplace(source: NoiseSource, count: int, scale: Rational, *, threads: int = 1) -> Integers:
    """Draw discrete Laplace integers, P(k) proportional to exp(-|k| / scale).

    0 < scale <= 2**50 [Canonne, Kamath, Steinke 2020].
    """
    scale = _positive_fraction("scale", scale, MAX_SCALE)
    return _draw(source, "discrete-laplace", count, threads, scale)


def discrete_gaussian(source: NoiseSource, count: int, variance: Rational, *, threads: int = 1) -> Integers:
    """Draw discrete Gaussian integers, P(k) proportional to exp(-k^2 / (2 variance)).

    0 < variance <= 2**100 [Canonne, Kamath, Steinke 2020]. `variance` is the parameter sigma^2; the variance
    of the values is at most that, and below it only for a sigma of about 1 or less.
    """
    variance = _positive_fraction("variance", variance, MAX_VARIANCE)
    return _draw(source, "discrete-gaussian", count, threads, variance)


def skellam(source: NoiseSource, count: int, variance: Rational, *, threads: int = 1) -> Integers:
    """Draw Skellam integers: differences of two independent Poisson values of mean variance / 2.

    0 < variance <= 2**100.
    """
    variance = _positive_fraction("variance", variance, MAX_VARIANCE)
    return _draw(source, "skellam", count, threads, variance)


def binomial(source: NoiseSource, count: int, trials: int, p: Rational, *, threads: int = 1) -> Integers:
    """Draw exact binomial integers: successes in `trials` of probability p; ConfigError if out of range."""
    if not isinstance(trials, int) or isinstance(trials, bool) or not 0 <= trials <= MAX_TRIALS:
        raise ConfigError(f"trials is {trials!r}: it must be an integer from 0 to 2**62", ConfigCheck.RANGE)
    p = _rational("p", p, low=Fraction(0))
    if p > 1:
        raise ConfigError(f"p is {p}: it must be between 0 and 1", ConfigCheck.RANGE)
    return _draw(source, "binomial", count, threads, Fraction(trials), p)


def uniform(source: NoiseSource, count: int, below: int) -> Integers:
    """Draw `count` uniform integers in [0, below); ConfigError unless 1 <= below <= 2**62.

    From fair bits; those too large are drawn anew.
    """
    if not isinstance(below, int) or isinstance(below, bool) or not 1 <= below <= MAX_TRIALS:
        raise ConfigError(f"below is {below!r}: it must be an integer from 1 to 2**62", ConfigCheck.RANGE)
    bits = (below - 1).bit_length()
    drawn = np.zeros(count, dtype=np.int64)
    waiting = np.arange(count)
    while bits and len(waiting):
        coins = binomial(source, bits * len(waiting), 1, Fraction(1, 2)).reshape(-1, bits)
        drawn[waiting] = coins @ (1 << np.arange(bits, dtype=np.int64))
        waiting = waiting[drawn[waiting] >= below]
    return drawn


def _draw(
    source: NoiseSource, distribution: str, count: int, threads: int, *parameters: Fraction
) -> Integers:
    """Draw exact samples of a named distribution in the Rust core; ConfigError if out of range."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_COUNT:
        raise ConfigError(f"count is {count!r}: it must be an integer from 0 to 2**32", ConfigCheck.RANGE)
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MAX_THREADS:
        raise ConfigError(
            f"threads is {threads!r}: it must be an integer from 1 to {MAX_THREADS}", ConfigCheck.RANGE
        )
    if not isinstance(source, NoiseSource):
        raise ConfigError.at("source", f"must be a NoiseSource, is {type(source).__name__}", ConfigCheck.TYPE)
    return source.draw(distribution, count, parameters, threads)


def _positive_fraction(name: str, value: Rational, high: int) -> Fraction:
    """Return a number as a fraction in (0, high], cached; raise ConfigError if it is not."""
    # Thousands of keyed draws have the same parameter; an int or a Fraction can be looked up.
    check = _checked_positive if type(value) in (int, Fraction) else _checked_positive.__wrapped__
    return check(name, value, high)


@lru_cache(maxsize=64)
def _checked_positive(name: str, value: Rational, high: int) -> Fraction:
    """Return a number as a fraction in (0, high]; raise ConfigError if it is not."""
    value = _rational(name, value, low=Fraction(0))
    if not 0 < value <= high:
        raise ConfigError(
            f"{name} is {value}: it must be above 0 and at most 2**{high.bit_length() - 1}", ConfigCheck.RANGE
        )
    return value


def _rational(name: str, value: Rational, low: Fraction) -> Fraction:
    """Return an exact number as a fraction of at least `low`; raise ConfigError, also for floats."""
    if not isinstance(value, Rational) or isinstance(value, bool):
        raise ConfigError(
            f"{name} is {value!r}: it must be an integer or a fractions.Fraction", ConfigCheck.TYPE
        )
    value = Fraction(value)
    if value < low:
        raise ConfigError(f"{name} is {value}: it must be at least {low}", ConfigCheck.RANGE)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > TERM_BITS:
        raise ConfigError(
            f"{name}: its numerator and denominator must be below 2**{TERM_BITS}", ConfigCheck.RANGE
        )
    return value
