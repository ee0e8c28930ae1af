"""The setting `total` of a session file: where totals can be checked, and where that is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.engine.phases.parameters import MAX_CHECKED, MOST_CHECKED
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import ConfigCheck, ConfigIssue

SUM: dict[str, Any] = {"length": 1, "lower": 0, "upper": 1, "kind": "integer"}
NOISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ROWS: dict[str, Any] = {"records": {"max_rows": 10, "columns": {"a": {"lower": 0.0, "upper": 1.0}}}}


def check(protocol: str, parameters: dict[str, Any], parties: int = 6) -> tuple[Any, list[ConfigIssue]]:
    return checker_of(protocol, session_protocol(protocol).version)(parameters, parties)


@pytest.mark.parametrize("more", [{}, NOISE, {"max_weight": 3}, NOISE | {"max_weight": 3, "kind": "real"}])
def test_a_secure_sum_has_an_unchecked_total_unless_asked(more: dict[str, Any]) -> None:
    for given, is_checked in (({}, False), ({"total": "unchecked"}, False), ({"total": "checked"}, True)):
        parameters, issues = check("secagg", SUM | more | given)
        assert issues == []
        assert parameters.is_checked is is_checked


@pytest.mark.parametrize("more", [{}, NOISE])
@pytest.mark.parametrize(
    ("change", "parties", "bound"),
    [
        ({"length": MAX_CHECKED + 1}, 6, "1,048,576 elements"),
        ({"length": MAX_CHECKED, "max_weight": 1}, 6, "1,048,576 elements"),
        ({}, MOST_CHECKED + 1, "10,000 parties"),
    ],
)
def test_what_is_too_large_to_check_is_refused_by_the_bound(
    more: dict[str, Any], change: dict[str, Any], parties: int, bound: str
) -> None:
    _, [issue] = check("secagg", SUM | more | change | {"total": "checked"}, parties)
    assert (issue.where, issue.check) == ("total", ConfigCheck.TOO_LARGE)
    assert f"'checked' is for at most {bound}" in issue.reason


@pytest.mark.parametrize(
    ("protocol", "parameters"),
    [
        ("gopa", {"length": 1, "lower": 0.0, "upper": 1.0} | NOISE),
        ("gopa", {"length": 1, "lower": 0.0, "upper": 1.0, "topology": "direct"} | NOISE),
        ("gopa", ROWS | NOISE | {"ask": "count"}),
        ("gopa", {"length": 1, "lower": 0.0, "upper": 1.0, "verifiable": True} | NOISE),
        ("mpyc", {"length": 1, "lower": 0, "upper": 1, "kind": "integer"}),
    ],
)
def test_other_sessions_do_not_have_the_setting(protocol: str, parameters: dict[str, Any]) -> None:
    assert check(protocol, parameters)[1] == []
    _, [issue] = check(protocol, parameters | {"total": "checked"})
    assert (issue.where, issue.check) == ("total", ConfigCheck.UNKNOWN_KEY)
