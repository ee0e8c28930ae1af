"""Which blocks each statistic is computed from, and how their noise enters its standard error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import msgspec

from smpc_dp.records.ask import Statistic
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
from smpc_dp.records.schema import Number, Schema

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


def terms_of(one: Statistic, schema: Schema) -> list[Term]:
    """Return the numbers of a statistic, with the blocks that each needs."""
    return _TERMS.get(one.kind, _of_another_package)(one, schema)


def _counts(one: Statistic, schema: Schema) -> list[Term]:
    return [Term(one.text, 1.0, True, {product(schema, by=counted_cells(one, schema)): 1.0})]


def counted_cells(one: Statistic, schema: Schema) -> list[Selector]:
    """Return the selectors of counts, a table or a histogram."""
    return _groups(one, schema) if one.kind == "count" else cells_of(one, schema)


def _groups(one: Statistic, schema: Schema) -> list[Selector]:
    return [selector(schema, name) for name in one.by]


def cells_of(one: Statistic, schema: Schema) -> list[Selector]:
    """Return the selectors of a table or a histogram."""
    if one.kind == "histogram":
        name = one.columns[0]
        column = schema.columns[name]
        if isinstance(column, Number) and one.bins is not None:
            return [equal_bins(name, column, one.bins)]
        if isinstance(column, Number) and one.edges:
            return [edged(name, column, one.edges)]
    return [selector(schema, name) for name in one.columns]


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


def _sum(one: Statistic, schema: Schema) -> list[Term]:
    (name,), by = one.columns, _groups(one, schema)
    column = schema.number(name, one.text)
    squares = {product(schema, name, by=by): 0.25}
    if column.middle != 0:
        squares[product(schema, over=one.columns, by=by)] = (column.middle / column.width) ** 2
    return [Term(one.text, column.width, True, squares)]


def _mean(one: Statistic, schema: Schema) -> list[Term]:
    (name,), by = one.columns, _groups(one, schema)
    squares = {product(schema, name, by=by): 0.25, product(schema, over=one.columns, by=by): 0.25}
    groups = math.prod(each.cells for each in by)
    assumed = "groups of equal size, a mean at a bound" if by else "a mean at a bound"
    return [Term(one.text, schema.number(name, one.text).width, False, squares, groups, assumed)]


def _variance(one: Statistic, schema: Schema) -> list[Term]:
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


def _quantile(one: Statistic, schema: Schema) -> list[Term]:
    levels = levels_of(one.columns[0], schema, one.bins or 1)
    # a rank adds about half of the cells below one parent, at each level
    squares = {product(schema, by=[level]): min(level.cells, FANOUT) / 4 for level in levels}
    return [Term(one.text, 1.0, False, squares, 1, "the error of the rank, as a share of the rows")]


def _moments(one: Statistic, schema: Schema) -> list[Term]:
    over, result = one.columns, []
    count = product(schema, over=over)
    squares = {product(schema, name, name, over=over): 1.0 for name in over}
    if one.kind == "correlation":
        for first, second in itertools.combinations(over, 2):
            used = squares | {product(schema, first, second, over=over): 4.0, count: 0.25}
            used = {block: used[block] for block in used if set(block.powers) <= {first, second}}
            used |= {product(schema, name, over=over): 1.0 for name in (first, second)}
            text = f"correlation({first}, {second})"
            result.append(Term(text, 2.0, False, used, 1, "standard deviations a quarter of the ranges"))
        return result
    for first, second in itertools.combinations_with_replacement(over, 2):
        factors = {product(schema, first, second, over=over): 1.0, count: 0.25}
        factors |= {product(schema, name, over=over): 0.25 for name in (first, second)}
        size = math.prod(schema.number(name, one.text).width / 2 for name in (first, second))
        assumed = "means a quarter of the ranges from their middles"
        result.append(Term(f"covariance({first}, {second})", size, False, factors, 1, assumed))
    return result


def _survival(one: Statistic, schema: Schema) -> list[Term]:
    block = survival_block(one, schema)
    time = block.selectors[-2].cells
    if one.kind == "logrank":
        return [Term(one.text, 1.0, True, {block: 2.0 * time}, 1, "half of the rows with an event")]
    groups = math.prod(each.cells for each in block.selectors[:-2])
    return [Term(one.text, 1.0, False, {block: 4.0 * time}, groups, "half of the rows at risk in all bins")]


def _heterogeneity(one: Statistic, schema: Schema) -> list[Term]:
    (name,) = one.columns
    squares = {
        party_squares(schema, name): 1.0,
        product(schema, name): 1.0,
        product(schema, name, name): 0.01,
        product(schema, over=one.columns): 0.01,
    }
    # Q over the number of rows is the share of the variance between parties, over that within
    return [Term(one.text, 4.0, True, squares, 1, "a standard deviation half of the half range")]


def _regression(one: Statistic, schema: Schema) -> list[Term]:
    over, (response, *others) = one.columns, one.columns
    squares = {product(schema, over=over): 0.25, product(schema, response, over=over): 1.0}
    squares |= {product(schema, name, over=over): 1.0 for name in others}
    squares |= {product(schema, name, response, over=over): 16.0 for name in others}
    pairs = itertools.combinations_with_replacement(others, 2)
    squares |= {product(schema, *pair, over=over): 16.0 / len(others) for pair in pairs}
    assumed = "columns that are not correlated, with standard deviations a quarter of their ranges"
    return [Term(one.text, 1.0, False, squares, 1, assumed)]


def blocks_of(one: Statistic, schema: Schema) -> list[Block]:
    """Return the blocks of an answer of another package, in the order of its sums."""
    described, by = schema.statistics[one.kind], _groups(one, schema)
    columns = dict(zip(described.arguments, one.columns, strict=True))
    return [
        product(schema, *map(columns.__getitem__, powers), over=one.columns, by=by)
        for powers in described.sums
    ]


def _of_another_package(one: Statistic, schema: Schema) -> list[Term]:
    described = schema.statistics[one.kind]
    columns = dict(zip(described.arguments, one.columns, strict=True))
    size = math.prod(schema.number(columns[name], one.text).width for name in described.range)
    groups = math.prod(each.cells for each in _groups(one, schema))
    squares = dict(zip(blocks_of(one, schema), described.factors, strict=True))
    assumed = f"the factors of {described.package}"
    return [Term(one.text, size, described.total, squares, 1 if described.total else groups, assumed)]


_TERMS: dict[str, Callable[[Statistic, Schema], list[Term]]] = {
    "count": _counts,
    "table": _counts,
    "histogram": _counts,
    "sum": _sum,
    "mean": _mean,
    "variance": _variance,
    "covariance": _moments,
    "correlation": _moments,
    "quantile": _quantile,
    "regression": _regression,
    "survival": _survival,
    "logrank": _survival,
    "heterogeneity": _heterogeneity,
}
