"""The party as a column: read, lost parties, hospital fixed effects, and both auditors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.answers import estimate
from smpc_dp.records.exact import plan_tables
from smpc_dp.records.fit import plan_fit
from smpc_dp.records.fit_answers import fitted
from smpc_dp.records.odd_values import odd_values
from smpc_dp.records.party_names import with_party_names
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.record_audit import _neighbours, audit_records
from smpc_dp.records.regression import REFUSED
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import Table, read_table
from smpc_dp.session.local import create_local_session
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.session_file import plan_parameters
from smpc_dp.values import MAX_SHOWN
from smpc_dp_verify.columns import with_parties
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.session import Session
from smpc_dp_verify.sum_plan import read_shares
from smpc_dp_verify.sums import read_sums
from tests.command import smpc_dp as smpc_dp_command

Floats = NDArray[np.float64]
Rows = dict[str, NDArray[Any]]
PARTIES = ["alice", "bob", "carol", "dave"]
COLUMNS: dict[str, Any] = {
    "pressure": {"lower": 80.0, "upper": 200.0},
    "age": {"lower": 20.0, "upper": 90.0, "step": 1.0},
    "arm": {"values": ["a", "b"]},
    "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0},
    "hospital": {"kind": "party", "reference": "bob"},
}
SETTINGS: dict[str, Any] = {"columns": COLUMNS, "max_rows": 20_000, "rows_expected": 12_000}
ASK = "regression(pressure ~ arm + age + hospital)"
# Of each hospital the number of its rows, and what it adds to pressure.
SIZES, EFFECTS = (2000, 1200, 2500, 1700), (5.0, 0.0, -8.0, 2.0)


def write_csv(path: Path, rows: Rows) -> Path:
    lines = [",".join(map(str, line)) for line in zip(*rows.values(), strict=True)]
    path.write_text("\n".join([",".join(rows), *lines, ""]))
    return path


def schema_of(names: list[str] = PARTIES, **changes: Any) -> Schema:
    filled, issues = with_party_names(SETTINGS | changes, names, "records")
    assert not issues
    assert isinstance(filled, dict)
    return read_schema(filled)


def hospital(place: int) -> Rows:
    """Return rows of a hospital, of which older ones are in other arms, and whose ages are its own."""
    rng, size = np.random.default_rng(place), SIZES[place]
    age = np.clip(np.rint(rng.normal(45 + 5 * place, 10, size)), 20, 90)
    arm = np.where(rng.random(size) < 0.2 + 0.15 * place, "b", "a")
    mean = 110 + EFFECTS[place] + 0.3 * (age - 55) + 4 * (arm == "b")
    ill = (rng.random(size) < 1 / (1 + np.exp(-(mean - 112) / 6))) * 1.0
    return {"pressure": np.clip(rng.normal(mean, 8), 80, 200), "age": age, "arm": arm, "ill": ill}


def read(schema: Schema, places: tuple[int, ...] = (0, 1, 2, 3)) -> list[Table]:
    return [read_table(hospital(place), schema, party=PARTIES[place]) for place in places]


def design(places: tuple[int, ...], rows: dict[int, Rows] | None = None) -> Floats:
    """Return intercept, arm b, hospitals but bob, and age of the pooled rows."""
    parts = []
    for place in places:
        own = hospital(place) if rows is None else rows[place]
        one = np.ones(len(own["age"]))
        dummies = [one * (place == other) for other in places if other != 1]
        parts.append(np.stack([one, own["arm"] == "b", own["age"], *dummies], axis=1))
    return np.concatenate(parts).astype(np.float64)


def least_squares(places: tuple[int, ...]) -> tuple[Floats, Floats]:
    x = design(places)
    y = np.concatenate([hospital(place)["pressure"] for place in places])
    beta, *_ = np.linalg.lstsq(x, y, rcond=None)
    variance = ((y - x @ beta) ** 2).sum() / (len(y) - x.shape[1])
    return beta, np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))


def planned(schema: Schema, ask: str = ASK, epsilon: float = 100.0) -> Plan:
    return plan_request(schema, ask, epsilon=epsilon, delta=1e-6, parties=4, missing=1, corrupt=1)


def answers(ask: str, places: tuple[int, ...], **changes: Any) -> list[Estimate]:
    """Return the answers of the parties at these places with next to no noise."""
    schema = schema_of(**changes)
    plan = planned(schema, ask)
    total = np.sum([plan.vector(table) for table in read(schema, places)], axis=0)
    lost, rows = schema.lost_parties(places), sum(SIZES[place] for place in places)
    public = rows if schema.rows == "public" else None
    return [*estimate(plan, total, len(places), rows=public, lost=lost).estimates]


LABELS = [
    "intercept",
    "arm = b against a",
    "slope of age",
    "hospital = alice against bob",
    "hospital = carol against bob",
    "hospital = dave against bob",
]


@pytest.mark.parametrize("rows", ["private", "public"])
def test_fixed_effects_are_the_least_squares_of_indicators(rows: str) -> None:
    made = answers(ASK, (0, 1, 2, 3), rows=rows)
    beta, errors = least_squares((0, 1, 2, 3))
    assert [one.name for one in made] == LABELS
    assert np.abs(np.array([one.value for one in made]) - beta).max() < 5e-3 * errors.min()
    assert [one.sampling_error for one in made] == pytest.approx(errors.tolist(), rel=2e-3)


@pytest.mark.parametrize("rows", ["private", "public"])
def test_without_a_lost_party_the_others_are_right_and_it_is_named(rows: str) -> None:
    made = {one.name: one for one in answers(ASK, (0, 1, 3), rows=rows)}
    beta, errors = least_squares((0, 1, 3))
    left = [name for name in LABELS if "carol" not in name]
    assert np.abs(np.array([made[name].value for name in left]) - beta).max() < 5e-3 * errors.min()
    assert [made[name].sampling_error for name in left] == pytest.approx(errors.tolist(), rel=2e-3)
    lost = made["hospital = carol against bob"]
    assert (lost.value, lost.low, lost.note) == (None, None, "refused: no rows of carol are in the sum")


def test_without_the_reference_nothing_is_shown_and_it_is_named() -> None:
    made = answers(ASK, (0, 2, 3))
    assert {(one.value, one.note) for one in made} == {(None, "refused: no rows of bob are in the sum")}


def test_a_party_that_is_there_without_rows_is_not_named() -> None:
    """Whether a party has rows is secret: the least eigenvalue alone refuses."""
    schema = schema_of()
    plan = planned(schema, epsilon=8.0)
    empty = {name: column[:0] for name, column in hospital(0).items()}
    tables = [*read(schema, (1, 2, 3)), read_table(empty, schema, party="alice")]
    total = np.sum([plan.vector(table) for table in tables], axis=0)
    noise = np.rint(np.random.default_rng(1).normal(0, plan.deviation(4), plan.length)).astype(np.int64)
    made = estimate(plan, total + noise, 4).estimates
    assert {(one.value, one.note) for one in made} == {(None, REFUSED)}


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_intervals_of_fixed_effects_cover_pooled_rows_and_population(epsilon: float) -> None:
    """Responses and noise drawn anew, of which carol is lost.

    Five coefficients in 150 releases: the mean coverage has a standard error of .012 at most, so beyond .036
    is a false alarm in 300.
    """
    schema, places, draws = schema_of(), (0, 1, 3), 150
    plan, tables, rng = planned(schema, epsilon=epsilon), read(schema, places), np.random.default_rng(5)
    x, column = design(places), schema.number("pressure", "pressure")
    truth = np.array([110 - 0.3 * 55, 4.0, 0.3, EFFECTS[0], EFFECTS[3]])
    ends = np.cumsum([0, *(SIZES[place] for place in places)])
    fit, inside = np.linalg.pinv(x), np.zeros((2, 5))
    for _ in range(draws):
        pressure = rng.normal(x @ truth, 8)
        for table, start, stop in zip(tables, ends, ends[1:], strict=False):
            table.codes["pressure"][:] = 2 * column.points(pressure[start:stop]) - column.steps
        noise = np.rint(rng.normal(0, plan.deviation(3), plan.length)).astype(np.int64)
        total = np.sum([plan.vector(table) for table in tables], axis=0) + noise
        made = estimate(plan, total, 3, lost=frozenset({"carol"})).estimates
        shown = [one for one in made if one.value is not None]
        assert len(shown) == 5
        for index, (one, of_rows) in enumerate(zip(shown, fit @ pressure, strict=True)):
            inside[0, index] += (one.low or 0.0) <= of_rows <= (one.high or 0.0)
            inside[1, index] += (one.population_low or 0.0) <= truth[index] <= (one.population_high or 0.0)
    assert inside[0].min() / draws > 0.95
    assert abs(inside[1].mean() / draws - 0.95) < 0.036


@pytest.mark.parametrize(
    "ask",
    [
        "count by hospital",
        "arm x hospital",
        "table1(age) by hospital",
        "mean(age) by hospital",
        "regression(pressure ~ age) by hospital",
        "quantile(age, 0.5) by hospital",
        "covariance(age, pressure) by hospital",
    ],
)
def test_answers_about_a_lost_party_alone_are_refused_by_name(ask: str) -> None:
    made = answers(ask, (0, 1, 3))
    lost = [one for one in made if one.cell["hospital"] == "carol"]
    others = [one for one in made if one.cell["hospital"] != "carol"]
    assert {(one.value, one.low, one.note) for one in lost} == {
        (None, None, "refused: no rows of carol are in the sum")
    }
    assert all(one.value is not None for one in others)


def test_each_party_counts_its_own_rows() -> None:
    """The counts of parties add up to that of all rows: none lacks a party."""
    every, *own = answers("count; hospital", (0, 1, 2, 3))
    assert [round(one.value or 0.0) for one in own] == [*SIZES]
    assert every.value == pytest.approx(sum(one.value or 0.0 for one in own), rel=1e-9)
    assert {one.unreconciled is None for one in own} == {False}


def test_steps_reach_the_fit_with_indicators_of_parties() -> None:
    """Log odds of the pooled rows by Newton's method; without a party none are shown, and it is named."""
    ask = "logistic(ill ~ arm + age + hospital)"
    schema = schema_of()
    plan = plan_fit(schema, ask, steps=8, budget=(900.0, 1e-6), parties=4)
    tables = read(schema)
    for _ in range(8):
        made = fitted(plan, np.sum([plan.vector(table) for table in tables], axis=0), range(4))
        plan = plan.following(made)
    x = design((0, 1, 2, 3))
    y = np.concatenate([hospital(place)["ill"] for place in range(4)])
    beta = np.zeros(6)
    for _ in range(30):
        mean = 1 / (1 + np.exp(-x @ beta))
        beta = beta + np.linalg.solve(x.T @ (x * (mean * (1 - mean))[:, None]), x.T @ (y - mean))
    assert [one.value for one in made.estimates] == pytest.approx(beta.tolist(), rel=1e-3)
    lost = fitted(plan, np.sum([plan.vector(table) for table in tables[:3]], axis=0), range(3))
    assert {(one.value, one.note) for one in lost.estimates} == {
        (None, "refused: no rows of dave are in the sum")
    }


