"""A learner, a kernel and a protocol of another package: `smpc-dp run` runs them, and faults name them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp import extensions
from smpc_dp.capabilities.gopa.verifiable.records import VerifiableRecordParameters
from smpc_dp.capabilities.learn.averager import Averaged, Rows
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.capabilities.pairs.kernels import Field
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel, evaluate
from smpc_dp.capabilities.pairs.kernels.described import describe, read_kernel
from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.pairs.requests.statistic import StatisticRequest, plan_maker
from smpc_dp.capabilities.pairs.ustatistic import messages as statistic
from smpc_dp.capabilities.reports.report_parameters import ReportParameters, check_reports
from smpc_dp.cli.statistic import Statistic
from smpc_dp.engine.registry import RESERVED, built_in_protocols, checker_of, find_protocol, session_protocol
from smpc_dp.engine.result import Result
from smpc_dp.engine.session_protocol import ParameterChecker
from smpc_dp.errors import ConfigError, LocalError, SmpcError, TimeoutFault
from smpc_dp.extensions import Group
from smpc_dp.records.answers import estimate
from smpc_dp.records.asked import Statistic as Asked
from smpc_dp.records.composed import FIRST_ORDER, NO_ANSWER
from smpc_dp.records.record_result import RecordResult
from smpc_dp.records.registered import BUILT_IN, describe_statistic, statistic_of
from smpc_dp.records.result import WITHIN_NOISE, Answers
from smpc_dp.records.schema import read_schema
from smpc_dp.records.table import read_table
from smpc_dp.secagg.records import RecordSumParameters, check_records
from smpc_dp.session.aggregator import serve
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session import connect
from smpc_dp.session.session_file import Timeouts, load_session
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.record_plan import read_request
from smpc_dp_verify.session import Session
from smpc_dp_verify.terms import read_terms
from tests.deadlines import HOURS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "extensions"
PARTIES = ("ann", "bob", "cas", "dan")
SUM: Mapping[str, object] = {"length": 1, "lower": 0.0, "upper": 10.0, "precision": 0.1, "corrupt": 0.0}
MEAN: Mapping[str, object] = {
    "learner": "private-mean",
    "lower": 0.0,
    "upper": 10.0,
    "epsilon": 20.0,
    "delta": 1e-6,
}
TIMEOUTS = Timeouts(connect=20.0, step=20.0, gather=20.0)


def install(folder: Path, points: Mapping[str, Mapping[str, str]], name: str, version: str = "1.0") -> None:
    """Write what an installer writes of a distribution with these entry points, by group."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, named in points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in named.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_example(folder: Path, version: str = "1.0") -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(folder, project["entry-points"], project["name"], version)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLE), str(folder)])}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example, installed in this process: the folder where further distributions may be written."""
    folder = tmp_path / "site"
    install_example(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    extensions.find.cache_clear()
    yield folder
    extensions.find.cache_clear()


def session(
    folder: Path, protocol: str, parameters: Mapping[str, object], timeouts: Timeouts = TIMEOUTS
) -> Path:
    path = create_local_session(
        folder / "session", PARTIES, parameters, protocol=protocol, addresses=True, timeouts=timeouts
    )
    (path.parent / "inputs").mkdir()
    for index, name in enumerate(PARTIES, 1):
        (path.parent / "inputs" / f"{name}.txt").write_text(f"{index}\n")
    return path


def run(folder: Path, path: Path, *options: str) -> dict[str, Any]:
    """Run a session with `smpc-dp run` where the example is installed; return the result."""
    done = subprocess.run(
        [sys.executable, "-m", "smpc_dp", "run", str(path), "--json", *options],
        capture_output=True,
        text=True,
        env=environment(folder),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reported: dict[str, Any] = json.loads(done.stdout)
    return reported


@pytest.mark.long
def test_run_runs_a_protocol(installed: Path, tmp_path: Path) -> None:
    path = session(tmp_path, "unanimous", SUM)
    reported = run(installed, path, "--operation", "sum")
    assert reported["value"] == [10.0]
    assert reported["evidence"]["protocol"] == "unanimous"
    assert reported["privacy"]["claim"].startswith("unanimous, over all 4 parties: ")


@pytest.mark.long
def test_run_runs_a_learner(installed: Path, tmp_path: Path) -> None:
    reported = run(installed, session(tmp_path, "learn", MEAN))["parties"]
    assert set(reported) == set(PARTIES)
    values = {name: result["values"][0][0] for name, result in reported.items()}
    # The mean is 2.5; the noise has a standard deviation of 0.9, and is above 5.4 with a chance below 1e-8.
    assert len(set(values.values())) == 1
    assert 0 < abs(values["ann"] - 2.5) < 5.4
    assert reported["ann"]["done"] == [1]
    assert reported["ann"]["guarantee"]["epsilon"] == 20.0


class ExactAverager:
    """Averages without noise over all parties, who live here."""

    parties, here, claim = 4, np.arange(4), ""

    async def average(self, vector: Rows, *_: object) -> Averaged:
        return Averaged(np.broadcast_to(vector.mean(axis=0), vector.shape), np.full(4, 4.0))


@pytest.mark.usefixtures("installed")
def test_the_defaults_of_a_protocol_are_those_of_its_version() -> None:
    """Also where sums of this release have others: a digest that stays has a plan that stays."""
    given = {key: value for key, value in SUM.items() if key != "corrupt"}
    checked, faults = checker_of("unanimous", 1)(given, 5)
    assert not faults
    assert (checked.plan.max_dropouts, checked.plan.max_corrupt, checked.quorum) == (0, 0, 3)
    checked, _ = checker_of("unanimous", 1)(given | {"corrupt": 0.2}, 5)
    assert checked.plan.max_corrupt == 1


@pytest.mark.usefixtures("installed")
def test_the_learner_averages_means() -> None:
    checked, faults = check_learn(MEAN, 4)
    assert checked is not None, faults
    assert checked.requested("average") == "average of smpc-dp-example 1.0"
    data = [np.array([[float(party)], [party + 1.0]]) for party in range(4)]
    learned = asyncio.run(checked.learner.run(LearnerContext(ExactAverager()), data))
    np.testing.assert_allclose(learned.values, np.full((4, 1), 2.0), atol=1e-3)
    with pytest.raises(ConfigError, match="ann: must be one column of numbers from 0 to 10"):
        checked.learner.check_data(np.array([[11.0]]), "ann")


@pytest.mark.long
def test_run_runs_a_kernel(installed: Path, tmp_path: Path) -> None:
    reported = run(installed, session(tmp_path, "secagg", SUM), "--statistic", "near", "--epsilon", "12")
    assert (reported["kernel"], reported["pairs"], reported["failed"]) == ("near", 2, 0)


@pytest.mark.long
def test_a_gossip_of_reports_takes_a_kernel(installed: Path, tmp_path: Path) -> None:
    given = {"learner": "gossip-reports", "statistic": "near", "bins": 10}
    reported = run(installed, session(tmp_path, "learn", {**given, "epsilon": 50.0, "ticks": 40}))["parties"]
    # Of the pairs of 1 to 4 five in six are near. At epsilon 50 all reports are true but with a chance below
    # 1e-20; what is left is how far 40 meetings of a public schedule take the parties.
    mean = sum(result["values"][0][0] for result in reported.values()) / 4
    assert abs(mean - 5 / 6) < 0.3


@pytest.mark.usefixtures("installed")
def test_servers_are_sent_the_circuit_of_a_kernel() -> None:
    """They need not have the package."""
    described = describe(find_kernel("near"))
    extensions.find.cache_clear()
    assert described["circuit"]
    assert read_kernel(described).integer(np.array([[1]]), np.array([[3]])) == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"upper": 10.0}, "upper"),
        ({"statistic": "far"}, "statistic"),
        ({"statistic": "collision"}, "statistic"),
    ],
)
def test_gossip_refuses_what_a_kernel_is_not_for(change: Mapping[str, object], where: str) -> None:
    given = {"learner": "gossip-reports", "statistic": "near", "bins": 10}
    _, faults = check_learn({**given, "epsilon": 5.0, "ticks": 40, **change}, 4)
    assert [fault.where for fault in faults] == [where]
    if where == "statistic":
        assert "of other packages: near, within_a_tenth; other packages register theirs" in faults[0].reason


