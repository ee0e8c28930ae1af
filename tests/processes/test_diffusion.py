"""Diffusion between processes over real sockets: the guarantee, the ledgers, and models that learn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.learn.models import Model
from smpc_dp.learn.registry import check_learn
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.runtime.learning import learn
from smpc_dp.runtime.local import create_local_session
from smpc_dp.runtime.session_file import Timeouts

PARTIES = ("ann", "ben", "cat", "dan")
PARAMETERS: dict[str, object] = {
    "learner": "diffusion",
    "features": 2,
    "steps": 6,
    "epsilon": 90.0,
    "rate": 0.5,
    "clip": 1.0,
}


def tables() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    found = []
    for _ in PARTIES:
        points = rng.normal(size=(40, 2))
        found.append(np.c_[points, points @ [2.0, -1.0] > 0])
    return found


def accuracy(model: np.ndarray) -> float:
    return Model("logistic", 2).accuracy(model, np.concatenate(tables()))


def start(folder: Path, epsilon: float) -> tuple[Path, Path]:
    timeouts = Timeouts(connect=30.0, step=20.0, gather=20.0)
    path = create_local_session(folder, PARTIES, PARAMETERS, protocol="learn", timeouts=timeouts)
    inputs, ledgers = folder / "inputs", folder / "ledgers"
    for made in (inputs, ledgers):
        made.mkdir()
    for name, table in zip(PARTIES, tables(), strict=True):
        np.save(inputs / f"{name}.npy", table)
        Ledger.create(
            ledgers / f"{name}.ledger",
            party=name,
            dataset="points",
            relation="substitution",
            epsilon=epsilon,
            delta=0.0,
        )
    return path, ledgers


def run(path: Path, ledgers: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smpc_dp", "run", str(path), "--ledgers", str(ledgers), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_four_processes_learn_and_are_charged_once(tmp_path: Path) -> None:
    path, ledgers = start(tmp_path, 100.0)
    done = run(path, ledgers)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    text = json.dumps(shown)
    assert "every agent's model" in text
    for name in PARTIES:
        ledger = Ledger.open(ledgers / f"{name}.ledger")
        assert ledger.spent().epsilon == pytest.approx(90.0, rel=1e-3)
    models = [np.array(found["values"][0]) for found in shown.values()]
    assert len(models) == 4
    # Noise of scale 0.07 beside models of norm 1 and more.
    assert min(map(accuracy, models)) > 0.8
    simulated = simulate.learn(PARAMETERS, tables(), fidelity="plain")
    assert min(accuracy(model) for model in simulated.values) > 0.8
    assert simulated.guarantee is not None
    assert simulated.guarantee.epsilon == pytest.approx(90.0, rel=1e-3)


def test_a_ledger_that_does_not_reach_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """Nobody listens: who came so far as to connect would fail otherwise."""
    path, ledgers = start(tmp_path, 80.0)
    with pytest.raises(PrivacyError, match="80"):
        asyncio.run(learn(path, "ann", tmp_path / "inputs" / "ann.npy", ledger=ledgers / "ann.ledger"))
    assert not Ledger.open(ledgers / "ann.ledger").spent().epsilon


def test_settings_are_checked() -> None:
    for change, named in (
        ({"rate": 2.0, "ridge": 1.0}, "must be at most 1"),
        ({"epsilon": 1e-3, "steps": 5_000}, "too much noise"),
        ({"epsilon": 1_000.0}, "epsilon"),
        ({"epsilon": 1e-6, "steps": 100_000}, "epsilon: 1e-06 is too small for 100000 steps"),
        ({"topology": "grid"}, "topology"),
    ):
        _, faults = check_learn(PARAMETERS | change, 4)
        assert any(named in str(fault) for fault in faults), (change, faults)
    assert check_learn(PARAMETERS, 2)[1]
    with pytest.raises(ConfigError, match="user 1"):
        simulate.learn(PARAMETERS, [tables()[0], np.zeros((3, 2)), *tables()[2:]])
