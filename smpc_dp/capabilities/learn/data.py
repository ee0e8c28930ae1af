"""Read data sets for learning, with checks. The label is the last column of every table."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.requirements import Table
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.files import log_opening, read_bounded, read_npy
from smpc_dp.optional import import_optional
from smpc_dp.records.table import read_columns
from smpc_dp.values import (
    cells_of,
    check_columns,
    column_of,
    decoded,
    filled,
    fitted,
    named_columns,
    number_of,
    numbers_of,
)

__all__ = ["Dataset", "bundled", "california_houses", "lending_club", "movielens", "wisconsin"]

MAX_BYTES = 1 << 28
# The stream of `PublicDraws` that splits are drawn from.
_SPLIT = 10
_BUNDLED = ("breast_cancer", "iris", "wine", "digits", "diabetes")


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a table of numbers from a file, one point per line, the label last; raise ConfigError if invalid.

    `.npy` holds a two-dimensional array; `.csv` and `.txt` numbers separated by commas. A first line that is
    no number at all is a header. An empty cell is a missing value, NaN.

    Raises:
        LocalError: the file cannot be read, or is longer than 2^28 bytes.
        ConfigError: it holds no such table; names the line.
    """
    file = Path(path)
    content = read_bounded(file, "the data", MAX_BYTES)
    if file.suffix == ".npy":
        return _from_npy(file)
    if file.suffix not in (".csv", ".txt"):
        raise ConfigError.at(
            str(file), "unknown kind of file, the known ones are .npy, .csv, .txt", ConfigCheck.CHOICE
        )
    rows = _cells(file, content)
    if rows and not any(map(_is_number, rows[0][1])):
        rows = _named_cells(file, rows)[1]
    return numbers(rows, str(file))


def read_source(source: object, columns: Sequence[str], party: str) -> Table:
    """Return a party's table of numbers from a file, an array or named columns; or raise ConfigError.

    With `columns` those are taken, in this order, whatever their order in the source and whatever else it
    has. Raises ConfigError naming the party and the columns that are missing; LocalError for a file.
    """
    if isinstance(source, str | os.PathLike):
        file = Path(source)
        if columns and file.suffix in (".csv", ".txt"):
            return _named(file, columns, party)
        if file.suffix != ".parquet":
            source = read_table(file)
    if getattr(getattr(source, "dtype", None), "names", None) is None and isinstance(
        source, np.ndarray | list | tuple
    ):
        array = _table(source, party)
        if columns and array.shape[1] != len(columns):
            reason = f"has {array.shape[1]} columns, the session file names {len(columns)}"
            raise ConfigError.at(party, reason, ConfigCheck.SHAPE)
        return array
    if not columns:
        reason = "has named columns: name those to learn from in `columns` of the session file"
        raise ConfigError.at(party, reason, ConfigCheck.MISSING)
    read = read_columns(source, columns, party)
    taken = [_column(read.values[name], name, party) for name in columns]
    if len({values.shape for values in taken}) > 1:
        raise ConfigError.at(party, "columns must be of one length", ConfigCheck.SHAPE)
    return np.column_stack(taken)


def _table(source: Any, party: str) -> NDArray[np.float64]:
    """Return an array or lists as a table, NaN for missing values; raise ConfigError for anything else."""
    array = np.asarray(filled(source)) if isinstance(source, np.ndarray) else _of_lists(filled(source))
    if array.ndim != 2 or array.dtype.kind not in "fiubO":
        reason = f"must be a table of numbers, has shape {array.shape} and dtype {array.dtype}"
        raise ConfigError.at(party, reason, ConfigCheck.TYPE)
    table, wrong = numbers_of(array)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        reason = f"must be a table of numbers, row {row}, column {column} has none"
        raise ConfigError.at(party, reason, ConfigCheck.TYPE)
    return table


def _of_lists(rows: Any) -> NDArray[Any]:
    """Return lists as an object array, each value in its own type; if ragged, as an array of None."""
    try:
        return np.array(rows, dtype=object)
    except ValueError:
        return np.empty(len(rows), dtype=object)