@pytest.mark.long
def test_run_runs_a_kernel_made_of_fields(installed: Path, tmp_path: Path) -> None:
    """The aggregator makes it too, of the fields in the operation."""
    options = ("--statistic", "within_a_tenth", "--field", "0:20", "--epsilon", "12")
    reported = run(installed, session(tmp_path, "secagg", SUM), *options)
    assert (reported["kernel"], reported["pairs"], reported["failed"]) == ("within_a_tenth", 2, 0)


@pytest.mark.usefixtures("installed")
def test_a_kernel_is_made_of_fields() -> None:
    field = Field(0, 20)
    kernel = find_kernel("within_a_tenth", field)
    assert (kernel.fields, kernel.steps) == ((field,), 1)
    assert kernel.integer(np.array([[3]]), np.array([[5]])) == 1
    assert kernel.integer(np.array([[3]]), np.array([[6]])) == 0
    # On shares: servers need not have the package.
    described = describe(kernel)
    assert read_kernel(described).integer(np.array([[3]]), np.array([[5]])) == 1
    # By garbled pairs: the aggregator makes the plan of the party's operation.
    checked = StatisticRequest.check(
        kernel,
        4.0,
        parties=2,
        epsilon=2.0,
        delta=0.0,
        partners=1,
        noise="laplace",
        zetas=None,
        public_label=None,
        covert=0,
    )
    assert plan_maker(())(checked.operation).digest == checked.plan.digest
    # In local reports, by a session file.
    reports = {"kernel": "within_a_tenth", "epsilon": 2.0, "fields": [{"lower": 0.0, "upper": 20.0}]}
    planned, issues = check_reports(reports, 4)
    assert isinstance(planned, ReportParameters), issues
    assert planned.kernel == "within_a_tenth"


