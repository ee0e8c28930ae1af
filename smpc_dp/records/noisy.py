"""The noisy sums of one request, by block, with their standard deviations."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.features import Block, Selector
from smpc_dp.records.intervals import NORMAL, ErrorDistribution
from smpc_dp.records.plan import Plan, noisy_values
from smpc_dp.records.schema import Number, Schema
from smpc_dp.records.terms import is_public

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
    """A noisy total in ring steps over `present` parties.

    `rows` is their public number of rows, or None; `holders`: parties that have rows, as far as is public.
    """

    plan: Plan
    total: NDArray[np.int64]
    present: int
    rows: int | None
    holders: int

    @classmethod
    def of(
        cls, plan: Plan, total: NDArray[np.int64], present: int, rows: int | None, holders: int | None
    ) -> NoisySums:
        """Return the sums; raise ConfigError for a shape or a number of rows that is none."""
        if total.shape != (plan.length,):
            raise ConfigError.at(
                "total", f"shape must be ({plan.length},), is {total.shape}", ConfigCheck.SHAPE
            )
        if (rows is None) != (plan.schema.rows == "private"):
            raise ConfigError.at("rows", f"rows are {plan.schema.rows}", ConfigCheck.CONFLICT)
        return cls(plan, total, present, rows, present if holders is None else holders)

    def has(self, block: Block) -> bool:
        """Return whether the request has a block, or it is the public number of rows."""
        return block in self.plan.offsets or is_public(block, self.plan.schema)

    @property
    def distribution(self) -> ErrorDistribution:
        """The law of the noise in each coordinate."""
        if self.plan.laplace is None:
            return NORMAL
        return _distribution_of(self.present / self.plan.laplace.parts)

    def sums(self, block: Block) -> Floats:
        """Return the noisy sum of each cell, in the block's own steps."""
        if is_public(block, self.plan.schema):
            return np.array([float(self.rows or 0)])
        offset, scale = self.plan.offsets[block]
        return noisy_values(self.total[offset : offset + block.cells], scale)

    def deviation(self, block: Block) -> float:
        """Return the standard deviation of the noise in each cell, with the rounding of the parties' sums."""
        return 0.0 if is_public(block, self.plan.schema) else self.plan.deviation_of(block, self.present)


@functools.lru_cache(maxsize=64)
def _distribution_of(shape: float) -> ErrorDistribution:
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
