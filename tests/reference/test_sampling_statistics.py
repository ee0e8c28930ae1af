"""The samplers against their exact mass functions: chi-square, tails, moments; and planted errors are found.

Keys are fixed, so nothing here fails by chance from run to run. For a key chosen at random, each chi-square
test refuses a right sampler with probability ALARM, and the tests of this file together with less than 1e-3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from smpc_dp.privacy.sampling import (
    NoiseSource,
    bernoulli_exp,
    binomial,
    discrete_gaussian,
    discrete_laplace,
    geometric,
    skellam,
)
from tests.reference import sampling_twin as twin

ALARM = 1e-5
COUNT = 1_000_000
BITS = 160

Integers = NDArray[np.int64]
Draw = Callable[[NoiseSource, int], Integers]


def source(label: str) -> NoiseSource:
    return NoiseSource.keyed(b"statistics of the samplers".ljust(32), label.encode())


def normalised(masses: Mapping[int, int]) -> dict[int, float]:
    """The masses over their sum; only these quotients are rounded."""
    total = sum(masses.values())
    return {k: mass / total for k, mass in masses.items()}


def exponential(exponent: Callable[[int], Fraction], low: int, high: int) -> dict[int, float]:
    """Masses proportional to exp(-exponent(k)), right to 2^-160; those beyond the ends are below 2^-100."""
    return normalised({k: twin.exp_bounds(exponent(k), BITS)[0] for k in range(low, high + 1)})


def gaussian_mass(variance: Fraction) -> dict[int, float]:
    reach = math.ceil(math.sqrt(2 * 110 * float(variance))) + 1
    return exponential(lambda k: k * k / (2 * variance), -reach, reach)


def poisson_masses(mean: Fraction) -> list[int]:
    masses, term = [], 1 << BITS
    for k in range(int(mean + 12 * math.sqrt(mean)) + 60):
        masses.append(term)
        term = term * mean.numerator // (mean.denominator * (k + 1))
    return masses


def skellam_mass(variance: Fraction) -> dict[int, float]:
    masses = poisson_masses(variance / 2)
    total = sum(masses)
    one = np.array([mass / total for mass in masses])
    return dict(enumerate(np.convolve(one, one[::-1]).tolist(), 1 - len(one)))


def binomial_mass(trials: int, p: Fraction) -> dict[int, float]:
    a, b = p.numerator, p.denominator
    return normalised({k: math.comb(trials, k) * a**k * (b - a) ** (trials - k) for k in range(trials + 1)})


def bernoulli_mass(exponent: Fraction) -> dict[int, float]:
    ones = twin.exp_bounds(exponent, BITS)[0]
    return normalised({1: ones, 0: (1 << BITS) - ones})


def pooled_p_value(counts: Mapping[int, int], size: int, mass: Mapping[int, float], least: float) -> float:
    """The chi-square test; neighbouring values are pooled until `least` samples are expected."""
    observed, expected = [0], [0.0]
    for k in sorted(mass):
        if expected[-1] >= least:
            observed.append(0)
            expected.append(0.0)
        observed[-1] += counts.get(k, 0)
        expected[-1] += size * mass[k]
    if len(expected) > 1 and expected[-1] < least:
        observed[-2] += observed.pop()
        expected[-2] += expected.pop()
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in zip(observed, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


def p_value(samples: Integers, mass: Mapping[int, float]) -> float:
    """The least p-value of two chi-square tests, times two: single values, and about 64 cells."""
    values, numbers = np.unique(samples, return_counts=True)
    counts = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    if not counts.keys() <= mass.keys():
        return 0.0
    size = len(samples)
    return 2 * min(pooled_p_value(counts, size, mass, least) for least in (20, size / 64))


# The masses take arithmetic of 160 bits: each test makes its own.
DISTRIBUTIONS: dict[str, tuple[Draw, Callable[[], dict[int, float]]]] = {
    "gaussian 100^2": (lambda s, n: discrete_gaussian(s, n, 10_000), lambda: gaussian_mass(Fraction(10_000))),
    "gaussian 1/3": (
        lambda s, n: discrete_gaussian(s, n, Fraction(1, 3)),
        lambda: gaussian_mass(Fraction(1, 3)),
    ),
    "gaussian 1500": (lambda s, n: discrete_gaussian(s, n, 1500), lambda: gaussian_mass(Fraction(1500))),
    "laplace 1": (
        lambda s, n: discrete_laplace(s, n, 1),
        lambda: exponential(lambda k: Fraction(abs(k)), -100, 100),
    ),
    "laplace 70/3": (
        lambda s, n: discrete_laplace(s, n, Fraction(70, 3)),
        lambda: exponential(lambda k: abs(k) * Fraction(3, 70), -2000, 2000),
    ),
    "geometric 1/40": (
        lambda s, n: geometric(s, n, Fraction(1, 40)),
        lambda: exponential(lambda k: Fraction(k, 40), 0, 4000),
    ),
    "geometric 3": (
        lambda s, n: geometric(s, n, 3),
        lambda: exponential(lambda k: Fraction(3 * k), 0, 40),
    ),
    "skellam 1/2": (lambda s, n: skellam(s, n, Fraction(1, 2)), lambda: skellam_mass(Fraction(1, 2))),
    "skellam 777": (lambda s, n: skellam(s, n, 777), lambda: skellam_mass(Fraction(777))),
    "skellam 4999": (lambda s, n: skellam(s, n, 4999), lambda: skellam_mass(Fraction(4999))),
    "binomial 9, 1/3": (
        lambda s, n: binomial(s, n, 9, Fraction(1, 3)),
        lambda: binomial_mass(9, Fraction(1, 3)),
    ),
    "binomial 1500, 1/2": (
        lambda s, n: binomial(s, n, 1500, Fraction(1, 2)),
        lambda: binomial_mass(1500, Fraction(1, 2)),
    ),
    "bernoulli-exp 2/7": (
        lambda s, n: bernoulli_exp(s, n, Fraction(2, 7)).astype(np.int64),
        lambda: bernoulli_mass(Fraction(2, 7)),
    ),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_chi_square(name: str) -> None:
    draw, masses = DISTRIBUTIONS[name]
    assert p_value(draw(source(name), COUNT), masses()) > ALARM


def doubled_zero(s: NoiseSource, count: int) -> Integers:
    """A sign put before a one-sided value: zero comes twice as often."""
    signs = bernoulli_exp(s, count, Fraction(693_147, 1_000_000))
    return np.where(signs, 1, -1) * geometric(s, count, Fraction(3, 70))


def rounded_normal(s: NoiseSource, count: int) -> Integers:
    """Continuous noise, rounded: what exact sampling is to replace."""
    generator = np.random.default_rng(discrete_gaussian(s, 4, 1 << 60).astype(np.uint64))
    return np.rint(generator.normal(0, math.sqrt(1 / 3), count)).astype(np.int64)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("name", "faulty"),
    [
        ("gaussian 100^2", lambda s, n: discrete_gaussian(s, n, 101**2)),
        ("gaussian 100^2", lambda s, n: discrete_gaussian(s, n, 10_000) + 1),
        ("gaussian 100^2", lambda s, n: discrete_gaussian(s, n, 10_000) & ~1),
        ("gaussian 100^2", lambda s, n: np.clip(discrete_gaussian(s, n, 10_000), -350, 350)),
        ("gaussian 1500", lambda s, n: discrete_gaussian(s, n, 1500 - 25)),
        ("gaussian 1/3", rounded_normal),
        ("laplace 70/3", doubled_zero),
        ("laplace 70/3", lambda s, n: discrete_laplace(s, n, Fraction(69, 3))),
        ("geometric 1/40", lambda s, n: geometric(s, n, Fraction(1, 40)) + 1),
        ("skellam 777", lambda s, n: skellam(s, n, 777 + 20)),
        ("skellam 1/2", lambda s, n: discrete_gaussian(s, n, Fraction(1, 2))),
        ("binomial 1500, 1/2", lambda s, n: binomial(s, n, 1497, Fraction(1, 2))),
        ("bernoulli-exp 2/7", lambda s, n: bernoulli_exp(s, n, Fraction(3, 10)).astype(np.int64)),
    ],
)
def test_chi_square_finds_planted_errors(name: str, faulty: Draw) -> None:
    assert p_value(faulty(source(f"planted in {name}"), COUNT), DISTRIBUTIONS[name][1]()) < ALARM


def standard_gaussian(variance: int, count: int) -> Callable[[NoiseSource], NDArray[np.float64]]:
    return lambda s: discrete_gaussian(s, count, variance) / math.sqrt(variance)


def standard_skellam(variance: int, count: int) -> Callable[[NoiseSource], NDArray[np.float64]]:
    return lambda s: skellam(s, count, variance) / math.sqrt(variance)


def standard_binomial(trials: int, count: int) -> Callable[[NoiseSource], NDArray[np.float64]]:
    return lambda s: (binomial(s, count, trials, Fraction(1, 4)) - trials // 4) / math.sqrt(3 * trials / 16)


@pytest.mark.parametrize(
    "draw",
    [
        standard_gaussian(1 << 60, COUNT),
        standard_gaussian(1 << 80, COUNT),
        standard_gaussian(1 << 100, COUNT),
        standard_skellam(1 << 40, COUNT),
        standard_skellam(1 << 90, COUNT),
        standard_binomial(1 << 62, COUNT),
    ],
)
def test_wide_laws_are_as_good_as_normal(draw: Callable[[NoiseSource], NDArray[np.float64]]) -> None:
    """Moments, tails and a chi-square over 64 equally likely cells; each within 5 standard errors."""
    values = draw(source("wide"))
    size = len(values)
    for power, expected, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(values**power) - expected) < 5 * math.sqrt(spread / size), power
    for limit in (3.0, 4.0):
        tail = 2 * NormalDist().cdf(-limit)
        assert abs(np.count_nonzero(abs(values) > limit) - size * tail) < 5 * math.sqrt(size * tail)
    cells = np.bincount((stats.norm.cdf(values) * 64).astype(np.int64).clip(0, 63), minlength=64)
    assert stats.chisquare(cells).pvalue > ALARM
    # Values that follow each other have nothing to do with each other.
    assert abs(np.mean(values[1:] * values[:-1])) < 5 / math.sqrt(size)


@pytest.mark.parametrize("scale", [1 << 30, 1 << 50])
def test_wide_laplace(scale: int) -> None:
    values = discrete_laplace(source("wide"), COUNT, scale) / scale
    assert abs(np.mean(values)) < 5 * math.sqrt(2 / COUNT)
    assert abs(np.mean(abs(values)) - 1) < 5 / math.sqrt(COUNT)
    for limit in (3, 10):
        tail = math.exp(-limit)
        assert abs(np.count_nonzero(abs(values) > limit) - COUNT * tail) < 5 * math.sqrt(COUNT * tail)
    cells = np.bincount((np.exp(-abs(values)) * 64).astype(np.int64).clip(0, 63), minlength=64)
    assert stats.chisquare(cells).pvalue > ALARM


@pytest.mark.parametrize("bits", [20, 44])
def test_low_bits_of_wide_noise_are_uniform(bits: int) -> None:
    low = discrete_gaussian(source("low bits"), COUNT, 1 << (2 * bits)) & 255
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > ALARM


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("discrete-gaussian", (Fraction(3_000_001, 7),)),
        ("discrete-laplace", (Fraction(1 << 33),)),
        ("skellam", (Fraction(1 << 50),)),
    ],
)
def test_long_draws_equal_the_twin(name: str, parameters: tuple[Fraction, ...]) -> None:
    """Over two blocks and through decisions that take more than a threshold."""
    key = b"long draws".ljust(32)
    drawn = NoiseSource.keyed(key).draw(name, 4500, parameters, 2).tolist()
    assert drawn == twin.draw_distribution(twin.source_key(key), 0, 4500, name, *parameters)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("name", "parameters", "distribution"),
    [
        ("discrete-gaussian", (Fraction(10_000),), twin.gaussian),
        ("discrete-gaussian", (Fraction(1 << 75),), twin.gaussian),
        ("discrete-laplace", (Fraction(100),), twin.laplace),
        ("geometric", (Fraction(1, 1000),), twin.geometric),
        ("binomial", (Fraction(1 << 20), Fraction(1, 3)), lambda n, p: twin.binomial(int(n), p)),
    ],
)
def test_values_in_the_tails_equal_the_twin(
    name: str, parameters: tuple[Fraction, ...], distribution: Callable[..., twin.NoiseDistribution]
) -> None:
    """Values from a tail are about one in a million or ten: one is looked for, and its block compared."""
    t = twin.table(distribution(*parameters))
    right, left = (
        next(s.first for s in t.segments if s.tail_bits is not None and s.step == step) for step in (1, -1)
    )
    for attempt in range(100):
        key = attempt.to_bytes(32, "big")
        drawn = NoiseSource.keyed(key).draw(name, COUNT, parameters, 1)
        result = np.flatnonzero((drawn >= right) | (drawn <= left))
        if len(result):
            break
    block = int(result[0]) // twin.BLOCK_SAMPLES
    call_key = twin.call_key(twin.source_key(key), 0, name, *parameters)
    expected = drawn[block * twin.BLOCK_SAMPLES :][: twin.BLOCK_SAMPLES].tolist()
    count = int(result[0]) % twin.BLOCK_SAMPLES + 20
    made = twin.block_samples(call_key, block, min(count, len(expected)), lambda words: twin.draw(words, t))
    assert made == expected[: len(made)]
