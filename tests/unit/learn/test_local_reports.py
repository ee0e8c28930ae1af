"""Gossip on reports: exactly unbiased over all answers, and on average over runs."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.learn import topology
from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.dual_averaging import dual_averaging_asynchronous
from smpc_dp.capabilities.learn.gosta import gosta
from smpc_dp.capabilities.learn.local_reports import LocalReports
from smpc_dp.capabilities.learn.pairwise_losses import logistic_auc, logistic_metric
from smpc_dp.capabilities.learn.schedule import EdgeClock, PoissonClock
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench.many_clocks import ManyClocks

K = 3
REPORTS = LocalReports.plan(1.0, K)
POINTS = np.array([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]])


def distribution() -> NDArray[np.float64]:
    """P(answer | record), shape (k, k), from the definition."""
    ratio = float(REPORTS.response.ratio)
    chances = np.ones((K, K)) + (ratio - 1) * np.eye(K)
    rows: NDArray[np.float64] = chances / chances.sum(axis=1, keepdims=True)
    return rows


def test_kernel_is_unbiased_over_all_answers() -> None:
    matrix = np.random.default_rng(1).normal(size=(K, K))
    kernel, chances = REPORTS.kernel(matrix), distribution()
    for x, y in itertools.product(range(K), repeat=2):
        mean = sum(
            chances[x, i] * chances[y, j] * kernel(np.array([[i, 4.0]]), np.array([[j, 7.0]]))[0]
            for i, j in itertools.product(range(K), repeat=2)
        )
        assert mean == pytest.approx(matrix[x, y], abs=1e-12)
    assert kernel(np.array([[2, 4.0]]), np.array([[2, 4.0]]))[0] == 0


def test_the_table_is_that_of_the_aggregator() -> None:
    field = Field(0, 2, exact=True)
    plan = LocalPairwise.plan(kendall_tau(field, field), 1.0)
    matrix = plan.quantiser.matrix(plan.kernel)
    kernel = LocalReports(plan.response).kernel(matrix)
    pairs = np.array(list(itertools.product(range(9), repeat=2)), dtype=float)
    own = np.column_stack([pairs[:, 0], np.zeros(81)])
    other = np.column_stack([pairs[:, 1], np.ones(81)])
    np.testing.assert_allclose(kernel(own, other), plan.unbiased(matrix).ravel(), rtol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 1_000])
def test_pairs_grow_by_no_more_than_is_said(k: int) -> None:
    response = LocalReports.plan(1.0, k).response.distribution
    signs = np.where(np.arange(k) == 0, 1.0, -1.0)
    result = np.abs(response.unbiased_pairs(np.outer(signs, signs))).max()
    assert result <= response.pair_growth()
    assert k < 1_000 or result > 0.99 * response.pair_growth()


@pytest.mark.parametrize("labels", [None, (1.0, 0.0), (0.0, 1.0)])
def test_gradient_is_unbiased_over_all_answers(labels: tuple[float, float] | None) -> None:
    loss = logistic_metric() if labels is None else logistic_auc()
    plain = loss.gradient
    if labels is None:
        # Without labels: all are alike.
        plain = lambda theta, own, other: loss.gradient(  # noqa: E731
            theta, *(np.column_stack([rows, np.ones(len(rows))]) for rows in (own, other))
        )
    p = 4 if labels is None else 2
    gradient, chances = REPORTS.gradient(plain, POINTS, labelled=labels is not None), distribution()
    theta = np.random.default_rng(2).normal(size=(1, p))
    for x, y in itertools.product(range(K), repeat=2):
        mean = np.zeros(p)
        for i, j in itertools.product(range(K), repeat=2):
            own, other = np.array([[i, 4.0]]), np.array([[j, 7.0]])
            if labels is not None:
                own, other = np.append(own, [[labels[0]]], axis=1), np.append(other, [[labels[1]]], axis=1)
            mean += chances[x, i] * chances[y, j] * gradient(theta, own, other)[0]
        own, other = POINTS[x : x + 1], POINTS[y : y + 1]
        if labels is not None:
            own, other = np.append(own, [[labels[0]]], axis=1), np.append(other, [[labels[1]]], axis=1)
        np.testing.assert_allclose(mean, plain(theta, own, other)[0], atol=1e-12)


def test_blocks_of_gradients_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = REPORTS.gradient(logistic_auc().gradient, POINTS, labelled=True)
    rng = np.random.default_rng(3)
    own, other = (
        np.column_stack([rng.integers(0, K, 20), np.arange(20) + shift, rng.integers(0, 2, 20)]) * 1.0
        for shift in (0, 1)
    )
    theta = rng.normal(size=(20, 2))
    whole = gradient(theta, own, other)
    monkeypatch.setattr("smpc_dp.capabilities.learn.local_reports._BLOCK", 40)
    np.testing.assert_array_equal(gradient(theta, own, other), whole)


def test_gossip_on_reports_estimates_the_statistic_of_the_records() -> None:
    """Mean over 400 runs of all parties' estimates within 5 standard errors: false-alarm rate 6e-7."""
    n, copies = 20, 400
    categories = np.where(np.arange(n) < 16, 0, 2)
    matrix = np.abs(np.subtract.outer(np.arange(K), np.arange(K))) / 2.0
    truth = matrix[categories[:, None], categories[None]].sum() / (n * (n - 1))
    graph = topology.complete(n)
    records = REPORTS.randomise(
        np.tile(categories, copies), np.arange(n * copies), source=NoiseSource.keyed(bytes(31) + b"\1")
    )
    clock = ManyClocks([EdgeClock(graph, 1, copy) for copy in range(copies)])
    got = asyncio.run(gosta(PlainExchange(n * copies), records, REPORTS.kernel(matrix), clock, 1_000))
    runs = got.final.reshape(copies, n).mean(axis=1) * n / (n - 1)
    error = runs.std() / np.sqrt(copies)
    assert error < 0.035
    # What is left after 1,000 ticks: the start, at which every party held its own report.
    left = 1.5 / (graph.spectral_gap / len(graph.edges) * 1_000) * truth
    assert abs(runs.mean() - truth) < 5 * error + left
    # The plain kernel on reports is far off: the test can fail.
    table = np.asarray(matrix)
    chances = distribution()
    naive = (chances @ table @ chances.T)[categories[:, None], categories[None]]
    naive_mean = (naive.sum() - np.trace(naive)) / (n * (n - 1))
    assert abs(naive_mean - truth) > 5 * error + left


