"""California houses (StatLib; OpenML 823), as a classification: is the median value below the mean?"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError

ROWS, COLUMNS = 20_640, 9


class Houses(NamedTuple):
    """Houses with `features`, (rows, 8), and `labels`, (rows,), 1 below the mean value and -1 above."""

    name: str
    features: NDArray[np.float64]
    labels: NDArray[np.float64]


def load_houses(path: Path) -> Houses:
    """Read the table: 20,640 rows of 9 numbers without a header, the last the median value; .csv or .csv.gz.

    Raises:
        ConfigError: naming the line, for anything else. OSError: the file cannot be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    rows = []
    with opener(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                values = [float(value) for value in line.split(",")]
            except ValueError:
                raise ConfigError.at(
                    f"{path.name}, line {number}", "is not numbers", ConfigCheck.FORMAT
                ) from None
            if len(values) != COLUMNS or not np.isfinite(values).all():
                name = f"must be {COLUMNS} finite numbers, has {len(values)}"
                raise ConfigError.at(f"{path.name}, line {number}", name, ConfigCheck.RANGE)
            rows.append(values)
    if len(rows) != ROWS:
        raise ConfigError.at(path.name, f"has {len(rows)} rows, not {ROWS}", ConfigCheck.RANGE)
    table = np.array(rows)
    value = table[:, -1]
    return Houses("California houses", table[:, :-1], np.where(value < value.mean(), 1.0, -1.0))


def synthetic_houses(seed: int) -> Houses:
    """Return synthetic houses: correlated Gaussian features, and a label by a noisy linear value."""
    rng = np.random.default_rng([seed, 4])
    common = rng.normal(size=(ROWS, 1))
    features = 0.6 * common + 0.8 * rng.normal(size=(ROWS, COLUMNS - 1))
    slope = np.array([-1.0, -1.0, 0.3, -0.5, 0.7, -0.8, 0.5, 1.4])
    value = np.exp(0.35 * (features @ slope) + 0.35 * rng.normal(size=ROWS))
    labels = np.where(value < value.mean(), 1.0, -1.0)
    return Houses("synthetic, of the shape of the California houses", features, labels)
