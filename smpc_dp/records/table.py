"""One party's rows, read from a file or from arrays and put on the grids of a schema.

Whatever depends on rows is reported to the party alone and refuses nothing; only a missing column, one of the
name under which the party is declared, or columns of different lengths, do. Types are those of the schema
alone: the type of a column of a file or an array may be that of its values, so it never refuses, and a value
that does not fit counts as missing.
"""

from __future__ import annotations

import contextlib
import csv
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.optional import import_optional
from smpc_dp.privacy.guarantee import PlainStruct
from smpc_dp.records.derived import elapsed_numbers, function_codes, group_codes
from smpc_dp.records.schema import Column, Elapsed, Grouped, Number, Schema
from smpc_dp.values import (
    categories_of,
    category_of,
    cells_of,
    check_columns,
    column_of,
    decoded,
    fitted,
    named_columns,
    numbers_of,
    parse_number,
)

Integers = NDArray[np.int64]
Source = str | os.PathLike[str] | Mapping[str, Any] | NDArray[Any] | Any
# The greatest limit on a field that csv takes on all platforms; it is one of the whole process.
MAX_FIELD = (1 << 31) - 1
_FIELD_LIMIT = threading.Lock()
# What shortens rows is below the bound by this factor: more than the rounding errors of a norm.
_BELOW = 1 - 1e-12
# From here on two whole numbers have one float64.
_EXACT_FLOAT = 2.0**53


class Dropped(PlainStruct, frozen=True):
    """Record, for a party alone, of which of its rows and values were missing, clipped or ignored.

    Attributes:
        rows: rows of the table.
        missing: values that are missing or no numbers, by column.
        clipped: numbers outside their bounds, by column.
        undeclared: values that are no declared category, by column; they count as `other`, where there is
            one.
        beyond_person: rows without an id, and rows of a person beyond `rows_per_person`.
        beyond_rows: rows that count beyond `max_rows`: `Table.check_rows` refuses them, and in a session that
            is open each sum is clamped to what `max_rows` rows can give.
        shortened: rows that are longer than the bound of the norm.
        ragged: lines of a file with fewer cells than its header, the rest missing, or with more, all missing.
        unclosed: lines with a quote that does not close on them, all cells missing.
    """

    rows: int
    missing: dict[str, int]
    clipped: dict[str, int]
    undeclared: dict[str, int]
    beyond_person: int = 0
    beyond_rows: int = 0
    shortened: int = 0
    ragged: int = 0
    unclosed: int = 0

    def without_values(self) -> list[str]:
        """Return the columns in which no row has a usable number or category."""
        counts = Counter(self.missing) + Counter(self.undeclared)
        return [name for name, count in counts.items() if count == self.rows - self.beyond_person]


@dataclass(frozen=True)
class Table:
    """A party's table after reading: columns as integer codes, with masks of what is present and counts.

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

    def check_rows(self, party: str) -> None:
        """Raise ConfigError if more than `max_rows` rows count; to be called before others wait."""
        if self.dropped.beyond_rows:
            most = self.schema.max_rows
            rows = f"{most + self.dropped.beyond_rows} {self.schema.rows} rows"
            reason = f"{party}: {rows}, max_rows is {most}"
            raise ConfigError.at("max_rows", reason, ConfigCheck.RANGE)

    def part(self, start: int, stop: int) -> Table:
        """Return the table of rows `start` to `stop` - 1, with everything else unchanged."""
        parts: dict[str, Any] = {
            key: {name: values[start:stop] for name, values in getattr(self, key).items()}
            for key in ("codes", "present", "given", "above")
        }
        counted = self.counted[start:stop]
        return replace(self, **parts, counted=counted, rows=len(counted))

    def grid(self, name: str) -> Integers:
        """Return a number column's values as indices of grid points, 0 to `steps`."""
        column = self.schema.columns[name]
        steps = column.steps if isinstance(column, Number) else 0
        return (self.codes[name] + steps) // 2


