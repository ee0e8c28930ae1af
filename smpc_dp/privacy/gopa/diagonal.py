"""Bound the largest diagonal entry of (s I + L)^-1 on the complement of the constant vector, from both sides.

Every entry has a cheap upper bound from its degree and lambda_2. Only those that it does not rule out are
computed, by conjugate gradients on many right-hand sides at once; each value is then bounded from both sides
by its residual, evaluated anew, with an allowance for rounding. No entry is left unbounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from smpc_dp.privacy.gopa.graphs import Floats, HonestGraph, Ints
from smpc_dp.privacy.gopa.laplacian import Laplacian

_U = 2.0**-53
_BLOCK = 64
_MOST_STEPS = 20_000
# Badly connected sparse graphs (paths, grids) take conjugate gradients long, and have sparse factors.
_ILL_CONDITIONED = 500.0
_SPARSE_DEGREE = 10.0
# Bounds on the maximum are refined to this; it is a small part of theta.
TOLERANCE = 1e-4


class Interval(msgspec.Struct, frozen=True):
    """Certified lower and upper bound on a maximum over graph nodes, and how many entries were computed."""

    lower: float
    upper: float
    computed: int


def degree_bound(degrees: Floats, s: float, connectivity: float) -> Floats:
    """Return upper bounds on b'(s I + L)^-1 b of each node by degree: (1 + 1/(s + lambda)) / (s + d).

    `connectivity` is a lower bound on lambda_2. The bound falls as the degree or the connectivity grows.
    """
    return np.asarray((1 + 1 / (s + connectivity)) / (s + degrees) * (1 + 1e-12))


def start_bound(degrees: Floats, s: float, n: int) -> Floats:
    """Return cheap lower bounds on b'(s I + L)^-1 b for each node, from its degree; before rounding."""
    return np.asarray((1 - 2 / n) / (s + degrees))


def largest(graph: HonestGraph, laplacian: Laplacian, s: float, connectivity: float) -> Interval:
    """Return certified bounds on the maximum over all parties u of b'(s I + L)^-1 b, for b = e_u - 1/n.

    Args:
        graph, laplacian: of a connected graph of two parties or more.
        s: sigma_eta^2 / sigma_delta^2, positive.
        connectivity: a lower bound on lambda_2, 0 or more.
    """
    cheap = degree_bound(laplacian.degrees, s, connectivity)
    order = np.argsort(-cheap, kind="stable")
    best = float(start_bound(laplacian.degrees, s, graph.size).max()) * (1 - 1e-9)
    upper, computed = 0.0, 0
    for at in range(0, graph.size, _BLOCK):
        block = order[at : at + _BLOCK]
        block = block[cheap[block] > best]
        if not len(block):
            break
        low, high = entries(laplacian, s, connectivity, block, aim=best)
        best, upper = max(best, float(low.max())), max(upper, float(high.max()))
        computed += len(block)
    rest = cheap[order[computed:]]
    return Interval(best, max(upper, float(rest.max()) if len(rest) else 0.0, best), computed)


def largest_without(
    graph: HonestGraph,
    laplacian: Laplacian,
    s: float,
    connectivity: float,
    columns: Sequence[tuple[int, tuple[int, ...]]],
) -> Interval:
    """Return certified bounds on the maximum of b'(s I + L)^-1 b over pairs (party u, deleted parties).

    Each of the smaller graphs must be connected, and `connectivity` a lower bound on lambda_2 of all of them.
    """
    best, upper = 0.0, 0.0
    for at in range(0, len(columns), _BLOCK):
        block = columns[at : at + _BLOCK]
        parties = np.array([party for party, _ in block])
        deleted = _Deletion(graph, [gone for _, gone in block])
        low, high = entries(laplacian, s, connectivity, parties, aim=best, deletion=deleted)
        best, upper = max(best, float(low.max())), max(upper, float(high.max()))
    return Interval(best, max(upper, best), len(columns))


