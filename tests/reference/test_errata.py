"""Numeric evidence for docs/proofs/errata.md: what the papers print, what is right, and that the two differ.

Seeds are fixed, so a test passes always or never. "Alarm" is the chance that a right formula fails the test
over the choice of the seed; the simulations accept 5 standard errors, an alarm of 6e-7 for each comparison.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.graph_descent import GraphObjective, descend_graph
from smpc_dp.privacy.guarantee import delta_warnings

Floats = NDArray[np.float64]

STANDARD_ERRORS = 5.0


def agrees(samples: Floats, expected: float) -> bool:
    """Tell whether the mean of independent `samples` is within five standard errors of `expected`."""
    error = float(samples.std(ddof=1)) / math.sqrt(len(samples))
    return abs(float(samples.mean()) - expected) <= STANDARD_ERRORS * error


# Bellet 2021, Theorem 3.7


def test_subsampled_u_statistic_noise_is_four_p_over_n_epsilon_squared() -> None:
    n, pairings, epsilon, runs = 20, 3, 0.7, 40_000
    rng = np.random.default_rng(1)
    noise = rng.laplace(scale=pairings / epsilon, size=(runs, pairings * n // 2)).sum(axis=1)
    squares = (2 / (pairings * n) * noise) ** 2
    assert agrees(squares, 4 * pairings / (n * epsilon**2))
    assert not agrees(squares, 2 * pairings / (n * epsilon**2))


def test_subsampled_u_statistic_error_needs_the_variance_of_the_conditional_mean() -> None:
    """x uniform on {-1, 0, 1} and h(x, y) = [x y > 0], where both readings of zeta_1 have simple values."""
    n, pairings, runs = 8, 3, 40_000
    mean = 2 / 9  # E h; E[h given x] is 1/3 for x = -1 and 1, and 0 for x = 0
    of_mean = 2 / 3 * (1 / 3) ** 2 - mean**2  # Var(E[h given X_1])
    mean_of = 2 / 3 * (1 / 3 * 2 / 3)  # E[Var(h given X_1)], one reading of Var(h(x_1, X_2) given x_1)
    zeta_2 = mean * (1 - mean)
    rng = np.random.default_rng(2)
    x = rng.integers(-1, 2, (runs, n))
    total = np.zeros(runs)
    for _ in range(pairings):
        shuffled = rng.permuted(x, axis=1)
        total += (shuffled[:, ::2] * shuffled[:, 1::2] > 0).sum(axis=1)
    squares = (2 / (pairings * n) * total - mean) ** 2

    def sampling_error(zeta_1: float) -> float:
        first = 2 * (pairings - 1) * (1 - 1 / (n - 1)) * zeta_1
        return 2 / (pairings * n) * (first + (1 + (pairings - 1) / (n - 1)) * zeta_2)

    assert agrees(squares, sampling_error(of_mean))
    assert not agrees(squares, sampling_error(mean_of))


# Bellet 2021, section 3.2.1


def test_dual_averaging_descends_with_the_other_sign() -> None:
    """On f(t) = (t - 3)^2 / 2 the printed map, which is gamma z for psi = 0, runs away from 3."""

    def run(sign: float, steps: int = 60, gamma: float = 0.5) -> float:
        theta, z = 0.0, 0.0
        for _ in range(steps):
            z += theta - 3.0
            theta = sign * gamma * z
        return theta

    assert run(-1.0, steps=1) > 0.0 > run(+1.0, steps=1)
    assert run(-1.0) == pytest.approx(3.0)
    assert run(+1.0) < -1e6


# Bellet 2021, Algorithm 4.3


def test_ring_histogram_is_unbiased_only_when_all_random_elements_are_taken_out() -> None:
    counts, beta, runs = np.array([30, 8, 2]), 0.4, 20_000
    d, parties, rounds = len(counts), 40, 1
    initial = round(beta * parties)
    rng = np.random.default_rng(3)
    token = rng.multinomial(initial, np.full(d, 1 / d), size=runs).astype(np.float64)
    for value, count in enumerate(counts):
        chance = np.full(d, beta / d)
        chance[value] += 1 - beta
        token += rng.multinomial(count, chance, size=runs)
    printed = (token - beta / d) / (1 - beta)
    contributions = parties * rounds
    right = (token - initial / d - contributions * beta / d) / (1 - beta)
    for value, count in enumerate(counts):
        assert agrees(right[:, value], count)
        assert not agrees(printed[:, value], count)


# Bellet 2021, Theorem 4.4


def beta_of(exponent: float, d: int) -> float:
    return d / (math.exp(exponent) + d - 1)


def test_ring_histogram_exponent_grows_with_the_ring() -> None:
    d, epsilon, delta = 10, 0.1, 1e-6
    for n in (10**4, 10**6, 10**8):
        printed = 12 * epsilon * math.sqrt(math.log(1 / delta) / n)
        right = epsilon * math.sqrt(n / math.log(1 / delta)) / 12
        # What shuffling makes of local epsilon_0 [Erlingsson et al. 2019].
        assert 12 * right * math.sqrt(math.log(1 / delta) / n) == pytest.approx(epsilon)
        assert 12 * printed * math.sqrt(math.log(1 / delta) / n) < epsilon / 5
    growing = [beta_of(12 * epsilon * math.sqrt(math.log(1 / delta) / n), d) for n in (10**4, 10**6, 10**8)]
    assert growing == sorted(growing)
    assert growing[-1] > 0.999  # as printed, a larger ring needs more noise, and in the end nothing but noise


# Bellet 2021, Algorithm 4.2


@pytest.mark.parametrize(("n", "rounds"), [(5, 2), (7, 3), (10, 4)])
def test_ring_sum_leaves_the_last_contributions_bare(n: int, rounds: int) -> None:
    """Whoever knows the token before them and the published total learns the sum after the last noise."""
    noisy, wait = [], 0
    for index in range(rounds * n):
        if wait == 0:
            noisy.append(index)
            wait = n - 2
        else:
            wait -= 1
    bare = rounds * n - 1 - noisy[-1]
    assert len(noisy) == math.ceil(rounds * n / (n - 1))
    # As many as rounds - 1; for two rounds one party, the last, whose neighbour saw the token just before.
    assert bare == rounds - 1


# Bellet 2021, Table 4.1 with Theorem 4.1 and Corollary 4.1


def gopa_degree(n_honest: int, rho: float, delta: float) -> int:
    """Return the least k of Theorem 4.1, which gives (epsilon, 3 delta)."""
    requirements = (
        4 * math.log(2 * n_honest / (3 * delta)),
        6 * math.log(n_honest / 3),
        1.5 + 2.25 * math.log(2 * math.e / delta),
    )
    return math.ceil(max(requirements) / rho)


def gopa_sigma(n_honest: int, rho: float, k: int, delta_prime: float, delta: float, parties: int) -> float:
    """Return sigma_Delta of Corollary 4.1 with epsilon = 0.1 and sigma_eta^2 = c^2 / (parties epsilon^2)."""
    share = math.log(delta / 3.75) / math.log(delta_prime / 1.25)
    kappa = share / (1 - share)
    sigma_eta_squared = 2 * math.log(1.25 / delta_prime) / (parties * 0.1**2)
    spread = 1 / (math.floor((k - 1) * rho / 3) - 1) + (12 + 6 * math.log(n_honest)) / n_honest
    return math.sqrt(kappa * sigma_eta_squared * n_honest * spread)


def test_gopa_table_follows_its_caption_for_all_honest_and_not_for_half() -> None:
    n = 10_000
    delta_prime = 1 / n**2
    assert gopa_degree(n, 1.0, 10 * delta_prime / 3) == 105
    assert gopa_sigma(n, 1.0, 105, delta_prime, 10 * delta_prime, n) == pytest.approx(44.7, abs=0.05)
    half = n // 2
    caption = 1 / half**2
    assert gopa_degree(half, 0.5, 10 * caption / 3) == 192
    assert gopa_sigma(half, 0.5, 192, caption, 10 * caption, half) == pytest.approx(46.0, abs=0.05)
    # The printed row: n in place of n_H, in delta' and in the variance of the independent noise.
    assert gopa_degree(half, 0.5, 10 * delta_prime / 3) == 203
    assert gopa_sigma(half, 0.5, 203, delta_prime, 10 * delta_prime, n) == pytest.approx(34.4, abs=0.05)


def test_gopa_corollary_does_not_follow_near_epsilon_one() -> None:
    """theta is eps^2 (1 + 1/kappa) / c^2 by the corollary, whatever k and n; (4.3) has delta/3."""
    for curator, delta in ((1e-8, 1e-7), (1e-6, 1e-5), (1e-12, 5e-11)):
        share = math.log(delta / 3.75) / math.log(curator / 1.25)  # kappa/(kappa + 1)
        for epsilon, holds in ((0.1, True), (0.5, True), (0.85, True), (0.99, False)):
            theta = epsilon**2 / (2 * math.log(1.25 / curator) * share)
            needed = 2 * math.log(2 / (delta / 3 * math.sqrt(2 * math.pi))) * theta
            assert ((epsilon - theta / 2) ** 2 >= needed) is holds


# Bellet et al. 2018, Theorem 1


def test_lipschitz_in_the_l1_norm_does_not_bound_the_l1_norm_of_gradients() -> None:
    """f(t) = t_1 + .. + t_p is 1-Lipschitz for l1, p-Lipschitz for l-infinity; its gradient has l1 norm p."""
    p = 6
    gradient = np.ones(p)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=p)))  # the vertices of the l-infinity ball
    assert np.abs(np.eye(p) @ gradient).max() == 1.0  # the vertices of the l1 ball
    assert np.abs(signs @ gradient).max() == p == np.abs(gradient).sum()


# Bellet 2021, Theorem 2.1


def test_the_rate_of_graph_descent_needs_the_mu_of_the_whole_objective() -> None:
    """n = 3, rho = 2, lambda_2 = .1: the printed factor is -5.67, and no gap is below 0."""
    n, rho, scale, density = 3, 2, 0.1, 1e9
    objective = GraphObjective(np.array([[0.0, 2, 1], [2, 0, 3], [1, 3, 0]]) * 1e8, scale, density)
    start = np.array([[0.0, 5, 2], [5, 0, 1], [2, 1, 0]])
    smooth = objective.smoothness(rho)
    assert 1 - 2 * rho * 2 * density / (n * (n - 1) * smooth) == pytest.approx(-5.67, abs=0.01)
    weights = start
    for step in ([0, 1, 2], [1, 0, 2], [2, 0, 1]) * 50:
        weights = descend_graph(objective, weights, np.array([step]))
    least = objective.value(weights)
    after = [
        objective.value(descend_graph(objective, start, np.array([step]))) - least
        for step in ([0, 1, 2], [1, 0, 2], [2, 0, 1])
    ]
    assert 0 <= np.mean(after) <= objective.contraction(rho) * (objective.value(start) - least)


# Bellet et al. 2018, Theorem 2 and Proposition 2; Bellet 2021, Theorem 2.2


def test_old_noise_counts_less_and_every_coordinate_counts() -> None:
    """One party, M(t) = (t_1^2 + L t_2^2) / 2, two steps of size 1/L from the optimum, Laplace noise."""
    big, p, runs = 4.0, 2, 40_000
    curvature = np.array([1.0, big])
    contraction = 1 - 1.0 / big  # C for mu = 1, n = 1

    def exact(scales: tuple[float, ...]) -> float:
        """E[M] after the last step: noise of variance 2 s^2 in each coordinate shrinks by 1 - h/L a step."""
        shrunk = [(1 - curvature / big) ** (2 * (len(scales) - 1 - t)) for t in range(len(scales))]
        return sum(
            float((curvature / 2 * left).sum()) * 2 * s**2 / big**2
            for s, left in zip(scales, shrunk, strict=True)
        )

    def bound(scales: tuple[float, ...], *, right: bool) -> float:
        last = len(scales) - 1
        terms = [contraction ** (last - t if right else t) * s**2 for t, s in enumerate(scales)]
        return (p if right else 1) * sum(terms) / big

    rng = np.random.default_rng(4)
    theta = np.zeros((runs, p))
    for scale in (1.0, 0.2):
        theta -= (curvature * theta + rng.laplace(scale=scale, size=theta.shape)) / big
    assert agrees(0.5 * (curvature * theta**2).sum(axis=1), exact((1.0, 0.2)))
    for scales in ((1.0, 0.2), (1.0, 0.0), (0.0, 1.0), (0.3, 0.3)):
        assert exact(scales) <= bound(scales, right=True)
    assert exact((0.0, 1.0)) > bound((0.0, 1.0), right=False)


def test_best_noise_allocation_is_reversed_in_time() -> None:
    """Minimise sum of w(t) / epsilon(t)^2 for a fixed sum of epsilon(t): epsilon(t) is as w(t)^(1/3)."""
    contraction, steps = 0.8, 6
    right = np.array([contraction ** (steps - 1 - t) for t in range(steps)])
    allocations = {
        "printed": np.array([contraction ** (t / 3) for t in range(steps)]),
        "reversed": np.array([contraction ** ((steps - 1 - t) / 3) for t in range(steps)]),
        "equal": np.ones(steps),
    }
    loss = {name: float((right / (a / a.sum()) ** 2).sum()) for name, a in allocations.items()}
    assert loss["reversed"] < loss["equal"] < loss["printed"]
    rng = np.random.default_rng(5)
    others = rng.dirichlet(np.ones(steps), 2_000)
    assert (right / others**2).sum(axis=1).min() > loss["reversed"]


# Bellet et al. 2018, Remark 4, and the classical Gaussian mechanism


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float = 1.0) -> float:
    """Return the exact delta of the Gaussian mechanism [Balle and Wang 2018, Theorem 8]."""

    def cdf(value: float) -> float:
        return 0.5 * math.erfc(-value / math.sqrt(2))

    a, b = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    return cdf(a - b) - math.exp(epsilon) * cdf(-a - b)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least sigma for sensitivity 1, by bisection."""
    low, high = 1e-3, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gaussian_delta(middle, epsilon) > delta else (low, middle)
    return high


