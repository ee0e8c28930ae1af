"""`smpc-dp bench session --grid`: what counts for which part, its figures, and what it refuses."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from smpc_dp import files
from smpc_dp.errors import ConfigError, LocalError
from smpc_dp_lab.bench import everything, grid
from smpc_dp_lab.bench.grid import run_grid_bench
from smpc_dp_lab.bench.parts import REST, Parts
from tests.command import smpc_dp


class Clock:
    """Processor time that the test gives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "process_time", lambda: self.now)

    def work(self, seconds: float) -> None:
        self.now += seconds


def test_time_counts_for_the_innermost_part_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    parts = Parts("server")

    def lose() -> None:
        with parts.part("masks"):
            clock.work(16)
            raise ValueError("lost")

    clock.work(100)
    parts.begin()
    clock.work(1)
    with parts.part("sum"):
        clock.work(2)
        with parts.part("masks"):
            clock.work(4)
        with parts.of("node"):
            clock.work(8)
            with pytest.raises(ValueError, match="lost"):
                lose()
        clock.work(32)
    clock.work(64)
    parts.end()
    assert parts.seconds == {
        **{("server", REST): 65, ("server", "sum"): 34, ("server", "masks"): 4},
        **{("node", REST): 8, ("node", "masks"): 16},
    }
    assert not parts.copied


def test_functions_and_methods_are_measured_where_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        """Class with both kinds of methods."""

        def method(self, seconds: float) -> float:
            clock.work(seconds)
            return seconds

        @classmethod
        def made(cls) -> Counted:
            clock.work(3)
            return cls()

        def _hidden(self) -> None: ...

    clock = Clock(monkeypatch)
    parts, read = Parts("node"), files.read_bounded
    monkeypatch.setattr(files, "read_bounded", read)
    monkeypatch.setattr(grid, "elsewhere", read, raising=False)
    parts.measure("files", read)
    assert files.read_bounded is not read
    assert vars(grid)["elsewhere"] is read
    parts.measure_methods("made", Counted, "made")
    hidden = Counted._hidden
    parts.measure_methods("methods", Counted)
    assert Counted._hidden is hidden
    assert Counted.made().method(4) == 4
    assert parts.seconds["node", "made"] == 3
    assert parts.seconds["node", "methods"] == 4


WORKER = """
import json, sys
if sys.argv[1:2] == ["-c"]:
    print(0.5)
elif "{absent}":
    print(json.dumps(dict(absent="{absent}")))
else:
    seconds = dict(node=dict(masks=6.0, tree=0.2, files=13.8), server=dict(masks=1.0, rest=1.0))
    copied = dict(node=dict(masks=8000.0, tree=100.0), server={{"the rest": 9e9}})
    print(json.dumps(dict(version="9.9", wall=7.0, error=1e-7, seconds=seconds, copied=copied)))
"""


def python_that_prints(folder: Path, absent: str = "") -> str:
    """Return an interpreter that prints what a round took, or why Flower is absent."""
    (folder / "worker.py").write_text(WORKER.format(absent=absent))
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/worker.py "$@"\n')
    script.chmod(0o700)
    return str(script)


def test_parts_above_a_twentieth_are_named_with_their_share(tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    report = run_grid_bench(
        [(4, 1_000)], 2, lambda *step: steps.append(step), peer_python=python_that_prints(tmp_path)
    )
    assert steps == [("rounds", 1, 2), ("rounds", 2, 2)]
    figures = {figure.name: figure for figure in report.figures}
    size = "4 parties, 1,000 values"
    # Of four nodes each took a quarter.
    assert figures[f"node, processor time: {size}"].median == 5
    assert figures[f"server, processor time: {size}"].median == 2
    shares = {name: figure.median for name, figure in figures.items() if figure.unit == "%"}
    assert shares == {
        f"node, files: {size}": pytest.approx(69),
        f"node, masks: {size}": pytest.approx(30),
        f"server, masks: {size}": 50,
        f"server, rest: {size}": 50,
    }
    assert figures[f"node, copies in masks: {size}"].median == 2
    assert [name for name in figures if "copies" in name] == [f"node, copies in masks: {size}"]
    assert figures["node, imports"].values == [0.5, 0.5]
    assert report.versions["flwr"] == "9.9"
    node = figures[f"node, processor time: {size}"]
    assert node.limit is not None
    assert 0 < node.limit.median < 1


def test_an_interpreter_without_flower_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"peer_python: .*python: cannot import flwr \(no module\)"):
        run_grid_bench([(4, 1_000)], peer_python=python_that_prints(tmp_path, "no module"))
    with pytest.raises(LocalError, match="no-such-python"):
        run_grid_bench([(4, 1_000)], peer_python="no-such-python")
    assert "grid" not in everything.benchmarks(everything.Peers(), None, quick=True)
    assert "grid" in everything.benchmarks(everything.Peers(flower="python"), None, quick=True)


@pytest.mark.parametrize("changed", [{"parties": 2}, {"length": 0}, {"runs": 0}])
def test_sizes_out_of_range_are_refused(changed: dict[str, int]) -> None:
    given: dict[str, Any] = {"parties": 3, "length": 1, "runs": 1} | changed
    with pytest.raises(ConfigError, match="must be"):
        run_grid_bench([(given["parties"], given["length"])], given["runs"])


def test_the_command_measures_one_size_and_no_other_checkout(tmp_path: Path) -> None:
    python = python_that_prints(tmp_path)
    call = ["bench", "session", "--grid", "--parties", "4", "--length", "1000", "--peer-python", python]
    printed = smpc_dp(*call).stdout
    assert "node, files: 4 parties, 1,000 values" in " ".join(printed.split())
    refused = smpc_dp(*call, "--before", "x")
    assert refused.returncode != 0
    assert "before: is not measured with --grid" in refused.stderr
