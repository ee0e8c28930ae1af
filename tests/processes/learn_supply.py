"""What the parties of a session that learns bring: tables, and ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.guarantee import Relation, Unit


def create_ledgers(
    folder: Path,
    names: Iterable[str],
    epsilon: float,
    delta: float,
    unit: Unit = "party",
    relation: Relation = "substitution",
) -> None:
    """Create the ledger NAME.ledger of each party, all of one budget."""
    folder.mkdir(exist_ok=True)
    for name in names:
        Ledger.create(
            folder / f"{name}.ledger",
            party=name,
            dataset="records",
            relation=relation,
            epsilon=epsilon,
            delta=delta,
            unit=unit,
        )


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
    for name, table in tables.items():
        np.save(inputs / f"{name}.npy", table)
    create_ledgers(ledgers, tables, epsilon, delta, unit)
