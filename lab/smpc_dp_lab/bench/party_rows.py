"""Tables of parties with two classes: read from a file, or synthetic; and their random splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.data import read_table
from smpc_dp.errors import ConfigCheck, ConfigError

Floats = NDArray[np.float64]

TESTED, WIDTH = 0.3, 3.0
SYNTHETIC = "synthetic parties in two clusters of linear tasks"


def read_parties(path: Path) -> Floats:
    """Read a table of party, features and label 0 or 1; raise ConfigError for another one, LocalError."""
    table = read_table(path)
    # Written so that NaN fails.
    if table.shape[1] < 3 or not (np.isfinite(table).all() and np.isin(table[:, -1], (0, 1)).all()):
        reason = "must be columns of numbers: party, features, label 0 or 1"
        raise ConfigError.at(str(path), reason, ConfigCheck.SHAPE)
    parties, counts = np.unique(table[:, 0], return_counts=True)
    if len(parties) < 3 or counts.min() < 4:
        reason = (
            f"has {len(parties)} parties, the least with {counts.min()} records: needs 3 parties of 4 records"
        )
        raise ConfigError.at(str(path), reason, ConfigCheck.SHAPE)
    return table


def synthetic_parties(seed: int, parties: int = 20, features: int = 5) -> Floats:
    """Return the table of parties of two clusters with opposite tasks, with 6 to 30 records each."""
    rng = np.random.default_rng([seed, 21])
    rows = []
    for party in range(parties):
        x = rng.normal(size=(int(rng.integers(6, 31)), features))
        slope = np.r_[1.0, 1.0 if party % 2 else -1.0, np.zeros(features - 2)] + 0.2 * rng.normal(
            size=features
        )
        rows.append(np.column_stack([np.full(len(x), party), x, (x @ slope + 0.3 > 0)]))
    return np.concatenate(rows)


def split(table: Floats, seed: int) -> tuple[list[Floats], list[Floats]]:
    """Return training and test tables of the parties, features in [-1, 1] by mean and deviation of all."""
    features = table[:, 1:-1]
    scaled = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-12) / WIDTH
    rows = np.column_stack([np.clip(scaled, -1, 1), table[:, -1]])
    rng, given, tests = np.random.default_rng([seed, 22]), [], []
    for party in np.unique(table[:, 0]):
        own = rng.permutation(rows[table[:, 0] == party])
        count = max(1, round(TESTED * len(own)))
        tests.append(own[:count])
        given.append(own[count:])
    return given, tests
