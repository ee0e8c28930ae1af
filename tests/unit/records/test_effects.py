"""Random-effects meta-analysis: a plain reference, the sensitivity of both requests, intervals, refusals."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.effects import RATIO, EffectsPlan, plan_effects
from smpc_dp.records.effects_answers import ONE_PARTY, effects
from smpc_dp.records.record_audit import audit_records
from smpc_dp.records.result import WITHIN_NOISE, Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import Table, read_table
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

ASK = "random_effects(v, 300)"
SIZES = (800, 1500, 3000, 700, 2000, 400, 900, 1200, 300, 2500)
NAMES = ["Q of v", "I^2 of v", "tau^2 of v", "fixed-effects mean of v", "random-effects mean of v"]


def settings(rows: str = "private") -> dict[str, Any]:
    return {"columns": {"v": {"lower": 0.0, "upper": 1.0}}, "max_rows": 5000, "rows": rows}


def sites(spread: float = 0.05, sizes: tuple[int, ...] = SIZES) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(3)
    return [np.clip(rng.normal(0.5 + spread * rng.normal(), 0.15, n), 0, 1) for n in sizes]


def textbook(tables: list[NDArray[np.float64]], least: int = 1) -> dict[str, float]:
    """Return what DerSimonian and Laird estimate, all rows having one variance, and the mean's deviation."""
    sizes, means = np.array([len(table) for table in tables]), np.array([table.mean() for table in tables])
    rows, parties = sizes.sum(), len(tables)
    within = sum(((table - table.mean()) ** 2).sum() for table in tables) / (rows - parties)
    weights = sizes / within
    fixed = float((weights * means).sum() / weights.sum())
    q = float((weights * (means - fixed) ** 2).sum())
    between = max(0.0, (q - (parties - 1)) / (weights.sum() - (weights**2).sum() / weights.sum()))
    weights = sizes / (within + np.maximum(sizes, least) * between)
    values = [q, max(0.0, 1 - (parties - 1) / q), between, fixed, (weights * means).sum() / weights.sum()]
    return dict(zip([*NAMES, "deviation"], [*map(float, values), float(weights.sum() ** -0.5)], strict=True))


@pytest.mark.parametrize("rows", ["private", "public"])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_exact_requests_give_the_textbook_estimates(rows: str, spread: float) -> None:
    tables = sites(spread)
    given = [{"v": np.append(table, [np.nan] * 3)} for table in tables]
    answers = smpc_dp.simulate.statistics(given, ASK, schema=settings(rows), corrupt=0.0)
    truth = textbook(tables)
    assert [one.name for one in answers.estimates] == NAMES
    assert [one.value for one in answers.estimates] == pytest.approx(
        [truth[name] for name in NAMES], rel=1e-4
    )
    assert answers.estimates[-1].sampling_error == pytest.approx(truth["deviation"], rel=1e-4)
    assert answers.guarantee is None


def test_a_party_with_fewer_values_than_the_least_has_a_smaller_weight_and_one_with_none_has_none() -> None:
    tables = sites(0.05, (800, 1500, 3000, 90, 0))
    ask = "random_effects(v, 500)"
    answers = smpc_dp.simulate.statistics(
        [{"v": table} for table in tables], ask, schema=settings(), corrupt=0.0
    )
    estimated = {one.name: one.value for one in answers.estimates}
    # the first request counts five parties: so many are public
    between = estimated["tau^2 of v"]
    assert between is not None
    there = tables[:-1]
    sizes, means = np.array([len(table) for table in there]), np.array([table.mean() for table in there])
    rows = sizes.sum()
    within = sum(((table - table.mean()) ** 2).sum() for table in there) / (rows - 5)
    weights = sizes / (within + np.maximum(sizes, 500) * between)
    expected = (weights * means).sum() / weights.sum()
    assert estimated["random-effects mean of v"] == pytest.approx(float(expected), rel=1e-4)


def planned(rows: str, epsilon: float = 4.0, ask: str = ASK) -> EffectsPlan:
    return plan_effects(read_schema(settings(rows)), ask, budget=(epsilon, 1e-6), parties=len(SIZES))


