"""Welch's test of two noisy means: how often it rejects on either side, and the interval that belongs to it.

Sums and noise are drawn without a plan: `test_comparisons.py` tests the answers. Seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.records.cells import corrected_variance
from smpc_dp.records.intervals import NORMAL, ErrorDistribution
from smpc_dp.records.noisy import laplace_distribution
from smpc_dp.records.welch import NoisyMean, WelchTest

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
MANY = 10_000
LAPLACE = laplace_distribution(1.0)


def skewed(rng: np.random.Generator, size: int) -> Floats:
    """Return values in [-1, 1], most of them below the middle."""
    return np.minimum(rng.gamma(2, 0.24, size), 2.0) - 1


def near_a_bound(rng: np.random.Generator, size: int) -> Floats:
    return np.clip(rng.normal(0.5, 0.2, size), -1, 1)


def narrow(rng: np.random.Generator, size: int) -> Floats:
    return np.clip(rng.normal(0.7, 0.05, size), -1, 1)


# The values, rows of both groups, and the noise of a count, in rows.
CASES: dict[str, tuple[Draw, tuple[int, int], float, ErrorDistribution]] = {
    "near a bound, noise of a row": (near_a_bound, (60, 140), 1.0, NORMAL),
    "skewed, little noise": (skewed, (60, 140), 0.3, NORMAL),
    "skewed, noise of a row": (skewed, (60, 140), 1.0, NORMAL),
    "skewed, noise of four rows": (skewed, (60, 140), 4.0, NORMAL),
    "skewed, noise above the sampling error": (skewed, (180, 420), 15.0, NORMAL),
    "skewed, a group near its threshold": (skewed, (180, 420), 30.0, NORMAL),
    "skewed, many rows": (skewed, (600, 1400), 5.0, NORMAL),
    "skewed, Laplace noise of four rows": (skewed, (60, 140), 4.0, LAPLACE),
    "skewed, Laplace noise above the sampling error": (skewed, (180, 420), 15.0, LAPLACE),
    "near a bound, noise of four rows": (near_a_bound, (60, 140), 4.0, NORMAL),
    "near a bound, noise above the sampling error": (near_a_bound, (180, 420), 15.0, NORMAL),
    "near a bound, Laplace noise of four rows": (near_a_bound, (60, 140), 4.0, LAPLACE),
    "narrow, noise of six rows": (narrow, (60, 140), 6.0, NORMAL),
    "narrow, noise above the sampling error": (narrow, (180, 420), 15.0, NORMAL),
}


def noisy(
    values: Floats, noise: float, law: ErrorDistribution, rng: np.random.Generator, shift: float = 0.0
) -> NoisyMean:
    """Return the noisy mean of values, each of three sums with noise of one deviation."""
    sums = np.array([len(values), (values + shift).sum(), np.square(values + shift).sum()])
    drawn = rng.standard_normal(3) if law.is_normal else rng.laplace(0, 1 / math.sqrt(2), 3)
    rows, first, second = (sums + noise * drawn).tolist()
    variance, error = corrected_variance(second, first, rows, [noise] * 3)
    return NoisyMean(rows, first, variance, error, (noise,) * 3, (law, law))


def rejected(name: str, repetitions: int) -> tuple[float, float]:
    """Return how often a test of level .05 finds the first mean smaller, and how often it finds it larger."""
    draw, sizes, noise, law = CASES[name]
    rng, sides = np.random.default_rng(29), [0, 0]
    for _ in range(repetitions):
        groups = [noisy(draw(rng, size), noise, law, rng) for size in sizes]
        if min(group.rows for group in groups) <= 3 * noise:
            continue
        both = WelchTest(groups[0], groups[1])
        tested = both.p_value()
        assert tested is not None
        sides[both.difference > 0] += tested < 0.05
    return sides[0] / repetitions, sides[1] / repetitions


@pytest.mark.thin(5)
@pytest.mark.parametrize("name", CASES)
def test_a_test_has_its_level_and_noise_favours_no_side(name: str) -> None:
    """Of 10,000: three standard errors of the whole, and of a side where it is the noise that matters.

    A false alarm has a chance of .3 % a number. Without noise Welch's test finds the smaller group of skewed
    values smaller in 3.2 %, and larger in 1.9 %.
    """
    below, above = rejected(name, MANY)
    assert below + above == pytest.approx(0.05, abs=0.0065), (below, above)
    if not name.startswith("skewed") or "above" in name:
        assert below == pytest.approx(0.025, abs=0.0047), (below, above)


def test_where_noise_hides_the_variance_a_test_rejects_less() -> None:
    """Of values that vary by a fortieth of the range, groups of 60 and 140, and noise of a row: 2.4 %."""
    CASES["narrow, noise of a row"] = narrow, (60, 140), 1.0, NORMAL
    try:
        below, above = rejected("narrow, noise of a row", MANY)
    finally:
        del CASES["narrow, noise of a row"]
    assert 0.015 < below + above < 0.035


@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "noise", "level"),
    [((10, 1000), 0.3, 0.0199), ((2, 50), 1e-9, 0.1619), ((10, 1000), 1e-9, 0.0539)],
)
def test_tests_of_few_rows_have_the_level_that_is_stated(
    sizes: tuple[int, int], noise: float, level: float
) -> None:
    """Narrow values whose variance noise hides; without noise uniform values, as scipy 1.17 has them.

    Of 10,000: three standard errors, and as much for the stated numbers: a false alarm of .3 % at most.
    """
    rng, often = np.random.default_rng(83), 0
    for _ in range(MANY):
        drawn = [narrow(rng, size) if noise > 0.1 else rng.uniform(-1, 1, size) for size in sizes]
        groups = [noisy(values, noise, NORMAL, rng) for values in drawn]
        tested = WelchTest(groups[0], groups[1]).p_value()
        assert tested is not None
        often += tested < 0.05
    assert often / MANY == pytest.approx(level, abs=6 * math.sqrt(level * (1 - level) / MANY))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("noise", "law"), [(2.0, NORMAL), (10.0, NORMAL), (10.0, LAPLACE)])
def test_the_interval_of_a_difference_has_its_level(noise: float, law: ErrorDistribution) -> None:
    """Of a difference that is not 0, of groups that vary differently; and it has 0 if that is not rejected.

    Three standard errors of a share of 10,000: a false alarm of .3 %.
    """
    rng, missed = np.random.default_rng(31), 0
    for _ in range(MANY):
        groups = noisy(near_a_bound(rng, 150), noise, law, rng), noisy(narrow(rng, 200), noise, law, rng)
        both = WelchTest(*groups)
        low, high = both.ends(0.05, 2.0)
        missed += not low <= -0.2 <= high
        tested = both.p_value()
        assert tested is not None
        assert (low <= 0 <= high) == (tested >= 0.05)
    assert missed / MANY == pytest.approx(0.05, abs=0.0065)


def test_the_interval_is_within_what_is_possible_and_exact_without_errors() -> None:
    far = NoisyMean(12.0, 5.0, 0.1, 0.3, (6.0, 6.0, 6.0), (NORMAL, NORMAL))
    low, high = WelchTest(far, far).ends(0.05, 2.0)
    assert -2 <= low < -1 < 1 < high <= 2
    exact = [NoisyMean(50.0, total, 0.0, 0.0, (0.0, 0.0, 0.0), (NORMAL, NORMAL)) for total in (10.0, 5.0)]
    both = WelchTest(exact[0], exact[1])
    assert both.ends(0.05, 2.0) == (both.difference, both.difference)
    assert both.p_value() is None


def test_of_groups_at_opposite_bounds_no_interval_is_reversed() -> None:
    """Half of the noisy differences are beyond what is possible, 2.6 % by more than their interval."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        groups = [noisy(np.full(rows, one), 2.0, NORMAL, rng) for rows, one in ((50, 1.0), (60, -1.0))]
        low, high = WelchTest(groups[0], groups[1]).ends(0.05, 2.0)
        assert -2 <= low <= high <= 2
