"""A party's input file: one vector, as .npy, .json or text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault, LocalError

SUFFIXES = (".npy", ".json", ".csv", ".txt")


def read_vector(path: str | os.PathLike[str]) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return the vector in a file, shape (length,): int64 if all its numbers are written whole, else float64.

    `.npy` holds a one-dimensional array, `.json` a list of numbers, `.csv` and `.txt` numbers separated by
    commas, blanks or lines.

    Raises:
        LocalError: the file cannot be read.
        ConfigError: it does not hold numbers; names the first that is none.
    """
    file = Path(path)
    if file.suffix not in SUFFIXES:
        raise ConfigError(
            [Fault(str(file), f"unknown kind of file, the known ones are {', '.join(SUFFIXES)}")]
        )
    try:
        if file.suffix == ".npy":
            array = np.load(file, allow_pickle=False)
            return _numbers(array, file)
        text = file.read_text("utf-8")
    except OSError as error:
        raise LocalError(f"{file}: cannot read the input ({error.strerror})") from None
    except (ValueError, EOFError) as error:
        raise ConfigError([Fault(str(file), f"not an input vector ({error})")]) from None
    if file.suffix == ".json":
        try:
            return _numbers(_array(json.loads(text), file), file)
        except json.JSONDecodeError as error:
            raise ConfigError([Fault(f"{file}:{error.lineno}", error.msg)]) from None
    words = [
        (line, word)
        for line, content in enumerate(text.splitlines(), 1)
        for word in content.replace(",", " ").split()
    ]
    values: list[int | float] = []
    for line, word in words:
        try:
            values.append(int(word) if word.lstrip("+-").isdigit() else float(word))
        except ValueError:
            raise ConfigError([Fault(f"{file}:{line}", f"{word!r} is not a number")]) from None
    return _numbers(_array(values, file), file)


def find_input(folder: str | os.PathLike[str], name: str) -> Path:
    """Return the input file of a party in a folder: NAME with one of the known suffixes.

    Raises:
        LocalError: there is none, or more than one.
    """
    found = [path for suffix in SUFFIXES if (path := Path(folder) / f"{name}{suffix}").is_file()]
    if len(found) != 1:
        kinds = ", ".join(f"{name}{suffix}" for suffix in SUFFIXES)
        what = "no input file" if not found else "more than one input file"
        raise LocalError(f"{folder}: {what} of '{name}' (one of {kinds})")
    return found[0]


def _array(values: object, file: Path) -> NDArray[np.generic]:
    if isinstance(values, list):
        for place, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError([Fault(str(file), f"[{place}] is not a number: {value!r}")])
    try:
        return np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ConfigError([Fault(str(file), f"not an input vector ({error})")]) from None


def _numbers(array: NDArray[np.generic], file: Path) -> NDArray[np.float64] | NDArray[np.int64]:
    if array.ndim != 1:
        raise ConfigError([Fault(str(file), f"must hold one vector, has shape {array.shape}")])
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return array.astype(np.int64)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise ConfigError([Fault(str(file), f"must hold numbers, has dtype {array.dtype}")])
    return array.astype(np.float64)
