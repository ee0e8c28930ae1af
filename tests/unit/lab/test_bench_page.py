"""The page of all benchmarks, and the fits of growth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.report.document import render
from smpc_dp_lab.bench import everything, growth
from smpc_dp_lab.bench.page import all_figures, load_results, page, rows


@pytest.mark.parametrize(
    ("of", "values", "cost_of", "a", "b"),
    [
        ("parties", (10, 20, 80), lambda n: 3.0 * n**1.5, 3.0, 1.5),
        ("length", (10, 20, 80), lambda n: 5.0 + 0.25 * n, 5.0, 0.25),
    ],
)
def test_a_fit_finds_the_coefficients_of_exact_points(
    of: str, values: tuple[int, ...], cost_of: Callable[[int], float], a: float, b: float
) -> None:
    fitted = growth.fit("bytes up", of, values, [cost_of(n) for n in values])
    assert [fitted["a"], fitted["b"], fitted["r_squared"]] == pytest.approx([a, b, 1.0])


@pytest.mark.long
def test_all_stores_results_and_writes_their_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "SIZES", {"parties": (8, 12), "length": (100, 300), "degree": (20, 24)})
    monkeypatch.setattr(growth, "PARTIES_OF_DEGREES", 30)
    reports = everything.run_all(tmp_path, everything.Peers(), quick=True, only=("growth",))
    assert [report.bench for report in reports] == ["growth"]
    (result,) = load_results(tmp_path)
    assert [figure["name"] for figure in result["figures"]] == [figure.name for figure in reports[0].figures]
    assert result["machine"]["kernels"] in ("portable", "aes-ni", "vaes-256", "vaes-512")
    written = (tmp_path / "index.html").read_text("utf-8")
    assert written.count("<svg") >= 6
    assert "client CPU time" in written
    assert "1 measurement of a figure" in written
    (fit,) = [
        one for one in result["parameters"]["fits"] if (one["figure"], one["of"]) == ("bytes up", "length")
    ]
    # A number in [-1, 1] at 1e-6 takes three bytes or four.
    assert 2.5 < fit["b"] < 5
    assert "| bytes up | length |" in all_figures([result])
    unmet = {"of": "ratio_to_peer", "at_least": 2.0}
    without_peer = {**result, "figures": [result["figures"][0] | {"target": unmet}]}
    assert [row[-1] for row in rows(without_peer)] == ["ratio to peer 2: not measured"]
    # Another machine's result of another benchmark: only what both machines share stands above all.
    other = {**result, "bench": "other", "machine": result["machine"] | {"processor": "Another 9000"}}
    facts = dict(page([result, other]).facts.pairs)
    assert "processor" not in facts
    assert facts["architecture"] == result["machine"]["architecture"]
    assert "Another 9000" in render(page([result, other]))


def test_all_refuses_a_name_of_no_benchmark_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"only: must be one of garbling, ot, .*, is 'garble'"):
        everything.run_all(tmp_path / "out", everything.Peers(), quick=True, only=("garble",))
    assert not (tmp_path / "out").exists()
