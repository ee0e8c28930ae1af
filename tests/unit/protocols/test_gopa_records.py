"""Statistics of records by GOPA: what pairwise noise hides, which noise counts, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.protocols.gopa.params import MAX_VARIANCE
from smpc_dp.protocols.gopa.records import GopaRecordParameters, reach
from smpc_dp.protocols.registry import PARAMETER_CHECKERS
from smpc_dp.records.table import read_table
from tests.unit.protocols.test_record_parameters import GIVEN, given


def planned(parameters: dict[str, Any], parties: int) -> GopaRecordParameters:
    checked, issues = PARAMETER_CHECKERS["gopa", 1](parameters, parties)
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
        (given(topology="direct"), 10, "topology", "would hide the answers"),
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
    checked, issues = PARAMETER_CHECKERS["gopa", 1](parameters, parties)
    assert checked is None
    assert any(issue.where == where and reason in issue.reason for issue in issues), issues


def test_verifiable_averages_are_of_parties_alone() -> None:
    checked, issues = PARAMETER_CHECKERS["gopa", 2](given(verifiable=True), 10)
    assert checked is None
    assert [issue.where for issue in issues] == ["verifiable"]


def test_a_budget_of_several_requests_is_split() -> None:
    rest = {key: value for key, value in GIVEN.items() if key not in ("epsilon", "delta")}
    parameters = planned({**rest, "budget": {"epsilon": 1.0, "delta": 1e-6, "requests": 4}}, 5)
    assert Composition([parameters.event()] * 4).epsilon(1e-6) <= 1.0
    assert parameters.session.epsilon > 0.4
