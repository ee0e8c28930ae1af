"""The exact privacy of GOPA on one graph of honest parties, certified from both sides.

The view of the honest parties is Gaussian with covariance M = sigma_eta^2 I + sigma_delta^2 L, and inputs
that differ in one party move its mean in that party's coordinate alone. So GOPA is the Gaussian mechanism of

    mu^2 = D^2 theta,   theta = max over parties u of (M^-1)_uu,

D the L2 diameter of the domain. Deleting a party with its edges is exact for a party that is corrupt or
curious, and for one that is made to drop out; it never lowers theta. docs/proofs/gopa-plan.md has the proofs.
"""

from __future__ import annotations

import itertools
import math
import os

import msgspec
import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.gaussian import GREATEST_MU, gaussian_delta
from smpc_dp.privacy.gopa.diagonal import Interval, degree_bound, largest, largest_without
from smpc_dp.privacy.gopa.graphs import HonestGraph, Randomness
from smpc_dp.privacy.gopa.laplacian import Connectivity, Laplacian, connectivity
from smpc_dp.privacy.gopa.lattice import Smoothing, smoothing_for

# Up to so many pairs of a party and a set of deleted parties the worst case is found by trying all.
EXHAUSTIVE = 20_000
# Above, with one deleted party, so many pairs are computed; the others keep their degree bounds.
_MOST_PAIRS = 2_000


class ExactPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the exact privacy analysis of GOPA on one graph: certified bounds on theta, and delta."""

    honest: int
    """n_H, the parties of the graph."""
    removed: int
    """Parties that the worst case deletes: dropouts that somebody can choose, and a curious party."""
    edges: int
    min_degree: int
    connectivity: float
    """A lower bound on lambda_2 of the graph's Laplacian."""
    failure_log2: float | None
    """log2 of the chance that the certificate is wrong, over its own random probes; None: it is certain."""
    computed: int
    """Diagonal entries that were computed; the degree bound rules the others out."""
    theta_lower: float
    theta_upper: float
    """All stay and nobody is curious."""
    worst_lower: float
    """theta at one choice of `removed` parties, or a bound on it."""
    worst_upper: float
    """theta for every choice of `removed` parties, at most."""
    diameter: float
    """D."""
    smoothing: Smoothing

    def mu(self, *, worst: bool = True) -> float:
        """Return Gaussian DP's mu = D sqrt(theta); by default with the worst `removed` parties gone."""
        return self.diameter * math.sqrt(self.worst_upper if worst else self.theta_upper) * (1 + 1e-12)

    def delta(self, epsilon: float, *, worst: bool = True) -> float:
        """Return the least certified delta at epsilon; wrong with probability 2^failure_log2 at most."""
        return self.smoothing.delta(epsilon, self.mu(worst=worst))

    def delta_lower(self, epsilon: float) -> float:
        """Return a lower bound on delta at epsilon, of continuous noise in the worst case."""
        mu = self.diameter * math.sqrt(self.worst_lower)
        return gaussian_delta(epsilon, mu) if mu <= GREATEST_MU else 1.0


class CertifiedGraph:
    """Connected graph of honest parties with a certified lower bound on its algebraic connectivity.

    Raises ConfigError if the graph is not connected, naming a component.
    """

    def __init__(self, graph: HonestGraph, randomness: Randomness = os.urandom) -> None:
        _check_size(graph.size)
        graph.check_connected()
        n, laplacian = graph.size, Laplacian(graph)
        self.size, self.edges = n, laplacian.edges
        self.min_degree, self.greatest = int(laplacian.degrees.min()), laplacian.greatest
        self.is_complete = self.edges == n * (n - 1) // 2
        self.is_ring = n > 3 and bool((laplacian.degrees == 2).all())
        # Closed forms need no more of the graph than its size.
        self.sparse = None if self.is_complete else (graph, laplacian)
        if self.is_ring:
            exact = 4 * math.sin(math.pi / n) ** 2
            self.connectivity = Connectivity(exact * (1 - 1e-12), None, exact)
        else:
            self.connectivity = connectivity(laplacian, randomness)

    @classmethod
    def complete(cls, size: int) -> CertifiedGraph:
        """Return the complete graph on `size` parties and its connectivity, without stored edges."""
        _check_size(size)
        made = cls.__new__(cls)
        made.size, made.edges, made.min_degree = size, size * (size - 1) // 2, size - 1
        made.greatest, made.is_complete, made.is_ring = float(size), True, False
        made.sparse, made.connectivity = None, Connectivity(float(size), None, float(size))
        return made


