"""Which blocks each statistic is computed from, and how their noise enters its standard error."""

from __future__ import annotations

import itertools
import math

import msgspec

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import (
    Block,
    Selector,
    coarser,
    edged,
    equal_bins,
    equal_points,
    party_squares,
    product,
    selector,
)
from smpc_dp.records.schema import Schema, SumsOfRows

# Children of a cell in the tree of a quantile's counts.
FANOUT = 16


class Term(msgspec.Struct, frozen=True):
    """One number of a statistic, to first order.

    Attributes:
        text: as in the result.
        range: the declared range of the number, in its unit; of counts and sums that of one row.
        of_rows: whether it is a total over the rows, so that its range grows with them, and not a mean.
        squares: for each block the factor of its variance, for noise in units of the block's greatest value,
            a range of 1 and one row.
        groups: the number of groups that the rows are expected to be spread over.
        assumed: what the factors take for granted.
    """

    text: str
    range: float
    of_rows: bool
    squares: dict[Block, float]
    groups: int = 1
    assumed: str = ""


def count_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of counts, a table or a histogram."""
    return [Term(one.text, 1.0, True, {product(schema, by=counted_cells(one, schema)): 1.0})]


def counted_cells(one: Statistic, schema: Schema) -> list[Selector]:
    """Return the selectors of counts, a table or a histogram."""
    if one.bins is not None or one.edges:
        (name,) = one.columns
        column = schema.number(name, one.text)
        return [edged(name, column, one.edges) if one.bins is None else equal_bins(name, column, one.bins)]
    return [selector(schema, name) for name in (*one.columns, *one.by)]


def _groups(one: Statistic, schema: Schema) -> list[Selector]:
    return [selector(schema, name) for name in one.by]


def survival_block(one: Statistic, schema: Schema) -> Block:
    """Return the counts by group, bin of time, and event or none, of the rows that have time and event.

    A last cell of time, which no point of the grid is in, is of the rows that stay at its upper bound.
    """
    name, event = one.columns
    column, halves = schema.number(name, name), equal_bins(event, schema.number(event, event), 2)
    edges = (*selector(schema, name).edges, column.upper)
    time = Selector(name, len(edges), (*column.thresholds(column.bins), column.steps + 1), edges)
    return Block((), tuple(sorted(one.columns)), (*_groups(one, schema), time, halves))


def levels_of(name: str, schema: Schema, bins: int) -> list[Selector]:
    """Return the levels of the tree of counts of a column, the finest first, without the root."""
    levels = [equal_points(name, schema.number(name, name), bins)]
    while levels[-1].cells > FANOUT:
        levels.append(coarser(levels[-1], FANOUT))
    return levels


def is_public(block: Block, schema: Schema) -> bool:
    """Whether a block is the number of rows, and that is public."""
    return schema.rows == "public" and not block.columns


def sum_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of a sum."""
    (name,), by = one.columns, _groups(one, schema)
    column = schema.number(name, one.text)
    squares = {product(schema, name, by=by): 0.25}
    if column.middle != 0:
        squares[product(schema, over=one.columns, by=by)] = (column.middle / column.width) ** 2
    return [Term(one.text, column.width, True, squares)]


def mean_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of a mean."""
    (name,), by = one.columns, _groups(one, schema)
    squares = {product(schema, name, by=by): 0.25, product(schema, over=one.columns, by=by): 0.25}
    groups = math.prod(each.cells for each in by)
    assumed = "groups of equal size, a mean at a bound" if by else "a mean at a bound"
    return [Term(one.text, schema.number(name, one.text).width, False, squares, groups, assumed)]


def variance_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of a variance."""
    (name,), by = one.columns, _groups(one, schema)
    squares = {
        product(schema, name, name, by=by): 1.0,
        product(schema, name, by=by): 1.0,
        product(schema, over=one.columns, by=by): 0.25,
    }
    width = schema.number(name, one.text).width
    groups = math.prod(each.cells for each in by)
    assumed = "a mean a quarter of the range from its middle"
    return [Term(one.text, (width / 2) ** 2, False, squares, groups, assumed)]