@pytest.mark.thin(2)
@pytest.mark.parametrize("rows", ["private", "public"])
def test_intervals_hold_what_the_rows_give_at_the_released_ratio(rows: str) -> None:
    """Of 200 releases of both requests at least 89 % of each interval: false alarms below 1e-3.

    The errors of both means over their standard errors have a variance of 1 to within a third: 1e-3 too.
    """
    tables, schema = sites(), read_schema(settings(rows))
    first, truth = planned(rows), textbook(tables)
    read = [read_table({"v": table}, schema) for table in tables]
    source = NoiseSource.keyed(hashlib.sha256(rows.encode()).digest(), b"effects")

    def released(plan: EffectsPlan) -> tuple[Estimate, ...]:
        noise = plan.mechanism.share.noise(source, len(read) * plan.length).reshape(len(read), -1).sum(axis=0)
        return effects(plan, sum(plan.vector(table) for table in read) + noise, len(read))  # type: ignore[return-value]

    inside = dict.fromkeys(NAMES, 0)
    squares: dict[str, list[float]] = {name: [] for name in NAMES[3:]}
    for _ in range(200):
        plan = first.following(released(first))  # type: ignore[arg-type]
        assert plan.ratio is not None
        sizes, means = np.array(SIZES), np.array([table.mean() for table in tables])
        weights = sizes / (1 + np.maximum(sizes, 300) * plan.ratio / RATIO)
        truth[NAMES[4]] = float((weights * means).sum() / weights.sum())
        for one in released(plan).estimates:  # type: ignore[attr-defined]
            assert one.low is not None
            high = math.inf if one.high is None else one.high
            inside[one.name] += one.low <= truth[one.name] <= high
            if one.name in squares:
                squares[one.name].append(((one.value - truth[one.name]) / one.standard_error) ** 2)
    assert min(inside.values()) >= 0.89 * 200
    for values in squares.values():
        assert 2 / 3 < np.mean(values) < 4 / 3


def small(rows: str) -> Schema:
    column = {"lower": -1.0, "upper": 1.0, "step": 1.0}
    return read_schema({"columns": {"v": column}, "max_rows": 7, "rows": rows})


def bags(most: int) -> list[tuple[float, ...]]:
    """Return all tables of up to so many rows of -1, 0, 1 and missing values."""
    values = (-1.0, 0.0, 1.0, math.nan)
    return [bag for size in range(most + 1) for bag in itertools.combinations_with_replacement(values, size)]


def table_of(schema: Schema, rows: tuple[float, ...]) -> Table:
    return read_table({"v": np.array(rows, dtype=np.float64)}, schema)


