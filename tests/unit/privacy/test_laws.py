"""Noise laws and what a shift of them shows, against brute force with 50 digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.laws import (
    AnyLaw,
    BinomialLaw,
    DiscreteGaussianLaw,
    DiscreteLaplaceLaw,
    SkellamLaw,
    hockey_stick,
    log_masses,
)
from tests.reference import privacy_twin as twin


@pytest.fixture(scope="module", autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(twin.DIGITS):
        yield


def cases() -> list[tuple[str, AnyLaw, int]]:
    return [
        ("gaussian", DiscreteGaussianLaw(Fraction(7, 2)), 1),
        ("laplace", DiscreteLaplaceLaw(Fraction(5, 3)), 1),
        ("laplace sum", DiscreteLaplaceLaw(Fraction(3, 2)), 3),
        ("skellam", SkellamLaw(Fraction(5, 2)), 1),
        ("skellam sum", SkellamLaw(Fraction(1, 2)), 5),
        ("binomial", BinomialLaw(40), 1),
        ("binomial sum", BinomialLaw(10), 3),
    ]


def brute(law: AnyLaw, shares: int) -> twin.Masses:
    match law:
        case DiscreteGaussianLaw(variance):
            return twin.discrete_gaussian(variance, 45)
        case DiscreteLaplaceLaw(scale):
            return twin.summed(twin.discrete_laplace(scale, 90), shares)
        case SkellamLaw(variance):
            return twin.skellam(variance * shares, 45)
        case BinomialLaw(trials):
            return twin.summed(twin.binomial(trials), shares)


@pytest.mark.parametrize(("name", "law", "shares"), cases())
def test_masses_and_divergences_are_those_of_the_definition(name: str, law: AnyLaw, shares: int) -> None:
    exact = brute(law, shares)
    ours = log_masses(law, shares)
    middle = len(ours) // 2
    for x in range(-10, 11):
        assert math.isclose(ours[middle + x], float(mpmath.log(exact[x])), abs_tol=1e-11)
    for shift in (1, 2, 5):
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            truth = float(twin.delta(exact, shift, epsilon))
            assert truth <= hockey_stick(law, shares, shift, epsilon) <= truth * (1 + 1e-8) + 1e-15


def test_a_shift_beyond_everything_hides_nothing() -> None:
    assert hockey_stick(BinomialLaw(4), 1, 5, 3.0) == 1.0
    assert hockey_stick(BinomialLaw(4), 1, 0, 3.0) == 0.0


def test_wide_laws_keep_their_digits() -> None:
    # exp(-v) I_k(v), scipy's own function, for a variance where the recurrence runs over thousands of terms
    from scipy.special import ive

    ours = log_masses(SkellamLaw(Fraction(10**5)), 1)
    k = np.arange(0, 1500)
    assert np.abs(ours[len(ours) // 2 + k] - np.log(ive(k, 1e5))).max() < 1e-11


@pytest.mark.parametrize(
    "law",
    [
        DiscreteGaussianLaw(Fraction(10**12)),
        DiscreteLaplaceLaw(Fraction(10**6)),
        SkellamLaw(Fraction(10**12)),
        BinomialLaw(1 << 50),
    ],
)
def test_laws_that_are_too_wide_are_refused(law: AnyLaw) -> None:
    with pytest.raises(ConfigError, match="too wide"):
        log_masses(law, 1)


def test_narrow_laws_are_nearly_constant() -> None:
    tiny = Fraction(1, 10**6)
    for law in (DiscreteGaussianLaw(tiny), DiscreteLaplaceLaw(tiny), SkellamLaw(tiny)):
        assert hockey_stick(law, 1, 1, 5.0) > 0.999
    assert hockey_stick(DiscreteLaplaceLaw(tiny), 3, 1, 5.0) > 0.999


def test_a_sum_of_discrete_gaussians_is_none() -> None:
    with pytest.raises(ConfigError, match="not a discrete Gaussian"):
        log_masses(DiscreteGaussianLaw(Fraction(4)), 2)