def test_labelled_kernel_gives_the_area_under_the_curve() -> None:
    """At an epsilon that changes nothing, the estimates are those of the AUC."""
    exact = LocalReports.plan(40.0, K)
    n = 30
    rng = np.random.default_rng(5)
    labels = (np.arange(n) % 3 == 0) * 1.0
    categories = np.minimum(rng.integers(0, K, n) + labels.astype(int), K - 1)
    matrix = (1 + np.sign(np.subtract.outer(np.arange(K), np.arange(K)))) / 2.0
    rows = exact.randomise(categories, np.arange(n), labels=labels)
    got = asyncio.run(
        gosta(
            PlainExchange(n), rows, exact.labelled_kernel(matrix), EdgeClock(topology.complete(n), 1), 40_000
        )
    )
    auc = matrix[categories[labels == 1][:, None], categories[labels == 0][None]].mean()
    assert got.final.mean() * n**2 / (10 * 20) == pytest.approx(auc, rel=0.1)


def test_dual_averaging_learns_from_reports() -> None:
    """Two categories, told apart by their labels mostly: the learned score puts them in the right order."""
    n = 120
    reports = LocalReports.plan(2.0, 2)
    points = np.array([[-1.0], [1.0]])
    labels = (np.arange(n) % 2).astype(np.float64)
    rng = np.random.default_rng(6)
    categories = np.where(rng.random(n) < 0.85, labels, 1 - labels).astype(int)
    rows = reports.randomise(
        categories, np.arange(n), labels=labels, source=NoiseSource.keyed(bytes(31) + b"\2")
    )
    gradient = reports.gradient(logistic_auc().gradient, points, labelled=True)
    clock = PoissonClock(topology.complete(n), 1)
    got = asyncio.run(
        dual_averaging_asynchronous(PlainExchange(n), rows, gradient, clock, 4_000, dimension=1)
    )
    assert got.final.mean() > 0.2
    assert reports.guarantee.epsilon <= 2.0
    assert "against everybody else together" in reports.claim


def test_bad_input_is_refused() -> None:
    with pytest.raises(PrivacyError):
        REPORTS.randomise(np.array([0, 3]), np.arange(2))
    with pytest.raises(ConfigError, match="one category"):
        REPORTS.randomise(np.array([0, 1, 2]), np.arange(2))
    with pytest.raises(ConfigError, match="categories"):
        LocalReports.plan(1.0, 1)
    with pytest.raises(ConfigError, match=r"\(3, 3\)"):
        REPORTS.kernel(np.zeros((2, 2)))
    with pytest.raises(ConfigError, match=r"\(3, d\)"):
        REPORTS.gradient(logistic_auc().gradient, np.zeros((2, 2)))
