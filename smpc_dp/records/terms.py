"""Which blocks each statistic is computed from, and how their noise enters its standard error."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import (
    Block,
    Lacking,
    Selector,
    coarser,
    edged,
    equal_bins,
    equal_points,
    party_squares,
    product,
    selector,
)
from smpc_dp.records.schema import Category, Schema, SumsOfRows

# Children of a cell in the tree of a quantile's counts.
FANOUT = 16
# What a planned error of a regression is of, and for which columns.
OF_SCALED = "of a coefficient of numbers scaled to [-1, 1]"
UNCORRELATED = "columns that are not correlated, with standard deviations a quarter of their ranges"


class Term(msgspec.Struct, frozen=True):
    """Error model of one number of an answer: its range, and how each noisy sum's variance adds to its error.

    Attributes:
        text: as in the result.
        range: the declared range of the number, in its unit; of counts and sums that of one row.
        of_rows: whether it is a total over the rows, so that its range grows with them, and not a mean.
        squares: for each block the factor of its variance, for noise in units of the block's greatest value,
            a range of 1 and one row.
        of_sampling: the same of blocks on which sampling errors alone depend: for the split of the noise, and
            no part of the error.
        groups: the number of groups that the rows are expected to be spread over.
        assumed: what the factors take for granted.
    """

    text: str
    range: float
    of_rows: bool
    squares: dict[Block, float]
    groups: int = 1
    assumed: str = ""
    of_sampling: dict[Block, float] = {}

    @property
    def every(self) -> dict[Block, float]:
        """The factors of all blocks among which the noise is split."""
        return self.squares | self.of_sampling


def count_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of the counts in a table or histogram: one block of noisy counts."""
    return [Term(one.text, 1.0, True, {product(schema, by=count_selectors(one, schema)): 1.0})]


def count_selectors(one: Statistic, schema: Schema) -> list[Selector]:
    """Return the partitions of columns whose cross product gives the cells of a table or histogram."""
    if one.bins is not None or one.edges:
        (name,) = one.columns
        column = schema.number(name, one.text)
        return [edged(name, column, one.edges) if one.bins is None else equal_bins(name, column, one.bins)]
    return [selector(schema, name) for name in (*one.columns, *one.by)]


def missing_blocks(one: Statistic, schema: Schema) -> tuple[Block, Block]:
    """Return two blocks of counts by group, whose difference is the number of missing values."""
    (name,), by = one.columns, _groups(one, schema)
    if isinstance(schema.columns[name], Category):
        return product(schema, by=by), product(schema, by=[*by, selector(schema, name)])
    return product(schema, by=by), product(schema, over=one.columns, by=by)


def missing_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a number of missing values: counts of all rows and of rows with a value."""
    every, given = missing_blocks(one, schema)
    return [Term(one.text, 1.0, True, {every: 1.0, given: float(given.cells // every.cells)})]


def _groups(one: Statistic, schema: Schema) -> list[Selector]:
    """Return the partitions of the columns after `by` into their declared cells."""
    return [selector(schema, name) for name in one.by]


def _by(one: Statistic) -> str:
    """Return the groups as text, such as ` by sex x age`; an empty text without groups."""
    return f" by {' x '.join(one.by)}" if one.by else ""


def _of_groups(one: Statistic) -> str:
    """Return the assumption of groups of equal size as text; an empty text without groups."""
    return ", groups of equal size" if one.by else ""


def survival_block(one: Statistic, schema: Schema) -> Block:
    """Return the block of counts by group, time bin and event that a survival statistic needs.

    A last cell of time, which no point of the grid is in, is of the rows that stay at its upper bound. The
    cells of columns after these two are groups as well.
    """
    name, event, *others = one.columns
    groups = [*_groups(one, schema), *(selector(schema, each) for each in others)]
    column, halves = schema.number(name, name), equal_bins(event, schema.number(event, event), 2)
    edges = (*selector(schema, name).edges, column.upper)
    time = Selector(name, len(edges), (*column.thresholds(column.bins), column.steps + 1), edges)
    return Block((), tuple(sorted((name, event))), (*groups, time, halves))


def levels_of(name: str, schema: Schema, bins: int) -> list[Selector]:
    """Return a column's partitions at all levels of a quantile's tree, finest first, without the root."""
    levels = [equal_points(name, schema.number(name, name), bins)]
    while levels[-1].cells > FANOUT:
        levels.append(coarser(levels[-1], FANOUT))
    return levels


def is_public(block: Block, schema: Schema) -> bool:
    """Tell whether a block is the number of all rows and that is public, so that no noise is needed."""
    return schema.rows == "public" and not block.columns


def noisy_blocks(answers: Sequence[Sequence[Term]], schema: Schema) -> list[Block]:
    """Return the different blocks of sums with noise that answers depend on, in order."""
    blocks = dict.fromkeys(block for terms in answers for term in terms for block in term.every)
    return [block for block in blocks if not is_public(block, schema)]


def with_lacking_choices(
    answers: Sequence[Sequence[Term]], eligible: Sequence[bool]
) -> list[list[list[Term]]]:
    """Return error models with counts of incomplete rows: of all answers, and of those without squares.

    A count of all rows would have one law with all sums of answers that are computed from it. Once where both
    are equal.
    """
    plain = [
        free and all(len(block.powers) < 2 for term in terms for block in term.squares)
        for terms, free in zip(answers, eligible, strict=True)
    ]
    every, some = (with_lacking(answers, free) for free in (eligible, plain))
    return [every] if every == some else [every, some]


def with_lacking(answers: Sequence[Sequence[Term]], eligible: Sequence[bool]) -> list[list[Term]]:
    """Return error models in which counts of complete rows are replaced by counts of incomplete ones.

    Only where that takes no more counts: where the count of all rows is in the request, or several counts
    over some columns. `eligible`: the answers of which counts are replaced, if no other one has these.
    """
    counts: dict[Block, bool] = {}
    for terms, free in zip(answers, eligible, strict=True):
        for block in (block for term in terms for block in term.squares):
            if not (block.powers or block.is_survival):
                counts[block] = counts.get(block, True) and free
    free_counts = [block for block, free in counts.items() if free and counts.get(_all_rows(block), True)]
    number = Counter((block.selectors, block.where) for block in free_counts)
    replaced = {block for block in free_counts if block.present and number[block.selectors, block.where] > 1}
    return [[_with_lacking(term, replaced) for term in terms] for terms in answers]


def where(term: Term, one: Statistic) -> Term:
    """Return an error model over only the rows that satisfy a statistic's condition, unchanged if none."""
    if not one.where:
        return term
    squares, of_sampling = (
        {msgspec.structs.replace(block, where=one.where): square for block, square in each.items()}
        for each in (term.squares, term.of_sampling)
    )
    assumed = term.assumed
    if not term.of_rows:
        assumed = f"{assumed}, if all rows satisfy the condition".removeprefix(", ")
    return msgspec.structs.replace(
        term, text=one.named(term.text), squares=squares, of_sampling=of_sampling, assumed=assumed
    )


