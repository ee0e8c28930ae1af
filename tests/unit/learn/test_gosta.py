"""Gossip estimation against the papers' loops, its rate, its expectation, and what it refuses."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn import topology
from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.gossip_bounds import gosta_bound
from smpc_dp.capabilities.learn.gosta import gosta, gosta_asynchronous, u2_gossip
from smpc_dp.capabilities.learn.schedule import EdgeClock, PoissonClock
from smpc_dp.capabilities.learn.topology import Topology
from smpc_dp.capabilities.pairs.kernels import auc_private_labels, kendall_tau
from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.many_clocks import ManyClocks
from tests.reference import learn_gossip_twin

GRAPH = topology.watts_strogatz(24, 4, 0.3, 1)
RECORDS = np.random.default_rng(1).normal(size=(24, 2)).round(1)


def gini(own: Any, other: Any) -> Any:
    return np.abs(own[..., 0] - other[..., 0])


@pytest.mark.parametrize("ticks", [1, 6, 300])
@pytest.mark.parametrize("kernel", [gini, kendall_tau().function])
def test_against_the_loops_of_the_papers(ticks: int, kernel: Any) -> None:
    there = PlainExchange(24)
    got = asyncio.run(gosta(there, RECORDS, kernel, EdgeClock(GRAPH, 3), ticks, every=50))
    want = learn_gossip_twin.gosta(RECORDS, kernel, EdgeClock(GRAPH, 3).draw(ticks))
    np.testing.assert_allclose(got.final, want, atol=1e-12)
    assert got.ticks[-1] == ticks
    assert got.values.shape == (len(got.ticks), 24)
    assert "NO PRIVACY" in got.claim

    clock = PoissonClock(GRAPH, 3)
    got = asyncio.run(gosta_asynchronous(there, RECORDS, kernel, PoissonClock(GRAPH, 3), ticks, every=7))
    want = learn_gossip_twin.gosta_asynchronous(RECORDS, kernel, clock.draw(ticks), clock.chances)
    np.testing.assert_allclose(got.final, want, atol=1e-12)

    got = asyncio.run(u2_gossip(there, RECORDS, kernel, EdgeClock(GRAPH, 3), ticks, every=7))
    want = learn_gossip_twin.u2_gossip(RECORDS, kernel, EdgeClock(GRAPH, 3).draw(2 * ticks))
    np.testing.assert_allclose(got.final, want, atol=1e-12)


@pytest.mark.parametrize("learner", [gosta, gosta_asynchronous, u2_gossip])
def test_copies_run_as_each_would_alone(learner: Any) -> None:
    many = ManyClocks([EdgeClock(GRAPH, 3, stream) for stream in range(3)])
    got = asyncio.run(learner(PlainExchange(72), np.tile(RECORDS, (3, 1)), gini, many, 90, every=40))
    for copy in range(3):
        alone = asyncio.run(
            learner(PlainExchange(24), RECORDS, gini, EdgeClock(GRAPH, 3, copy), 90, every=40)
        )
        np.testing.assert_array_equal(got.values[:, 24 * copy : 24 * copy + 24], alone.values)


def expected(graph: Topology, matrix: np.ndarray, ticks: int) -> np.ndarray:
    """E z(t) exactly: the estimates' expectation follows from the two mean matrices of a random edge."""
    n = graph.parties
    laplacian = np.diag(graph.degrees) - graph.adjacency.toarray()
    swap, average = (np.eye(n) - laplacian / (c * len(graph.edges)) for c in (1, 2))
    walk, z = np.eye(n), np.zeros(n)
    for t in range(1, ticks + 1):
        z = average @ ((t - 1) / t * z + (matrix * walk.T).sum(axis=1) / t)
        walk = swap @ walk
    return z


def test_the_expectation_is_that_of_the_chain() -> None:
    """Over 4,000 copies, each party's mean within 5 standard errors: false-alarm rate 2e-5."""
    matrix, ticks, copies = gini(RECORDS[:, None], RECORDS[None]), 60, 4_000
    many = ManyClocks([EdgeClock(GRAPH, 3, stream) for stream in range(copies)])
    got = asyncio.run(gosta(PlainExchange(24 * copies), np.tile(RECORDS, (copies, 1)), gini, many, ticks))
    runs = got.final.reshape(copies, 24)
    errors = runs.std(axis=0) / np.sqrt(copies)
    assert np.all(abs(runs.mean(axis=0) - expected(GRAPH, matrix, ticks)) < 5 * errors)


