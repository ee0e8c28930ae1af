"""`bench executors`: several processes beside one, with equal values."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp_lab.bench import executors
from smpc_dp_lab.bench.executors import run_executors_bench

SMALL: dict[str, Any] = {"workers": 2, "repetitions": 2, "parties": 4, "length": 3}


def test_several_processes_stand_beside_one() -> None:
    rounds: list[tuple[str, int, int]] = []
    report = run_executors_bench(1, lambda *step: rounds.append(step), **SMALL)
    one, two = report.figures
    assert rounds == [("averages", 1, 1)]
    assert [figure.name for figure in report.figures] == [
        "2 averages of 4 parties: one process",
        "2 averages of 4 parties: 2 processes",
    ]
    assert two.ratio_to_peer == pytest.approx(one.median / two.median)
    assert two.ratio_to_limit == pytest.approx(one.median / two.median / 2)
    assert report.to_json()["parameters"] == {"runs": 1, **SMALL}


def test_other_values_of_other_processes_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "run_shards", lambda executor, *_: [[float(executor is None)]])
    with pytest.raises(LocalError, match="2 processes have found other values than one"):
        run_executors_bench(1, **SMALL)


@pytest.mark.parametrize(
    "changed", [{"runs": 0}, {"workers": 0}, {"workers": 1}, {"workers": 257}, {"repetitions": 0}]
)
def test_numbers_out_of_range_are_named(changed: dict[str, int]) -> None:
    (name,) = changed
    with pytest.raises(ConfigError, match=f"^{name}: must be "):
        run_executors_bench(**{"runs": 1, **SMALL, **changed})