def test_a_session_fills_in_its_parties_and_names_the_lost_one() -> None:
    """Epsilon 30: the noise of carol's column is far below its rows; the last of the parties is lost."""
    tables = [hospital(place) for place in (0, 1, 2, 3, 3)]
    columns = COLUMNS | {"hospital": {"kind": "party", "reference": "party-00002"}}
    made = smpc_dp.simulate.statistics(
        tables,
        [ASK],
        schema=SETTINGS | {"columns": columns},
        epsilon=30.0,
        delta=1e-6,
        dropout=0.2,
        lost=1,
        seed_for_simulation=4,
    )
    assert [(one.name, one.note) for one in made.estimates if one.value is None] == [
        ("hospital = party-00005 against party-00002", "refused: no rows of party-00005 are in the sum")
    ]
    beta, errors = least_squares((0, 1, 2, 3))
    shown = [one.value for one in made.estimates if one.value is not None]
    assert np.abs(np.array(shown) - beta).max() < 5 * errors.max()
    assert any("rows of single parties" in line for line in made.not_protected)


GIVEN: dict[str, Any] = {"records": SETTINGS, "ask": [ASK], "epsilon": 1.0, "delta": 1e-6}


def test_one_more_party_has_a_coefficient_of_its_own() -> None:
    for names in (PARTIES, [*PARTIES, "erin"]):
        issues: list[Any] = []
        checked = plan_parameters("secagg", 3, GIVEN, names, issues)
        assert not issues
        (request,) = checked.requests
        assert request.schema.columns["hospital"].values == tuple(names)