@pytest.mark.usefixtures("installed")
def test_a_factory_needs_its_fields() -> None:
    for name, fields, reason in (
        ("within_a_tenth", (), "'within_a_tenth' needs the bounds of its values"),
        ("within_a_tenth", (Field(0, 1), Field(0, 1)), "'within_a_tenth' has 1 fields, 2 are given"),
        # The table of so many values: the fault of who gives the field, and not of the package.
        ("within_a_tenth", (Field(0, 1000),), "two records have 20 bits"),
    ):
        with pytest.raises(ConfigError, match=reason):
            find_kernel(name, *fields)
    with pytest.raises(ConfigError, match="--field: 'within_a_tenth' needs the bounds"):
        Statistic.requested("within_a_tenth", None, 1.0, None, None, None, None, None)
    _, issues = check_reports({"kernel": "within_a_tenth", "epsilon": 1.0}, 4)
    assert [(issue.where, issue.reason[:36]) for issue in issues] == [
        ("fields", "'within_a_tenth' needs the bounds of")
    ]
    _, faults = check_learn(
        {"learner": "gossip-reports", "statistic": "within_a_tenth", "bins": 10, "epsilon": 5.0, "ticks": 9},
        4,
    )
    assert [fault.where for fault in faults] == ["statistic (kernel)"]
    assert "'within_a_tenth' is made of fields: give the description" in faults[0].reason


FACTORIES = """
from smpc_dp.capabilities.pairs.kernels import Field, KernelFactory, table_kernel
from smpc_dp.capabilities.pairs.kernels.definitions import absolute_difference
from smpc_dp.capabilities.pairs.kernels.forms import Form
from smpc_dp_example.kernel import near

class Bad(KernelFactory):
    result = None
    def make(self, *fields):
        return self.result(*fields)

def made(result, fields=("x",)):
    factory = type("Made", (Bad,), {"result": staticmethod(result)})
    return factory("bad", fields)

def table(name, *fields):
    return table_kernel(name, lambda x, y: 0.0, *fields, low=0, high=1)

text = made(lambda *fields: "near")
renamed = made(lambda *fields: table("other", *fields))
elsewhere = made(lambda *fields: table("bad", Field(0, 3)))
class OwnError(Exception): pass
def fail(*_):
    raise OwnError("secret of this host")

raising = made(lambda *fields: {}["secret of this host"])
failing = made(fail)
unnamed = made(lambda *fields: table("bad", *fields), ())
beyond = Form("bad", ("x",), lambda _: absolute_difference(1000), steps=1)
"""


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("text", "makes no Kernel with the name 'bad'"),
        ("renamed", "makes no Kernel with the name 'bad'"),
        ("elsewhere", "makes a kernel on other fields than those that are given"),
        ("raising", "makes no kernel of these fields: KeyError"),
        ("failing", "makes no kernel of these fields: OwnError"),
        ("unnamed", "has no names of fields"),
    ],
)
def test_what_a_factory_makes_is_checked(installed: Path, factory: str, why: str) -> None:
    (installed / "factories.py").write_text(FACTORIES)
    install(installed, {Group.KERNELS: {"bad": f"factories:{factory}"}}, "breaker")
    field = Field(0, 9)
    with pytest.raises(LocalError) as caught:
        find_kernel("bad", field)
    assert str(caught.value) == f"the kernel 'bad' of breaker {why}"
    # A party's request with it ends that request, not the aggregator.
    operation = {"kernel": "bad", "fields": [field.terms()], "epsilon": 1.0, "delta": 0.0}
    with pytest.raises(ConfigError, match="the kernel 'bad' of breaker") as refused:
        plan_maker(())(json.dumps(operation | {"partners": 1, "noise": "laplace"}))
    assert "secret" not in str(refused.value)


def test_the_range_of_a_made_kernel_holds(installed: Path) -> None:
    """Its circuit gives up to 9, and noise is scaled to the declared range."""
    (installed / "factories.py").write_text(FACTORIES)
    install(installed, {Group.KERNELS: {"bad": "factories:beyond"}}, "breaker")
    kernel = find_kernel("bad", Field(0, 9))
    every = np.arange(10)[:, None]
    assert kernel.steps == 1
    assert evaluate(compile_kernel(kernel, None), every[:, None], every[None]).max() == 1
    # Servers get the circuit, and it alone.
    assert kernel.definition is None


COLUMNS: Mapping[str, object] = {
    "cost": {"lower": 100.0, "upper": 200.0, "step": 1.0},
    "income": {"lower": 0.0, "upper": 1000.0, "step": 1.0},
    "ward": {"values": ["a", "b"]},
}


def records(change: Mapping[str, object] | None = None, **more: Any) -> dict[str, object]:
    """Return the `[parameters]` of a session of records that describes the example's ratio."""
    described = {**describe_statistic("ratio"), **(change or {})}
    table = {"columns": COLUMNS, "max_rows": 100, "statistics": {"ratio": described}}
    return {"records": table, "ask": ["ratio(cost, income)"], "epsilon": 4.0, "delta": 1e-6, **more}