class _Deletion:
    """Record of which graph nodes are deleted, with their edges, in each column of a linear system."""

    def __init__(self, graph: HonestGraph, deleted: Sequence[tuple[int, ...]]) -> None:
        neighbours = graph.adjacency
        start, ends = neighbours.indptr, neighbours.indices
        gone = [(party, column) for column, parties in enumerate(deleted) for party in parties]
        self.gone = (np.array([u for u, _ in gone], dtype=np.int64), np.array([c for _, c in gone]))
        rows = [ends[start[party] : start[party + 1]] for party, _ in gone]
        self.rows = np.concatenate(rows).astype(np.int64)
        self.columns = np.repeat([column for _, column in gone], [len(row) for row in rows])
        self.retained = np.ones((graph.size, len(deleted)))
        self.retained[self.gone] = 0.0

    def correct(self, x: Floats, image: Floats) -> None:
        """Change L x in place to the product with the Laplacian of each smaller graph."""
        np.subtract.at(image, (self.rows, self.columns), x[self.rows, self.columns])
        image[self.gone] = 0.0


def entries(
    laplacian: Laplacian,
    s: float,
    connectivity: float,
    parties: Ints,
    *,
    aim: float,
    deletion: _Deletion | None = None,
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on b'(s I + L)^-1 b, b = e_u - 1/n, for each of these parties u.

    They are refined until each upper bound is below `aim`, or the largest is close to the best lower bound.
    """
    n, count = laplacian.n, len(parties)
    retained = np.ones((n, 1)) if deletion is None else deletion.retained
    left = np.broadcast_to(retained.sum(axis=0), (count,))
    b = -retained / left * np.ones((1, count))
    b[parties, np.arange(count)] += 1.0

    def apply(x: Floats) -> Floats:
        image = laplacian.apply(x)
        if deletion is not None:
            deletion.correct(x, image)
        image += s * x
        return image

    gap = s + connectivity
    ill = s + laplacian.greatest > _ILL_CONDITIONED * gap
    if ill and deletion is None and laplacian.degrees.mean() <= _SPARSE_DEGREE:
        x = np.asarray(laplacian.factors(s).solve(b))
    else:
        x = _conjugate_gradients(apply, b, retained, left, gap, aim)
    # Whatever x is: both bounds from its residual, evaluated anew, and what rounding may have done to them.
    r = b - apply(x)
    mean = (r * retained).sum(axis=0) / left
    most = float(laplacian.degrees.max())
    size, right = np.sqrt((x * x).sum(axis=0)), np.sqrt((b * b).sum(axis=0))
    norm = s + 2 * most
    value = 2 * (b * x).sum(axis=0) - (x * (b - r)).sum(axis=0)
    slack = 4 * _U * (n + most + 8) * (2 * right * size + norm * size**2)
    off = 4 * _U * (most + 8) * (norm * size + right)
    length = np.sqrt((r * r).sum(axis=0)) + off
    constant = np.abs(mean) * np.sqrt(left) + off
    return value - slack, value + slack + (length**2 / gap + constant**2 / s) * (1 + 1e-9)


def _conjugate_gradients(
    apply: Callable[[Floats], Floats], b: Floats, retained: Floats, left: Floats, gap: float, aim: float
) -> Floats:
    """Return x with A x = b approximately, by conjugate gradients until bounds from x are close."""
    x, r = np.zeros_like(b), b.copy()
    p, square = r.copy(), (r * r).sum(axis=0)
    for _ in range(_MOST_STEPS):
        image = apply(p)
        step = square / np.maximum((p * image).sum(axis=0), 1e-300)
        x += step * p
        r -= step * image
        r -= retained * ((r * retained).sum(axis=0) / left)
        following = (r * r).sum(axis=0)
        low = (b * x).sum(axis=0)
        high = low + following / gap
        wanted = max(aim, float(low.max())) * (1 + TOLERANCE)
        if float(high.max()) <= wanted or float(following.max()) < 1e-26:
            break
        p = r + following / np.maximum(square, 1e-300) * p
        square = following
    return x
