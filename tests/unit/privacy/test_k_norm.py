"""K-norm noise: its probabilities, whatever digits are drawn first. Seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from smpc_dp.privacy.k_norm import k_norm
from smpc_dp.privacy.record_gradients import plan_pure_noise
from smpc_dp.privacy.sampling import NoiseSource

# Of each test, below 1e-6 when the sampler is right.
FALSE_ALARM = 1e-6


def draw(length: int, scale: int, count: int, digits: int = 50) -> NDArray[np.int64]:
    source = NoiseSource.keyed(bytes(32), bytes([length, digits]))
    return np.array([k_norm(source, length, scale, digits=digits) for _ in range(count)])


@pytest.mark.parametrize("length", [1, 2, 5, 20])
@pytest.mark.parametrize("digits", [50, 2])
def test_norms_are_gamma_and_directions_uniform(length: int, digits: int) -> None:
    count, scale = 600, 1 << 20
    drawn = draw(length, scale, count, digits) / scale
    norms = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(norms, stats.gamma(length).cdf).pvalue > FALSE_ALARM
    # A squared coordinate of a uniform direction is Beta(1/2, (p - 1)/2).
    if length > 1:
        for column in (0, length - 1):
            squares = (drawn[:, column] / norms) ** 2
            assert stats.kstest(squares, stats.beta(0.5, (length - 1) / 2).cdf).pvalue > FALSE_ALARM
    positive = (drawn > 0).sum(axis=0)
    assert min(stats.binomtest(int(one), count).pvalue for one in positive) > FALSE_ALARM / length


@pytest.mark.parametrize("digits", [50, 1])
def test_rounded_values_have_the_probability_of_their_cells(digits: int) -> None:
    """In the plane at scale 1: cells around 0 by integration of exp(-|x|)/(2 pi)."""
    drawn, count = draw(2, 1, 3_000, digits), 3_000

    def cell(a: int, b: int) -> float:
        return float(
            integrate.dblquad(
                lambda y, x: np.exp(-np.hypot(x, y)) / (2 * np.pi), a - 0.5, a + 0.5, b - 0.5, b + 0.5
            )[0]
        )

    for a, b in ((0, 0), (1, 0), (0, -1), (-1, 1), (2, 0)):
        hits = int(((drawn[:, 0] == a) & (drawn[:, 1] == b)).sum())
        assert stats.binomtest(hits, count, cell(a, b)).pvalue > FALSE_ALARM


def test_one_coordinate_is_a_rounded_laplace() -> None:
    drawn = draw(1, 1, 3_000, 1)[:, 0]
    for value, chance in ((0, 1 - np.exp(-0.5)), (1, (np.exp(-0.5) - np.exp(-1.5)) / 2)):
        assert stats.binomtest(int((drawn == value).sum()), 3_000, float(chance)).pvalue > FALSE_ALARM


def test_it_needs_half_of_laplace_noise_for_data_of_bounded_l2_norm() -> None:
    """E|b|^2 = p (p + 1) Delta^2/epsilon^2 against 2 p (sqrt(p) Delta/epsilon)^2; 4,000 draws, within 5 %."""
    p, epsilon, reach, bits = 9, 2.0, 3.0, 12
    ball = plan_pure_noise("k-norm", epsilon, [1.0], reach, bits)
    cube = plan_pure_noise("laplace", epsilon, [1.0], reach * np.sqrt(p), bits)
    source = NoiseSource.keyed(bytes(32), b"half")
    squares = [
        float(np.mean([np.sum(np.square(noise.draw(source, p, 0), dtype=float)) for _ in range(4_000)]))
        for noise in (ball, cube)
    ]
    delta = 2 * reach * 2**bits
    # A squared norm deviates by 2/sqrt(p) of its mean at most: 5 % is four deviations and more.
    assert squares[0] == pytest.approx(p * (p + 1) * delta**2 / epsilon**2, rel=0.05)
    assert squares[1] == pytest.approx(2 * p**2 * delta**2 / epsilon**2, rel=0.05)
