"""`bench wss`: the same sum at each kind of address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench import everything
from smpc_dp_lab.bench.figures import Progress, Report
from smpc_dp_lab.bench.page import all_figures, load_results
from smpc_dp_lab.bench.wss import AT_MOST, LENGTH, PARTIES, WAYS, run_wss_bench


def test_each_way_is_measured_beside_host_and_port_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[tuple[str, int, int]] = []
    asked: list[tuple[object, ...]] = []
    measured: list[Report] = []

    def small(runs: int, progress: Progress | None, *, parties: int, length: int) -> Report:
        asked.append((runs, parties, length))
        return measured[0] if measured else run_wss_bench(1, progress, parties=3, length=100)

    monkeypatch.setattr(everything, "run_wss_bench", small)
    peers, progress = everything.Peers(), lambda *step: rounds.append(step)
    [report] = everything.run_all(tmp_path, peers, progress, quick=True, only=("wss",))
    assert [figure.name.rpartition(": ")[2] for figure in report.figures] == list(WAYS)
    plain, own, behind = report.figures
    assert plain.peer is None
    for figure in (own, behind):
        assert figure.peer is not None
        assert figure.peer.median == plain.median > 0
    assert own.target is not None
    assert own.target.at_least == pytest.approx(1 / AT_MOST)
    assert rounds
    measured.append(report)
    [stored] = load_results(tmp_path)
    assert stored["bench"] == "wss"
    assert stored["parameters"] == {"runs": 1, "parties": 3, "length": 100}
    # One row, with a column for each way.
    table = all_figures([stored])
    assert "| case | host:port | wss | wss behind a balancer |" in table
    assert table.count("sum of 3 parties, 100 elements") == 1
    everything.benchmarks(peers, None, quick=False)["wss"]()
    assert asked == [(1, 3, 10_000), (3, PARTIES, LENGTH)]


@pytest.mark.parametrize("changed", [{"runs": 0}, {"parties": 2}, {"length": 0}])
def test_numbers_out_of_range_are_refused(changed: dict[str, int]) -> None:
    given: dict[str, Any] = {"runs": 1, "parties": 3, "length": 1} | changed
    with pytest.raises(ConfigError, match="must be"):
        run_wss_bench(**given)
