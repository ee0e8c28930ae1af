"""All pairs with noise each: the composition against brute force, the error against a simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.accountant.theorems import advanced_composition, optimal_composition
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.local_pairwise import exact_variance, zetas
from smpc_dp.privacy.naive_pairwise import plan_naive
from smpc_dp_lab.bench.kendall import ratings_distribution


@given(epsilon=st.floats(0.001, 2), count=st.integers(1, 60), part=st.floats(0, 1.2))
def test_optimal_composition_by_brute_force(epsilon: float, count: int, part: float) -> None:
    total = part * count * epsilon
    p = 1 / (1 + math.exp(-epsilon))
    expected = sum(
        math.comb(count, j)
        * max(0.0, p**j * (1 - p) ** (count - j) - math.exp(total) * (1 - p) ** j * p ** (count - j))
        for j in range(count + 1)
    )
    result = optimal_composition(epsilon, count, total)
    assert expected - 1e-13 <= result <= expected * (1 + 1e-5) + 2e-6 + 1e-13
    assert (result == 0.0) == (part >= 1) or expected < 1e-13


def test_optimal_composition_is_what_the_accountant_finds() -> None:
    """The accountant rounds each loss up to its grid, so it is above, by little where losses are large."""
    for epsilon, count, total in ((0.1, 100, 2.0), (0.5, 20, 4.0), (0.02, 400, 1.0)):
        ours = optimal_composition(epsilon, count, total)
        event = Event("pure", "substitution", (Pure(epsilon),))
        theirs = Composition([event] * count).delta(total)
        assert ours <= theirs * (1 + 1e-5)
        assert theirs <= ours * 1.4


def test_advanced_composition_costs_more_and_many_pairs_are_a_gaussian() -> None:
    n, epsilon, delta = 246_000, 1.0, 1e-8
    plans = {
        kind: plan_naive(n, epsilon, delta, 0.0, 0.25, composition=kind) for kind in ("advanced", "optimal")
    }
    assert plans["optimal"].noise_scale < plans["advanced"].noise_scale
    assert plans["advanced"].pairs == 246_000 * 245_999 // 2
    used = advanced_composition(plans["advanced"].pair_epsilon, 0.0, n - 1, delta)[0]
    assert used == pytest.approx(epsilon, rel=1e-6)
    assert used <= epsilon
    # n - 1 small losses of one size are about a Gaussian mechanism of the same total variance.
    mu = math.sqrt(n - 1) * plans["optimal"].pair_epsilon
    assert mu == pytest.approx(gaussian_mu(epsilon, delta), rel=0.01)
    assert mu <= gaussian_mu(epsilon, delta) * 1.001


def test_all_pairs_are_not_worst_at_small_epsilon() -> None:
    """T, Fig. 3.7, by the formulas: 246,000 records of 36 values, kernel in [0, 1], delta = 1e-8."""
    distribution = ratings_distribution()
    pairs = np.array(list(itertools.product(range(6), repeat=2)))
    signs = np.sign(pairs[:, None, :] - pairs[None, :, :])
    kernel = (1 + signs[..., 0] * signs[..., 1]) / 2
    worst = {}
    for epsilon in (0.25, 0.5, 1.0, 2.0):
        local = exact_variance(kernel, distribution, 246_000, epsilon)
        plan = plan_naive(246_000, epsilon, 1e-8, *zetas(kernel, distribution), composition="advanced")
        worst[epsilon] = plan.mean_squared_error > local
    assert worst == {0.25: False, 0.5: False, 1.0: True, 2.0: True}


def test_error_of_all_pairs_by_simulation() -> None:
    """10,000 runs; 5 standard errors: a right formula fails with chance 6e-7."""
    n, runs = 6, 10_000
    rng = np.random.default_rng(1)
    distribution = np.array([0.2, 0.5, 0.3])
    records = rng.choice(3, p=distribution, size=(runs, n))
    first, second = np.triu_indices(n, 1)
    values = (records[:, first] == records[:, second]).astype(np.float64)
    squares = distribution**2
    zeta_1 = float(distribution**3 @ np.ones(3)) - float(squares.sum()) ** 2
    zeta_2 = float(squares.sum()) - float(squares.sum()) ** 2
    plan = plan_naive(n, 2.0, 0.01, zeta_1, zeta_2)
    noisy = values + rng.laplace(scale=plan.noise_scale, size=values.shape)
    errors = (noisy.mean(axis=1) - squares.sum()) ** 2
    assert abs(errors.mean() - plan.mean_squared_error) < 5 * errors.std() / math.sqrt(runs)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"parties": 2}, "parties"),
        ({"delta": 0.0}, "delta"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"zeta_2": 0.3}, "zeta_2"),
        ({"composition": "best"}, "composition"),
    ],
)
def test_bad_plans_are_refused(change: dict[str, object], named: str) -> None:
    given = {"parties": 10, "epsilon": 1.0, "delta": 1e-6, "zeta_1": 0.1, "zeta_2": 0.25} | change
    with pytest.raises(ConfigError, match=named):
        plan_naive(**given)  # type: ignore[arg-type]
