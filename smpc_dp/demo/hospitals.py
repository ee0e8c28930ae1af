"""The example of `smpc-dp init --example hospitals`: five hospitals with made-up records of stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from smpc_dp.privacy.accountant.ledger import Ledger

HOSPITALS = ("north", "east", "south", "west", "centre")
LOST, COLLUDING = 1, 1
EPSILON, DELTA = 1.0, 1e-6
ROWS = 600
WARDS = ("medicine", "paediatrics", "surgery")
PARAMETERS: dict[str, object] = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "ask": ["count", "mean(stay)", "mean(stay) by ward", "quantile(age, 0.25, 0.5, 0.75)"],
    "records": {
        "unit": "record",
        "max_rows": 1000,
        "rows_expected": ROWS * len(HOSPITALS),
        "columns": {
            "age": {"lower": 0, "upper": 100},
            "stay": {"lower": 0, "upper": 30},
            "ward": {"values": [*WARDS]},
        },
    },
}


def write_inputs(folder: Path) -> None:
    """Write a table for each hospital into the folder `inputs`, and a new ledger into `ledgers`."""
    (folder / "ledgers").mkdir(mode=0o700)
    for number, name in enumerate(HOSPITALS):
        lines = ["age,stay,ward", *_rows(number)]
        (folder / "inputs" / f"{name}.csv").write_text("\n".join(lines) + "\n", "ascii")
        Ledger.create(
            folder / "ledgers" / f"{name}.ledger",
            party=name,
            dataset="made-up stays",
            relation="add-remove",
            unit="record",
            epsilon=2 * EPSILON,
            delta=2 * DELTA,
        )


def _rows(hospital: int) -> Iterator[str]:
    """Yield the lines of a hospital's made-up table, equal in every call."""
    source = np.random.default_rng(hospital)
    ages = source.integers(0, 96, ROWS)
    stays = np.clip(np.rint(source.gamma(2, 1 + ages / 40)), 0, 30).astype(int)
    for age, stay, ward in zip(ages, stays, source.choice(WARDS, ROWS), strict=True):
        yield f"{age},{stay},{ward}"