def read_table(source: Source, schema: Schema, *, party: str = "table", member: str | None = None) -> Table:
    """Read a party's rows from a CSV or Parquet file, pandas table or arrays, and encode them by a schema.

    `party`: how errors call it; `member`: its name in a column of parties, where it is another one.

    Raises:
        ConfigError: a column is missing, or has another length; with public rows, too many rows; a column of
            parties does not have the party, or the table has a column of its name.
        LocalError: the file cannot be read, or a package for it is not installed.
    """
    columns, absent, read_from = _arrays(source, schema, [*schema.given, *schema.dates], party)
    rows = len(absent)
    counting = rows if schema.rows == "public" else rows - int(absent.sum())
    arrays: dict[str, dict[str, Any]] = {"codes": {}, "present": {}, "given": {}, "above": {}}
    counts: dict[str, dict[str, int]] = {"missing": {}, "clipped": {}, "undeclared": {}}
    values = {name: _coded(columns[name], column, absent) for name, column in schema.given.items()}
    values |= _derived(values, columns, schema, absent)
    values |= _of_party(schema, party if member is None else member, absent)
    for name, column in schema.columns.items():
        read = values[name]
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
        beyond_rows=max(0, counting - schema.max_rows),
        ragged=read_from.ragged,
        unclosed=read_from.unclosed,
        **counts,
    )
    table = Table(schema, **arrays, counted=~absent, rows=rows, dropped=dropped)
    if schema.rows == "public":
        table.check_rows(party)
    return table


def undeclared_counts(
    source: Source, schema: Schema, columns: Sequence[str], *, party: str = "table"
) -> dict[str, Counter[str]]:
    """Return, by column, how many rows have each value that is not a declared category.

    Arguments and errors as of `read_table`, but that only these columns need be there.
    """
    arrays, absent, _ = _arrays(source, schema, columns, party)
    result = {}
    for name in columns:
        column = schema.columns[name]
        declared = () if isinstance(column, Number) else column.values
        rows = zip(categories_of(arrays[name]), absent.tolist(), strict=True)
        counts = Counter(value for value, gone in rows if value is not None and not gone)
        for value in declared:
            counts.pop(category_of(value) or "", None)
        result[name] = counts
    return result


def _arrays(
    source: Source, schema: Schema, names: Iterable[str], party: str
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_], Columns]:
    """Return (columns as arrays, mask of rows ignored for their person, raw columns); or ConfigError."""
    wanted = [*names, *([schema.id] if schema.id else [])]
    read = read_columns(source, wanted, party)
    if (own := schema.party_column) is not None and own in read.names:
        raise _party_column_error(source, own, party)
    columns = {name: column_of(values) for name, values in read.values.items()}
    lengths = {len(values) if values.ndim == 1 else -1 for values in columns.values()}
    if len(lengths) > 1 or -1 in lengths:
        raise ConfigError.at("table", f"{party}: columns must be of one length", ConfigCheck.SHAPE)
    (rows,) = lengths
    absent = _beyond_person(columns[schema.id], schema.person_factor) if schema.id else np.zeros(rows, bool)
    return columns, absent, read


def _party_column_error(source: Source, name: str, party: str) -> ConfigError:
    """Return the error of a table that has a column of the name under which the party is declared.

    It looks at no row: whether values agree would be told by the absence of a party that refuses them.
    """
    has = f"{source} has" if isinstance(source, str | os.PathLike) else "the table has"
    reason = (
        f"{party}: {has} a column {name!r}, which the session declares as the party that has the rows: leave "
        "the column out, or declare the party under another name"
    )
    return ConfigError.at(f"columns.{name}", reason, ConfigCheck.CONFLICT)


class Columns(NamedTuple):
    """Raw columns read from a table, with the numbers of lines that were too short, too long or unclosed.

    `names`: of all columns of the table.
    """

    values: dict[str, Any]
    names: tuple[Any, ...]
    ragged: int = 0
    unclosed: int = 0


