"""Numbers that the guide on statistics of records states, beside those that the code plans and computes."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.records.answers import estimate
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.schema import read_schema
from smpc_dp.records.split import SplitName
from smpc_dp.records.table import read_table

GUIDE = Path(__file__).parents[3].joinpath("docs", "guides", "record-statistics.md").read_text("utf-8")
SESSION = tomllib.loads(GUIDE.split("<<'END'\n", 1)[1].split("END\n", 1)[0])["parameters"]


def planned(records: dict[str, Any], ask: Sequence[str], split: SplitName) -> Plan:
    """Return the plan of a request of five parties, with the noise of sessions by secagg."""
    known = read_schema(records)
    privacy = {"epsilon": SESSION["epsilon"], "delta": SESSION["delta"]}
    return plan_request(known, ask, parties=5, missing=1, corrupt=1, laplace=True, split=split, **privacy)


def errors_of(plan: Plan, rows: int | None) -> dict[str, float]:
    """Return the planned standard error of each answer with all five parties."""
    return {one.text: one.standard_error or math.nan for one in plan.errors(5, rows)}


def test_printed_answers_have_the_planned_errors() -> None:
    plan = planned(SESSION["records"], SESSION["ask"], SESSION["split"])
    errors = errors_of(plan, 10_000)
    printed = re.findall(
        r"^  count: .* standard error ([\d.]+), in \[([\d.]+), ([\d.]+)\]$", GUIDE, re.MULTILINE
    )
    half_widths = re.findall(r"^│ count +│ ± ([\d.]+) ", GUIDE, re.MULTILINE)
    ((error, low, high),) = printed
    assert float(error) == pytest.approx(errors["count"], rel=5e-3)
    assert [(float(high) - float(low)) / 2] == pytest.approx(list(map(float, half_widths)), rel=5e-3)
    # Of values whose mean is at a bound the error is larger than of those in the guide.
    (of_mean,) = re.findall(r"^  mean\(age\): .* standard error ([\d.]+), in ", GUIDE, re.MULTILINE)
    assert 0.6 * errors["mean(age)"] < float(of_mean) < errors["mean(age)"]


@pytest.mark.parametrize(("are_full", "part"), [(True, 0.75), (False, 1.0)])
def test_counts_have_the_stated_part_of_their_noise_if_each_row_has_a_category(
    are_full: bool, part: float
) -> None:
    columns = {name: {**SESSION["records"]["columns"][name]} for name in ("sex", "smoker")}
    ask = ["count", "sex", "smoker", "sex x smoker"]
    if are_full:
        assert '`sex = { values = ["f", "m", "x"], other = "x", missing = false }`' in GUIDE
        assert (
            "With such a `smoker` too, `count`, `sex`, `smoker` and `sex x smoker` have three quarters"
            in GUIDE
        )
        for column in columns.values():
            column |= {"values": [*column["values"], "x"], "other": "x", "missing": False}
    plan = planned({"columns": columns, "max_rows": 5000}, ask, SESSION["split"])
    rows = read_table({"sex": ["f", "m"] * 1000, "smoker": ["no"] * 2000}, plan.schema)
    made = estimate(plan, plan.vector(rows), 5).estimates
    unreconciled = errors_of(plan, None)["count"]
    for one in made:
        assert one.standard_error == pytest.approx(part * unreconciled, rel=1e-6)


def test_errors_of_few_and_of_many_rows_are_the_planned_ones() -> None:
    stated = re.search(
        r"a standard error of ([\d.]+) with 50 rows in total, and of ([\d.]+) with 10,000;", GUIDE
    )
    assert stated is not None
    for rows, text in zip((50, 10_000), stated.groups(), strict=True):
        records = {"columns": {"x": {"lower": 0, "upper": 1}}, "max_rows": 5000, "rows_expected": rows}
        by_range, balanced = (
            errors_of(planned(records, ["mean(x)"], split), rows)["mean(x)"]
            for split in ("range", "balanced")
        )
        assert f"{by_range:.2g}" == text
        assert balanced / by_range == pytest.approx(0.5, abs=0.03)
    assert 'half as much with `split = "balanced"`' in GUIDE
