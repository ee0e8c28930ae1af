"""What each statistic demands of its columns; each check raises ConfigError that names the statistic."""

from __future__ import annotations

import math
from collections.abc import Sequence

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.asked import MAX_BINS, Statistic
from smpc_dp.records.schema import MAX_CELLS, Category, Number, Schema, SumsOfRows


def check_survival(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless there are a time grid and an indicator of events."""
    time, event = (schema.number(name, where) for name in one.columns)
    if not time.bins:
        reason = f"column {one.columns[0]!r} needs `bins` in the schema: the time grid"
        raise ConfigError.at(where, reason, ConfigCheck.MISSING)
    _check_binary(event, one.columns[1], where)


def check_two_groups(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless there are also two groups to compare."""
    check_survival(one, schema, where)
    if cells_in(one.by, schema) != 2:
        raise ConfigError.at(where, "needs two groups: 'by' a column of two cells", ConfigCheck.SHAPE)


def _check_binary(column: Number, name: str, where: str) -> None:
    """Raise ConfigError unless a column is an indicator."""
    if not column.is_indicator:
        reason = f"column {name!r} must be 0 or 1: lower = 0, upper = 1, step = 1"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def check_binary_response(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError unless the response is an indicator."""
    name = one.columns[0]
    _check_binary(schema.number(name, where), name, where)


def check_positive_response(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a response that may be negative."""
    name = one.columns[0]
    response = schema.number(name, where)
    if response.lower < 0:
        reason = f"column {name!r} must not be negative: its lower is {response.lower:g}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def check_least(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a least number of values that no party can have."""
    if not 1 <= one.least <= schema.max_rows:
        reason = f"a party has 1 to max_rows = {schema.max_rows} values, not {one.least}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def cells_in(names: Sequence[str], schema: Schema) -> int:
    """Return the number of declared cells of columns together; 1 for none."""
    columns = [schema.columns[name] for name in names]
    return math.prod(
        len(column.values) if isinstance(column, Category) else len(column.bins) + 1 for column in columns
    )


def check_levels(one: Statistic, schema: Schema, where: str) -> None:  # noqa: ARG001
    """Raise ConfigError for quantiles outside (0, 1), or none."""
    if not (one.levels and all(0 < level < 1 for level in one.levels)):
        levels = ", ".join(f"{level:g}" for level in one.levels) or "none"
        raise ConfigError.at(where, f"quantiles must be inside (0, 1), are {levels}", ConfigCheck.RANGE)


def check_table(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for columns without declared cells, or too many of these together."""
    check_cells(one.columns, schema, where)


def check_cells(names: Sequence[str], schema: Schema, where: str) -> None:
    """Raise ConfigError for a column without declared cells, or too many cells of all together."""
    for name in names:
        column = schema.columns[name]
        if isinstance(column, Number) and not column.bins:
            reason = f"column {name!r} needs `bins` in the schema: its cells are not declared"
            raise ConfigError.at(where, reason, ConfigCheck.MISSING)
    cells = cells_in(names, schema)
    if cells > MAX_CELLS:
        raise ConfigError.at(where, f"{cells} cells, at most {MAX_CELLS}", ConfigCheck.TOO_LARGE)


def check_histogram(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for bins that are none or too many."""
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
    """Raise ConfigError for another number of columns than a described statistic has arguments."""
    if len(one.columns) != len(described.arguments):
        reason = f"needs {len(described.arguments)} columns: {', '.join(described.arguments)}"
        raise ConfigError.at(where, reason, ConfigCheck.SHAPE)
