"""Calls of several requests whose members are killed: a regression by steps, and a learner."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.long
@pytest.mark.parametrize("runs", [2, pytest.param(40, marks=[pytest.mark.slow])], ids=["few", "many"])
def test_calls_of_several_requests_go_on_though_members_are_killed(runs: int) -> None:
    """A regression by steps, and a learner whose model is the same bit for bit."""
    command = [sys.executable, "-m", "tests.processes.saved_calls", "--runs", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{runs} of {runs} went on" in done.stdout