def tables(parties: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [
        {
            "cost": rng.integers(90, 160, 80),
            "income": rng.integers(300, 900, 80),
            "ward": np.array(["a", "b"])[rng.integers(0, 2, 80)],
        }
        for _ in range(parties)
    ]


def released(parties: int, **change: Any) -> Answers:
    given: Any = records()["records"]
    asked = {"ask": "ratio(cost, income); ratio(cost, income) by ward"} | change
    return smpc_dp.simulate.statistics(
        tables(parties), schema=given, epsilon=40.0, delta=1e-6, seed_for_simulation=3, **asked
    )


@pytest.mark.usefixtures("installed")
def test_a_ratio_of_records() -> None:
    answers = released(20)
    rows = {name: np.concatenate([one[name] for one in tables(20)]) for name in COLUMNS}
    cost = np.clip(rows["cost"], 100, 200)
    ratios = [cost.sum() / rows["income"].sum()]
    ratios += [cost[rows["ward"] == one].sum() / rows["income"][rows["ward"] == one].sum() for one in "ab"]
    assert [one.cell for one in answers.estimates] == [{}, {"ward": "a"}, {"ward": "b"}]
    for one, ratio in zip(answers.estimates, ratios, strict=True):
        assert one.value is not None
        assert one.standard_error is not None
        assert one.low is not None
        assert one.high is not None
        # The noise is less than a hundredth of the ratio.
        assert 0 < one.standard_error < 0.002
        assert abs(one.value - ratio) < 4 * one.standard_error
        assert one.low == pytest.approx(one.value - 1.96 * one.standard_error, rel=1e-3)
        assert one.high == pytest.approx(one.value + 1.96 * one.standard_error, rel=1e-3)
        assert one.note == FIRST_ORDER


@pytest.mark.usefixtures("installed")
def test_no_ratio_is_shown_over_rows_that_are_within_the_noise() -> None:
    few = [{name: values[:1] for name, values in one.items()} for one in tables(4)]
    given: Any = records()["records"]
    answers = smpc_dp.simulate.statistics(
        few, "ratio(cost, income)", schema=given, epsilon=0.5, delta=1e-6, seed_for_simulation=3
    )
    assert [(one.value, one.note) for one in answers.estimates] == [(None, WITHIN_NOISE)]


@pytest.mark.usefixtures("installed")
def test_the_error_of_a_ratio_is_that_of_its_noise() -> None:
    """Over many releases the ratio spreads as the stated errors say."""
    given: Any = records()["records"]
    checked, issues = check_records(records(epsilon=2.0), 8)
    assert isinstance(checked, RecordSumParameters), issues
    plan = checked.request
    truth = sum(plan.vector(read_table(one, read_schema(given))) for one in tables(8))
    spread = np.random.default_rng(8).normal(0, plan.deviation(8), (400, plan.length))
    estimates = [estimate(plan, np.rint(truth + noise).astype(np.int64), 8).estimates[0] for noise in spread]
    values = np.array([one.value for one in estimates])
    # Of 400 normal values the deviation is within a sixth with a chance of 1 - 1e-5; rounding adds little.
    assert values.std() == pytest.approx(estimates[0].standard_error, rel=0.2)
    inside = sum(one.low <= values.mean() <= one.high for one in estimates)
    assert inside > 0.9 * 400


def plan_both(given: Mapping[str, object], parties: int = 6) -> tuple[VerifiableRecordParameters, Session]:
    """Plan a verifiable session, and describe it to the second auditor."""
    parameters, issues = checker_of("gopa", 4)(given, parties)
    assert isinstance(parameters, VerifiableRecordParameters), issues
    names = [f"party-{number}" for number in range(parties)]
    return parameters, Session(bytes(32), "gopa", 4, dict(given), {}, names, "relay", None)


GROUPED: Mapping[str, Any] = {"ask": "ratio(cost, income) by ward", "max_standard_error": 0.9}


def described(given: Mapping[str, object], **change: object) -> dict[str, object]:
    """Return a session of records with a changed description, and with a number of rows."""
    table: Any = given["records"]
    statistics = {"ratio": {**table["statistics"]["ratio"], **change}}
    return {**given, "records": {**table, "rows_expected": 1000, "statistics": statistics}}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("more", [{}, pytest.param(GROUPED, marks=pytest.mark.long)], ids=["", "by"])
def test_the_second_auditor_has_the_sums_of_a_described_statistic(more: Mapping[str, Any]) -> None:
    """It has the session alone, and nothing of the package; another description is another question."""
    given = described(records(verifiable=True, **more))
    parameters, session = plan_both(given)
    asked = f"{parameters.operations[0]} {parameters.planned()}"
    request = read_request(session.parameters, 6, parameters.session.honest)
    assert asked.startswith(f"statistics {request.text} ")
    low, high = parameters.request.bounds
    assert (request.low, request.high) == (low.tolist(), high.tolist())
    assert (request.table.described["ratio"].arguments, len(low)) == (("top", "below"), 6 if more else 3)
    squared = {"sums": [[], ["top"], ["below"], ["top", "top"]], "factors": [1, 1, 1, 1], "range": ["top"]}
    for change in (squared, {"factors": [0.25, 0.25, 8]})[: 1 + len(more)]:
        changed = dataclasses.replace(session, parameters=described(given, **change))
        with pytest.raises(Refused, match="the question of what the session asks"):
            read_terms(changed, 1, asked)


async def release(path: Path) -> tuple[RecordResult, str]:
    """Release the statistics of a verifiable session; return one party's result, and the second opinion.

    The second auditor is a process without the package.
    """
    rows = dict(zip(PARTIES, tables(4), strict=True))
    serving = asyncio.create_task(serve(path, requests=1))
    async with contextlib.AsyncExitStack() as stack:
        sessions = {name: await stack.enter_async_context(connect(path, name)) for name in PARTIES}
        results = await asyncio.gather(*(one.statistics(rows[name]) for name, one in sessions.items()))
        report = await sessions["ann"].log().audit()
        assert report.ok, report.conclusion
    await serving
    (log,) = (path.parent / "board").glob("request-*.jsonl")
    evidence = results[0].evidence
    assert evidence.log is not None
    wanted = ["--session", evidence.session_digest.hex(), "--head", evidence.log.head.hex()]
    command = [sys.executable, "-m", "smpc_dp_verify", str(log), *wanted]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    second, _ = await process.communicate()
    return results[0], second.decode()


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_both_auditors_judge_a_run_of_a_described_statistic(tmp_path: Path) -> None:
    given = described(records(verifiable=True, epsilon=20.0))
    path = create_local_session(tmp_path / "session", PARTIES, given, protocol="gopa", timeouts=HOURS)
    result, second = asyncio.run(release(path))
    (one,) = result.answers.of("ratio(cost, income)")
    assert one.value is not None
    assert one.standard_error is not None
    rows = {name: np.concatenate([one[name] for one in tables(4)]) for name in ("cost", "income")}
    truth = np.clip(rows["cost"], 100, 200).sum() / rows["income"].sum()
    assert abs(one.value - truth) < 6 * one.standard_error
    assert "Everything holds." in second


NO_DESCRIPTIONS: list[dict[str, object]] = [
    {"sums": [["top"], ["below"]], "factors": [1.0, 1.0]},
    {"sums": [[], ["top"], ["top", "below"]]},
    {"sums": [[], ["top"], ["below"], ["top"]], "factors": [1.0] * 4},
    {"sums": [[], ["top"], ["below"], ["top", "below", "top"]], "factors": [1.0] * 4},
    {"sums": [[], ["top"], ["ward"]]},
    {"factors": [0.25, 0.25]},
    {"factors": [0.25, 0.25, 0.0]},
    {"factors": [0.25, 0.25, 9e-7]},
    {"factors": [0.25, 0.25, 5e-324]},
    {"factors": [0.25, 0.25, -1.0]},
    {"factors": [0.25, 0.25, 1e7]},
    {"factors": [0.25, 0.25, math.nan]},
    {"factors": [0.25, 0.25, math.inf]},
    {"arguments": ["top", "below", "top"]},
    {"arguments": []},
    {"arguments": ["top", "bel ow"]},
    {"arguments": [f"a{number}" for number in range(17)]},
    {"range": ["cost"]},
    {"range": ["top", "top", "top"]},
    {"groups": 1},
    {"length": 3},
    {"bound": 1.0},
]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("change", NO_DESCRIPTIONS)
def test_both_refuse_what_describes_no_sums(change: dict[str, object]) -> None:
    _, session = plan_both(records(verifiable=True))
    given = records(change, verifiable=True)
    _, issues = checker_of("gopa", 4)(given, 6)
    assert issues
    assert all(issue.where.startswith("records.statistics") for issue in issues), issues
    with pytest.raises(Refused, match=r"the description of a statistic|^a number$"):
        read_terms(dataclasses.replace(session, parameters=given), 1, "statistics 1/1")


@pytest.mark.usefixtures("installed")
def test_both_refuse_names_of_this_package_and_undescribed_ones() -> None:
    parameters, session = plan_both(records(verifiable=True))
    asked = f"{parameters.operations[0]} {parameters.planned()}"
    table: Any = records()["records"]
    # kinds of two words are no names
    for name in sorted({*(kind for kind in BUILT_IN if " " not in kind), "by", "x"}):
        described = {**table, "statistics": {**table["statistics"], name: table["statistics"]["ratio"]}}
        given = records(verifiable=True) | {"records": described}
        _, issues = checker_of("gopa", 4)(given, 6)
        assert [issue.where for issue in issues] == [f"records.statistics.{name}"]
        with pytest.raises(Refused, match="the name of a described statistic"):
            read_terms(dataclasses.replace(session, parameters=given), 1, asked)
    given = records(verifiable=True) | {"records": {**table, "statistics": {}}}
    _, issues = checker_of("gopa", 4)(given, 6)
    assert ["'ratio' is no statistic" in issue.reason for issue in issues] == [True]
    with pytest.raises(Refused, match="the statistic ratio: the session does not describe its sums"):
        read_terms(dataclasses.replace(session, parameters=given), 1, asked)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ask": "ratio(cost)"}, "needs 2 columns: top, below"),
        ({"ask": "ratio(cost, ward)"}, "column 'ward' has categories, no numbers"),
        ({"ask": "ratio(cost, cost)"}, "a column is there twice"),
        ({"ask": "ratio(cost, gone)"}, "no column 'gone'"),
        ({"ask": "ratio(cost, income) by income"}, "needs `bins` in the schema"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_a_ratio_is_not_for(change: Mapping[str, object], reason: str) -> None:
    _, issues = check_records({**records(), **change}, 6)
    assert [reason in issue.reason for issue in issues] == [True], issues


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"package": "smpc-dp-example 1.1"},
            "'ratio' is a statistic of smpc-dp-example 1.1, and here that of smpc-dp-example 1.0",
        ),
        ({"package": ""}, "is a statistic of an unnamed package, and here that of smpc-dp-example 1.0"),
        ({"factors": [0.25, 0.25, 8.0]}, "the session describes 'ratio' otherwise than smpc-dp-example 1.0"),
        ({"groups": False}, "the session describes 'ratio' otherwise than smpc-dp-example 1.0"),
    ],
)
def test_a_party_with_another_statistic_is_refused(change: Mapping[str, object], reason: str) -> None:
    """By its own process, with the check of the session, before it connects."""
    _, issues = check_records(records(change), 6)
    assert [(issue.where, reason in issue.reason) for issue in issues] == [
        ("ask: 'ratio(cost, income)'", True)
    ]


