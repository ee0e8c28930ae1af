"""Maps rows to integers: each block of the vector is a product of numbers, counted in cells.

A row changes at most one coordinate of a block. docs/proofs/records.md has the definition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Condition
from smpc_dp.records.schema import Category, Number, Schema
from smpc_dp.records.table import Integers, Table

# Sums of a chunk of rows stay below this in absolute value.
MAX_PARTIAL = 1 << 62
# Bits of the low part of a factor of a product that is too large for an int64.
_LOW = 24


class Selector(msgspec.Struct, frozen=True):
    """Partition of one column into cells: its categories, or bins of a number that begin at grid points.

    `edges` are the values that bins are said to begin at; none for the bins of a tree.
    """

    column: str
    cells: int
    thresholds: tuple[int, ...] = ()
    edges: tuple[float, ...] = ()

    def index(self, table: Table) -> Integers:
        """Return the index of the cell of the column in which each row is, -1 for rows without a value."""
        if not self.thresholds:
            return table.codes[self.column]
        cell = np.searchsorted(np.array(self.thresholds), table.grid(self.column), side="right") - 1
        return np.where(_there(table, self.column), cell, -1).astype(np.int64)


def _there(table: Table, name: str) -> NDArray[np.bool_]:
    """Return which rows are in some bin of a number column: rows that count, with a value or a stand-in."""
    return table.present[name] & table.counted


class Block(msgspec.Struct, frozen=True):
    """Description of sums over rows of a product of columns, one sum for each cell of a cross table.

    Attributes:
        powers: the columns of the product, each as often as its power.
        present: columns without a missing value in the rows that count. A column with `missing = false` is
            one in counts of survival alone: their time and event.
        selectors: columns whose cells are kept apart.
        of_party: whether it is, of the square of one column, no sum over rows, but each party's squared sum
            of the column over its number of rows.
        where: conditions that the rows which count satisfy.
    """

    powers: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()
    of_party: bool = False
    where: tuple[Condition, ...] = ()

    @property
    def cells(self) -> int:
        """The number of sums, one for each combination of the selectors' cells."""
        return math.prod(selector.cells for selector in self.selectors)

    @property
    def columns(self) -> frozenset[str]:
        """The names of all columns that are multiplied, grouped by, required or restricted."""
        cells = (selector.column for selector in self.selectors)
        return frozenset((*self.powers, *self.present, *cells, *(one.column for one in self.where)))

    @property
    def has_odd_power(self) -> bool:
        """Whether a column has an odd power in the product, so that a row may add a negative value."""
        return any(self.powers.count(name) % 2 for name in self.powers)

    @property
    def bounded_by(self) -> tuple[str, ...]:
        """The columns whose product bounds what a row adds, over the greatest value that it can add."""
        return self.powers

    @property
    def is_survival(self) -> bool:
        """Whether the block counts rows by time bin and event, with a last time cell for rows that stay."""
        last = [selector.column for selector in self.selectors[-2:]]
        return not self.powers and len(last) == 2 and tuple(sorted(last)) == self.present

    def greatest(self, schema: Schema) -> int:
        """Return the greatest absolute value that one row can add to a sum, in integer codes."""
        return math.prod(_number(schema, name).steps for name in self.powers)

    def least(self, schema: Schema) -> int:
        """Return the least value that one row can add to a sum, 0 or negative, in integer codes."""
        return -self.greatest(schema) if self.has_odd_power else 0

    def complete(self, table: Table) -> NDArray[np.bool_]:
        """Return a mask of the rows that count, have the values needed and satisfy the conditions."""
        rows = table.counted.copy()
        for name in self.present:
            rows &= table.given[name]
        for condition in self.where:
            rows &= _satisfying(condition, table)
        return rows

    def sums(self, table: Table) -> list[int] | list[Fraction]:
        """Return one party's exact sums over its rows, one for each cell, without noise."""
        if self.of_party:
            (total,) = Block(self.powers[:1], self.present).sums(table)
            # a public number of rows has those that do not count, too: as values in the middle
            is_public = table.schema.rows == "public" and not self.present
            count = table.rows if is_public else Block((), self.present).sums(table)[0]
            return [Fraction(total) ** 2 / count if count else Fraction(0)]
        rows = self.complete(table)
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
        greatest = self.greatest(table.schema)
        if greatest <= MAX_PARTIAL:
            values = _multiplied(self.powers, table, where)
            return _added(values, cell, self.cells, MAX_PARTIAL // greatest)
        first, second = (_multiplied(part, table, where) for part in (self.powers[:2], self.powers[2:]))
        return _added_in_parts(first, second, cell, self.cells)


class Lacking(Block, frozen=True, tag="lacking"):
    """Counts, by cell, of rows in which one at least of some columns has no value."""

    def sums(self, table: Table) -> list[int] | list[Fraction]:
        """Return one party's exact counts of rows with a missing value in each cell, without noise."""
        every, given = (map(int, block.sums(table)) for block in (self.all_rows, self.others))
        return list(map(int.__sub__, every, given))

    @property
    def all_rows(self) -> Block:
        """The counts in the same cells of all rows, whether a value is missing or not."""
        return Block((), (), self.selectors, where=self.where)

    @property
    def others(self) -> Block:
        """The counts in the same cells of complete rows, those in which no value is missing."""
        return Block((), self.present, self.selectors, where=self.where)


def _satisfying(condition: Condition, table: Table) -> NDArray[np.bool_]:
    """Return a mask of the rows whose value in a column satisfies a condition."""
    name = condition.column
    codes = table.grid(name) if isinstance(table.schema.columns[name], Number) else table.codes[name]
    allowed = np.zeros(table.rows, dtype=bool)
    for low, high in condition.ranges:
        allowed |= (low <= codes) & (codes <= high)
    return allowed & _there(table, name)


def _censor(indices: list[Integers], time: Selector, table: Table) -> None:
    """Move rows that outlast the time bins, in place, to the last time cell and to no event."""
    at_end = table.grid(time.column) == _number(table.schema, time.column).steps
    stays = table.above[time.column] | (at_end & (indices[-1] == 0))
    indices[-2] = np.where(stays, time.cells - 1, indices[-2])
    indices[-1] = np.where(stays, 0, indices[-1])


def _number(schema: Schema, name: str) -> Number:
    """Return a column that must be of numbers; raise ConfigError if it is not."""
    return schema.number(name, name)


def _multiplied(powers: tuple[str, ...], table: Table, where: Integers) -> Integers:
    """Return the product of columns' integer codes in the rows at these indices, which must fit an int64."""
    values = table.codes[powers[0]][where]
    for name in powers[1:]:
        values = values * table.codes[name][where]
    return values


def _added_in_parts(first: Integers, second: Integers, cell: Integers, cells: int) -> list[int]:
    """Return exact sums by cell of products of two values, each below 2^48, that may overflow int64."""
    totals = [0] * cells
    split = [((0, values & ((1 << _LOW) - 1)), (_LOW, values >> _LOW)) for values in (first, second)]
    for (shift, part), (other_shift, other) in itertools.product(*split):
        added = _added(part * other, cell, cells, MAX_PARTIAL >> 2 * _LOW)
        shifted = (value << shift + other_shift for value in added)
        totals = [total + value for total, value in zip(totals, shifted, strict=True)]
    return totals


def _added(values: Integers, cell: Integers, cells: int, chunk: int) -> list[int]:
    """Return exact sums of values by cell as Python integers, added in chunks that do not overflow int64."""
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
    """Return, sorted, the number columns among these in which values may be missing."""
    numbers = (name for name in set(columns) if isinstance(schema.columns[name], Number))
    return tuple(sorted(name for name in numbers if _number(schema, name).missing))


def product(schema: Schema, *powers: str, over: Sequence[str] = (), by: Sequence[Selector] = ()) -> Block:
    """Return a description of the sums of a product of columns over rows with values in these and `over`."""
    return Block(tuple(sorted(powers)), presence(schema, *powers, *over), tuple(by))


def party_squares(schema: Schema, name: str) -> Block:
    """Return a description of the sum over parties of (sum of a column)^2 / (number of its values)."""
    return Block((name, name), presence(schema, name), of_party=True)


def selector(schema: Schema, name: str) -> Selector:
    """Return a column's declared partition into cells: its categories, or its bins."""
    column = schema.columns[name]
    if isinstance(column, Category):
        return Selector(name, len(column.values))
    return edged(name, column, column.bins)


def edged(name: str, column: Number, edges: Sequence[float]) -> Selector:
    """Return a number column's partition into bins between these inner edges."""
    return Selector(name, len(edges) + 1, column.thresholds(edges), (column.lower, *edges))


def equal_bins(name: str, column: Number, bins: int) -> Selector:
    """Return a number column's partition into bins of equal width, aligned to a declared step."""
    if bins > column.steps:
        alone = equal_points(name, column, bins)
        return msgspec.structs.replace(alone, edges=tuple(map(column.edge, alone.thresholds)))
    edges = [column.lower + index * column.width / bins for index in range(1, bins)]
    if column.step is not None:
        edges = [column.edge(point) for point in column.thresholds(edges)[1:]]
    return edged(name, column, edges)


def equal_points(name: str, column: Number, bins: int) -> Selector:
    """Return a number column's partition into bins of equally many grid points, to within one."""
    bins = min(bins, column.steps + 1)
    thresholds = tuple(-(-index * (column.steps + 1) // bins) for index in range(bins))
    return Selector(name, bins, thresholds)


def coarser(fine: Selector, fanout: int) -> Selector:
    """Return a coarser partition that merges `fanout` neighbouring cells of a fine one into each cell."""
    return Selector(fine.column, -(-fine.cells // fanout), fine.thresholds[::fanout])