def _all_rows(block: Block) -> Block:
    """Return the block of counts of all rows in a block's cells, complete or not."""
    return Block((), (), block.selectors, where=block.where)


def _with_lacking(term: Term, replaced: set[Block]) -> Term:
    """Return an error model with given counts replaced by counts of all rows and of incomplete rows.

    What is a difference of both counts is a count of incomplete rows alone.
    """
    squares: dict[Block, float] = {}
    for block, square in term.squares.items():
        parts = [block]
        if block in replaced:
            parts = [Lacking((), block.present, block.selectors, where=block.where)]
            if _all_rows(block) not in term.squares:
                parts.append(_all_rows(block))
        elif any(_all_rows(other) == block for other in replaced & term.squares.keys()):
            continue
        squares |= dict.fromkeys(parts, square)
    return msgspec.structs.replace(term, squares=squares)


def sum_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a sum: which noisy sums it needs, and each one's part in its error."""
    (name,), by = one.columns, _groups(one, schema)
    column = schema.number(name, one.text)
    squares = {product(schema, name, by=by): 0.25}
    if column.middle != 0:
        squares[product(schema, over=one.columns, by=by)] = (column.middle / column.width) ** 2
    return [Term(one.text, column.width, True, squares)]


def mean_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a mean: which noisy sums it needs, and each one's part in its error."""
    (name,), by = one.columns, _groups(one, schema)
    squares = {product(schema, name, by=by): 0.25, product(schema, over=one.columns, by=by): 0.25}
    groups = math.prod(each.cells for each in by)
    assumed = "groups of equal size, a mean at a bound" if by else "a mean at a bound"
    return [Term(one.text, schema.number(name, one.text).width, False, squares, groups, assumed)]


def variance_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a variance: which noisy sums it needs, and their parts in its error."""
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
    """Return the error model of quantiles: noisy counts by tree level, and their parts in the rank."""
    levels, by = levels_of(one.columns[0], schema, one.bins or 1), _groups(one, schema)
    # a rank adds about half of the cells below one parent, at each level
    squares = {product(schema, by=[*by, level]): min(level.cells, FANOUT) / 4 for level in levels}
    assumed = "the error of the rank, as a share of the rows" + (", in groups of equal size" if by else "")
    return [Term(one.text, 1.0, False, squares, math.prod(each.cells for each in by), assumed)]


def correlation_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return an error model for the correlation of each pair of columns: the noisy sums in it."""
    over, by, result = one.columns, _groups(one, schema), []
    count = product(schema, over=over, by=by)
    groups, assumed = math.prod(each.cells for each in by), "standard deviations a quarter of the ranges"
    squares = {product(schema, name, name, over=over, by=by): 1.0 for name in over}
    for first, second in itertools.combinations(over, 2):
        used = squares | {product(schema, first, second, over=over, by=by): 4.0, count: 0.25}
        used = {block: used[block] for block in used if set(block.powers) <= {first, second}}
        used |= {product(schema, name, over=over, by=by): 1.0 for name in (first, second)}
        text = f"correlation({first}, {second}){_by(one)}"
        result.append(Term(text, 2.0, False, used, groups, assumed + _of_groups(one)))
    return result