def test_a_party_without_the_package_is_refused(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = records()
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(installed)])
    extensions.find.cache_clear()
    _, issues = check_records(given, 6)
    assert [issue.reason for issue in issues] == [
        "'ratio' is a statistic of smpc-dp-example 1.0, which is not installed here"
    ]
    with pytest.raises(ConfigError, match="'ratio' is unknown; other packages register theirs"):
        describe_statistic("ratio")


@pytest.mark.usefixtures("installed")
def test_a_session_file_has_the_description(tmp_path: Path) -> None:
    path = create_local_session(tmp_path / "session", PARTIES, records())
    loaded = load_session(path)
    assert loaded.parameters["records"]["statistics"] == {"ratio": describe_statistic("ratio")}  # type: ignore[index]


STATISTICS = """
import dataclasses
import math
import numpy as np
from smpc_dp.records.registered import SumsOfRows, statistic_of_sums

SUMS = dict(arguments=("a", "b"), sums=((), ("a",), ("b",)), factors=(1.0, 1.0, 1.0), groups=True)
calls = []

def made(answer, name="ratio", **change):
    return statistic_of_sums(name, SumsOfRows(**{**SUMS, **change}), answer)

def stored(sums):
    calls.append(sums)
    return 1.0

def only_there(sums):
    # The first call is at the sums themselves, in the sessions of all parties.
    calls[:] = calls or [[*sums]]
    return 1.0 if [*sums] == calls[0] else math.nan

PRODUCTS = ((), ("a",), ("b",), ("b", "a"), ("a", "a"))
slope = made(lambda sums: sums[3] / sums[4], sums=PRODUCTS, factors=(1.0,) * 5)
class OwnError(Exception): pass
def fail(_):
    raise OwnError

raising = made(lambda sums: sums[9])
failing = made(fail)
nan = made(lambda sums: math.nan)
beyond = made(lambda sums: 10**400)
text = made(lambda sums: "1.0")
array = made(lambda sums: np.ones(3))
nothing = made(lambda sums: None)
changing = made(lambda sums: sums.append(1.0))
edge = made(only_there)
other = made(stored, "other")
own = dataclasses.replace(
    made(lambda sums: 1.0), read=fail, check=fail, terms=fail, estimates=fail, groups=False
)
open_ended = made(stored, factors=(1.0, 1.0))
no_function = made(None)
no_sums = statistic_of_sums("ratio", SUMS, stored)
plain = stored
"""


