"""The parameters of statistics of records: which shares count, what is charged, what is refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from smpc_dp.engine.registry import checker_of
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.gaussian import gaussian_epsilon, gaussian_mu
from smpc_dp.privacy.mechanisms import DiscreteGaussian, DistributedSum
from smpc_dp.secagg.noisy import MOST_COMPLETE
from smpc_dp.secagg.records import RecordSumParameters

GIVEN: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "ask": ["count", "mean(age)", "sex"],
    "records": {
        "max_rows": 1000,
        "columns": {"age": {"lower": 0.0, "upper": 100.0}, "sex": {"values": ["f", "m"]}},
    },
}


def given(records: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {**GIVEN, **more, "records": {**GIVEN["records"], **(records or {})}}


def planned(parameters: dict[str, Any], parties: int) -> RecordSumParameters:
    checked, issues = checker_of("secagg", 2)(parameters, parties)
    assert isinstance(checked, RecordSumParameters), issues
    return checked


@pytest.mark.parametrize(
    ("parties", "dropout", "corrupt", "counted"),
    [
        (5, 0.2, 0.0, 3),  # five, one lost, and the one that looks knows its own share
        (10, 0.1, 0.1, 8),  # the one that looks is the corrupt one
        (10, 0.0, 0.0, 9),
        (MOST_COMPLETE, 0.1, 0.1, MOST_COMPLETE * 8 // 10),
    ],
)
def test_the_counted_shares_are_those_that_an_observer_does_not_know(
    parties: int, dropout: float, corrupt: float, counted: int
) -> None:
    parameters = planned(given(dropout=dropout, corrupt=corrupt), parties)
    assert parameters.plan.complete
    assert parameters.honest == counted
    share = DiscreteGaussian(parameters.request.sensitivity, parameters.variance)
    enough, less = (DistributedSum(share, number) for number in (counted, counted - 1))
    assert enough.delta(1.0) <= 1e-6 < less.delta(1.0)
    # The error over a curator's is the root of the ratio of shares, but for rounding.
    noise = parameters.noise(parties, 0)
    assert noise.total / noise.curator == pytest.approx(math.sqrt(parties / counted), rel=0.02)


def test_above_the_complete_graph_the_guaranteed_shares_count() -> None:
    parameters = planned(given(dropout=0.1, corrupt=0.1), 2 * MOST_COMPLETE)
    assert not parameters.plan.complete
    assert parameters.honest == parameters.plan.min_honest_in_sum


@pytest.mark.parametrize(("rows", "relation"), [("private", "add-remove"), ("public", "substitution")])
def test_the_event_has_the_unit_and_the_relation(rows: str, relation: str) -> None:
    more = {"public_rows": [100] * 5} if rows == "public" else {}
    parameters = planned(given({"rows": rows}, ask=["mean(age)"], **more), 5)
    event = parameters.event()
    assert (event.unit, event.relation) == ("record", relation)
    assert Composition([event]).epsilon(1e-6) <= 1.0
    guarantee = parameters.privacy(5).guarantee
    assert guarantee is not None
    assert (guarantee.protects, guarantee.relation, guarantee.epsilon) == ("record", relation, 1.0)


def test_a_reader_is_told_whose_noise_counts_and_that_time_depends_on_rows() -> None:
    told = planned(GIVEN, 5).privacy(5).not_protected
    assert any("with none planned from every party but the one that looks" in line for line in told)
    assert any("how long a party takes to read and sum its rows" in line for line in told)


def test_a_person_multiplies_the_sensitivity_by_rows_and_parties() -> None:
    person = {"unit": "person", "id": "patient", "rows_per_person": 3, "parties_per_person": 2}
    one, six = (planned(given(unit), 5).request for unit in ({}, person))
    ratio = math.sqrt(six.variance / one.variance)
    scales = [float(a.scale / b.scale) for a, b in zip(six.blocks, one.blocks, strict=True)]
    # The noise in units of a block's sum: six times as much, but for rounding of scales and sums.
    assert ratio / min(scales) == pytest.approx(6, rel=0.02)
    claim = planned(given(person), 5).privacy(5).claim
    assert claim.startswith("all records of one person, at most 3 in each of at most 2 parties")
    assert "person" in claim
    assert "person" not in planned(GIVEN, 5).privacy(5).claim


@pytest.mark.parametrize(("rows", "epsilon"), [(2, 2.12), (3, 3.32), (5, 5.93)])
def test_a_person_with_several_rows_has_a_larger_epsilon_where_a_record_is_protected(
    rows: int, epsilon: float
) -> None:
    """As the guide states it: the mean shift of so many rows, at the delta of one."""
    assert gaussian_epsilon(1e-6, rows * gaussian_mu(1.0, 1e-6)) == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize(
    ("parameters", "where", "reason"),
    [
        (given(lower=0.0), "lower", "the columns and what is asked state it"),
        (given(length=2), "length", "the columns and what is asked state it"),
        (given(verifiable=True), "verifiable", "a parameter of protocol 'gopa'"),
        (given(ask=["quantile(age, 1.5)"]), "ask: 'quantile(age, 1.5)'", "inside (0, 1)"),
        (given(ask=["mean(height)"]), "ask: 'mean(height)'", "no column 'height'"),
        (given(epsilon=-1.0), "epsilon", "must be"),
        (given({"unit": "patient"}), "records.unit", "must be"),
        (given({"unit": "person"}), "records.id", "needed for unit 'person'"),
        (given({"rows": "public"}), "public_rows", "is needed"),
        (given({"rows": "public"}, public_rows=[1, 2]), "public_rows", "has 2 numbers, the roster has 5"),
        (given({"rows": "public"}, public_rows=[1, 2, 3, 4, 5000]), "public_rows", "above max_rows = 1000"),
        (
            given({"rows": "public"}, public_rows=[1, 1001, 3, 4, 5]),
            "public_rows",
            "1001, of party 2 of the roster",
        ),
        (given(public_rows=[1] * 5), "public_rows", "here they are private"),
        (given(answer_weights={"median(age)": 2.0}), "answer_weights", "is not asked for"),
        (given(max_standard_error=1e-9), "max_standard_error", "the standard error is"),
        (
            given(max_standard_error={"mean(agee)": 9.0}),
            "max_standard_error",
            "'mean(agee)' is not asked for",
        ),
        (given(dropout=0.6), "dropout", "must be"),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, Any], where: str, reason: str) -> None:
    checked, issues = checker_of("secagg", 2)(parameters, 5)
    assert checked is None
    assert any(issue.where == where and reason in issue.reason for issue in issues), issues


def test_what_is_derived_with_floats_is_compared() -> None:
    """Another scale of a block, or another variance, is another operation, and is not added up."""
    one = planned(GIVEN, 5)
    others = [given(answer_weights={"count": 0.1}), given(epsilon=2.0), given({"max_rows": 999})]
    assert len({planned(other, 5).planned() for other in others} | {one.planned()}) >= 3
    assert len(one.planned()) < 150


def test_a_planned_error_names_the_question_where_several_have_its_text() -> None:
    columns = {name: {"lower": 0.0, "upper": 1.0} for name in "abc"}
    ask = ["correlation(a, b)", "correlation(a, b, c)", "correlation(a, b, robust)", "covariance(b, c)"]
    parameters = planned(given({"columns": columns, "rows_expected": 900}, ask=ask), 5)
    assert [one.text for one in parameters.planned_answers(5)[0]] == [
        "correlation(a, b)",
        "correlation(a, b, c): correlation(a, b)",
        "correlation(a, c)",
        "correlation(b, c)",
        "correlation(a, b, robust)",
        "covariance(b, b)",
        "covariance(b, c)",
        "covariance(c, c)",
    ]


def test_a_plan_warns_of_bounds_that_do_not_suit_the_name_of_their_column() -> None:
    columns = {"age": {"lower": 0.0, "upper": 100.0}, "height_cm": {"lower": 1.0, "upper": 2.2}}
    records = {"columns": columns, "rows_expected": 4000}
    [line] = planned(given(records, ask=["mean(age)", "mean(height_cm)"]), 5).planned_answers(5)[1]
    assert line.startswith("height_cm: bounds from 1 to 2.2 are as in m, the column's name says cm: ")
