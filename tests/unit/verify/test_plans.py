"""The second auditor plans noise and drawn graphs by itself, and finds what the sessions plan."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters, check_parameters
from smpc_dp.capabilities.gopa.verifiable.records import VerifiableRecordParameters
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.engine.registry import checker_of
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Shift
from smpc_dp.privacy.distributions import BinomialDistribution
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.records.schema import Category, read_schema
from smpc_dp_verify.answers import Sums
from smpc_dp_verify.columns import read_table
from smpc_dp_verify.draws import plan_draws
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.losses import Grid
from smpc_dp_verify.noise import MOST_BITS, Noise, _composed
from smpc_dp_verify.record_plan import check_errors, read_request
from smpc_dp_verify.schedule import group_of, pcg64
from smpc_dp_verify.session import Session
from smpc_dp_verify.sum_plan import read_shares
from smpc_dp_verify.sums import read_sums
from smpc_dp_verify.terms import Terms, read_terms

GIVEN: dict[str, Any] = {"verifiable": True, "length": 1, "lower": 0.0, "upper": 1.0}
GIVEN |= {"epsilon": 1.0, "delta": 1e-6}
BOX = {"length": 3, "lower": [0.0, 0.0, -1.0], "upper": [1.0, 2.0, 1.0]}
SESSIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "one coordinate": (10, {}),
    "the least is near": (100, {"epsilon": 0.428, "upper": 10.0, "corrupt": 0.2}),
    "coordinates": (20, {"length": 4, "epsilon": 0.8, "precision": 0.2}),
    "coordinates of their own": (9, BOX | {"delta": 1e-5}),
    "a ball": (12, {"length": 4, "l2_bound": 2.0, "lower": None, "upper": None}),
    "a drawn graph": (100, {"precision": 0.2}),
    "draws of more than half": (65, {"corrupt": 0.3, "dropout": 0.2, "precision": 0.3}),
    "secure aggregation has all for neighbours": (66, {"corrupt": 0.0, "dropout": 0.485, "precision": 0.5}),
    "a large one": (300, {"dropout": 0.05, "precision": 0.1}),
}


def without(names: Iterable[str], *long: str) -> list[Any]:
    """Return names, of which those that take the second auditor many seconds are marked `long`."""
    return [pytest.param(name, marks=pytest.mark.long if name in long else ()) for name in names]


def planned(name: str) -> tuple[VerifiableParameters, Session]:
    parties, change = SESSIONS[name]
    given = {key: value for key, value in (GIVEN | change).items() if value is not None}
    parameters, issues = checker_of("gopa", 5)(given, parties)
    assert isinstance(parameters, VerifiableParameters), issues
    return parameters, described(5, given, parties)


def described(version: int, given: dict[str, Any], parties: int) -> Session:
    names = [f"party-{number}" for number in range(parties)]
    return Session(bytes(32), "gopa", version, given, {}, names, "relay", None)


def second(session: Session, own: int, pair: int) -> Terms:
    return read_terms(session, 1, f"average {own:x}/{pair:x}")


@pytest.mark.parametrize("name", without(SESSIONS, "coordinates", "coordinates of their own"))
def test_both_plan_the_same(name: str) -> None:
    parameters, session = planned(name)
    noise = parameters.session
    terms = second(session, noise.own_variance, noise.pair_variance)
    assert (terms.bits, terms.pair_variance) == (parameters.bits, noise.pair_variance)
    assert terms.noise.most_neighbours == parameters.most_neighbours
    assert (terms.corrupt, terms.least_left(1)) == (parameters.plan.max_corrupt, parameters.least_left(1))
    for own in (noise.own_variance - 1, noise.own_variance + 1):
        with pytest.raises(Refused, match="noise"):
            second(session, own, noise.pair_variance)
    for pair in (noise.pair_variance // 4, noise.pair_variance * 4, noise.pair_variance - 1):
        with pytest.raises(Refused, match="pairwise noise"):
            second(session, noise.own_variance, pair)


@pytest.mark.parametrize("upper", [76, 80])
def test_both_refuse_bits_that_no_search_gets_to(upper: int) -> None:
    """The search tries more than there may be, though fewer would be enough."""
    given = GIVEN | {"kind": "integer", "lower": 0, "upper": upper}
    _, issues = check_parameters(given, 10)
    noise = Noise(10, 1, 1, given["epsilon"], given["delta"], 1, (upper,), None)
    halves = range(1, MOST_BITS // 2)
    half = halves[bisect.bisect_left(halves, True, key=lambda half: noise._suffices(2 * half))]
    assert bool(issues) == (upper == 80)
    with pytest.raises(Refused, match="noise") if issues else nullcontext():
        noise.check(-(-half // 2) * 4, noise.pair)


def test_losses_beyond_the_greatest_are_not_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take minutes and gigabytes, and the first auditor counts them as infinite."""
    monkeypatch.delattr(Grid, "of")
    for coins, widths in ((4096, (700, 700)), (4096, (560,) * 9)):
        composed = _composed(coins, widths)
        assert (composed.delta(99.0), composed._grid.finite) == (1.0, 0.0)
        shifts = Shift(BinomialDistribution(coins), 1, widths[0], len(widths), len(widths))
        assert Composition([Event("total", "substitution", (shifts,))]).delta(99.0) == 1.0


