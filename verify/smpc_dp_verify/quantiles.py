"""Quantiles from noisy counts of a tree of bins [docs/proofs/records.md, "Intervals"]."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Sequence

from smpc_dp_verify.answers import Sums, labels
from smpc_dp_verify.asked import CHILDREN, Asked, levels_of, selectors
from smpc_dp_verify.columns import Table
from smpc_dp_verify.distributions import NORMAL
from smpc_dp_verify.numbers import Estimate, bounded
from smpc_dp_verify.population import of_population


class Tree:
    """Precision of the counts of bins, given noisy counts of the cells of each level of a tree.

    The precision is a sum over all cells of 1/deviation^2 times the square of the sum of bins in the cell.
    `cells`: of each level, the finest first; `precisions`: of a cell, with `total` last if it is not None.
    """

    def __init__(self, cells: Sequence[int], deviations: Sequence[float], total: float | None) -> None:
        self.cells = [*cells, 1]
        self.precisions = [1 / one**2 for one in deviations] + [0.0 if total is None else 1 / total**2]
        # of each cell of each level the variance of the sum of its bins, given the counts within it
        self._variances = [[1 / self.precisions[0]] * cells[0]]
        for level in range(1, len(self.cells)):
            parts = self._grouped(level, self._variances[-1])
            weight = self.precisions[level]
            self._variances.append([one / (1 + weight * one) for one in parts])

    def _grouped(self, level: int, values: Sequence[float]) -> list[float]:
        """Return sums over the children of each cell of a level."""
        if level == len(self.cells) - 1:
            return [math.fsum(values)]
        return [math.fsum(values[at * CHILDREN : (at + 1) * CHILDREN]) for at in range(self.cells[level])]

    def solved(self, right: Sequence[float]) -> list[float]:
        """Return the inverse of the precision times a vector, one number for each bin."""
        sums = [[one / self.precisions[0] for one in right]]
        for level in range(1, len(self.cells)):
            parts, before = self._grouped(level, sums[-1]), self._grouped(level, self._variances[level - 1])
            weight = self.precisions[level]
            sums.append([one / (1 + weight * spread) for one, spread in zip(parts, before, strict=True)])
        pulls = [0.0]
        for level in range(len(self.cells) - 1, 0, -1):
            weight, made = self.precisions[level], []
            for at in range(self.cells[level - 1]):
                parent = 0 if level == len(self.cells) - 1 else at // CHILDREN
                own = sums[level][parent] - pulls[parent] * self._variances[level][parent]
                made.append(pulls[parent] + weight * own)
            pulls = made
        return [(one - pull) / self.precisions[0] for one, pull in zip(right, pulls, strict=True)]

    def fitted(self, counts: Sequence[Sequence[float]]) -> list[float]:
        """Return the counts of bins that fit the noisy counts of all levels best, the total last."""
        right = [self.precisions[0] * one for one in counts[0]]
        for level in range(1, len(counts)):
            size = self.cells[0] if level == len(self.cells) - 1 else CHILDREN**level
            for at, one in enumerate(right):
                right[at] = one + self.precisions[level] * counts[level][at // size]
        return self.solved(right)

    @property
    def spread(self) -> float:
        """The deviation of the noise in the fitted total."""
        return math.sqrt(self._variances[-1][0])

    def rank_deviations(self, level: float) -> list[float]:
        """Return the deviation, at each inner edge, of the count below it less this part of the total."""
        size, result = self.cells[0], []
        for edge in range(1, size):
            right = [1 - level] * edge + [-level] * (size - edge)
            parts = map(operator.mul, right, self.solved(right))
            result.append(math.sqrt(max(math.fsum(parts), 0.0)))
        return result


def is_known(one: Asked, table: Table) -> bool:
    """Tell whether a quantile's total is a public number, with which a fit has few digits."""
    root = table.block(over=one.columns, by=selectors(one, table))
    return table.is_public(root) and not one.where and not table.of_persons


