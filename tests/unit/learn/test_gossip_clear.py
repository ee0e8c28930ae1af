"""Pairwise statistics by gossip as learners: every method and clock, in the clear and on reports."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.averager import Parties, PlainExchange, Rows
from smpc_dp.capabilities.learn.pair_statistics import GossipClear
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.capabilities.learn.simulation.learning import learn
from smpc_dp.errors import ConfigError

N = 12
RNG = np.random.default_rng(1)
# With ties.
RECORDS = np.round(RNG.uniform(0, 10, (N, 2)))
LABELS = (np.arange(N) % 3 == 0) * 1.0
STATISTICS = ("gini_mean_difference", "variance", "kendall_tau", "auc")
WAYS = (("gosta", "synchronous"), ("gosta", "asynchronous"), ("u2", "synchronous"))
EDGES = [[party, (party + 1) % N] for party in range(N)] + [[0, 5]]


def given(statistic: str, ticks: int, **change: Any) -> dict[str, Any]:
    settings = {
        "learner": "gossip-clear",
        "statistic": statistic,
        "lower": 0.0,
        "upper": 10.0,
        "ticks": ticks,
    }
    if statistic == "auc":
        settings["positives"] = 4
    if change.get("learner") == "gossip-reports":
        settings |= {"bins": 21 if statistic != "kendall_tau" else 31, "epsilon": 60.0}
    return settings | change


def data(statistic: str) -> list[np.ndarray]:
    if statistic == "auc":
        return [np.array([[score, label]]) for score, label in zip(RECORDS[:, 0], LABELS, strict=True)]
    return [row[None, : 2 if statistic == "kendall_tau" else 1] for row in RECORDS]


def truth(statistic: str) -> float:
    pairs = list(itertools.permutations(RECORDS, 2))
    if statistic == "kendall_tau":
        return float(np.mean([np.prod(np.sign(a - b)) for a, b in pairs]))
    if statistic == "auc":
        first, second = RECORDS[LABELS == 1, 0], RECORDS[LABELS == 0, 0]
        return float(np.mean([(1 + np.sign(a - b)) / 2 for a in first for b in second]))
    if statistic == "variance":
        return float(RECORDS[:, 0].var(ddof=1))
    return float(np.mean([abs(a[0] - b[0]) for a, b in pairs]))


@pytest.mark.thin(11)
@pytest.mark.parametrize("learner", ["gossip-clear", "gossip-reports"])
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(("method", "clock"), WAYS)
def test_users_end_with_the_statistic(learner: str, statistic: str, method: str, clock: str) -> None:
    """At epsilon 60 a report lies with chance 1e-23. U2 and cells of a rating are the coarsest here."""
    result = learn(given(statistic, 6_000, learner=learner, method=method, clock=clock), data(statistic))
    scale = {"gini_mean_difference": 3.0, "variance": 7.0}.get(statistic, 1.0)
    assert result.values.shape == (N, 1)
    assert abs(float(result.values.mean()) - truth(statistic)) < 0.12 * scale
    assert (result.guarantee is None) == (learner == "gossip-clear")
    assert ("NO PRIVACY between parties" in result.claim) == (learner == "gossip-clear")


@pytest.mark.long
@pytest.mark.parametrize("labels", ["private", "public"])
def test_reports_estimate_an_auc_without_bias(labels: str) -> None:
    """40 runs of 12 parties at epsilon 2, within 5 standard errors: 6e-7. Scores at the cells' centres."""
    scores = np.minimum(RECORDS[:, :1] // 2.5, 3) * 2.5 + 1.25
    tables = list(np.hstack([scores, LABELS[:, None]])[:, None])
    first, second = scores[LABELS == 1], scores[LABELS == 0]
    auc = float(((1 + np.sign(first - second.T)) / 2).mean())
    settings = given("auc", 1_000, learner="gossip-reports", bins=4, epsilon=2.0, labels=labels)
    learner = check_learn(settings, N)[0]
    assert learner is not None
    runs = [
        float(learn(learner, tables, fidelity="plain", seed_for_simulation=seed).values.mean())
        for seed in range(40)
    ]
    error = np.std(runs, ddof=1) / np.sqrt(40)
    # What is left of the start: log(t)/t.
    assert abs(np.mean(runs) - auc) < 5 * error + 0.02
    assert error > 0.01


@pytest.mark.thin(3)
@pytest.mark.parametrize("learner", ["gossip-clear", "gossip-reports"])
@pytest.mark.parametrize(("method", "clock"), WAYS)
def test_machines_and_their_ideal_have_the_same_bits(learner: str, method: str, clock: str) -> None:
    """Kendall's tau jumps at ties, of which there are many: records must come back as they went.

    None of these values is a multiple of a power of two.
    """
    settings = given("kendall_tau", 40, learner=learner, method=method, clock=clock, topology=EDGES)
    tables = [0.07 * table for table in data("kendall_tau")]
    plain, ideal, machines = (
        learn(settings, tables, fidelity=how, seed_for_simulation=1) for how in ("plain", "ideal", "machines")
    )
    np.testing.assert_array_equal(machines.values, ideal.values)
    np.testing.assert_allclose(ideal.values, plain.values, atol=1e-8)
    assert np.abs(plain.values).max() > 0
    assert "simulation of: NO PRIVACY" in machines.claim


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(("method", "clock"), WAYS)
def test_no_message_exceeds_its_bound(statistic: Any, method: Any, clock: Any) -> None:
    seen = []

    class Watched(PlainExchange):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            seen.append(float(np.linalg.norm(vector, axis=1).max()))
            return await super().exchange(vector, partner)

    positives = 3 if statistic == "auc" else None
    learner = GossipClear(
        statistic=statistic, lower=-2.0, upper=2.0, ticks=200, method=method, clock=clock, positives=positives
    )
    ends = [np.array([[2.0 * (-1) ** party, 2.0 * (-1) ** party]]) for party in range(6)]
    if statistic == "auc":
        ends = [np.array([[2.0 * (-1) ** party, float(party % 2)]]) for party in range(6)]
    tables = [table[:, : learner.fields] for table in ends]
    required = learner.requirements(6).exchange
    assert required is not None
    asyncio.run(learner.run(LearnerContext(exchange=Watched(6)), tables))
    assert max(seen) <= required.l2_bound
    assert required.participations.sum() == (800 if method == "u2" else 400)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"upper": 0.0}, "upper"),
        ({"method": "u2", "clock": "asynchronous"}, "clock"),
        ({"positives": 3}, "positives: is of auc alone"),
        ({"statistic": "auc"}, "positives: must be 1 to 11 for auc, is None"),
        ({"statistic": "auc", "positives": 12}, "positives: must be 1 to 11"),
        ({"ticks": 3}, "ticks: 3 are too few"),
        ({"lower": -1e6, "upper": 1e6, "ticks": 1_000_000, "clock": "synchronous"}, "rounded away"),
        ({"topology": [[0, 1], [2, 3]]}, "topology: the graph is disconnected"),
        ({"bins": 3}, "bins: unknown key"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], named: str) -> None:
    checked, faults = check_learn(given("variance", 500) | change, N)
    assert checked is None
    assert named in "; ".join(map(str, faults))


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (np.array([[1.0, np.nan]]), "label is missing"),
        (np.array([[1.0, 2.0]]), "the label is missing, or neither 0 nor 1$"),
        (np.array([[11.0, 1.0]]), r"outside \[0, 10\]"),
        (np.array([[1.0]]), "a score and a label"),
    ],
)
@pytest.mark.parametrize("learner", ["gossip-clear", "gossip-reports"])
def test_data_are_checked(learner: str, table: np.ndarray, named: str) -> None:
    tables = [*data("auc")[:3], table, *data("auc")[4:]]
    with pytest.raises(ConfigError, match=f"party 3: .*{named}"):
        learn(given("auc", 500, learner=learner), tables)
