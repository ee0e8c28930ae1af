"""Statistics of records on shares: one noise for all, in the unit and the relation of the rows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from smpc_dp.capabilities.servers.requests.programs import compile_operation
from smpc_dp.capabilities.servers.requests.shared import sum_event
from smpc_dp.capabilities.servers.secret_sharing.records import SharedRecordParameters
from smpc_dp.capabilities.servers.statistics.program import output_spans
from smpc_dp.engine.registry import checker_of
from smpc_dp.privacy.accountant.compose import Composition
from tests.unit.records.test_record_parameters import GIVEN, given


def planned(parameters: dict[str, Any], parties: int) -> SharedRecordParameters:
    checked, issues = checker_of("mpyc", 1)(parameters, parties)
    assert isinstance(checked, SharedRecordParameters), issues
    return checked


@pytest.mark.parametrize("parties", [2, 10, 300])
def test_the_noise_is_that_of_a_trusted_curator_however_many_parties(parties: int) -> None:
    parameters = planned(given(), parties)
    deviation = parameters.request.deviation(parties)
    assert deviation == math.sqrt(parameters.noise.variance)
    assert 1 <= deviation / parameters.curator_deviation < 1.005
    count, ten = parameters.request.errors(parties)[0], planned(given(), 10).request.errors(10)[0]
    assert count.standard_error == pytest.approx(ten.standard_error, rel=0.01)


def test_requests_share_a_budget() -> None:
    """All of them together cost no more, and hardly less."""
    parameters = {key: value for key, value in given().items() if key not in ("epsilon", "delta")}
    parameters["budget"] = {"epsilon": 2.0, "delta": 1e-6, "requests": 5}
    shared = planned(parameters, 5)
    assert 0.7 < (shared.epsilon or 0) < 1
    assert 1.99 < Composition([sum_event(shared)] * 5).epsilon(1e-6) <= 2
    checked, issues = checker_of("mpyc", 1)({**parameters, "epsilon": 1.0}, 5)
    assert checked is None
    assert [one.where for one in issues] == ["epsilon"]


@pytest.mark.parametrize(("rows", "relation"), [("private", "add-remove"), ("public", "substitution")])
def test_the_event_has_the_unit_and_the_relation(rows: str, relation: str) -> None:
    more = {"public_rows": [100] * 5} if rows == "public" else {}
    parameters = planned(given({"rows": rows}, ask=["mean(age)", "sex"], **more), 5)
    event = sum_event(parameters)
    assert (event.unit, event.relation) == ("record", relation)
    assert 0.99 < Composition([event]).epsilon(1e-6) <= 1.0
    # The sensitivity of the noise is that of a row in the vector as it is sent.
    assert parameters.noise.l2 == parameters.request.sensitivity.l2
    privacy = parameters.privacy(3)
    assert (privacy.unit, privacy.epsilon) == ("record", 1.0)
    assert "each record is (1, 1e-06)-differentially private" in privacy.claim


def test_the_program_checks_each_coordinate_against_its_bounds() -> None:
    parameters = planned(given(), 5)
    program = compile_operation(parameters, "statistics", 4, (), b"")
    low, high = (end.tolist() for end in parameters.request.bounds)
    lowest = parameters.encoding.lowest
    spans = [(4 * (a - lowest), 4 * (b - lowest)) for a, b in zip(low, high, strict=True)]
    assert output_spans(program.terms) == spans
    assert len(program.noises) == parameters.request.length
    with pytest.raises(Exception, match="is not statistics"):
        compile_operation(parameters, "sum", 4, (), b"")


@pytest.mark.parametrize(
    ("parameters", "parties", "where", "reason"),
    [
        (given(mechanism="laplace"), 5, "mechanism", "is Gaussian"),
        (given(corrupt=0.1), 5, "corrupt", "any number of parties"),
        (given(epsilon=30.0), 5, "epsilon", "at most 20 on shares"),
        (given(length=2), 5, "length", "the columns and what is asked state it"),
        (given(), 1, "roster", "2 to 100000 are needed"),
        (given(max_standard_error=1e-9), 5, "max_standard_error", "the standard error is"),
        (given({"rows": "public"}), 5, "public_rows", "is needed"),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, Any], parties: int, where: str, reason: str) -> None:
    checked, issues = checker_of("mpyc", 1)(parameters, parties)
    assert checked is None
    assert any(issue.where == where and reason in issue.reason for issue in issues), issues


def test_what_is_derived_with_floats_is_compared() -> None:
    others = [given(answer_weights={"count": 0.1}), given(epsilon=2.0)]
    assert len({planned(other, 5).planned() for other in [GIVEN, *others]}) == 3
