"""Statistics of records by GOPA: what pairwise noise hides, which noise counts, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.gopa.params import MAX_VARIANCE
from smpc_dp.capabilities.gopa.record_claims import reach
from smpc_dp.capabilities.gopa.records import DirectRecordParameters, GopaRecordParameters
from smpc_dp.capabilities.gopa.verifiable.records import VerifiableRecordParameters
from smpc_dp.engine.phases.parameters import cost_of_sum
from smpc_dp.engine.registry import checker_of
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.records.table import read_table
from tests.unit.records.test_record_parameters import GIVEN, given


def planned(parameters: dict[str, Any], parties: int) -> GopaRecordParameters:
    checked, issues = checker_of("gopa", 4)(parameters, parties)
    assert isinstance(checked, GopaRecordParameters), issues
    return checked


@pytest.mark.parametrize("hidden", [0.0, 0.5, 1.0, 20.0])
@pytest.mark.parametrize("parties", [5, 11])
def test_a_total_is_hidden_beyond_the_sum_as_the_covariance_of_the_view_says(
    hidden: float, parties: int
) -> None:
    """Against the covariance matrix: the information of all differences about one party's total."""
    parameters = planned(given(hidden_totals=hidden), parties)
    honest, session = parameters.session.honest, parameters.session
    laplacian = honest * np.eye(honest) - np.ones((honest, honest))
    covariance = session.own_variance * np.eye(honest) + session.pair_variance * laplacian
    differences = np.linalg.svd(np.ones((1, honest)))[2][1:]
    seen = differences[:, 0]
    information = seen @ np.linalg.solve(differences @ covariance @ differences.T, seen)
    assert parameters.total_error == pytest.approx(1 / math.sqrt(information) / reach(parameters.request))
    assert parameters.total_error >= hidden
    # The whole view: a row moves its party's total, and is known up to the plan's mu.
    entry = np.linalg.inv(covariance)[0, 0]
    assert math.sqrt(entry) * parameters.request.sensitivity.l2 <= session.mu * (1 + 1e-6)
    said = "party totals are visible" if hidden == 0 else "a party's totals are hidden"
    privacy = parameters.privacy(parties)
    assert said in privacy.claim
    assert any(said in line for line in privacy.not_protected)


@pytest.mark.parametrize(
    "ask", [["count"], ["count", "sex"], ["mean(age)", "mean(age) by sex", "count", "quantile(age, 0.5)"]]
)
def test_all_numbers_of_a_request_together_hide_a_total(ask: list[str]) -> None:
    """Several numbers tell the same total: counts, and those of the cells. Against real vectors."""
    parameters = planned(given({"max_rows": 200}, ask=ask), 5)
    honest, session = parameters.session.honest, parameters.session
    error = math.sqrt((session.own_variance + honest * session.pair_variance) / (1 - 1 / honest))
    rows = [(age, sex) for age in (0.0, 100.0) for sex in ("f", "m")]
    columns: list[tuple[list[float], list[str]]] = [([], [])]
    columns += [([age] * 200, [sex] * 200) for age, sex in rows]
    vectors = [
        parameters.request.vector(
            read_table({"age": np.array(ages), "sex": np.array(sexes)}, parameters.schema, party="a")
        ).astype(float)
        for ages, sexes in columns
    ]
    farthest = max(float(np.linalg.norm(a - b)) for a in vectors for b in vectors)
    # The distance of two tables is the signal that a total gives over its whole range.
    assert error / farthest >= 1
    assert farthest <= reach(parameters.request) * (1 + 1e-6)
    assert farthest >= reach(parameters.request) / 2


def test_hiding_totals_costs_no_accuracy() -> None:
    for parties, most in ((5, 1.001), (10, 1.001), (200, 1.001)):
        parameters = planned(given(dropout=0.1), parties)
        noise = parameters.noise(parties, 0)
        assert 1 <= noise.total / noise.curator / math.sqrt(parties / parameters.session.honest) < most
        assert parameters.request.deviation(parties) == pytest.approx(noise.total)
    assert planned(given(), 10).session.honest == 8  # one lost, one corrupt


@pytest.mark.parametrize("more", [{"topology": "direct"}, {"verifiable": True}])
def test_a_plan_says_what_a_party_costs_that_is_lost_after_the_certificate(more: dict[str, Any]) -> None:
    """The noise of the pairs that it leaves is that of a real sum, and above the range of the answers."""
    known = {"max_rows": 1000, "rows_expected": 4000}
    checked, issues = checker_of("gopa", 4)(given(known, ask=["count"], **more), 5)
    assert isinstance(checked, GopaRecordParameters | VerifiableRecordParameters), issues
    note, total = cost_of_sum(checked).notes
    assert total.startswith("total: each party adds")
    larger = checked.noise(4, 4).total / checked.noise(5, 0).total
    assert f"standard errors {larger:.3g} times as large" in note
    assert "1 of 1 answers are useless then" in note
    # None may be lost, or the noise of a lost party is taken out.
    for other in (more | {"dropout": 0.0}, {}):
        checked, _ = checker_of("gopa", 4)(given(known, ask=["count"], **other), 5)
        assert isinstance(checked, GopaRecordParameters | VerifiableRecordParameters)
        [note] = cost_of_sum(checked).notes
        assert note.startswith("total: ")


