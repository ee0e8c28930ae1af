"""The figure of a central learner with data owners, in few runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.learn.data import lending_club
from smpc_dp_lab.bench import cost_of_privacy as bench

LENDING = Path("smpc_dp/demo/data/lending_club.csv")


def test_noise_costs_less_for_more_records_and_the_gaussian_less_than_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four fixed runs of 300 ticks: the order of medians, and a forecast above the Gaussian points."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(bench, "SIZES", (300, 2_600))
    monkeypatch.setattr(bench, "OWNERS", (3,))
    monkeypatch.setattr(bench, "RATES", (0.1, 1.0))
    result = bench.cost_of_privacy(lending_club(LENDING), epsilons=[1.0, 10.0], steps=300, runs=4)
    psi = {(p.size, p.mechanism, p.epsilon): p for p in result.points}
    for size in (300, 2_600):
        none, loud = psi[size, "none", 1.0].median, psi[size, "gaussian", 1.0].median
        # With many records and a large epsilon the noise hardly counts.
        assert none * 0.97 < psi[size, "gaussian", 10.0].median < loud < psi[size, "laplace", 1.0].median
    assert psi[2_600, "gaussian", 1.0].median < psi[300, "gaussian", 1.0].median
    assert psi[2_600, "gaussian", 1.0].alone < psi[300, "gaussian", 1.0].alone
    for point in result.points:
        if point.mechanism == "gaussian" and point.median < point.alone + bench.NOTABLE[1]:
            assert point.forecast >= point.median * 0.95
    bench.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="owners times size"):
        bench.owners_of(lending_club(LENDING), 2_000, 3, 3_000)
