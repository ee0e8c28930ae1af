"""The two-party benchmarks' reports, on sizes that take no time."""

from __future__ import annotations

import pytest

from smpc_dp.bench import pairwise
from smpc_dp.bench.figures import Figure, Target
from smpc_dp.errors import ConfigError


def test_a_comparison_is_measured_between_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise, "COMPARISONS", 50)
    shown = pairwise.run_compare_bench(1).to_json()
    figures = {figure["name"]: figure for figure in shown["figures"]}  # type: ignore[attr-defined]
    assert shown["bench"] == "compare"
    assert figures["one comparison"]["median"] > 0
    # 49 more tables of 16 gates, and 16 corrections, are sent for 50 comparisons than for one.
    more = figures["50 comparisons, sent"]["median"] - figures["one comparison, sent"]["median"]
    assert more > 49 * (16 * 32 + 16 * 16)
    assert figures["50 comparisons"]["target"] == {"of": "median", "at_least": 0.04}
    assert all(figure["peer"] is None for figure in figures.values())


def test_a_median_is_a_target_too() -> None:
    for better, at_least, met in (("higher", 2.0, True), ("higher", 2.1, False), ("lower", 1.9, False)):
        figure = Figure("x", "s", [2.0], better, "", target=Target("median", at_least))  # type: ignore[arg-type]
        assert figure.met is met


def test_no_runs_are_refused() -> None:
    with pytest.raises(ConfigError, match="runs"):
        pairwise.run_ot_bench(0)