def test_gaussian_noise_without_the_data_size_is_too_large() -> None:
    """The l2 sensitivity of a mean of m gradients is 2 L / m: without 1/m there is m times the noise."""
    m, lipschitz, epsilon, delta = 50, 1.0, 0.5, 1e-5
    sensitivity = 2 * lipschitz / m
    with_size = 2 * lipschitz * math.sqrt(2 * math.log(2 / delta)) / (epsilon * m)
    assert gaussian_delta(with_size, epsilon, sensitivity) <= delta
    assert gaussian_delta(m * with_size, epsilon, sensitivity) < 1e-200


def test_analytic_gaussian_saves_over_forty_percent_of_the_variance() -> None:
    epsilon, delta = 0.1, 1e-8
    classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    analytic = gaussian_sigma(epsilon, delta)
    assert gaussian_delta(analytic, epsilon) == pytest.approx(delta, rel=1e-6)
    assert 1 - (analytic / classical) ** 2 == pytest.approx(0.434, abs=0.001)


def test_classical_gaussian_fails_for_large_epsilon() -> None:
    """At epsilon = 1 it still holds, though unproven; at 10 it gives more than delta."""
    for epsilon, holds in ((0.1, True), (1.0, True), (10.0, False)):
        for delta in (1e-5, 1e-8):
            sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
            assert (gaussian_delta(sigma, epsilon) <= delta) is holds


