"""The setting `total` of a session file: where totals can be checked, and where that is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from smpc_dp.capabilities.gopa.versions import VERSION as GOPA_VERSION
from smpc_dp.engine.phases.parameters import MAX_BY_DEFAULT, MAX_CHECKED, MOST_SHOWN
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.secagg.params import resolve_total
from smpc_dp.secagg.versions import VERSION as SECAGG_VERSION

SUM: dict[str, Any] = {"length": 1, "lower": 0, "upper": 1, "kind": "integer"}
NOISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ROWS: dict[str, Any] = {"records": {"max_rows": 10, "columns": {"a": {"lower": 0.0, "upper": 1.0}}}}
GOPA: dict[str, Any] = {"length": 1, "lower": 0.0, "upper": 1.0} | NOISE


def check(protocol: str, parameters: dict[str, Any], parties: int = 6) -> tuple[Any, list[ConfigIssue]]:
    return checker_of(protocol, session_protocol(protocol).version)(parameters, parties)


WRITTEN: tuple[tuple[dict[str, str], bool], ...] = (
    ({}, True),
    ({"total": "unchecked"}, False),
    ({"total": "checked"}, True),
)


@pytest.mark.parametrize("more", [{}, NOISE, {"max_weight": 3}, NOISE | {"max_weight": 3, "kind": "real"}])
def test_a_secure_sum_has_a_checked_total_unless_that_is_not_wanted(more: dict[str, Any]) -> None:
    for given, is_checked in WRITTEN:
        parameters, issues = check("secagg", SUM | more | given)
        assert issues == []
        assert parameters.is_checked is is_checked


@pytest.mark.parametrize(
    ("protocol", "asked"),
    [
        ("secagg", SUM),
        ("secagg", SUM | {"same_survivors": False}),
        ("secagg", SUM | NOISE | {"kind": "real"}),
        ("secagg", SUM | NOISE | {"kind": "real", "mechanism": "skellam"}),
        ("gopa", GOPA | {"on_dropout": "roll-back"}),
    ],
)
@pytest.mark.parametrize(
    ("change", "is_checked"),
    [
        ({"length": 100_000}, True),
        ({"length": 100_001}, False),
        ({"length": 99_999, "max_weight": 3}, True),
        ({"length": 100_000, "max_weight": 3}, False),
    ],
)
def test_the_default_counts_elements_with_that_of_a_weight(
    protocol: str, asked: dict[str, Any], change: dict[str, Any], is_checked: bool
) -> None:
    """One element more is unchecked, without an error; it may be checked if that is written."""
    parameters, issues = check(protocol, asked | change)
    assert issues == []
    assert parameters.encoding.ring_length == change["length"] + ("max_weight" in change)
    assert parameters.is_checked is is_checked
    parameters, issues = check(protocol, asked | change | {"total": "checked"})
    assert (issues, parameters.is_checked) == ([], True)


@pytest.mark.parametrize(
    ("elements", "parties", "unsupported", "total"),
    [
        (MAX_BY_DEFAULT, MOST_SHOWN, None, "checked"),
        (MAX_BY_DEFAULT + 1, MOST_SHOWN, None, "unchecked"),
        (MAX_BY_DEFAULT, MOST_SHOWN + 1, None, "unchecked"),
        (1, 3, "a form without a check", "unchecked"),
    ],
)
def test_the_bounds_of_the_default(elements: int, parties: int, unsupported: str | None, total: str) -> None:
    assert (MAX_BY_DEFAULT, MOST_SHOWN) == (100_000, 10_000)
    assert resolve_total(None, elements, parties, unsupported, least=parties) == total
    assert resolve_total("unchecked", elements, parties, unsupported, least=parties + 1) == "unchecked"
    # Members of one version resolve alike: with other bounds the protocols need another version.
    assert (SECAGG_VERSION, GOPA_VERSION) == (3, 5)


@pytest.mark.parametrize("more", [{}, NOISE])
def test_a_session_of_more_parties_is_unchecked_by_default(more: dict[str, Any]) -> None:
    for parties, is_checked in ((10_000, True), (10_001, False)):
        parameters, issues = check("secagg", SUM | more, parties)
        assert (issues, parameters.is_checked) == ([], is_checked)


@pytest.mark.parametrize("more", [{}, NOISE])
@pytest.mark.parametrize("change", [{"length": MAX_CHECKED + 1}, {"length": MAX_CHECKED, "max_weight": 1}])
def test_what_is_too_large_to_check_is_refused_by_the_bound(
    more: dict[str, Any], change: dict[str, Any]
) -> None:
    _, [issue] = check("secagg", SUM | more | change | {"total": "checked"})
    assert (issue.where, issue.check) == ("total", ConfigCheck.TOO_LARGE)
    assert "'checked' is for at most 1,048,576 elements" in issue.reason


@pytest.mark.parametrize("more", [{}, NOISE])
def test_of_more_than_ten_thousand_some_check_for_all(more: dict[str, Any]) -> None:
    for total, has_checkers in (("checked", True), ("unchecked", False)):
        parameters, issues = check("secagg", SUM | more | {"total": total}, MOST_SHOWN + 1)
        assert issues == []
        assert parameters.has_checkers is has_checkers
        few = msgspec.structs.replace(parameters, most_shown=MOST_SHOWN + 1)
        assert few.has_checkers is False


def test_sessions_of_servers_do_not_have_the_setting() -> None:
    assert check("mpyc", SUM)[1] == []
    _, [issue] = check("mpyc", SUM | {"total": "checked"})
    assert (issue.where, issue.check) == ("total", ConfigCheck.UNKNOWN_KEY)


@pytest.mark.parametrize("more", [{}, {"max_weight": 3}])
def test_gopa_with_roll_back_has_a_checked_total_unless_that_is_not_wanted(more: dict[str, Any]) -> None:
    asked = GOPA | {"on_dropout": "roll-back"} | more
    for given, is_checked in WRITTEN:
        parameters, issues = check("gopa", asked | given)
        assert issues == []
        assert parameters.is_checked is is_checked
        assert len(parameters.notes) == 1
        assert parameters.notes[0].startswith(
            "total: each party" if is_checked else "total: the aggregator's"
        )


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({}, "on_dropout = 'keep': terms of lost parties stay in the total"),
        ({"on_dropout": "keep"}, "on_dropout = 'keep': terms of lost parties stay in the total"),
        (
            {"topology": "direct"},
            "topology = 'direct': each party adds up what it holds: it needs no check",
        ),
        ({"verifiable": True}, "verifiable = true: parties commit and prove already"),
        (
            {"verifiable": True, "topology": "direct"},
            "verifiable = true: parties commit and prove already",
        ),
    ],
)
def test_other_forms_of_gopa_are_refused_by_name(form: dict[str, Any], reason: str) -> None:
    for written in ({}, {"total": "unchecked"}):
        parameters, issues = check("gopa", GOPA | form | written)
        if len(form) < 2:
            assert issues == []
            assert parameters.is_checked is False
            [note] = parameters.notes
            assert note.startswith("total: ")
            assert "commitments" not in note
    parameters, issues = check("gopa", GOPA | form | {"total": "checked"})
    assert parameters is None
    [issue] = [issue for issue in issues if issue.where == "total"]
    assert issue.check is ConfigCheck.CONFLICT
    assert issue.reason == f"'checked' is not for {reason}"


def test_what_is_too_large_to_check_is_refused_by_gopa_too() -> None:
    given = GOPA | {"on_dropout": "roll-back", "total": "checked", "length": MAX_CHECKED + 1}
    _, [issue] = check("gopa", given)
    assert (issue.where, issue.check) == ("total", ConfigCheck.TOO_LARGE)
    assert "'checked' is for at most 1,048,576 elements" in issue.reason


@pytest.mark.parametrize("total", ["checked", "unchecked"])
@pytest.mark.parametrize("form", [{}, {"topology": "direct"}, {"verifiable": True}])
def test_records_by_gopa_refuse_the_setting_by_name(form: dict[str, Any], total: str) -> None:
    given = ROWS | NOISE | {"ask": "count"} | form
    parameters, issues = check("gopa", given)
    assert (issues, parameters.is_checked) == ([], False)
    _, [issue] = check("gopa", given | {"total": total})
    assert (issue.where, issue.check) == ("total", ConfigCheck.UNSUPPORTED)
    assert "statistics of records by GOPA have no totals that parties check" in issue.reason


@pytest.mark.parametrize("more", [{}, NOISE])
def test_checkers_need_enough_honest_parties_whatever_drops_out(more: dict[str, Any]) -> None:
    """c + 1 honest ones must be left: n is at least 2c + D + 1."""
    settings = SUM | more | {"total": "checked", "corrupt": 0.45, "dropout": 0.05}
    parameters, issues = check("secagg", settings, 20_000)
    plan = parameters.plan
    assert issues == []
    assert plan.least_to_check == 2 * plan.max_corrupt + plan.max_dropouts + 1 <= 20_000
    _, [issue] = check("secagg", settings | {"dropout": 0.1}, 20_000)
    assert (issue.where, issue.check) == ("total", ConfigCheck.INFEASIBLE)
    assert "needs 20,001 parties" in issue.reason
