"""Input files of a party: one vector, as .npy, .json or text; and the weights of all parties, as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smpc_dp.encoding import MAX_LENGTH
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.files import log_opening, read_bounded, read_npy
from smpc_dp.fixed_point import EXACT_FLOAT
from smpc_dp.values import decoded, parse_number

SUFFIXES = (".npy", ".json", ".csv", ".txt")
# Of tables, which others read.
TABLE_SUFFIXES = (".csv", ".parquet")
NPY_MAGIC = b"\x93NUMPY"
# Longer numbers are no valid input, and Python refuses to parse them.
MAX_DIGITS = 4000
# Longer vectors need .npy, which holds as many coordinates as a session may have.
MAX_TEXT_BYTES = 1 << 28
MAX_NPY_BYTES = 8 * MAX_LENGTH + (1 << 16)

Vector = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.uint64]


def read_vector(path: str | os.PathLike[str]) -> Vector:
    """Read a vector, unrounded, from a .json, .csv, .txt or .npy file; ConfigError if it is none.

    Whole numbers give int64 (uint64 where one is above 2^63 - 1), all others float64. `.npy` holds a
    one-dimensional array, `.json` a list of numbers, `.csv` and `.txt` numbers separated by commas, blanks or
    lines.

    Raises:
        LocalError: the file cannot be read, or is longer than MAX_NPY_BYTES (.npy) or MAX_TEXT_BYTES.
        ConfigError: it does not hold numbers, or a whole number that would be rounded; names the first.
    """
    file = Path(path)
    if file.suffix not in SUFFIXES:
        raise ConfigError.at(
            str(file), f"unknown kind of file, the known ones are {', '.join(SUFFIXES)}", ConfigCheck.CHOICE
        )
    if file.suffix == ".npy":
        return _numbers(_load_npy(file), file)
    if file.suffix == ".json":
        values = _load_json(file, "the input")
        if not isinstance(values, list):
            raise ConfigError.at(
                str(file), f"must be a list of numbers, is {_kind(values)}", ConfigCheck.TYPE
            )
        return _array(values, file)
    words = (
        (line, index, word)
        for line, content in enumerate(_text(file, "the input").splitlines(), 1)
        for index, word in enumerate(content.replace(",", " ").split(), 1)
    )
    numbers: list[int | float] = []
    for line, index, word in words:
        whole = word.lstrip("+-").isdigit()
        if whole and len(word) > MAX_DIGITS:
            raise ConfigError.at(f"{file}:{line}", f"a number of {len(word)} digits", ConfigCheck.TOO_LARGE)
        number = parse_number(word)
        if number is None:
            raise ConfigError.at(f"{file}:{line}", f"word {index} is not a number", ConfigCheck.TYPE)
        numbers.append(int(word) if whole else number)
    return _array(numbers, file)


def read_weights(path: str | os.PathLike[str], parties: Collection[str]) -> dict[str, int]:
    """Read an integer weight for each party from a JSON file {"alice": 3, ...}; ConfigError if unfit."""
    return read_table(path, parties, "weight")


def read_table(path: str | os.PathLike[str], parties: Collection[str], kind: str) -> dict[str, int]:
    """Read an integer for each party from a JSON file {"alice": 3, ...}; `kind` names it in errors.

    Raises:
        LocalError: the file cannot be read.
        ConfigError: it is no such object, repeats a name, or does not have exactly these names.
    """
    file = Path(path)
    table = _load_json(file, f"the {kind}s")
    if not isinstance(table, dict):
        raise ConfigError.at(str(file), f'must be an object, {{"NAME": {kind}, ...}}', ConfigCheck.TYPE)
    issues = [
        ConfigIssue(f"{file}: {name}", "no party of the roster", ConfigCheck.UNKNOWN_NAME)
        for name in table
        if name not in parties
    ]
    issues += [
        ConfigIssue(f"{file}: {name}", f"has no {kind}", ConfigCheck.MISSING)
        for name in parties
        if name not in table
    ]
    issues += [
        ConfigIssue(f"{file}: {name}", f"the {kind} must be an integer, is {_kind(value)}", ConfigCheck.TYPE)
        for name, value in table.items()
        if isinstance(value, bool) or not isinstance(value, int)
    ]
    if issues:
        raise ConfigError(issues)
    return table


def find_input(folder: str | os.PathLike[str], name: str, suffixes: Collection[str] = SUFFIXES) -> Path:
    """Return the path of NAME with one of the suffixes in a folder; LocalError unless exactly one exists.

    Raises:
        LocalError: there is none, or more than one.
    """
    result = [path for suffix in suffixes if (path := Path(folder) / f"{name}{suffix}").is_file()]
    if len(result) != 1:
        kinds = ", ".join(f"{name}{suffix}" for suffix in suffixes)
        kind = "no input file" if not result else "more than one input file"
        raise LocalError(f"{folder}: {kind} of '{name}' (one of {kinds})")
    return result[0]


def _kind(value: object) -> str:
    """Return the JSON type name of a value, for errors that must not show the value."""
    kinds = {bool: "true or false", str: "a string", list: "a list", dict: "an object", type(None): "null"}
    return kinds.get(type(value), "a number")


def _text(file: Path, name: str) -> str:
    """Return the content of a text file; raise LocalError if it cannot be read."""
    return decoded(read_bounded(file, name, MAX_TEXT_BYTES), str(file))


def _load_json(file: Path, kind: str) -> object:
    """Parse a JSON file and return its data; raise ConfigError if it is not valid JSON."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        table: dict[str, object] = {}
        for name, value in pairs:
            if name in table:
                raise ConfigError.at(f"{file}: {name}", "is there twice", ConfigCheck.DUPLICATE)
            table[name] = value
        return table

    text = _text(file, kind)
    try:
        loaded: object = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ConfigError.at(
            f"{file}:{error.lineno}", f"not JSON ({error.msg})", ConfigCheck.FORMAT
        ) from None
    except RecursionError:
        raise ConfigError.at(str(file), "nested too deeply", ConfigCheck.FORMAT) from None
    except ValueError:
        # The only other error: Python parses no integer of more than some thousand digits.
        raise ConfigError.at(
            str(file), f"holds a number of more than {MAX_DIGITS} digits", ConfigCheck.TOO_LARGE
        ) from None
    return loaded


