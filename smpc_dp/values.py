"""How values that people wrote are read: one normalisation for files, frames, arrays, tables and vectors.

Each value is read by itself. docs/reference/session-file.md (Values) has the rules for users.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError

# What packages write in the place of a value that is missing.
MISSING = frozenset({"", "nan", "NaN", "NaT", "<NA>"})
MAX_SHOWN = 20
_TRUTHS = {"true": 1.0, "false": 0.0}
# As programs write numbers. Leading zeros are those of codes, and so is an exponent without a sign.
_DECIMAL = re.compile(r"(-?)(0|[1-9][0-9]*|(?=\.[0-9]))(?:\.([0-9]*))?(?:[eE]([+-][0-9]{2,3}))?")
# Python writes and reads no integer of more digits.
_MAX_BITS = 14_000
_BYTE_ORDERS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def is_masked_array(value: object) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """Tell whether a value is a NumPy masked array.

    The module of masked arrays is not imported for this, which takes 30 ms: a program that has made one has
    imported it.
    """
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def parse_number(text: str) -> float | None:
    """Parse text as a number, ignoring blanks around it; None if it is none. NaN and infinity count.

    Python reads 1_0 as ten; people who write it mean something else.
    """
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def number_of(value: object) -> float | None:
    """Convert a table's cell to a number: NaN if missing, None if it is no number.

    True and false, also as words, are 1 and 0. A number that is too large for a float is infinite.
    """
    if isinstance(value, str):
        text = value.strip()
        if text in MISSING:
            return math.nan
        number = parse_number(text)
        return _TRUTHS.get(text.lower()) if number is None else number
    if not isinstance(value, Real | Decimal | np.bool_):
        return math.nan if category_of(value) is None else None
    real: Any = value
    try:
        return float(real)
    except OverflowError:
        return math.inf if real > 0 else -math.inf
    except ValueError:
        # a signalling NaN
        return math.nan


def category_of(value: object) -> str | None:
    """Convert a table's cell to the text by which categories are compared; None if missing.

    1, 1.0, "1" and "1.00" have one text; so have true, "True" and "TRUE".
    """
    if value is None or (is_masked_array(value) and value is np.ma.masked):
        return None
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return hex(value)
    text = str(value).strip()
    if text in MISSING:
        return None
    if text.lower() in _TRUTHS:
        return text.lower()
    number = _DECIMAL.fullmatch(text) if text[0] in "-.0123456789" else None
    return text if number is None else _decimal(*number.groups(""))


def _decimal(sign: str, whole: str, part: str, exponent: str) -> str:
    """Return a decimal number written without exponent and without needless zeros."""
    digits, point = whole + part, len(whole) + int(exponent or 0)
    digits = digits.rjust(len(digits) + max(0, 1 - point), "0").ljust(point, "0")
    point = max(1, point)
    whole, part = digits[:point].lstrip("0") or "0", digits[point:].rstrip("0")
    text = f"{whole}.{part}" if part else whole
    return text if text == "0" else sign + text


def column_of(values: Any) -> NDArray[Any]:
    """Convert a table's column to an array: of numbers, or of objects with None for missing values.

    numpy would take one type for all values of a list, and whole numbers for times.
    """
    if isinstance(values, list | tuple):
        return _objects(values)
    if is_masked_array(values):
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
    return _without(array.astype(str), np.isnat(array))


def _without(values: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    """Convert an array to Python objects, with None for missing values."""
    plain = values.astype(object)
    plain[missing] = None
    return plain


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """Convert a list to a one-dimensional object array of its items, NumPy scalars as Python's."""
    result = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        result[position] = value.item() if isinstance(value, np.number | np.bool_) else value
    return result


