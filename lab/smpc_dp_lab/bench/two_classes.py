"""Tables of two classes for `without_replacement`: Covertype, MNIST, and stand-ins of their shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.data import read_table
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.optional import import_optional

Floats = NDArray[np.float64]
Kind = Literal["covertype", "mnist"]

COVERTYPE, PIXELS, COMPONENTS = 54, 784, 50
STAND_INS = {
    "covertype": "synthetic, of the shape of Covertype with two classes",
    "mnist": "synthetic, of the shape of 50 principal components of MNIST with two classes",
}


def synthetic(kind: Kind, rows: int, seed: int) -> Floats:
    """Return synthetic rows like Covertype or MNIST, with a label 0 or 1 in the last column."""
    rng, fixed = np.random.default_rng([seed, 54]), np.random.default_rng(54)
    if kind == "mnist":
        # Ten digits, each a Gaussian around its own centre; variances fall as those of principal components.
        widths = 1 / np.sqrt(1 + np.arange(COMPONENTS))
        centres, digits = fixed.normal(size=(10, COMPONENTS)) * widths * 0.7, rng.integers(0, 10, rows)
        return np.column_stack([centres[digits] + rng.normal(size=(rows, COMPONENTS)) * widths, digits % 2])
    # Ten numbers, one-hot codes of 4 areas and of 40 soils.
    numbers = rng.normal(size=(rows, 10)) @ (0.3 * np.ones((10, 10)) + np.eye(10))
    area, soil = rng.choice(4, rows, p=[0.45, 0.05, 0.44, 0.06]), rng.zipf(1.4, rows) % 40
    codes = np.c_[np.eye(4)[area], np.eye(40)[soil]]
    score = np.tanh(numbers @ fixed.normal(size=10)) * 2 + codes @ fixed.normal(size=44) * 1.5
    return np.column_stack([numbers, codes, rng.random(rows) < 1 / (1 + np.exp(-1.5 * score))])


def read(kind: Kind, path: Path) -> Floats:
    """Read Covertype (UCI), class 2 against the others, or MNIST, odd digits against even ones.

    Raises:
        ConfigError: it is not 54 columns and a class from 1 to 7, or 784 pixels and a digit. LocalError.
    """
    columns, classes = (COVERTYPE, range(1, 8)) if kind == "covertype" else (PIXELS, range(10))
    table = read_table(path)
    if table.shape[1] != columns + 1 or not np.isin(table[:, -1], classes).all():
        reason = f"must be {columns} columns and a class from {classes[0]} to {classes[-1]}"
        raise ConfigError.at(str(path), reason, ConfigCheck.SHAPE)
    return np.column_stack([table[:, :-1], table[:, -1] == 2 if kind == "covertype" else table[:, -1] % 2])


def fetched_covertype() -> Floats | None:
    """Return scikit-learn's copy of Covertype where it was fetched before, without asking the network."""
    try:
        copy = import_optional("sklearn.datasets").fetch_covtype(download_if_missing=False)
    except (OSError, LocalError):
        return None
    return np.column_stack([copy.data, copy.target == 2])


def scaled(table: Floats, public: Floats) -> Floats:
    """Return rows on the unit sphere, after centre and width of public rows, and their principal axes.

    More than 54 columns are taken for pixels, and the 50 first principal components of the public rows.
    """
    centre = public[:, :-1].mean(axis=0)
    features = table[:, :-1] - centre
    if features.shape[1] > COVERTYPE:
        _, _, axes = np.linalg.svd(public[:, :-1] - centre, full_matrices=False)
        features = features @ axes[:COMPONENTS].T
    else:
        features = features / (public[:, :-1].std(axis=0) + 1e-9)
    lengths = np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    return np.column_stack([features / lengths, table[:, -1]])