@pytest.mark.parametrize(
    ("column", "where", "reason"),
    [
        ({"values": ["bob", "alice"]}, ".values", "are the parties of the roster, in its order"),
        (
            {"reference": "zoe"},
            ".reference",
            "'zoe' is none of the session's parties: alice, bob, carol, dave",
        ),
        ({"other": "bob"}, ".other", "each row has a party"),
        ({"missing": True}, ".missing", "each row has a party"),
        ({"lower": 0}, ".lower", "unknown key (known: reference)"),
        ({"refrence": "bob"}, ".refrence", "unknown key (known: reference)"),
    ],
)
def test_a_wrong_column_of_parties_is_refused(column: dict[str, Any], where: str, reason: str) -> None:
    records = SETTINGS | {"columns": COLUMNS | {"hospital": {"kind": "party", **column}}}
    issues: list[Any] = []
    plan_parameters("secagg", 3, GIVEN | {"records": records}, PARTIES, issues)
    assert [one.where for one in issues] == [f"parameters.records.columns.hospital{where}"]
    assert reason in issues[0].reason


def test_one_column_of_parties_beside_others_is_allowed() -> None:
    party = {"kind": "party", "values": PARTIES}
    for columns in ({"a": party}, {**COLUMNS, "a": party, "hospital": party}):
        with pytest.raises(ConfigError, match="one column of parties at most, beside others"):
            read_schema({"columns": columns, "max_rows": 9})
    with pytest.raises(ConfigError, match=r"hospital\.values: are missing"):
        read_schema(SETTINGS)
    given = GIVEN | {"records": SETTINGS | {"columns": COLUMNS | {"hospital": party}}}
    _, issues = checker_of("secagg", 3)(given, 5)
    assert [(one.where, one.reason) for one in issues] == [
        ("records.columns.hospital.values", "has 4 parties, the roster 5")
    ]


