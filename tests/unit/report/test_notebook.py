"""What notebooks show of results: the report's pictures and tables, and nothing that is the caller's own."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.engine.result import Result
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.records.record_result import RecordResult
from smpc_dp.report import notebook
from tests.pages import Page
from tests.unit.report.test_pages import HOSTILE

HONEST = Path(__file__).resolve().parents[3] / "protocols/gopa/vectors/verifiable-run-honest.json"


AROUND = (
    '<html lang="en"><head><title>t</title>'
    "</head><body><header><h1>Notebook</h1></header><main>{}</main></body></html>"
)


class Shown(Protocol):
    def _repr_html_(self) -> str: ...


def read(*shown: Shown) -> Page:
    """Read a page that shows results."""
    return Page(AROUND.format("".join(result._repr_html_() for result in shown)))


@functools.cache
def average(length: int = 3) -> Result:
    return simulate.average(
        np.full((20, length), 0.5), lower=0, upper=1, epsilon=2.0, delta=1e-6, seed_for_simulation=1
    )


def statistics() -> RecordResult:
    tables = [{"age": [20.0 + 10 * row for row in range(6)]} for _ in range(5)]
    answers = simulate.statistics(
        tables,
        ask=["histogram(age, 3)"],
        schema={"rows": "public", "max_rows": 6, "columns": {"age": {"lower": 0, "upper": 90}}},
        hide=0.0,
        epsilon=8.0,
        delta=1e-6,
        seed_for_simulation=1,
    )
    some = average()
    return RecordResult(answers, some.survivors, some.absent, (), some.privacy, some.evidence)


def audited(folder: Path) -> Report:
    content = json.loads(HONEST.read_text("utf-8"))
    log = folder / "log.jsonl"
    log.write_text("".join(f"{line}\n" for line in content["log"]), "utf-8")
    return audit(log, session=content["session"])


@pytest.mark.parametrize("kind", ["average", "statistics", "audit"])
def test_a_result_draws_its_intervals_and_says_its_privacy(kind: str, tmp_path: Path) -> None:
    results: dict[str, Any] = {"average": average, "statistics": statistics}
    result: Shown = audited(tmp_path) if kind == "audit" else results[kind]()
    page = result._repr_html_()
    assert '<circle class="dot series-1"' in page
    assert "epsilon" in page
    # The picture has its colours without the styles of a report, and its text that of the page around it.
    assert '<g fill="currentColor"' in page
    assert "<style" not in page
    whole = read(result)
    assert whole.faults == whole.loads == []


def test_two_results_on_a_page_have_different_anchors() -> None:
    page = average()._repr_html_() + average()._repr_html_()
    anchors = re.findall(r' id="([^"]+)"', page)
    assert anchors
    assert len({*anchors}) == len(anchors)
    assert {*re.findall(r'aria-labelledby="([^"]+)"', page)} <= {*anchors}


def test_what_is_the_callers_own_is_not_shown() -> None:
    result = dataclasses.replace(average(), clipped=7, resumed=True)
    assert "7 values of this party were clipped" in str(result)
    page = result._repr_html_()
    assert "clipped" not in page
    assert "resumed" not in page


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_of_others_are_escaped(name: str) -> None:
    plain, page = (
        read(dataclasses.replace(average(), absent=(given,), faults=(given,))) for given in ("plain", name)
    )
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.faults == page.loads == []


def test_of_many_values_the_first_are_shown() -> None:
    page = average(1000)._repr_html_()
    assert page.count('<circle class="dot') == notebook.ROWS
    assert "below: the first 40 of 1,000 values" in page
    assert len(page) < 100_000


def test_an_exact_average_has_a_table_and_no_picture() -> None:
    page = simulate.average([[1.0], [2.0], [4.0]], lower=0, upper=5, seed_for_simulation=1)._repr_html_()
    assert "<table>" in page
    assert "<svg" not in page
    assert "privacy: exact, no differential privacy" in page


def test_a_log_that_does_not_hold_is_shown_with_the_reason(tmp_path: Path) -> None:
    content = json.loads(HONEST.read_text("utf-8"))
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f"{line}\n" for line in content["log"][:-1]), "utf-8")
    page = audit(log, session=content["session"])._repr_html_()
    assert "the audit does not hold: exit code 1" in page
    assert "This log does not hold" in page