def quantile_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of quantiles, or a median."""
    levels = levels_of(one.columns[0], schema, one.bins or 1)
    # a rank adds about half of the cells below one parent, at each level
    squares = {product(schema, by=[level]): min(level.cells, FANOUT) / 4 for level in levels}
    return [Term(one.text, 1.0, False, squares, 1, "the error of the rank, as a share of the rows")]


def correlation_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of each pair of columns."""
    over, result = one.columns, []
    count = product(schema, over=over)
    squares = {product(schema, name, name, over=over): 1.0 for name in over}
    for first, second in itertools.combinations(over, 2):
        used = squares | {product(schema, first, second, over=over): 4.0, count: 0.25}
        used = {block: used[block] for block in used if set(block.powers) <= {first, second}}
        used |= {product(schema, name, over=over): 1.0 for name in (first, second)}
        text = f"correlation({first}, {second})"
        result.append(Term(text, 2.0, False, used, 1, "standard deviations a quarter of the ranges"))
    return result


def covariance_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of each pair of columns, a column with itself too."""
    over, result = one.columns, []
    count = product(schema, over=over)
    for first, second in itertools.combinations_with_replacement(over, 2):
        factors = {product(schema, first, second, over=over): 1.0, count: 0.25}
        factors |= {product(schema, name, over=over): 0.25 for name in (first, second)}
        size = math.prod(schema.number(name, one.text).width / 2 for name in (first, second))
        assumed = "means a quarter of the ranges from their middles"
        result.append(Term(f"covariance({first}, {second})", size, False, factors, 1, assumed))
    return result


def logrank_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of a log-rank test."""
    block = survival_block(one, schema)
    squares = {block: 2.0 * block.selectors[-2].cells}
    return [Term(one.text, 1.0, True, squares, 1, "half of the rows with an event")]


def survival_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of survival curves."""
    block = survival_block(one, schema)
    time = block.selectors[-2].cells
    groups = math.prod(each.cells for each in block.selectors[:-2])
    return [Term(one.text, 1.0, False, {block: 4.0 * time}, groups, "half of the rows at risk in all bins")]


def heterogeneity_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of the variation between parties."""
    (name,) = one.columns
    squares = {
        party_squares(schema, name): 1.0,
        product(schema, name): 1.0,
        product(schema, name, name): 0.01,
        product(schema, over=one.columns): 0.01,
    }
    # Q over the number of rows is the share of the variance between parties, over that within
    return [Term(one.text, 4.0, True, squares, 1, "a standard deviation half of the half range")]


def regression_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of a linear regression."""
    over, (response, *others) = one.columns, one.columns
    squares = {product(schema, over=over): 0.25, product(schema, response, over=over): 1.0}
    squares |= {product(schema, name, over=over): 1.0 for name in others}
    squares |= {product(schema, name, response, over=over): 16.0 for name in others}
    pairs = itertools.combinations_with_replacement(others, 2)
    squares |= {product(schema, *pair, over=over): 16.0 / len(others) for pair in pairs}
    assumed = "columns that are not correlated, with standard deviations a quarter of their ranges"
    return [Term(one.text, 1.0, False, squares, 1, assumed)]


def described_blocks(described: SumsOfRows, one: Statistic, schema: Schema) -> list[Block]:
    """Return the blocks of a described answer, in the order of its sums."""
    by = _groups(one, schema)
    columns = dict(zip(described.arguments, one.columns, strict=True))
    return [
        product(schema, *map(columns.__getitem__, powers), over=one.columns, by=by)
        for powers in described.sums
    ]


def described_terms(described: SumsOfRows, one: Statistic, schema: Schema) -> list[Term]:
    """Return the term of a described answer."""
    columns = dict(zip(described.arguments, one.columns, strict=True))
    size = math.prod(schema.number(columns[name], one.text).width for name in described.range)
    groups = math.prod(each.cells for each in _groups(one, schema))
    squares = dict(zip(described_blocks(described, one, schema), described.factors, strict=True))
    assumed = f"the factors of {described.package}"
    return [Term(one.text, size, described.total, squares, 1 if described.total else groups, assumed)]