def test_the_fault_of_an_unknown_reference_names_the_first_parties() -> None:
    names = [f"party-{index:03}" for index in range(30)]
    filled, _ = with_party_names(
        SETTINGS | {"columns": {**COLUMNS, "hospital": {"kind": "party", "reference": "zoe"}}},
        names,
        "records",
    )
    assert isinstance(filled, dict)
    with pytest.raises(ConfigError) as raised:
        read_schema(filled)
    (issue,) = raised.value.issues
    assert issue.reason == f"'zoe' is none of the session's parties: {', '.join(names[:MAX_SHOWN])}, ..."


def test_a_table_needs_no_column_of_parties_and_other_names_are_refused() -> None:
    schema, rows = schema_of(), hospital(2)
    table = read_table(rows, schema, party="carol")
    assert set(table.codes["hospital"].tolist()) == {2}
    assert not [line for line in odd_values(rows, schema, "carol") if "hospital" in line]
    with pytest.raises(ConfigError) as raised:
        read_table(rows, schema)
    (issue,) = raised.value.issues
    assert issue.check == ConfigCheck.UNKNOWN_NAME
    assert issue.reason.startswith("table is none of its parties")


@pytest.mark.parametrize("value", ["anything", "carol"])
def test_a_table_with_the_column_of_parties_is_refused(value: str, tmp_path: Path) -> None:
    """Whatever its values are: a refusal of some values would tell of rows by the party's absence."""
    schema = schema_of()
    rows = {name: column[:3] for name, column in hospital(2).items()} | {"hospital": np.array([value] * 3)}
    file = write_csv(tmp_path / "rows.csv", rows)
    fields = [(name, column.dtype) for name, column in rows.items()]
    array = np.array([*zip(*rows.values(), strict=True)], dtype=fields)
    sources = [(rows, "the table"), (array, "the table"), (file, str(file)), (str(file), str(file))]
    for source, named in sources:
        with pytest.raises(ConfigError) as raised:
            read_table(source, schema, party="carol")
        (issue,) = raised.value.issues
        assert (issue.where, issue.check) == ("columns.hospital", ConfigCheck.CONFLICT)
        assert issue.reason.startswith(f"carol: {named} has a column 'hospital', which the session")
        with pytest.raises(ConfigError, match="has a column 'hospital'"):
            [*odd_values(source, schema, "carol")]


def test_a_parquet_file_with_the_column_of_parties_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {**hospital(2), "hospital": ["carol"] * SIZES[2]}
    parquet.write_table(arrow.table(rows), tmp_path / "rows.parquet")
    with pytest.raises(ConfigError, match=r"carol: .*rows\.parquet has a column 'hospital'"):
        read_table(tmp_path / "rows.parquet", schema_of(), party="carol")


