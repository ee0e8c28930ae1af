"""Data sets for learning, checked as they are read. The label is the last column of every table."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import numpy as np

from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.files import read_bounded
from smpc_dp.learn.needs import Table

MAX_BYTES = 1 << 28


def read_table(path: str | os.PathLike[str]) -> Table:
    """Return the table in a file, shape (points, columns): numbers, one point a line, the label last.

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
        raise ConfigError([Fault(str(file), "unknown kind of file, the known ones are .npy, .csv, .txt")])
    try:
        lines = list(csv.reader(content.decode("utf-8").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError([Fault(str(file), f"no table ({error})")]) from None
    rows = [(number, cells) for number, cells in enumerate(lines, 1) if cells]
    if rows and not any(_is_number(cell) for cell in rows[0][1]):
        rows = rows[1:]
    return numbers(rows, str(file))


def numbers(rows: list[tuple[int, list[str]]], source: str) -> Table:
    """Return cells, with the number of their lines, as a table; raise ConfigError naming the line."""
    if not rows:
        raise ConfigError([Fault(source, "holds no points")])
    width = len(rows[0][1])
    table = np.empty((len(rows), width))
    for place, (line, cells) in enumerate(rows):
        if len(cells) != width:
            what = f"{len(cells)} columns, the first point has {width}"
            raise ConfigError([Fault(f"{source}:{line}", what)])
        for column, cell in enumerate(cells):
            if cell.strip() and not _is_number(cell):
                raise ConfigError([Fault(f"{source}:{line}", f"{cell[:80]!r} is not a number")])
            table[place, column] = float(cell) if cell.strip() else math.nan
    return table


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _from_npy(file: Path) -> Table:
    try:
        with file.open("rb") as opened:
            array = np.lib.format.read_array(opened, allow_pickle=False)
    except OSError as error:
        raise LocalError(f"{file}: cannot read the data ({error.strerror})") from None
    except (ValueError, EOFError, MemoryError) as error:
        raise ConfigError([Fault(str(file), f"no table ({error})")]) from None
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        what = f"must hold a table of numbers, has shape {array.shape} and dtype {array.dtype}"
        raise ConfigError([Fault(str(file), what)])
    return np.asarray(array, dtype=np.float64)
