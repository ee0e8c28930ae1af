"""The squared norm of a projection of Laplace noise: against its bound, and each step of the proof."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.records.projected_noise import _given, _lines, _weighted_mean, projected_square
from smpc_dp.records.regression import chi_square

Floats = NDArray[np.float64]
DRAWS = 200_000


def squares(parts: int, count: int, rng: np.random.Generator, shape: float = 1.0) -> Floats:
    """Return squares of noises of variance 1: normal numbers times roots of gamma ones over their shape."""
    return np.asarray(rng.gamma(shape, 1 / shape, (count, parts)) * rng.standard_normal((count, parts)) ** 2)


def frame(parts: int, dimensions: int, rng: np.random.Generator) -> Floats:
    """Return orthonormal columns, whose span is a random space."""
    return np.linalg.qr(rng.standard_normal((parts, dimensions)))[0]


@pytest.mark.parametrize("outside", [0.05, 0.01])
@pytest.mark.parametrize("dimensions", [1, 2, 3, 7])
def test_coordinates_come_near_to_the_bound(dimensions: int, outside: float) -> None:
    """In 200,000 draws four standard errors of a share, at most a part in 11: false alarms of 3e-5 each."""
    drawn = squares(dimensions, DRAWS, np.random.default_rng(1)).sum(axis=1)
    share = float((drawn > projected_square(dimensions, outside)).mean())
    error = math.sqrt(outside / DRAWS)
    assert 0.93 * outside - 4 * error < share < outside + 4 * error


@pytest.mark.parametrize("dimensions", [1, 3, 12])
@pytest.mark.parametrize("outside", [0.3, 0.05, 1e-4, 1e-9])
def test_the_bound_is_above_normal_noise_and_below_the_mean_of_tails(dimensions: int, outside: float) -> None:
    log = -math.log(outside)
    bound = projected_square(dimensions, outside)
    assert chi_square(dimensions, outside) < bound < dimensions * (log**2 + 2 * log + 2) / 2


@pytest.mark.parametrize("dimensions", [1, 2, 4, 9])
def test_the_law_of_a_weighted_mean_of_variances(dimensions: int) -> None:
    """Its mean is 1 and its variance 3/(p + 2), by moments of a uniform direction, or little more."""
    points, masses = _weighted_mean(dimensions)
    assert masses.sum() == pytest.approx(1.0, abs=1e-9)
    assert masses @ points == pytest.approx(1.0, abs=1e-9)
    variance = float(masses @ points**2) - 1
    assert 3 / (dimensions + 2) <= variance <= 3.05 / (dimensions + 2)
    knots, starts, slopes = (each[:, None] for each in _lines(dimensions))
    parts = np.geomspace(1e-4, 1e4, 5000)
    own, lines = _given(dimensions, parts), starts + slopes * (parts - knots)
    assert (np.where(parts >= knots, lines, 1.0) >= own).all()
    # convex up to each knot, and no steeper there than the line
    below = np.linspace(1e-3, 1.0, 200) * knots
    bends = np.diff(_given(dimensions, below), 2, axis=1)
    assert (bends >= -1e-12).all()
    near = _given(dimensions, knots[:, 0] * (1 - 1e-6))
    assert ((starts[:, 0] - near) / (1e-6 * knots[:, 0]) <= slopes[:, 0] * (1 + 1e-6)).all()


@pytest.mark.parametrize("shape", [1.0, 1.25, 5.0])
@pytest.mark.parametrize(("parts", "dimensions"), [(2, 1), (4, 2), (9, 3), (20, 3), (6, 5)])
def test_no_projection_is_beyond_the_bound_more_often(parts: int, dimensions: int, shape: float) -> None:
    """In 20,000 draws four standard errors of a share: a false alarm of 3e-5 each. Seeds are fixed."""
    rng, draws = np.random.default_rng([parts, dimensions]), 20_000
    for outside, axis in itertools.product((0.2, 0.05), (True, False)):
        space = np.eye(parts)[:, :dimensions] if axis else frame(parts, dimensions, rng)
        roots = np.sqrt(squares(parts, draws, rng, shape))
        noise = roots * rng.choice([-1.0, 1.0], roots.shape)
        lengths = ((noise @ space) ** 2).sum(axis=1)
        share = float((lengths > projected_square(dimensions, outside)).mean())
        assert share <= outside + 4 * math.sqrt(outside / draws)


def test_eigenvalues_are_majorized_by_those_of_drawn_coordinates() -> None:
    """The proof's step: of sums G_i v_i v_i' over the mean of sorted G in sets drawn with squared volumes."""
    rng = np.random.default_rng(5)
    for parts, dimensions in [(3, 2), (5, 2), (6, 3), (6, 5), (4, 1)] * 10:
        space, weights = frame(parts, dimensions, rng), rng.exponential(1.0, parts)
        own = np.sort(np.linalg.eigvalsh((space.T * weights) @ space))[::-1]
        drawn, whole = np.zeros(dimensions), 0.0
        for chosen in itertools.combinations(range(parts), dimensions):
            volume = float(np.linalg.det(space[list(chosen)])) ** 2
            drawn += volume * np.sort(weights[list(chosen)])[::-1]
            whole += volume
        assert whole == pytest.approx(1.0)
        assert (np.cumsum(own) <= np.cumsum(drawn) + 1e-12).all()
        assert own.sum() == pytest.approx(drawn.sum())