AGE: dict[str, Any] = {"max_rows": 7, "columns": {"age": {"lower": 0.0, "upper": 100.0}}}
PERSON = {"unit": "person", "id": "who", "rows_per_person": 5, "parties_per_person": 1}
COLUMNS: dict[str, Any] = {
    "age": {"lower": -20, "upper": 100.0, "step": 0.5, "bins": [0, 30.5, 60.0]},
    "bmi": {"lower": 10.0, "upper": 60.0, "missing": False},
    "ill": {"lower": 0, "upper": 1, "step": 1, "missing": False},
    "sex": {"values": ["f", "m"], "other": "f", "reference": "m", "missing": False},
    "ward": {"kind": "category", "values": ["a"]},
}
HOSPITALS: dict[str, Any] = {
    **COLUMNS,
    "hospital": {
        "kind": "party",
        "values": [f"party-{number}" for number in range(6)],
        "reference": "party-2",
    },
}
DERIVED: dict[str, Any] = {
    "log_bmi": {"function": "log", "of": "bmi"},
    "age2": {"function": "square", "of": "age", "bins": [100.0]},
    "band": {"of": "years", "edges": [30, 60], "reference": "[18, 30)"},
    "years": {"unit": "years", "start": "born", "end": "seen", "lower": 18, "upper": 90, "missing": False},
    "stay": {"kind": "elapsed", "unit": "days", "start": "seen", "end": "2026-07-01", "lower": 0, "upper": 9},
}
WIDE: dict[str, Any] = {"max_rows": 500, "columns": COLUMNS, "derived": DERIVED, "rows_expected": 4000}
PUBLIC = WIDE | {"rows": "public"}
ROWS = {"public_rows": [500] * 20}
UNIT = {"lower": -1.0, "upper": 1.0, "missing": False}
NORM: dict[str, Any] = {"columns": ["a", "b", "c"], "bound": 1}
ASKED: dict[str, list[str]] = {
    "counts and sums": ["count", "sum(age)", "count by sex x age", "sum(bmi) by sex"],
    "means and variances": ["mean(age) by sex", "variance(bmi)", "variance(age) by sex", "mean(bmi)"],
    "moments": ["covariance(age, bmi)", "correlation(age, bmi, ill)", "correlation(age, bmi) by sex"],
    "robust errors": ["variance(age, robust) by sex", "variance(bmi, robust)"],
    "robust errors of pairs": ["correlation(age, bmi, robust)", "covariance(bmi, ill, robust) where age > 0"],
    "tables": [
        "count",
        "sex x ward x age",
        "ward x age",
        "histogram(bmi, 5)",
        "histogram(age, [10, 50])",
        "sex",
        "histogram(ill, 2)",
    ],
    "a regression": ["regression(bmi ~ age + ill)"],
    "regressions of groups": ["regression(bmi ~ ill) by sex", "regression(bmi ~ sex) by age where ill = 1"],
    "robust errors of regressions": [
        "sandwich(bmi ~ age + sex, [-1.06, -0.39, 0.48], [0.65, 0.7, 0.29], "
        "[0.075, -0.003, 0.061, 0.053, -0.006, 0.112], 5, 4276503008)",
        "sandwich(bmi ~ ill + band + ill:band, [1.09, -0.53, -0.22, -0.68, 0.6, 0.04], "
        "[0.07, 0.87, 0.83, 0.89, 0.06, 0.24], [0.053, -0.001, 0.004, -0.003, 0.01, -0.007, 0.054, 0.042, "
        "-0.01, -0.021, 0.004, 0.154, -0.033, -0.04, -0.078, 0.064, 0.045, -0.008, 0.084, -0.018, 0.126], "
        "5, 1076759467) where ward = a",
        "covariance(age, bmi)",
    ],
    "survival": ["survival(age, ill) by sex", "logrank(age, ill) by sex"],
    "comparisons": [
        "difference(bmi) by sex",
        "difference(age) by sex",
        "risk(ill) by sex",
        "chi_square(sex, age)",
    ],
    "survival of strata": [
        "logrank(age, ill) by sex x ward",
        "cox(age, ill ~ sex) by ward",
        "cox_breslow(age, ill ~ sex) by ward",
        "cox_efron(age, ill ~ sex)",
    ],
    "heterogeneity": [
        "heterogeneity(bmi)",
        "mean(bmi)",
        "missing(age)",
        "missing(sex) by ward",
        "missing(age) by sex where ward = a",
    ],
    "conditions and derived columns": [
        "mean(log_bmi)",
        "sum(age2) where years >= 30",
        "band x sex",
        "regression(bmi ~ band + stay)",
        "count where sex = 'f' and age >= 30 and age < 60",
        "mean(bmi) by sex where age > -20",
        'covariance(bmi, ill) where ill = 1.0 and ward = "a"',
        "covariance(bmi, ill)",
        "variance(age) where bmi <= 30.01",
        "mean(ill) where age <= 50 and ill != 0",
    ],
    "tables of groups": ["table1(age, ward) by sex", "table1(ward) where sex = 'f'", "table1(bmi)"],
    "the median of one": ["median(ill)", "median(ill) by sex"],
}
RECORDS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "well hidden totals": (9, PUBLIC, {"ask": ["sum(age)"], "hidden_totals": 1000, "public_rows": [9] * 9}),
    "a sum of a row": (6, AGE, {"ask": "sum(age)"}),
    "a sum of a person": (6, AGE | PERSON, {"ask": "sum(age)"}),
    "an exchanged row": (6, AGE | {"rows": "public"}, {"public_rows": [7] * 6, "ask": "mean(age)"}),
    "one sum of exchanged rows": (
        6,
        {"max_rows": 7, "rows": "public", "columns": {"bmi": COLUMNS["bmi"]}},
        {"public_rows": [7] * 6, "ask": "mean(bmi)"},
    ),
    "sums of a person in two parties": (
        6,
        AGE | PERSON | {"rows_per_person": 2, "parties_per_person": 2},
        {"ask": ["count", "mean(age)"]},
    ),
    "moments, most of whose squares are bounded together": (6, AGE, {"ask": ["variance(age)", "mean(age)"]}),
    "weights": (
        12,
        WIDE,
        {"ask": "count; mean(age); sex x ward", "answer_weights": {"count": 50}, "max_standard_error": 0.5},
    ),
    **{
        f"a balanced split, {name}": (
            20,
            records,
            {
                "ask": "count; mean(age) by sex; covariance(age, bmi, ill); mean(ill); covariance(age, bmi)",
                "split": "balanced",
                "answer_weights": {"count": 3.0},
            }
            | more,
        )
        for name, records, more in (("private", WIDE, {}), ("public", PUBLIC, ROWS))
    },
    "weights of robust answers": (
        20,
        WIDE,
        {
            "ask": [
                "correlation(age, bmi)",
                "correlation(age, bmi, robust)",
                "covariance(bmi, ill, robust) by sex",
            ],
            "answer_weights": {
                "correlation(age, bmi, robust)": 9.0,
                "covariance(bmi, ill, robust) by sex": 0.2,
            },
        },
    ),
    **{
        f"moments of rows clipped in L2, {name}": (
            20,
            records | {"norm": {"columns": ["ill", "bmi"], "bound": 0.8}},
            {"ask": "covariance(age, bmi, ill); variance(bmi); mean(bmi); heterogeneity(bmi)"} | more,
        )
        for name, records, more in (("private", WIDE, {}), ("public", PUBLIC, ROWS))
    },
    **{
        f"moments of only such rows, {rows}": (
            20,
            {"max_rows": 500, "rows": rows, "columns": {"a": UNIT, "b": UNIT, "c": UNIT}, "norm": NORM},
            {"ask": "covariance(a, b, c)"} | more,
        )
        for rows, more in (("private", {}), ("public", ROWS))
    },
    "visible totals": (9, WIDE, {"ask": ["count by sex"], "hidden_totals": 0, "corrupt": 0.0, "dropout": 0}),
    **{
        f"a formula, {name}": (
            20,
            records,
            {"ask": ["regression(bmi ~ sex * ill + ill * age)", "mean(age) by sex"], "split": "balanced"}
            | more,
        )
        for name, records, more in (("persons", WIDE | PERSON, {}), ("public", PUBLIC, ROWS))
    },
    **{
        f"hospitals, {name}": (
            6,
            records | {"columns": HOSPITALS},
            {"ask": ["regression(bmi ~ ill + hospital)", "mean(bmi) by hospital where hospital != 'party-1'"]}
            | more,
        )
        for name, records, more in (
            ("private", WIDE, {}),
            ("public", PUBLIC, {"public_rows": [500] * 6}),
            ("persons", WIDE | PERSON, {"ask": "mean(ill) by hospital"}),
        )
    },
    **{f"{name}, rows private": (20, WIDE, {"ask": ask}) for name, ask in ASKED.items()},
    **{f"{name}, rows public": (20, PUBLIC, {"ask": ask} | ROWS) for name, ask in ASKED.items()},
    **{
        f"{name}, persons": (20, WIDE | PERSON | {"rows_per_person": 2}, {"ask": ask})
        for name, ask in ASKED.items()
    },
}
BASE = {"verifiable": True, "epsilon": 4.0, "delta": 1e-6}