# Graph-homomorphic perturbations, Theorem 1


def test_laplace_noise_per_coordinate_pays_for_the_l1_norm() -> None:
    """A difference of l2 norm g over M coordinates costs sqrt(M) g / b, more than the printed g / b."""
    coordinates, gradient, scale = 25, 2.0, 1.5
    difference = np.full(coordinates, gradient / math.sqrt(coordinates))
    assert np.linalg.norm(difference) == pytest.approx(gradient)
    # The log-density ratio of Lap(0, b) noise at a point beyond every coordinate of the difference.
    point = difference + 10.0
    loss = float((np.abs(point) - np.abs(point - difference)).sum()) / scale
    assert loss == pytest.approx(math.sqrt(coordinates) * gradient / scale)
    assert loss > gradient / scale


# Graph-homomorphic perturbations, (28)


def test_network_disagreement_has_a_variance_for_each_coordinate() -> None:
    """w <- A (w + v) - v without gradients: the stationary deviation by eigenvalues, and by simulation."""
    agents, coordinates, scale = 20, 30, 1.0
    weights = np.full((agents, agents), 0.5 / (agents - 1))
    np.fill_diagonal(weights, 0.5)
    values = np.linalg.eigvalsh(weights)[:-1]
    second = float(np.abs(values).max())
    spread = (1 - 0.5) + (1 - 0.5) ** 2 / 0.5**2
    printed = scale**2 * 2 * spread / (1 - second)
    exact = 2 * scale**2 * float(((1 - values) / (1 + values)).sum()) / agents * coordinates
    assert printed < exact <= printed * coordinates
    rng = np.random.default_rng(6)
    models = np.zeros((agents, coordinates * 40))
    for _ in range(40):
        noise = rng.laplace(scale=scale, size=models.shape)
        models = weights @ (models + noise) - noise
    away = models - models.mean(axis=0)
    # 24,000 squares: 5 standard errors are 8 %
    assert float((away**2).sum()) / (agents * 40) == pytest.approx(exact, rel=0.08)


def test_delta_of_the_personalised_experiments_is_above_one_over_n() -> None:
    """Publishing one of n parties' data at random is (0, 1/n)-DP; the library warns of such a delta."""
    delta = math.exp(-5)
    assert 1 / 149 < delta < 1 / 148
    assert delta_warnings(delta, 148) == ()
    assert "above 1/n" in delta_warnings(delta, 149)[0]
