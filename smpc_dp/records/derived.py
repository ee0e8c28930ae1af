"""Columns that a party computes from its own, before anything is released: each value from one row alone.

A value is a function of what its source counts as, a point of the source's grid, so bounds follow from
bounds. All machines compute the same point: protocols/records/README.md has the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.schema import Elapsed, Function, Grouped, Number, date_of, logarithm
from smpc_dp.values import categories_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_EPOCH = date(1970, 1, 1).toordinal()


def elapsed_numbers(one: Elapsed, given: Mapping[str, NDArray[np.generic]], rows: int) -> Floats:
    """Return the whole years or days between two dates in each row, NaN for a missing or invalid date."""
    start, end = (_dates(value, given, rows) for value in (one.start, one.end))
    there = ~(np.isnat(start) | np.isnat(end))
    result = np.full(rows, math.nan)
    if one.unit == "days":
        result[there] = (end - start)[there].astype(np.int64)
        return result
    first, last = (_parts(each[there]) for each in (start, end))
    result[there] = last[0] - first[0] - (last[1] < first[1])
    return result


def _dates(value: str, given: Mapping[str, NDArray[np.generic]], rows: int) -> NDArray[np.datetime64]:
    """Return a date for each row, of a column's texts or one constant date; NaT where there is none."""
    if value not in given:
        return np.full(rows, np.datetime64(value, "D"))
    days = [_ordinal(text) for text in categories_of(given[value])]
    return np.array(days, dtype="datetime64[D]")


def _ordinal(text: str | None) -> np.datetime64:
    """Return the date at the start of a text, which a blank or a T may follow; NaT if there is none."""
    head = "" if text is None else text[:10]
    known = None if text is None or text[10:11] not in ("", " ", "T") else date_of(head)
    return np.datetime64("NaT", "D") if known is None else np.datetime64(known.toordinal() - _EPOCH, "D")


def _parts(dates: NDArray[np.datetime64]) -> tuple[Integers, Integers]:
    """Return each date's year, and its month and day as one number that sorts by day of the year."""
    months = dates.astype("datetime64[M]")
    day = (dates - months).astype(np.int64)
    month = months.astype(np.int64)
    return month // 12, 32 * (month % 12) + day


def function_codes(one: Function, source: Number, column: Number, codes: Integers) -> Integers:
    """Return the integer codes of a logarithm or square of a column's values, given the column's codes."""
    points = (codes + source.steps) // 2
    values = np.asarray(source.lower + points * (source.width / source.steps), dtype=np.float64)
    results = values * values if one.function == "square" else _logs(values, column)
    return 2 * column.points(results) - column.steps


def _logs(values: Floats, column: Number) -> Floats:
    """Return natural logarithms that round to the same grid points of a column on all machines.

    Libraries differ in the last bits: where these may decide between two points, the logarithm is exact.
    """
    logs = np.log(values)
    at = (logs - column.lower) / column.width * column.steps + 0.5
    error = 2.0**-48 * max(abs(column.lower), abs(column.upper)) / column.width * column.steps
    for index in np.flatnonzero(np.abs(at - np.rint(at)) <= error + 2.0**-20):
        logs[index] = logarithm(float(values[index]))
    return logs


def group_codes(one: Grouped, source: Number, codes: Integers) -> Integers:
    """Return the index of the bin in which each value of a number column is, given the column's codes."""
    starts = np.array(source.thresholds(one.edges))
    cells = np.searchsorted(starts, (codes + source.steps) // 2, side="right") - 1
    return cells.astype(np.int64)
