"""GOPA's exact privacy against dense inverses, all choices, all graphs and exact mass functions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp.privacy.gaussian import gaussian_delta
from smpc_dp.privacy.gopa import exact_privacy, honest_graph
from smpc_dp.privacy.gopa.diagonal import degree_bound, start_bound
from smpc_dp.privacy.gopa.exact import complete_entry, path_entry, ring_entry
from smpc_dp.privacy.gopa.graphs import HonestGraph, k_out, randomness_of, ring
from smpc_dp.privacy.gopa.laplacian import ALL_VECTORS, Laplacian, connectivity
from smpc_dp.privacy.gopa.lattice import CONTINUOUS, Smoothing, smoothing_for, theta_excess, zcdp_delta
from smpc_dp.privacy.gopa.process import (
    Connected,
    analyse_process,
    cheeger_gap,
    degree_probabilities,
    log_bad_cut,
)
from tests.examples import examples

Floats = NDArray[np.float64]


def dense_laplacian(graph: HonestGraph) -> Floats:
    adjacency = np.zeros((graph.size, graph.size))
    adjacency[graph.edges[:, 0], graph.edges[:, 1]] = 1.0
    adjacency += adjacency.T
    return np.diag(adjacency.sum(axis=1)) - adjacency


def dense_theta(graph: HonestGraph, sigma_eta: float, sigma_delta: float) -> Floats:
    covariance = sigma_eta**2 * np.eye(graph.size) + sigma_delta**2 * dense_laplacian(graph)
    return np.diag(np.linalg.inv(covariance)).copy()


def dense_worst(graph: HonestGraph, removed: int, sigma_eta: float, sigma_delta: float) -> float:
    return max(
        float(dense_theta(graph.without(list(gone)), sigma_eta, sigma_delta).max())
        for gone in itertools.combinations(range(graph.size), removed)
    )


@st.composite
def graphs(draw: st.DrawFn, least: int = 3, most: int = 14) -> HonestGraph:
    """A random tree with more edges."""
    n = draw(st.integers(least, most))
    tree = [(draw(st.integers(0, v - 1)), v) for v in range(1, n)]
    pairs = list(itertools.combinations(range(n), 2))
    more = draw(st.lists(st.sampled_from(pairs), max_size=2 * n))
    return honest_graph(n, np.array(tree + more))


SIGMAS = st.floats(-2, 2).map(lambda x: 10.0**x)


@settings(max_examples=examples(150))
@given(graphs(), SIGMAS, SIGMAS)
def test_theta_is_between_its_bounds(graph: HonestGraph, sigma_eta: float, sigma_delta: float) -> None:
    result = exact_privacy(graph, sigma_eta=sigma_eta, sigma_delta=sigma_delta, diameter=1.0)
    truth = float(dense_theta(graph, sigma_eta, sigma_delta).max())
    # the dense inverse is itself rounded
    slack = 1e-9 * (1 + (sigma_delta / sigma_eta) ** 2 * 1e-3)
    assert result.theta_lower <= truth * (1 + slack)
    assert result.theta_upper >= truth * (1 - slack)
    assert result.theta_upper <= result.theta_lower * (1 + 2e-4)
    assert result.failure_log2 is None


@settings(max_examples=examples(100))
@given(graphs(), SIGMAS)
def test_degree_bounds_hold_for_every_user(graph: HonestGraph, s: float) -> None:
    laplacian = dense_laplacian(graph)
    connected = float(np.linalg.eigvalsh(laplacian)[1])
    entries = np.diag(np.linalg.inv(s * np.eye(graph.size) + laplacian)) - 1 / (graph.size * s)
    degrees = graph.degrees.astype(np.float64)
    slack = 1e-11 * (1 + 1 / s)
    assert (entries <= degree_bound(degrees, s, connected) + slack).all()
    assert (entries >= start_bound(degrees, s, graph.size) - slack).all()


@settings(max_examples=examples(60))
@given(graphs(4, 9), st.integers(1, 2), SIGMAS, SIGMAS, st.booleans())
def test_worst_case_of_small_graphs_is_that_of_all_choices(
    graph: HonestGraph, removed: int, sigma_eta: float, sigma_delta: float, curious: bool
) -> None:
    result = exact_privacy(
        graph,
        sigma_eta=sigma_eta,
        sigma_delta=sigma_delta,
        diameter=1.0,
        max_dropouts=removed - curious,
        curious=curious,
    )
    truth = dense_worst(graph, removed, sigma_eta, sigma_delta)
    assert result.removed == removed
    assert result.worst_lower <= truth * (1 + 1e-6)
    assert result.worst_upper >= truth * (1 - 1e-6)
    assert result.worst_upper >= result.theta_lower


@pytest.mark.parametrize(("n", "k", "removed", "close"), [(150, 12, 1, 1e-3), (40, 12, 2, 0.02)])
def test_worst_case_of_larger_graphs_is_bounded(n: int, k: int, removed: int, close: float) -> None:
    graph = honest_graph(n, k_out(n, k, n, randomness_of(5)))
    result = exact_privacy(graph, sigma_eta=0.2, sigma_delta=2.0, diameter=1.0, max_dropouts=removed)
    truth = dense_worst(graph, removed, 0.2, 2.0)
    assert result.worst_lower <= truth * (1 + 1e-9)
    assert truth <= result.worst_upper * (1 + 1e-9)
    assert result.worst_upper <= truth * (1 + close)


def test_badly_connected_sparse_graphs() -> None:
    """A path and a caterpillar, where sparse factors stand in for conjugate gradients."""
    n = 90
    path = [(v, v + 1) for v in range(n - 1)]
    for edges, size in ((path, n), ([*path, *((v, n + v) for v in range(n))], 2 * n)):
        graph = honest_graph(size, np.array(edges))
        result = exact_privacy(graph, sigma_eta=0.1, sigma_delta=20.0, diameter=1.0)
        truth = float(dense_theta(graph, 0.1, 20.0).max())
        assert result.theta_lower <= truth * (1 + 1e-7)
        assert truth * (1 - 1e-7) <= result.theta_upper <= result.theta_lower * (1 + 2e-4)


def test_a_user_who_can_be_isolated_has_its_own_noise_alone() -> None:
    graph = honest_graph(200, k_out(200, 3, 200, randomness_of(2)))
    dropouts = int(graph.degrees.min())
    result = exact_privacy(graph, sigma_eta=0.5, sigma_delta=9.0, diameter=1.0, max_dropouts=dropouts)
    assert result.worst_upper == pytest.approx(4.0, rel=1e-9)
    assert result.worst_lower == pytest.approx(4.0, rel=1e-9)


@pytest.mark.parametrize("n", [3, 4, 7, 30])
def test_closed_forms(n: int) -> None:
    s = 0.37

    def entries(edges: list[tuple[int, int]] | NDArray[np.int64], size: int) -> Floats:
        laplacian = dense_laplacian(honest_graph(size, np.array(edges)))
        return np.diag(np.linalg.inv(s * np.eye(size) + laplacian)) - 1 / (size * s)

    assert entries(list(itertools.combinations(range(n), 2)), n) == pytest.approx(complete_entry(n, s))
    assert entries(ring(n), n) == pytest.approx(ring_entry(n, s))
    path = entries([(v, v + 1) for v in range(n - 1)], n)
    assert path.max() == path[0] == pytest.approx(path_entry(n, s))
    if n > 3:
        result = exact_privacy(honest_graph(n, ring(n)), sigma_eta=1, sigma_delta=2, diameter=1, curious=True)
        truth = dense_worst(honest_graph(n, ring(n)), 1, 1.0, 2.0)
        assert result.worst_lower <= truth <= result.worst_upper <= truth * (1 + 1e-8)


@settings(max_examples=examples(60))
@given(graphs(3, 30))
def test_connectivity_is_a_lower_bound(graph: HonestGraph) -> None:
    truth = float(np.linalg.eigvalsh(dense_laplacian(graph))[1])
    result = connectivity(Laplacian(graph))
    assert result.lower <= truth * (1 + 1e-9)
    assert result.lower >= 0.5 * truth
    assert result.failure_log2 is None


@pytest.mark.parametrize("k", [3, 12])
def test_connectivity_by_random_probes(k: int) -> None:
    """Fails with probability 2^-128 if the proof is right."""
    n = ALL_VECTORS + 88
    laplacian = Laplacian(honest_graph(n, k_out(n, k, n, randomness_of(8))))
    truth = float(np.linalg.eigvalsh(np.diag(laplacian.degrees) - laplacian.adjacency.toarray())[1])
    result = connectivity(laplacian)
    assert 0.75 * truth <= result.lower <= truth
    assert result.failure_log2 == -128


def test_two_cliques_and_one_edge_are_hardly_connected() -> None:
    half = list(itertools.combinations(range(20), 2))
    graph = honest_graph(40, np.array([*half, *((u + 20, v + 20) for u, v in half), (0, 20)]))
    truth = float(np.linalg.eigvalsh(dense_laplacian(graph))[1])
    assert 0.5 * truth < connectivity(Laplacian(graph)).lower <= truth < 0.1


# Discrete noise: the mass function of eta + B delta by summation over the edges' noise.


def discrete_gaussian(sigma: float, reach: int) -> Floats:
    mass = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return np.asarray(mass / mass.sum())


def view(n: int, edges: list[tuple[int, int]], sigma_eta: float, sigma_delta: float, reach: int) -> Floats:
    mass = discrete_gaussian(sigma_eta, reach)
    for _ in range(n - 1):
        mass = np.multiply.outer(mass, discrete_gaussian(sigma_eta, reach))
    for u, v in edges:
        pairwise = discrete_gaussian(sigma_delta, reach)
        mass = sum(
            weight * np.roll(mass, (shift - reach, reach - shift), axis=(u, v))
            for shift, weight in enumerate(pairwise)
            if weight > 1e-25
        )
    return mass


CASES = [
    (2, [(0, 1)], 2.0, 3.0, 2, 60),
    (2, [(0, 1)], 3.0, 2.0, 5, 60),
    (3, [(0, 1), (1, 2)], 1.8, 2.5, 2, 36),
    (3, [(0, 1), (1, 2), (0, 2)], 2.2, 2.0, 3, 36),
]


@pytest.mark.parametrize(("n", "edges", "sigma_eta", "sigma_delta", "distance", "reach"), CASES)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_lattice_mechanism_keeps_its_delta(
    n: int,
    edges: list[tuple[int, int]],
    sigma_eta: float,
    sigma_delta: float,
    distance: int,
    reach: int,
    epsilon: float,
) -> None:
    mass = view(n, edges, sigma_eta, sigma_delta, reach)
    assert mass.sum() == pytest.approx(1.0)
    truth = max(
        float(np.maximum(mass - math.exp(epsilon) * np.roll(mass, distance, axis=u), 0).sum())
        for u in range(n)
    )
    graph = honest_graph(n, np.array(edges))
    claims = []
    for s in np.linspace(0.6, 1.2, 13):
        smoothing = smoothing_for(
            step=1.0,
            sigma_eta=sigma_eta,
            sigma_delta=sigma_delta,
            parties=n,
            edges=len(edges),
            greatest=float(np.linalg.eigvalsh(dense_laplacian(graph))[-1]),
            length=1,
            s=float(s),
        )
        theta = dense_theta(graph, math.sqrt(sigma_eta**2 - s**2), sigma_delta).max()
        claims.append(smoothing.delta(epsilon, distance * math.sqrt(theta)))
        assert truth <= claims[-1]
        full = distance * math.sqrt(dense_theta(graph, sigma_eta, sigma_delta).max())
        assert truth <= zcdp_delta(epsilon, full, smoothing.log_ratio_zcdp)
    # Not vacuous, even on a grid as coarse as this: near the continuous mechanism's own delta.
    assert min(claims) < 2.5 * truth
    assert min(claims) < 0.9


@pytest.mark.parametrize(
    ("n", "edges"), [(2, [(0, 1)]), (3, [(0, 1), (1, 2)]), (3, [(0, 1), (1, 2), (0, 2)])]
)
@pytest.mark.parametrize(("sigma_eta", "sigma_delta"), [(0.7, 0.8), (0.9, 0.6), (1.2, 1.0)])
def test_view_is_within_its_ratio_of_the_lattice_gaussian(
    n: int, edges: list[tuple[int, int]], sigma_eta: float, sigma_delta: float
) -> None:
    """Epsilon_1 of the proof, on grids so coarse that it is far from 0."""
    reach = 14
    mass = view(n, edges, sigma_eta, sigma_delta, reach)
    laplacian = dense_laplacian(honest_graph(n, np.array(edges)))
    inverse = np.linalg.inv(sigma_eta**2 * np.eye(n) + sigma_delta**2 * laplacian)
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * n, indexing="ij")
    z = np.stack([axis.ravel() for axis in axes])
    gaussian = np.exp(-0.5 * np.einsum("ik,ij,jk->k", z, inverse, z)).reshape(mass.shape)
    gaussian /= gaussian.sum()
    seen = np.abs(np.log(mass / gaussian)[np.abs(z).max(axis=0).reshape(mass.shape) <= 4]).max()
    retained = 1 / (1 / sigma_delta**2 + np.linalg.eigvalsh(laplacian)[-1] / sigma_eta**2)
    first = (1 + theta_excess(math.sqrt(retained))) ** len(edges) - 1
    assert first < 1 or sigma_eta < 1
    if first < 1:
        allowed = math.log1p(first) - math.log1p(-first)
        assert seen <= allowed
        if len(edges) == 1:
            assert seen >= 0.2 * allowed


@pytest.mark.parametrize("width", [0.25, 0.4, 0.7, 1.3])
def test_theta_excess_is_how_far_lattice_sums_stray(width: float) -> None:
    shifts, lattice = np.linspace(0, 1, 101), np.arange(-60, 61)
    sums = np.exp(-((lattice[:, None] - shifts) ** 2) / (2 * width**2)).sum(axis=0)
    strayed = np.abs(sums / (width * math.sqrt(2 * math.pi)) - 1).max()
    assert theta_excess(width) == pytest.approx(strayed, rel=1e-6, abs=1e-14)


def test_delta_pays_for_the_ratio_twice_in_epsilon_and_once_in_delta() -> None:
    paid = Smoothing(1.0, 1.0, 0.1, 0.05).delta(1.0, 0.7)
    assert paid == pytest.approx(math.exp(0.1) * gaussian_delta(0.8, 0.7), rel=1e-12)
    assert Smoothing(1.0, 1.0, 0.6, 0.1).delta(1.0, 0.7) == 1.0


@pytest.mark.parametrize("mu", [0.1, 0.7, 3.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_zcdp_bound_is_above_the_gaussian(epsilon: float, mu: float) -> None:
    assert gaussian_delta(epsilon, mu) <= zcdp_delta(epsilon, mu)


# Random k-out graphs, all of them for five parties.


def all_graphs(n: int, k: int, honest: int) -> Floats:
    """Adjacency of the honest parties for every choice of all picks, shape (graphs, honest, honest)."""
    picks = []
    for u in range(honest):
        rows = []
        for chosen in itertools.combinations([v for v in range(n) if v != u], k):
            row = np.zeros(honest)
            row[[v for v in chosen if v < honest]] = 1.0
            rows.append(row)
        picks.append(rows)
    directed = np.array(list(itertools.product(*picks)))
    return np.asarray(np.maximum(directed, directed.transpose(0, 2, 1)))


@pytest.mark.parametrize(("n", "k", "honest"), [(5, 2, 5), (5, 2, 4), (6, 1, 5), (5, 3, 4)])
def test_degrees_of_all_graphs(n: int, k: int, honest: int) -> None:
    degrees = all_graphs(n, k, honest).sum(axis=2)
    claimed = degree_probabilities(n, honest, k)
    truth = np.bincount(degrees[:, 0].astype(int), minlength=len(claimed)) / len(degrees)
    assert (claimed >= truth).all()
    assert claimed == pytest.approx(truth, abs=1e-5)
    for d in range(1, honest):
        # a neighbour of party 0 has a degree below d
        near = ((degrees < d) & (all_graphs(n, k, honest)[:, 0] > 0)).any(axis=1).mean()
        assert near <= max(d - 1, 0) * (degrees[:, 0] < d).mean() + 1e-12


@pytest.mark.parametrize(("n", "k", "honest"), [(5, 2, 5), (5, 2, 4), (6, 1, 5), (5, 3, 4)])
@pytest.mark.parametrize("removed", [0, 1])
def test_cuts_of_all_graphs(n: int, k: int, honest: int, removed: int) -> None:
    adjacency = all_graphs(n, k, honest)
    for phi in (0.05, 0.2, 0.4):
        bad = np.zeros(len(adjacency), dtype=bool)
        for size in range(1, honest // 2 + 1):
            for members in itertools.combinations(range(honest), size):
                inside = np.isin(np.arange(honest), members)
                inner = adjacency[:, inside][:, :, inside].sum(axis=(1, 2)) / 2
                outer = adjacency[:, inside][:, :, ~inside].sum(axis=(1, 2))
                bad |= (1 - phi) * (outer - removed * size) <= 2 * phi * inner
        assert bad.mean() <= math.exp(log_bad_cut(n, honest, k, phi, removed))


@settings(max_examples=examples(100))
@given(graphs(3, 9), SIGMAS, SIGMAS)
def test_bounds_of_connected_graphs(graph: HonestGraph, sigma_eta: float, sigma_delta: float) -> None:
    laplacian, degrees = dense_laplacian(graph), graph.degrees.astype(np.float64)
    scale = 1 / np.sqrt(degrees)
    gap = float(np.linalg.eigvalsh(scale[:, None] * laplacian * scale)[1])
    conductance = 1.0
    for size in range(1, graph.size):
        for members in itertools.combinations(range(graph.size), size):
            inside = np.isin(np.arange(graph.size), members)
            if degrees[inside].sum() <= degrees.sum() / 2:
                outer = -laplacian[inside][:, ~inside].sum()
                conductance = min(conductance, float(outer / degrees[inside].sum()))
    assert cheeger_gap(conductance) <= gap * (1 + 1e-9)
    truth = dense_theta(graph, sigma_eta, sigma_delta)
    for party in range(graph.size):
        near = degrees[laplacian[party] < 0].min()
        choice = Connected(
            honest=graph.size,
            removed=0,
            phi=conductance,
            gap=gap,
            neighbour_degree=int(near),
            least_degree=int(degrees.min()),
            failure=0.0,
        )
        claimed = choice.theta(degrees, sigma_eta**2, sigma_delta)[party]
        assert truth[party] <= claimed * (1 + 1e-7)


def test_failure_of_a_choice_adds_up() -> None:
    parties, honest, k, delta = 120, 90, 30, 1e-5
    proven = analyse_process(parties, honest, k, removed=1, delta=delta)
    assert not isinstance(proven, str)
    degrees = np.array(proven.degrees)
    for choice in proven.choices:
        near, least = choice.neighbour_degree, choice.least_degree
        tails = (near - 1) * degrees[:near].sum() + honest * degrees[:least].sum()
        cut = math.exp(log_bad_cut(parties, honest, k, choice.phi, 1))
        assert tails + cut <= choice.failure <= 0.31 * delta
        assert choice.gap == cheeger_gap(choice.phi)


@pytest.mark.parametrize(
    ("parties", "honest", "k", "removed"), [(200, 200, 16, 0), (200, 200, 20, 2), (300, 200, 40, 0)]
)
def test_process_bounds_hold_on_drawn_graphs(parties: int, honest: int, k: int, removed: int) -> None:
    """The bounds hold for all parties unless a graph is bad; alarm: its chance, below 1e-4 for all."""
    proven = analyse_process(parties, honest, k, removed=removed, delta=1e-5)
    assert not isinstance(proven, str)
    for seed in range(10):
        graph = honest_graph(
            parties, k_out(parties, k, honest, randomness_of(seed)), np.arange(parties) < honest
        )
        gone = graph.adjacency[[int(np.argmin(graph.degrees))]].indices[:removed].tolist()
        rest = graph.without(gone)
        truth = dense_theta(rest, 0.2, 2.0)
        for choice in proven.choices:
            assert choice.failure < 5e-6
            claimed = choice.theta(graph.degrees.astype(np.float64), 0.04, 2.0)
            assert (truth <= claimed[rest.parties]).all()
    value, _ = proven.delta(1.0, diameter=1.0, sigma_eta=0.3, sigma_delta=3.0, smoothing=CONTINUOUS)
    drawn = exact_privacy(graph, sigma_eta=0.3, sigma_delta=3.0, diameter=1.0, max_dropouts=removed)
    assert value < 30 * drawn.delta(1.0)
