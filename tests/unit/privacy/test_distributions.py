"""Noise distributions and what a shift of them shows, against brute force with 50 digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.distributions import (
    AnyDistribution,
    BinomialDistribution,
    DiscreteGaussianDistribution,
    DiscreteLaplaceDistribution,
    SkellamDistribution,
    hockey_stick,
    log_masses,
)
from tests.reference import privacy_twin as twin


@pytest.fixture(scope="module", autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(twin.DIGITS):
        yield


def cases() -> list[tuple[str, AnyDistribution, int]]:
    return [
        ("gaussian", DiscreteGaussianDistribution(Fraction(7, 2)), 1),
        ("laplace", DiscreteLaplaceDistribution(Fraction(5, 3)), 1),
        ("laplace sum", DiscreteLaplaceDistribution(Fraction(3, 2)), 3),
        ("skellam", SkellamDistribution(Fraction(5, 2)), 1),
        ("skellam sum", SkellamDistribution(Fraction(1, 2)), 5),
        ("binomial", BinomialDistribution(40), 1),
        ("binomial sum", BinomialDistribution(10), 3),
    ]


def brute(distribution: AnyDistribution, shares: int) -> twin.Masses:
    match distribution:
        case DiscreteGaussianDistribution(variance):
            return twin.discrete_gaussian(variance, 45)
        case DiscreteLaplaceDistribution(scale):
            return twin.summed(twin.discrete_laplace(scale, 90), shares)
        case SkellamDistribution(variance):
            return twin.skellam(variance * shares, 45)
        case BinomialDistribution(trials):
            return twin.summed(twin.binomial(trials), shares)


@pytest.mark.parametrize(("name", "distribution", "shares"), cases())
def test_masses_and_divergences_are_those_of_the_definition(
    name: str, distribution: AnyDistribution, shares: int
) -> None:
    exact = brute(distribution, shares)
    ours = log_masses(distribution, shares)
    middle = len(ours) // 2
    for x in range(-10, 11):
        assert math.isclose(ours[middle + x], float(mpmath.log(exact[x])), abs_tol=1e-11)
    for shift in (1, 2, 5):
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            truth = float(twin.delta(exact, shift, epsilon))
            assert truth <= hockey_stick(distribution, shares, shift, epsilon) <= truth * (1 + 1e-8) + 1e-15


def test_a_shift_beyond_everything_hides_nothing() -> None:
    assert hockey_stick(BinomialDistribution(4), 1, 5, 3.0) == 1.0
    assert hockey_stick(BinomialDistribution(4), 1, 0, 3.0) == 0.0


def test_wide_laws_keep_their_digits() -> None:
    # exp(-v) I_k(v), scipy's own function, for a variance where the recurrence runs over thousands of terms
    from scipy.special import ive

    ours = log_masses(SkellamDistribution(Fraction(10**5)), 1)
    k = np.arange(0, 1500)
    assert np.abs(ours[len(ours) // 2 + k] - np.log(ive(k, 1e5))).max() < 1e-11


@pytest.mark.parametrize(
    "distribution",
    [
        DiscreteGaussianDistribution(Fraction(10**12)),
        DiscreteLaplaceDistribution(Fraction(10**6)),
        SkellamDistribution(Fraction(10**12)),
        BinomialDistribution(1 << 50),
    ],
)
def test_laws_that_are_too_wide_are_refused(distribution: AnyDistribution) -> None:
    with pytest.raises(ConfigError, match="too wide"):
        log_masses(distribution, 1)


def test_narrow_laws_are_nearly_constant() -> None:
    tiny = Fraction(1, 10**6)
    for distribution in (
        DiscreteGaussianDistribution(tiny),
        DiscreteLaplaceDistribution(tiny),
        SkellamDistribution(tiny),
    ):
        assert hockey_stick(distribution, 1, 1, 5.0) > 0.999
    assert hockey_stick(DiscreteLaplaceDistribution(tiny), 3, 1, 5.0) > 0.999


def test_a_sum_of_discrete_gaussians_is_none() -> None:
    with pytest.raises(ConfigError, match="not a discrete Gaussian"):
        log_masses(DiscreteGaussianDistribution(Fraction(4)), 2)
