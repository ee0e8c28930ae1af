"""The noisy sums of one request, by block, with their standard deviations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.features import Block, Selector
from smpc_dp.records.intervals import ErrorDistribution
from smpc_dp.records.schema import Number, Schema

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Display:
    """The probability outside each interval, and the noise deviations below which counts are hidden."""

    outside: float
    hide: float

    def least(self, deviation: float) -> float:
        """Return what a count with this deviation must be above to be shown, or what is computed over it."""
        return self.hide * deviation

    def part(self, parts: int) -> Display:
        """Return the display with a part of the probability, so that so many intervals hold at once."""
        return Display(self.outside / parts, self.hide)


@dataclass(frozen=True)
class NoisySums:
    """The noisy sums of one request.

    Attributes:
        blocks: for each block of the request, and the number of rows where it is public, the sum of each
            cell in the block's own steps, and the standard deviation of the noise in each, with the rounding
            of the parties' sums.
        distribution: the law of the noise in each coordinate.
        holders: the number of parties that have rows, as far as is public.
    """

    schema: Schema
    blocks: Mapping[Block, tuple[Floats, float]]
    distribution: ErrorDistribution
    holders: int

    def sums(self, block: Block) -> Floats:
        """Return the noisy sum of each cell, in the block's own steps."""
        return self.blocks[block][0]

    def deviation(self, block: Block) -> float:
        """Return the standard deviation of the noise in each cell, with the rounding of the parties' sums."""
        return self.blocks[block][1]


@functools.lru_cache(maxsize=64)
def laplace_distribution(shape: float) -> ErrorDistribution:
    """Return the law of so many Laplace noises; the same request has many sums in a simulation."""
    return ErrorDistribution(shape)


def cell_labels(selectors: tuple[Selector, ...], schema: Schema) -> list[dict[str, str]]:
    """Return the cell of each coordinate of a block, by column, in order."""
    cells: list[dict[str, str]] = [{}]
    for selector in selectors:
        labels = _labels(selector, schema)
        cells = [{**cell, selector.column: label} for cell in cells for label in labels]
    return cells


def _labels(selector: Selector, schema: Schema) -> list[str]:
    column = schema.columns[selector.column]
    if not isinstance(column, Number):
        return list(column.values)
    pairs = zip(selector.edges, [*selector.edges[1:], column.upper], strict=True)
    labels = [f"[{low:.12g}, {high:.12g})" for low, high in pairs]
    return [*labels[:-1], labels[-1][:-1] + "]"]
