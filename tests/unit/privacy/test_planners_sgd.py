"""DP-SGD side by side, and the forecast for collaboration.

Seeds are fixed; simulations accept 5 standard errors, a false alarm of 6e-7 over the choice of the seed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.privacy import collaboration, dp_sgd
from smpc_dp.privacy.gaussian import gaussian_delta


@pytest.mark.long
@pytest.mark.parametrize(
    ("epsilon", "published", "local"),
    [(1.0, (117.2, 17.42, 27.46), 29.27), (10.0, (14.68, 1.742, 3.068), 3.749)],
)
def test_published_and_fair_sigmas(
    epsilon: float, published: tuple[float, float, float], local: float
) -> None:
    plan = dp_sgd.plan_sgd(2000, 20_000, epsilon, 1e-6)
    assert plan.max_contributions == 12
    assert plan.published is not None
    result = (plan.published.local, plan.published.central, plan.published.network)
    assert result == pytest.approx(published, rel=5e-4)
    assert plan.fair.local == pytest.approx(local, rel=5e-4)
    # 12 contributions, each moved by 2 L: the Gaussian mechanism with shift 2 sqrt(12) / sigma.
    assert gaussian_delta(epsilon, 2 * math.sqrt(12) / plan.fair.local) <= 1e-6
    assert plan.fair.central < plan.fair.network < plan.published.network
    # docs/proofs/planners.md has these.
    documented = {1.0: (1.470, 7.387, 6.804), 10.0: (0.8521, 1.146, 1.015)}[epsilon]
    sigmas = {row.setting: row.sigma for row in plan.rows}
    assert (plan.fair.network, sigmas["network, path known"]) == pytest.approx(documented[1:], rel=1e-3)
    assert plan.fair.central == pytest.approx(documented[0], rel=4e-4)
    assert sigmas["network, path hidden"] == pytest.approx(documented[0], rel=1e-3)
    assert sigmas["network, convex losses"] == min(plan.fair.network, sigmas["network, path known"])
    assert plan.fair.network < plan.fair.local
    assert [row.setting for row in plan.rows][:2] == ["local", "central"]


@pytest.mark.long
def test_the_script_without_an_answer_leaves_the_fair_table() -> None:
    plan = dp_sgd.plan_sgd(50, 100, 60.0, 1e-2, lipschitz=3.0)
    assert plan.fair.local > 0
    assert any("1/parties" not in line for line in plan.warnings) is (plan.published is None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"parties": 1}, "parties"),
        ({"steps": 0}, "steps"),
        ({"lipschitz": 0.0}, "lipschitz"),
        ({"slack": 0.5}, "slack"),
        ({"delta": 0.0}, "delta"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_bad_sgd_plans_are_refused(change: dict[str, float], named: str) -> None:
    given: dict[str, float] = {"parties": 100, "steps": 100, "epsilon": 1.0, "delta": 1e-5} | change
    with pytest.raises(ConfigError, match=named):
        dp_sgd.plan_sgd(**given)  # type: ignore[arg-type]


def test_forecast_by_simulation() -> None:
    sizes, epsilons, steps, runs = [40, 10, 25], [1.0, 3.0, 0.5], 2, 20_000
    plan = collaboration.plan_collaboration(sizes, epsilons, steps=steps, width=2.0)
    rng = np.random.default_rng(11)
    total = np.zeros(runs)
    for owner in plan.owners:
        mean = rng.uniform(-1, 1, (runs, owner.size)).mean(axis=1)
        alone = mean + rng.laplace(scale=owner.laplace_scale, size=runs)
        for squares, expected in ((mean**2, owner.alone), (alone**2, owner.alone_private)):
            error = float(squares.std()) / math.sqrt(runs)
            assert abs(float(squares.mean()) - expected) <= 5 * error
        total += owner.size / plan.total * alone
    error = float((total**2).std()) / math.sqrt(runs)
    assert abs(float((total**2).mean()) - plan.owners[0].together) <= 5 * error


def test_collaboration_pays_with_many_records_and_not_with_tiny_budgets() -> None:
    rich = collaboration.plan_collaboration([1000] * 10, [1.0] * 10)
    assert all(owner.pays for owner in rich.owners)
    poor = collaboration.plan_collaboration([1000] * 10, [0.001] * 10)
    assert not any(owner.pays for owner in poor.owners)
    assert all(owner.pays_if_private for owner in poor.owners)


def test_published_bounds_as_printed() -> None:
    epsilons, total = [1.0, 2.0], 500
    squares = 1 + 1 / 4
    limit = collaboration.bound_10(total, epsilons, 3.0, 5.0)
    assert limit == pytest.approx(4 * 3 / total * math.sqrt(squares) + 16 * 5 / total**2 * squares)
    assert collaboration.bound_8(10**9, total, epsilons, 3.0, 5.0) == pytest.approx(limit, rel=1e-5)
    few = [(1 / 7 + 2 * math.sqrt(2) / (total * e)) ** 2 for e in epsilons]
    inner = 1 / 49 + 2 * sum(few)
    assert collaboration.bound_8(7, total, epsilons, 1.0, 0.0) == pytest.approx(math.sqrt(inner))
    assert collaboration.bound_8(7, total, epsilons, 0.0, 1.0) == pytest.approx(inner)


def test_the_averaging_of_the_proof_contracts_in_expectation_alone() -> None:
    """lambda of `proof_constants`: 1 - 1/(2N) for the mean matrix, and 1 for a single one."""
    for n in (2, 3, 7):
        single = []
        for owner in range(n):
            matrix = np.eye(n + 1)
            step = np.eye(n + 1)[owner] - np.eye(n + 1)[n]
            single.append(matrix - np.outer(step, step) / 2)
        centre = np.eye(n + 1) - 1 / (n + 1)
        assert np.linalg.norm(centre @ single[0], 2) == pytest.approx(1)
        second = np.sort(np.linalg.eigvalsh(np.mean(single, axis=0)))[-2]
        assert second == pytest.approx(1 - 1 / (2 * n))
        root, linear = collaboration.proof_constants(n, 3.0, 2.0, 0.5)
        assert linear == pytest.approx(0.5 * n * 9 / 4)
        assert root == pytest.approx(linear * 2 * n * math.sqrt(n + 1) / (1 - math.sqrt(second)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sizes": [1, 2]}, "as many of both"),
        ({"sizes": [0]}, "sizes"),
        ({"epsilons": [-1.0]}, "epsilons"),
        ({"steps": 0}, "steps"),
        ({"width": 0.0}, "width"),
        ({"variance": 0.3}, "variance"),
        ({"constants": (0.0, 1.0)}, "constants"),
    ],
)
def test_bad_collaborations_are_refused(change: dict[str, object], named: str) -> None:
    given: dict[str, object] = {"sizes": [10], "epsilons": [1.0]} | change
    with pytest.raises(ConfigError, match=named):
        collaboration.plan_collaboration(**given)  # type: ignore[arg-type]
