"""Checked totals of real processes over real sockets, one of which is killed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.cli import run as command
from smpc_dp.results.audit import audit_result
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.launcher import Launcher
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp_verify.result import audit_result as audit_again
from tests.command import smpc_dp

PARTIES = tuple(f"party{number}" for number in range(1, 7))
VICTIM = PARTIES[2]
VECTORS = {name: [float(number), -2.5 * number, 1.0 / number] for number, name in enumerate(PARTIES, start=1)}


class KillingLauncher(Launcher):
    """Kills a party when it waits at a step."""

    step = ""

    def __init__(self, on_event: OnEvent, *, own_errors: bool = False) -> None:
        def watch(event: Event) -> None:
            if (event.party, event.kind, event.step) == (VICTIM, "step", self.step):
                self.kill(VICTIM)
            on_event(event)

        super().__init__(watch, own_errors=own_errors)


@pytest.mark.long
@pytest.mark.parametrize("step", ["start", "participants", "survivors"])
def test_the_checked_sum_is_exact_though_a_party_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A vector that was sent is in the sum, and its commitment is among those that each party checks."""
    parameters: dict[str, object] = {
        "length": 3,
        "lower": -100.0,
        "upper": 100.0,
        "precision": 1e-3,
        "dropout": 0.34,
        "corrupt": 0.0,
        "total": "checked",
    }
    session = create_local_session(tmp_path, PARTIES, parameters, timeouts=Timeouts(connect=20.0, step=20.0))
    (tmp_path / "inputs").mkdir()
    for name, vector in VECTORS.items():
        (tmp_path / "inputs" / f"{name}.json").write_text(json.dumps(vector))
    monkeypatch.setattr(KillingLauncher, "step", step)
    monkeypatch.setattr(command, "Launcher", KillingLauncher)
    done = smpc_dp("run", str(session), "--operation", "sum", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["evidence"]["checked"] is True
    survivors = result["survivors"]
    # The kill may land after the answer to this step was sent; only then the victim is a survivor.
    assert set(PARTIES) - {VICTIM} <= set(survivors)
    if step == "survivors":
        assert VICTIM in survivors
    rows = np.rint(np.array([VECTORS[name] for name in survivors]) * 1024).astype(np.int64)
    assert result["fixed_point"] == rows.sum(axis=0).tolist()
    # Whoever has the result and the session file finds the same, without a key.
    stored, run = tmp_path / "result.json", result["evidence"]["run_id"]
    stored.write_text(done.stdout)
    assert (audit_result(stored, session=session, run=run).code, audit_again(stored, session, run).code) == (
        0,
        0,
    )
