"""The price of a graph of near models alone, and the optimiser that it is measured with."""

from __future__ import annotations

import numpy as np
import pytest

from smpc_dp.capabilities.learn.graph_descent import GraphObjective, pair_costs
from smpc_dp_lab.bench.near_pairs import least_weights, near_pairs

RNG = np.random.default_rng(6)
# Two clusters of models.
MODELS = RNG.normal(0, 0.5, (12, 3)) + 2 * (np.arange(12)[:, None] % 2)
COSTS = pair_costs(MODELS, RNG.uniform(0.1, 0.4, 12), 0.5)


def test_near_pairs_suffice_where_few_have_weight_and_too_few_cost_at_most_the_bound() -> None:
    found = near_pairs(COSTS, MODELS, (0.05, 5.0), (1, 4, 11), scale=0.5)
    assert [(one.density, one.count) for one in found] == [(d, k) for d in (0.05, 5.0) for k in (1, 4, 11)]
    for one in found:
        assert -1e-6 <= one.price <= one.bound + 1e-6
        assert one.share >= one.count / 11
    sparse, even = found[:3], found[3:]
    assert all(one.bound < 1e-9 and one.weight == 0 for one in (sparse[2], even[2]))
    # A sparse graph needs no more than the nearest; even weights are on all pairs.
    assert sparse[0].bound < 1e-3 < 0.05 < even[0].price
    assert sparse[0].weight < 0.05 < 0.5 < even[0].weight
    assert even[1].price < even[0].price / 10


def test_the_gradient_is_that_of_the_objective_and_vanishes_at_the_least_weights() -> None:
    of, others = GraphObjective(COSTS, 0.5, 0.3), ~np.eye(12, dtype=np.bool_)
    weights = RNG.uniform(0.1, 1.0, (12, 12))
    weights = (weights + weights.T) * others
    for u, v in ((0, 1), (3, 8)):
        move = np.zeros((12, 12))
        move[u, v] = move[v, u] = 1e-5
        change = (of.value(weights + move) - of.value(weights - move)) / 2e-5
        assert of.gradient(weights)[u, v] == pytest.approx(change, rel=1e-6)
    least = least_weights(of, others)
    slopes = of.gradient(least)[others]
    assert (slopes > -1e-5).all()
    assert np.abs(slopes[least[others] > 1e-9]).max() < 1e-5