def _column(values: Any, name: str, party: str) -> NDArray[np.float64]:
    """Return a column as numbers, NaN for missing values; raise ConfigError naming the column otherwise."""
    array = column_of(values)
    if array.ndim != 1:
        reason = f"{party}: must be a column of numbers, has shape {array.shape}"
        raise ConfigError.at(name, reason, ConfigCheck.TYPE)
    column, wrong = numbers_of(array)
    if wrong.any():
        reason = f"{party}: must be a column of numbers, row {int(np.argmax(wrong))} has none"
        raise ConfigError.at(name, reason, ConfigCheck.TYPE)
    return column


def _named(file: Path, columns: Sequence[str], party: str) -> Table:
    """Read the named columns of a CSV file with a header; raise ConfigError naming missing columns."""
    names, rows = _header_and_rows(file, "a file with a header and at least one point")
    check_columns(names, columns, party)
    order = [names.index(name) for name in columns]
    return numbers([(line, [cells[index] for index in order]) for line, cells in rows], str(file))


def numbers(rows: list[tuple[int, list[str]]], source: str) -> Table:
    """Parse cells with their line numbers as a table of numbers; raise ConfigError naming the line."""
    if not rows:
        raise ConfigError.at(source, "holds no points", ConfigCheck.MISSING)
    width = len(rows[0][1])
    table = np.empty((len(rows), width))
    for index, (line, cells) in enumerate(rows):
        if len(cells) != width:
            reason = f"{len(cells)} columns, the first point has {width}"
            raise ConfigError.at(f"{source}:{line}", reason, ConfigCheck.SHAPE)
        for column, cell in enumerate(cells):
            number = number_of(cell)
            if number is None:
                reason = f"column {column + 1} is not a number"
                raise ConfigError.at(f"{source}:{line}", reason, ConfigCheck.TYPE)
            table[index, column] = number
    return table


def _is_number(cell: str) -> bool:
    """Tell whether a CSV cell is a number; the marks of a missing value are not."""
    number = number_of(cell)
    return number is not None and not math.isnan(number)


