"""Counts that fit all noisy counts of the same rows best [protocols/records/README.md]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from smpc_dp_verify.columns import Block, Selector, Table
from smpc_dp_verify.distributions import NORMAL, Distribution, distribution_of

# Columns of a table that is reconciled.
MOST_COLUMNS = 8


class Noisy(NamedTuple):
    """Noisy counts of the cells of some columns, in order, with the noise's standard deviation and law."""

    selectors: tuple[Selector, ...]
    counts: list[float]
    deviation: float
    distribution: Distribution = NORMAL


def is_count(block: Block) -> bool:
    """Tell whether a block counts rows by cell, and is not one of a survival statistic."""
    return not (block.powers or block.of_party or block.lacking or is_survival(block))


def is_survival(block: Block) -> bool:
    """Tell whether the last cells of a block are those of the time and the event that it needs."""
    last = sorted(one.column for one in block.selectors[-2:])
    return len(last) == 2 and tuple(last) == block.present


def needed(block: Block, table: Table) -> frozenset[str]:
    """Return the columns whose value a row may lack, but must have to be counted in the block."""
    return frozenset(name for name in block.columns if table.columns[name].lacks)


def reconciled(
    axes: tuple[Selector, ...], noisy: Sequence[Noisy], rows: float | None
) -> tuple[list[float], float]:
    """Return the best counts of these cells from all noisy counts, and their deviation; `rows`: total."""
    sizes = {one: one.cells for one in axes}
    values, variance = [0.0] * math.prod(sizes.values()), 0.0
    for chosen in _subsets(axes):
        parts = [
            (_component(each, chosen), _precision(each, chosen))
            for each in noisy
            if {*chosen} <= {*each.selectors}
        ]
        precision = sum(weight for _, weight in parts)
        mean = {cell: sum(weight * part[cell] for part, weight in parts) / precision for cell in parts[0][0]}
        square = 1 / precision
        if not chosen and rows is not None:
            mean, square = {(): rows}, 0.0
        spread = math.prod(size for one, size in sizes.items() if one not in chosen)
        positions = [axes.index(one) for one in chosen]
        for index, cell in enumerate(itertools.product(*map(range, sizes.values()))):
            values[index] += mean[tuple(cell[position] for position in positions)] / spread
        variance += square / spread**2 * math.prod(1 - 1 / one.cells for one in chosen)
    return values, math.sqrt(variance)


def distribution_in_cell(
    axes: tuple[Selector, ...], noisy: Sequence[Noisy], *, is_known: bool
) -> Distribution:
    """Return the law of the error of one of the best counts; `is_known`: whether the total is.

    It is that of a sum of the noises in all cells of all noisy counts, which enter alike where the same of
    the columns have the same cell.
    """
    if all(each.distribution.is_normal for each in noisy):
        return NORMAL
    parts = []
    for each in noisy:
        shared, weights = [one for one in axes if one in each.selectors], {}
        for chosen in _subsets(shared):
            whole = sum(_precision(other, chosen) for other in noisy if {*chosen} <= {*other.selectors})
            weight = _precision(each, chosen) / whole
            spread = math.prod(one.cells for one in axes if one not in chosen)
            weights[chosen] = 0.0 if is_known and not chosen else weight / spread
        rest = math.prod(one.cells for one in each.selectors if one not in shared)
        for equal in _subsets(shared):
            factor = sum(
                weight * math.prod((one in equal) - 1 / one.cells for one in chosen)
                for chosen, weight in weights.items()
            )
            count = rest * math.prod(one.cells - 1 for one in shared if one not in equal)
            if factor and count:
                # noises that enter alike are together one of as many times the shares
                laplace = tuple((weight, shape * count) for weight, shape in each.distribution.laplace)
                distribution = Distribution(each.distribution.normal, laplace)
                parts.append((factor * each.deviation * math.sqrt(count), distribution))
    return distribution_of(parts, is_sum=True)


def _subsets(axes: Sequence[Selector]) -> Iterator[tuple[Selector, ...]]:
    return (chosen for size in range(len(axes) + 1) for chosen in itertools.combinations(axes, size))


def _precision(noisy: Noisy, chosen: tuple[Selector, ...]) -> float:
    """Return the inverse variance of noisy counts that are summed over all but the chosen columns."""
    return 1 / (noisy.deviation**2 * math.prod(one.cells for one in noisy.selectors if one not in chosen))


def _component(noisy: Noisy, chosen: tuple[Selector, ...]) -> dict[tuple[int, ...], float]:
    """Return the sums in the chosen columns' cells, less the mean along each chosen column in turn."""
    sums = dict.fromkeys(itertools.product(*(range(one.cells) for one in chosen)), 0.0)
    positions = [noisy.selectors.index(one) for one in chosen]
    cells = itertools.product(*(range(one.cells) for one in noisy.selectors))
    for cell, count in zip(cells, noisy.counts, strict=True):
        sums[tuple(cell[position] for position in positions)] += count
    for at, one in enumerate(chosen):
        lines: dict[tuple[int, ...], float] = {}
        for cell, value in sums.items():
            line = cell[:at] + cell[at + 1 :]
            lines[line] = lines.get(line, 0.0) + value / one.cells
        sums = {cell: value - lines[cell[:at] + cell[at + 1 :]] for cell, value in sums.items()}
    return sums
