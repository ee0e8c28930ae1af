"""Reports: one file that loads nothing, below 300 kB, with every number in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import LocalError
from smpc_dp.report.chart import Intervals, Lines, ticks
from smpc_dp.report.document import (
    MOST_BYTES,
    Block,
    Facts,
    Report,
    Section,
    Sentences,
    Text,
    render,
    write,
)
from smpc_dp.report.roles import KINDS, VIEWS
from smpc_dp.report.sections import (
    curve,
    evidence_section,
    learned_privacy,
    learned_section,
    losses_section,
    roles_section,
    times_section,
    traffic_section,
)
from smpc_dp.report.table import Table
from smpc_dp.report.trace import MOST_LOSSES, Trace
from tests.pages import Page
from tests.unit.report.test_pages import HOSTILE

COLUMNS = (("name", ""), ("number", "number"))


def report(*blocks: Block, title: str = "Average", sections: int = 1) -> Report:
    parts = tuple(Section(f"s{number}", f"Section {number}", blocks) for number in range(sections))
    return Report(title, "It ended.", "good", Facts((("parties", "3"),)), parts, "footer")


def lines(name: str = "loss") -> Lines:
    result = curve("Loss", "loss", [(name, [(0, 1.5), (10, 0.5), (20, 0.25)]), ("other", [(0, 1.0)])])
    assert result is not None
    return result


def intervals(name: str = "mean") -> Intervals:
    table = Table("Means", COLUMNS, ((name, "1.25"),))
    return Intervals("Means", "kg", ((name, 1.0, 1.25, 1.5), ("other", -3.0, 0.0, 2.0)), table)


def test_every_kind_of_block_is_in_a_page_without_faults() -> None:
    blocks = (
        Table("T", COLUMNS, (("a", "1"),), "note"),
        Text("text", "note"),
        Sentences(("one", "two"), "limits"),
    )
    page = Page(render(report(*blocks, lines(), intervals(), sections=2)))
    assert page.faults == page.loads == []
    assert {"a", "1", "1.25", "0.25"} <= set(page.cells)
    assert all(text in page.text for text in ("It ended.", "note", "one", "Loss", "footer"))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_text_in_every_block(name: str) -> None:
    def page(given: str) -> Page:
        table = Table(given, ((given, ""),), ((given,),), given)
        blocks = (table, Text(given), Sentences((given,)), lines(given), intervals(given))
        return Page(render(report(*blocks, title=given)))

    hostile, plain = page(name), page("plain")
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.faults == hostile.loads == []
    assert all(char.isprintable() or char == "\n" for char in hostile.text)


def test_long_tables_are_cut_with_a_note_and_the_file_stays_small() -> None:
    rows = tuple((f"party-{number}", "y" * 1_500) for number in range(10_000))
    html = render(report(Table("Parties", COLUMNS, rows), sections=3))
    assert len(html.encode()) < MOST_BYTES
    page = Page(html)
    assert page.faults == []
    assert "The first 50 of 10,000 rows." in page.text
    short = Page(
        render(report(Table("Parties", COLUMNS, tuple((f"p{number}", "1") for number in range(500)))))
    )
    assert "The first 200 of 500 rows." in short.text
    assert "p199" in short.cells
    assert "p200" not in short.cells


def test_a_report_of_long_texts_leaves_sections_out_and_says_so() -> None:
    html = render(report(Sentences(("z" * 2_000,) * 40), sections=9))
    assert len(html.encode()) < MOST_BYTES
    page = Page(html)
    assert page.faults == []
    assert "Sections are missing here" in page.text


def test_pictures_show_what_their_tables_say() -> None:
    chart = lines()
    assert [tick.text for tick in chart.y_ticks] == ["0", "0.5", "1", "1.5"]
    [first, _] = chart.paths
    assert first[1] == "loss"
    points = [tuple(map(float, point.split(","))) for point in first[2].split()]
    assert points[0][0] == chart.left
    assert points[-1][0] == chart.right
    assert points[0][1] < points[1][1] < points[2][1]
    few = curve("Loss", "loss", [("loss", [(2, 1.0), (4, 2.0)])])
    assert few is not None
    assert [tick.text for tick in few.x_ticks] == ["2", "3", "4"]
    drawn = intervals().drawn
    assert drawn[0].low < drawn[0].value < drawn[0].high
    assert drawn[1].high > drawn[0].high
    # Names that differ at their ends alone are different labels, and all have room beside the picture.
    long = [intervals(f"quantile(income_of_the_household, {at})") for at in (0.25, 0.5)]
    assert len({picture.drawn[0].label for picture in long}) == 2
    assert all("…" in picture.drawn[0].label for picture in long)
    assert len(intervals("x" * 90).drawn[0].label) <= 26
    assert intervals("x" * 90).left > intervals("x").left
    assert intervals("count [sex = f, smoker = no]").drawn[0].label == "sex = f, smoker = no"
    assert intervals("count [sex = f]").drawn[0].label == "count [sex = f]"


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 0.0), (5.0, 5.0), (-1e-9, 1e9), (-3.2, 17.9), (1e300, 2e300)]
)
def test_ticks_reach_over_all_values(low: float, high: float) -> None:
    result = ticks(low, high)
    slack = 1e-8 * max(abs(low), abs(high))
    assert result[0] <= low + slack
    assert result[-1] >= high - slack
    assert 2 <= len(result) <= 8


def test_a_curve_without_finite_points_is_no_picture() -> None:
    assert curve("c", "y", [("a", [(0, float("nan")), (1, float("inf"))])]) is None


def test_a_metric_is_drawn_over_its_steps_of_all_groups() -> None:
    plain: dict[str, Any] = {
        "learner": "sgd",
        "values": [[1.5]],
        "names": ["weight"],
        "steps": [4],
        "done": [4],
        "failures": [],
        "guarantee": None,
        "claim": "",
        "confidential": False,
        "evidence": None,
    }
    results = {
        "ann": {**plain, "metrics": [{"step": 2, "value": 0.5}, {"step": 4, "value": 0.125}]},
        "bob": {**plain, "metrics": [{"step": 3, "value": 0.25}], "evidence": {"averages": 4, "checked": 3}},
    }
    ledger = {
        "dataset": "rows",
        "unit": "party",
        "spent": {"epsilon": 1.5, "delta": 1e-6, "exact_releases": 0},
        "budget_epsilon": 4.0,
        "budget_delta": 1e-6,
    }
    parts = (*learned_section(results), *learned_privacy(results, {"ann": ledger}))
    text = render(Report("T", "", "", Facts(()), parts))
    assert "Averages whose totals the parties checked, all parties together: 3 of 4." in text
    page = Page(text)
    assert page.faults == []
    assert {"1.5", "4", "2.5", "1e-06"} <= set(page.cells)
    assert "polyline" in [tag for tag, _ in page.tags]
    assert {"2", "3", "4", "0.5", "0.25", "0.125"} <= set(page.cells)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def trace() -> Trace:
    clock = Clock()
    result = Trace(clock=clock, names=("alice", "bob", "hub"))
    result.begin("bob", "start")
    result.begin("hub", "hello")
    clock.now += 1.5
    result.begin("bob", "start")
    result.begin("bob", "result")
    result.begin("alice", "start")
    clock.now += 0.25
    result.begin("bob", "")
    result.begin("alice", "")
    result.begin("hub", "")
    result.count("hub", "bob", 10, 900)
    result.count("alice", "hub", 700, 80)
    result.count("hub", "alice", 80, 690)
    result.lose("lost carol", "hub", "hello")
    return result


def test_a_trace_adds_up_steps_bytes_and_losses() -> None:
    result = trace()
    assert result.ordered() == {
        "alice": {"start": 0.25},
        "bob": {"start": 1.5, "result": 0.25},
        "hub": {"hello": 1.75},
    }
    # Where the sender could not count, the receiver did.
    assert list(result.connections()) == [("alice", "hub", 700, 80), ("bob", "hub", 900, 10)]
    assert result.total == 1690
    page = Page(
        render(
            Report(
                "T",
                "",
                "",
                Facts(()),
                (
                    *times_section(result),
                    *traffic_section(result),
                    *losses_section(["carol"], ["fault"], result),
                ),
            )
        )
    )
    assert page.faults == []
    assert {"1.500", "0.250", "1.750", "700", "900", "1.75 s", "lost carol"} <= set(page.cells)
    assert "Not in the result: carol." in page.text


def test_a_trace_is_bounded() -> None:
    result = Trace()
    for number in range(MOST_LOSSES + 5):
        result.lose(f"{number} {'x' * 10_000}", "hub")
        result.lose(f"{number} {'x' * 10_000}", "hub")
    assert len(result.losses) == MOST_LOSSES
    assert len(result.losses[0].text) < 3_000


@pytest.mark.parametrize("key", VIEWS)
def test_each_kind_of_computation_has_its_roles(key: str) -> None:
    page = Page(render(Report("T", "", "", Facts(()), tuple(roles_section([key], ["note"])))))
    assert page.faults == []
    assert all(text in page.cells for view in VIEWS[key] for text in view)


def test_several_kinds_of_computation_are_told_apart() -> None:
    page = Page(render(Report("T", "", "", Facts(()), tuple(roles_section(["secagg-noisy", "secagg"])))))
    assert {"the aggregator, in sums with noise", "the aggregator, in sums without noise"} <= set(page.cells)
    assert page.cells.count("the network") == 1
    assert set(KINDS) == set(VIEWS)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="cannot write the report"):
        write(report(), tmp_path / "no" / "x.html")
    write(report(), tmp_path / "own.html", own=True)
    assert (tmp_path / "own.html").stat().st_mode & 0o777 == 0o600


def test_the_render_is_text_only_of_what_it_was_given() -> None:
    first: Any = render(report(Text("same")))
    assert first == render(report(Text("same")))


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({"checked": None}, "does not show that the numbers are that result"),
        ({"checked": True}, "the file of a party shows that to others, this one does not"),
        ({"checked": True, "signed_result": {}}, "its file shows that to others: smpc-dp audit RESULT"),
        ({"checked": None, "signed_result": {}}, "but that the aggregator has signed them"),
        ({"checked": True, "log": {"head": "00", "number": 1}}, "does not show that the numbers are that"),
    ],
)
def test_the_page_says_whether_the_member_has_checked_the_total(evidence: dict[str, Any], said: str) -> None:
    [section] = evidence_section({"protocol": "secagg", **evidence})
    [note] = [block.text for block in section.blocks if isinstance(block, Text)]
    assert said in note


def test_the_evidence_of_a_learner_has_no_section() -> None:
    """It counts averages, which stand with its steps; it identifies no run."""
    assert evidence_section({"averages": 24, "checked": 24}) == []
