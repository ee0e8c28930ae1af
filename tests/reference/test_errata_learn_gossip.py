"""Misprints in gossip estimation and optimisation, each shown by what follows from it."""

from __future__ import annotations

import numpy as np

from smpc_dp.capabilities.learn import topology
from smpc_dp.capabilities.learn.pairwise_losses import logistic_auc


def test_gossip_consensus_is_slower_than_printed() -> None:
    """Theorem 3.2, C2: with constant gradients of norm L, a party is farther from the mean than printed."""
    graph = topology.ring(60)
    n, edges = graph.parties, len(graph.edges)
    laplacian = np.diag(graph.degrees.astype(float)) - graph.adjacency.toarray()
    gradients = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    # z <- W z + g with W = I - Laplacian/(2|E|) on average, for ever.
    distance = np.linalg.pinv(laplacian / (2 * edges)) @ gradients
    rate = graph.spectral_gap / edges
    printed, right = (1 / (1 - np.sqrt(1 - rate / part)) for part in (1, 2))
    # E|z_u - mean z| is at least |E(z_u - mean z)|.
    assert abs(distance).max() > 1.2 * printed
    assert np.sqrt((distance**2).mean()) <= right
    # The worst party exceeds the mean party's bound only because n is large: sqrt(n) times is proven for it.
    assert abs(distance).max() <= np.sqrt(n) * right


def test_gossip_averaging_contracts_by_half_the_gap() -> None:
    """Of mean squares, over the draw of an edge: 1 - beta/(2|E|), not 1 - beta/|E|."""
    graph = topology.ring(12)
    start = np.cos(2 * np.pi * np.arange(12) / 12)
    after = []
    for u, v in graph.edges:
        z = start.copy()
        z[[u, v]] = (z[u] + z[v]) / 2
        after.append(((z - z.mean()) ** 2).sum())
    rate = graph.spectral_gap / len(graph.edges)
    ratio = np.mean(after) / (start**2).sum()
    np.testing.assert_allclose(ratio, 1 - rate / 2, rtol=1e-12)
    assert ratio > 1 - rate


def test_bias_of_gossip_gradients_has_the_other_sign() -> None:
    """Theorem 3.2, C3: at the start all gradients taken are 0, nothing is learnt, and C3 must say so."""
    rng = np.random.default_rng(1)
    labels = (np.arange(20) % 2) * 1.0
    records = np.column_stack([rng.normal(size=20) + labels, labels])
    loss = logistic_auc()
    theta, optimum = np.zeros(1), np.array([1.0])

    def value(at: np.ndarray) -> float:
        return float(loss.value(at, records[:, None], records[None]).mean())

    assert value(optimum) < value(theta)
    full = loss.gradient(theta, records[:, None], records[None]).mean(axis=(0, 1))
    taken = loss.gradient(theta, records, records).mean(axis=0)
    bias = taken - full
    printed = (theta - optimum) @ bias
    # excess <= full'(theta - theta*) = taken'(theta - theta*) - bias'(theta - theta*), and taken is 0.
    excess = value(theta) - value(optimum)
    assert not taken.any()
    assert printed < 0 < excess <= -printed


def test_swaps_on_bipartite_graphs_mix() -> None:
    """Theorems 3.1 and 3.2 exclude bipartite graphs: swaps over one random edge mix there too if n > 2."""
    for graph in (
        topology.ring(8),
        topology.grid(3, 4),
        topology.from_edges(5, np.array([[0, v] for v in range(1, 5)])),
    ):
        assert graph.bipartite
        laplacian = np.diag(graph.degrees.astype(float)) - graph.adjacency.toarray()
        values = np.linalg.eigvalsh(np.eye(graph.parties) - laplacian / len(graph.edges))
        assert abs(values[0]) <= values[-2] + 1e-12 < 1
    pair = topology.from_edges(2, np.array([[0, 1]]))
    assert np.linalg.eigvalsh(np.eye(2) - np.array([[1, -1], [-1, 1]])).min() == -1
    assert pair.bipartite
