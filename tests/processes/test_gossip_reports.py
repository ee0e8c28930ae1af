"""Gossip on reports between processes: the statistic, the ledgers, and a budget that is too small."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.errors import PrivacyError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.runtime.learning import learn
from smpc_dp.runtime.local import create_local_session
from smpc_dp.simulate.learning import learn as simulated_learn

PARTIES = ("ann", "bob", "cho")
PARAMETERS: dict[str, object] = {
    "learner": "gossip-reports",
    "statistic": "gini_mean_difference",
    "lower": 0.0,
    "upper": 1.0,
    "bins": 10,
    "epsilon": 60.0,
    "ticks": 40,
    "seed": 3,
}
RECORDS = [np.array([[value]]) for value in (0.1, 0.52, 0.98)]


def start(folder: Path, epsilon: float) -> tuple[Path, Path]:
    path = create_local_session(folder, PARTIES, PARAMETERS, protocol="learn")
    inputs, ledgers = folder / "inputs", folder / "ledgers"
    inputs.mkdir(exist_ok=True)
    ledgers.mkdir()
    for name, table in zip(PARTIES, RECORDS, strict=True):
        np.save(inputs / f"{name}.npy", table)
        Ledger.create(
            ledgers / f"{name}.ledger",
            party=name,
            dataset="records",
            relation="substitution",
            epsilon=epsilon,
            delta=0.0,
        )
    return path, ledgers


def test_three_processes_estimate_and_are_charged_one_report(tmp_path: Path) -> None:
    """At epsilon 60 no report lies, but for a chance of 1e-24, so the simulation has the same bits."""
    path, ledgers = start(tmp_path, 61.0)
    command = [sys.executable, "-m", "smpc_dp", "run", str(path), "--ledgers", str(ledgers), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    simulated = simulated_learn(PARAMETERS, RECORDS, fidelity="ideal")
    for name, row in zip(PARTIES, simulated.values, strict=True):
        np.testing.assert_array_equal(results[name]["values"][0], row)
        assert results[name]["guarantee"]["epsilon"] == pytest.approx(60.0)
        assert "randomised response" in results[name]["claim"]
        assert Ledger.open(ledgers / f"{name}.ledger").spent().epsilon == pytest.approx(60.0)
    # A second run would have a second report.
    with pytest.raises(PrivacyError, match="61"):
        asyncio.run(learn(path, "ann", tmp_path / "inputs" / "ann.npy", ledger=ledgers / "ann.ledger"))