def _check_size(size: int) -> None:
    """Raise ConfigError for a graph of fewer than two parties."""
    if size < 2:
        raise ConfigError.at(
            "honest", f"{size} honest parties: nobody hides a single one", ConfigCheck.INFEASIBLE
        )


def complete_entry(n: int, s: float) -> float:
    """Return b'(s I + L)^-1 b, b = e_u - 1/n, in closed form for the complete graph: (1 - 1/n)/(s + n)."""
    return (1 - 1 / n) / (s + n)


def ring_entry(n: int, s: float) -> float:
    """Return b'(s I + L)^-1 b, b = e_u - 1/n, in closed form for any node u of the ring of n nodes.

    (1/n) sum over j = 1 .. n-1 of 1/(s + 2 - 2 cos(2 pi j/n)).
    """
    angles = math.pi * np.arange(1, n) / n
    return float((1 / (s + 4 * np.sin(angles) ** 2)).mean() * (n - 1) / n)


def path_entry(n: int, s: float) -> float:
    """Return the largest b'(s I + L)^-1 b, b = e_u - 1/n, on the path of n nodes: that of an end u.

    (2/n) sum of cos^2(a)/(s + 4 sin^2(a)) over a = pi j/(2 n), j = 1 .. n-1.
    """
    angles = math.pi * np.arange(1, n) / (2 * n)
    return float((np.cos(angles) ** 2 / (s + 4 * np.sin(angles) ** 2)).sum() * 2 / n)


def exact_privacy(
    graph: HonestGraph | CertifiedGraph,
    *,
    sigma_eta: float,
    sigma_delta: float,
    diameter: float,
    max_dropouts: int = 0,
    curious: bool = False,
    step: float = 0.0,
    length: int = 1,
    randomness: Randomness = os.urandom,
) -> ExactPrivacy:
    """Return certified bounds on GOPA's privacy on a graph of honest parties, also if some are removed.

    Deterministic, so that every caller gets the same, for up to 512 parties.

    Args:
        sigma_eta, sigma_delta: standard deviations of the independent and of the pairwise noise, positive.
        diameter: D, the L2 distance of the two farthest inputs of one party.
        max_dropouts: honest parties whom an adversary that knows the graph may choose to remove.
        curious: whether also one more party, whoever it is, uses what it knows (Remark 4.1).
        step: the grid step of discrete noise; 0 for continuous noise.
        length: coordinates of a vector.
        randomness: for the probes of more than 512 parties.

    Raises:
        ConfigError: a number is out of range, the graph is not connected, or the grid is too coarse.
    """
    certified = graph if isinstance(graph, CertifiedGraph) else CertifiedGraph(graph, randomness)
    n, removed = certified.size, max_dropouts + int(curious)
    _check(sigma_eta, sigma_delta, diameter, max_dropouts, n - removed)
    smoothing = smoothing_for(
        step=step,
        sigma_eta=sigma_eta,
        sigma_delta=sigma_delta,
        parties=n,
        edges=certified.edges,
        greatest=certified.greatest,
        length=length,
    )
    variance = sigma_eta**2 - smoothing.s**2
    s = variance / sigma_delta**2
    stay = _all_stay(certified, s)
    worst = _worst(certified, s, removed) if removed else stay

    def theta(entry: float, parties: int) -> float:
        """Return theta for the largest entry b'(s I + L)^-1 b of a graph of so many parties."""
        return min(1 / (parties * variance) + entry / sigma_delta**2, 1 / variance)

    return ExactPrivacy(
        honest=n,
        removed=removed,
        edges=certified.edges,
        min_degree=certified.min_degree,
        connectivity=certified.connectivity.lower,
        failure_log2=certified.connectivity.failure_log2,
        computed=stay.computed + (worst.computed if removed else 0),
        theta_lower=theta(stay.lower, n) * (1 - 1e-12),
        theta_upper=theta(stay.upper, n) * (1 + 1e-12),
        worst_lower=theta(worst.lower, n - removed) * (1 - 1e-12),
        worst_upper=theta(worst.upper, n - removed) * (1 + 1e-12),
        diameter=diameter,
        smoothing=smoothing,
    )


