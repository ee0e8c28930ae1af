"""K-norm noise: its probabilities, whatever digits are drawn first. Seeds are fixed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from smpc_dp.privacy.k_norm import k_norm
from smpc_dp.privacy.record_gradients import plan_pure_noise
from smpc_dp.privacy.sampling import NoiseSource

# Of each test, below 1e-6 when the sampler is right.
FALSE_ALARM = 1e-6


def draw(length: int, scale: int, count: int, digits: int = 50) -> NDArray[np.int64]:
    source = NoiseSource.keyed(bytes(32), bytes([length, digits]))
    return np.array([k_norm(source, length, scale, digits=digits) for _ in range(count)])


@pytest.mark.thin(3)
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


def cells(length: int, scale: int, most: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each integer vector with entries up to `most`, by Gauss-Legendre rules."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    axes = []
    for value in range(most + 1):
        # Both halves of the cell around 0 have the same mass.
        low, high = max(value - 0.5, 0.0), value + 0.5
        points = (low + high + (high - low) * nodes) / 2
        axes.append((points, weights * (high - low) / 2 * (1 if value else 2)))
    volume = math.gamma(length) * 2 * math.pi ** (length / 2) / math.gamma(length / 2) * scale**length
    found: dict[tuple[int, ...], float] = {}
    for key in itertools.product(range(-most, most + 1), repeat=length):
        one = tuple(sorted(map(abs, key)))
        if one not in found:
            norm = np.sqrt(sum(np.square(part) for part in np.ix_(*(axes[value][0] for value in one))))
            mass = np.exp(-norm / scale)
            for value in reversed(one):
                mass = mass @ axes[value][1]
            found[one] = float(mass) / volume
        found[key] = found[one]
    return found


@pytest.mark.thin(2)
@pytest.mark.parametrize("digits", [50, 1])
@pytest.mark.parametrize(("length", "most"), [(2, 2), (3, 1)])
def test_rounded_values_have_the_probabilities_of_their_cells(length: int, most: int, digits: int) -> None:
    """Chi-squared over all cells around 0 and the rest, at scale 1: false alarm 1e-6, seeds fixed."""
    planned, count = cells(length, 1, most), 2_000
    drawn = [tuple(one) for one in draw(length, 1, count, digits).tolist()]
    hits, chances = [drawn.count(key) for key in planned], list(planned.values())
    hits, chances = [*hits, count - sum(hits)], [*chances, 1 - sum(chances)]
    assert min(chances) * count > 5
    assert stats.chisquare(hits, np.array(chances) * count).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("length", "scale", "most"), [(1, 1, 6), (2, 1, 4), (2, 3, 4), (3, 2, 2)])
def test_rounded_noise_has_the_epsilon_of_every_shift(length: int, scale: int, most: int) -> None:
    """All pairs of integer vectors: a shift by v changes no probability by more than exp(|v|/scale)."""
    planned = cells(length, scale, most)
    keys, logs = np.array(list(planned)), np.log(list(planned.values()))
    shifts = np.linalg.norm(keys[:, None] - keys[None], axis=2) / scale
    assert (np.abs(logs[:, None] - logs[None]) <= shifts + 1e-4).all()
    # Along an axis nearly all of it is used.
    row = [logs[(keys == [value] + [0] * (length - 1)).all(axis=1)][0] for value in (most - 1, most)]
    assert row[0] - row[1] > 0.8 / scale


def test_one_coordinate_is_a_rounded_laplace() -> None:
    drawn = draw(1, 1, 3_000, 1)[:, 0]
    for value, chance in ((0, 1 - np.exp(-0.5)), (1, (np.exp(-0.5) - np.exp(-1.5)) / 2)):
        assert stats.binomtest(int((drawn == value).sum()), 3_000, float(chance)).pvalue > FALSE_ALARM


@pytest.mark.long
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
