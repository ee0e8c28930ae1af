"""Statistics of records over real sockets and between processes: answers, refusals, losses, ledgers."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import smpc_dp
from smpc_dp.cli import app
from smpc_dp.privacy.accountant.events import Pure
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.records.plan import Plan
from smpc_dp.records.record_result import RecordResult
from smpc_dp.records.requests.records_task import load_rows
from smpc_dp.records.table import Table
from smpc_dp.session.events import Event, ignore
from smpc_dp.session.host import HostMember
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.planned import NoiseWarning, RowsWarning, session_plan
from smpc_dp.session.session_file import Timeouts, load_session, write_session
from tests import command
from tests.accessibility import check_accessible
from tests.baselines.schemas import faults
from tests.pages import Page

PARTIES = ("alice", "bob", "carol", "dave", "erin")
COLUMNS = {
    "age": {"lower": 0.0, "upper": 100.0},
    "sex": {"values": ["f", "m"]},
}
REAL: dict[str, Any] = {
    "epsilon": 4.0,
    "delta": 1e-6,
    "ask": ["count", "mean(age)", "count by sex"],
    "dropout": 0.2,
    "corrupt": 0.0,
    "records": {"max_rows": 2000, "rows_expected": 4000, "columns": COLUMNS},
}
EXAMPLE = Path(__file__).parents[2] / "examples" / "hospital_statistics.py"
FAST = Timeouts(connect=20.0, step=20.0, gather=10.0)


def changed(records: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {**REAL, **more, "records": {**REAL["records"], **(records or {})}}


def rows(name: str, count: int = 800) -> dict[str, Any]:
    source = np.random.default_rng(PARTIES.index(name))
    return {"age": source.uniform(20, 80, count), "sex": source.choice(["f", "m"], count)}


async def execute(
    path: Path, tables: Mapping[str, Any], requests: int = 1, **options: Any
) -> dict[str, RecordResult | smpc_dp.SmpcError]:
    """Serve, and let every party ask; return how it ended for each, and for the aggregator."""

    async def party(name: str) -> RecordResult | smpc_dp.SmpcError:
        try:
            async with smpc_dp.connect(path, party=name, **options) as session:
                return await session.statistics(tables[name])
        except smpc_dp.SmpcError as error:
            return error

    serving = asyncio.create_task(smpc_dp.serve(path, requests=requests))
    ended = dict(zip(tables, await asyncio.gather(*map(party, tables)), strict=True))
    (ended["aggregator"],) = await serving  # type: ignore[assignment]
    return ended


def result_of(ended: RecordResult | smpc_dp.SmpcError) -> RecordResult:
    assert isinstance(ended, RecordResult), ended
    return ended


def values(ended: RecordResult | smpc_dp.SmpcError) -> list[tuple[float | None, float | None, float | None]]:
    return [(one.value, one.low, one.high) for one in result_of(ended).answers.estimates]


async def test_everybody_gets_the_same_answers_near_the_truth(tmp_path: Path) -> None:
    """With intervals of 1 - 1e-9 together a right answer fails once in 1e8 runs."""
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    tables = {name: rows(name) for name in PARTIES}
    ended = await execute(path, tables)
    assert len({json.dumps(values(one)) for one in ended.values()}) == 1
    result = ended["alice"]
    assert isinstance(result, RecordResult)
    assert (result.privacy.unit, result.privacy.epsilon, result.privacy.delta) == ("record", 4.0, 1e-6)
    assert result.survivors == PARTIES
    ages = np.concatenate([table["age"] for table in tables.values()])
    sexes = np.concatenate([table["sex"] for table in tables.values()])
    truth = [len(ages), ages.mean(), (sexes == "f").sum(), (sexes == "m").sum()]
    for one, true in zip(result.answers.estimates, truth, strict=True):
        # 3.1 times an interval of 0.95 is more than six deviations.
        middle, reach = (one.low + one.high) / 2, 3.1 * (one.high - one.low) / 2  # type: ignore[operator]
        assert abs(true - middle) < reach, one
        assert reach < 0.02 * {"count": 4000, "mean(age)": 100}[one.name]


async def test_a_budget_of_two_tables_has_laplace_noise_and_is_spent_after_both(tmp_path: Path) -> None:
    """Each costs half of epsilon and no delta; answers are within 30 scales: a false alarm in 1e11 runs."""
    given = changed(ask=["sex"], budget={"epsilon": 2.0, "delta": 1e-6, "requests": 2})
    del given["epsilon"], given["delta"]
    path = create_local_session(tmp_path, PARTIES, given, timeouts=FAST)
    planned = session_plan(load_session(path))
    assert planned is not None
    assert (planned.epsilon, planned.noise) == (1.0, "discrete-laplace")
    ledger, tables = tmp_path / "alice.ledger", {name: rows(name) for name in PARTIES}
    terms: Any = {"unit": "record", "relation": "add-remove", "epsilon": 2.0, "delta": 1e-9}
    Ledger.create(ledger, party="alice", dataset="2026", **terms)

    async def party(name: str) -> list[RecordResult]:
        book = ledger if name == "alice" else None
        async with smpc_dp.connect(path, party=name, ledger=book) as session:
            results = [await session.statistics(tables[name]) for _ in range(2)]
            with pytest.raises(smpc_dp.PrivacyError, match=f"epsilon is short: {name}: request 3"):
                await session.statistics(tables[name])
            return results

    serving = asyncio.create_task(smpc_dp.serve(path))
    results = await asyncio.gather(*map(party, PARTIES))
    await serving
    assert len({json.dumps([values(one) for one in each]) for each in results}) == 1
    first, second = (one.privacy.budget for one in results[0])
    assert first is not None
    assert second is not None
    assert first.epsilon == pytest.approx(1.0, rel=1e-5)
    assert first.left == 1
    assert second.spent == pytest.approx(2.0, rel=1e-5)
    assert second.left == 0
    sexes = np.concatenate([table["sex"] for table in tables.values()])
    for result in results[0]:
        for one in result.answers.estimates:
            assert one.value == pytest.approx((sexes == one.cell["sex"]).sum(), abs=30)
    entries = Ledger.open(ledger).entries()
    assert [entry.event.descriptions for entry in entries] == [(Pure(epsilon=1.0, delta=0.0),)] * 2


async def test_what_depends_on_rows_is_seen_by_its_party_alone(tmp_path: Path) -> None:
    """No rows, equal rows, missing values, undeclared categories: an answer, and nobody else is told."""
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    tables = {name: rows(name) for name in PARTIES}
    tables["bob"] = rows("bob", 0)
    tables["carol"] = {"age": np.full(500, 40.0), "sex": np.array(["f"] * 500)}
    tables["dave"] = {"age": np.array([np.nan, 987654.25, 1.0]), "sex": np.array(["x", "f", ""])}
    # More rows than max_rows: the sums are clamped.
    tables["erin"] = rows("erin", 2500)
    with pytest.warns(RowsWarning, match="^erin: request 1: more rows than max_rows count"):
        ended = await execute(path, tables)
    assert len({json.dumps(values(one)) for one in ended.values()}) == 1
    dave, erin, alice = (result_of(ended[name]) for name in ("dave", "erin", "alice"))
    assert dave.dropped is not None
    assert erin.dropped is not None
    assert dave.dropped.missing == {"age": 1, "sex": 1}
    assert (dave.dropped.clipped, dave.dropped.undeclared) == ({"age": 1}, {"sex": 1})
    assert erin.dropped.beyond_rows == 500
    for other in (alice, ended["aggregator"]):
        assert isinstance(other, RecordResult)
        assert "dropped" not in json.dumps(other.to_json())
    assert "987654" not in json.dumps({key: dave.to_json()[key] for key in ("privacy", "faults")})


@pytest.mark.parametrize(
    ("table", "where", "reason"),
    [
        ({"age": np.zeros(3)}, "sex", "carol: the table has no column 'sex'"),
        ({"age": np.zeros(3), "sex": np.array(["f"])}, "table", "carol: columns must be of one length"),
    ],
)
async def test_a_wrong_column_is_named_and_nothing_is_sent(
    table: dict[str, Any], where: str, reason: str, tmp_path: Path
) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    tables = {name: rows(name) for name in PARTIES} | {"carol": table}
    ended = await execute(path, tables)
    refused = ended["carol"]
    assert isinstance(refused, smpc_dp.ConfigError)
    [issue] = refused.issues
    assert issue.where == where
    assert issue.reason.startswith(reason)
    alice = ended["alice"]
    assert isinstance(alice, RecordResult)
    assert alice.survivors == ("alice", "bob", "dave", "erin")
    # Four shares of noise are in the sum, and not five.
    assert (alice.answers.present, alice.answers.counted) == (4, 3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"ask": ["count", "mean(age)"]}, "parameters.ask"),
        ({"epsilon": 40.0}, "parameters.epsilon"),
        (changed({"columns": {**COLUMNS, "age": {"lower": 0.0, "upper": 1.0}}}), "columns.age.upper"),
        (
            changed({"columns": {**COLUMNS, "sex": {"lower": 0.0, "upper": 1.0, "bins": [0.5]}}}),
            "columns.sex",
        ),
        (changed({"max_rows": 1000}), "records.max_rows"),
    ],
)
async def test_a_party_with_other_terms_is_refused_by_the_name_of_the_field(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    loaded = load_session(path)
    other = path.with_name("other.toml")
    write_session(other, "secagg", 2, {**REAL, **change}, loaded.roster, FAST)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    with pytest.raises(smpc_dp.ConfigError) as refused:
        async with smpc_dp.connect(other, party="bob", key=tmp_path / "keys" / "bob.key"):
            pass
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert named in str(refused.value)


async def test_what_this_party_asks_must_be_what_the_session_asks(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    async with smpc_dp.connect(path, party="bob") as session:
        with pytest.raises(smpc_dp.ConfigError, match=r"ask: is .*, the session file says"):
            await session.statistics(rows("bob"), "mean(age)")
        for level in (0.0, 1.0, 95.0, math.nan):
            with pytest.raises(smpc_dp.ConfigError, match=r"level: must be in \(0, 1\)"):
                # Refused before the aggregator has to answer: nothing is charged.
                await asyncio.wait_for(session.statistics(rows("bob"), level=level), 1.0)
        with pytest.raises(smpc_dp.ConfigError, match="call statistics"):
            await session.average(np.zeros(4))
        plan = session.plan()
        assert plan is not None
        assert (plan.unit, plan.relation, plan.counted) == ("record", "add-remove", 3)
        # A round trip of 50 ms each step, and the bytes at 10 Mbit/s; a step waits for the lost.
        bits = 8 * (plan.sent + plan.received)
        assert plan.seconds == pytest.approx(0.05 * plan.steps + bits / 10e6)
        assert plan.step_timeout == FAST.step
        assert f"time: {plan.seconds:.2g} s for a party's messages" in str(plan)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_command_sums_its_rows_before_it_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    write_tables(tmp_path, {name: rows(name) for name in PARTIES})
    ready = {}
    for name in PARTIES:
        host = HostMember(path, name, None, None, None, None, None, None, ignore)
        ready[name] = load_rows(host, Membership.load(path, name, None))

    def late(plan: Plan, table: Table) -> None:
        raise AssertionError("rows are summed while others wait")

    monkeypatch.setattr(Plan, "vector", late)
    ended = await execute(path, ready)
    assert values(ended["alice"])


@pytest.mark.parametrize("asked", [["count", "mean(age)"], "logistic(sick ~ age)"])
async def test_more_rows_than_max_rows_are_refused_before_anything_is_sent(
    asked: str | list[str], tmp_path: Path
) -> None:
    """By both commands and by `connect`: no aggregator serves, so a connection would be another error."""
    columns = {**COLUMNS, "sick": {"lower": 0.0, "upper": 1.0, "step": 1.0}}
    given = changed({"columns": columns}, ask=asked)
    if isinstance(asked, str):
        del given["epsilon"], given["delta"]
    path = create_local_session(tmp_path, PARTIES, given, timeouts=FAST)
    tables = {name: {**rows(name), "sick": np.zeros(800)} for name in PARTIES}
    tables["bob"] = {**rows("bob", 2001), "sick": np.zeros(2001)}
    write_tables(tmp_path, tables)
    reason = "max_rows: bob: 2001 private rows, max_rows is 2000"
    for options in ([], ["--check"]):
        done = CliRunner().invoke(app, ["statistics", str(path), "--as", "bob", *options])
        assert done.exit_code == 1
        assert str(done.exception) == reason
        assert "count" not in done.output
    done = CliRunner().invoke(app, ["run", str(path)])
    assert str(done.exception) == reason
    for source in (tables["bob"], tmp_path / "inputs" / "bob.csv"):
        with pytest.raises(smpc_dp.ConfigError, match=f"^{reason}$"):
            async with smpc_dp.connect(path, party="bob", table=source):
                raise AssertionError("bob is connected")
    with pytest.raises(smpc_dp.ConfigError, match=r"tables\[1\]: 2001 private rows, max_rows is 2000"):
        smpc_dp.simulate.statistics(
            list(tables.values()), asked, schema=given["records"], epsilon=1.0, delta=1e-6
        )


@pytest.mark.filterwarnings("error::smpc_dp.session.planned.RowsWarning")
async def test_a_table_given_to_connect_is_that_of_every_request(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    seen: list[str] = []
    warned = "more rows than max_rows count: each sum is clamped by itself, and answers are wrong"

    async def party(name: str) -> list[RecordResult]:
        given = None if name == "erin" else rows(name)
        async with smpc_dp.connect(path, party=name, table=given, on_event=watch) as session:
            if given is None:
                with pytest.raises(smpc_dp.ConfigError, match="table: is needed, here or by `connect`"):
                    await session.statistics()
                first = await session.statistics(rows("erin"))
                # A warning that is made an error is not raised: others would see that.
                second = await session.statistics(rows("erin", 2500))
                assert warned in str(second)
                assert warned not in str(first)
                return [first, second]
            return [await session.statistics() for _ in range(2)]

    def watch(event: Event) -> None:
        if event.kind == "warned":
            seen.append(f"{event.party} {event.request}: {event.detail}")

    serving = asyncio.create_task(smpc_dp.serve(path, requests=2))
    results = await asyncio.gather(*map(party, PARTIES))
    await serving
    first, second = results[0]
    assert first.survivors == second.survivors == PARTIES
    # Two noisy counts of rows that differ by 1200, up to 8 deviations of their noise.
    (before, after) = (one.answers.estimates[0] for one in (first, second))
    assert before.standard_error is not None
    assert after.value == pytest.approx(4000 + 1200, abs=8 * before.standard_error)
    assert [one for one in seen if "max_rows" in one] == [f"erin 2: {warned}"]


async def test_a_sum_has_no_statistics(tmp_path: Path) -> None:
    given = {"length": 2, "lower": 0.0, "upper": 1.0, "precision": 0.5, "dropout": 0.0}
    path = create_local_session(tmp_path, PARTIES, given, timeouts=FAST)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    async with smpc_dp.connect(path, party="bob") as session:
        with pytest.raises(smpc_dp.ConfigError, match="has no records"):
            await session.statistics(rows("bob"))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_ledgers_are_charged_in_the_unit_and_relation_of_the_session(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    terms: dict[str, Any] = {"dataset": "rows", "epsilon": 5.0, "delta": 1e-6}
    for name in PARTIES:
        book = tmp_path / f"{name}.ledger"
        Ledger.create(book, party=name, unit="record", relation="add-remove", **terms)
    tables = {name: rows(name) for name in PARTIES}

    async def party(name: str, request: int) -> RecordResult | smpc_dp.SmpcError:
        try:
            async with smpc_dp.connect(path, party=name, ledger=tmp_path / f"{name}.ledger") as session:
                return await session.statistics(tables[name], label=f"round {request}")
        except smpc_dp.SmpcError as error:
            return error

    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    ended = await asyncio.gather(*(party(name, 1) for name in PARTIES))
    await serving
    for name, result in zip(PARTIES, ended, strict=True):
        assert isinstance(result, RecordResult), result
        assert result.privacy.receipt is not None
        assert (result.privacy.receipt.unit, result.privacy.receipt.party) == ("record", name)
        assert 3.9 < (result.privacy.receipt.spent.epsilon or 0) <= 4.0
    # The second one is refused before anybody connects: nobody listens there any more.
    refused = await party("alice", 2)
    assert isinstance(refused, smpc_dp.PrivacyError)
    assert "epsilon is short" in str(refused)
    assert len(Ledger.open(tmp_path / "alice.ledger").entries()) == 1


@pytest.mark.parametrize(
    ("unit", "relation", "reason"),
    [
        ("party", "substitution", "its guarantee is for one record"),
        ("record", "substitution", "is never converted"),
        ("person", "add-remove", "its guarantee is for one record"),
    ],
)
async def test_a_ledger_of_another_unit_or_relation_is_refused_before_connecting(
    unit: Any, relation: Any, reason: str, tmp_path: Path
) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    book = tmp_path / "alice.ledger"
    Ledger.create(book, party="alice", dataset="rows", relation=relation, epsilon=9.0, delta=1e-5, unit=unit)
    with pytest.raises(smpc_dp.PrivacyError, match=reason):
        async with smpc_dp.connect(path, party="alice", ledger=book):
            pass
    assert Ledger.open(book).entries() == ()


def test_large_noise_is_warned_of_and_a_bound_on_it_is_kept(tmp_path: Path) -> None:
    few = changed({"rows_expected": 20})
    path = create_local_session(tmp_path / "few", PARTIES, few, timeouts=Timeouts(connect=0.5))
    with pytest.warns(NoiseWarning, match=r"mean\(age\): the standard error is"):
        asyncio.run(connect_only(path))
    with pytest.raises(smpc_dp.ConfigError, match=r"max_standard_error: mean\(age\): the standard error is"):
        create_local_session(tmp_path / "bound", PARTIES, {**few, "max_standard_error": 0.05})


async def connect_only(path: Path) -> None:
    """Connect where nobody listens."""
    with pytest.raises(smpc_dp.TimeoutFault):
        async with smpc_dp.connect(path, party="alice"):
            pass


def write_tables(folder: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    (folder / "inputs").mkdir(exist_ok=True)
    for name, table in tables.items():
        lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
        (folder / "inputs" / f"{name}.csv").write_text("\n".join(lines) + "\n", "utf-8")


# Counts stand on a page as whole numbers, the ends of their intervals farther out.
WHOLE: dict[str, Callable[[float], float]] = {"value": round, "low": math.floor, "high": math.ceil}


def on_page(one: dict[str, Any], key: str) -> str:
    if one[key] is None:
        return "-"
    return f"{max(0, WHOLE[key](one[key])):,}" if one["unit"] == "rows" else f"{one[key]:.6g}"


@pytest.mark.long
def test_processes_with_one_killed(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    write_tables(tmp_path, {name: rows(name) for name in PARTIES})

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "smpc_dp", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    serving = start("party", str(path), "--as", "aggregator", "--json")
    # Erin dies as soon as she has connected, before the others come: no request has begun.
    erin = start("statistics", str(path), "--as", "erin", "--json")
    assert erin.stderr is not None
    for line in erin.stderr:
        if b"connected" in line:
            break
    os.kill(erin.pid, signal.SIGKILL)
    parties = {
        name: start("statistics", str(path), "--as", name, "--json", "--report", f"{tmp_path / name}.html")
        for name in PARTIES
        if name != "erin"
    }
    printed = {name: process.communicate(timeout=300) for name, process in parties.items()}
    served = serving.communicate(timeout=300)
    erin.communicate()
    results = [json.loads(out) for out, _ in (*printed.values(), served)]
    assert len({json.dumps(result["estimates"]) for result in results}) == 1
    assert [faults(result) for result in results] == [[]] * len(results)
    assert results[0]["absent"] == ["erin"]
    assert results[0]["privacy"]["unit"] == "record"
    # What does not count is told on standard error, to the party, before it connects.
    shown = printed["alice"][1].decode()
    assert shown.index("800 rows") < shown.index("connected to")
    assert "standard error of mean(age)" in shown
    page = Page((tmp_path / "alice.html").read_text("utf-8"))
    assert page.faults == page.loads == []
    with subtests.test("accessible"):
        check_accessible(tmp_path / "alice.html")
    for one in results[0]["estimates"]:
        assert {on_page(one, key) for key in WHOLE} <= set(page.cells)
    assert all(line in page.text for line in results[0]["privacy"]["not_protected"])
    assert "without erin" in page.text


@pytest.mark.long
def test_ten_hospitals_of_which_one_is_killed() -> None:
    """All intervals hold together but for a probability of 1e-6."""
    example = runpy.run_path(str(EXAMPLE))
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "killed: hospital-07; in it: 9 hospitals" in done.stdout
    assert "protected: one record, epsilon 1.0, delta 1e-06" in done.stdout
    shown = re.findall(r"^(.+?): .* in \[(.+), (.+)\] ", done.stdout, re.MULTILINE)
    intervals = {
        name: (float(low.replace("None", "-inf")), float(high.replace("None", "inf")))
        for name, low, high in shown
    }
    tables = [example["table"](name) for name in example["HOSPITALS"] if name != "hospital-07"]
    pooled = {column: np.concatenate([table[column] for table in tables]) for column in tables[0]}
    age, bmi, pressure = (pooled[column] for column in ("age", "bmi", "pressure"))
    design = np.stack([np.ones(len(age)), age, bmi], axis=1)
    coefficients = np.linalg.lstsq(design, pressure, rcond=None)[0]
    truth = {"count ": len(age), "mean(age) ": age.mean()}
    truth |= dict(zip(("intercept ", "slope of age ", "slope of bmi "), coefficients, strict=True))
    for level in (0.25, 0.5, 0.75):
        truth[f"quantile(age, {level:g}) "] = np.quantile(age, level)
    for region in np.unique(pooled["region"]):
        inside = pooled["region"] == region
        truth[f"mean(pressure) {region}"] = pressure[inside].mean()
        for stage in np.unique(pooled["stage"]):
            truth[f"count {stage}, {region}"] = (inside & (pooled["stage"] == stage)).sum()
    assert truth.keys() == intervals.keys()
    outside = {
        name: value for name, value in truth.items() if not intervals[name][0] <= value <= intervals[name][1]
    }
    assert not outside
    # Useful: a count of thousands is known to one part in ten.
    assert intervals["count "][1] - intervals["count "][0] < 0.1 * len(age)


def test_commands_plan_and_check(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, REAL, timeouts=FAST)
    tables = {name: rows(name, 3) for name in PARTIES}
    tables["bob"]["age"][0] = 400.0
    tables["erin"]["age"][:3] = -9.0
    write_tables(tmp_path, tables)
    planned = command.smpc_dp("plan", "session", str(path))
    assert planned.returncode == 0, planned.stdout
    assert "each request costs: epsilon = 4, delta = 1e-06 for one record (add-remove)" in planned.stdout
    assert "3 of 5 shares are counted on" in planned.stdout
    checked = command.smpc_dp("statistics", str(path), "--as", "bob", "--check")
    assert checked.returncode == 0, checked.stdout
    assert "age: 1 values are outside the bounds, and clipped" in checked.stdout + checked.stderr
    checked = command.smpc_dp("statistics", str(path), "--as", "erin", "--check")
    assert (
        "age: numbers out of bounds that repeat, with their rows: -9 (3)" in checked.stdout + checked.stderr
    )
    (tmp_path / "inputs" / "dave.csv").write_text("age,sex\nold,f\nyoung,m\n", "utf-8")
    checked = command.smpc_dp("statistics", str(path), "--as", "dave", "--check")
    assert checked.returncode == 1
    assert "no row has a number in column 'age'" in checked.stdout + checked.stderr
    (tmp_path / "inputs" / "carol.csv").write_text("age\n1\n", "utf-8")
    refused = command.smpc_dp("run", str(path))
    assert refused.returncode == 1
    assert "sex: carol: the table has no column 'sex'" in refused.stdout + refused.stderr
