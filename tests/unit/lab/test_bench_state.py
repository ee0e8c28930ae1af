"""`bench state`: the same sums with a state and without."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.state import AT_MOST, WAYS, run_state_bench


def test_each_way_is_measured_beside_no_state() -> None:
    rounds: list[tuple[str, int, int]] = []
    report = run_state_bench(1, lambda *step: rounds.append(step), parties=3, length=10, requests=1)
    assert [figure.name.rpartition(": ")[2] for figure in report.figures] == [
        one.described for one in WAYS.values()
    ]
    without, counted, alone = report.figures
    assert without.peer is None
    for figure in (counted, alone):
        assert figure.peer is not None
        assert figure.peer.median == without.median > 0
        assert figure.target is not None
        assert figure.target.at_least == pytest.approx(1 / AT_MOST)
    assert rounds


@pytest.mark.parametrize("changed", [{"runs": 0}, {"parties": 2}, {"length": 0}, {"requests": 0}])
def test_numbers_out_of_range_are_refused(changed: dict[str, int]) -> None:
    given: dict[str, Any] = {"runs": 1, "parties": 3, "length": 1} | changed
    with pytest.raises(ConfigError, match="must be"):
        run_state_bench(**given)
