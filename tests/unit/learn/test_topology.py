"""Graphs, their weights and gaps against definitions, and what is refused."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

from smpc_dp.capabilities.learn import topology
from smpc_dp.capabilities.learn.topology import Topology
from smpc_dp.errors import ConfigError

GRAPHS = [
    topology.ring(9),
    topology.ring(10),
    topology.grid(5, 4),
    topology.grid(5, 4, odd=True),
    topology.watts_strogatz(60, 6, 0.3, 1),
    topology.random_k_out(60, 3, 1),
    topology.erdos_renyi(60, 0.15, 1),
    topology.complete(12),
]


def as_networkx(graph: Topology) -> networkx.Graph:
    theirs = networkx.Graph(map(tuple, graph.edges.tolist()))
    theirs.add_nodes_from(range(graph.parties))
    return theirs


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.name}-{graph.parties}")
def test_against_networkx(graph: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = as_networkx(graph)
    assert len(graph.edges) == theirs.number_of_edges()
    np.testing.assert_array_equal(graph.degrees, [theirs.degree[party] for party in range(graph.parties)])
    assert graph.connected == networkx.is_connected(theirs)
    assert graph.bipartite == networkx.is_bipartite(theirs)
    gap = networkx.laplacian_spectrum(theirs)[1]
    weights = graph.metropolis().toarray()
    eigenvalues = np.sort(abs(np.linalg.eigvalsh(weights)))
    for dense in (1_500, 5):
        monkeypatch.setattr(topology, "_DENSE", dense)
        fresh = Topology(graph.name, graph.parties, graph.edges)
        assert fresh.spectral_gap == pytest.approx(gap, abs=1e-9)
        assert topology.mixing_gap(graph.metropolis()) == pytest.approx(1 - eigenvalues[-2], abs=1e-9)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.name}-{graph.parties}")
def test_weights_are_those_of_their_formulas(graph: Topology) -> None:
    metropolis, flat = graph.metropolis().toarray(), graph.max_degree().toarray()
    degrees, linked = graph.degrees, graph.adjacency.toarray() > 0
    for u in range(graph.parties):
        for v in range(graph.parties):
            if u != v:
                assert metropolis[u, v] == (linked[u, v] and 1 / (1 + max(degrees[u], degrees[v])))
                assert flat[u, v] == (linked[u, v] and 1 / (1 + degrees.max()))
    for weights in (metropolis, flat):
        np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-12)
        np.testing.assert_array_equal(weights, weights.T)
        assert np.diag(weights).min() > 0


def test_closed_forms() -> None:
    assert topology.complete(40).spectral_gap == 40
    assert topology.ring(50).spectral_gap == pytest.approx(2 - 2 * np.cos(2 * np.pi / 50))
    assert topology.grid(3, 7).parties == 21
    assert [0, 8] in topology.grid(3, 7, odd=True).edges.tolist()


def test_rings_and_grids_are_those_of_networkx() -> None:
    for parties in (3, 4, 50):
        assert set(map(tuple, topology.ring(parties).edges.tolist())) == {
            tuple(sorted(edge)) for edge in networkx.cycle_graph(parties).edges
        }
    for rows, columns in ((1, 2), (2, 1), (2, 2), (3, 7), (7, 3)):
        assert set(map(tuple, topology.grid(rows, columns).edges.tolist())) == {
            tuple(sorted(row * columns + column for row, column in edge))
            for edge in networkx.grid_2d_graph(rows, columns).edges
        }


def test_seeds_are_kept() -> None:
    first, again, other = (topology.watts_strogatz(50, 4, 0.3, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.edges, again.edges)
    assert not np.array_equal(first.edges, other.edges)


def test_the_smallest_component_is_named() -> None:
    graph = topology.from_edges(7, np.array([[2, 3], [5, 1], [3, 4], [4, 2], [0, 2], [6, 0]]))
    assert graph.spectral_gap == 0
    with pytest.raises(ConfigError, match=r"2 components, the smallest has 2 parties: 1, 5"):
        graph.require_connected()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: topology.from_edges(3, np.array([[0, 1], [2, 2]])), r"edges\[1\].*loop"),
        (lambda: topology.from_edges(3, np.array([[0, 3]])), "leads out"),
        (lambda: topology.from_edges(3, np.array([[0.0, 1.0]])), "integers"),
        (lambda: topology.from_edges(3, np.zeros((0, 2), dtype=int)), "must be 1 to"),
        (lambda: topology.from_edges(1, np.array([[0, 1]])), "parties"),
        (lambda: topology.ring(2), "parties"),
        (lambda: topology.grid(1, 5, odd=True), "two rows"),
        (lambda: topology.watts_strogatz(10, 3, 0.1, 1), "even"),
        (lambda: topology.watts_strogatz(10, 4, 1.5, 1), "rewired"),
        (lambda: topology.random_k_out(5, 5, 1), "chosen"),
        (lambda: topology.erdos_renyi(5, 0.0, 1), "chance"),
        (lambda: topology.complete(10_000), "49,995,000 edges"),
        (lambda: topology.mixing_gap(2 * topology.ring(5).metropolis()), "add up to one"),
    ],
)
def test_bad_input_is_refused(make: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()  # type: ignore[operator]
