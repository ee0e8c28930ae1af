"""`smpc-dp bench learn` and the two reproductions, at small sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.learn.data import wisconsin
from smpc_dp.cli import app
from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.gosta import gosta_errors
from smpc_dp_lab.bench.learn import run_learn_bench

# Stands in for the authors' code: the names that are called, and an honest step.
SOLVER = """
import numpy as np

class GoStaSolver:
    def __init__(self, x, h, edges_seq, is_asynchronous, saving_step, target, h_gram, asynchronous_weights):
        self.edges, self.n, self.h_gram = edges_seq, len(x), h_gram

    def update_from_sequence(self):
        held, z = np.arange(self.n), np.zeros(self.n)
        for t, (i, j) in enumerate(self.edges):
            held[[i, j]] = held[[j, i]]
            z[[i, j]] = z[[i, j]].mean()
            z = (t * z + self.h_gram[np.arange(self.n), held]) / (t + 1)
"""


@pytest.mark.long
def test_an_absent_peer_is_null() -> None:
    report = run_learn_bench(1, sizes=[100])
    figures = report.to_json()["figures"]
    assert isinstance(figures, list)
    assert [figure["name"] for figure in figures] == [
        f"{learner} {clock}, n = 100"
        for clock in ("synchronous", "asynchronous")
        for learner in ("GoSta", "dual averaging")
    ] + ["coordinate descent, n = 100", "graph of n = 100"]
    assert all(figure["peer"] is None and figure["met"] is None for figure in figures[:4])
    assert [figure["peer"]["name"] for figure in figures[4:]] == ["a loop in numpy"] * 2
    assert all(figure["median"] > 0 for figure in figures)
    assert report.versions["gosta"] is None


@pytest.mark.long
def test_a_peer_is_measured(tmp_path: Path) -> None:
    (tmp_path / "gossip_solver.py").write_text(SOLVER, "utf-8")
    figures = {figure.name: figure for figure in run_learn_bench(1, sizes=[100], peer=str(tmp_path)).figures}
    for clock in ("synchronous", "asynchronous"):
        assert figures[f"GoSta {clock}, n = 100"].ratio_to_peer is not None
        assert figures[f"dual averaging {clock}, n = 100"].peer is None


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"runs.*sizes"):
        run_learn_bench(0, sizes=[10])


@pytest.mark.long
def test_reproduce_gosta(tmp_path: Path) -> None:
    plot = tmp_path / "gosta.png"
    arguments = ["reproduce", "gosta", "--parties", "60", "--iterations", "1200", "--repetitions", "12"]
    done = CliRunner().invoke(app, [*arguments, "--plot", str(plot), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert result["bound_holds"]
    curves = {(curve["graph"], curve["method"]): curve for curve in result["curves"]}
    assert len(curves) == 6
    for graph in ("complete", "Watts-Strogatz", "odd grid"):
        ours, theirs = curves[graph, "GoSta"], curves[graph, "U2-gossip"]
        assert ours["error"][-1] < theirs["error"][-1]
        assert ours["bias"][-1] < ours["error"][-1]
    assert curves["complete", "GoSta"]["error"][-1] < curves["odd grid", "GoSta"]["error"][-1]
    assert 0.5 < result["auc"] < 1
    short = ["reproduce", "gosta", "--parties", "12", "--iterations", "60", "--repetitions", "1"]
    printed = CliRunner().invoke(app, [*short, "--plot", str(plot)])
    assert "Theorem 3.1 above the error at all times: yes" in printed.stdout


@pytest.mark.long
def test_reproduce_dual_averaging(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    labels = rng.random(60) < 0.4
    features = np.clip(rng.integers(1, 8, size=(60, 9)) + 3 * labels[:, None], 1, 10)
    lines = ["Id,a,b,c,d,e,f,g,h,i,Class"]
    for number, (row, label) in enumerate(zip(features, labels, strict=True)):
        cells = [str(cell) for cell in row]
        cells[5] = "?" if number == 3 else cells[5]
        lines.append(",".join([str(number), *cells, "malignant" if label else "benign"]))
    data, plot = tmp_path / "data.csv", tmp_path / "plot.svg"
    data.write_text("\n".join(lines), "utf-8")
    arguments = ["reproduce", "dual-averaging", "--data", str(data), "--iterations", "1500"]
    arguments += ["--repetitions", "2", "--synchronous", "1", "--plot", str(plot)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert plot.stat().st_size > 1000
    assert result["parties"] == 60
    for curve in result["curves"]:
        assert result["minimum"] <= curve["objective"][-1] < result["start"] / 2
        assert curve["auc"] > 0.9
    for group in result["groups"]:
        assert result["minimum"] <= group["objective"][-1] < result["start"] / 2
        assert group["auc"] > 0.9
        assert group["averages"][-1] <= 1500
        assert group["averages"][-1] == group["steps"] * (60 // group["size"])
    for terms in result["terms"]:
        assert terms["holds"]
        assert terms["printed_network"] < terms["network"]
    printed = CliRunner().invoke(app, arguments)
    assert "AUC of the minimum" in printed.stdout


def test_incomplete_records_are_kept_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    head = "Id,a,b,c,d,e,f,g,h,i,Class\n"
    path.write_text(f"{head}1,1,2,3,4,5,?,7,8,10,benign\n2,1,1,1,1,1,1,1,1,10,malignant\n", "utf-8")
    every, complete = wisconsin(path, incomplete=True), wisconsin(path)
    assert np.isnan(every.table).sum() == 1
    assert np.isnan(every.table[0, 5])
    np.testing.assert_array_equal(every.table[1:], complete.table)
    assert (every.left_out, complete.left_out) == (0, 1)
    path.write_text(f"{head}1,1,2,3,4,5,11,7,8,10,benign\n", "utf-8")
    with pytest.raises(ConfigError, match=r"data\.csv:2: a feature is outside 1 to 10"):
        wisconsin(path, incomplete=True)


@pytest.mark.parametrize("changes", [{"parties": 61}, {"parties": 4}, {"iterations": 10}, {"repetitions": 0}])
def test_reproduction_refuses_sizes(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        gosta_errors(**changes)
