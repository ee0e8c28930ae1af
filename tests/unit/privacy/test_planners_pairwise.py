"""Plans for pairwise statistics: formulas against simulation and brute force.

Seeds are fixed. Simulations accept 5 standard errors: over the choice of the seed a right formula fails a
comparison with chance 6e-7.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.privacy import local_auc, local_pairwise, pairwise_plan
from smpc_dp.privacy.local_baselines import local_baselines, read_model
from smpc_dp.privacy.local_pairwise import zetas
from smpc_dp.privacy.response import ResponseDistribution

Floats = NDArray[np.float64]


def agrees(samples: Floats, expected: float) -> bool:
    error = float(samples.std(ddof=1)) / math.sqrt(len(samples))
    return abs(float(samples.mean()) - expected) <= 5 * error


def kendall(values: int) -> Floats:
    """A kernel of width 2, sign(i - i') sign(j - j') on pairs of scores, as a matrix over the pairs."""
    pairs = np.array(list(itertools.product(range(values), repeat=2)))
    signs = np.sign(pairs[:, None, :] - pairs[None, :, :])
    return np.asarray(signs[..., 0] * signs[..., 1], dtype=np.float64)


def test_theorem_3_7_by_simulation() -> None:
    kernel = kendall(3)
    distribution = np.random.default_rng(1).dirichlet(np.ones(9))
    n, partners, epsilon, runs = 8, 3, 1.5, 60_000
    rng = np.random.default_rng(2)
    records = rng.choice(9, p=distribution, size=(runs, n))
    total = np.zeros(runs)
    for _ in range(partners):
        shuffled = rng.permuted(records, axis=1)
        total += kernel[shuffled[:, ::2], shuffled[:, 1::2]].sum(axis=1)
    plan = pairwise_plan.plan_pairwise(n, epsilon, *zetas(kernel, distribution), width=2, partners=partners)
    total += rng.laplace(scale=plan.noise_scale, size=(runs, partners * n // 2)).sum(axis=1)
    estimate = 2 * total / (partners * n)
    truth = float(distribution @ kernel @ distribution)
    assert agrees(estimate, truth)
    assert agrees((estimate - truth) ** 2, plan.mean_squared_error)
    # The printed noise term, half of the right one, is refused by the same comparison.
    assert not agrees((estimate - truth) ** 2, plan.mean_squared_error - plan.noise_error / 2)


@given(
    half=st.integers(2, 5_000),
    epsilon=st.floats(0.01, 50),
    second=st.floats(0, 0.25),
    share=st.floats(0, 0.5),
)
def test_the_best_number_of_partners_is_the_best(
    half: int, epsilon: float, second: float, share: float
) -> None:
    first = share * second
    plan = pairwise_plan.plan_pairwise(2 * half, epsilon, first, second)
    for p in range(1, 60):
        other = pairwise_plan.plan_pairwise(2 * half, epsilon, first, second, partners=p)
        assert plan.best_error <= other.mean_squared_error * (1 + 1e-12)
    # Many matchings without noise approach all pairs.
    many = pairwise_plan.sampling_error(2 * half, 10**9, first, second)
    assert many == pytest.approx(pairwise_plan.complete_error(2 * half, first, second), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"parties": 7}, "even"),
        ({"parties": 2}, "4..1000000000"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1e6}, "at most 100"),
        ({"zeta_1": 0.2}, "zeta_1"),
        ({"zeta_2": 0.3}, r"\[0, 0.25\]"),
        ({"partners": 0}, "partners"),
        ({"width": -1.0}, "width"),
    ],
)
def test_bad_pairwise_plans_are_refused(change: dict[str, float], named: str) -> None:
    given = {"parties": 10, "epsilon": 1.0, "zeta_1": 0.1, "zeta_2": 0.25} | change
    with pytest.raises(ConfigError, match=named):
        pairwise_plan.plan_pairwise(**given)  # type: ignore[arg-type]


def test_exact_local_variance_by_simulation() -> None:
    kernel, epsilon, n, runs = (kendall(2) + 1) / 2, 1.2, 6, 60_000
    k = len(kernel)
    rng = np.random.default_rng(3)
    distribution = rng.dirichlet(np.ones(k))
    beta = ResponseDistribution.of_epsilon(k, epsilon).beta
    records = rng.choice(k, p=distribution, size=(runs, n))
    answers = np.where(rng.random((runs, n)) < beta, rng.integers(0, k, (runs, n)), records)
    shifted = (np.eye(k)[answers] - beta / k) / (1 - beta)  # (runs, n, k)
    total = shifted.sum(axis=1)
    same = np.einsum("rni,ij,rnj->r", shifted, kernel, shifted)
    estimate = (np.einsum("ri,ij,rj->r", total, kernel, total) - same) / (n * (n - 1))
    truth = float(distribution @ kernel @ distribution)
    assert agrees(estimate, truth)
    exact = local_pairwise.exact_variance(kernel, distribution, n, epsilon)
    assert agrees((estimate - truth) ** 2, exact)


def test_randomised_response_has_its_epsilon_exactly() -> None:
    for k, epsilon in ((2, 0.1), (5, 1.0), (1000, 6.0)):
        beta = ResponseDistribution.of_epsilon(k, epsilon).beta
        assert (1 - beta + beta / k) / (beta / k) == pytest.approx(math.exp(epsilon))
        assert ResponseDistribution.of_epsilon(k, epsilon).retained == pytest.approx(1 - beta)


@given(seed=st.integers(0, 10**6), k=st.integers(1, 6), n=st.integers(2, 50), epsilon=st.floats(0.05, 8))
def test_variance_bounds_hold_and_ours_is_smaller(seed: int, k: int, n: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    kernel = np.round(rng.random((k, k))) if seed % 2 else rng.random((k, k))
    kernel = np.triu(kernel) + np.triu(kernel, 1).T
    exact = local_pairwise.exact_variance(kernel, rng.dirichlet(np.ones(k) / 2), n, epsilon)
    ours = local_pairwise.variance_bound(n, k, epsilon)
    assert exact <= ours * (1 + 1e-9)
    assert ours <= local_pairwise.published_variance_bound(n, k, epsilon) * (1 + 1e-12)


def test_quantisation_error_bounds_hold_where_the_printed_ones_fail() -> None:
    """T, Theorem 3.4. Worst cases: records on the edges of cells; a kernel that sees the centres alone."""
    for k in (1, 2, 5, 10):
        # h(x, y) = (x + y) / 2 with all records at 1/k, which simple rounding may count for the first cell.
        bias = 1 / k - 1 / (2 * k)
        bound = local_pairwise.quantisation_error(k, lipschitz=0.5)
        assert bias**2 <= bound * (1 + 1e-12)
        assert bias**2 > 0.5**2 / (2 * k**2)
        # Density 1 + L (x - 1/2), kernel any 0/1 function: the best one takes where the density is
        # above its cells'.
        slope, fine = 1.0, 200
        x = (np.arange(fine * k) + 0.5) / (fine * k)
        density = 1 + slope * (x - 0.5)
        cells = np.repeat(density.reshape(k, fine).mean(axis=1), fine)
        excess = np.maximum(np.outer(density, density) - np.outer(cells, cells), 0).mean()
        assert excess**2 <= local_pairwise.quantisation_error(k, density_lipschitz=slope)


def test_the_best_number_of_cells_is_the_best_and_scales_as_the_corollary_says() -> None:
    for n, epsilon, constant in ((100, 1.0, 1.0), (10_000, 0.5, 3.0), (10**6, 2.0, 0.5)):
        bins, error = local_pairwise.plan_quantisation(n, epsilon, lipschitz=constant)
        for other in range(1, 3 * bins + 20):
            bias = local_pairwise.quantisation_error(other, lipschitz=constant)
            assert error <= local_pairwise.variance_bound(n, other, epsilon) + bias + 1e-15
    n, constant = 10**12, 1.0
    errors = []
    for epsilon in (1.0, 0.25, 0.0625):
        k = max(1, round(local_pairwise.corollary_bins(n, epsilon, constant)))
        error = local_pairwise.variance_bound(n, k, epsilon) + local_pairwise.quantisation_error(
            k, lipschitz=constant
        )
        errors.append(error)
        # L / (sqrt(n) epsilon), not the printed L / sqrt(n epsilon).
        assert 1 / 3 < error * math.sqrt(n) * epsilon / constant < 3
    assert errors[2] / errors[0] > 8
    with pytest.raises(ConfigError, match="epsilon <= 1"):
        local_pairwise.corollary_bins(100, 1.5, 1.0)


def hadamard(size: int) -> Floats:
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def test_auc_variance_by_simulation() -> None:
    """Every party answers in every level by one Hadamard coefficient of its node, with epsilon / alpha."""
    epsilon, levels, runs = 6.0, 2, 40_000
    scores = {1: np.array([3, 3, 2, 1]), -1: np.array([0, 1, 1, 2, 3])}
    scale = 1 / ResponseDistribution.of_epsilon(2, epsilon / levels).retained
    rng = np.random.default_rng(5)
    total = np.zeros(runs)
    for level in range(1, levels + 1):
        size = 2**level
        table = hadamard(size)
        estimates = {}
        for label, values in scores.items():
            nodes = values >> (levels - level)
            drawn = rng.integers(0, size, (runs, len(values)))
            retained = rng.random((runs, len(values))) < (1 + 1 / scale) / 2
            answer = table[nodes, drawn] * np.where(retained, 1, -1)
            estimates[label] = np.einsum("ruj,ru->rj", table[drawn], answer) * scale
        total += (estimates[1][:, 1::2] * estimates[-1][:, 0::2]).sum(axis=1)
    auc = total / 20
    up, down = (np.bincount(scores[label], minlength=4).astype(np.float64) for label in (1, -1))
    truth = np.mean([[i > j for j in scores[-1]] for i in scores[1]])
    assert agrees(auc, float(truth))
    assert agrees((auc - truth) ** 2, local_auc.exact_variance(up, down, epsilon))


def test_auc_bound_has_its_condition() -> None:
    bound = local_auc.published_error_bound(300, 700, 6, 2.0)
    assert bound > local_auc.published_error_bound(300, 700, 6, 4.0)
    # Any a will do for a bound, so the one taken is the least over a coarse list.
    n, square = 1000, 1 / ResponseDistribution.of_epsilon(2, 2.0 / 6).retained ** 2
    values = [
        square / 6 * 36 * (2 * n + (4 * a + 1) * 300 + 21 * math.sqrt(2 * n * square) / (math.sqrt(a) - 1))
        for a in (1.1, 2, 5, 10, 50)
    ]
    assert bound <= min(values) / (300 * 700) <= 1.2 * bound
    with pytest.raises(ConfigError, match=r"levels <= sqrt\(n\)"):
        local_auc.published_error_bound(3, 6, 4, 2.0)


def test_rivals_are_the_ones_described() -> None:
    kernel, distribution = (kendall(2) + 1) / 2, np.full(4, 0.25)
    baselines = local_baselines(
        100,
        1.0,
        categories=4,
        model=(kernel, distribution),
        lipschitz=1.0,
        density_lipschitz=2.0,
        auc=(30, 3),
    )
    assert [r.proven for r in baselines] == [True, True, True, True, False]
    assert baselines[0].bound == baselines[1].bound
    assert baselines[0].exact is not None
    assert baselines[0].exact <= baselines[0].bound
    assert local_baselines(100, 1.0) == []


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"kernel": [[1]]},
        {"kernel": "x", "distribution": [1]},
        {"kernel": [[1]], "distribution": [[1]]},
        {"kernel": [[math.inf]], "distribution": [1]},
    ],
)
def test_bad_models_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="model"):
        read_model(value)
    with pytest.raises(ConfigError, match="add up to 1"):
        local_pairwise.exact_variance(np.eye(2), np.array([0.5, 0.6]), 3, 1.0)
    with pytest.raises(ConfigError, match="symmetric"):
        local_pairwise.exact_variance(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([0.5, 0.5]), 3, 1.0)
