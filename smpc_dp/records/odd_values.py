"""Values of a party's own table that its owner may have meant otherwise, for the owner alone.

They are never part of a result, which may be stored or sent: they are values of single rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import printable
from smpc_dp.records.derived import elapsed_numbers
from smpc_dp.records.schema import Elapsed, Number, Schema
from smpc_dp.records.table import Source, read_columns, undeclared_counts
from smpc_dp.values import column_of, numbers_of

# Values that are listed of a column, characters of one, and rows from which on a number may be a code.
_LISTED, _CHARACTERS, _REPEATED = 10, 60, 3


def odd_values(source: Source, schema: Schema, party: str = "table") -> Iterator[str]:
    """Yield warnings on a party's own table: undeclared categories, repeated numbers, bounds from a row.

    Numbers are those out of bounds. A bound may be from a row if it is a value that one row alone has.
    Such a number, as -9 or 999, may be a code for a missing value, and is clipped to a bound otherwise.
    Raises as `read_table`.
    """
    numbers = {name: column for name, column in schema.given.items() if isinstance(column, Number)}
    others = [name for name in schema.given if name not in numbers]
    undeclared = undeclared_counts(source, schema, others, party=party) if others else {}
    for name, counts in undeclared.items():
        if counts:
            yield f"{name}: undeclared values, with their rows: {_listed(counts)}"
    read = read_columns(source, [*numbers, *schema.dates], party).values
    given = {name: column_of(values) for name, values in read.items()}
    real_numbers = {name: numbers_of(given[name])[0] for name in numbers}
    for name, one in schema.derived.items():
        if isinstance(one, Elapsed):
            numbers[name] = one.column()
            real_numbers[name] = elapsed_numbers(one, given, len(given[one.dates[0]]))
    for name, column in numbers.items():
        real = real_numbers[name]
        if column.is_indicator:
            # clips nothing: other numbers are missing
            continue
        finite = real[np.isfinite(real)]
        for key, bound, extreme in _extremes(column, finite):
            if bound == extreme and np.count_nonzero(finite == bound) == 1:
                reason = "take bounds from what is public, since all members read them"
                yield f"{name}: {key} = {bound:.12g} is the extreme value of these rows, in one row: {reason}"
        outside = finite[(finite < column.lower) | (finite > column.upper)]
        codes = Counter(f"{value:.12g}" for value in outside.tolist())
        codes = Counter({value: rows for value, rows in codes.items() if rows >= _REPEATED})
        if codes:
            repeated = f"{name}: numbers out of bounds that repeat, with their rows: {_listed(codes)}"
            yield f"{repeated}: of a code for a missing value leave the cell empty"


def _extremes(column: Number, values: NDArray[np.float64]) -> Iterator[tuple[str, float, float]]:
    """Yield (key of a bound, declared bound, extreme value) for both ends; nothing without values."""
    if len(values):
        yield "lower", column.lower, float(values.min())
        yield "upper", column.upper, float(values.max())


def _listed(counts: Counter[str]) -> str:
    """Return a text that lists the most frequent values with their rows, and how many others there are."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = ", ".join(f"{printable(value, _CHARACTERS)} ({rows})" for value, rows in ordered[:_LISTED])
    more = len(ordered) - _LISTED
    return f"{shown}, and {more} more" if more > 0 else shown
