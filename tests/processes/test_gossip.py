"""Gossip between processes: the same learner, the same bits as in a simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from smpc_dp.runtime.local import create_local_session
from smpc_dp.simulate.learning import learn

PARTIES = ["ann", "bob", "cho"]
PARAMETERS = {"learner": "gossip-auc", "features": 2, "record_bound": 5.0, "ticks": 12, "seed": 3}


def test_processes_learn_what_the_simulation_learns(tmp_path: Path) -> None:
    session = create_local_session(tmp_path, PARTIES, PARAMETERS, protocol="learn")
    rng = np.random.default_rng(1)
    labels = np.array([0.0, 1.0, 0.0])
    features = rng.normal(size=(3, 2)) + labels[:, None]
    tables = [np.append(row, label)[None] for row, label in zip(features, labels, strict=True)]
    inputs = tmp_path / "inputs"
    inputs.mkdir(exist_ok=True)
    for name, table in zip(PARTIES, tables, strict=True):
        np.save(inputs / f"{name}.npy", table)
    done = subprocess.run(
        [sys.executable, "-m", "smpc_dp", "run", str(session), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    # The grid of the simulation and of the processes is one.
    simulated = learn(PARAMETERS, tables, fidelity="ideal", seed_for_simulation=1)
    for name, row in zip(PARTIES, simulated.values, strict=True):
        np.testing.assert_array_equal(results[name]["values"][0], row)
        assert "NO PRIVACY" in results[name]["claim"]
        assert results[name]["guarantee"] is None
    assert np.abs(simulated.values).max() > 0
