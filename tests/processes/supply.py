"""What the parties of a session that learns bring: tables, and ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.guarantee import Unit


def supply(
    inputs: Path,
    ledgers: Path,
    tables: Mapping[str, np.ndarray],
    epsilon: float,
    delta: float,
    unit: Unit = "party",
) -> None:
    """Write each party's table and create its ledger, of a budget for substitution."""
    inputs.mkdir(exist_ok=True)
    ledgers.mkdir(exist_ok=True)
    for name, table in tables.items():
        np.save(inputs / f"{name}.npy", table)
        Ledger.create(
            ledgers / f"{name}.ledger",
            party=name,
            dataset="records",
            relation="substitution",
            epsilon=epsilon,
            delta=delta,
            unit=unit,
        )
