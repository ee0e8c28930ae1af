"""The page of all benchmarks, and the fits of growth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smpc_dp_lab.bench import everything, growth
from smpc_dp_lab.bench.figures import cost
from smpc_dp_lab.bench.page import load_results, markdown


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
    figures = [cost(growth.figure_name("bytes up", of, n), "B", [cost_of(n)], "") for n in values]
    fitted = growth.fit(figures, of, values, "bytes up")
    assert [fitted["a"], fitted["b"], fitted["r_squared"]] == pytest.approx([a, b, 1.0])


def test_all_stores_results_and_writes_their_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "SIZES", {"parties": (8, 12), "length": (100, 300), "degree": (20, 24)})
    monkeypatch.setattr(growth, "PARTIES_OF_DEGREES", 30)
    reports = everything.run_all(tmp_path, everything.Peers(), quick=True, only=("growth",))
    assert [report.bench for report in reports] == ["growth"]
    (result,) = load_results(tmp_path)
    assert [figure["name"] for figure in result["figures"]] == [figure.name for figure in reports[0].figures]
    assert result["machine"]["kernels"] in ("portable", "aes-ni", "vaes-256", "vaes-512")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert page.count("<svg") >= 6
    assert "client CPU time" in page
    (fit,) = [
        one for one in result["parameters"]["fits"] if (one["figure"], one["of"]) == ("bytes up", "length")
    ]
    # A number in [-1, 1] at 1e-6 takes three bytes or four.
    assert 2.5 < fit["b"] < 5
    assert "| bytes up | length |" in markdown([result])
