"""Reports of undeclared categories: what is counted, released, refused and merged."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.reports.local_names import FINGERPRINT_BYTES, LocalNames, ReleasedNames
from smpc_dp.capabilities.reports.name_parameters import NameParameters
from smpc_dp.capabilities.reports.report_parameters import check_reports, cost_of_report
from smpc_dp.capabilities.reports.reports import ReportRequest
from smpc_dp.capabilities.reports.simulation.name_audit import audit_names
from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.executors.opened import open_executor
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.name_selection import NameSelection
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.schema import read_schema
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.signing import decode, encode
from tests.executors import noise_of_blocks

COLUMNS: dict[str, Any] = {
    "ward": {"values": ["other", "icu"], "other": "other"},
    "drug": {"values": ["none"]},
    "age": {"lower": 0, "upper": 100},
}
RECORDS: dict[str, Any] = {"columns": COLUMNS, "max_rows": 1000}
PERSONS = {**RECORDS, "unit": "person", "id": "patient", "rows_per_person": 2, "parties_per_person": 3}
GIVEN: dict[str, Any] = {"records": RECORDS, "undeclared": ["ward"], "epsilon": 1.0, "delta": 1e-6}


def planned(records: dict[str, Any] = RECORDS, columns: tuple[str, ...] = ("ward",)) -> LocalNames:
    return LocalNames.plan(read_schema(records), columns, 1.0, 1e-6)


def table(**columns: list[Any]) -> dict[str, Any]:
    return {name: np.array(values, dtype=object) for name, values in columns.items()}


def released(report: bytes) -> ReleasedNames:
    return decode(report[FINGERPRINT_BYTES:], ReleasedNames, "report")


def keyed(number: int) -> NoiseSource:
    return NoiseSource.keyed(number.to_bytes(32, "big"), b"test")


@pytest.mark.parametrize(
    ("records", "columns", "changes"),
    [
        (RECORDS, ("ward",), 1),
        (RECORDS, ("ward", "drug"), 2),
        ({**RECORDS, "rows": "public"}, ("ward",), 2),
        (PERSONS, ("ward", "drug"), 12),
        ({**PERSONS, "rows": "public"}, ("ward",), 12),
    ],
)
def test_a_unit_moves_as_many_counts_as_are_planned_for(
    records: dict[str, Any], columns: tuple[str, ...], changes: int
) -> None:
    """As real tables do: a unit's rows there or not, or exchanged, in each of its parties."""
    plan = planned(records, columns)
    assert plan.selection.changes == changes
    per_person, in_parties = plan.schema.person_factor, plan.schema.party_factor

    def counts(value: str, rows: int) -> dict[tuple[str, str], int]:
        given = table(
            ward=[f"{value}1"] * rows + ["x"],
            drug=[f"{value}2"] * rows + ["y"],
            patient=["unit"] * rows + ["someone"],
        )
        found = plan.counts(given, "alice")
        return {(column, name): count for column in columns for name, count in found[column].items()}

    public = plan.schema.rows == "public"
    # one row more than counts
    first, second = (
        counts("a", per_person + (per_person > 1)),
        counts("b", per_person) if public else counts("a", 0),
    )
    moved = sum(abs(first.get(key, 0) - second.get(key, 0)) for key in first.keys() | second.keys())
    assert moved * in_parties == changes


def test_what_counts_as_a_name() -> None:
    """Declared, missing, long and unprinted values are none; numbers are as in categories."""
    ward = ["icu", "other", None, float("nan"), "", "a\nb", "x" * 101, "é" * 50, 7.0, 7, "long\ud800", "y"]
    found = planned().counts(table(ward=ward), "alice")
    assert found == {"ward": {"é" * 50: 1, "7": 2, "y": 1}}


def test_the_order_of_rows_is_not_seen() -> None:
    rows = ["zz"] * 90 + ["b"] * 90 + ["a"] * 90 + ["rare"] * 3
    plan = planned()
    first, second = (
        plan.randomise(plan.counts(table(ward=ward), "alice"), source=keyed(1)) for ward in (rows, rows[::-1])
    )
    assert first == second
    assert released(first).names == (("a", "b", "zz"),)


def test_what_does_not_fit_is_left_out() -> None:
    """The names that come first in order are there, and the others' number."""
    names = [f"{number:04}{'x' * 90}" for number in range(500)]
    plan = planned()
    report = plan.randomise({"ward": dict.fromkeys(names, 10**6)})
    there = released(report)
    assert 0 < there.left_out == 500 - len(there.names[0])
    assert list(there.names[0]) == names[: len(there.names[0])]
    plan.answers([report])


