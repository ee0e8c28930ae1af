"""`smpc-dp demo --verifiable` as a party runs it: real processes, a cheat named and left out, an audit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.accessibility import check_accessible
from tests.baselines.schemas import faults
from tests.command import smpc_dp
from tests.pages import Page


@pytest.mark.long
@pytest.mark.slow
def test_cheats_are_named_and_left_out(tmp_path: Path, subtests: pytest.Subtests) -> None:
    folder = tmp_path / "kept"
    report = ["--report", str(tmp_path / "demo.html")]
    done = subprocess.run(
        [sys.executable, "-m", "smpc_dp", "demo", "--verifiable", "--json", "--out", str(folder), *report],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert faults(printed) == []
    first, second = printed["runs"]
    assert (first["cheat"], first["culprit"]) == ("range", "mountain")
    assert (second["cheat"], second["culprit"]) == ("noise", "pacific")
    assert "range proof" in first["reason"]
    assert "noise proof" in second["reason"]
    for run in (first, second):
        assert run["audit"]["ok"]
        assert run["audit"]["conclusion"].startswith("Everything holds")
        assert not run["changed"]["ok"]
        assert run["changed"]["line"] is not None
        # 1.96 standard errors are half of an interval: a false alarm in 3e11 values.
        for answer, range_of in zip(run["answers"], (10_000, 40), strict=True):
            half = (answer["high"] - answer["low"]) / 2
            assert abs(answer["value"] - answer["truth"]) < 7.2 / 1.96 * half
            # Useful: an interval below a hundredth of the range.
            assert 2 * half < 0.01 * range_of
    [lender, *_] = sorted((folder / "results").glob("*.json"))
    head = json.loads(lender.read_bytes())["evidence"]["log"]["head"]
    selected = ["--session", str(folder / "session.toml"), "--head", head]
    audits = {
        name: smpc_dp("audit", str(folder / name), *selected, "--report", str(tmp_path / f"{name}.html"))
        for name in ("board.jsonl", "changed.jsonl")
    }
    pages = {path.name: Page(path.read_text("utf-8")) for path in tmp_path.glob("*.html")}
    assert all(page.faults == page.loads == [] for page in pages.values())
    with subtests.test("accessible"):
        check_accessible(*tmp_path.glob("*.html"))
    assert all(run["audit"]["conclusion"] in pages["demo.html"].text for run in (first, second))
    assert f"smpc-dp audit {folder}" in pages["demo.html"].text
    assert "protected in each run, with epsilon = 1.0 and delta = 1e-06" in pages["demo.html"].text
    assert "not that a sum is that of its own loans" in pages["demo.html"].text
    # The same loans are in both runs, each of epsilon 1 and delta 1e-6.
    assert {"all runs together", "2", "2e-06"} <= set(pages["demo.html"].cells)
    right, wrong = pages["board.jsonl.html"], pages["changed.jsonl.html"]
    assert first["audit"]["conclusion"] in right.text
    assert head in right.cells
    assert {"mountain", "excluded"} <= set(right.cells)
    assert first["changed"]["conclusion"] in wrong.text
    assert "What does not hold" in wrong.text
    assert "What each role saw" in right.text
    assert "What each role saw" not in wrong.text
    assert audits["board.jsonl"].returncode == 0
    assert "excluded: mountain" in audits["board.jsonl"].stdout
    assert audits["changed.jsonl"].returncode == 1
    assert "line" in audits["changed.jsonl"].stderr
    # The relay's store has the same log, and can be read again.
    [board] = (folder / "board").glob("*.board")
    assert smpc_dp("board", "export", str(board), str(tmp_path / "again.jsonl")).returncode == 0
    assert (tmp_path / "again.jsonl").read_bytes() == (folder / "board.jsonl").read_bytes()
