"""Bounds on noise against exact probabilities, summed from the masses of each draw."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy import noise_bounds
from smpc_dp.privacy.distributions import (
    BinomialDistribution,
    DiscreteGaussianDistribution,
    SkellamDistribution,
    log_masses,
)
from smpc_dp.privacy.noise_bounds import Part, half_width, half_width_of_any

LEVELS = (0.5, 0.9, 0.95, 0.999, 1 - 1e-9)


def gaussian(variance: float) -> DiscreteGaussianDistribution:
    return DiscreteGaussianDistribution(Fraction(variance))


def beyond(parts: list[Part], width: float) -> float:
    """Return P(|sum| > width), from the convolution of all draws."""
    masses = np.ones(1)
    for distribution, count in parts:
        for _ in range(count):
            masses = np.convolve(masses, np.exp(log_masses(distribution)))
    steps = np.arange(len(masses)) - len(masses) // 2
    return math.fsum(masses[np.abs(steps) > width])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("parts", "slack"),
    [
        ([(gaussian(9), 1)], 2),
        ([(gaussian(9), 6)], 2),
        ([(gaussian(9), 3), (gaussian(30.5), 2)], 2),
        ([(SkellamDistribution(Fraction(7, 2)), 4)], 1),
        ([(BinomialDistribution(64), 5)], 1),
    ],
    ids=["one", "gaussians", "two variances", "skellam", "binomial"],
)
def test_a_bound_holds_and_is_tight(parts: list[Part], slack: int, level: float) -> None:
    width = half_width(parts, level)
    assert beyond(parts, width) <= 1 - level
    assert beyond(parts, width - slack) > 1 - level


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "parts",
    [
        # A discrete Gaussian of this variance is nearly always 0: no comparison with a wider one is tight.
        [(gaussian(0.05), 3)],
        [(BinomialDistribution(64), 3), (gaussian(40), 2)],
        [(gaussian(9), 2), (gaussian(100), 0)],
    ],
    ids=["narrow", "two families", "no draw"],
)
def test_a_bound_that_is_not_tight_holds(parts: list[Part], level: float) -> None:
    assert beyond(parts, half_width(parts, level)) <= 1 - level


@pytest.mark.parametrize("distribution", [SkellamDistribution(Fraction(10**8)), BinomialDistribution(10**9)])
def test_wide_noise_is_compared_with_a_normal_distribution(
    distribution: SkellamDistribution | BinomialDistribution, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = {level: half_width([(distribution, 1)], level) for level in LEVELS}

    def refuse(_distribution: object) -> None:
        raise ConfigError("too wide", ConfigCheck.TOO_LARGE)

    monkeypatch.setattr(noise_bounds, "log_masses", refuse)
    for level in LEVELS:
        wider = half_width([(distribution, 1)], level)
        # Close to the exact one, unless the theorem leaves more than a quarter of what may be outside.
        assert exact[level] <= wider <= exact[level] * (1.01 if level < 0.99 else 1.5)


def test_noise_of_a_session_needs_no_sum() -> None:
    variance = 4e12
    for distribution in (gaussian(variance), SkellamDistribution(Fraction(variance))):
        width = half_width([(distribution, 20)], 0.95)
        assert width == pytest.approx(1.959964 * math.sqrt(20 * variance), rel=1e-4)


def test_any_noise_of_a_deviation_is_bounded_by_chebyshev() -> None:
    assert half_width_of_any(2.0, 0.75) == 4.0