@pytest.mark.parametrize(
    "given",
    [
        {"names": (("b", "a"),)},
        {"names": (("a", "a"),)},
        {"names": (("icu",),)},
        {"names": (("a\n",),)},
        {"names": (("x" * 101,),)},
        {"names": ((), ())},
        {"names": ((),), "left_out": -1},
    ],
)
def test_a_report_that_is_none_of_the_plan_is_refused(given: dict[str, Any]) -> None:
    plan = planned()
    wrong = ReleasedNames(**{"left_out": 0, **given})
    with pytest.raises(ConfigError, match=r"reports\[0\]"):
        plan.answers([plan.fingerprint + encode(wrong)])
    with pytest.raises(ConfigError, match="other parameters"):
        plan.answers([planned(PERSONS).fingerprint + encode(ReleasedNames(((),), 0))])
    with pytest.raises(ConfigError, match="malformed"):
        plan.answers([plan.fingerprint + b"\xc1"])


def test_signed_reports_are_charged_once_and_merged(tmp_path: Path) -> None:
    """In the ledger's unit and relation; a second call sends the same bytes and looks at no table."""
    names = ("alice", "bob", "carol")
    identities = {name: Identity.generate(name) for name in (*names, "analyst")}
    entries = [identities["analyst"].entry("aggregator", "127.0.0.1:7100")]
    roster = Roster(entries + [identities[name].entry() for name in names])
    plan = planned()
    request = ReportRequest(plan, roster, "wards of 2026")
    reports = []
    for name, ward in (("alice", "surgery"), ("bob", "cardiology")):
        book = Ledger.create(
            tmp_path / f"{name}.ledger", party=name, dataset="d", unit="record", relation="add-remove",
            epsilon=1.0, delta=1e-6,
        )  # fmt: skip
        counts = plan.counts(table(ward=[ward] * 200 + ["single"]), name)
        first = request.report(counts, identities[name], book, tmp_path)
        assert request.report(None, identities[name], book, tmp_path) == first
        assert [(entry.label, entry.event.unit) for entry in book.entries()] == [("wards of 2026", "record")]
        with pytest.raises(PrivacyError, match="refused"):
            ReportRequest(plan, roster, "again").report(counts, identities[name], book, tmp_path)
        reports.append(first)
    made = request.names([*reports, b"junk"])
    assert made.names == {"ward": ("cardiology", "surgery")}
    assert made.values == {"ward": ("other", "icu", "cardiology", "surgery")}
    assert (made.reported, made.missing, len(made.faults)) == (("alice", "bob"), ("carol",), 1)
    assert made.to_json()["values"] == {"ward": ["other", "icu", "cardiology", "surgery"]}
    with pytest.raises(ConfigError, match="none with names"):
        request.names([])
    party = Ledger.create(
        tmp_path / "party.ledger", party="carol", dataset="d", relation="substitution", epsilon=9.0, delta=0.1
    )
    with pytest.raises(PrivacyError, match="unit"):
        request.report(plan.counts(table(ward=["a"]), "carol"), identities["carol"], party, tmp_path)


def test_a_simulation_finds_the_names_of_many_rows_for_statistics() -> None:
    """Names of 100 rows in one party are certain, those of one row have 1e-6 each."""
    schema = {"columns": {"ward": COLUMNS["ward"]}, "max_rows": 1000}
    tables = [
        table(ward=["icu"] * 40 + [f"ward {number}"] * 100 + [f"patient {number}"]) for number in range(4)
    ]
    found = smpc_dp.simulate.names(
        tables, ["ward"], schema=schema, epsilon=0.5, delta=1e-6, seed_for_simulation=1
    )
    assert found.names == {"ward": tuple(f"ward {number}" for number in range(4))}
    schema["columns"] = {"ward": {"values": list(found.values["ward"]), "other": "other"}}
    answers = smpc_dp.simulate.statistics(
        tables, ["ward"], schema=schema, epsilon=0.5, delta=1e-6, corrupt=0.0, seed_for_simulation=1
    )
    shown = {one.cell["ward"]: one.value for one in answers.estimates if one.value is not None}
    assert shown["ward 3"] == pytest.approx(100, abs=60)


