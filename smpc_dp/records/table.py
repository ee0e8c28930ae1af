"""One party's rows, read from a file or from arrays and put on the grids of a schema.

Whatever depends on rows is reported to the party alone and refuses nothing; only a column that is missing,
or of another type, does.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.optional import import_optional
from smpc_dp.privacy.guarantee import PlainStruct
from smpc_dp.records.schema import Column, Number, Schema

Integers = NDArray[np.int64]
Source = str | os.PathLike[str] | Mapping[str, Any] | NDArray[Any] | Any
MAX_SHOWN = 20


class Dropped(PlainStruct, frozen=True):
    """What of a party's rows does not count, or not as it is: for the party alone, never for others.

    Attributes:
        rows: rows of the table.
        missing: values that are missing or no numbers, by column.
        clipped: numbers outside their bounds, by column.
        undeclared: values that are no declared category, by column; they count as `other`, where there is
            one.
        beyond_person: rows without an id, and rows of a person beyond `rows_per_person`.
        beyond_rows: rows beyond `max_rows`: sums are clamped to what `max_rows` rows can give.
    """

    rows: int
    missing: dict[str, int]
    clipped: dict[str, int]
    undeclared: dict[str, int]
    beyond_person: int = 0
    beyond_rows: int = 0


@dataclass(frozen=True)
class Table:
    """Rows on the grids of a schema.

    `codes` has for each column an int64 array: of a number z, in [-steps, steps]; of a category its index,
    -1 for none. `present` says which numbers are not missing. `counted`: which rows count for the number of
    rows.
    """

    schema: Schema
    codes: dict[str, Integers]
    present: dict[str, NDArray[np.bool_]]
    counted: NDArray[np.bool_]
    rows: int
    dropped: Dropped

    def grid(self, name: str) -> Integers:
        """Return the grid points 0..steps of a column of numbers."""
        column = self.schema.columns[name]
        steps = column.steps if isinstance(column, Number) else 0
        return (self.codes[name] + steps) // 2


def read_table(source: Source, schema: Schema, *, party: str = "table") -> Table:
    """Read one party's rows: a path of a CSV or Parquet file, a pandas table, or arrays by column.

    Raises:
        ConfigError: a column is missing, has another type or another length; with public rows, too many rows.
        LocalError: the file cannot be read, or a package for it is not installed.
    """
    wanted = [*schema.columns, *([schema.id] if schema.id else [])]
    numbers = {name for name, column in schema.columns.items() if isinstance(column, Number)}
    columns = _columns(source, wanted, numbers, party)
    _check(columns, schema, party)
    rows = len(next(iter(columns.values())))
    if schema.rows == "public" and rows > schema.max_rows:
        reason = f"{party}: {rows} public rows, max_rows is {schema.max_rows}"
        raise ConfigError.at("max_rows", reason, ConfigCheck.RANGE)
    absent = _beyond_person(columns[schema.id], schema.person_factor) if schema.id else np.zeros(rows, bool)
    codes, present = {}, {}
    counts: dict[str, dict[str, int]] = {"missing": {}, "clipped": {}, "undeclared": {}}
    for name, column in schema.columns.items():
        codes[name], present[name], changed = _coded(columns[name], column, absent)
        for kind, number in changed.items():
            if number:
                counts[kind][name] = number
    dropped = Dropped(
        rows=rows,
        beyond_person=int(absent.sum()),
        beyond_rows=max(0, rows - schema.max_rows),
        **counts,
    )
    return Table(schema, codes, present, ~absent, rows, dropped)


def _columns(
    source: Source, wanted: Iterable[str], numbers: Collection[str], party: str
) -> dict[str, NDArray[Any]]:
    """Return the wanted columns as arrays; raise ConfigError naming all that are missing."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        source = _parquet(path, wanted) if path.suffix == ".parquet" else _csv(path)
    names = source.dtype.names if isinstance(source, np.ndarray) else None
    known = list(names or ()) if isinstance(source, np.ndarray) else _keys(source, party)
    if isinstance(source, np.ndarray) and names is None:
        reason = f"{party}: an array needs named columns: a structured array or a mapping of arrays"
        raise ConfigError.at("table", reason, ConfigCheck.TYPE)
    missing = [name for name in wanted if name not in known]
    if missing:
        shown = ", ".join(map(str, known[:MAX_SHOWN])) or "none"
        raise ConfigError(
            [
                ConfigIssue(
                    name, f"{party}: the table has no column {name!r} (columns: {shown})", ConfigCheck.MISSING
                )
                for name in missing
            ]
        )
    return {name: _array(source[name], numeric=name in numbers) for name in wanted}


def _keys(source: Any, party: str) -> list[str]:
    """Return the names of the columns of a mapping or of a pandas table."""
    if isinstance(source, Mapping):
        return list(source)
    columns = getattr(source, "columns", None)
    if columns is None:
        reason = f"{party}: must be a path, a mapping of arrays, a structured array or a pandas table"
        raise ConfigError.at("table", reason, ConfigCheck.TYPE)
    return list(columns)


