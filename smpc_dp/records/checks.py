"""What each statistic demands of its columns; each check raises ConfigError that names the statistic."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.asked import MAX_BINS, Statistic
from smpc_dp.records.schema import MAX_CELLS, Category, Number, Schema, SumsOfRows


def check_no_party(one: Statistic, schema: Schema) -> None:
    """Raise ConfigError if a statistic whose sums have no noise needs the column of parties."""
    if schema.party_column in one.used:
        reason = f"{schema.party_column!r} is the party: each cell has records of one party, so none is shown"
        raise ConfigError.at("ask", f"{reason} without noise", ConfigCheck.UNSUPPORTED)


def check_survival(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless a survival curve's time column has a grid and its event column is 0 or 1."""
    time, event = (schema.number(name, where) for name in one.columns[:2])
    if not time.bins:
        reason = f"column {one.columns[0]!r} needs `bins` in the schema: the time grid"
        raise ConfigError.at(where, reason, ConfigCheck.MISSING)
    check_binary(event, one.columns[1], where)


def check_two_groups(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless a log-rank test has valid time and event columns, and exactly two groups.

    Columns after that of the groups are strata.
    """
    check_survival(one, schema, where)
    if cells_in(one.by[:1], schema) != 2:
        raise ConfigError.at(where, "needs two groups: first 'by' a column of two cells", ConfigCheck.SHAPE)
    check_condition(one, one.by[:1], schema, where)


def check_cox(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a Cox regression with wrong time, event or covariates, or too many patterns."""
    check_survival(one, schema, where)
    check_cells((*one.by, *one.columns[2:]), schema, where)
    if {*one.by} & {*one.columns}:
        raise ConfigError.at(where, "a column is there twice", ConfigCheck.DUPLICATE)
    for name in one.columns[2:]:
        if cells_in((name,), schema) < 2:
            raise ConfigError.at(where, f"column {name!r} needs two cells at least", ConfigCheck.SHAPE)
    check_condition(one, one.columns[2:], schema, where)


def check_difference(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless a difference of means is asked for between exactly two groups."""
    if len(one.by) != 1 or cells_in(one.by, schema) != 2:
        raise ConfigError.at(where, "needs two groups: 'by' a column of two cells", ConfigCheck.SHAPE)
    check_condition(one, one.by, schema, where)


def check_condition(
    one: Statistic, names: Sequence[str], schema: Schema, where: str, least: int | None = None
) -> None:
    """Raise ConfigError if a row condition leaves fewer groups by one of these columns than an answer needs.

    `least`: of groups with rows that it needs; None: all.
    """
    for condition in one.where:
        name = condition.column
        if name not in names:
            continue
        column, groups = schema.columns[name], cells_in((name,), schema)
        starts = range(groups) if isinstance(column, Category) else column.thresholds(column.bins)
        cells = {
            cell
            for low, high in condition.ranges
            for cell in range(bisect_right(starts, low), bisect_right(starts, high) + 1)
        }
        if len(cells) < (least or groups):
            left = "one group alone" if len(cells) == 1 else f"{len(cells)} groups"
            reason = f"its condition leaves {left} of the {'two' if groups == 2 else groups} by {name!r}"
            raise ConfigError.at(where, reason, ConfigCheck.SHAPE)


def check_risk(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless risks are asked for an event column of 0 or 1, in exactly two groups."""
    check_difference(one, schema, where)
    name = one.columns[0]
    check_binary(schema.number(name, where), name, where)


def check_independence(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless a chi-square test has two columns of two cells or more, in a small table."""
    check_cells(one.columns, schema, where)
    cells = [cells_in((name,), schema) for name in one.columns]
    if len(cells) != 2 or min(cells) < 2 or math.prod(cells) > MAX_BINS:
        reason = f"needs two columns of two cells at least each, {MAX_BINS} together at most"
        raise ConfigError.at(where, reason, ConfigCheck.SHAPE)
    check_condition(one, one.columns, schema, where, least=2)


def check_binary(column: Number, name: str, where: str) -> None:
    """Raise ConfigError unless a column of numbers is declared to have the values 0 and 1 alone."""
    if not column.is_indicator:
        reason = f"column {name!r} must be 0 or 1: lower = 0, upper = 1, step = 1"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def check_least(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError if the least number of values per party is below 1 or above `max_rows`."""
    if not 1 <= one.least <= schema.max_rows:
        reason = f"a party has 1 to max_rows = {schema.max_rows} values, not {one.least}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def cells_in(names: Sequence[str], schema: Schema) -> int:
    """Return the product of the columns' numbers of declared categories or bins; 1 for no columns."""
    columns = [schema.columns[name] for name in names]
    return math.prod(
        len(column.values) if isinstance(column, Category) else len(column.bins) + 1 for column in columns
    )


def check_levels(one: Statistic, schema: Schema, where: str) -> None:  # noqa: ARG001
    """Raise ConfigError for quantiles with no levels, with levels outside (0, 1), or with a level twice."""
    if not (one.levels and all(0 < level < 1 for level in one.levels)):
        levels = ", ".join(f"{level:g}" for level in one.levels) or "none"
        raise ConfigError.at(where, f"quantiles must be inside (0, 1), are {levels}", ConfigCheck.RANGE)
    for index, level in enumerate(one.levels):
        if level in one.levels[:index]:
            raise ConfigError.at(where, f"the level {level:g} is there twice", ConfigCheck.DUPLICATE)


def check_table(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a table of columns without declared cells, or with too many cells in all."""
    check_cells(one.columns, schema, where)


def check_cells(names: Sequence[str], schema: Schema, where: str) -> None:
    """Raise ConfigError for a column without declared categories or bins, or too many cells in all."""
    for name in names:
        column = schema.columns[name]
        if isinstance(column, Number) and not column.bins:
            reason = f"column {name!r} needs `bins` in the schema: its cells are not declared"
            raise ConfigError.at(where, reason, ConfigCheck.MISSING)
    cells = cells_in(names, schema)
    if cells > MAX_CELLS:
        raise ConfigError.at(where, f"{cells} cells, at most {MAX_CELLS}", ConfigCheck.TOO_LARGE)


def check_missing(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError if missing values are asked for in a column where none count, or that is a group.

    Also for a public number of rows of persons: it has rows that do not count, and lack no value.
    """
    (name,), column = one.columns, schema.columns[one.columns[0]]
    if schema.rows == "public" and schema.unit == "person" and not (one.by or one.where):
        reason = "of persons, a public number of rows has those that do not count: ask it by groups"
        raise ConfigError.at(where, reason, ConfigCheck.UNSUPPORTED)
    if isinstance(column, Number) and not column.missing:
        reason = f"column {name!r} has missing = false: its missing values are not counted"
        raise ConfigError.at(where, reason, ConfigCheck.CONFLICT)
    if name in one.by:
        raise ConfigError.at(where, "a column is there twice", ConfigCheck.DUPLICATE)
    if isinstance(column, Category):
        check_cells((*one.by, name), schema, where)


def check_histogram(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a histogram whose bins are missing or impossible, or given for categories."""
    column = schema.columns[one.columns[0]]
    given = one.bins is not None or bool(one.edges)
    if isinstance(column, Category):
        if given:
            raise ConfigError.at(where, "categories have no bins", ConfigCheck.UNSUPPORTED)
    elif not given and not column.bins:
        raise ConfigError.at(where, "needs a number of bins, or `bins` in the schema", ConfigCheck.MISSING)
    elif one.bins is not None and not 1 <= one.bins <= min(MAX_BINS, column.steps + 1):
        reason = f"1 to {min(MAX_BINS, column.steps + 1)} bins, not {one.bins}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)
    elif (fault := column.edge_fault(one.edges)) is not None:
        raise ConfigError.at(where, f"edges {fault}", ConfigCheck.RANGE)


def check_arguments(described: SumsOfRows, one: Statistic, schema: Schema, where: str) -> None:  # noqa: ARG001
    """Raise ConfigError if another package's statistic is given the wrong number of columns."""
    if len(one.columns) != len(described.arguments):
        reason = f"needs {len(described.arguments)} columns: {', '.join(described.arguments)}"
        raise ConfigError.at(where, reason, ConfigCheck.SHAPE)
