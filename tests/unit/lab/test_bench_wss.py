"""`bench wss`: the same sum at each kind of address."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.wss import AT_MOST, WAYS, run_wss_bench


def test_each_way_is_measured_beside_host_and_port() -> None:
    rounds: list[tuple[str, int, int]] = []
    report = run_wss_bench(1, lambda *step: rounds.append(step), parties=3, length=100)
    assert [figure.name.rpartition(": ")[2] for figure in report.figures] == list(WAYS)
    plain, own, behind = report.figures
    assert plain.peer is None
    for figure in (own, behind):
        assert figure.peer is not None
        assert figure.peer.median == plain.median > 0
    assert own.target is not None
    assert own.target.at_least == pytest.approx(1 / AT_MOST)
    assert rounds


@pytest.mark.parametrize("changed", [{"runs": 0}, {"parties": 2}, {"length": 0}])
def test_numbers_out_of_range_are_refused(changed: dict[str, int]) -> None:
    given: dict[str, Any] = {"runs": 1, "parties": 3, "length": 1} | changed
    with pytest.raises(ConfigError, match="must be"):
        run_wss_bench(**given)
