"""Gossip dual averaging against the papers' loops, its losses and proximal operators, its bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from smpc_dp.capabilities.learn import pairwise_losses, topology
from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.dual_averaging import (
    dual_averaging,
    dual_averaging_asynchronous,
    inverse_root,
)
from smpc_dp.capabilities.learn.gossip_bounds import dual_averaging_terms
from smpc_dp.capabilities.learn.pairwise_losses import PairwiseLoss, logistic_auc, logistic_metric
from smpc_dp.capabilities.learn.schedule import EdgeClock, PoissonClock
from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.dual_averaging import AucObjective, standardised
from smpc_dp_lab.bench.many_clocks import ManyClocks
from tests.reference import learn_gossip_twin

N = 20
GRAPH = topology.watts_strogatz(N, 4, 0.3, 1)
RNG = np.random.default_rng(1)
LABELS = (np.arange(N) % 3 == 0) * 1.0
RECORDS = np.column_stack([RNG.normal(size=(N, 2)) + LABELS[:, None], LABELS])
LOSSES = [logistic_auc(), logistic_metric(0.7)]
PROXES: list[Callable[..., Any]] = [
    pairwise_losses.no_regulariser,
    pairwise_losses.l1(0.05),
    pairwise_losses.squared_l2(0.1),
    pairwise_losses.l2_ball(0.5),
]


def one(prox: Callable[..., Any]) -> learn_gossip_twin.Point:
    return lambda point, factor: prox(point[None], np.array([factor]))[0]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("prox", PROXES)
def test_against_the_loops_of_the_papers(loss: PairwiseLoss, prox: Callable[..., Any]) -> None:
    p = loss.dimension(3)
    gamma: Any = inverse_root(0.3)

    def gradient(theta: Any, own: Any, other: Any) -> Any:
        return loss.gradient(theta[None], own[None], other[None])[0]

    there = PlainExchange(N)
    settings: dict[str, Any] = {"dimension": p, "step_size": gamma, "prox": prox, "every": 40}
    got = asyncio.run(dual_averaging(there, RECORDS, loss.gradient, EdgeClock(GRAPH, 3), 90, **settings))
    pairs = EdgeClock(GRAPH, 3).draw(90)
    want = learn_gossip_twin.dual_averaging(RECORDS, gradient, pairs, p, gamma, one(prox))
    np.testing.assert_allclose(got.final, want, atol=1e-10)
    assert got.ticks.tolist() == [40, 80, 90]
    clock = PoissonClock(GRAPH, 3)
    got = asyncio.run(
        dual_averaging_asynchronous(there, RECORDS, loss.gradient, PoissonClock(GRAPH, 3), 90, **settings)
    )
    want = learn_gossip_twin.dual_averaging_asynchronous(
        RECORDS, gradient, clock.draw(90), clock.chances, gamma, one(prox), p
    )
    np.testing.assert_allclose(got.final, want, atol=1e-10)


@pytest.mark.parametrize("learner", [dual_averaging, dual_averaging_asynchronous])
def test_copies_run_as_each_would_alone(learner: Any) -> None:
    loss = logistic_auc()
    many = ManyClocks([EdgeClock(GRAPH, 3, stream) for stream in range(3)])
    got = asyncio.run(
        learner(
            PlainExchange(3 * N), np.tile(RECORDS, (3, 1)), loss.gradient, many, 50, dimension=2, every=30
        )
    )
    for copy in range(3):
        clock = EdgeClock(GRAPH, 3, copy)
        alone = asyncio.run(
            learner(PlainExchange(N), RECORDS, loss.gradient, clock, 50, dimension=2, every=30)
        )
        np.testing.assert_allclose(got.average[:, N * copy : N * copy + N], alone.average, atol=1e-13)


@pytest.mark.parametrize("learner", [dual_averaging, dual_averaging_asynchronous])
def test_it_descends_to_the_minimum(learner: Any) -> None:
    """The papers print the other sign, with which the objective would rise."""
    loss = logistic_auc()
    records = np.column_stack([RECORDS[:, :2] + 2 * LABELS[:, None], LABELS])
    prox = pairwise_losses.l2_ball(1.0)
    got = asyncio.run(
        learner(
            PlainExchange(N),
            records,
            loss.gradient,
            EdgeClock(GRAPH, 3),
            6_000,
            dimension=2,
            prox=prox,
            every=2_000,
        )
    )
    start = learn_gossip_twin.objective(loss, np.zeros((1, 2)), records)[0]
    result = minimize(
        lambda theta: learn_gossip_twin.objective(loss, theta[None], records)[0],
        np.zeros(2),
        constraints={"type": "ineq", "fun": lambda theta: 1 - theta @ theta},
    )
    last = learn_gossip_twin.objective(loss, got.final, records)
    assert last.mean() < result.fun + 0.1 * (start - result.fun)
    spread = got.average.std(axis=1).max(axis=1)
    assert spread[-1] < spread[0]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradients_are_those_of_the_values(loss: PairwiseLoss) -> None:
    p = loss.dimension(3)
    theta = RNG.normal(size=(1, p))
    for own, other in zip(RECORDS[:8], RECORDS[4:12], strict=True):
        slope = loss.gradient(theta, own[None], other[None])[0]
        for index in range(p):
            step = np.zeros((1, p))
            step[0, index] = 1e-6
            up, down = (loss.value(theta + sign * step, own[None], other[None])[0] for sign in (1, -1))
            assert slope[index] == pytest.approx((up - down) / 2e-6, abs=1e-7)
    assert not loss.gradient(theta, RECORDS[:1], RECORDS[:1]).any()


@pytest.mark.parametrize(
    ("prox", "psi"),
    [
        (pairwise_losses.l1(0.3), lambda z: 0.3 * np.abs(z).sum()),
        (pairwise_losses.squared_l2(0.3), lambda z: 0.3 * z @ z),
    ],
)
def test_proximal_operators_minimise(prox: Any, psi: Callable[[Any], float]) -> None:
    for point, factor in zip(RNG.normal(size=(4, 3)), (0.1, 0.5, 1.0, 3.0), strict=True):
        got = prox(point[None], np.array([factor]))[0]

        def value(z: Any, at: Any = point, scale: float = factor) -> float:
            return float(((z - at) ** 2).sum() / 2 + scale * psi(z))

        best = value(got)
        for _ in range(200):
            assert best <= value(got + RNG.normal(size=3) * 0.1) + 1e-12


def test_projections_are_the_nearest_points() -> None:
    ball = pairwise_losses.l2_ball(2.0)
    np.testing.assert_allclose(ball(np.array([[3.0, 4.0], [0.3, 0.4]]), np.ones(2)), [[1.2, 1.6], [0.3, 0.4]])
    matrix = RNG.normal(size=(5, 9))
    got = pairwise_losses.positive_semidefinite(matrix, np.ones(5)).reshape(5, 3, 3)
    for own, projected in zip(matrix.reshape(5, 3, 3), got, strict=True):
        assert np.linalg.eigvalsh(projected).min() > -1e-12
        left = (own + own.T) / 2 - projected
        # Optimality: what was taken away is orthogonal to the result and negative semidefinite.
        assert abs((left * projected).sum()) < 1e-12
        assert np.linalg.eigvalsh(left).max() < 1e-12


def test_objective_and_bias_with_classes_apart() -> None:
    loss, aim = logistic_auc(), AucObjective(RECORDS)
    theta = RNG.normal(size=(N, 2))
    values = learn_gossip_twin.objective(loss, theta, RECORDS)
    np.testing.assert_allclose([aim.value(row) for row in theta], values, rtol=1e-12)
    auxiliary = RECORDS[RNG.permutation(N)]
    taken = loss.gradient(theta, RECORDS, auxiliary).mean(axis=0)
    want = learn_gossip_twin.mean_bias(loss.gradient, theta, RECORDS, auxiliary)
    np.testing.assert_allclose(taken - aim.mean_gradient(theta), want, atol=1e-14)
    first = aim.gradient(theta[0])
    np.testing.assert_allclose(aim.mean_gradient(np.tile(theta[0], (N, 1))), first, atol=1e-14)
    distances = [np.linalg.norm(a - b) for a in aim.positive for b in aim.negative]
    assert aim.lipschitz == pytest.approx(max(distances))


def test_theorem_3_2_bounds_the_mean_excess() -> None:
    """With C3 measured at every tick; the mean over parties of the objective at their averages."""
    loss, aim = logistic_auc(), AucObjective(RECORDS)
    optimum = aim.minimise()
    for graph in (GRAPH, topology.complete(N), topology.ring(N)):
        ticks, runs = 300, 2
        excess, bias = [], []
        for stream in range(runs):
            got = asyncio.run(
                dual_averaging(
                    PlainExchange(N),
                    RECORDS,
                    loss.gradient,
                    EdgeClock(graph, 1, stream),
                    ticks,
                    dimension=2,
                    every=1,
                )
            )
            excess.append(np.mean([aim.value(row) for row in got.final]) - aim.value(optimum))
            wrong = [
                learn_gossip_twin.mean_bias(loss.gradient, got.current[index], RECORDS, got.auxiliary[index])
                @ (optimum + got.dual[index].mean(axis=0) / np.sqrt(index + 1))
                for index in range(0, ticks - 1, 10)
            ]
            bias.append(np.mean(wrong))
        terms = dual_averaging_terms(
            graph, optimum, aim.lipschitz, inverse_root(), ticks, float(np.mean(bias))
        )
        assert terms.bias is not None
        assert np.mean(excess) <= terms.centralised + terms.network + terms.bias
        assert terms.printed_network < terms.network


def test_terms_are_those_of_their_formulas() -> None:
    graph = topology.ring(10)
    ticks, lipschitz, optimum = 7, 3.0, np.array([1.0, 2.0])
    got = dual_averaging_terms(graph, optimum, lipschitz, inverse_root(2.0), ticks)
    steps = sum(2.0 / np.sqrt(t) for t in range(1, ticks))
    rate = (2 - 2 * np.cos(2 * np.pi / 10)) / 10
    last = 2.0 / np.sqrt(ticks)
    assert got.centralised == pytest.approx(5 / (2 * ticks * last) + 9 * steps / (2 * ticks))
    assert got.network == pytest.approx(27 * steps / (ticks * (1 - np.sqrt(1 - rate / 2))))
    assert got.printed_network == pytest.approx(27 * steps / (ticks * (1 - np.sqrt(1 - rate))))


@pytest.mark.parametrize("learner", [dual_averaging, dual_averaging_asynchronous])
def test_divergence_is_stopped(learner: Any) -> None:
    def steep(theta: Any, own: Any, other: Any) -> Any:
        difference = own[:, :2] - other[:, :2]
        return 1e3 * (theta * difference).sum(axis=1, keepdims=True) * difference + difference

    with pytest.raises(ConfigError, match=r"diverges: theta of party .* smaller steps"):
        asyncio.run(learner(PlainExchange(N), RECORDS, steep, EdgeClock(GRAPH, 1), 5_000, dimension=2))
    with pytest.raises(ConfigError, match="diverges"):
        asyncio.run(
            learner(
                PlainExchange(N),
                RECORDS,
                lambda theta, *_: np.full_like(theta, np.nan),
                EdgeClock(GRAPH, 1),
                5,
                dimension=2,
            )
        )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"records": RECORDS[1:]}, "shape must be"),
        ({"clock": EdgeClock(topology.ring(5), 1)}, "for 5 parties"),
        ({"ticks": 0}, "ticks"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 3}, r"gives shape \(\d+, 2\), not|could not be broadcast"),
        ({"step_size": lambda t: t}, "must not increase"),
        ({"step_size": lambda t: 0 * t}, "must be positive"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], named: str) -> None:
    def gradient(theta: Any, own: Any, other: Any) -> Any:
        return own[:, :2] - other[:, :2]

    given: dict[str, Any] = {
        "records": RECORDS,
        "clock": EdgeClock(GRAPH, 1),
        "ticks": 20,
        "dimension": 2,
    } | changes
    for learner in (dual_averaging, dual_averaging_asynchronous):
        with pytest.raises(ConfigError, match=named):
            asyncio.run(
                learner(
                    PlainExchange(N),
                    given["records"],
                    gradient,
                    given["clock"],
                    given["ticks"],
                    dimension=given["dimension"],
                    step_size=given.get("step_size"),
                )
            )


def test_data_are_checked() -> None:
    features = RNG.normal(size=(6, 2))
    features[2, 1] = np.nan
    rows = standardised(features, np.array([0.0, 1, 0, 1, 0, 1]))
    assert rows[2, 1] != 0 or np.median(rows[:, 1]) == 0
    np.testing.assert_allclose(rows[:, :2].mean(axis=0), 0, atol=1e-12)
    for bad, labels in [
        (features, np.zeros(6)),
        (features, np.array([0.0, 1, 2, 1, 0, 1])),
        (features, np.zeros(5)),
        (np.ones((6, 2)), np.array([0.0, 1, 0, 1, 0, 1])),
    ]:
        with pytest.raises(ConfigError):
            standardised(bad, labels)
    for factory in (pairwise_losses.l1, pairwise_losses.squared_l2, pairwise_losses.l2_ball):
        with pytest.raises(ConfigError, match="above 0"):
            factory(0.0)
    with pytest.raises(ConfigError, match="square matrix"):
        pairwise_losses.positive_semidefinite(np.ones((1, 3)), np.ones(1))
    with pytest.raises(ConfigError, match="at least 2"):
        dual_averaging_terms(GRAPH, np.zeros(2), 1.0, inverse_root(), 1)
