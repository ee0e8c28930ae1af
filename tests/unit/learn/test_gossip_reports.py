"""Gossip on reports as a learner: the statistic, what is charged, and what is refused."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from smpc_dp.capabilities.learn.averager import Parties, PlainExchange, Rows
from smpc_dp.capabilities.learn.pair_statistics import GossipReports
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.capabilities.learn.simulation.learning import learn
from smpc_dp.errors import ConfigError

SETTINGS: dict[str, Any] = {
    "learner": "gossip-reports",
    "statistic": "gini_mean_difference",
    "lower": 0.0,
    "upper": 10.0,
    "bins": 50,
    "epsilon": 60.0,
    "ticks": 20_000,
}
RECORDS = np.random.default_rng(2).uniform(0, 10, size=(20, 2))


def truth(statistic: str) -> float:
    if statistic == "kendall_tau":
        return float(kendalltau(RECORDS[:, 0], RECORDS[:, 1])[0])
    x = RECORDS[:, 0]
    if statistic == "variance":
        return float(x.var(ddof=1))
    return float(np.mean([abs(a - b) for a, b in itertools.permutations(x, 2)]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("statistic", "bins", "near"),
    [("gini_mean_difference", 50, 0.15), ("variance", 50, 0.6), ("kendall_tau", 32, 0.12)],
)
def test_users_end_with_the_statistic(statistic: str, bins: int, near: float) -> None:
    """At epsilon 60 a report lies with chance 1e-23; what is left is cells and the end of the gossip."""
    settings = SETTINGS | {"statistic": statistic, "bins": bins}
    data = [row[None, : 2 if statistic == "kendall_tau" else 1] for row in RECORDS]
    result = learn(settings, data, fidelity="ideal")
    assert result.values.shape == (20, 1)
    assert abs(float(result.values.mean()) - truth(statistic)) < near
    assert np.abs(result.values - truth(statistic)).max() < 3 * near
    assert result.guarantee is not None
    assert result.guarantee.epsilon == pytest.approx(60.0)
    assert result.guarantee.delta == 0
    assert "randomised response" in result.claim


def test_only_reports_are_sent() -> None:
    """At epsilon 0.01 what is sent hardly tells the two records that there are."""
    sent: list[Rows] = []

    class Watched(PlainExchange):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            sent.append(vector.copy())
            return await super().exchange(vector, partner)

    learner = GossipReports(
        statistic="variance", lower=0.0, upper=1.0, bins=2, epsilon=0.01, ticks=40_000, topology="ring"
    )
    required = learner.requirements(2_000)
    assert required.exchange is not None
    assert required.own is not None
    asyncio.run(learner.run(LearnerContext(exchange=Watched(2_000)), [np.zeros((1, 1))] * 2_000))
    # Half of 2,000 equal records are reported as the other one, within 6 deviations: 2e-9.
    assert abs(float(sent[0][:, 1].mean()) - 0.5) < 6 / np.sqrt(4 * 2_000)
    assert max(float(np.linalg.norm(rows, axis=1).max()) for rows in sent) <= required.exchange.l2_bound
    assert np.array_equal(np.sort(sent[-1][:, 2]), np.arange(2_000))


@pytest.mark.long
def test_estimates_are_unbiased_under_real_noise() -> None:
    """60 runs of 60 parties at epsilon 2: the mean within 5 standard errors of what the cells have: 6e-7."""
    learner = GossipReports(
        statistic="gini_mean_difference", lower=0.0, upper=1.0, bins=4, epsilon=2.0, ticks=6_000
    )
    data = [np.array([[0.1 if party % 3 else 0.9]]) for party in range(60)]
    runs = [
        asyncio.run(learner.run(LearnerContext(exchange=PlainExchange(60)), data)).values.mean()
        for _ in range(60)
    ]
    expected = 0.75 * 2 * 20 * 40 / (60 * 59)
    assert abs(np.mean(runs) - expected) < 5 * np.std(runs, ddof=1) / np.sqrt(60) + 0.01
    assert np.std(runs) > 0.02


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"upper": -1.0}, "upper"),
        ({"upper": float("inf")}, "upper"),
        ({"statistic": "median"}, "statistic"),
        ({"statistic": "kendall_tau"}, "1024 cells"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-4, "bins": 1_000}, "epsilon: 0.0001 is too small for 1000 bins"),
        ({"ticks": 3}, "never meets anybody"),
        ({"delta": 1e-6}, "delta"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], named: str) -> None:
    _, faults = check_learn(SETTINGS | change, 20)
    assert any(named in str(fault) for fault in faults), faults


@pytest.mark.parametrize("bad", [[[10.5]], [[float("nan")]], [[1.0, 2.0]], [[1.0], [2.0]]])
def test_data_are_checked(bad: list[list[float]]) -> None:
    with pytest.raises(ConfigError, match="party 1"):
        learn(SETTINGS, [np.array([[1.0]]), np.array(bad), np.array([[3.0]])])


def test_the_last_cell_holds_the_upper_bound() -> None:
    learner = GossipReports(statistic="kendall_tau", lower=-1.0, upper=1.0, bins=3, epsilon=1.0, ticks=10)
    records = np.array([[-1.0, -1.0], [1.0, 1.0], [0.0, 1.0], [1.0, -1.0]])
    assert learner.quantiser.categorise(learner.kernel.codes(records)).tolist() == [0, 8, 5, 6]
    matrix = learner.quantiser.matrix(learner.kernel)
    assert matrix[8, 0] == 1
    assert matrix[6, 2] == -1
    assert matrix[5, 2] == 0
