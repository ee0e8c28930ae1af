"""The page of performance for people: its rows, its plots, and what it refuses."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from smpc_dp.errors import LocalError
from smpc_dp_lab.bench import growth, scenarios
from smpc_dp_lab.bench.log_plot import LogPlot
from smpc_dp_lab.bench.page import all_figures, load_results
from smpc_dp_lab.bench.performance import performance, plots_of, stored

Results = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def results() -> Results:
    """The stored results by name, for a test to change."""
    return {result["bench"]: copy.deepcopy(result) for result in load_results(ROOT / "benchmarks")}


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - our own


def page(results: Results) -> str:
    return performance(list(results.values()))


def figure(results: Results, bench: str, name: str) -> Any:
    (found,) = [one for one in results[bench]["figures"] if one["name"] == name]
    return found


def cells(results: Results, scenario: str) -> list[str]:
    (row,) = re.findall(rf"^\| {re.escape(scenario)} \| (.*) \|$", page(results), re.MULTILINE)
    return str(row).split(" | ")


def test_the_table_has_the_six_scenarios_and_each_says_what_was_run(results: Results) -> None:
    text = page(results)
    model = f"a model of {results['session']['parameters']['length']:,} values"
    asked = [
        "ten hospitals",
        "a hundred phones",
        "a thousand phones",
        model,
        "Kendall's tau of 200 people",
        "an audit of 1,000 parties",
    ]
    table = text.partition("| asked |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[0].strip("| ") for line in table] == asked
    said = re.findall(r"^- \*\*(.*?)\*\*: .*results-\w+\.json", text, re.MULTILINE)
    assert said == asked


def test_cells_are_those_of_the_stored_figures(results: Results) -> None:
    kinds = {
        "wall time": 7.25,
        "party: processor time": 0.5,
        "aggregator: processor time": 1.5,
        "party: sent": 12e3,
        "party: received": 34e3,
        "party: peak memory": 56e6,
        "aggregator: peak memory": 78e6,
    }
    for kind, value in kinds.items():
        figure(results, "scenarios", scenarios.figure_name("ten hospitals", kind))["median"] = value
    results["scenarios"]["others"] = 0.0
    assert cells(results, "ten hospitals") == [
        "7.25 s",
        "a party 500 ms, the aggregator 1.5 s",
        "12 kB up, 34 kB down",
        "a party 56 MB, the aggregator 78 MB",
    ]


@pytest.mark.parametrize(("others", "marked"), [(0.0, False), (0.05, False), (0.06, True), (None, True)])
def test_a_time_by_the_clock_beside_other_programs_is_marked(
    results: Results, others: float | None, marked: bool
) -> None:
    results["scenarios"]["others"] = others
    for scenario in ("ten hospitals", "an audit of 1,000 parties"):
        assert cells(results, scenario)[0].endswith(" †") is marked


def test_commit_and_other_programs_of_each_result_are_named(results: Results) -> None:
    results["session"] |= {"commit": "0123456789abcdef+changes", "others": 0.375}
    results["growth"] |= {"commit": None, "others": None}
    table = all_figures(list(results.values())).partition("\n## Commits\n")[2]
    rows = dict(re.findall(r"^\| (\w+) \| (.* \| .*) \|$", table.partition("| --- |")[2], re.MULTILINE))
    assert rows["session"] == "01234567+changes | 38% of the cores"
    assert rows["growth"] == "not recorded | not recorded"
    assert rows.keys() == results.keys()


def remove(bench: str, name: str) -> Callable[[Results], None]:
    def change(results: Results) -> None:
        results[bench]["figures"].remove(figure(results, bench, name))

    return change


def unmeasured(bench: str, name: str, of: str) -> Callable[[Results], None]:
    def change(results: Results) -> None:
        figure(results, bench, name)[of] = None

    return change


def without(bench: str) -> Callable[[Results], None]:
    return lambda results: results.pop(bench)


LONGEST = growth.figure_name(growth.CLIENT, "length", growth.SIZES["length"][-1])
MISSING = [
    (without("session"), "results-session.json is missing"),
    (without("scenarios"), "results-scenarios.json is missing"),
    (remove("session", "average of a tree: wall time"), "has no figure 'average of a tree: wall time'"),
    (remove("session", "aggregator: peak memory"), "has no figure 'aggregator: peak memory'"),
    (remove("scenarios", "a thousand phones: party: sent"), "no figure 'a thousand phones: party: sent'"),
    (remove("scenarios", "log of 1000 users: audit, memory"), "no figure 'log of 1000 users: audit, memory'"),
    (remove("growth", LONGEST), f"results-growth.json has no figure '{LONGEST}'"),
    (unmeasured("growth", LONGEST, "peer"), f"the peer of '{LONGEST}' was not measured"),
    (unmeasured("growth", LONGEST, "limit"), f"the limit of '{LONGEST}' was not measured"),
    (unmeasured("compare", "10000 comparisons", "peer"), "the peer of '10000 comparisons' was not measured"),
    (lambda results: results["growth"]["parameters"]["sizes"].pop("degree"), "has no sizes of degree"),
]


@pytest.mark.parametrize(("change", "reason"), MISSING, ids=[reason for _, reason in MISSING])
def test_a_missing_figure_is_an_error_and_named(
    results: Results, change: Callable[[Results], None], reason: str
) -> None:
    page(results)
    change(results)
    with pytest.raises(LocalError, match=re.escape(reason)):
        page(results)


def test_plots_have_ours_peer_and_limit_of_every_size(results: Results) -> None:
    plots = plots_of(stored(list(results.values())))
    assert list(plots) == [f"performance-{of}.svg" for of in ("length", "parties", "degree")]
    for of, sizes in results["growth"]["parameters"]["sizes"].items():
        plot = plots[f"performance-{of}.svg"]
        names = [name.partition(":")[0] for name, _ in plot.lines]
        assert names == ["a party", "the aggregator", "peer", "limit"]
        ours, _, peer, limit = (line for _, line in plot.lines)
        stands = [figure(results, "growth", growth.figure_name(growth.CLIENT, of, size)) for size in sizes]
        assert ours == [(size, one["median"]) for size, one in zip(sizes, stands, strict=True)]
        assert peer == [(size, one["peer"]["median"]) for size, one in zip(sizes, stands, strict=True)]
        assert limit == [(size, one["limit"]["median"]) for size, one in zip(sizes, stands, strict=True)]
        # A line in the plot and one in the legend.
        drawn = parsed(plot.svg())
        assert drawn.findtext(f"{SVG}title") == plot.title
        assert len(drawn.findall(f"{SVG}polyline")) == 2 * len(plot.lines)


def sample(*lines: tuple[str, list[tuple[float, float]]]) -> LogPlot:
    return LogPlot("costs < all", "x", "y", lines, str, str)


def test_points_stand_at_their_logarithms() -> None:
    text = sample(("a & b", [(1.0, 10.0), (10.0, 100.0), (100.0, 1000.0)])).svg()
    _, line = parsed(text).findall(f"{SVG}polyline")
    at = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    (left, low), (middle, half), (right, high) = at
    assert left < middle < right
    assert low > half > high
    assert middle == pytest.approx((left + right) / 2, abs=0.1)
    assert half == pytest.approx((low + high) / 2, abs=0.1)
    ticks = [element.text for element in parsed(text).findall(f"{SVG}text")]
    assert {"costs < all", "x", "y", "a & b", "1.0", "10.0", "100.0", "1000.0"} <= {*ticks}
    assert text == sample(("a & b", [(1.0, 10.0), (10.0, 100.0), (100.0, 1000.0)])).svg()


def test_one_point_stands_in_the_middle() -> None:
    text = sample(("one", [(5.0, 10.0)])).svg()
    _, mark = parsed(text).findall(f"{SVG}circle")
    axis = next(line for line in parsed(text).findall(f"{SVG}line"))
    middle = (float(axis.attrib["x1"]) + float(axis.attrib["x2"])) / 2
    assert float(mark.attrib["cx"]) == pytest.approx(middle)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_number_that_has_no_logarithm_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive points"):
        sample(("one", [(1.0, 1.0), (2.0, value)])).svg()


@pytest.mark.parametrize(
    "lines",
    [[], [("empty", [])], [(str(number), [(1.0, 1.0)]) for number in range(5)]],
    ids=["none", "empty", "five"],
)
def test_no_point_and_too_many_lines_are_refused(lines: list[tuple[str, list[tuple[float, float]]]]) -> None:
    with pytest.raises(ValueError, match="1 to 4 lines"):
        sample(*lines).svg()