@pytest.mark.thin(3)
@pytest.mark.parametrize("rows", ["private", "public"])
@pytest.mark.parametrize("least", [1, 3])
def test_no_row_moves_a_vector_further_than_the_sensitivity(rows: str, least: int) -> None:
    """All tables of up to eight rows, one more than max_rows where they are private, and all neighbours."""
    schema = small(rows)
    plan = plan_effects(schema, f"random_effects(v, {least})", budget=(1.0, 1e-6), parties=3)
    most = 8 if rows == "private" else 7
    for ratio in (None, 0, RATIO // 100, RATIO // 3, RATIO, 20 * RATIO):
        step = replace(plan, ratio=ratio)
        vectors = {bag: step.vector(table_of(schema, bag)).astype(float) for bag in bags(most)}
        furthest = 0.0
        for bag in bags(most - 1):
            more = [vectors[tuple(sorted((*bag, value), key=order))] for value in (-1.0, 0.0, 1.0, math.nan)]
            others = more if rows == "public" else [vectors[bag]]
            furthest = max(
                furthest, *(float(np.linalg.norm(one - other)) for one in more for other in others)
            )
        bound = plan.sensitivity.l2
        assert furthest <= bound
        # of the first request only large parties come near the bound, and of the second those at `least`
        assert furthest >= (0.6 if ratio is None else 0.5) * bound


def order(value: float) -> int:
    return (-1.0, 0.0, 1.0).index(value) if value == value else 3


@pytest.mark.parametrize("least", [1, 2, 50])
@pytest.mark.parametrize("ratio", [Fraction(0), Fraction(1, 1024), Fraction(1, 8), Fraction(3)])
def test_the_unit_of_the_second_request_bounds_one_value_more_and_one_exchanged(
    least: int, ratio: Fraction
) -> None:
    """Sums at both ends, by exact fractions, up to far more values than `least`; the bound is attained."""
    for rows, moves in (("private", "more"), ("public", "exchanged"), ("public", "more")):
        unit = replace(planned(rows, ask=f"random_effects(v, {least})"), ratio=round(ratio * RATIO)).unit
        worst = Fraction(0)
        for count in range(0 if moves == "more" else 1, 4 * least + 3):
            sums = [Fraction(-count), Fraction(0), Fraction(count)]
            if moves == "more":
                pairs = [((count, a), (count + 1, a + z)) for a in sums for z in (-1, 0, 1)]
            else:
                pairs = [((count, Fraction(count)), (count, Fraction(count - 2)))]
            for one, other in pairs:
                worst = max(worst, distance(unit, one, other, least, ratio))
        assert worst <= 1
        if moves == ("more" if rows == "private" else "exchanged"):
            assert worst > Fraction(999, 1000)


def distance(
    unit: Fraction, one: tuple[int, Fraction], other: tuple[int, Fraction], least: int, ratio: Fraction
) -> Fraction:
    """Return the square of how far the sums of two parties are apart."""
    first, second = (unit / (1 + max(count, least) * ratio) for count, _ in (one, other))
    return (first * one[0] - second * other[0]) ** 2 + (first * one[1] - second * other[1]) ** 2


def test_with_the_unit_of_small_parties_a_large_one_moves_further() -> None:
    """The wrong version is found: (1 + x)/sqrt(2) forgets that the weight of all other values changes too."""
    least, ratio = 50, Fraction(1, 7)
    wrong = (1 + least * ratio) * Fraction(70710678, 100_000_000)
    one, other = (least, Fraction(-least)), (least + 1, Fraction(1 - least))
    assert distance(wrong, one, other, least, ratio) > Fraction(3, 2)


def test_both_requests_together_cost_what_was_asked() -> None:
    plan = planned("private", 1.0)
    assert Composition([plan.event()] * 2).delta(1.0) <= 1e-6
    assert Composition([plan.event()] * 2).epsilon(1e-6) > 0.97
    second = replace(plan, ratio=RATIO // 10)
    assert second.event() == plan.event()
    assert [bound.tolist() for bound in second.bounds] == [bound.tolist() for bound in plan.bounds]


def test_the_least_number_of_values_makes_the_error_of_the_mean_small() -> None:
    """The figures of the guide: ten parties of a thousand rows."""
    given = {**settings(), "rows_expected": 10_000}
    errors = [
        plan_effects(read_schema(given), f"random_effects(v{least})", budget=(1.0, 1e-6), parties=10)
        .errors(10)[0]
        .relative
        for least in ("", ", 200", ", 500")
    ]
    first, *rest = [error or math.nan for error in errors]
    assert rest[0] < 0.7 * first
    assert rest[1] < rest[0]


def test_few_rows_have_no_tau_and_the_mean_is_as_if_it_were_0() -> None:
    answers = smpc_dp.simulate.statistics(
        [{"v": table} for table in sites(0.05, (3, 4, 5))],
        "random_effects(v)",
        schema=settings(),
        epsilon=0.5,
        delta=1e-6,
        corrupt=0.0,
        seed_for_simulation=1,
    )
    values = {one.name: one for one in answers.estimates}
    assert values["tau^2 of v"].value is None
    assert WITHIN_NOISE in values["tau^2 of v"].note
    mean = values["random-effects mean of v"]
    assert WITHIN_NOISE in mean.note or "tau^2 were 0" in mean.note


def test_tau_of_one_party_says_why_there_is_none() -> None:
    plan, schema = planned("private", 4.0), read_schema(settings())
    total = plan.vector(read_table({"v": np.concatenate(sites())[: schema.max_rows]}, schema))
    values = {one.name: one for one in effects(plan, total, 10).estimates}
    assert values["Q of v"].value is not None
    assert (values["tau^2 of v"].value, values["tau^2 of v"].note) == (None, ONE_PARTY)


def test_the_second_request_does_not_depend_on_the_level_of_the_intervals() -> None:
    plan, schema = planned("private", 1.0), read_schema(settings())
    total = np.sum([plan.vector(read_table({"v": table}, schema)) for table in sites()], axis=0)
    made = [effects(plan, total, 10, level=level).following for level in (0.01, 0.95, 1 - 1e-6)]
    assert len(set(made)) == 1


def test_an_audit_releases_both_requests() -> None:
    given = {"records": settings(), "ask": ASK, "epsilon": 1.0, "delta": 1e-6, "corrupt": 0.0}
    checked, issues = checker_of("secagg", 2)(given, 5)
    assert issues == []
    audit = audit_records(checked, 20_000, SeededRandomnessForSimulation(1, "audit"))
    assert not audit.violations
    assert len(audit.findings) == 2 * 2 * 2 * 8


BASE: dict[str, Any] = {"ask": ASK, "records": {**settings(), "rows_expected": 5000}, "corrupt": 0.0}
NOISY = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("change", "protocol", "reason"),
    [
        ({"ask": ["count", ASK], **NOISY}, "secagg", "is asked for alone"),
        ({"steps": 3}, "secagg", "steps: is for regressions: random effects take two requests"),
        ({"budget": {**NOISY, "requests": 5}}, "secagg", "budget: is not for what takes several requests"),
        ({"delta": 1e-6}, "secagg", "epsilon: is missing"),
        ({"ask": "random_effects(v, 0)"}, "secagg", "a party has 1 to max_rows = 5000 values, not 0"),
        ({"ask": "random_effects(v, 5001)"}, "secagg", "a party has 1 to max_rows = 5000 values, not 5001"),
        ({"ask": "random_effects(v, 2.5)"}, "secagg", "the least number of values must be an integer"),
        ({"ask": "random_effects(w)"}, "secagg", "no column 'w'"),
        ({"ask": "random_effects(v) by v"}, "secagg", "a random_effects has no groups"),
        (NOISY, "gopa", "with protocol 'secagg'"),
        ({"max_standard_error": 1e-4, **NOISY}, "secagg", "tau^2 of v: the standard error is"),
    ],
)
def test_what_is_wrong_is_refused_by_name(change: dict[str, Any], protocol: str, reason: str) -> None:
    checked, issues = checker_of(protocol, session_protocol(protocol).version)({**BASE, **change}, 5)
    assert checked is None
    assert any(reason in f"{issue.where}: {issue.reason}" for issue in issues), issues
