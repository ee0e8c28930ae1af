"""Counts on the levels of a tree of bins, made consistent: the leaves that fit all noisy counts best."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.terms import FANOUT

Floats = NDArray[np.float64]
# A known total is fitted as if it had this part of the least noise of a level.
_KNOWN = 1e-4


class CountTree:
    """Least-squares estimator of histogram counts from noisy counts at all levels of a tree of bins.

    Args:
        cells: the cells of each level, the finest first; each coarser one has `FANOUT` cells of the finer.
        deviations: of the noise of a cell, for each level.
        total: the deviation of a noisy total, 0 where it is known, None where there is none.
    """

    def __init__(self, cells: Sequence[int], deviations: Sequence[float], total: float | None) -> None:
        self.cells = (*cells,) if total is None else (*cells, 1)
        leaves = np.arange(cells[0])
        parents = [leaves // FANOUT**level for level in range(len(cells))]
        rows = [
            np.equal.outer(np.arange(count), parent) for count, parent in zip(cells, parents, strict=True)
        ]
        spread = [np.full(count, each) for count, each in zip(cells, deviations, strict=True)]
        if total is not None:
            rows.append(np.ones((1, cells[0]), dtype=bool))
            spread.append(np.array([total or _KNOWN * min(deviations)]))
        design = np.concatenate(rows).astype(np.float64)
        self._spread = np.concatenate(spread)
        weights = 1 / self._spread**2
        self.covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
        self._fit = self.covariance @ (design.T * weights)

    def leaves(self, counts: Sequence[Floats]) -> Floats:
        """Return the fitted count of each finest bin, from noisy counts of all levels and the total."""
        return np.asarray(self._fit @ np.concatenate(counts))

    def rank_deviations(self, level: float) -> Floats:
        """Return the noise deviation of (count below edge) - level * (total), for each inner edge."""
        below = self._below(level)
        return np.asarray(np.sqrt(np.maximum(((below @ self.covariance) * below).sum(axis=1), 0.0)))

    def rank_noises(self, level: float) -> Floats:
        """Return the deviation that each noisy count brings to each inner edge's rank, (edges, counts)."""
        return np.asarray((self._below(level) @ self._fit) * self._spread)

    def _below(self, level: float) -> Floats:
        """Return the matrix from bin counts to (count below edge) - level * (total) for each inner edge."""
        size = len(self.covariance)
        return np.tri(size - 1, size) - level


@functools.lru_cache(maxsize=64)
def tree_of(cells: tuple[int, ...], deviations: tuple[float, ...], total: float | None) -> CountTree:
    """Return, cached, the least-squares estimator for a tree with these cells and noise deviations."""
    return CountTree(cells, deviations, total)