@pytest.mark.parametrize(
    "graph", [GRAPH, topology.ring(12), topology.grid(4, 5), topology.grid(4, 5, odd=True)]
)
def test_theorem_3_1_bounds_the_expectation(graph: Topology) -> None:
    """Bipartite graphs too: the swap over one random edge is lazy."""
    rng = np.random.default_rng(2)
    for _ in range(3):
        values = rng.normal(size=(graph.parties, 1))
        matrix = gini(values[:, None], values[None])
        for ticks in (1, 10, 100, 1000):
            away = np.linalg.norm(expected(graph, matrix, ticks) - matrix.mean())
            assert away <= gosta_bound(graph, matrix, np.array([ticks]))[0]


def test_theorem_3_1_needs_the_frobenius_norm() -> None:
    """H = 1 for different parties: the printed norm of a matrix, read as the spectral one, is too small."""
    graph = topology.complete(30)
    matrix = 1.0 - np.eye(30)
    context = matrix.mean(axis=1)
    rate = graph.spectral_gap / len(graph.edges)
    for ticks in (100, 1000):
        away = np.linalg.norm(expected(graph, matrix, ticks) - matrix.mean())
        within = np.linalg.norm(matrix - context[:, None], 2)
        assert np.linalg.norm(context - context.mean()) < 1e-12
        assert away > 1.5 * (2 / (rate * ticks) + np.exp(-rate * ticks)) * within
        assert away <= gosta_bound(graph, matrix, np.array([ticks]))[0]


@pytest.mark.parametrize("learner", [gosta, gosta_asynchronous])
def test_errors_fall_as_fast_as_time_goes_by(learner: Any) -> None:
    """From t to 16 t the mean error and the spread fall below a third; as 1/sqrt(t) it is a quarter."""
    copies, ticks = 20, 16 * 400
    clock = ManyClocks([EdgeClock(GRAPH, 3, stream) for stream in range(copies)])
    records = np.tile(RECORDS, (copies, 1))
    got = asyncio.run(learner(PlainExchange(24 * copies), records, gini, clock, ticks, every=400))
    target = gini(RECORDS[:, None], RECORDS[None]).mean()
    away = abs(got.values.reshape(len(got.ticks), copies, 24).mean(axis=1) - target).mean(axis=1)
    assert away[-1] < away[0] / 3
    spread = np.sqrt(((got.values - target) ** 2).mean(axis=1))
    assert spread[-1] < spread[0] / 3


def test_gosta_beats_the_baseline() -> None:
    n = 100
    graph = topology.complete(n)
    rng = np.random.default_rng(5)
    labels = (np.arange(n) % 4 == 0) * 1.0
    records = np.column_stack([(rng.normal(size=n) + labels).round(2), labels])
    kernel = auc_private_labels().function
    target = kernel(records[:, None], records[None]).mean()
    errors = {
        learner.__name__: np.sqrt(
            (
                (
                    asyncio.run(learner(PlainExchange(n), records, kernel, EdgeClock(graph, 7), 5_000)).final
                    / target
                    - 1
                )
                ** 2
            ).mean()
        )
        for learner in (gosta, u2_gossip)
    }
    assert errors["gosta"] < errors["u2_gossip"] / 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"records": np.zeros((23, 1))}, "shape must be"),
        ({"records": np.full((24, 1), np.nan)}, "party 0"),
        ({"ticks": 0}, "ticks"),
        ({"every": 0}, "every"),
        ({"kernel": lambda own, other: own[:, 0] * other[:, 0]}, "0 for a record with itself"),
        ({"kernel": lambda own, other: (own - other) ** 2}, r"shape \(24, 2\)"),
        ({"kernel": lambda own, other: np.where(own[:, 0] == other[:, 0], 0, np.inf)}, "not finite"),
        ({"clock": EdgeClock(topology.ring(5), 1)}, "for 5 parties, the network has 24"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {
        "records": RECORDS,
        "kernel": gini,
        "clock": EdgeClock(GRAPH, 1),
        "ticks": 50,
        "every": None,
    } | changes
    for learner in (gosta, gosta_asynchronous, u2_gossip):
        with pytest.raises(ConfigError, match=named):
            asyncio.run(
                learner(
                    PlainExchange(24),
                    given["records"],
                    given["kernel"],
                    given["clock"],
                    given["ticks"],
                    every=given["every"],
                )
            )


def test_bound_needs_a_matrix_of_the_users() -> None:
    for shape in itertools.chain([(3, 3)], [(24, 23)]):
        with pytest.raises(ConfigError, match="n = 24"):
            gosta_bound(GRAPH, np.zeros(shape), np.array([1]))
