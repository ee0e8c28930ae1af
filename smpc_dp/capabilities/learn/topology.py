"""Network topologies: graphs of parties, their mixing weights and how fast these mix.

Random graphs come from the installed networkx (extra `graphs`): parties that must agree on a graph pass its
edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.optional import import_optional
from smpc_dp.privacy.arguments import ArgumentChecks

if TYPE_CHECKING:
    # Imported for types alone: the command line needs only the settings of learners.
    from scipy import sparse

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]

MAX_PARTIES = 1_000_000
MAX_EDGES = 20_000_000
# Up to here all eigenvalues are computed, beyond, an iterative method finds the two that matter.
_DENSE = 1_500
# Members of a component that an error lists.
_SHOWN = 8
_TRIES = 100


@dataclass(frozen=True, eq=False)
class Topology:
    """An undirected graph of parties without loops, with its mixing weights and eigenvalues.

    Attributes:
        name: for results and plots.
        parties: n; they are 0 to n - 1.
        edges: shape (E, 2), each edge once, smaller end first, sorted.
    """

    name: str
    parties: int
    edges: Ints

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """The adjacency matrix, symmetric, of ones, shape (n, n).

        `indptr` and `indices` list the neighbours of each party.
        """
        from scipy import sparse

        ends = np.concatenate([self.edges, self.edges[:, ::-1]])
        ones = np.ones(len(ends))
        return sparse.csr_array((ones, (ends[:, 0], ends[:, 1])), shape=(self.parties, self.parties))

    @cached_property
    def degrees(self) -> Ints:
        """The number of neighbours of each party, shape (n,)."""
        return np.bincount(self.edges.ravel(), minlength=self.parties).astype(np.intp)

    @cached_property
    def components(self) -> Ints:
        """The number, from 0, of the connected component of each party, shape (n,)."""
        from scipy.sparse.csgraph import connected_components

        return np.asarray(connected_components(self.adjacency, directed=False)[1], dtype=np.intp)

    @property
    def connected(self) -> bool:
        """Whether there is a path between any two parties."""
        return int(self.components.max()) == 0

    @cached_property
    def bipartite(self) -> bool:
        """Whether the parties fall into two classes with edges between the classes only."""
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components

        # Exactly the components without an odd cycle fall apart in the double cover.
        double = sparse.block_array([[None, self.adjacency], [self.adjacency, None]], format="csr")
        two_steps_apart = connected_components(double, directed=False)[0]
        return bool(two_steps_apart == 2 * (int(self.components.max()) + 1))

    @cached_property
    def spectral_gap(self) -> float:
        """The second smallest eigenvalue of the graph's Laplacian D - A; 0 if disconnected.

        [Bellet 2021, Theorems 3.1 and 3.2]; 1 - beta_G/|E| is the second eigenvalue of a swap over a random
        edge.
        """
        if not self.connected:
            return 0.0
        if 2 * len(self.edges) == self.parties * (self.parties - 1):
            return float(self.parties)
        from scipy import sparse

        laplacian = sparse.diags_array(self.degrees.astype(np.float64)) - self.adjacency
        if self.parties <= _DENSE:
            return float(np.linalg.eigvalsh(laplacian.toarray())[1])
        # Just off 0, where the Laplacian cannot be inverted.
        values = _largest(sparse.csc_array(laplacian), sigma=-1e-6)
        return float(values[1])

    def metropolis(self) -> sparse.csr_array:
        """Return the doubly stochastic Metropolis weights of the graph's edges, shape (n, n).

        1/(1 + max(d_u, d_v)) on edges and the rest on the diagonal.
        """
        larger = self.degrees[self.edges].max(axis=1)
        return self._weights(1.0 / (1.0 + larger))

    def max_degree(self) -> sparse.csr_array:
        """Return doubly stochastic weights, each edge 1/(greatest degree + 1), shape (n, n).

        The rest is on the diagonal.
        """
        return self._weights(np.full(len(self.edges), 1.0 / (1.0 + self.degrees.max())))

    def _weights(self, weight: Floats) -> sparse.csr_array:
        """Return a matrix with these weights on the edges, and a diagonal that makes rows add up to 1."""
        from scipy import sparse

        first, second = self.edges.T
        out = np.bincount(first, weight, self.parties) + np.bincount(second, weight, self.parties)
        own = np.arange(self.parties)
        rows = np.concatenate([first, second, own])
        columns = np.concatenate([second, first, own])
        values = np.concatenate([weight, weight, 1.0 - out])
        return sparse.csr_array((values, (rows, columns)), shape=(self.parties, self.parties))

    def require_connected(self) -> None:
        """Raise ConfigError, naming the smallest component, unless the graph is connected."""
        if self.connected:
            return
        sizes = np.bincount(self.components)
        small = int(sizes.argmin())
        members = np.flatnonzero(self.components == small)
        shown = ", ".join(map(str, members[:_SHOWN])) + (", ..." if len(members) > _SHOWN else "")
        reason = f"is disconnected: {len(sizes)} components, the smallest has {len(members)} parties: {shown}"
        raise ConfigError.at("topology", f"{self.name} {reason}", ConfigCheck.UNSUPPORTED)


def mixing_gap(weights: sparse.csr_array) -> float:
    """Return 1 - max(|second|, |last| eigenvalue) of symmetric stochastic weights; or ConfigError.

    Each mixing multiplies the distance from the average by one minus this number at most. Raises ConfigError.
    """
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or weights.shape[0] < 2:
        raise ConfigError.at("weights", f"shape must be (n, n), is {weights.shape}", ConfigCheck.SHAPE)
    if abs(weights - weights.T).max() > 1e-12 or abs(weights.sum(axis=1) - 1).max() > 1e-9:
        raise ConfigError.at("weights", "must be symmetric with rows that add up to one", ConfigCheck.RANGE)
    from scipy import sparse

    parties = weights.shape[0]
    if parties <= _DENSE:
        values = np.linalg.eigvalsh(weights.toarray())
        return float(1 - max(abs(values[0]), abs(values[-2])))
    last = sparse.linalg.eigsh(weights, k=1, which="SA", return_eigenvectors=False, v0=_start(parties))
    # Just above 1, the greatest eigenvalue.
    second = _largest(sparse.csc_array(weights), sigma=1 + 1e-6)[0]
    return float(1 - max(abs(float(last[0])), abs(float(second))))


def from_edges(parties: int, edges: NDArray[np.integer], name: str = "graph") -> Topology:
    """Return the graph of these edges, (m, 2), repeats merged; ConfigError for loops and unknown parties.

    Args:
        parties: n, 2 to 1,000,000.
        edges: shape (E, 2), 1 to 20,000,000 of them, in either direction and possibly more than once.

    Raises:
        ConfigError: an edge is a loop or leads to nobody.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 2, MAX_PARTIES)
    checks.raise_issues()
    edges = np.asarray(edges)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ConfigError.at(
            "edges", f"must be integers of shape (E, 2), shape is {edges.shape}", ConfigCheck.TYPE
        )
    if not 1 <= len(edges) <= MAX_EDGES:
        raise ConfigError.at("edges", f"must be 1 to {MAX_EDGES:,}, are {len(edges):,}", ConfigCheck.RANGE)
    wrong = np.flatnonzero(
        (edges < 0).any(axis=1) | (edges >= parties).any(axis=1) | (edges[:, 0] == edges[:, 1])
    )
    if len(wrong):
        first, second = map(int, edges[wrong[0]])
        reason = "is a loop" if first == second else f"leads out of 0..{parties - 1}"
        raise ConfigError.at(f"edges[{wrong[0]}]", f"{first}, {second} {reason}", ConfigCheck.RANGE)
    ends = np.sort(edges.astype(np.int64), axis=1)
    keys = np.unique(ends[:, 0] * parties + ends[:, 1])
    return Topology(name, parties, np.stack([keys // parties, keys % parties], axis=1).astype(np.intp))


def ring(parties: int) -> Topology:
    """Return the cycle 0, 1, ..., n - 1, n at least 3; bipartite for even n."""
    _sizes(parties, least=3)
    own = np.arange(parties)
    return from_edges(parties, np.stack([own, (own + 1) % parties], axis=1), "ring")


def grid(rows: int, columns: int, *, odd: bool = False) -> Topology:
    """Return the two-dimensional grid graph; party r * columns + c is in row r, column c.

    Grids are bipartite; `odd` adds the diagonal of one corner's square, which ends that.
    """
    checks = ArgumentChecks()
    checks.require_integer("rows", rows, 1, MAX_PARTIES)
    checks.require_integer("columns", columns, 1, MAX_PARTIES)
    checks.raise_issues()
    _sizes(rows * columns)
    if odd and min(rows, columns) < 2:
        raise ConfigError.at("odd", "needs at least two rows and two columns", ConfigCheck.RANGE)
    indices = np.arange(rows * columns).reshape(rows, columns)
    joined = [(indices[:, :-1], indices[:, 1:]), (indices[:-1], indices[1:])]
    if odd:
        joined.append((indices[0, 0], indices[1, 1]))
    edges = np.concatenate([np.stack([first, second], axis=-1).reshape(-1, 2) for first, second in joined])
    return from_edges(rows * columns, edges, "odd grid" if odd else "grid")


def watts_strogatz(parties: int, neighbours: int, rewired: float, seed: int) -> Topology:
    """Return a small-world graph: a ring of near neighbours, with some edges moved at random.

    Drawn until connected, 100 times at most. [Watts, Strogatz 1998]

    Args:
        neighbours: of each party, even, 2 to n - 1. rewired: the part of the edges, 0 to 1.

    Raises:
        ConfigError: an argument is out of range, or no draw was connected.
        LocalError: networkx is not installed; so for every random graph.
    """
    checks = ArgumentChecks()
    checks.require_integer("neighbours", neighbours, 2, max(2, parties - 1))
    checks.require_within("rewired", rewired, 0, 1)
    checks.raise_issues()
    if neighbours % 2:
        raise ConfigError.at("neighbours", f"must be even, is {neighbours}", ConfigCheck.RANGE)
    _sizes(parties, parties * neighbours // 2, least=3)
    networkx = import_optional("networkx")
    try:
        drawn = networkx.connected_watts_strogatz_graph(parties, neighbours, rewired, _TRIES, seed)
    except networkx.NetworkXError:
        reason = f"no connected graph in {_TRIES} draws: more neighbours or fewer rewired"
        raise ConfigError.at("neighbours", reason, ConfigCheck.INFEASIBLE) from None
    return _drawn("Watts-Strogatz", drawn, parties)


def random_k_out(parties: int, chosen: int, seed: int) -> Topology:
    """Return a random graph in which each party chooses `chosen` others; it may be disconnected."""
    checks = ArgumentChecks()
    checks.require_integer("chosen", chosen, 1, max(1, parties - 1))
    checks.raise_issues()
    _sizes(parties, parties * chosen)
    directed = import_optional("networkx.generators.directed")
    drawn = directed.random_uniform_k_out_graph(
        parties, chosen, self_loops=False, with_replacement=False, seed=seed
    )
    return _drawn(f"random {chosen}-out", drawn, parties)


def erdos_renyi(parties: int, chance: float, seed: int) -> Topology:
    """Return a random graph in which each pair is an edge with probability `chance`."""
    checks = ArgumentChecks()
    checks.require_positive("chance", chance, 1)
    checks.raise_issues()
    _sizes(parties, round(chance * parties * (parties - 1) / 2))
    drawn = import_optional("networkx").fast_gnp_random_graph(parties, chance, seed)
    return _drawn("Erd\u0151s-R\u00e9nyi", drawn, parties)


def complete(parties: int) -> Topology:
    """Return the graph in which all parties are neighbours, of at most 6,325 parties."""
    _sizes(parties, parties * (parties - 1) // 2)
    return Topology("complete", parties, np.stack(np.triu_indices(parties, 1), axis=1).astype(np.intp))


def _sizes(parties: int, edges: int = 0, *, least: int = 2) -> None:
    """Raise ConfigError unless the numbers of parties and of edges are within a graph's limits."""
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, least, MAX_PARTIES)
    if edges > MAX_EDGES:
        checks.add_issue("parties", f"{edges:,} edges, more than {MAX_EDGES:,}", ConfigCheck.TOO_LARGE)
    checks.raise_issues()


def _drawn(name: str, graph: Any, parties: int) -> Topology:
    """Return a graph drawn by networkx as a `Topology` with this name."""
    edges = np.array([edge[:2] for edge in graph.edges], dtype=np.int64).reshape(-1, 2)
    if not len(edges):
        raise ConfigError.at("topology", f"{name} has no edge", ConfigCheck.MISSING)
    return from_edges(parties, edges, name)


def _largest(matrix: sparse.csc_array, sigma: float) -> Floats:
    """Return the two eigenvalues of a sparse symmetric matrix nearest to sigma, ascending."""
    from scipy import sparse

    start = _start(matrix.shape[0])
    values = sparse.linalg.eigsh(matrix, k=2, sigma=sigma, which="LM", return_eigenvectors=False, v0=start)
    return np.sort(np.asarray(values, dtype=np.float64))


def _start(parties: int) -> Floats:
    """Return the fixed vector 1 + cos(1.618 i), i from 0, from which sparse eigenvalue searches start."""
    start: Floats = np.cos(np.arange(parties) * 1.618) + 1.0
    return start
