"""Conditions of a question, "mean(age) where sex = f and age >= 60": which rows an answer is about.

Nothing is evaluated: a condition compares declared columns with declared categories, or with numbers within
their bounds. It is public. A row satisfies it or not, by its own values, as they count; a row without one of
them does not. So a condition is part of each block: docs/proofs/records.md has the sensitivity.
"""

from __future__ import annotations

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.asked import Condition, Ranges, Reader
from smpc_dp.records.schema import Category, Number, Schema
from smpc_dp.values import category_of

_SIGNS = ("=", "!=", "<", "<=", ">", ">=")


def read_conditions(reader: Reader, schema: Schema, where: str) -> tuple[Condition, ...]:
    """Parse row conditions such as `a = b and c >= 5` into one for each column, sorted by column name.

    Raises ConfigError, naming the question, the column and what it may be compared with.
    """
    ranges: dict[str, Ranges] = {}
    while True:
        name = reader.name()
        column, sign = schema.column(name, where), reader.take()
        if sign not in _SIGNS:
            raise reader.error(f"one of {' '.join(_SIGNS)} is expected after {name!r}, not {sign}")
        value = reader.value()
        compared = _of_category if isinstance(column, Category) else _of_number
        try:
            own = compared(column, sign, value)  # type: ignore[arg-type]
        except ValueError as error:
            raise ConfigError.at(where, f"column {name!r} {error}", ConfigCheck.RANGE) from None
        together = " together with the comparisons before" if name in ranges else ""
        ranges[name] = _both(ranges.get(name, own), own)
        if not ranges[name]:
            reason = f"no row satisfies {name} {sign} {value}{together}"
            raise ConfigError.at(where, reason, ConfigCheck.INFEASIBLE)
        if not reader.accepts("and"):
            return tuple(Condition(one, ranges[one]) for one in sorted(ranges))


def _of_category(column: Category, sign: str, value: str) -> Ranges:
    """Return the index ranges of categories that a comparison such as `= b` allows; ValueError for others."""
    known = [category_of(one) for one in column.values]
    if category_of(value) not in known:
        raise ValueError(f"has no category {shown(value)} (categories: {', '.join(column.values[:20])})")
    if sign not in ("=", "!="):
        raise ValueError(f"has categories: they are compared with = or !=, not with {sign}")
    index, last = known.index(category_of(value)), len(known) - 1
    return _ranges((index, index)) if sign == "=" else _ranges((0, index - 1), (index + 1, last))


def _of_number(column: Number, sign: str, value: str) -> Ranges:
    """Return the ranges of grid points that a comparison such as `>= 5` allows; ValueError for others."""
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"has numbers: it cannot be compared with {shown(value)}") from None
    if not column.lower <= number <= column.upper:
        raise ValueError(f"is within [{column.lower:g}, {column.upper:g}]: {value} is not")
    (point,) = column.thresholds((number,))[1:]
    if column.step is None:
        if sign in ("=", "!="):
            raise ValueError(f"has no `step`: it is compared with < <= > or >=, not with {sign}")
    elif abs(column.edge(point) - number) > 1e-6 * column.step:
        raise ValueError(f"has the step {column.step:g}: {value} is none of its values")
    below, above = (0, point - 1), (point + 1, column.steps)
    return {
        "=": _ranges((point, point)),
        "!=": _ranges(below, above),
        "<": _ranges(below),
        "<=": _ranges((0, point)),
        ">": _ranges(above),
        ">=": _ranges((point, column.steps)),
    }[sign]


def _ranges(*ranges: tuple[int, int]) -> Ranges:
    """Return the given (low, high) pairs without those whose low is above high."""
    return tuple((low, high) for low, high in ranges if low <= high)


def _both(first: Ranges, second: Ranges) -> Ranges:
    """Return the intersection of two sets of code ranges, in ascending order."""
    return tuple(sorted(_ranges(*((max(a, c), min(b, d)) for a, b in first for c, d in second))))
