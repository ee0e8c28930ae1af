"""Numeric evidence for rows of docs/proofs/errata.md that the planners use, without the code.

Seeds are fixed, so a test passes always or never.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

# Bellet 2021, (3.8)


def test_randomised_response_keeps_the_truth_among_the_uniform_answers() -> None:
    for k, epsilon in ((2, 0.5), (10, 2.0)):
        beta = k / (k + math.exp(epsilon) - 1)
        printed = 1 - beta + (k - 1) * beta / k
        assert printed == pytest.approx(1 - beta / k)  # not 1
        truth = 1 - beta + beta / k
        assert truth + (k - 1) * beta / k == pytest.approx(1)
        assert truth / (beta / k) == pytest.approx(math.exp(epsilon))


# Bellet 2021, Theorem 3.4, second case


def test_rounding_a_discontinuous_kernel_can_lose_everything() -> None:
    """h(x, y) = 0 if x or y is a cell's centre and 1 otherwise: no density is smooth enough to save it."""
    k = 8
    centres = (np.arange(k) + 0.5) / k
    records = np.random.default_rng(1).random(1_000)
    on_centre = np.isin(records, centres)
    truth = float(np.mean(~on_centre[:, None] & ~on_centre[None, :]))
    assert truth == 1.0
    rounded = np.isin(centres[(records * k).astype(int)], centres)
    assert float(np.mean(~rounded[:, None] & ~rounded[None, :])) == 0.0


# Bellet 2021, Algorithm 4.3


def test_ring_histogram_shows_the_last_answer_alone() -> None:
    """Party n - 1 passes the token on and sees the published one: the difference is party n's answer."""
    rng = np.random.default_rng(2)
    token = rng.multinomial(40, np.full(3, 1 / 3))
    passed = token + np.eye(3, dtype=int)[1]
    published = passed + np.eye(3, dtype=int)[2]
    assert (published - passed).tolist() == [0, 0, 1]


# Bellet 2021, Theorem 4.6


def test_two_contributions_before_one_visit_cost_more_than_their_sum() -> None:
    """Linear losses: the token shifts by 1 for each contribution, with two noises of variance 1."""
    exact = 2**2 / 2
    by_composition = 1 / 2 + 1 / 1  # each contribution over the noise between it and the visit
    assert exact > by_composition
    assert exact <= 1 / 1 + 1 / 1  # each over the noise before the next contribution or visit


# Farokhi et al., Theorems 1 and 2


def algorithm_1(owners: int, steps: int, rho: float, rng: np.random.Generator) -> float:
    """The learner's distance from the optimum after T steps of Algorithm 1, without noise, from 0.

    f_i(t) = (t - 3)^2 / 2 for each owner and g(t) = t^2 / 2: strong convexity 1, optimum 3/2.
    """
    learner, local = 0.0, np.zeros(owners)
    for _ in range(steps):
        i = int(rng.integers(owners))
        middle = (learner + local[i]) / 2
        own = owners * rho / steps**2 * (middle / (2 * owners) + (middle - 3.0) / owners)
        local[i] = middle - own
        learner = middle - (owners - 1) * rho / (owners * steps**2) * middle
    return abs(learner - 1.5)


def test_step_size_of_cost_of_privacy_never_leaves_the_start() -> None:
    """(10) tends to 0 without privacy noise and with n; the distance tends to that of the start, 3/2."""
    rng = np.random.default_rng(3)
    distances = [algorithm_1(2, steps, 1.0, rng) for steps in (10, 100, 1_000)]
    assert distances[0] < distances[1] < distances[2]
    assert distances[2] > 1.49
    # The proof's factor for the distance from the start, (1 - alpha / N)^T for alpha = rho / T^2.
    assert (1 - 1 / (2 * 1_000**2)) ** 1_000 > 0.999


def test_cost_of_privacy_noise_has_a_variance_for_each_coordinate() -> None:
    coordinates, scale, runs = 7, 1.3, 50_000
    noise = np.random.default_rng(4).laplace(scale=scale, size=(runs, coordinates))
    squares = (noise**2).sum(axis=1)
    error = float(squares.std()) / math.sqrt(runs)
    assert abs(float(squares.mean()) - coordinates * 2 * scale**2) <= 5 * error
    assert abs(float(squares.mean()) - 2 * scale**2) > 5 * error


def test_steps_of_the_learner_need_one_split_of_the_regulariser() -> None:
    """(5) gives each owner eta = 1/(2N) of g, (7) leaves the learner (N - 1)/N instead of 1 - N eta = 1/2."""
    assert [n for n in range(1, 50) if (n - 1) / n == 1 - n / (2 * n)] == [2]


# Jin, He, Dai, Theorems 3 and 4


def test_noise_of_without_replacement_sgd_has_a_variance_for_each_coordinate() -> None:
    """The proof of Theorem 3 has E|eta N|^2 / (2 eta): for d = 50, .178 where .0036 is printed.

    20,000 draws: a deviation of .2 % of the mean.
    """
    n, batch, rate, dimension = 60_000, 50, 0.1, 50
    delta = n**-2.0
    sigma = math.sqrt(2 * math.log(1.25 / delta)) * 2 * rate / batch
    noise = np.random.default_rng(5).normal(0, sigma, (20_000, dimension))
    measured = float((noise**2).sum(axis=1).mean()) / (2 * rate)
    printed = 4 * math.log(1.25 / delta) * rate / batch**2
    assert printed == pytest.approx(0.0036, abs=5e-5)
    assert measured == pytest.approx(dimension * printed, rel=0.02)
    assert measured == pytest.approx(0.178, rel=0.02)


def test_step_size_of_theorem_4_breaks_lemma_4_for_40_004_steps() -> None:
    """eta = 1/(a gamma t) <= 1/(2 mu) with a = .5, gamma = 1e-4, mu = 1 + 1e-4; the runs have 120."""
    first = next(t for t in range(1, 100_000) if 1 / (0.5 * 1e-4 * t) <= 1 / (2 * (1 + 1e-4)))
    assert first == 40_004


def test_the_ridge_moves_neighbouring_models_alike() -> None:
    """Only the data term differs: L = 1, where 1 + lambda R = 2 is printed for R = 1/lambda."""
    rng, ridge = np.random.default_rng(6), 1e-4
    model, batch = rng.normal(size=3), 4
    x = rng.normal(size=(batch, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    other = x.copy()
    other[0] = -x[0]

    def slope(rows: np.ndarray) -> np.ndarray:
        return np.asarray(ridge * model - (rows / (1 + np.exp(rows @ model))[:, None]).mean(axis=0))

    assert float(np.linalg.norm(slope(x) - slope(other))) <= 2 * 1.0 / batch
    # Opposite rows at the same model: the two slopes add up to one, half of the bound.
    assert float(np.linalg.norm(slope(x) - slope(other))) == pytest.approx(1.0 / batch)