@pytest.mark.parametrize(
    ("given", "where", "check"),
    [
        ({"undeclared": ["age"]}, "undeclared", ConfigCheck.UNKNOWN_NAME),
        ({"undeclared": ["unit"]}, "undeclared", ConfigCheck.UNKNOWN_NAME),
        ({"undeclared": ["ward", "ward"]}, "undeclared", ConfigCheck.SHAPE),
        ({"undeclared": []}, "undeclared", ConfigCheck.RANGE),
        ({"epsilon": 0}, "epsilon", ConfigCheck.RANGE),
        ({"delta": 0}, "delta", ConfigCheck.RANGE),
        ({"delta": 1e-30}, "delta", ConfigCheck.INFEASIBLE),
        ({"delta": None}, "delta", ConfigCheck.MISSING),
        ({"kernel": "gini"}, "kernel", ConfigCheck.UNKNOWN_KEY),
        ({"label": "a\nb"}, "label", ConfigCheck.FORMAT),
        ({"records": {**RECORDS, "max_rows": 0}}, "records.max_rows", ConfigCheck.RANGE),
    ],
)
def test_a_fault_of_the_parameters_is_named(given: dict[str, Any], where: str, check: ConfigCheck) -> None:
    parameters, issues = check_reports({k: v for k, v in {**GIVEN, **given}.items() if v is not None}, 3)
    assert parameters is None
    assert [(one.where, one.check) for one in issues] == [(where, check)]


def test_a_plan_says_which_names_are_released() -> None:
    parameters, issues = check_reports(GIVEN, 5)
    assert isinstance(parameters, NameParameters), issues
    assert parameters.tolerated == (5, 4, 4)
    cost = cost_of_report(parameters)
    assert (cost.unit, cost.relation, cost.epsilon, cost.delta) == ("record", "add-remove", 1.0, 1e-6)
    even, certain = parameters.plan.selection.even, parameters.plan.selection.certain
    assert f"a name of {even} rows" in cost.notes[0]
    assert f"one of {certain} always" in cost.notes[0]
    assert not cost.warnings or "max_rows" in cost.warnings[0]
    careless, _ = check_reports({**GIVEN, "delta": 0.01}, 5)
    assert isinstance(careless, NameParameters)
    assert "max_rows is 10" in cost_of_report(careless).warnings[0]


def test_a_table_without_the_column_is_named() -> None:
    with pytest.raises(ConfigError, match="alice: the table has no column 'ward'"):
        planned().counts(table(drug=["a"]), "alice")


def named(records: dict[str, Any] = RECORDS, columns: tuple[str, ...] = ("ward",)) -> LocalNames:
    """A plan whose delta shows in few releases."""
    return LocalNames.plan(read_schema(records), columns, 1.0, 1e-3)


def counted_as_one(plan: LocalNames) -> LocalNames:
    return replace(plan, selection=NameSelection.plan(1.0, 1e-3, 1))


def of_three_times_the_epsilon(plan: LocalNames) -> LocalNames:
    chances = NameSelection.plan(3.0, 1e-3, plan.selection.changes).chances
    return replace(plan, selection=replace(plan.selection, chances=chances))


def seeded() -> SeededRandomnessForSimulation:
    return SeededRandomnessForSimulation(3, "audit")


@pytest.mark.parametrize(
    ("plan", "wrong", "found"),
    [
        (named(), of_three_times_the_epsilon, "epsilon >= "),
        (named({**RECORDS, "rows": "public"}), counted_as_one, "are 2 times as far apart"),
        (named(columns=("ward", "drug")), counted_as_one, "are 2 times as far apart"),
        (named(PERSONS), counted_as_one, "are 6 times as far apart"),
        (named({**RECORDS, "rows": "public"}), of_three_times_the_epsilon, "epsilon >= "),
    ],
)
def test_the_audit_finds_what_is_not_paid_for(
    plan: LocalNames, wrong: Callable[[LocalNames], LocalNames], found: str
) -> None:
    """A right plan passes, and its neighbours move as much as is planned; the seeds are fixed."""
    right = audit_names(plan, 20_000, seeded())
    assert not right.violations
    assert right.moved == 1
    assert right.findings[0].lower > 0.5 * plan.selection.epsilon / plan.selection.changes
    assert re.search(found, " ".join(audit_names(wrong(plan), 20_000, seeded()).violations))


def test_an_audit_finds_the_same_in_other_processes() -> None:
    with open_executor(2) as executor:
        assert audit_names(named(), 40_000, seeded(), executor=executor) == audit_names(
            named(), 40_000, seeded()
        )


def test_no_two_blocks_of_an_audit_have_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = noise_of_blocks(monkeypatch, lambda: audit_names(named(), 20_000, seeded()))
    # Halves of 10,000 releases on two inputs, for two pairs of them.
    assert len(noise) == 32
    assert len({*noise}) == len(noise)
