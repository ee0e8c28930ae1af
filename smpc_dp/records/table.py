"""One party's rows, read from a file or from arrays and put on the grids of a schema.

Whatever depends on rows is reported to the party alone and refuses nothing; only a missing column, or columns
of different lengths, do. Types are those of the schema alone: the type of a column of a file or an array may
be that of its values, so it never refuses, and a value that does not fit counts as missing.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.optional import import_optional
from smpc_dp.privacy.guarantee import PlainStruct
from smpc_dp.records.schema import Column, Number, Schema

Integers = NDArray[np.int64]
Source = str | os.PathLike[str] | Mapping[str, Any] | NDArray[Any] | Any
MAX_SHOWN = 20
# The greatest limit on a field that csv takes on all platforms; it is one of the whole process.
MAX_FIELD = (1 << 31) - 1
_FIELD_LIMIT = threading.Lock()
# What shortens rows is below the bound by this factor: more than the rounding errors of a norm.
_BELOW = 1 - 1e-12


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
        shortened: rows that are longer than the bound of the norm.
    """

    rows: int
    missing: dict[str, int]
    clipped: dict[str, int]
    undeclared: dict[str, int]
    beyond_person: int = 0
    beyond_rows: int = 0
    shortened: int = 0

    def without_values(self) -> list[str]:
        """Return the columns in which no row has a number, or a declared category."""
        counts = Counter(self.missing) + Counter(self.undeclared)
        return [name for name, count in counts.items() if count == self.rows - self.beyond_person]


@dataclass(frozen=True)
class Table:
    """Rows on the grids of a schema.

    `codes` has for each column an int64 array: of a number z, in [-steps, steps]; of a category its index,
    -1 for none. `given` says which values are there, `present` the same, or of a column with `missing =
    false` all; `above` which numbers were clipped to their upper bound. `counted`: which rows count for the
    number of rows.
    """

    schema: Schema
    codes: dict[str, Integers]
    present: dict[str, NDArray[np.bool_]]
    given: dict[str, NDArray[np.bool_]]
    above: dict[str, NDArray[np.bool_]]
    counted: NDArray[np.bool_]
    rows: int
    dropped: Dropped

    def part(self, start: int, stop: int) -> Table:
        """Return some of the rows."""
        parts: dict[str, Any] = {
            key: {name: values[start:stop] for name, values in getattr(self, key).items()}
            for key in ("codes", "present", "given", "above")
        }
        counted = self.counted[start:stop]
        return replace(self, **parts, counted=counted, rows=len(counted))

    def grid(self, name: str) -> Integers:
        """Return the grid points 0..steps of a column of numbers."""
        column = self.schema.columns[name]
        steps = column.steps if isinstance(column, Number) else 0
        return (self.codes[name] + steps) // 2


def read_table(source: Source, schema: Schema, *, party: str = "table") -> Table:
    """Read one party's rows: a path of a CSV or Parquet file, a pandas table, or arrays by column.

    Raises:
        ConfigError: a column is missing, or has another length; with public rows, too many rows.
        LocalError: the file cannot be read, or a package for it is not installed.
    """
    columns, absent = _arrays(source, schema, schema.columns, party)
    rows = len(absent)
    if schema.rows == "public" and rows > schema.max_rows:
        reason = f"{party}: {rows} public rows, max_rows is {schema.max_rows}"
        raise ConfigError.at("max_rows", reason, ConfigCheck.RANGE)
    arrays: dict[str, dict[str, Any]] = {"codes": {}, "present": {}, "given": {}, "above": {}}
    counts: dict[str, dict[str, int]] = {"missing": {}, "clipped": {}, "undeclared": {}}
    for name, column in schema.columns.items():
        read = _coded(columns[name], column, absent)
        for key, array in (("codes", read.codes), ("given", read.given), ("above", read.above)):
            arrays[key][name] = array
        is_middle = isinstance(column, Number) and not column.missing
        arrays["present"][name] = np.ones(rows, dtype=bool) if is_middle else read.given
        for kind, number in read.changed.items():
            if number:
                counts[kind][name] = number
    shortened = _shorten(arrays["codes"], schema)
    dropped = Dropped(
        rows=rows,
        shortened=shortened,
        beyond_person=int(absent.sum()),
        beyond_rows=max(0, rows - schema.max_rows),
        **counts,
    )
    return Table(schema, **arrays, counted=~absent, rows=rows, dropped=dropped)


