"""Gossip on reports between processes: the statistic, the ledgers, and a budget that is too small."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.learn.requests.learning import learn
from smpc_dp.capabilities.learn.simulation.learning import learn as simulated_learn
from smpc_dp.cli import app
from smpc_dp.errors import PrivacyError, TimeoutFault
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.command import smpc_dp
from tests.processes.learn_supply import supply

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


def start(folder: Path, epsilon: float, connect: float = 30.0) -> tuple[Path, Path]:
    timeouts = Timeouts(connect=connect, step=20.0, gather=20.0)
    path = create_local_session(folder, PARTIES, PARAMETERS, protocol="learn", timeouts=timeouts)
    inputs, ledgers = folder / "inputs", folder / "ledgers"
    supply(inputs, ledgers, dict(zip(PARTIES, RECORDS, strict=True)), epsilon, 0.0)
    return path, ledgers


def test_one_budget_too_small_charges_nobody(tmp_path: Path) -> None:
    """Neither where all are started together, nor where the others' run never begins."""
    path, ledgers = start(tmp_path, 61.0, connect=1.0)
    small = ledgers / "cho.ledger"
    small.unlink()
    Ledger.create(small, party="cho", dataset="records", relation="substitution", epsilon=59.0, delta=0.0)
    done = CliRunner().invoke(app, ["run", str(path), "--ledgers", str(ledgers)])
    assert done.exit_code == 1
    assert isinstance(done.exception, PrivacyError)
    assert "too small for 1 planned release: cho: " in str(done.exception)
    with pytest.raises(TimeoutFault, match="not reached"):
        asyncio.run(learn(path, "ann", tmp_path / "inputs" / "ann.npy", ledger=ledgers / "ann.ledger"))
    for name in PARTIES:
        assert Ledger.open(ledgers / f"{name}.ledger").entries() == ()


@pytest.mark.long
def test_three_processes_estimate_and_are_charged_one_report(tmp_path: Path) -> None:
    """At epsilon 60 no report lies, but for a chance of 1e-24, so the simulation has the same bits."""
    path, ledgers = start(tmp_path, 61.0)
    done = smpc_dp("run", str(path), "--ledgers", str(ledgers), "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["parties"]
    simulated = simulated_learn(PARAMETERS, RECORDS, fidelity="ideal")
    for name, row in zip(PARTIES, simulated.values, strict=True):
        np.testing.assert_array_equal(results[name]["values"][0], row)
        assert results[name]["guarantee"]["epsilon"] == pytest.approx(60.0)
        assert "randomised response" in results[name]["claim"]
        assert Ledger.open(ledgers / f"{name}.ledger").spent().epsilon == pytest.approx(60.0)
    # A second run would have a second report.
    with pytest.raises(PrivacyError, match="61"):
        asyncio.run(learn(path, "ann", tmp_path / "inputs" / "ann.npy", ledger=ledgers / "ann.ledger"))
