"""Quantiles from noisy counts of bins: intervals are edges of bins, from a band on all ranks at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import product
from smpc_dp.records.intervals import normal_quantile
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.result import Estimate
from smpc_dp.records.terms import is_public, levels_of
from smpc_dp.records.tree import CountTree, tree_of

Floats = NDArray[np.float64]
NO_RANKS = "no quantile: the count is within the noise"


def quantiles(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield quantiles: the least value with at least a share `level` of all at or below it.

    The band holds for the ranks of all edges at once, each outside it with its part of the probability. So an
    interval is wrong only if the band is: it reaches from the last edge that is surely not above the quantile
    to the first one that surely is. There is no standard error: where values are tied, or none lie around the
    quantile, the estimate jumps.
    """
    schema, (name,) = noisy.schema, one.columns
    column = schema.number(name, one.text)
    tree, counts = fitted(name, noisy, one.bins or 1)
    leaves = tree.leaves(counts)
    inner = np.cumsum(leaves)[:-1]
    total = float(leaves.sum())
    thresholds = levels_of(name, schema, one.bins or 1)[0].thresholds
    edges = np.array([*(column.edge(threshold) for threshold in thresholds), column.upper])
    z = normal_quantile(display.outside / max(1, len(inner)))
    spread = float(np.sqrt(tree.covariance.sum()))
    for level in one.levels:
        deviation = tree.rank_deviations(level)
        rank = inner - level * total
        above = np.flatnonzero(rank - z * deviation > 0)
        below = np.flatnonzero(rank + z * deviation < 0)
        low = float(edges[below[-1] + 1]) if len(below) else column.lower
        high = float(edges[above[0] + 1]) if len(above) else column.upper
        hidden = total <= display.least(spread)
        yield Estimate.of(
            one,
            f"quantile({name}, {level:g})",
            name,
            (low, max(low, high)),
            value=None if hidden else _interpolated(edges, leaves, level),
            over=total,
            note=NO_RANKS if hidden else "",
        )


def fitted(name: str, noisy: NoisySums, bins: int) -> tuple[CountTree, list[Floats]]:
    """Return the tree of a column with its noisy counts; the total is used where the request has it."""
    schema = noisy.schema
    levels = levels_of(name, schema, bins)
    blocks = [product(schema, by=[level]) for level in levels]
    counts = [noisy.sums(block) for block in blocks]
    deviations = tuple(noisy.deviation(block) for block in blocks)
    root, total = product(schema, over=(name,)), None
    # a public number of rows has those beyond a person's too, which are in no cell
    if root in noisy.blocks and not (is_public(root, schema) and schema.unit == "person"):
        total = noisy.deviation(root)
        counts.append(noisy.sums(root))
    return tree_of(tuple(level.cells for level in levels), deviations, total), counts


def _interpolated(edges: Floats, leaves: Floats, level: float) -> float:
    """Return the quantile, linear within its bin."""
    ranks = np.concatenate(([0.0], np.cumsum(leaves)))
    rising = (np.maximum.accumulate(ranks) + np.minimum.accumulate(ranks[::-1])[::-1]) / 2
    wanted = level * ranks[-1]
    index = int(np.clip(np.searchsorted(rising, wanted, side="left"), 1, len(rising) - 1))
    low, high = rising[index - 1], rising[index]
    part = 0.5 if high <= low else min(max((wanted - low) / (high - low), 0.0), 1.0)
    return float(edges[index - 1] + part * (edges[index] - edges[index - 1]))