def read_columns(source: Source, wanted: Sequence[str], party: str) -> Columns:
    """Read raw columns of a file or table; raise ConfigError naming missing or duplicate ones."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        read = _parquet if path.suffix == ".parquet" else _csv
        return read(path, wanted, party)
    names = source.dtype.names if isinstance(source, np.ndarray) else None
    if isinstance(source, np.ndarray) and names is None:
        reason = f"{party}: an array needs named columns: a structured array or a mapping of arrays"
        raise ConfigError.at("table", reason, ConfigCheck.TYPE)
    known = list(names or ()) or _keys(source, party)
    check_columns(known, wanted, party)
    return Columns({name: source[name] for name in wanted}, (*known,))


def _keys(source: Any, party: str) -> list[str]:
    """Return the column names of a mapping or pandas table; raise ConfigError for other objects."""
    if isinstance(source, Mapping):
        return list(source)
    columns = getattr(source, "columns", None)
    if columns is None:
        reason = f"{party}: must be a path, a mapping of arrays, a structured array or a pandas table"
        raise ConfigError.at("table", reason, ConfigCheck.TYPE)
    return list(columns)


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Context manager that lifts the csv module's limit on the length of fields."""
    with _FIELD_LIMIT:
        before = csv.field_size_limit(MAX_FIELD)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _csv(path: Path, wanted: Sequence[str], party: str) -> Columns:
    """Read raw columns of a CSV file with a header as texts; raise LocalError if it cannot be read.

    A row is one line, so that no row decides how others are read. Of a line with a quote that does not close
    on it, or with more cells than the header, no cell is known: all are missing.
    """
    try:
        with path.open("rb") as file:
            decoded(file.read(4), str(path), "replace")
        # bytes that are no UTF-8, and a long field, are in one row
        with path.open(encoding="utf-8-sig", errors="replace") as lines, _long_fields():
            header, closed = cells_of(next(lines, "").removesuffix("\n"))
            if not closed:
                reason = "a quote in the header does not close on its line"
                raise ConfigError.at(str(path), reason, ConfigCheck.FORMAT)
            names = named_columns(header)
            check_columns(names, wanted, party)
            return _cells_of_lines(lines, names, {name: names.index(name) for name in wanted})
    except (OSError, csv.Error) as error:
        raise LocalError(f"{path}: cannot be read as CSV ({error})") from None


def _cells_of_lines(lines: Iterable[str], names: Sequence[str], indices: Mapping[str, int]) -> Columns:
    """Return the wanted cells of CSV lines as columns, empty where malformed, and count such lines."""
    columns: dict[str, list[str]] = {name: [] for name in indices}
    ragged = unclosed = 0
    width = len(names)
    for line in lines:
        if not (content := line.removesuffix("\n")):
            continue
        cells, closed = cells_of(content)
        row = fitted(cells, width) if closed else []
        unclosed += not closed
        ragged += closed and len(row or ()) < width
        # of a line that is too long any cell may be another column's
        row = row or []
        for name, index in indices.items():
            columns[name].append(row[index] if index < len(row) else "")
    return Columns(dict(columns), (*names,), ragged, unclosed)


