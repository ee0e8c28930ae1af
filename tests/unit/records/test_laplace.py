"""Discrete Laplace shares in statistics of records: when they are chosen, their sensitivity and intervals."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from smpc_dp.engine.registry import checker_of
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.intervals import ErrorDistribution, normal_quantile
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.record_audit import audit_records
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.sensitivity import Scaled, l1_sensitivity
from smpc_dp.records.table import read_table
from smpc_dp.secagg.records import RecordSumParameters, check_records
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.unit.records.brute_force import features, rows_of

WARDS = ["a", "b", "c", "d"]


def schema(rows: str = "private", **more: Any) -> Schema:
    columns: dict[str, Any] = {"ward": {"values": WARDS}}
    columns |= {f"x{index}": {"lower": -1.0, "upper": 1.0, "missing": False} for index in range(12)}
    return read_schema({"columns": columns, "max_rows": 1000, "rows": rows, **more})


def planned(ask: list[str], rows: str = "private", **more: Any) -> Plan:
    return plan_request(
        schema(rows, **more), ask, epsilon=1.0, delta=1e-6, parties=6, missing=1, corrupt=1, laplace=True
    )


@pytest.mark.parametrize(("number", "laplace"), [(1, True), (7, True), (12, False)])
def test_few_equal_sums_have_laplace_noise_and_many_gaussian(number: int, laplace: bool) -> None:
    plan = planned([f"sum(x{index})" for index in range(number)])
    assert (plan.laplace is not None) == laplace
    assert plan.event().unit == "record"
    assert ("discrete Laplace" in plan.guarantee.mechanism) == laplace


def test_one_table_of_any_size_has_laplace_noise_at_its_epsilon_over_a_row() -> None:
    plan = planned(["ward"])
    assert plan.laplace is not None
    assert plan.mechanism.delta(1.0) == 0.0
    [error] = plan.errors(plan.mechanism.honest)
    assert error.standard_error == pytest.approx(math.sqrt(2), rel=0.01)
    person = planned(["ward"], unit="person", id="who", rows_per_person=3, parties_per_person=2)
    assert person.errors(4)[0].standard_error == pytest.approx(6 * math.sqrt(2), rel=0.01)


@pytest.mark.parametrize("ask", [["count", "mean(x1)"], ["variance(x1)"], ["quantile(x1, 0.5)"]])
def test_ratios_and_functions_of_sums_have_gaussian_noise(ask: list[str]) -> None:
    assert planned(ask).laplace is None


@pytest.mark.parametrize("rows", ["private", "public"])
def test_no_rows_are_further_apart_in_l1_than_the_bound(rows: str) -> None:
    """All rows, and all pairs of rows, of a small schema; the bound is attained."""
    columns = {"v": {"lower": -1.0, "upper": 1.0, "step": 0.5}, "c": {"values": ["a", "b", "c"]}}
    known = read_schema({"columns": columns, "max_rows": 50, "rows": rows})
    statistics = read_ask(["c", "sum(v)", "sum(v) by c"], known)
    blocks = list(
        dict.fromkeys(
            block
            for one in statistics
            for term in statistic_of(one).terms(one, known)
            for block in term.squares
        )
    )
    scaled = [Scaled(block, Fraction(3 + 2 * index)) for index, block in enumerate(blocks)]
    listed = [features(scaled, known, row) for row in rows_of(known)]
    if rows == "private":
        furthest = max(sum(map(abs, one)) for one in listed)
    else:
        furthest = max(
            sum(abs(a - b) for a, b in zip(one, other, strict=True)) for one in listed for other in listed
        )
    assert l1_sensitivity(scaled, known).l1 == furthest


@pytest.mark.parametrize("outside", [0.5, 0.05, 1e-4, 1e-9])
def test_the_distribution_of_the_noise(outside: float) -> None:
    """One Laplace noise, and two of them, in closed form; many are normal; none is normal."""
    assert ErrorDistribution(1.0).quantile(outside) == pytest.approx(
        -math.log(outside) / math.sqrt(2), rel=1e-6
    )
    z = ErrorDistribution(2.0).quantile(outside) * 2
    assert math.exp(-z) * (1 + z / 2) == pytest.approx(outside, rel=1e-6)
    assert ErrorDistribution(1e4).quantile(outside) == pytest.approx(normal_quantile(outside), rel=3e-3)
    assert ErrorDistribution().quantile(outside) == normal_quantile(outside)


@pytest.mark.thin(2)
@pytest.mark.parametrize("rows", ["public", "private"])
def test_intervals_have_their_level(rows: str) -> None:
    """Of 600 releases 95 % within 3.6 %: four standard errors, false alarms of 1e-4 an answer."""
    rng = np.random.default_rng(4)
    ask = ["count", "sum(x1)", "ward"] if rows == "private" else ["mean(x1)", "ward"]
    plan, known = planned(ask, rows), schema(rows)
    table: dict[str, Any] = {f"x{index}": rng.uniform(-1, 1, 500) for index in range(12)}
    table["ward"] = rng.choice(WARDS, 500, p=[0.6, 0.3, 0.1, 0.0])
    exact = 6 * plan.vector(read_table(table, known))
    truth = {"count": 3000.0, "sum(x1)": 6 * table["x1"].sum(), "mean(x1)": table["x1"].mean()}
    truth |= {ward: 6.0 * np.sum(table["ward"] == ward) for ward in WARDS}
    inside: Counter[str] = Counter()
    source, releases = NoiseSource.keyed(hashlib.sha256(rows.encode()).digest()), 600
    share = plan.laplace
    assert share is not None
    noise = np.sum(
        [share.noise(source, releases * plan.length).reshape(releases, -1) for _ in range(6)], axis=0
    )
    for row in noise:
        for one in estimate(
            plan, exact + row, 6, rows=3000 if rows == "public" else None, hide=0.0
        ).estimates:
            name = one.cell.get("ward", one.name)
            assert one.low is not None
            assert one.high is not None
            inside[name] += one.low <= truth[name] <= one.high
    shares = {name: number / releases for name, number in inside.items()}
    assert len(shares) == len(ask) - 1 + len(WARDS)
    assert all(abs(share - 0.95) <= 0.036 for share in shares.values()), shares


@pytest.mark.long
def test_a_shown_cell_has_its_level_given_that_it_is_shown() -> None:
    """An empty cell that is shown: its lower end is 0 with the level, as without memory it must be.

    Within four standard errors: a false alarm of 3e-5; the seed is fixed.
    """
    plan = planned(["ward"])
    shown = below = 0
    source = NoiseSource.keyed(b"s" * 32)
    assert plan.laplace is not None
    drawn = np.sum([plan.laplace.noise(source, 4 * 600) for _ in range(6)], axis=0)
    for row in drawn.reshape(-1, 4):
        for one in estimate(plan, row, 6, hide=1.0).estimates:
            if one.value is not None:
                shown += 1
                below += (one.low or 0.0) <= 0.0
    assert shown > 150
    assert below / shown >= 0.975 - 4 * math.sqrt(0.025 / shown)


def test_an_audit_finds_one_share_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right release is refuted with probability 0.002 at most; the seed is fixed."""
    records = {"max_rows": 100, "columns": {"ward": {"values": WARDS}}}
    given = {"records": records, "ask": "ward", "epsilon": 1.0, "delta": 1e-6, "dropout": 0.0, "corrupt": 0.0}
    parameters, issues = check_records(given, 4)
    assert isinstance(parameters, RecordSumParameters), issues
    assert (parameters.mechanism, parameters.honest) == ("discrete-laplace", 3)
    assert "discrete Laplace noise" in parameters.assumption
    source = SeededRandomnessForSimulation(1, "audit")
    right = audit_records(parameters, 20_000, source)
    assert not right.violations
    draw, calls = RecordSumParameters.own_noise, iter(range(1 << 30))

    def left_out(self: RecordSumParameters, source: NoiseSource, count: int) -> np.ndarray[Any, Any]:
        noise = draw(self, source, count)
        return noise if next(calls) % 3 else np.zeros_like(noise)

    monkeypatch.setattr(RecordSumParameters, "own_noise", left_out)
    wrong = audit_records(parameters, 20_000, source)
    assert wrong.variance == pytest.approx(2 / 3, rel=0.05)
    assert wrong.violations


@pytest.mark.parametrize(
    ("requests", "laplace"), [(1, True), (2, True), (8, True), (10, False), (1000, False)]
)
def test_a_budget_has_the_smaller_noise_and_all_requests_fit_into_it(requests: int, laplace: bool) -> None:
    given = {
        "records": {"columns": {"w": {"values": ["a", "b"]}}, "max_rows": 1000},
        "ask": "w",
        "budget": {"epsilon": 1.0, "delta": 1e-6, "requests": requests},
    }
    checked, issues = checker_of("secagg", 2)(given, 5)
    assert issues == []
    parameters: Any = checked
    assert (parameters.request.laplace is not None) == laplace
    assert Composition([parameters.event()] * requests).delta(1.0) <= 1e-6
    expected = math.sqrt(2) * requests if laplace else 4.225 * math.sqrt(requests)
    counted = parameters.request.mechanism.honest
    error = parameters.request.worst({})
    assert error == pytest.approx(expected, rel=0.02), counted
