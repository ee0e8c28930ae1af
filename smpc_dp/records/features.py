"""Maps rows to integers: each block of the vector is a product of numbers, counted in cells.

A row changes at most one coordinate of a block. docs/proofs/records.md has the definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.schema import Category, Number, Schema
from smpc_dp.records.table import Integers, Table

# Sums of a chunk of rows stay below this in absolute value.
MAX_PARTIAL = 1 << 62


class Selector(msgspec.Struct, frozen=True):
    """The cells of one column: its categories, or the bins that begin at these grid points.

    `edges` are the values that bins are said to begin at; none for the bins of a tree.
    """

    column: str
    cells: int
    thresholds: tuple[int, ...] = ()
    edges: tuple[float, ...] = ()

    def index(self, table: Table) -> Integers:
        """Return the cell of each row, -1 for none."""
        if not self.thresholds:
            return table.codes[self.column]
        cell = np.searchsorted(np.array(self.thresholds), table.grid(self.column), side="right") - 1
        return np.where(_there(table, self.column), cell, -1).astype(np.int64)


def _there(table: Table, name: str) -> NDArray[np.bool_]:
    """Return the rows that have a cell of a number's bins: rows that count, with a value or its middle."""
    return table.present[name] & table.counted


class Block(msgspec.Struct, frozen=True):
    """The sum over rows of a product of numbers, in each cell of the selectors' product.

    Attributes:
        powers: the columns of the product, each as often as its power; at most two.
        present: columns without a missing value in the rows that count. A column with `missing = false` is
            one in counts of survival alone: their time and event.
        selectors: columns whose cells are kept apart.
        of_party: whether it is, of the square of one column, no sum over rows, but each party's squared sum
            of the column over its number of rows.
    """

    powers: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()
    of_party: bool = False

    @property
    def cells(self) -> int:
        """The number of coordinates."""
        return math.prod(selector.cells for selector in self.selectors)

    @property
    def columns(self) -> frozenset[str]:
        """All columns that it depends on."""
        return frozenset((*self.powers, *self.present, *(selector.column for selector in self.selectors)))

    @property
    def is_survival(self) -> bool:
        """Whether it counts rows by time, the last cell for those that stay at its upper bound, and event."""
        last = [selector.column for selector in self.selectors[-2:]]
        return not self.powers and len(last) == 2 and tuple(sorted(last)) == self.present

    def greatest(self, schema: Schema) -> int:
        """Return the greatest absolute value of one row."""
        return math.prod(_number(schema, name).steps for name in self.powers)

    def least(self, schema: Schema) -> int:
        """Return the least value of one row."""
        positive = all(self.powers.count(name) == 2 for name in self.powers)
        return 0 if positive else -self.greatest(schema)

    def sums(self, table: Table) -> list[int] | list[Fraction]:
        """Return the exact sum over the rows, for each cell."""
        if self.of_party:
            (total,) = Block(self.powers[:1], self.present).sums(table)
            # a public number of rows has those that do not count, too: as values in the middle
            is_public = table.schema.rows == "public" and not self.present
            count = table.rows if is_public else Block((), self.present).sums(table)[0]
            return [Fraction(total) ** 2 / count if count else Fraction(0)]
        rows = table.counted.copy()
        for name in self.present:
            rows &= table.given[name]
        cell = np.zeros(table.rows, dtype=np.int64)
        indices = [selector.index(table) for selector in self.selectors]
        if self.is_survival:
            _censor(indices, self.selectors[-2], table)
        for selector, index in zip(self.selectors, indices, strict=True):
            rows &= index >= 0
            cell = cell * selector.cells + index
        where = np.flatnonzero(rows)
        cell = cell[where]
        if not self.powers:
            return [int(count) for count in np.bincount(cell, minlength=self.cells)]
        values = table.codes[self.powers[0]][where]
        for name in self.powers[1:]:
            values = values * table.codes[name][where]
        return _added(values, cell, self.cells, max(1, MAX_PARTIAL // self.greatest(table.schema)))


def _censor(indices: list[Integers], time: Selector, table: Table) -> None:
    """Move rows that stay at the upper bound of time, and later ones, to its last cell."""
    at_end = table.grid(time.column) == _number(table.schema, time.column).steps
    stays = table.above[time.column] | (at_end & (indices[-1] == 0))
    indices[-2] = np.where(stays, time.cells - 1, indices[-2])
    indices[-1] = np.where(stays, 0, indices[-1])


def _number(schema: Schema, name: str) -> Number:
    return schema.number(name, name)


def _added(values: Integers, cell: Integers, cells: int, chunk: int) -> list[int]:
    """Return exact sums by cell, in chunks of rows whose sums fit into int64."""
    totals = [0] * cells
    for start in range(0, len(values), chunk):
        piece = np.zeros(cells, dtype=np.int64)
        if cells == 1:
            piece[0] = values[start : start + chunk].sum()
        else:
            np.add.at(piece, cell[start : start + chunk], values[start : start + chunk])
        totals = [total + int(part) for total, part in zip(totals, piece, strict=True)]
    return totals


def presence(schema: Schema, *columns: str) -> tuple[str, ...]:
    """Return which of these columns may have missing values, sorted."""
    numbers = (name for name in set(columns) if isinstance(schema.columns[name], Number))
    return tuple(sorted(name for name in numbers if _number(schema, name).missing))


def product(schema: Schema, *powers: str, over: Sequence[str] = (), by: Sequence[Selector] = ()) -> Block:
    """Return the block of a product, over the rows in which its columns and those of `over` are present."""
    return Block(tuple(sorted(powers)), presence(schema, *powers, *over), tuple(by))


def party_squares(schema: Schema, name: str) -> Block:
    """Return the block of the sum over parties of (sum of a column)^2 / (number of its values)."""
    return Block((name, name), presence(schema, name), of_party=True)


def selector(schema: Schema, name: str) -> Selector:
    """Return the declared cells of a column: its categories or its bins."""
    column = schema.columns[name]
    if isinstance(column, Category):
        return Selector(name, len(column.values))
    return edged(name, column, column.bins)


def edged(name: str, column: Number, edges: Sequence[float]) -> Selector:
    """Return the bins between inner edges."""
    return Selector(name, len(edges) + 1, column.thresholds(edges), (column.lower, *edges))


def equal_bins(name: str, column: Number, bins: int) -> Selector:
    """Return bins of equal width; with a declared step they begin at the grid points next to that."""
    if bins > column.steps:
        alone = equal_points(name, column, bins)
        return msgspec.structs.replace(alone, edges=tuple(map(column.edge, alone.thresholds)))
    edges = [column.lower + index * column.width / bins for index in range(1, bins)]
    if column.step is not None:
        edges = [column.edge(point) for point in column.thresholds(edges)[1:]]
    return edged(name, column, edges)


def equal_points(name: str, column: Number, bins: int) -> Selector:
    """Return bins that have as many grid points each, to within one."""
    bins = min(bins, column.steps + 1)
    thresholds = tuple(-(-index * (column.steps + 1) // bins) for index in range(bins))
    return Selector(name, bins, thresholds)


def coarser(fine: Selector, fanout: int) -> Selector:
    """Return the selector whose cells are so many cells of another one each."""
    return Selector(fine.column, -(-fine.cells // fanout), fine.thresholds[::fanout])