def _load_npy(file: Path) -> NDArray[np.generic]:
    """Read the array in a .npy file; raise LocalError if it cannot be read, ConfigError if it is none."""
    log_opening(file, "the input")
    try:
        with file.open("rb") as opened:
            if opened.read(len(NPY_MAGIC)) != NPY_MAGIC:
                raise ConfigError.at(str(file), "not a .npy file", ConfigCheck.FORMAT)
            if os.fstat(opened.fileno()).st_size > MAX_NPY_BYTES:
                raise LocalError(f"{file}: cannot read the input (longer than {MAX_NPY_BYTES} bytes)")
            opened.seek(0)
            return read_npy(opened)
    except OSError as error:
        raise LocalError(f"{file}: cannot read the input ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError.at(str(file), f"not an input vector ({error})", ConfigCheck.FORMAT) from None


def _array(values: Sequence[object], file: Path) -> Vector:
    """Convert a list of numbers to an array without rounding; ConfigError for unfit values."""
    wholes: list[int] = []
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError.at(
                str(file), f"[{index}] is not a number, but {_kind(value)}", ConfigCheck.TYPE
            )
        if isinstance(value, int):
            wholes.append(value)
    mixed = len(wholes) < len(values)
    lowest, highest = (-EXACT_FLOAT, EXACT_FLOAT) if mixed else (-(1 << 63), (1 << 64) - 1)
    for index, value in enumerate(values):
        if isinstance(value, int) and not lowest <= value <= highest:
            why = "beyond 2^53, beside numbers with a fraction," if mixed else "beyond 64 bits"
            name = f"[{index}]: a whole number {why} would be rounded"
            raise ConfigError.at(str(file), name, ConfigCheck.RANGE)
    if mixed or not wholes:
        return np.asarray(values, dtype=np.float64)
    if max(wholes) < 1 << 63:
        return np.asarray(wholes, dtype=np.int64)
    if min(wholes) < 0:
        low, high = wholes.index(min(wholes)), wholes.index(max(wholes))
        name = f"[{low}] and [{high}] do not fit into 64 bits together"
        raise ConfigError.at(str(file), name, ConfigCheck.TOO_LARGE)
    return np.asarray(wholes, dtype=np.uint64)


def _numbers(array: NDArray[np.generic], file: Path) -> Vector:
    """Return a vector of numbers as float64, int64 or uint64; raise ConfigError for any other array."""
    if array.ndim != 1:
        raise ConfigError.at(str(file), f"must hold one vector, has shape {array.shape}", ConfigCheck.SHAPE)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise ConfigError.at(str(file), f"must hold numbers, has dtype {array.dtype}", ConfigCheck.TYPE)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
        return array.astype(np.uint64)
    return array.astype(np.int64)