def _check(sigma_eta: float, sigma_delta: float, diameter: float, dropouts: int, left: int) -> None:
    """Raise ConfigError unless noise, distance and numbers of parties for the analysis are in range."""
    checks = ArgumentChecks()
    for name, value in (("sigma_eta", sigma_eta), ("sigma_delta", sigma_delta), ("diameter", diameter)):
        if not (math.isfinite(value) and value > 0):
            checks.add_issue(name, f"must be a finite number above 0, is {value}", ConfigCheck.RANGE)
    if dropouts < 0:
        checks.add_issue("max_dropouts", f"must be 0 or more, is {dropouts}", ConfigCheck.RANGE)
    if left < 2:
        checks.add_issue(
            "max_dropouts",
            f"leaves {max(left, 0)} honest parties, at least 2 are needed",
            ConfigCheck.INFEASIBLE,
        )
    checks.raise_issues()


def _closed(value: float) -> Interval:
    """Return an interval around a computed value that allows for floating-point error."""
    return Interval(value * (1 - 1e-10), value * (1 + 1e-10), 0)


def _all_stay(certified: CertifiedGraph, s: float) -> Interval:
    """Return bounds on the largest entry b'(s I + L)^-1 b of the graph with no party removed."""
    if certified.sparse is None:
        return _closed(complete_entry(certified.size, s))
    if certified.is_ring:
        return _closed(ring_entry(certified.size, s))
    return largest(*certified.sparse, s, certified.connectivity.lower)


def _worst(certified: CertifiedGraph, s: float, removed: int) -> Interval:
    """Return bounds on the largest entry b'(s I + L)^-1 b over all ways to remove `removed` parties."""
    n = certified.size
    if certified.sparse is None:
        return _closed(complete_entry(n - removed, s))
    graph, laplacian = certified.sparse
    if certified.is_ring and removed == 1:
        return _closed(path_entry(n - 1, s))
    # Deleting a vertex lowers lambda_2 by at most 1 [Fiedler 1973], and degrees by at most 1.
    left = certified.connectivity.lower - removed
    if math.comb(n, removed) * n <= EXHAUSTIVE:
        return _every_choice(graph, laplacian, s, removed, max(left, 0.0))
    alone = 1 / s  # theta of a party without neighbours, 1/sigma_eta^2, is the most there is
    degrees = laplacian.degrees
    weakest = int(np.argmin(degrees))
    hit = tuple(int(v) for v in graph.adjacency[[weakest]].indices[:removed])
    if len(hit) == degrees[weakest]:
        return Interval(alone * (1 - 1 / (n - removed)), alone, 0)
    if left <= 0:
        return Interval(0.0, alone, 0)
    if removed == 1:
        return _one_deleted(graph, laplacian, s, left)
    lower = largest_without(graph, laplacian, s, left, [(weakest, hit)])
    return Interval(lower.lower, float(degree_bound(degrees - removed, s, left).max()), 1)


def _one_deleted(graph: HonestGraph, laplacian: Laplacian, s: float, left: float) -> Interval:
    """Return bounds on the largest entry b'(s I + L)^-1 b over all graphs that lack one party.

    The entries of its neighbours are computed, the others are bounded by their degrees.
    """
    cheap = degree_bound(laplacian.degrees - 1, s, left)
    neighbours = graph.adjacency
    best, upper, computed, ruled_out = 0.0, 0.0, 0, 0.0
    for party in np.argsort(-cheap, kind="stable"):
        if cheap[party] <= best or computed >= _MOST_PAIRS:
            ruled_out = float(cheap[party])
            break
        around = neighbours.indices[neighbours.indptr[party] : neighbours.indptr[party + 1]]
        result = largest_without(graph, laplacian, s, left, [(int(party), (int(gone),)) for gone in around])
        best, upper = max(best, result.lower), max(upper, result.upper)
        computed += result.computed
    elsewhere = float(degree_bound(laplacian.degrees, s, left).max())
    return Interval(best, max(best, upper, ruled_out, elsewhere), computed)


def _every_choice(graph: HonestGraph, laplacian: Laplacian, s: float, removed: int, left: float) -> Interval:
    """Return bounds on the largest entry b'(s I + L)^-1 b by trying every set of `removed` parties."""
    best, upper, columns = 0.0, 0.0, []
    n = graph.size
    for gone in itertools.combinations(range(n), removed):
        rest = graph.without(list(gone))
        try:
            if left <= 0:
                rest.check_connected()
        except ConfigError:
            # A part is on its own: at worst a single party, without any pairwise noise.
            alone = bool((rest.degrees == 0).any())
            best, upper = max(best, (1 - 1 / n) / s if alone else 0.0), 1 / s
            continue
        columns += [(int(party), gone) for party in rest.parties]
    if upper < 1 / s and columns:
        result = largest_without(graph, laplacian, s, left, columns)
        return Interval(result.lower, result.upper, len(columns))
    return Interval(best, max(best, upper), 0)