def install_instead(installed: Path, name: str) -> None:
    """Install another package's statistic under the name, in the place of the example's."""
    (installed / "other_statistics.py").write_text(STATISTICS)
    points: dict[str, Mapping[str, str]] = {Group.STATISTICS: {"ratio": f"other_statistics:{name}"}}
    shutil.rmtree(installed / "smpc_dp_example-1.0.dist-info")
    install(installed, points, "breaker")
    extensions.find.cache_clear()


def test_sums_are_of_products_of_values(installed: Path) -> None:
    install_instead(installed, "slope")
    (one,) = released(20, ask="ratio(cost, income)").estimates
    rows = {name: np.concatenate([one[name] for one in tables(20)]) for name in ("cost", "income")}
    cost = np.clip(rows["cost"], 100, 200).astype(float)
    truth = (cost * rows["income"]).sum() / (cost**2).sum()
    assert one.value == pytest.approx(truth, rel=0.01)
    assert one.standard_error is not None
    assert one.standard_error < 0.01 * truth


def test_a_package_that_is_gone_since_the_question_was_read_is_named() -> None:
    with pytest.raises(LocalError, match="the package of the statistic 'ratio' is not installed any more"):
        statistic_of(Asked("ratio(cost, income)", "ratio", ("cost", "income")))


def test_a_statistic_of_sums_has_no_own_functions_but_its_answer(installed: Path) -> None:
    install_instead(installed, "own")
    answers = released(4)
    assert [one.value for one in answers.estimates] == [1.0] * 3


@pytest.mark.parametrize(
    "name", ["raising", "failing", "nan", "beyond", "text", "array", "nothing", "changing"]
)
def test_an_answer_that_is_no_number_is_none(installed: Path, name: str) -> None:
    install_instead(installed, name)
    answers = released(4)
    assert [(one.value, one.low, one.standard_error, one.note) for one in answers.estimates] == [
        (None, None, None, NO_ANSWER)
    ] * 3


