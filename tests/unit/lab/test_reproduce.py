"""`smpc-dp reproduce`: what is measured is what was planned, and the plot is written or refused."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app, main
from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp_lab.bench import plots
from smpc_dp_lab.bench.plots import check_plot
from smpc_dp_lab.bench.tradeoff import gopa_tradeoff, plot


def test_measured_errors_are_the_planned_ones() -> None:
    """Nine root mean squares of 2,000 draws within 5 deviations: a right program fails with 6e-6."""
    result = gopa_tradeoff(parties=(10, 100, 400))
    assert len(result.points) == 9
    for point in result.points:
        assert abs(point.measured / point.planned - 1) < 5 / math.sqrt(2 * result.repetitions)
    local, gopa, curator = (result.of(method) for method in ("local", "gopa", "curator"))
    for one, two, three in zip(local, gopa, curator, strict=True):
        n, honest = one.parties, one.honest
        assert honest == n - n // 10
        least = 1 / gaussian_mu(1.0, 1e-6)
        assert one.planned == pytest.approx(least / math.sqrt(n), rel=1e-3)
        assert three.planned == pytest.approx(least / honest, rel=1e-3)
        # 4 % of variance above what its honest parties need, and the noise of those that are counted on.
        assert two.planned == pytest.approx(least * math.sqrt(1.04 / (n * honest)), rel=1e-3)


def test_command_prints_numbers_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    arguments = ["reproduce", "gopa-tradeoff", "--parties", "10", "--parties", "20", "--repetitions", "100"]
    reported = CliRunner().invoke(app, [*arguments, "--json", "--plot", str(path)])
    assert reported.exit_code == 0, reported.output
    shown = json.loads(reported.stdout)
    assert [point["method"] for point in shown["points"]] == ["local", "gopa", "curator"] * 2
    assert shown["plot"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    table = CliRunner().invoke(app, [*arguments, "--plot", str(tmp_path / "plot.svg")])
    assert "trusted curator" in table.output
    assert "<svg" in (tmp_path / "plot.svg").read_text("utf-8")


def test_without_matplotlib_numbers_are_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _name: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["smpc-dp", "reproduce", "gopa-tradeoff"])
    assert main() == 1
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err.startswith("smpc-dp: plots need matplotlib: pip install")
    assert reported.err.count("\n") == 1
    arguments = ["reproduce", "gopa-tradeoff", "--parties", "10", "--repetitions", "100", "--json"]
    assert json.loads(CliRunner().invoke(app, arguments).stdout)["plot"] is None
    with pytest.raises(LocalError):
        plot(gopa_tradeoff(parties=(10,), repetitions=100), tmp_path / "plot.png")


def test_bad_requests_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "plot.gif", tmp_path / "nowhere" / "plot.png"):
        with pytest.raises(ConfigError, match="plot"):
            check_plot(path)
    with pytest.raises(ConfigError, match="parties"):
        gopa_tradeoff(parties=(4,))
    with pytest.raises(ConfigError, match="repetitions"):
        gopa_tradeoff(repetitions=99)
    with pytest.raises(ConfigError, match="epsilon"):
        gopa_tradeoff(epsilon=-1.0)