@pytest.mark.parametrize(("rows", "relation"), [("private", "add-remove"), ("public", "substitution")])
def test_the_event_has_the_unit_and_the_relation(rows: str, relation: str) -> None:
    more = {"public_rows": [100] * 5} if rows == "public" else {}
    parameters = planned(given({"rows": rows}, ask=["mean(age)"], **more), 5)
    event = parameters.event()
    assert (event.unit, event.relation) == ("record", relation)
    assert 0.99 < Composition([event]).epsilon(1e-6) <= 1.0
    guarantee = parameters.privacy(5).guarantee
    assert guarantee is not None
    assert (guarantee.protects, guarantee.relation, guarantee.epsilon) == ("record", relation, 1.0)


def test_more_rows_make_the_grid_coarser_and_not_the_answers() -> None:
    few, many = planned(given(), 10), planned(given({"max_rows": 10**7}), 10)
    assert many.session.pair_variance < MAX_VARIANCE
    assert many.total_error >= 1
    assert many.request.deviation(10) < few.request.deviation(10) / 4
    errors = [
        [error.standard_error for error in one.request.errors(10, 5000) if error.standard_error]
        for one in (few, many)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)


def test_what_is_derived_with_floats_is_compared() -> None:
    others = [given(answer_weights={"count": 0.1}), given(epsilon=2.0), given(hidden_totals=2.0)]
    assert len({planned(other, 5).planned() for other in [GIVEN, *others]}) == 4


@pytest.mark.parametrize(
    ("parameters", "parties", "where", "reason"),
    [
        (given(topology="direct", on_dropout="roll-back"), 10, "on_dropout", "must be 'keep'"),
        (given(on_dropout="keep"), 10, "on_dropout", "must be 'roll-back'"),
        (given(hidden_totals=-1.0), 10, "hidden_totals", "must be"),
        (given(lower=0.0), 10, "lower", "the columns and what is asked state it"),
        (given(mechanism="skellam"), 10, "mechanism", "protocol 'secagg'"),
        (given(ask=["mean(height)"]), 10, "ask: 'mean(height)'", "no column 'height'"),
        (given(max_standard_error=1e-9), 10, "max_standard_error", "the standard error is"),
        (given(), 201, "roster", "at most 200 parties"),
        (given({"max_rows": 1 << 40}, hidden_totals=1000.0), 10, "max_rows", "do not fit into the ring"),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, Any], parties: int, where: str, reason: str) -> None:
    checked, issues = checker_of("gopa", 4)(parameters, parties)
    assert checked is None
    assert any(issue.where == where and reason in issue.reason for issue in issues), issues


def test_a_budget_of_several_requests_is_split() -> None:
    rest = {key: value for key, value in GIVEN.items() if key not in ("epsilon", "delta")}
    parameters = planned({**rest, "budget": {"epsilon": 1.0, "delta": 1e-6, "requests": 4}}, 5)
    assert Composition([parameters.event()] * 4).epsilon(1e-6) <= 1.0
    assert parameters.session.epsilon > 0.4


def in_form(form: dict[str, Any], parties: int, **more: Any) -> Any:
    checked, issues = checker_of("gopa", 4)(given(**more, **form), parties)
    assert checked is not None, issues
    return checked


FORMS = ({"topology": "direct"}, {"verifiable": True})


@pytest.mark.parametrize("form", FORMS, ids=["direct", "verifiable"])
@pytest.mark.parametrize(("rows", "relation"), [("private", "add-remove"), ("public", "substitution")])
def test_direct_and_verifiable_sessions_protect_a_row_and_hide_totals(
    form: dict[str, Any], rows: str, relation: str
) -> None:
    more: dict[str, Any] = {"public_rows": [100] * 5} if rows == "public" else {}
    checked = in_form(form, 5, records={"rows": rows}, ask=["mean(age)", "sex"], **more)
    assert isinstance(checked, DirectRecordParameters | VerifiableRecordParameters)
    event = checked.event()
    assert (event.unit, event.relation) == ("record", relation)
    assert 0.8 < Composition([event]).epsilon(1e-6) <= 1.0
    assert checked.total_error >= 1
    guarantee = checked.privacy(5).guarantee
    assert guarantee is not None
    assert (guarantee.protects, guarantee.relation) == ("record", relation)
    # Noise that lost parties leave in the sum is in every interval.
    left, whole = checked.leaving(4).request, checked.request
    extra = 4 * checked.session.pair_variance
    assert left.deviation(4) == pytest.approx(math.sqrt(whole.deviation(4) ** 2 + extra))
    # All of it is below what a total is held against.
    low, high = whole.bounds
    assert checked.encoding.length == len(low) == len(high)