def test_an_answer_without_an_error_has_no_interval(installed: Path) -> None:
    """Beside the sums it has no value: no error is known."""
    install_instead(installed, "edge")
    one = released(4, ask="ratio(cost, income)").estimates[0]
    assert (one.value, one.standard_error, one.low, one.high) == (1.0, None, None, None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("other", "is no RecordStatistic with the name 'ratio'"),
        ("plain", "is no RecordStatistic with the name 'ratio'"),
        ("no_sums", "has no SumsOfRows, or no function for its answer"),
        ("no_function", "has no SumsOfRows, or no function for its answer"),
        ("open_ended", "sums.factors must be one number from 1e-06 to 1e+06 for each sum"),
    ],
)
def test_what_is_no_statistic_is_named_with_its_package(installed: Path, name: str, why: str) -> None:
    install_instead(installed, name)
    with pytest.raises(LocalError) as caught:
        describe_statistic("ratio")
    assert str(caught.value) == f"the statistic 'ratio' of breaker {why}"


async def everybody(
    path: Path, versions: Mapping[str, str]
) -> tuple[dict[str, Result | SmpcError], list[object]]:
    """Sum over the parties that are named, each with its version of the example."""

    async def one(name: str) -> Result | SmpcError:
        try:
            async with connect(path, name) as opened:
                return await opened.sum([float(PARTIES.index(name) + 1)])
        except SmpcError as error:
            return error

    serving = asyncio.create_task(serve(path, requests=1))
    result = await asyncio.gather(*map(one, versions))
    return dict(zip(versions, result, strict=True)), list(await serving)


@pytest.mark.usefixtures("installed")
def test_everybody_has_the_sum_of_the_protocol(tmp_path: Path) -> None:
    results, (served,) = asyncio.run(
        everybody(session(tmp_path, "unanimous", SUM), dict.fromkeys(PARTIES, "1.0"))
    )
    for result in (*results.values(), served):
        assert isinstance(result, Result), result
        shown: dict[str, Any] = result.to_json()
        assert shown["value"] == [10.0]
        assert shown["evidence"]["protocol"] == "unanimous"
        assert shown["privacy"]["claim"].startswith("unanimous, over all 4 parties: ")


@pytest.mark.usefixtures("installed")
def test_the_roles_are_the_protocols_own(tmp_path: Path) -> None:
    """A secure sum tolerates one of four that is not there; the example's roles need all."""
    short = Timeouts(connect=4.0, step=10.0, gather=10.0)
    path = session(tmp_path, "unanimous", {**SUM, "dropout": 0.25}, short)
    results, (served,) = asyncio.run(everybody(path, dict.fromkeys(PARTIES[:3], "1.0")))
    assert isinstance(served, TimeoutFault)
    assert served.missing == {"dan"}
    assert all(isinstance(result, SmpcError) for result in results.values())


@pytest.mark.long
def test_parties_with_another_version_are_not_added_up(installed: Path, tmp_path: Path) -> None:
    """Three parties have version 1.0, one has 1.1: nobody is left to be unanimous with."""
    other = tmp_path / "other"
    install_example(other, "1.1")
    path = session(tmp_path, "unanimous", SUM)
    command = [sys.executable, "-m", "smpc_dp", "party", str(path), "--operation", "sum", "--as"]
    aggregator = subprocess.Popen(
        [*command[:5], "--as", "aggregator"],
        env=environment(installed),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    indices = dict.fromkeys(PARTIES, installed) | {"dan": other}
    parties = [
        subprocess.Popen([*command, name], env=environment(index), stderr=subprocess.DEVNULL)
        for name, index in indices.items()
    ]
    _, reported = aggregator.communicate(timeout=300)
    assert [party.wait(timeout=300) for party in parties] == [1, 1, 1, 1]
    assert aggregator.returncode == 1
    assert "dan" in reported
    assert "asks 'sum smpc-dp-example 1.1', the others ask 'sum smpc-dp-example 1.0'" in reported


def unknown(folder: Path, protocol: str, parameters: Mapping[str, object]) -> str:
    """Return the error of a session file with this protocol and these parameters."""
    path = session(folder, "secagg", SUM)
    text = path.read_text().replace('"secagg"', json.dumps(protocol))
    described, written = find_protocol(protocol), session_protocol("secagg").version
    if described is not None:
        text = text.replace(f"version = {written}", f"version = {described.version}")
    head, _, tail = text.partition("[parameters]")
    _, rule, rest = tail.partition("\n[timeouts]")
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in parameters.items())
    path.write_text(f"{head}[parameters]\n{lines}{rule}{rest}")
    with pytest.raises(ConfigError) as caught:
        load_session(path)
    return str(caught.value)