def undeclared_counts(
    source: Source, schema: Schema, columns: Sequence[str], *, party: str = "table"
) -> dict[str, Counter[str]]:
    """Return how many rows that count have each value that is no declared category, by column.

    Arguments and errors as of `read_table`, but that only these columns need be there.
    """
    arrays, absent = _arrays(source, schema, columns, party)
    result = {}
    for name in columns:
        column = schema.columns[name]
        declared = () if isinstance(column, Number) else column.values
        rows = zip(arrays[name].tolist(), absent.tolist(), strict=True)
        counts = Counter(_label(value) for value, gone in rows if not (gone or _is_missing(value)))
        for value in declared:
            counts.pop(value, None)
        result[name] = counts
    return result


def _arrays(
    source: Source, schema: Schema, names: Iterable[str], party: str
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Return columns as arrays of one length, and which rows are without an id, or beyond their person's."""
    wanted = [*names, *([schema.id] if schema.id else [])]
    columns = {name: _array(values) for name, values in read_columns(source, wanted, party).items()}
    lengths = {len(values) if values.ndim == 1 else -1 for values in columns.values()}
    if len(lengths) > 1 or -1 in lengths:
        raise ConfigError.at("table", f"{party}: columns must be of one length", ConfigCheck.SHAPE)
    (rows,) = lengths
    absent = _beyond_person(columns[schema.id], schema.person_factor) if schema.id else np.zeros(rows, bool)
    return columns, absent


def read_columns(source: Source, wanted: Iterable[str], party: str) -> dict[str, Any]:
    """Return the wanted columns as they are given; raise ConfigError naming all that are missing."""
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
    return {name: source[name] for name in wanted}


def _keys(source: Any, party: str) -> list[str]:
    """Return the names of the columns of a mapping or of a pandas table."""
    if isinstance(source, Mapping):
        return list(source)
    columns = getattr(source, "columns", None)
    if columns is None:
        reason = f"{party}: must be a path, a mapping of arrays, a structured array or a pandas table"
        raise ConfigError.at("table", reason, ConfigCheck.TYPE)
    return list(columns)


def _array(values: Any) -> NDArray[Any]:
    """Return a column as an array: of numbers, or of its values as they are, None for missing ones."""
    if isinstance(values, list | tuple):
        return _objects(values)
    if isinstance(values, np.ma.MaskedArray):
        return _without(np.asarray(values.data), np.ma.getmaskarray(values))
    if hasattr(values, "to_numpy") and not isinstance(values.dtype, np.dtype):
        # pandas' own types: their missing values are none of numpy's
        plain = getattr(values.dtype, "numpy_dtype", None)
        if getattr(plain, "kind", "") == "f":
            return np.asarray(values.to_numpy(dtype=plain, na_value=np.nan))
        return np.asarray(values.to_numpy(dtype=object), dtype=object)
    array = np.asarray(values)
    if array.dtype.kind == "c":
        # one complex number makes all others complex
        return np.asarray(np.where(array.imag == 0, array.real, np.nan))
    if array.dtype.kind not in "mM":
        return array
    # numpy would make whole numbers of times
    return _without(array.astype(str), np.isnat(array))


def _without(values: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    """Return values as objects, None for missing ones."""
    plain = values.astype(object)
    plain[missing] = None
    return plain


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """Return a list as an array of its values as they are: numpy would take one type for all of them."""
    result = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        result[position] = value.item() if isinstance(value, np.number | np.bool_) else value
    return result


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Let fields of a CSV file be of any length."""
    with _FIELD_LIMIT:
        before = csv.field_size_limit(MAX_FIELD)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _csv(path: Path) -> dict[str, NDArray[Any]]:
    """Read a CSV file with a header; values stay text."""
    try:
        # bytes that are no UTF-8, and a long field, are in one row
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file, _long_fields():
            reader = csv.reader(file)
            header = next(reader, [])
            width = len(header)
            # a row that is too short or too long depends on rows alone: what is not there is missing
            rows = [(row + [""] * width)[:width] for row in reader if row]
    except (OSError, csv.Error) as error:
        raise LocalError(f"{path}: cannot be read as CSV ({error})") from None
    if len(set(header)) < width or not header:
        raise ConfigError.at(str(path), "needs a header of different column names", ConfigCheck.FORMAT)
    columns = list(zip(*rows, strict=True)) or [()] * width
    return {name: _objects(values) for name, values in zip(header, columns, strict=True)}


def _parquet(path: Path, wanted: Iterable[str]) -> dict[str, Any]:
    """Read the wanted columns of a Parquet file, each value as it is."""
    arrow, parquet = import_optional("pyarrow"), import_optional("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
        known = file.schema_arrow.names
        table = file.read(columns=[name for name in wanted if name in known])
        read = {name: _of_arrow(arrow, table.column(name)) for name in table.column_names}
    except (OSError, ValueError) as error:
        raise LocalError(f"{path}: cannot be read as Parquet ({error})") from None
    return {**dict.fromkeys(known), **read}


def _of_arrow(arrow: Any, column: Any) -> Any:
    """Return the values of a column of pyarrow; texts that are no UTF-8 with replaced bytes."""
    kind = column.type
    if arrow.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if arrow.types.is_temporal(kind):
        return column.cast(arrow.string()).to_pylist()
    if arrow.types.is_floating(kind):
        return column.to_numpy()
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        texts = column.cast(arrow.large_binary()).to_pylist()
        return [None if text is None else text.decode("utf-8", "replace") for text in texts]
    return column.to_pylist()


def _beyond_person(ids: NDArray[Any], most: int) -> NDArray[np.bool_]:
    """Return which rows have no id, or are beyond the first `most` rows of theirs.

    A whole float that its type cannot tell from the next one may be the ids of several persons, so it is
    none.
    """
    exact = 2.0 ** (np.finfo(ids.dtype).nmant + 1 if ids.dtype.kind == "f" else 53)
    seen: dict[str, int] = {}
    beyond = np.zeros(len(ids), dtype=bool)
    for index, value in enumerate(ids.tolist()):
        if _is_missing(value) or (isinstance(value, float) and abs(value) >= exact):
            beyond[index] = True
            continue
        key = _label(value)
        seen[key] = seen.get(key, 0) + 1
        beyond[index] = seen[key] > most
    return beyond


def _is_missing(value: object) -> bool:
    # pandas' own missing value compares with nothing
    return (
        value is None
        or _label(value) in ("", "<NA>", "NaT")
        or (isinstance(value, float) and math.isnan(value))
    )


def _label(value: object) -> str:
    """Return a category or an id as text."""
    # whole numbers with a missing value among them are floats in numpy and pandas
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # Python writes no integers of thousands of digits
    return hex(value) if isinstance(value, int) and value.bit_length() > 1024 else str(value)


class _Read(NamedTuple):
    """One column: codes, which values are there and which are above, how many are missing and the like."""

    codes: Integers
    given: NDArray[np.bool_]
    above: NDArray[np.bool_]
    changed: dict[str, int]


def _coded(values: NDArray[Any], column: Column, absent: NDArray[np.bool_]) -> _Read:
    """Return a column's codes, and what became of its values."""
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
        known = index.get(_label(value))
        undeclared += known is None
        code[position] = other if known is None else known
    changed = {"missing": missing, "undeclared": undeclared}
    return _Read(code, code >= 0, np.zeros(len(code), dtype=bool), changed)


def _numbers(values: NDArray[Any], column: Number, absent: NDArray[np.bool_]) -> _Read:
    plain = values.dtype.kind in "fiub"
    real = np.array(values if plain else [_parsed(value) for value in values.tolist()], dtype=np.float64)
    if column.is_indicator:
        # no measurement that could be clipped
        real = np.where((real == 0) | (real == 1), real, np.nan)
    missing = np.isnan(real) & ~absent
    real = np.where(np.isnan(real), column.middle, real)
    clipped = ((real < column.lower) | (real > column.upper)) & ~absent
    code = 2 * column.points(real) - column.steps
    gone = missing | absent
    code[gone] = 0
    changed = {"missing": int(missing.sum()), "clipped": int(clipped.sum())}
    return _Read(code, ~gone, (real > column.upper) & ~gone, changed)


def _shorten(codes: dict[str, Integers], schema: Schema) -> int:
    """Shorten the rows of codes that exceed the bound of the norm, in place; return their number.

    Each code goes towards 0, and the factor is below the exact one by far more than its rounding error: so no
    shortened row exceeds the bound.
    """
    if schema.norm is None:
        return 0
    steps = {name: schema.number(name, name).steps for name in schema.norm.columns}
    square = sum((codes[name] / count) ** 2 for name, count in steps.items())
    length = np.sqrt(np.asarray(square, dtype=np.float64))
    long = length > schema.norm.bound * _BELOW
    factor = schema.norm.bound * _BELOW / length[long]
    for name in steps:
        codes[name][long] = np.trunc(codes[name][long] * factor).astype(np.int64)
    return int((length > schema.norm.bound).sum())


def _parsed(value: object) -> float:
    """Return a value as a number, NaN if it is none; one that is too large for a float is infinite."""
    if not isinstance(value, str | int | float | Decimal | np.number | np.bool_):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if isinstance(value, int | Decimal) and value > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan
