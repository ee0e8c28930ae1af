"""Quantiles from noisy counts of bins: intervals are edges of bins, from a band on all ranks at once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Selector, product, selector
from smpc_dp.records.intervals import ErrorDistribution, Interval, normal_quantile, sum_quantile
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.population import Sampling
from smpc_dp.records.result import Estimate
from smpc_dp.records.terms import is_public, levels_of
from smpc_dp.records.tree import CountTree, tree_of

Floats = NDArray[np.float64]
NO_RANKS = "no quantile: the count is within the noise"


def quantiles(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield a column's quantiles in each group, with intervals from noisy counts of a tree of bins.

    The band holds for the ranks of all edges at once, each outside it with its part of the probability. So an
    interval is wrong only if the band is: it reaches from the last edge that is surely not above the quantile
    to the first one that surely is. There is no standard error: where values are tied, or none lie around the
    quantile, the estimate jumps.
    """
    schema, (name,) = noisy.schema, one.columns
    column = schema.number(name, one.text)
    by = tuple(selector(schema, each) for each in one.by)
    tree, counts, distributions = fitted(name, noisy, one.bins or 1, by)
    thresholds = levels_of(name, schema, one.bins or 1)[0].thresholds
    edges = np.array([*(column.edge(threshold) for threshold in thresholds), column.upper])
    outside = display.outside / max(1, len(thresholds) - 1)
    spread = float(np.sqrt(tree.covariance.sum()))
    groups = zip(cell_labels(by, schema), counts, strict=True)
    for (cell, own), level in itertools.product(groups, one.levels):
        leaves = tree.leaves(own)
        inner, total = np.cumsum(leaves)[:-1], float(leaves.sum())
        deviations = _rank_deviations(tree, level)
        reach = deviations * _rank_quantiles(tree, level, distributions, outside)
        rank = inner - level * total
        above = np.flatnonzero(rank - reach > 0)
        below = np.flatnonzero(rank + reach < 0)
        low = float(edges[below[-1] + 1]) if len(below) else column.lower
        high = float(edges[above[0] + 1]) if len(above) else column.upper
        hidden = total <= display.least(spread)
        alone = deviations * _rank_quantiles(tree, level, distributions, display.outside)
        sampled = normal_quantile(display.outside) * math.sqrt(max(level * (1 - level) * total, 0.0))
        both = _by_itself(edges, rank, np.hypot(alone, sampled))
        yield Estimate.of(
            one,
            f"quantile({name}, {level:g})",
            name,
            (low, max(low, high)),
            cell=cell,
            value=None if hidden else _interpolated(edges, leaves, level),
            sampled=None if hidden else Sampling(ends=both),
            over=total,
            note=NO_RANKS if hidden else "",
        )


def _by_itself(edges: Floats, rank: Floats, reach: Floats) -> Interval:
    """Return one quantile's interval: edges whose noisy rank is surely below, and surely above.

    Wrong only if the edge next to the quantile is: the band need not hold for all edges at once. `edges`: of
    all bins; `rank`, `reach`: of the inner ones.
    """
    below, above = rank + reach < 0, rank - reach > 0
    first = len(rank) if below.all() else int(np.argmin(below))
    last = len(rank) if above.all() else int(np.argmin(above[::-1]))
    return float(edges[first]), float(edges[len(edges) - 1 - last])


def fitted(
    name: str, noisy: NoisySums, bins: int, by: tuple[Selector, ...]
) -> tuple[CountTree, list[list[Floats]], tuple[ErrorDistribution, ...]]:
    """Return a column's estimator from a tree of bins, each group's noisy counts, and noise distributions.

    The total is used where the request has it.
    """
    schema = noisy.schema
    levels = levels_of(name, schema, bins)
    blocks = [product(schema, by=[*by, level]) for level in levels]
    deviations = tuple(noisy.deviation(block) for block in blocks)
    root, total = product(schema, over=(name,), by=by), None
    # a public number of rows has those beyond a person's too, which are in no cell
    if root in noisy.blocks and not (is_public(root, schema) and schema.unit == "person"):
        total = noisy.deviation(root)
        blocks.append(root)
    groups = math.prod(each.cells for each in by)
    counts = zip(*(noisy.sums(block).reshape(groups, -1) for block in blocks), strict=True)
    distributions = tuple(noisy.distribution(block) for block in blocks)
    return (
        tree_of(tuple(level.cells for level in levels), deviations, total),
        [*map(list, counts)],
        distributions,
    )


@functools.lru_cache(maxsize=64)
def _rank_deviations(tree: CountTree, level: float) -> Floats:
    """Return, cached, the deviation of each bin edge's noisy rank against the quantile's level."""
    return tree.rank_deviations(level)


@functools.lru_cache(maxsize=64)
def _rank_quantiles(
    tree: CountTree, level: float, distributions: tuple[ErrorDistribution, ...], outside: float
) -> Floats:
    """Return, for each inner edge, z that its rank's noise exceeds either way with probability `outside`."""
    edges = len(tree.covariance) - 1
    if all(one.shape is None for one in distributions):
        return np.full(edges, normal_quantile(outside))
    spread = [one for one, cells in zip(distributions, tree.cells, strict=True) for _ in range(cells)]
    return np.array(
        [
            sum_quantile([*zip(noises.tolist(), spread, strict=True)], outside)
            for noises in tree.rank_noises(level)
        ]
    )


def _interpolated(edges: Floats, leaves: Floats, level: float) -> float:
    """Return the quantile at a level, linearly interpolated within its bin of counts."""
    ranks = np.concatenate(([0.0], np.cumsum(leaves)))
    rising = (np.maximum.accumulate(ranks) + np.minimum.accumulate(ranks[::-1])[::-1]) / 2
    wanted = level * ranks[-1]
    index = int(np.clip(np.searchsorted(rising, wanted, side="left"), 1, len(rising) - 1))
    low, high = rising[index - 1], rising[index]
    part = 0.5 if high <= low else min(max((wanted - low) / (high - low), 0.0), 1.0)
    return float(edges[index - 1] + part * (edges[index] - edges[index - 1]))