def test_the_check_of_a_table_refuses_the_column_of_parties(tmp_path: Path) -> None:
    """`smpc-dp statistics --check` names the file and the column, and takes the table without it."""
    session = create_local_session(tmp_path, PARTIES, GIVEN | {"corrupt": 0.0})
    rows = {name: column[:3] for name, column in hospital(0).items()}
    table = write_csv(tmp_path / "rows.csv", rows | {"hospital": np.array(["alice"] * 3)})
    options = ("statistics", str(session), "--as", "alice", "--table", str(table), "--check")
    refused = smpc_dp_command(*options)
    assert refused.returncode == 1
    assert f"columns.hospital: alice: {table} has a column 'hospital'" in refused.stderr
    write_csv(table, rows)
    assert smpc_dp_command(*options).returncode == 0


def test_rows_beyond_those_of_a_person_are_of_no_party() -> None:
    person: dict[str, Any] = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
    schema = schema_of(**person)
    rows = {name: column[:4] for name, column in hospital(0).items()} | {"who": np.array([1, 1, 2, 3])}
    assert read_table(rows, schema, party="alice").codes["hospital"].tolist() == [0, -1, 0, 0]


def test_exact_tables_of_parties_are_refused() -> None:
    with pytest.raises(ConfigError, match="each cell has records of one party, so none is shown"):
        plan_tables(schema_of(), "arm x hospital", 10)


@pytest.mark.parametrize(
    "ask", ["logistic(ill ~ age + hospital)", "poisson(age ~ arm + hospital + arm:hospital)"]
)
def test_exact_steps_with_the_party_are_refused_by_both_auditors(ask: str) -> None:
    """With noise they are allowed; without a party they may be exact."""
    shown = "'hospital' is the party: each cell has records of one party, so none is shown without noise"
    check = checker_of("secagg", 3)
    exact: dict[str, Any] = with_parties({"records": SETTINGS, "ask": ask}, PARTIES)
    for given, reasons in (
        (exact, [shown]),
        (exact | {"epsilon": 1.0, "delta": 1e-6}, []),
        (exact | {"ask": "logistic(ill ~ age + arm)"}, []),
        (exact | {"ask": "random_effects(age, 100)"}, []),
        (exact | {"ask": "count", "budget": {"epsilon": 4.0, "delta": 1e-6, "requests": 5}}, []),
    ):
        _, issues = check(given, 4)
        assert [(one.where, one.reason) for one in issues] == [("ask", reason) for reason in reasons]
        sums = read_sums(session_of(given))
        if not reasons:
            read_shares(sums)
            continue
        with pytest.raises(Refused) as raised:
            read_shares(sums)
        assert str(raised.value) == shown


def test_hazard_ratios_with_a_lost_clinic_are_refused_by_name() -> None:
    columns = COLUMNS | {"age": COLUMNS["age"] | {"bins": [40, 50, 60]}}
    for ties in ("cox", "cox_breslow", "cox_efron"):
        made = answers(f"{ties}(age, ill ~ hospital + arm)", (0, 2, 3), columns=columns)
        assert {(one.value, one.low, one.note) for one in made} == {
            (None, None, "refused: no rows of bob are in the sum")
        }
        made = answers(f"{ties}(age, ill ~ hospital + arm)", (0, 1, 3), columns=columns)
        assert {(one.value, one.low, one.note) for one in made} == {
            (None, None, "refused: no rows of carol are in the sum")
        }
        made = answers(f"{ties}(age, ill ~ hospital + arm)", (0, 1, 2, 3), columns=columns)
        assert all(one.value is not None for one in made)


OF_CONDITIONS = [
    "count",
    "mean(age)",
    "count by arm",
    "arm x hospital",
    "variance(age, robust)",
    "quantile(age, 0.5)",
    "regression(pressure ~ age)",
    "covariance(age, pressure)",
    "difference(age) by arm",
    "chi_square(arm, hospital)",
]


@pytest.mark.parametrize("ask", OF_CONDITIONS)
def test_answers_whose_condition_admits_lost_parties_alone_are_refused_by_name(ask: str) -> None:
    alone = f"{ask} where hospital = carol and age > 30"
    if "chi_square" in ask:
        with pytest.raises(ConfigError, match="leaves one group alone of the 4 by 'hospital'"):
            answers(alone, (0, 1, 3))
    else:
        made = answers(alone, (0, 1, 3))
        assert {(one.value, one.low, one.high, one.p_value, one.note) for one in made} == {
            (None, None, None, None, "refused: no rows of carol are in the sum")
        }
    some = "hospital != alice and hospital != bob"
    made = answers(f"{ask} where {some}", (0, 1))
    assert {(one.value, one.note) for one in made} == {
        (None, "refused: no rows of carol, dave are in the sum")
    }
    assert {(one.low, one.high, one.p_value) for one in made} == {(None, None, None)}
    if "hospital" not in ask:
        assert all(one.value is not None for one in answers(f"{ask} where {some}", (0, 1, 3)))