@functools.cache
def planned_records(name: str) -> tuple[VerifiableRecordParameters, Session, str]:
    parties, records, more = RECORDS[name]
    given = BASE | more | {"records": records}
    parameters, issues = checker_of("gopa", 4)(given, parties)
    assert isinstance(parameters, VerifiableRecordParameters), issues
    asked = f"{parameters.operations[0]} {parameters.planned()}"
    return parameters, described(4, given, parties), asked


FEW_ROWS: dict[str, Any] = {"records": AGE, "ask": ["count"]}


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("parties", [3, 5, 9])
@pytest.mark.parametrize(
    ("asked", "given"),
    [("average", GIVEN | {"precision": 0.5}), ("statistics", BASE | FEW_ROWS)],
    ids=["vectors", "records"],
)
def test_both_plan_a_version_with_its_default_of_corrupt(
    asked: str, given: dict[str, Any], parties: int, version: int
) -> None:
    checked, issues = checker_of("gopa", version)(given, parties)
    assert not issues
    if "records" in given:
        asked = checked.operations[0]
    terms = read_terms(described(version, given, parties), 1, f"{asked} {checked.planned()}")
    corrupt, lost = int(version == 5), int(parties >= 5)
    assert (terms.corrupt, terms.lost) == (corrupt, lost)
    assert (checked.plan.max_corrupt, checked.plan.max_dropouts) == (corrupt, lost)


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", RECORDS)
def test_both_ask_and_answer_the_same_of_records(name: str) -> None:
    """The bounds, moves and scales in the question, and the answers, follow from the session."""
    parameters, session, asked = planned_records(name)
    plan, noise = parameters.plan, parameters.session
    request = read_request(session.parameters, plan.parties, noise.honest)
    assert asked.startswith(f"statistics {request.text} ")
    low, high = parameters.request.bounds
    assert (request.low, request.high) == (low.tolist(), high.tolist())
    # Pairwise noise that hides a row is more where totals are hidden little.
    assert noise.pair_variance >= request.hidden
    assert name != "well hidden totals" or noise.pair_variance == request.hidden
    counted = [*range(1, plan.parties)]
    rows = len(counted) * (parameters.public_rows or (parameters.schema.max_rows // 2,))[0]
    kinds = ("count", "sum", "mean", "variance", "robust variance", "table", "histogram")
    for part in (0.0, 0.3, 1.0):
        total = part * rows / parameters.schema.max_rows * (0.4 * low + 0.6 * high)
        grid = np.rint(total).astype(np.int64)
        answers = parameters.answers(grid, counted, level=0.95, simultaneous=False)
        sums = Sums.of_request(request, grid.tolist(), noise.own_variance, counted)
        own = sums.answers(request.asked)
        texts = [one.text for one in parameters.request.statistics if one.kind in kinds]
        assert [one.statistic for one in own] == texts
        for one in own:
            expected = [(each.value, each.standard_error) for each in answers.of(one.statistic)]
            found = [*zip(one.values, one.errors, strict=True)]
            for (value, error), (first, size) in zip(found, expected, strict=True):
                assert (value is None, error is None) == (first is None, size is None)
                assert value is None or value == pytest.approx(first, rel=1e-10, abs=1e-10 * (size or 0.0))
                assert error is None or error == pytest.approx(size, rel=1e-10)


@pytest.mark.parametrize("name", ["robust errors, rows private", "robust errors of pairs, rows private"])
def test_both_state_the_same_errors_of_robust_answers(name: str) -> None:
    """A limit is compared with the error of the value, without the sums of sampling errors alone."""
    parties, records, more = RECORDS[name]
    parameters, _, _ = planned_records(name)
    own, present = parameters.session.own_variance, parameters.plan.parties
    errors = {one.text: one.standard_error for one in parameters.request.errors(present)}
    for part, passes in ((1 + 1e-6, True), (1 - 1e-3, False)):
        limits = {text: part * error for text, error in errors.items() if error is not None}
        given = BASE | more | {"records": records, "max_standard_error": limits}
        with nullcontext() if passes else pytest.raises(Refused):
            check_errors(read_request(given, parties, parameters.session.honest), given, own, parties)


def test_both_move_a_row_that_no_longer_satisfies_a_condition_as_far() -> None:
    more = {"ask": ["count where age > 50", "count where age <= 50"], "public_rows": [7] * 6}
    given = BASE | more | {"records": AGE | {"rows": "public"}}
    parameters, issues = checker_of("gopa", 4)(given, 6)
    assert not issues
    request = read_request(given, 6, parameters.session.honest)
    assert f"statistics {parameters.planned()}".startswith(f"statistics {request.text} ")
    (satisfied,) = {one.scale for one in parameters.request.blocks}
    assert request.squared is None
    assert request.moves == (satisfied, satisfied)


@pytest.mark.thin(8)
@pytest.mark.parametrize("name", without(RECORDS, "a regression, rows private"))
def test_both_plan_the_same_of_records(name: str) -> None:
    parameters, session, asked = planned_records(name)
    terms = read_terms(session, 1, asked)
    labelled = asked.replace("statistics ", "statistics round 7 ", 1)
    assert read_terms(session, 1, labelled) == terms
    noise = parameters.session
    assert (terms.bits, terms.pair_variance) == (parameters.bits, noise.pair_variance)
    low, high = parameters.request.bounds
    assert terms.range == (tuple((low - low.min()).tolist()), tuple((high - low.min()).tolist()))
    assert terms.most_x_hat == parameters.greatest_published


@pytest.mark.thin(8)
@pytest.mark.parametrize("name", RECORDS)
def test_both_plan_the_same_noise_of_records_in_secure_sums(name: str) -> None:
    """The variance of a share, which is discrete, and the scales in the question."""
    parties, records, more = RECORDS[name]
    given = {key: value for key, value in (BASE | more).items() if key not in ("verifiable", "hidden_totals")}
    given["records"] = records
    checked, issues = checker_of("secagg", 3)(given, parties)
    assert checked is not None, issues
    session = dataclasses.replace(described(3, given, parties), protocol="secagg")
    shares = read_shares(read_sums(session))
    assert shares is not None
    for label in ("", "round 7 "):
        shares.check(f"statistics {label}{checked.planned()}")
    assert shares.counted == checked.honest
    variance, rest = checked.planned().split("/", 1)
    for changed in (int(variance, 16) * 999 // 1000, int(variance, 16) * 101 // 100):
        with pytest.raises(Refused, match="the noise of the question"):
            shares.check(f"statistics {changed:x}/{rest}")
    with pytest.raises(Refused, match="the scales of the question"):
        shares.check(f"statistics {checked.planned()[:-4]}0000")
    for other in (f"average {checked.planned()}", "statistics", f"statistics 0{checked.planned()}"):
        with pytest.raises(Refused, match="the question"):
            shares.check(other)


@pytest.mark.parametrize(
    "more",
    [
        {"ask": "logistic(ill ~ age)", "epsilon": None, "delta": None},
        {
            "ask": f"covariance({', '.join(f'x{index}' for index in range(130))})",
            "records": {"max_rows": 7, "columns": dict.fromkeys((f"x{index}" for index in range(130)), UNIT)},
        },
    ],
)
def test_noise_that_the_second_auditor_does_not_plan(more: dict[str, Any]) -> None:
    given = {"epsilon": 4.0, "delta": 1e-6, "records": WIDE} | more
    given = {key: value for key, value in given.items() if value is not None}
    checked, issues = checker_of("secagg", 3)(given, 9)
    assert checked is not None, issues
    session = dataclasses.replace(described(3, given, 9), protocol="secagg")
    assert read_shares(read_sums(session)) is None
    assert read_shares(read_sums(described(5, given | {"ask": "count"}, 9))) is None


OTHERS: dict[str, dict[str, Any]] = {
    "more rows": {"records": AGE | {"max_rows": 8}},
    "a column above 0": {"records": AGE | {"columns": {"age": {"lower": 50.0, "upper": 100.0}}}},
    "a column of half steps": {
        "records": AGE | {"columns": {"age": {"lower": 0, "upper": 100, "step": 0.5}}}
    },
    "exchanged rows": {"records": AGE | {"rows": "public"}, "public_rows": [7] * 6},
    "a person": {"records": AGE | PERSON},
    "a variance": {"ask": "variance(age)"},
    "an epsilon of 2": {"epsilon": 2.0},
    "a delta of 1e-5": {"delta": 1e-5},
    "totals that are hidden better": {"hidden_totals": 1000},
}


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", OTHERS)
def test_the_question_of_another_session_of_records_is_refused(name: str) -> None:
    _, session, asked = planned_records("a sum of a row")
    changed = {**session.parameters, **OTHERS[name]}
    assert not checker_of("gopa", 4)(changed, 6)[1]
    with pytest.raises(Refused, match=r"the question|noise"):
        read_terms(dataclasses.replace(session, parameters=changed), 1, asked)


@pytest.mark.parametrize("value", [1, 1.0])
def test_verifiable_is_a_boolean_in_a_session_of_records(value: float) -> None:
    _, session, asked = planned_records("a sum of a row")
    changed = {**session.parameters, "verifiable": value}
    with pytest.raises(Refused, match="the parameter verifiable"):
        read_terms(dataclasses.replace(session, parameters=changed), 1, asked)


def of(**records: Any) -> dict[str, Any]:
    return {"records": AGE | records}


def column(**given: Any) -> dict[str, Any]:
    return of(columns={"age": {"lower": 0.0, "upper": 100.0} | given})


NONE_OF_NORMS: list[Any] = [
    {"columns": ["a"], "bound": 0.5},
    {"columns": ["a", "a"], "bound": 0.5},
    {"columns": ["a", "c"], "bound": 0.5},
    {"columns": ["a", "d"], "bound": 0.5},
    {"columns": ["a", "b"], "bound": 1.5},
    {"columns": ["a", "b"], "bound": 0},
    {"columns": ["a", "b"], "bound": True},
    {"columns": ["a", "b"]},
    {"columns": ["a", "b"], "bound": 1, "part": 1},
    [],
]
DAYS = {"unit": "days", "start": "born", "end": "2026-07-01", "lower": 0, "upper": 9}
NONE_OF_DERIVED: list[Any] = [
    {"function": "log", "of": "age"},
    {"function": "cube", "of": "age"},
    {"function": "square", "of": "nothing"},
    {"function": "square"},
    {"of": "age", "edges": []},
    {"of": "age", "edges": [100.0]},
    {"of": "age", "edges": [50.0], "reference": "low"},
    {"of": "age", "edges": [50.0], "bins": [50.0]},
    DAYS | {"unit": "hours"},
    DAYS | {"end": "born"},
    DAYS | {"end": "2026-02-30"},
    DAYS | {"end": "2026-7-1"},
    DAYS | {"start": "2026-01-01"},
    DAYS | {"start": "age"},
    DAYS | {"upper": 0},
    DAYS | {"upper": 9.5},
    DAYS | {"upper": True},
    DAYS | {"lower": -(1 << 24)},
    DAYS | {"step": 1},
    DAYS | {"kind": "function"},
    "days",
]
NONE_OF_CATEGORIES = [["1", "1.0"], [".5", "0.50"], ["1e+16", "1" + "0" * 16], ["True", "true"], ["a", " a"]]
NONE_OF_CATEGORIES += [["", "a"], ["NaT"], ["<NA>"], ["nan"]]
NONE_OF_RECORDS: list[dict[str, Any]] = [
    *({"ask": text} for text in ("", "sum(sum)", "sum(age", "mean(age, age)", "age", "sum(age) by age")),
    *({"ask": text} for text in ("histogram(age, 0)", "histogram(age, 1025)", "histogram(age, [0, 5])")),
    *({"ask": text} for text in ("quantile(age)", "quantile(age, 1)", "age x age", "histogram(age, 2.5)")),
    *({"ask": text} for text in ("covariance(age)", "survival(age, age)", "logistic(age ~ age)", "max(age)")),
    *({"ask": f"count where {text}"} for text in ("", "age", "age <", "age < 5 and", "age < 5 or age > 7")),
    *({"ask": f"count where {text}"} for text in ("age = 5", "age < 0", "age > 101", "age < nan", "age < x")),
    *({"ask": f"count where {text}"} for text in ("age < 5 and age > 7", "sex = f", "age < 5 by age")),
    *({"ask": f"count where {text}"} for text in ("age == 5", "'age' < 5", "age << 5", "age < (5)")),
    {"ask": "heterogeneity(age) where age < 5"},
    {"ask": "difference(age) by age where age < 50"} | column(bins=[50.0]),
    *(
        of(columns=AGE["columns"] | {"sex": {"values": ["f", "m"]}})
        | {"ask": f"difference(age) by sex where sex {text}"}
        for text in ("= f", "!= f")
    ),
    {"ask": "correlation(age, b) where b < 1", "answer_weights": {"correlation(age, b)": 2.0}}
    | of(columns={"age": UNIT, "b": UNIT}),
    *(
        of(columns=AGE["columns"] | {"sex": {"values": ["f", "m"]}}) | {"ask": f"count where sex {text}"}
        for text in ("< f", "= x", "= ''", "= f and sex = m")
    ),
    {"ask": "missing(age) by age"} | column(bins=[50.0]),
    {"ask": "missing(age)"} | column(missing=False),
    {"ask": "missing(age, age)"},
    {"ask": "missing(age)", "public_rows": [7] * 6} | of(rows="public", **PERSON),
    *({"ask": text} for text in ("count by", "median(age) by age", "sum(age); sum(age)", "sum(age) count")),
    {"ask": []},
    {"ask": 1},
    {"answer_weights": {"count": 1.0}},
    {"answer_weights": {"sum(age)": 0}},
    {"max_standard_error": 1e-9},
    {"max_standard_error": {"count": 1.0}},
    {"public_rows": [7] * 6},
    {"hidden_totals": -1},
    {"split": "alone"},
    {"hidden_totals": 1001},
    {"budget": {"epsilon": 1.0, "delta": 1e-6, "requests": 2}},
    {"length": 1},
    {"kind": "real"},
    {"precision": 1.0},
    {"max_weight": 0},
    {"total": "unchecked"},
    {"epsilon": 0},
    {"topology": "direct"},
    {"on_dropout": "roll-back"},
    of(max_rows=0),
    of(max_rows=True),
    of(rows="secret"),
    of(rows="public"),
    of(unit="patient"),
    of(id="who"),
    of(**(PERSON | {"id": "age"})),
    of(rows_expected=0),
    of(rowz=1),
    of(columns={}),
    of(columns={"a-b": {"lower": 0.0, "upper": 1.0}}),
    column(upper=0.0),
    column(step=0),
    column(step=0.3),
    column(missing=1),
    column(bins=[5, 5]),
    column(bins=[100]),
    column(step=10, bins=[14]),
    column(kind="text"),
    column(values=["a"]),
    of(columns={"age": {"values": ["a", "a"]}}),
    of(columns={"age": {"values": ["a"], "other": "b"}}),
    column(upper=1e76),
    column(upper=1e-76),
    of(columns={name: {"values": [str(number) for number in range(65)]} for name in ("a", "b")})
    | {"ask": "a x b"},
    *(of(columns=AGE["columns"] | {"c": {"values": values}}) for values in NONE_OF_CATEGORIES),
    *(of(derived={"x": derived}) for derived in NONE_OF_DERIVED),
    of(derived={"age": DAYS}),
    of(derived={"a-b": DAYS}),
    of(derived=[]),
    *(
        of(columns={"a": UNIT, "b": UNIT, "c": {"values": ["a"]}}, norm=norm) | {"ask": "sum(a)"}
        for norm in NONE_OF_NORMS
    ),
]


@pytest.mark.parametrize(
    "values", [["01", "1"], ["1E1", "10"], ["1/1", "1"], ["+1", "1"], ["Nan", "None"]], ids=str
)
def test_both_take_categories_that_differ(values: list[str]) -> None:
    records = AGE | {"columns": AGE["columns"] | {"c": {"values": values}}}
    assert read_schema(records).columns["c"] == Category(values=tuple(values))
    assert read_table(records).columns["c"].values == tuple(values)


def test_the_second_refuses_many_cells_before_it_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand columns have half a million products of two."""
    monkeypatch.delattr("smpc_dp_verify.record_plan.deviations")
    values = {name: {"values": [str(number) for number in range(65)]} for name in ("a", "b")}
    with pytest.raises(Refused, match="the number of cells"):
        read_request(of(columns=values) | {"ask": "a x b", "epsilon": 1.0, "delta": 1e-6}, 6, 4)
    monkeypatch.delattr("smpc_dp_verify.record_plan.all_terms")
    names = [f"c{number}" for number in range(91)]
    for ask, refused in (
        (f"covariance({', '.join(names)})", "the number of cells"),
        (f"regression({names[0]} ~ {' + '.join(names[1:])})", "coefficients"),
    ):
        given = of(columns=dict.fromkeys(names, UNIT)) | {"ask": ask, "epsilon": 1.0, "delta": 1e-6}
        with pytest.raises(Refused, match=refused):
            read_request(given, 6, 4)


@pytest.mark.parametrize("change", NONE_OF_RECORDS, ids=lambda change: str(change)[:80])
def test_both_refuse_the_same_sessions_of_records(change: dict[str, Any]) -> None:
    _, session, asked = planned_records("a sum of a row")
    changed = {**session.parameters, **change}
    assert checker_of("gopa", 4)(changed, 6)[1]
    with pytest.raises(Refused):
        read_terms(dataclasses.replace(session, parameters=changed), 1, asked)


@pytest.mark.parametrize(
    "name",
    without(
        ["one coordinate", "coordinates", "coordinates of their own", "a ball", "a drawn graph"],
        "coordinates of their own",
    ),
)
def test_both_state_the_same_after_exclusions(name: str) -> None:
    parameters, session = planned(name)
    noise, most = parameters.session, parameters.most_false
    terms = second(session, noise.own_variance, noise.pair_variance)
    for excluded in {0, parameters.plan.max_corrupt, most - 1, most, noise.honest + most}:
        first = parameters.epsilon_without(excluded)
        other = terms.noise.epsilon_after(excluded, terms.bits, terms.pair_variance)
        # Convolutions of the first in double precision; all else is the same to the last digits.
        near = 1e-9 if parameters.encoding.box or parameters.encoding.length > 1 else 1e-12
        assert (math.inf if other is None else other) == pytest.approx(first, rel=near)


@pytest.mark.parametrize("parties", [65, 66, 91, 200])
def test_no_graph_is_drawn_where_secure_aggregation_has_all_for_neighbours(parties: int) -> None:
    """docs/proofs/verifiable-plan.md: only then n - c - 2 D < 4, and draws of half of the others are few."""
    complete = set()
    for lost in (0, 1, 5, parties // 4, parties // 2 - 2, (parties - 1) // 2):
        for left in range(1, 8):
            corrupt = parties - 2 * lost - left
            if corrupt < 0 or parties - lost - max(corrupt, 1) < 2:
                continue
            try:
                plan = plan_secagg(parties, dropout=lost / parties, corrupt=corrupt / parties, security=40)
            except ConfigError:
                assert left < 2
                continue
            assert left >= 2
            if plan.complete:
                complete.add(left)
                assert plan_draws(parties, max(corrupt, 1), lost, 0.9) is None
    assert complete
    assert complete <= {2, 3}


RIGHT: list[dict[str, Any]] = [
    {"security": 128},
    {"on_dropout": "keep", "topology": "relay", "max_weight": 0, "kind": "real", "total": "unchecked"},
    {"lower": [0], "upper": 1},
]
WRONG: list[dict[str, Any]] = [
    *({"security": value} for value in (19, 129, "40", True)),
    *({"max_weight": value} for value in (1, False, 0.0)),
    *({"precision": value} for value in (0, True, "1")),
    *({"dropout": value} for value in (-0.1, 0.5, "0")),
    *({"corrupt": value} for value in (-0.1, 1)),
    *({"lower": value} for value in (True, "0", [0, 0], [], 1.0)),
    {"on_dropout": "roll-back"},
    {"topology": "star"},
    {"total": "checked"},
    {"kind": "complex"},
    {"kind": "integer", "precision": 1},
    {"kind": "integer", "lower": 0.5},
    {"l2_bound": 1.0},
    {"parties": 10},
    {"mechanism": "skellam"},
    {"same_survivors": True},
    {"epsilon": 100},
]


@pytest.mark.parametrize("change", [*RIGHT, *WRONG], ids=str)
def test_both_take_the_same_parameters(change: dict[str, Any]) -> None:
    """Also those that change nothing in a log."""
    parameters, session = planned("one coordinate")
    given = {**session.parameters, **change}
    first, issues = check_parameters(given, 10)
    assert bool(issues) == (change in WRONG)
    noise = parameters.session if first is None else first.session
    changed = dataclasses.replace(session, parameters=given)
    if issues:
        with pytest.raises(Refused):
            second(changed, noise.own_variance, noise.pair_variance)
    else:
        second(changed, noise.own_variance, noise.pair_variance)


def test_the_second_draws_the_same_groups() -> None:
    for seed in (0, 1, 1 << 40, (1 << 62) - 1):
        drawn = np.random.PCG64(np.random.SeedSequence([seed, 9])).random_raw(5)
        assert [*islice(pcg64(seed, 9), 5)] == drawn.tolist()
    draws, given = GroupDraws(11, 4, 17), {"learner": "block-gossip", "steps": 9, "group": 4, "seed": 17}
    groups, most = draws.draw(9).tolist(), int(draws.participations(9).max())
    assert [group_of(given, 11, 2 * step) for step in range(1, 10)] == [(group, most) for group in groups]
    for request in (0, 3, 20):
        with pytest.raises(Refused):
            group_of(given, 11, request)