def quantiles(sums: Sums, one: Asked, outside: float) -> tuple[list[Estimate], float]:
    """Return the estimates of a column's quantiles in each group."""
    (name,), table, by = one.columns, sums.table, selectors(one, sums.table)
    column, levels, root = table.columns[name], levels_of(one, table), table.block(over=(name,), by=by)
    blocks = [table.block(by=(*by, level)) for level in levels]
    has_total = not table.is_public(root._replace(where=one.where)) and sums.has(root, one)
    counts = [sums.of(block, one) for block in (*blocks, *([root] if has_total else []))]
    deviations = [deviation for _, deviation in counts]
    tree = Tree(
        [each.cells for each in levels], deviations[: len(levels)], deviations[-1] if has_total else None
    )
    edges = [*map(column.value, levels[0].thresholds), column.high]
    # of all inner edges at once, and of one
    is_normal = all(sums.distribution(block, one).is_normal for block in blocks)
    z, z_alone = (
        NORMAL.quantile(part) if is_normal else math.nan
        for part in (outside / max(1, len(edges) - 2), outside)
    )
    by_level = {level: tree.rank_deviations(level) if is_normal else [] for level in one.levels}
    made: list[Estimate] = []
    for at, cell in enumerate(labels(one, table)):
        sizes = (len(values) // math.prod(each.cells for each in by) for values, _ in counts)
        own = [values[at * size : (at + 1) * size] for (values, _), size in zip(counts, sizes, strict=True)]
        leaves = tree.fitted(own)
        ranks = [*itertools.accumulate(leaves)]
        total = math.fsum(leaves)
        for level in one.levels:
            errors = by_level[level]
            inner = [rank - level * total for rank in ranks[:-1]]
            is_shown = total > sums.hide * tree.spread
            numbers = {"over": total, "value": _interpolated(edges, ranks, level) if is_shown else None}
            if is_normal:
                reach = [z * error for error in errors]
                numbers |= bounded(_band(edges, inner, reach))
            else:
                numbers |= dict.fromkeys(("low", "high"), math.nan)
            if is_shown and is_normal:
                normal = NORMAL.quantile(outside) * math.sqrt(max(level * (1 - level) * total, 0.0))
                alone = [math.hypot(z_alone * error, normal) for error in errors]
                numbers |= of_population(None, _alone(edges, inner, alone))
            elif is_shown:
                numbers |= dict.fromkeys(("population_low", "population_high"), math.nan)
            # a value is as exact as its place in a bin
            scales = (("value", edges[1] - edges[0]),)
            made.append(Estimate(f"quantile({name}, {level:g})", name, cell, numbers, scales))
    return made, tree.spread


def _band(edges: Sequence[float], ranks: Sequence[float], reach: Sequence[float]) -> tuple[float, float]:
    """Return the last edge that is surely not above the quantile, and the first that surely is."""
    below = [at for at, (rank, one) in enumerate(zip(ranks, reach, strict=True)) if rank + one < 0]
    above = [at for at, (rank, one) in enumerate(zip(ranks, reach, strict=True)) if rank - one > 0]
    low = edges[below[-1] + 1] if below else edges[0]
    return low, max(low, edges[above[0] + 1] if above else edges[-1])


def _alone(edges: Sequence[float], ranks: Sequence[float], reach: Sequence[float]) -> tuple[float, float]:
    """Return the edges next to those from which on not all are surely below, and up to which surely above."""
    pairs = [*zip(ranks, reach, strict=True)]
    first = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] + pair[1] < 0, pairs))
    last = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] - pair[1] > 0, reversed(pairs)))
    return edges[first], edges[len(edges) - 1 - last]


def _interpolated(edges: Sequence[float], ranks: Sequence[float], level: float) -> float:
    """Return the quantile, linear within its bin, of ranks that are made to rise."""
    every = [0.0, *ranks]
    highest = [*itertools.accumulate(every, max)]
    lowest = [*itertools.accumulate(reversed(every), min)][::-1]
    rising = [(a + b) / 2 for a, b in zip(highest, lowest, strict=True)]
    wanted = level * every[-1]
    at = min(max(bisect.bisect_left(rising, wanted), 1), len(rising) - 1)
    low, high = rising[at - 1], rising[at]
    part = 0.5 if high <= low else min(max((wanted - low) / (high - low), 0.0), 1.0)
    return edges[at - 1] + part * (edges[at] - edges[at - 1])