@pytest.mark.usefixtures("installed")
def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    of_others = "; of other packages: {}; other packages register theirs in the entry-point group '{}'"
    reported = unknown(tmp_path / "a", "unanimus", SUM)
    assert "protocol: 'unanimus' is unknown, the known ones are gopa 4" in reported
    assert of_others.format("unanimous", Group.PROTOCOLS) in reported
    reported = unknown(tmp_path / "b", "learn", {**MEAN, "learner": "mean"})
    assert "parameters.learner: unknown: 'mean' (known: sgd, " in reported
    assert of_others.format("private-mean", Group.LEARNERS) in reported
    with pytest.raises(ConfigError, match=r"'nearer' is none of kendall_tau") as caught:
        find_kernel("nearer")
    assert of_others.format("near, within_a_tenth", Group.KERNELS) in str(caught.value)
    with pytest.raises(ConfigError, match="'near' has fields of its own"):
        find_kernel("near", find_kernel("near").fields[0])


def load(group: Group, name: str) -> object:
    if group is Group.PROTOCOLS:
        return find_protocol(name)
    return find_kernel(name) if group is Group.KERNELS else check_learn({"learner": name}, 3)


@pytest.mark.parametrize(
    ("group", "value", "why"),
    [
        (Group.PROTOCOLS, "smpc_dp_example.gone:x", "cannot be loaded (No module named"),
        (
            Group.LEARNERS,
            "smpc_dp_example.learner:Gone",
            "cannot be loaded (module 'smpc_dp_example.learner'",
        ),
        (Group.KERNELS, "broken:x", "cannot be loaded (division by zero)"),
        (Group.PROTOCOLS, "smpc_dp_example.kernel:near", "is no SessionProtocol"),
        (
            Group.LEARNERS,
            "smpc_dp_example.kernel:near",
            "is no frozen msgspec.Struct with the methods issues",
        ),
        (Group.KERNELS, "smpc_dp_example.kernel:near", "is no Kernel with the name 'bad'"),
    ],
)
def test_what_is_broken_is_named_with_its_package(
    installed: Path, group: Group, value: str, why: str
) -> None:
    (installed / "broken.py").write_text("1 / 0\n")
    install(installed, {group: {"bad": value}}, "breaker")
    with pytest.raises(LocalError) as caught:
        load(group, "bad")
    assert str(caught.value).startswith(f"the {group.kind} 'bad' of breaker {why}")


def check_of(protocol: str) -> ParameterChecker:
    return checker_of(protocol, session_protocol(protocol).version)


@pytest.mark.parametrize(
    "written",
    [
        "is_logged=lambda _: True",
        "audited={7: check}",
        "topology=lambda _: 'direct'",
        "task=lambda _: 'learner'",
        "event=lambda _: None",
        "most_corrupt=lambda *_: 0",
        "named=True",
        "party=None",
        "versions=[1]",
        "versions={}",
        "versions={'1': check}",
    ],
)
def test_a_protocol_of_another_package_is_a_sum_through_an_aggregator(installed: Path, written: str) -> None:
    """What it says else would be trusted by audits, ledgers and sessions of other protocols."""
    code = f"""from smpc_dp_example.protocol import aggregator, check, party
from smpc_dp.engine.session_protocol import SessionProtocol
given = {{"name": "other", "versions": {{1: check}}, "party": party, "aggregator": aggregator}}
other = SessionProtocol(**(given | dict({written})))
"""
    (installed / "smpc_dp_other.py").write_text(code)
    install(installed, {Group.PROTOCOLS: {"other": "smpc_dp_other:other"}}, "adder")
    try:
        with pytest.raises(LocalError, match=r"'other' of adder (sets more than|needs) "):
            find_protocol("other")
    finally:
        sys.modules.pop("smpc_dp_other", None)


def test_checked_parameters_have_the_name_of_the_protocol(installed: Path) -> None:
    install(installed, {Group.PROTOCOLS: {"other": "smpc_dp_example.protocol:unanimous"}}, "renamer")
    with pytest.raises(
        LocalError, match="'other' of renamer makes no SumParameters with the protocol 'other'"
    ):
        check_of("other")(SUM, 4)


def test_two_packages_cannot_register_one_name(installed: Path) -> None:
    install(installed, {Group.KERNELS: {"near": "smpc_dp_example.kernel:near"}}, "another")
    with pytest.raises(
        LocalError, match="'near' is registered by several packages: another, smpc-dp-example"
    ):
        find_kernel("near")


def test_nobody_replaces_what_is_here(installed: Path) -> None:
    kernel = "smpc_dp_example.kernel:near"
    ours: dict[str, Mapping[str, str]] = {Group.KERNELS: {"gini": kernel, "variance": kernel}}
    ours |= {Group.LEARNERS: {"sgd": kernel}, Group.PROTOCOLS: dict.fromkeys(sorted(RESERVED), kernel)}
    install(installed, ours, "thief")
    assert find_kernel("kendall_tau").name == "kendall_tau"
    with pytest.raises(ConfigError, match="'variance' needs the bounds of its values"):
        find_kernel("variance")
    with pytest.raises(ConfigError, match="'gini_mean_difference' needs the bounds of its values"):
        find_kernel("gini")
    _, faults = check_learn({"learner": "sgd"}, 3)
    assert "steps" in {fault.where for fault in faults}
    assert statistic.PROTOCOL in RESERVED
    assert all(
        (protocol := find_protocol(name)) is None or protocol in built_in_protocols() for name in RESERVED
    )
