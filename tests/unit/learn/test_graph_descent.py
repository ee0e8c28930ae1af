"""Descent on the weights of a graph: gradient, minimiser, rate of Theorem 2.1, order of steps, refusals."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from smpc_dp.capabilities.learn.graph_descent import (
    FLOOR,
    GraphObjective,
    descend_graph,
    draw_steps,
    independent_steps,
    nearest_pairs,
)
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.errors import ConfigError

Floats = NDArray[np.float64]
Name = Literal["log", "square"]


def objective(parties: int, regulariser: Name, scale: float = 0.7, density: float = 0.4) -> GraphObjective:
    rng = np.random.default_rng(3)
    costs = rng.uniform(0, 2, (parties, parties))
    return GraphObjective((costs + costs.T) / 2, scale, density, regulariser)


def written_out(of: GraphObjective, weights: Floats) -> float:
    """Return G(w) pair by pair."""
    n, total = len(weights), 0.0
    for u in range(n):
        degree = sum(weights[u, v] for v in range(n))
        total += of.scale * (-np.log(degree + FLOOR) if of.regulariser == "log" else (degree - 1) ** 2 / 2)
        for v in range(u):
            total += weights[u, v] * of.costs[u, v] + of.scale * of.density * weights[u, v] ** 2
    return float(total)


def minimiser(of: GraphObjective) -> float:
    """Return the least G over w >= 0, by a general optimiser."""
    return of.value(minimising_weights(of, np.triu(np.ones_like(of.costs, dtype=np.bool_), 1)))


def minimising_weights(of: GraphObjective, kept: NDArray[np.bool_]) -> Floats:
    """Return the weights of the least G if pairs that are not kept have 0."""
    n = len(of.costs)
    rows, columns = np.nonzero(np.triu(kept, 1))

    def value(flat: Floats) -> float:
        weights = np.zeros((n, n))
        weights[rows, columns] = weights[columns, rows] = flat
        return written_out(of, weights)

    start = np.full(len(rows), 0.3)
    result = minimize(
        value, start, method="L-BFGS-B", bounds=[(0, None)] * len(rows), options={"ftol": 1e-14}
    )
    weights = np.zeros((n, n))
    weights[rows, columns] = weights[columns, rows] = result.x
    return weights


@pytest.mark.parametrize("regulariser", ["log", "square"])
def test_steps_go_to_the_minimiser_and_never_up(regulariser: Name) -> None:
    of = objective(7, regulariser)
    weights, draws = of.uniform(), PublicDraws(1)
    values = [of.value(weights)]
    assert values[0] == pytest.approx(written_out(of, weights), rel=1e-12)
    for _ in range(60):
        weights = descend_graph(of, weights, draw_steps(draws, 7, 3, 30))
        values.append(of.value(weights))
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values))
    assert values[-1] == pytest.approx(minimiser(of), abs=1e-6)
    assert (weights == weights.T).all()
    assert (weights >= 0).all()
    assert not weights.diagonal().any()


@pytest.mark.parametrize("regulariser", ["log", "square"])
def test_uniform_weights_minimise_the_regulariser(regulariser: Name) -> None:
    of = GraphObjective(np.zeros((6, 6)), 1.0, 0.4, regulariser)
    least, off = of.value(of.uniform()), 1 - np.eye(6)
    for move in (-0.02, 0.02):
        assert of.value(of.uniform() + move * off) > least


def test_a_step_is_the_projected_gradient_of_2_8() -> None:
    """With the square regulariser the curvature of a step is known: (2.7) by differences, and 1/L."""
    of, n = objective(5, "square"), 5
    weights = of.uniform()
    moved = descend_graph(of, weights, np.array([[2, 0, 4]]))
    length = of.scale * (2 * of.density + 2 + 1)
    expected = weights.copy()
    for v in (0, 4):
        step = np.zeros((n, n))
        step[2, v] = step[v, 2] = 1e-6
        slope = (written_out(of, weights + step) - written_out(of, weights - step)) / 2e-6
        expected[2, v] = expected[v, 2] = max(0.0, weights[2, v] - slope / length)
    np.testing.assert_allclose(moved, expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize(("regulariser", "steps"), [("log", (20, 60)), ("square", (10, 60))])
def test_the_gap_shrinks_as_theorem_2_1_says_with_the_mu_of_g(
    regulariser: Name, steps: tuple[int, ...]
) -> None:
    """The mean gap of 30 schedules is below the bound; with the log its L_max makes the bound weak."""
    of = objective(5, regulariser, density=1.0)
    best, start = minimiser(of), of.uniform()
    first = of.value(start) - best
    assert 0 < of.contraction(2) < 1
    for many in steps:
        gaps = [
            of.value(descend_graph(of, start, draw_steps(PublicDraws(seed), 5, 2, many))) - best
            for seed in range(30)
        ]
        assert np.mean(gaps) <= of.contraction(2) ** many * first + 1e-7


@given(st.integers(2, 9), st.integers(0, 2**32))
def test_steps_are_drawn_without_replacement_and_held_in_order(parties: int, seed: int) -> None:
    peers = 1 + seed % (parties - 1)
    steps = draw_steps(PublicDraws(seed), parties, peers, 30)
    assert steps.shape == (30, 1 + peers)
    assert all(len({*row}) == 1 + peers and min(row) >= 0 and max(row) < parties for row in steps.tolist())
    held: list[list[int]] = [[] for _ in range(parties)]
    for chosen in independent_steps(steps, parties):
        members = steps[chosen].ravel().tolist()
        assert len({*members}) == len(members)
        for number in chosen.tolist():
            for member in steps[number].tolist():
                held[member].append(number)
    assert [sorted(numbers) for numbers in held] == held
    assert sum(map(len, held)) == steps.size


def test_peers_are_drawn_evenly() -> None:
    """Chi-squared over all steps of 7 parties with 2 peers: a false alarm in 1e7; the seed is fixed."""
    steps = draw_steps(PublicDraws(5), 7, 2, 21_000)
    counts = np.zeros((7, 7, 7))
    np.add.at(counts, tuple(steps.T), 1)
    drawn = counts[counts > 0]
    assert len(drawn) == 7 * 6 * 5
    # 209 degrees of freedom: six standard deviations are 123; the seed is fixed.
    assert float(((drawn - 100) ** 2 / 100).sum()) < 209 + 123


def test_steps_together_do_what_one_after_the_other_does() -> None:
    of = objective(12, "log")
    steps = draw_steps(PublicDraws(2), 12, 3, 80)
    weights = of.uniform()
    for step in steps:
        weights = descend_graph(of, weights, step[None])
    np.testing.assert_allclose(descend_graph(of, of.uniform(), steps), weights, atol=1e-12, rtol=0)


def test_parties_far_apart_lose_their_edge_and_clusters_fall_apart() -> None:
    """Two clusters with costs 0 within and 50 between: the graph is disconnected, and no party is alone."""
    own = np.repeat([0, 1], 4)
    of = GraphObjective(np.where(own[:, None] == own, 0.1, 50.0), 1.0, 0.1)
    weights = descend_graph(of, of.uniform(), draw_steps(PublicDraws(1), 8, 3, 600))
    assert not weights[:4, 4:].any()
    assert (weights[:4, :4].sum(axis=1) > 0.5).all()


@pytest.mark.parametrize(
    "weights",
    [
        np.array([[0.0, 1.0], [2.0, 0.0]]),
        np.array([[0.0, -1.0], [-1.0, 0.0]]),
        np.array([[1.0, 1.0], [1.0, 0.0]]),
        np.array([[0.0, np.nan], [np.nan, 0.0]]),
        np.zeros((3, 3)),
    ],
)
def test_weights_that_are_no_graph_are_refused(weights: Floats) -> None:
    of = GraphObjective(np.zeros((2, 2)), 1.0, 1.0)
    with pytest.raises(ConfigError, match="weights"):
        descend_graph(of, weights, np.array([[0, 1]]))


@pytest.mark.parametrize(
    ("costs", "density", "where"),
    [
        (np.zeros((2, 3)), 1.0, "costs"),
        (np.full((2, 2), np.inf), 1.0, "costs"),
        (np.zeros((2, 2)), 0.0, "density"),
    ],
)
def test_objectives_out_of_range_are_refused(costs: Floats, density: float, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        GraphObjective(costs, 1.0, density)


@pytest.mark.parametrize("regulariser", ["log", "square"])
def test_the_price_of_leaving_out_distant_pairs_is_bounded(regulariser: Name) -> None:
    """Remark 2.5: nothing once parties keep as many as they would have neighbours; too few cost something."""
    rng = np.random.default_rng(4)
    models = rng.normal(0, 0.7, (7, 2)) + 3 * (np.arange(7)[:, None] % 2)
    distances = ((models[:, None] - models) ** 2).sum(axis=2)
    of = GraphObjective(distances / 4, 0.5, 0.1, regulariser)
    everything = minimising_weights(of, np.ones((7, 7), dtype=np.bool_))
    least = of.value(everything)
    # Of a general optimiser, which stops short of the minimum.
    assert of.excesses(everything).sum() / 2 < 1e-3
    prices = []
    for count in (1, 4):
        kept = nearest_pairs(models, count)
        weights = minimising_weights(of, kept)
        excesses = of.excesses(weights)
        # Some processors compute entries of a row and of a column by other instructions.
        assert np.allclose(excesses, excesses.T, rtol=1e-9, atol=1e-12)
        assert (excesses >= 0).all()
        assert not excesses.diagonal().any()
        prices.append(of.value(weights) - least)
        assert prices[-1] <= excesses.sum() / 2 + 1e-6
        assert excesses[kept].sum() / 2 < 1e-3
    assert prices[0] > 1e-3 > abs(prices[1])
    start = of.uniform()
    assert of.value(start) - least <= of.excesses(start).sum() / 2


@given(st.integers(0, 2**32), st.integers(2, 8))
def test_each_party_keeps_its_nearest(seed: int, parties: int) -> None:
    models = np.random.default_rng(seed).normal(size=(parties, 3))
    for count in range(1, parties):
        kept, expected = nearest_pairs(models, count), np.zeros((parties, parties), dtype=np.bool_)
        for u in range(parties):
            order = sorted(
                (v for v in range(parties) if v != u), key=lambda v: np.linalg.norm(models[u] - models[v])
            )
            expected[u, order[:count]] = expected[order[:count], u] = True
        assert (kept == expected).all()
        assert kept.sum() <= 2 * parties * count
    for count in (0, parties):
        with pytest.raises(ConfigError, match="count"):
            nearest_pairs(models, count)