def _array(values: Any, *, numeric: bool) -> NDArray[Any]:
    """Return a column as an array; masked and missing values of numpy and pandas become NaN or None."""
    if isinstance(values, _Text):
        return values
    dtype = str(getattr(values, "dtype", ""))
    if isinstance(values, np.ma.MaskedArray):
        return _filled(values, numeric=numeric)
    if hasattr(values, "to_numpy") and (dtype in ("category", "string", "str") or dtype[:1].isupper()):
        # pandas' own types: Int64, Float64, boolean and texts
        if numeric and dtype[:1].isupper():
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(values.to_numpy(dtype=object), dtype=object)
    return np.asarray(values)


def _filled(values: Any, *, numeric: bool) -> NDArray[Any]:
    if numeric and values.dtype.kind in "fiub":
        return np.asarray(values.astype(np.float64).filled(np.nan))
    plain = np.array(values.data, dtype=object)
    plain[np.ma.getmaskarray(values)] = None
    return plain


def _csv(path: Path) -> dict[str, NDArray[Any]]:
    """Read a CSV file with a header; values stay text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            width = len(header)
            # a row that is too short or too long depends on rows alone: what is not there is missing
            rows = [(row + [""] * width)[:width] for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LocalError(f"{path}: cannot be read as CSV ({error})") from None
    if len(set(header)) < width or not header:
        raise ConfigError.at(str(path), "needs a header of different column names", ConfigCheck.FORMAT)
    columns = list(zip(*rows, strict=True)) or [()] * width
    return {name: _Text.of(values) for name, values in zip(header, columns, strict=True)}


class _Text(np.ndarray[Any, np.dtype[np.object_]]):
    """A column of a file that has no types: numbers are written in it as text."""

    @classmethod
    def of(cls, values: Iterable[str]) -> _Text:
        return np.array(list(values), dtype=object).view(cls)


def _parquet(path: Path, wanted: Iterable[str]) -> dict[str, Any]:
    parquet = import_optional("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
        known = file.schema_arrow.names
        table = file.read(columns=[name for name in wanted if name in known])
    except (OSError, ValueError) as error:
        raise LocalError(f"{path}: cannot be read as Parquet ({error})") from None
    read = {name: table.column(name).to_pandas() for name in table.column_names}
    return {**dict.fromkeys(known), **read}


def _check(columns: Mapping[str, NDArray[Any]], schema: Schema, party: str) -> None:
    """Raise ConfigError, naming each column whose type is not the declared one."""
    issues = []
    lengths = {len(values) if values.ndim == 1 else -1 for values in columns.values()}
    if len(lengths) > 1 or -1 in lengths:
        issues.append(ConfigIssue("table", f"{party}: columns must be of one length", ConfigCheck.SHAPE))
    for name, column in schema.columns.items():
        values = columns[name]
        numeric = values.dtype.kind in "fiub"
        if isinstance(column, Number) and not numeric and not isinstance(values, _Text):
            reason = f"{party}: column {name!r} has type {values.dtype}, and numbers are declared"
            issues.append(ConfigIssue(name, reason, ConfigCheck.TYPE))
    if issues:
        raise ConfigError(issues)


def _beyond_person(ids: NDArray[Any], most: int) -> NDArray[np.bool_]:
    """Return which rows have no id, or are beyond the first `most` rows of theirs."""
    seen: dict[str, int] = {}
    beyond = np.zeros(len(ids), dtype=bool)
    for index, value in enumerate(ids.tolist()):
        if _is_missing(value):
            beyond[index] = True
            continue
        key = str(value)
        seen[key] = seen.get(key, 0) + 1
        beyond[index] = seen[key] > most
    return beyond


def _is_missing(value: object) -> bool:
    # pandas' own missing value compares with nothing
    return value is None or str(value) in ("", "<NA>") or (isinstance(value, float) and math.isnan(value))


def _coded(
    values: NDArray[Any], column: Column, absent: NDArray[np.bool_]
) -> tuple[Integers, NDArray[np.bool_], dict[str, int]]:
    """Return a column's codes, which values are present, and how many are missing, clipped or undeclared."""
    if isinstance(column, Number):
        return _numbers(values, column, absent)
    index = {value: position for position, value in enumerate(column.values)}
    other = -1 if column.other is None else index[column.other]
    code = np.full(len(values), -1, dtype=np.int64)
    missing = undeclared = 0
    for position, value in enumerate(values.tolist()):
        if absent[position]:
            continue
        if _is_missing(value):
            missing += 1
            continue
        # whole numbers with a missing value among them are floats in numpy and pandas
        text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        known = index.get(text)
        undeclared += known is None
        code[position] = other if known is None else known
    return code, code >= 0, {"missing": missing, "undeclared": undeclared}


def _numbers(
    values: NDArray[Any], column: Number, absent: NDArray[np.bool_]
) -> tuple[Integers, NDArray[np.bool_], dict[str, int]]:
    if isinstance(values, _Text):
        values = np.array([_parsed(text) for text in values.tolist()], dtype=np.float64)
    real = values.astype(np.float64)
    missing = np.isnan(real) & ~absent
    real = np.where(np.isnan(real), column.middle, real)
    clipped = ((real < column.lower) | (real > column.upper)) & ~absent
    code = 2 * column.points(real) - column.steps
    gone = missing | absent
    code[gone] = 0
    present = ~gone if column.missing else np.ones(len(code), dtype=bool)
    return code, present, {"missing": int(missing.sum()), "clipped": int(clipped.sum())}


def _parsed(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
