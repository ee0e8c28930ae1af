"""`smpc-dp --log-level` over the processes of a session."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from smpc_dp.identity.address import split_address
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts, load_session

PARTIES = ("ann", "ben", "cat")
PARAMETERS = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.5}
LINE = re.compile(r"[\d:.]{12} (DEBUG|INFO|WARNING|ERROR) (smpc_dp[.\w]*): (.+)")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    (tmp_path / "inputs").mkdir()
    for name in PARTIES:
        (tmp_path / "inputs" / f"{name}.json").write_text("[0.5]")
    return create_local_session(
        tmp_path, PARTIES, PARAMETERS, timeouts=Timeouts(connect=20.0, step=10.0, gather=5.0)
    )


def run(session: Path, level: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smpc_dp", "--log-level", level, "run", str(session), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
def test_all_members_of_a_run_log(session: Path) -> None:
    done = run(session, "debug")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == [0.5]
    lines = [LINE.fullmatch(line) for line in done.stderr.splitlines()]
    assert all(lines), done.stderr
    claimed = [match.groups() for match in lines if match is not None]
    assert {level for level, *_ in claimed} >= {"DEBUG", "INFO"}
    for name in (*PARTIES, "aggregator"):
        assert ("INFO", "smpc_dp.session", f"{name}: request 1: begins") in claimed
        assert ("INFO", "smpc_dp.session", f"{name}: request 1: done, 3 took part") in claimed
        assert ("DEBUG", "smpc_dp.identity", f"opens the identity, {name}.key") in claimed
    for name in PARTIES:
        assert ("INFO", "smpc_dp.session", f"{name}: connected to aggregator") in claimed
        assert ("INFO", "smpc_dp.session", f"aggregator: connected to {name}") in claimed


def test_a_run_that_fails_says_why_beside_its_log(session: Path) -> None:
    (aggregator,) = [member for member in load_session(session).roster if member.role == "aggregator"]
    with socket.create_server(split_address(aggregator.address or "")):
        failed = run(session, "warning")
    assert failed.returncode == 1
    assert f"smpc-dp: aggregator: cannot listen on {aggregator.address}: the port is in use" in failed.stderr
    assert " INFO " not in failed.stderr
    assert failed.stdout == ""