def _from_npy(file: Path) -> Table:
    """Read a two-dimensional table of numbers from a .npy file; raise ConfigError or LocalError."""
    log_opening(file, "the data")
    try:
        with file.open("rb") as opened:
            array = read_npy(opened)
    except OSError as error:
        raise LocalError(f"{file}: cannot read the data ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError.at(str(file), f"no table ({error})", ConfigCheck.FORMAT) from None
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        reason = f"must hold a table of numbers, has shape {array.shape} and dtype {array.dtype}"
        raise ConfigError.at(str(file), reason, ConfigCheck.TYPE)
    return np.asarray(array, dtype=np.float64)


@dataclass(frozen=True)
class Dataset:
    """Data set for examples and tests: a checked table, the label last.

    Attributes:
        table: shape (points, features + 1).
        names: of the columns.
        source: the name of the data set and where it comes from.
        left_out: number of points left out because a value is missing.
    """

    table: Table
    names: tuple[str, ...]
    source: str
    left_out: int = 0

    @property
    def features(self) -> int:
        """The number of columns without the label."""
        return int(self.table.shape[1]) - 1

    def split(self, parties: int, test: float, seed: int) -> tuple[list[Table], Table]:
        """Return (one table per party, a table of the share `test` of all points), after a public shuffle.

        Raises ConfigError if there are not as many points as parties.
        """
        from smpc_dp.capabilities.learn.schedule import PublicDraws

        order = np.argsort(PublicDraws(seed, _SPLIT).uniform(len(self.table)), kind="stable")
        held = round(test * len(order))
        if not 0 <= test < 1 or len(order) - held < parties or parties < 1:
            reason = f"{len(order) - held} points cannot be given to {parties} parties"
            raise ConfigError.at("parties", reason, ConfigCheck.UNSUPPORTED)
        train = self.table[order[held:]]
        return [train[party::parties] for party in range(parties)], self.table[order[:held]]

    def scaled(self) -> Dataset:
        """Return the data set with every feature shifted and scaled to [-1, 1] by its range.

        The ranges are taken from the data: where they are not public, that is not private.
        """
        low, high = self.table[:, :-1].min(axis=0), self.table[:, :-1].max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        features = 2 * (self.table[:, :-1] - low) / width - 1
        return replace(self, table=np.concatenate([features, self.table[:, -1:]], axis=1))


def wisconsin(path: str | os.PathLike[str], *, incomplete: bool = False) -> Dataset:
    """Read Breast Cancer Wisconsin (Original): 9 features from 1 to 10 scaled to [-1, 1], label 1 malignant.

    The 16 of 699 rows with a missing value are left out, or kept if `incomplete`, with NaN for what is
    missing. The range is public: it is that of the scale.

    Raises LocalError, ConfigError: see `read_table`, or another table.
    """
    header, rows = _header_and_rows(path, "Breast Cancer Wisconsin (Original), a file with a header")
    kinds = {"benign": 0.0, "malignant": 1.0}
    names = tuple(header[1:-1])
    if len(header) != 11 or header[-1] != "Class":
        raise ConfigError.at(str(path), "needs 11 columns, Id, nine features and Class", ConfigCheck.MISSING)
    recorded: list[list[float]] = []
    left_out = 0
    for line, cells in rows:
        label = kinds.get(cells[-1])
        if label is None:
            raise ConfigError.at(f"{path}:{line}", "the class is not known", ConfigCheck.CHOICE)
        missing = [cell in ("", "NA", "?") for cell in cells[1:-1]]
        if any(missing) and not incomplete:
            left_out += 1
            continue
        known = ["" if gone else cell for cell, gone in zip(cells[1:-1], missing, strict=True)]
        values = numbers([(line, known)], str(path))[0]
        if not np.all((values >= 1) & (values <= 10) | missing):
            raise ConfigError.at(f"{path}:{line}", "a feature is outside 1 to 10", ConfigCheck.RANGE)
        recorded.append([*((values - 5.5) / 4.5), label])
    if not recorded:
        raise ConfigError.at(str(path), "holds no points without a missing value", ConfigCheck.MISSING)
    source = "Breast Cancer Wisconsin (Original), UCI, CC BY 4.0"
    return Dataset(np.array(recorded), (*names, "malignant"), source, left_out)


def lending_club(path: str | os.PathLike[str]) -> Dataset:
    """Return the numeric columns of the Lending Club table, with the interest rate as the label."""
    header, rows = _header_and_rows(path, "Lending Club, a file with a header")
    if "int_rate" not in header:
        raise ConfigError.at(str(path), "has no column 'int_rate'", ConfigCheck.UNKNOWN_KEY)
    label = header.index("int_rate")
    numeric = [
        index
        for index in range(len(header))
        if index != label and all(_is_number(cells[index]) for _, cells in rows)
    ]
    columns = [*numeric, label]
    table = numbers([(line, [cells[index] for index in columns]) for line, cells in rows], str(path))
    if len(bad := np.flatnonzero(~np.isfinite(table).all(axis=1))):
        raise ConfigError.at(f"{path}:{rows[bad[0]][0]}", "a value is missing", ConfigCheck.MISSING)
    names = tuple(header[index] for index in columns)
    return Dataset(table, names, "Lending Club, R package modeldata, MIT")


def california_houses(path: str | os.PathLike[str] | None = None) -> Dataset:
    """Return the California houses data set, with the median house value in 100,000s as the label.

    Args:
        path: the nine columns without header, .csv or .csv.gz; None: scikit-learn's fetcher, which needs the
            network and the extra `learn`. Its terms are unclear, so it is not shipped.

    Raises LocalError if neither is available.
    """
    names = ("longitude", "latitude", "age", "rooms", "bedrooms", "population", "households", "income")
    source = "California houses, StatLib"
    if path is None:
        fetched = _sklearn("fetch_california_housing")
        table = np.column_stack([fetched.data, fetched.target]).astype(np.float64)
        return Dataset(table, (*fetched.feature_names, "value"), source)
    table = _plain(path, "California houses", 9)
    table[:, -1] /= 100_000
    return Dataset(table, (*names, "value"), source)


def movielens(path: str | os.PathLike[str]) -> Dataset:
    """Return the MovieLens ratings: user, movie, time and, as the label, rating; or raise ConfigError.

    `path`: a file with the header userId, movieId, rating, timestamp, .csv or .csv.gz. It is for research
    that is not commercial, so it is not shipped.
    """
    header, rows = _header_and_rows(path, "MovieLens ratings (grouplens.org), a file with a header")
    expected = ["userId", "movieId", "rating", "timestamp"]
    if header != expected:
        raise ConfigError.at(str(path), f"needs the columns {', '.join(expected)}", ConfigCheck.MISSING)
    table = numbers(rows, str(path))[:, [0, 1, 3, 2]]
    # Written so that NaN fails.
    if len(bad := np.flatnonzero(~((table[:, -1] >= 0) & (table[:, -1] <= 5)))):
        raise ConfigError.at(
            f"{path}:{rows[bad[0]][0]}", "a rating is missing or outside 0 to 5", ConfigCheck.MISSING
        )
    return Dataset(table, ("user", "movie", "time", "rating"), "MovieLens latest small, GroupLens")


def bundled(name: str) -> Dataset:
    """Return a data set of scikit-learn: breast_cancer, iris, wine, digits or diabetes; or ConfigError.

    Raises LocalError without the extra `learn`, ConfigError for another name.
    """
    if name not in _BUNDLED:
        raise ConfigError.at("name", f"unknown: {name!r} (known: {', '.join(_BUNDLED)})", ConfigCheck.CHOICE)
    loaded = _sklearn(f"load_{name}")
    table = np.column_stack([loaded.data, loaded.target]).astype(np.float64)
    return Dataset(table, (*map(str, loaded.feature_names), "label"), f"scikit-learn, {name}")


def _sklearn(name: str) -> Any:
    """Load a data set of scikit-learn; raise LocalError without the extra `learn` or the network."""
    datasets = import_optional("sklearn.datasets")
    try:
        return getattr(datasets, name)()
    except OSError as error:
        raise LocalError(f"{name}: cannot be fetched ({error}); give a path") from None


def _unzipped(path: str | os.PathLike[str], needed: str) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each non-empty line of a file, gzipped or not; or raise an error."""
    file = Path(path)
    if not file.exists():
        raise LocalError(f"{file}: there is no such file; needed is {needed}")
    content = read_bounded(file, "the data", MAX_BYTES)
    if file.suffix == ".gz":
        try:
            with gzip.open(io.BytesIO(content)) as opened:
                content = opened.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError.at(str(file), f"cannot be read as text ({error})", ConfigCheck.FORMAT) from None
        if len(content) > MAX_BYTES:
            raise LocalError(f"{file}: holds more than {MAX_BYTES} bytes")
    return _cells(file, content)


def _cells(file: Path, content: bytes) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each non-empty line of a text file's bytes; or raise ConfigError."""
    rows = []
    try:
        for number, line in enumerate(io.StringIO(decoded(content, str(file)), newline=None), 1):
            if text := line.removesuffix("\n"):
                cells, closed = cells_of(text)
                if not closed:
                    reason = "a quote does not close on its line"
                    raise ConfigError.at(f"{file}:{number}", reason, ConfigCheck.FORMAT)
                rows.append((number, cells))
    except csv.Error as error:
        raise ConfigError.at(str(file), f"no table ({error})", ConfigCheck.FORMAT) from None
    return rows


def _named_cells(
    file: str | os.PathLike[str], rows: list[tuple[int, list[str]]]
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header and the other rows; raise ConfigError for a row of another length."""
    header = named_columns(rows[0][1])
    fitting = []
    for line, cells in rows[1:]:
        row = fitted(cells, len(header))
        if row is None or len(row) < len(header):
            reason = f"{len(cells)} columns, the header has {len(header)}"
            raise ConfigError.at(f"{file}:{line}", reason, ConfigCheck.SHAPE)
        fitting.append((line, row))
    return header, fitting


def _header_and_rows(
    path: str | os.PathLike[str], needed: str
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return (header, numbered rows) of a CSV file; raise ConfigError for rows of another length."""
    rows = _unzipped(path, needed)
    if len(rows) < 2:
        raise ConfigError.at(str(path), f"holds no points; needed is {needed}", ConfigCheck.MISSING)
    return _named_cells(path, rows)


def _plain(path: str | os.PathLike[str], needed: str, columns: int) -> Table:
    """Read a table of numbers with this many columns; raise ConfigError for others or missing values."""
    table = numbers(_unzipped(path, f"{needed}, {columns} columns without header"), str(path))
    if table.shape[1] != columns:
        raise ConfigError.at(str(path), f"has {table.shape[1]} columns, needs {columns}", ConfigCheck.SHAPE)
    if len(bad := np.flatnonzero(~np.isfinite(table).all(axis=1))):
        raise ConfigError.at(f"{path}:{bad[0] + 1}", "a value is missing", ConfigCheck.MISSING)
    return table
