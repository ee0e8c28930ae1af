"""The noisy sums of one request, by block, with their standard deviations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.records.asked import Condition
from smpc_dp.records.features import Block, Selector, product
from smpc_dp.records.intervals import NORMAL, ErrorDistribution
from smpc_dp.records.schema import Number, Schema, bin_labels

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Display:
    """Settings of how answers are shown: interval error probability, and threshold for small counts."""

    outside: float
    hide: float

    def least(self, deviation: float) -> float:
        """Return the threshold that a count with this noise deviation must exceed to be shown."""
        return self.hide * deviation

    def part(self, parts: int) -> Display:
        """Return settings whose error probability is divided by `parts`, for intervals that hold at once."""
        return Display(self.outside / parts, self.hide)


@dataclass(frozen=True)
class NoisySums:
    """Decoded noisy sums of one request, by block, with their noise deviations and distributions.

    Attributes:
        blocks: for each block of the request, and the number of rows where it is public, the sum of each
            cell in the block's own steps, and the standard deviation of the noise in each, with the rounding
            of the parties' sums.
        laplace: the blocks with Laplace noise, and its law; all others have a normal one.
        holders: the number of parties that have rows, as far as is public.
        lost: of a column of parties those that are not in the sum.
        absent: the number of the session's parties that are not in the sum.
    """

    schema: Schema
    blocks: Mapping[Block, tuple[Floats, float]]
    laplace: Mapping[Block, ErrorDistribution]
    holders: int
    lost: frozenset[str] = frozenset()
    absent: int = 0

    @functools.cached_property
    def by_condition(self) -> dict[tuple[Condition, ...], NoisySums]:
        """The noisy sums grouped by the row condition that they were restricted to."""
        result: dict[tuple[Condition, ...], NoisySums] = {}
        for where in {block.where: None for block in self.blocks}:
            own = {block: replace(block, where=()) for block in self.blocks if block.where == where}
            blocks = {plain: self.blocks[block] for block, plain in own.items()}
            laplace = {plain: self.laplace[block] for block, plain in own.items() if block in self.laplace}
            # how many rows satisfy a condition is never public
            schema = replace(self.schema, rows="private") if where else self.schema
            result[where] = NoisySums(schema, blocks, laplace, self.holders, self.lost, self.absent)
        return result

    def sums(self, block: Block) -> Floats:
        """Return a block's noisy sums, one for each cell, in units of its integer codes."""
        return self.blocks[block][0]

    def deviation(self, block: Block) -> float:
        """Return the noise's standard deviation in each cell of a block, with the parties' rounding."""
        return self.blocks[block][1]

    @property
    def public_rows(self) -> float | None:
        """The number of rows of all parties together, None where it is private."""
        if self.schema.rows == "private":
            return None
        return float(self.sums(product(self.schema))[0])

    def distribution(self, block: Block) -> ErrorDistribution:
        """Return the distribution of the noise in a block's cells, over its standard deviation."""
        return self.laplace.get(block, NORMAL)


@functools.lru_cache(maxsize=64)
def laplace_distribution(shape: float, parts: tuple[float, ...] = (1.0,)) -> ErrorDistribution:
    """Return, cached, the distribution of a sum of discrete Laplace noise shares over its deviation."""
    return ErrorDistribution(shape, parts)


def cell_labels(selectors: tuple[Selector, ...], schema: Schema) -> list[dict[str, str]]:
    """Return for each cell of a cross table its category or bin label by column, in the cells' order."""
    cells: list[dict[str, str]] = [{}]
    for selector in selectors:
        labels = _labels(selector, schema)
        cells = [{**cell, selector.column: label} for cell in cells for label in labels]
    return cells


def _labels(selector: Selector, schema: Schema) -> list[str]:
    """Return the labels of one column's cells: its categories, or the texts of its bins."""
    column = schema.columns[selector.column]
    if not isinstance(column, Number):
        return list(column.values)
    return [*bin_labels(selector.edges, column.upper)]