def test_the_second_auditor_computes_no_answer_about_lost_parties_alone() -> None:
    ask = [f"{one} where hospital {rest}" for one in ("count", "mean(age) by arm") for rest in CONDITIONS]
    given = with_parties(GIVEN | {"ask": ask}, PARTIES)
    shares = read_shares(read_sums(session_of(given)))
    assert shares is not None
    made = shares.estimates([1 << 60] * shares.length, shares.most, (0, 1), 0.0, 0.1)
    names = ("value", "standard_error")
    is_shown = [[each.numbers[name] is not None for name in names for each in one.each] for one in made]
    assert is_shown == [[False] * 2, [False] * 2, [True] * 2, [False] * 4, [False] * 4, [True] * 4]


CONDITIONS = ("= carol", "!= alice and hospital != bob", "!= bob and hospital != carol")


def session_of(given: dict[str, Any]) -> Session:
    return Session(bytes(32), "secagg", 3, given, {}, PARTIES, "relay", None)


def test_the_audit_of_a_release_has_a_row_of_one_party() -> None:
    for first, second in _neighbours(schema_of(), 3, None):
        assert [table.rows for table in (*first, *second)] == [1, 0, 0, 0, 0, 0]
        assert first[0].codes["hospital"].tolist() == [0]


@pytest.mark.parametrize("protocol", ["secagg", "gopa"])
@pytest.mark.parametrize("rows", ["private", "public"])
def test_the_release_of_parties_and_groups_passes_its_audit(rows: str, protocol: str) -> None:
    """20,000 releases from a fixed seed; another seed would fail once in 500."""
    public = {"public_rows": [30, 1, 2, 5]} if rows == "public" else {}
    records, _ = with_party_names(SETTINGS | {"rows": rows}, PARTIES, "records")
    ask = ["regression(pressure ~ age + hospital)", "regression(age ~ ill) by hospital"]
    given = {"records": records, "ask": ask, "epsilon": 1.0, "delta": 1e-6, "corrupt": 0.0, **public}
    checked, issues = checker_of(protocol, session_protocol(protocol).version)(given, 4)
    assert not issues
    result = audit_records(checked, 20_000, SeededRandomnessForSimulation(1, "audit"))
    assert not result.violations
    assert result.moved <= 1


@pytest.mark.parametrize(
    ("ask", "is_said"),
    [
        ("regression(age ~ pressure + hospital)", True),
        ("regression(age ~ pressure * hospital)", True),
        ("mean(age) by hospital", True),
        ("table1(age) by hospital", True),
        ("count where hospital = bob", True),
        ("hospital", True),
        ("mean(age); arm x hospital", True),
        ("mean(age) by arm; regression(age ~ pressure) by arm; count where arm = b", False),
    ],
)
def test_a_column_of_parties_that_is_asked_for_is_in_what_is_not_protected(ask: str, is_said: bool) -> None:
    plan = planned(schema_of(), ask)
    stated = plan.answers([], 4, level=0.95, simultaneous=False).not_protected
    assert any("single parties" in one for one in stated) == is_said


@pytest.mark.parametrize("protocol", ["secagg", "gopa", "mpyc"])
def test_claims_tell_of_single_parties_where_the_question_does(protocol: str) -> None:
    records, _ = with_party_names(SETTINGS, PARTIES, "records")
    for ask, is_said in (("mean(age) by hospital", True), ("mean(age) by arm", False)):
        given: dict[str, Any] = {"records": records, "ask": [ask], "epsilon": 1.0, "delta": 1e-6}
        checked, issues = checker_of(protocol, session_protocol(protocol).version)(given, 4)
        assert not issues
        made = checked.privacy(3) if protocol == "mpyc" else checked.claim(4)
        limits = made.not_protected if protocol == "mpyc" else made.limits.sentences
        assert any("single parties" in one for one in limits) == is_said


def test_the_second_auditor_fills_in_the_roster_and_refuses_another_one() -> None:
    filled = with_parties(GIVEN, PARTIES)
    assert filled["records"]["columns"]["hospital"]["values"] == PARTIES
    assert with_parties(filled, PARTIES) == filled
    with pytest.raises(Refused, match="the columns"):
        with_parties(filled, [*PARTIES, "erin"])
    assert with_parties({"length": 3}, PARTIES) == {"length": 3}
