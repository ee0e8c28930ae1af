"""Snippets of the README and of the guide to embedded averages, in sessions over real sockets."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import smpc_dp
from smpc_dp.cli import app
from smpc_dp.errors import Code
from smpc_dp.session.local import create_local_session
from tests.snippets import block, execute, run_as

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
PARTIES = ("alice", "bob", "carol", "dave", "erin")


@pytest.mark.long
def test_the_shell_block_runs(tmp_path: Path) -> None:
    script = block("README.md", "sh", "smpc-dp init")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "tolerates 1 lost, 1 corrupt of 5 parties, quorum 4" in done.stdout
    assert "5 of 5 parties" in done.stdout


@pytest.mark.parametrize("protocol", ["secagg", "gopa"])
async def test_the_private_session_runs_with_either_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (epsilon, delta) = re.findall(r"`epsilon = ([^`]*)` and `delta = ([^`]*)`", README)[0]
    given = {"length": 2, "lower": 0.0, "upper": 1.0, "epsilon": float(epsilon), "delta": float(delta)}
    create_local_session(tmp_path, PARTIES, given, protocol=protocol)
    create = "ledger create alice.ledger --party alice --dataset vectors --epsilon 5 --delta 1e-5"
    for name in PARTIES:
        made = CliRunner().invoke(app, shlex.split(create.replace("alice", name)))
        assert made.exit_code == 0, made.output
    program = block("README.md", "python no-run", 'ledger="alice.ledger"')
    names = {"vector": np.array([0.25, 0.75])}
    ended = await execute({name: run_as(name, program, names) for name in PARTIES})
    for variables in ended:
        average = variables["average"]
        assert average.privacy.epsilon == given["epsilon"]
        assert average.privacy.receipt is not None
        # Six standard errors: a false alarm has a probability below 1e-8.
        assert np.all(np.abs(average.value - names["vector"]) < 6 * average.standard_error)


class Others:
    """Session of a process that was started anew, whose others ask for the request `asked`."""

    def __init__(self, asked: int, lost: Code | None = None) -> None:
        self.asked, self.lost = asked, lost
        self.sent: list[tuple[int, float, float]] = []

    async def average(self, vector: Any, *, weight: float, number: int) -> Any:
        if number < self.asked and self.lost:
            raise smpc_dp.TimeoutFault({"alice"}, "", code=self.lost, number=self.asked)
        if number < self.asked:
            raise smpc_dp.OtherRequestError("alice", number, "", self.asked - 1, "", self.asked)
        self.sent.append((number, weight, float(vector[0])))
        return SimpleNamespace(value=np.array([10.0 * number]))


@pytest.mark.parametrize("lost", [None, Code.BEGUN])
async def test_the_embedded_loop_of_a_late_process_adds_nothing_of_its_old_model(
    monkeypatch: pytest.MonkeyPatch, lost: Code | None
) -> None:
    """It joins request 3 with weight 0, and goes on from the average; past the last round it ends."""
    program = block("docs/guides/embed.md", "python no-run", "number, weight = 1")
    names = {"x": [], "y": [0.0] * 7, "model": np.zeros(1), "rate": 1.0, "rounds": 4}
    names["gradient"] = lambda model, _x, _y: model - model - 1.0
    others = Others(3, lost)
    monkeypatch.setattr(smpc_dp, "connect", lambda *_, **_named: contextlib.nullcontext(others))
    learned = await run_as("alice", program, names)
    assert [(number, weight) for number, weight, _ in others.sent] == [(3, 0), (4, 7)]
    assert others.sent[1][2] == 31.0
    assert learned["model"].tolist() == [40.0]
    others.asked = 5
    with pytest.raises(smpc_dp.TimeoutFault if lost else smpc_dp.OtherRequestError):
        await run_as("alice", program, names)
    others.asked, others.lost = 3, Code.FEW
    with pytest.raises(smpc_dp.TimeoutFault):
        await run_as("alice", program, names)


@pytest.mark.long
async def test_the_embedded_loop_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "`max_weight = 1000`" in (Path(__file__).parents[2] / "docs/guides/embed.md").read_text("utf-8")
    parameters = {"length": 2, "lower": -10.0, "upper": 10.0, "precision": 1e-6, "max_weight": 1000}
    create_local_session(tmp_path, PARTIES, parameters)
    program = block("docs/guides/embed.md", "python no-run", "number, weight = 1")

    def gradient(model: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(x.T @ (x @ model - y) / len(y))

    loops = {}
    for index, name in enumerate(PARTIES):
        x = np.random.default_rng(index).normal(size=(20 + index, 2))
        names = {"x": x, "y": x @ [1.0, -2.0], "model": np.zeros(2), "rate": 0.5, "rounds": 12}
        loops[name] = run_as(name, program, names | {"gradient": gradient})
    ended = await execute(loops)
    for variables in ended:
        assert variables["average"].weight == 20 + 21 + 22 + 23 + 24
        np.testing.assert_array_equal(variables["model"], ended[0]["model"])
        np.testing.assert_allclose(variables["model"], [1.0, -2.0], atol=0.1)
