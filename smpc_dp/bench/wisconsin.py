"""The Breast Cancer Wisconsin (Original) data from its file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.files import read_bounded

Floats = NDArray[np.float64]

FEATURES = 9
MAX_BYTES = 1 << 20
_LABELS = {"benign": 0.0, "malignant": 1.0, "2": 0.0, "4": 1.0}
_MISSING = ("", "NA", "?")


def read_wisconsin(path: Path) -> tuple[Floats, Floats]:
    """Return features, (n, 9) with NaN where missing, and labels, (n,), 1 for malignant.

    The file has eleven columns: a number of the sample, nine features from 1 to 10, the class (benign or
    malignant, or 2 or 4), with or without a line of names; missing values are empty, NA or `?`.

    Raises:
        LocalError: the file cannot be read. ConfigError: naming the line that is wrong.
    """
    try:
        text = read_bounded(path, "the data", MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise LocalError(f"{path}: cannot read the data (not text)") from None
    features, labels = [], []
    for line, cells in enumerate(csv.reader(text.splitlines()), 1):
        if not cells or (line == 1 and cells[-1].strip() not in _LABELS):
            continue
        where = f"{path.name}:{line}"
        if len(cells) != FEATURES + 2:
            raise ConfigError([Fault(where, f"has {len(cells)} columns, not {FEATURES + 2}")])
        if cells[-1].strip() not in _LABELS:
            raise ConfigError([Fault(where, f"its class is none: {cells[-1][:20]!r}")])
        values = []
        for cell in cells[1:-1]:
            if cell.strip() in _MISSING:
                values.append(np.nan)
            elif cell.strip().isdigit() and 1 <= int(cell) <= 10:
                values.append(float(cell))
            else:
                raise ConfigError([Fault(where, f"a feature is not 1 to 10: {cell[:20]!r}")])
        features.append(values)
        labels.append(_LABELS[cells[-1].strip()])
    if not features:
        raise ConfigError([Fault(path.name, "has no records")])
    return np.array(features), np.array(labels)
