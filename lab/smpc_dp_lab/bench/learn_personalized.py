"""Measurements of personalised models for `bench learn`: coordinate descent and graph steps, beside loops."""

from __future__ import annotations

import asyncio
import time

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective, descend
from smpc_dp.capabilities.learn.graph_descent import GraphObjective, descend_graph, draw_steps
from smpc_dp.capabilities.learn.models import Model, RecordGradients
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.capabilities.learn.topology import Topology
from smpc_dp_lab.bench.figures import Measure

FEATURES, RECORDS, COUPLING = 99, 10, 1.0
# Weights of a graph that is learned are dense.
GRAPH_PARTIES, PEERS, DENSITY = 1_000, 5, 0.1
LOOP_TICKS, GRAPH_STEPS = 2_000, 20_000


def descent_measures(graph: Topology) -> tuple[Measure, Measure]:
    """Return measures of updates a second: of the product, one for each party, and of a numpy loop."""
    n = graph.parties
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n, RECORDS, FEATURES)) / FEATURES**0.5
    labels = (features[..., 0] > 0) * 1.0
    model = Model("logistic", FEATURES)
    points = model.points(list(np.concatenate([features, labels[..., None]], axis=2)))
    sizes = np.full(n, RECORDS)
    objective = PersonalizedObjective(graph.adjacency, sizes, COUPLING, np.full(n, 0.1), 1.0)
    wakes = PublicDraws(1).below(n, n)

    def product() -> float:
        began = time.process_time()
        gradients = RecordGradients(model, points, 1.0)
        asyncio.run(descend(PlainExchange(n), objective, gradients, model.length, wakes, 30))
        return n / (time.process_time() - began)

    def loop() -> float:
        began, models = time.process_time(), np.zeros((n, model.length))
        adjacency = graph.adjacency
        for u in wakes[:LOOP_TICKS]:
            near = adjacency.indices[adjacency.indptr[u] : adjacency.indptr[u + 1]]
            slopes = 1 / (1 + np.exp(-points.features[u] @ models[u])) - labels[u]
            slope = slopes @ points.features[u] / RECORDS + 0.2 * models[u]
            alpha = objective.alpha[u]
            pulled = models[near].mean(axis=0) - slope / COUPLING
            models[u] = (1 - alpha) * models[u] + alpha * pulled
        return min(LOOP_TICKS, n) / (time.process_time() - began)

    return product, loop


def graph_measures(parties: int) -> tuple[Measure, Measure]:
    """Return measures of steps of Algorithm 2.4 a second: of the product, draws included, and of a loop."""
    rng = np.random.default_rng(1)
    models = rng.normal(size=(parties, 3))
    costs = ((models[:, None] - models) ** 2).sum(axis=2) / 2
    objective = GraphObjective(costs, COUPLING, DENSITY)

    def product() -> float:
        began = time.process_time()
        steps = draw_steps(PublicDraws(1), parties, PEERS, GRAPH_STEPS)
        descend_graph(objective, objective.uniform(), steps)
        return GRAPH_STEPS / (time.process_time() - began)

    def loop() -> float:
        began, weights = time.process_time(), objective.uniform()
        degrees = weights.sum(axis=1)
        for _ in range(LOOP_TICKS):
            u, *others = rng.choice(parties, 1 + PEERS, replace=False)
            _step(weights, degrees, costs, u, np.array(others))
        return LOOP_TICKS / (time.process_time() - began)

    return product, loop


def _step(
    weights: NDArray[np.float64],
    degrees: NDArray[np.float64],
    costs: NDArray[np.float64],
    u: int,
    peers: NDArray[np.intp],
) -> None:
    """Update party u's edge weights in place by one step (2.8), in plain numpy."""
    before, near = weights[u, peers], degrees[peers]
    gradient = costs[u, peers] + COUPLING * (2 * DENSITY * before - 1 / degrees[u] - 1 / near)
    length = COUPLING * (2 * DENSITY + PEERS / degrees[u] ** 2 + (1 / near**2).max())
    after = np.maximum(0.0, before - gradient / length)
    weights[u, peers] = weights[peers, u] = after
    degrees[u] += (after - before).sum()
    degrees[peers] += after - before