def test_verifiable_bounds_are_those_of_max_rows_rows_and_the_error_is_near_that_of_a_fine_grid() -> None:
    checked = in_form({"verifiable": True}, 10, ask=["count", "mean(age)"])
    fine = planned(given(ask=["count", "mean(age)"]), 10)
    low, high = checked.request.bounds
    lows, highs = checked.bounds
    assert [(a - low.min(), b - low.min()) for a, b in zip(low, high, strict=True)] == list(
        zip(lows, highs, strict=True)
    )
    errors = [
        [error.standard_error for error in one.request.errors(10, 5000) if error.standard_error]
        for one in (checked, fine)
    ]
    ratios = [coarse / best for coarse, best in zip(*errors, strict=True)]
    assert max(ratios) < 1.15
    assert checked.bits * checked.encoding.length <= 1 << 16
    # Another plan is another question.
    other = in_form({"verifiable": True}, 10, ask=["count", "mean(age)"], answer_weights={"count": 9.0})
    assert checked.planned() != other.planned()


@pytest.mark.parametrize(
    ("form", "where", "reason"),
    [
        ({"verifiable": True, "topology": "direct"}, "topology", "must be 'relay'"),
        ({"verifiable": True, "on_dropout": "roll-back"}, "on_dropout", "must be 'keep'"),
        ({"verifiable": True, "ask": ["histogram(age, 1000)"]}, "ask", "coin flips"),
        ({"verifiable": True, "max_standard_error": 1e-9}, "max_standard_error", "the standard error is"),
    ],
)
def test_what_a_form_cannot_do_is_refused(form: dict[str, Any], where: str, reason: str) -> None:
    checked, issues = checker_of("gopa", 4)(given(**form), 10)
    assert checked is None
    assert any(issue.where == where and reason in issue.reason for issue in issues), issues


@pytest.mark.parametrize("form", [{}, *FORMS], ids=["relay", "direct", "verifiable"])
@pytest.mark.parametrize("parties", [5, 100])
def test_the_planned_error_is_the_one_that_answers_state(form: dict[str, Any], parties: int) -> None:
    """Also where the grid is so coarse that the rounding of a hundred sums counts."""
    checked = in_form(form, parties, ask=["count", "sum(age)", "sex"])
    total = np.zeros(checked.request.length, dtype=np.int64)
    answers = checked.answers(total, range(parties), level=0.95, simultaneous=False, hide=0.0)
    planned_errors = {error.text: error.standard_error for error in checked.errors(parties)}
    for one in answers.estimates:
        assert one.standard_error == pytest.approx(planned_errors[one.name], rel=1e-9), one.name
    fine = in_form({}, parties, ask=["count", "sum(age)", "sex"]).errors(parties)
    for coarse, best in zip(checked.errors(parties), fine, strict=True):
        assert coarse.standard_error < 1.3 * best.standard_error


def test_what_is_proven_and_what_is_left_of_a_claim_after_exclusions() -> None:
    checked = in_form({"verifiable": True}, 6, corrupt=0.2)
    few, more, none = (checked.privacy(5, excluded) for excluded in (1, 2, 5))
    assert few.epsilon < more.epsilon
    assert none.epsilon is None
    for one in (few, more, none):
        assert one.not_protected[: len(checked.proven.items)] == checked.proven.sentences
        assert not any("or no noise" in line for line in one.not_protected)
        assert "standard deviations of its noise" in one.not_protected[-1]
    # A total is hidden by the noise of one pair less for each corrupt party more than planned.
    assert f"at least {checked.total_error:.3g} times" in few.claim
    less = checked.total_error * math.sqrt(1 - 1 / checked.session.honest)
    assert f"at least {less:.3g} times" in more.claim
    assert "whoever reads the log" in few.claim


@pytest.mark.thin(3)
@pytest.mark.parametrize("form", [{}, *FORMS], ids=["relay", "direct", "verifiable"])
def test_a_delta_that_is_large_for_so_many_parties_moves_no_sentence(form: dict[str, Any]) -> None:
    large, usual = (in_form(form, 5, delta=delta).privacy(5).not_protected for delta in (0.3, 1e-6))
    assert len(large) == len(usual)
    assert not any("a corrupt party may" in line for line in large)