def _parquet(path: Path, wanted: Sequence[str], party: str) -> Columns:
    """Read raw columns of a Parquet file; raise LocalError if it cannot be read."""
    arrow, parquet = import_optional("pyarrow"), import_optional("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
        check_columns(names, wanted, party)
        table = file.read(columns=list(wanted))
        return Columns({name: _of_arrow(arrow, table.column(name)) for name in wanted}, (*names,))
    except (OSError, ValueError) as error:
        raise LocalError(f"{path}: cannot be read as Parquet ({error})") from None


def _of_arrow(arrow: Any, column: Any) -> Any:
    """Return a pyarrow column's values as an array or list, dates as texts, invalid UTF-8 replaced."""
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
    """Return a mask of rows that have no usable id, or exceed the allowed rows per person.

    A whole float that its type cannot tell from the next one may be the ids of several persons, so it is
    none.
    """
    exact = 2.0 ** (np.finfo(ids.dtype).nmant + 1) if ids.dtype.kind == "f" else _EXACT_FLOAT
    seen: dict[str, int] = {}
    beyond = np.zeros(len(ids), dtype=bool)
    for index, (value, key) in enumerate(zip(ids.tolist(), categories_of(ids), strict=True)):
        if key is None or _is_rounded(value, key, exact):
            beyond[index] = True
            continue
        seen[key] = seen.get(key, 0) + 1
        beyond[index] = seen[key] > most
    return beyond


def _is_rounded(value: object, key: str, exact: float) -> bool:
    """Tell whether a numeric id is so large that rounding may have merged several persons' ids."""
    if isinstance(value, str):
        return key != value.strip() and abs(parse_number(key) or 0.0) >= _EXACT_FLOAT
    return isinstance(value, float) and abs(value) >= exact


class _Read(NamedTuple):
    """One column after reading: integer codes, masks of given and too large values, counts of changes."""

    codes: Integers
    given: NDArray[np.bool_]
    above: NDArray[np.bool_]
    changed: dict[str, int]


def _coded(values: NDArray[Any], column: Column, absent: NDArray[np.bool_]) -> _Read:
    """Return a raw column encoded as grid or category codes, with counts of missing or clipped values."""
    if isinstance(column, Number):
        return _numbers(values, column, absent)
    index = {category_of(value): position for position, value in enumerate(column.values)}
    other = -1 if column.other is None else column.values.index(column.other)
    code = np.full(len(values), -1, dtype=np.int64)
    missing = undeclared = 0
    for position, value in enumerate(categories_of(values)):
        if absent[position]:
            continue
        if value is None:
            missing += 1
            code[position] = -1 if column.missing else other
            continue
        known = index.get(value)
        undeclared += known is None
        code[position] = other if known is None else known
    changed = {"missing": missing, "undeclared": undeclared}
    return _Read(code, code >= 0, np.zeros(len(code), dtype=bool), changed)


def _derived(
    values: Mapping[str, _Read],
    columns: Mapping[str, NDArray[Any]],
    schema: Schema,
    absent: NDArray[np.bool_],
) -> dict[str, _Read]:
    """Return the columns that a schema derives from others, encoded as codes.

    What became of a source's values is told with the source.
    """
    result: dict[str, _Read] = {}
    for name, one in schema.derived.items():
        if isinstance(one, Elapsed):
            numbers = elapsed_numbers(one, columns, len(absent))
            result[name] = _numbers(numbers, schema.number(name, name), absent)
    known = {**values, **result}
    for name, one in schema.derived.items():
        if isinstance(one, Elapsed):
            continue
        read, source = known[one.of], schema.number(one.of, one.of)
        if isinstance(one, Grouped):
            codes = np.where(read.given, group_codes(one, source, read.codes), -1)
            above = np.zeros(len(codes), dtype=bool)
        else:
            column = schema.number(name, name)
            codes = function_codes(one, source, column, read.codes)
            above = read.above & (codes == column.steps)
            codes = np.where(read.given, codes, 0)
        result[name] = _Read(codes, read.given, above, {})
    return result


def _of_party(schema: Schema, party: str, absent: NDArray[np.bool_]) -> dict[str, _Read]:
    """Return the column of parties, in which all rows have this one; nothing without such a column."""
    name = schema.party_column
    if name is None:
        return {}
    column = schema.columns[name]
    names = () if isinstance(column, Number) else column.values
    if party not in names:
        reason = f"{party} is none of its parties: {shown(list(names))}"
        raise ConfigError.at(f"columns.{name}", reason, ConfigCheck.UNKNOWN_NAME)
    code = np.where(absent, -1, names.index(party)).astype(np.int64)
    return {name: _Read(code, ~absent, np.zeros(len(code), dtype=bool), {})}


def _numbers(values: NDArray[Any], column: Number, absent: NDArray[np.bool_]) -> _Read:
    """Return a raw column of numbers encoded on its grid, counting missing and clipped values."""
    real, _ = numbers_of(values)
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
    """Scale down, in place, rows whose norm exceeds the declared bound; return how many there were.

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
