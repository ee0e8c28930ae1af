"""`smpc-dp demo` as a party runs it: real processes, one killed, an exact result, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.accessibility import check_accessible
from tests.command import smpc_dp
from tests.pages import Page
from tests.signals import DEFAULT_SIGNALS

COMMAND = [sys.executable, "-m", "smpc_dp", "demo"]
SECONDS = 300


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of all processes that name a file in a folder."""
    result = subprocess.run(["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True)
    return [line for line in result.stdout.splitlines() if str(folder) in line and "smpc_dp.demo." in line]


def wait_until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "kept"


@pytest.fixture(scope="module")
def shown(folder: Path) -> dict[str, Any]:
    command = [*COMMAND, "--json", "--out", str(folder), "--report", str(folder.parent / "report.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert processes_of(folder) == []
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_the_result_is_exact_over_the_survivors(shown: dict[str, Any]) -> None:
    assert shown["exact"] is True
    assert shown["equal"] == shown["length"] == len(shown["fixed_point"])
    assert shown["loans"] == shown["fixed_point"][0] == 9135
    assert shown["r2"] == pytest.approx(shown["pooled"]["r2"], rel=1e-10)
    assert shown["rmse"] == pytest.approx(shown["pooled"]["rmse"], rel=1e-10)


def test_the_killed_lender_is_absent(shown: dict[str, Any]) -> None:
    assert shown["killed"] == "mountain"
    assert shown["absent"] == ["mountain"]
    assert len(shown["survivors"]) == 7
    assert set(shown["aggregator_saw"]) == set(shown["survivors"])
    assert set(shown["evidence"]["survivors"]["signatures"]) <= set(shown["survivors"])
    assert shown["unseen"]["r2"] == pytest.approx(0.418, abs=0.001)


def test_what_the_aggregator_saw_is_masked(shown: dict[str, Any]) -> None:
    vectors = shown["aggregator_saw"].values()
    bits = "".join(f"{int(value, 16):056b}" for vector in vectors for value in vector)
    # 108,192 bits: six standard deviations of a fair coin are 0.9 %. The unmasked vectors are half zeros.
    assert abs(bits.count("1") / len(bits) - 0.5) < 0.0092
    seen = [sum(int(vector[index], 16) for vector in vectors) for index in range(shown["length"])]
    differing = sum(a % 2**56 != b for a, b in zip(seen, shown["fixed_point"], strict=True))
    assert differing == shown["length"]


def test_the_files_are_kept_and_the_keys_are_private(shown: dict[str, Any], folder: Path) -> None:
    assert len(list((folder / "shards").glob("*.csv"))) == 8
    keys = list((folder / "keys").glob("*.key"))
    assert len(keys) == 9
    assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)
    results = {path.stem: json.loads(path.read_text("utf-8")) for path in (folder / "results").iterdir()}
    assert set(results) == set(shown["survivors"])
    assert all(result["fixed_point"] == shown["fixed_point"] for result in results.values())


def test_the_page_has_the_fit_the_loss_and_what_was_sent(
    shown: dict[str, Any], folder: Path, subtests: pytest.Subtests
) -> None:
    with subtests.test("accessible"):
        check_accessible(folder.parent / "report.html")
    page = Page((folder.parent / "report.html").read_text("utf-8"))
    assert page.faults == page.loads == []
    assert f"{shown['means']['int_rate']:,.4f}" in page.cells
    assert f"{shown['r2']:.6f}" in page.cells
    assert shown["aggregator_saw"]["pacific"][0] in page.cells
    assert all(line in page.text for line in shown["not_protected"])
    # Killed before its vector was sent: it is lost, and has steps and bytes of its own all the same.
    assert "mountain (killed)" in page.cells
    assert any(cell in ("lost mountain", "mountain: killed (SIGKILL)") for cell in page.cells)
    assert min(page.cells.count("mountain"), page.cells.count("pacific")) >= 2


@pytest.mark.long
def test_the_report_of_a_run_without_a_kill() -> None:
    environment = {**os.environ, "COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(
        [*COMMAND, "--no-kill"], capture_output=True, text=True, timeout=SECONDS, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "276 of 276 sums are equal to the last digit, over 9,857 loans of 8 lenders." in done.stdout
    assert "Result exact" in done.stdout
    assert "killed" not in done.stdout
    assert "What was not" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    done = smpc_dp("demo", "--json", "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"smpc-dp: --out: {tmp_path} is not empty\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_no_process_outlives_the_demonstration(tmp_path: Path, number: signal.Signals, code: int) -> None:
    folder = tmp_path / "stopped"
    script = DEFAULT_SIGNALS + "from smpc_dp.__main__ import main\nmain()\n"
    with subprocess.Popen(
        [sys.executable, "-c", script, "demo", "--json", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as demo:
        wait_until(lambda: len(processes_of(folder)) == 9, SECONDS)
        demo.send_signal(number)
        output, errors = demo.communicate(timeout=SECONDS)
    assert (demo.returncode, output, errors) == (code, b"", b"")
    wait_until(lambda: processes_of(folder) == [], SECONDS)