def covariance_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return an error model for each pair's covariance, and each column's variance."""
    over, by, result = one.columns, _groups(one, schema), []
    count, groups = product(schema, over=over, by=by), math.prod(each.cells for each in by)
    for first, second in itertools.combinations_with_replacement(over, 2):
        factors = {product(schema, first, second, over=over, by=by): 1.0, count: 0.25}
        factors |= {product(schema, name, over=over, by=by): 0.25 for name in (first, second)}
        size = math.prod(schema.number(name, one.text).width / 2 for name in (first, second))
        assumed = "means a quarter of the ranges from their middles" + _of_groups(one)
        text = f"covariance({first}, {second}){_by(one)}"
        result.append(Term(text, size, False, factors, groups, assumed))
    return result


def logrank_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a log-rank test: noisy counts by group, time bin and event."""
    block = survival_block(one, schema)
    # two groups in each stratum
    squares = {block: block.cells / 2.0}
    return [Term(one.text, 1.0, True, squares, 1, "half of the rows with an event")]


def survival_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of survival curves: noisy counts by group, time bin and event."""
    block = survival_block(one, schema)
    time = block.selectors[-2].cells
    groups = math.prod(each.cells for each in block.selectors[:-2])
    return [Term(one.text, 1.0, False, {block: 4.0 * time}, groups, "half of the rows at risk in all bins")]


def cox_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a Cox regression's log hazard ratio: counts by pattern, time and event."""
    block = survival_block(one, schema)
    # the score of a category with half of the rows, over the information: a quarter of the events
    squares = {block: 32.0 * block.cells}
    return [Term(one.text, 1.0, False, squares, 1, "half of the rows in a category, half with an event")]


def difference_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a difference of two groups' means: the noisy sums in it."""
    (name,), by = one.columns, _groups(one, schema)
    squares = {
        product(schema, name, by=by): 0.5,
        product(schema, over=one.columns, by=by): 0.5,
        product(schema, name, name, by=by): 0.01,
    }
    width = schema.number(name, one.text).width
    return [Term(one.text, width, False, squares, 2, "groups of equal size, means at a bound")]


def risk_selectors(one: Statistic, schema: Schema) -> list[Selector]:
    """Return the partitions, by group and by event or none, of the counts that give two risks."""
    (name,) = one.columns
    return [*_groups(one, schema), equal_bins(name, schema.number(name, one.text), 2)]


def risk_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a difference of two groups' risks: noisy counts by group and event."""
    squares = {product(schema, by=risk_selectors(one, schema)): 2.0}
    return [Term(one.text, 1.0, False, squares, 2, "groups of equal size, risks near 0 or 1")]


def independence_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of a chi-square test: that of each count in its table."""
    squares = {product(schema, by=[selector(schema, name) for name in one.columns]): 1.0}
    return [Term(one.text, 1.0, True, squares, 1, "the error of each count of the table")]


def heterogeneity_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of Q, the variation between parties' means: the noisy sums in it."""
    (name,) = one.columns
    squares = {
        party_squares(schema, name): 1.0,
        product(schema, name): 1.0,
        product(schema, name, name): 0.01,
        product(schema, over=one.columns): 0.01,
    }
    # Q over the number of rows is the share of the variance between parties, over that within
    return [Term(one.text, 4.0, True, squares, 1, "a standard deviation half of the half range")]


def described_blocks(described: SumsOfRows, one: Statistic, schema: Schema) -> list[Block]:
    """Return the blocks of sums that another package's statistic needs, in its own order."""
    by = _groups(one, schema)
    columns = dict(zip(described.arguments, one.columns, strict=True))
    return [
        product(schema, *map(columns.__getitem__, powers), over=one.columns, by=by)
        for powers in described.sums
    ]


def described_terms(described: SumsOfRows, one: Statistic, schema: Schema) -> list[Term]:
    """Return the error model of another package's statistic, with the factors that it declares."""
    columns = dict(zip(described.arguments, one.columns, strict=True))
    size = math.prod(schema.number(columns[name], one.text).width for name in described.range)
    groups = math.prod(each.cells for each in _groups(one, schema))
    squares = dict(zip(described_blocks(described, one, schema), described.factors, strict=True))
    assumed = f"the factors of {described.package}"
    return [Term(one.text, size, described.total, squares, 1 if described.total else groups, assumed)]
