"""Sections of reports: epsilon in one sentence, whole counts, intervals within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.report.chart import Intervals
from smpc_dp.report.document import Text
from smpc_dp.report.sections import epsilon_meaning, guarantee_table, statistics_section, vector_section
from smpc_dp.report.table import Table

ESTIMATE = {
    "statistic": "count",
    "name": "count",
    "cell": {},
    "value": 3.6,
    "low": -2.5,
    "high": 9.2,
    "standard_error": 3.1,
    "sampling_error": None,
    "population_low": None,
    "population_high": None,
    "p_value": None,
    "unit": "rows",
    "note": "",
    "noise": "normal",
    "part_of": "",
}


def shown(*estimates: dict[str, Any]) -> list[tuple[str, ...]]:
    result = {"estimates": list(estimates), "simultaneous": False, "level": 0.95}
    (one,) = statistics_section(result, exact=False)
    table = one.blocks[-1]
    assert isinstance(table, Table | Intervals)
    return list((table.table if isinstance(table, Intervals) else table).rows)


def test_a_count_and_its_interval_are_whole_numbers_and_not_below_0() -> None:
    assert shown(ESTIMATE)[0][1:5] == ("4", "3.1", "0", "10")
    assert shown(ESTIMATE | {"unit": "years"})[0][1:5] == ("3.6", "3.1", "-2.5", "9.2")
    assert shown(ESTIMATE | {"value": -0.7, "low": None, "high": None})[0][1:5] == ("0", "3.1", "-", "-")


def test_the_least_p_value_is_shown_as_an_upper_bound() -> None:
    rows = shown(*(ESTIMATE | {"p_value": value} for value in (0.0, 1e-10, 1.2e-10, None)))
    assert [row[5] for row in rows] == ["<= 1e-10", "<= 1e-10", "1.2e-10", "-"]


def test_the_law_of_the_noise_is_shown_where_it_is_not_normal_in_all_answers() -> None:
    assert [row[5:] for row in shown(ESTIMATE)] == [("rows",)]
    rows = shown(ESTIMATE, ESTIMATE | {"noise": "laplace"})
    assert [row[5:] for row in rows] == [("rows", "normal"), ("rows", "laplace")]


def test_the_question_that_follows_on_a_regression_is_under_the_answers() -> None:
    result = {
        "estimates": [ESTIMATE | {"follow_up": "sandwich(y ~ x)"}, ESTIMATE],
        "simultaneous": False,
        "level": 0.95,
    }
    (one,) = statistics_section(result, exact=False)
    assert one.blocks[-1] == Text("for robust sampling errors ask next: sandwich(y ~ x)")


def average(bounds: tuple[Any, Any] | None) -> list[tuple[str, ...]]:
    result = {
        "value": [0.1, 0.9],
        "standard_error": 0.2,
        "kind": "average",
        "step": 2.0**-20,
        "weight": 5,
        "survivors": ["alice", "bob"],
        "residual_pairs": 0,
        "bias": None,
    }
    (one,) = vector_section(result, (0.4, 0.95), bounds)
    (picture,) = one.blocks
    assert isinstance(picture, Intervals)
    return list(picture.table.rows)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), ([0.0, 0.0], [1.0, 1.0])])
def test_an_interval_of_an_average_ends_at_the_bounds(bounds: tuple[Any, Any]) -> None:
    assert [tuple(map(float, row[3:])) for row in average(bounds)] == [(0.0, 0.5), (0.5, 1.0)]
    assert [tuple(map(float, row[3:])) for row in average(None)] == [(-0.3, 0.5), (0.5, 1.3)]


def test_the_meaning_of_epsilon_has_factor_unit_and_delta() -> None:
    text = epsilon_meaning({"epsilon": 1.0, "delta": 1e-6, "unit": "record"})
    assert "other data of one record" in text
    assert "a factor of 2.72, and by 1e-06 (delta)" in text
    assert "a factor of e^900" in epsilon_meaning({"epsilon": 900.0, "delta": 0.0, "unit": "party"})
    assert "exact" in epsilon_meaning({"epsilon": None, "delta": None, "unit": None})


def test_a_guarantee_has_no_sensitivity_in_grid_steps() -> None:
    guarantee = {
        **{key: "text" for key in ("protects", "relation", "mechanism", "assumption", "proof", "unit")},
        **{"epsilon": 1.0, "delta": 0.0, "sensitivity": {"L2": 1048576.0}, "warnings": []},
    }
    rows = guarantee_table(guarantee).rows
    assert ("epsilon", "1") in rows
    assert not [row for row in rows if "sensitivity" in row[0] or "1.04858e+06" in row[1]]


def test_a_table_of_robust_errors_has_no_numbers_in_its_title() -> None:
    result = {
        "estimates": [ESTIMATE | {"statistic": "sandwich(y ~ x, [1, 0.5], [0, 0.25], [1, 0, 1], 3, 17)"}],
        "simultaneous": False,
        "level": 0.95,
    }
    (one,) = statistics_section(result, exact=False)
    assert isinstance(one.blocks[-1], Table)
    assert one.blocks[-1].caption == "sandwich(y ~ x)"