def numbers_of(column: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a column's numbers (NaN for other values), and a mask of other values not missing."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64), np.zeros(column.shape, dtype=bool)
    read = [number_of(value) for value in column.ravel().tolist()]
    wrong = np.array([number is None for number in read], dtype=bool)
    real = np.array([math.nan if number is None else number for number in read], dtype=np.float64)
    return real.reshape(column.shape), wrong.reshape(column.shape)


def categories_of(column: NDArray[Any]) -> list[str | None]:
    """Return the texts by which a column's categories are compared; None for missing values."""
    if column.dtype.kind == "f" and column.dtype.itemsize < 8:
        # the shortest decimals of the type: as float64 a tenth would have other digits
        column = column.astype(str)
    return [category_of(value) for value in column.tolist()]


def filled(values: Any) -> Any:
    """Replace masked numbers by NaN in an array or in nested lists of arrays."""
    if is_masked_array(values):
        return (
            np.ma.filled(values.astype(np.float64), np.nan)
            if values.dtype.kind in "fiub"
            else values.filled()
        )
    if isinstance(values, list | tuple):
        return [filled(value) if isinstance(value, list | tuple | np.ndarray) else value for value in values]
    return values


def refuse_masked(where: str, values: Any) -> None:
    """Raise PrivacyError if values are masked, also in lists: NumPy would reveal what is hidden."""
    if is_masked_array(values) and np.ma.is_masked(values):
        hidden = int(np.ma.getmaskarray(values).sum())
        raise PrivacyError(f"{where}: {hidden} values are masked: none may be missing")
    if isinstance(values, list | tuple):
        for value in values:
            if isinstance(value, list | tuple) or is_masked_array(value):
                refuse_masked(where, value)


def vector_of(values: Any, name: str, party: str = "") -> NDArray[Any]:
    """Convert a vector, or rows, to an array; PrivacyError if masked, ConfigError if ragged or with bools.

    Raises ConfigError for what is no array, and for true or false in a list, which NumPy makes numbers;
    PrivacyError for masked values.
    """
    prefix = f"{party}: " if party else ""
    refuse_masked(f"{prefix}{name}", values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        reason = f"{prefix}not an array of equally long rows ({error})"
        raise ConfigError.at(name, reason, ConfigCheck.SHAPE) from None
    if array.dtype.kind in "fiu" and _has_truths(values):
        reason = f"{prefix}true and false are no numbers of a vector"
        raise ConfigError.at(name, reason, ConfigCheck.TYPE)
    return array


def _has_truths(values: Any) -> bool:
    """Tell whether a list, or a nested one, contains True or False."""
    return isinstance(values, list | tuple) and any(
        isinstance(value, bool | np.bool_) or _has_truths(value) for value in values
    )


def plain_value(value: Any) -> Any:
    """Convert NumPy numbers and arrays in a setting to Python numbers and lists."""
    if isinstance(value, np.ndarray) and not (is_masked_array(value) and np.ma.is_masked(value)):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(plain_value(each) for each in value)
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    return value


def decoded(content: bytes, source: str, errors: str = "strict") -> str:
    """Decode UTF-8 text, dropping its byte order mark; ConfigError for an invalid line, UTF-16 or UTF-32."""
    for prefix, name in _BYTE_ORDERS:
        if content.startswith(prefix):
            reason = f"begins with a byte order mark of {name}: save it as UTF-8"
            raise ConfigError.at(source, reason, ConfigCheck.FORMAT)
    try:
        return content.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError.at(f"{source}:{line}", "not UTF-8 text", ConfigCheck.FORMAT) from None


def cells_of(line: str) -> tuple[list[str], bool]:
    """Split a CSV line; return its cells, and whether all quotes are closed at the end of this line."""
    if '"' not in line:
        return line.split(","), True
    # A reader that takes the second line, too, waits for the end of a quote.
    reader = csv.reader((line, ""))
    cells = next(reader)
    return cells, reader.line_num == 1


def named_columns(header: Sequence[str]) -> list[str]:
    """Return a CSV header's column names, stripped, without empty ones at the end."""
    names = [name.strip() for name in header]
    while names and not names[-1]:
        names.pop()
    return names


def fitted(cells: list[str], width: int) -> list[str] | None:
    """Return a CSV row cut to at most `width` cells; None if a cell beyond is not blank."""
    return None if any(map(str.strip, cells[width:])) else cells[:width]


def check_columns(known: Sequence[Any], wanted: Iterable[str], party: str) -> None:
    """Raise ConfigError for wanted columns that a table lacks or has more than once."""
    counts, issues = Counter(known), list[ConfigIssue]()
    shown = ", ".join(map(str, known[:MAX_SHOWN])) or "none"
    for name in wanted:
        if not counts[name]:
            reason = f"{party}: the table has no column {name!r} (columns: {shown})"
            issues.append(ConfigIssue(name, reason, ConfigCheck.MISSING))
        elif counts[name] > 1:
            reason = f"{party}: has {counts[name]} columns {name!r}, needs a header of different column names"
            issues.append(ConfigIssue(name, reason, ConfigCheck.DUPLICATE))
    if issues:
        raise ConfigError(issues)
