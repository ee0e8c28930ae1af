"""What commands ask the task of a session."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.cli.run import _report as report_run
from smpc_dp.cli.run_report import asked_section
from smpc_dp.errors import LocalError
from smpc_dp.report.document import Sentences
from smpc_dp.report.roles import VIEWS
from smpc_dp.session import tasks
from smpc_dp.session.local import create_local_session
from smpc_dp.session.planned import session_plan
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.session.tasks import find_task, task_of
from tests.baselines.claims import BITS, FITTED, FORMS, RECORDS, SUM, UNCHECKED, checked

PARTIES = ("alice", "bob", "carol")
BOB, AGGREGATOR = ("party", "--as", "bob"), ("party", "--as", "aggregator")
COUNT = RECORDS | {"ask": ["count"]}
GOPA = {key: value for key, value in SUM.items() if key != "precision"} | {"epsilon": 1.0, "delta": 1e-3}
LEARNER: dict[str, Any] = {
    "learner": "ring-sum",
    "rounds": 1,
    "lower": 0,
    "upper": 1,
    "epsilon": 9.0,
    "delta": 1e-3,
}
NAMES = ("ann", "bob", "cas", "dan", "eve", "fay", "gus")
GROUPS: dict[str, Any] = {"learner": "dual-averaging-groups", "features": 2, "steps": 2, "group": 3}
GROUPS |= {"seed": 2, "rate": 2.0, "epsilon": 8.0, "delta": 1e-5}
REPORTS: dict[str, Any] = {
    "kernel": "gini",
    "fields": [{"lower": 0, "upper": 5, "exact": True}],
    "epsilon": 1.0,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "vector": ("secagg", SUM),
    "records": ("secagg", COUNT),
    "learner": ("learn", LEARNER),
    "report": ("reports", REPORTS),
}


def session_of(folder: Path, kind: str) -> Path:
    protocol, parameters = KINDS[kind]
    return create_local_session(folder, PARTIES, parameters, protocol=protocol)


@pytest.mark.parametrize(
    ("protocol", "parameters", "view"),
    [
        ("secagg", SUM | UNCHECKED, "secagg"),
        ("secagg", BITS | UNCHECKED, "secagg-noisy"),
        ("secagg", SUM, "secagg-checked"),
        ("secagg", BITS, "secagg-noisy-checked"),
        ("secagg", COUNT | UNCHECKED, "records"),
        ("secagg", FITTED | UNCHECKED, "records"),
        ("secagg", COUNT, "records-checked"),
        ("secagg", FITTED, "records-checked"),
        ("secagg", FITTED | {"epsilon": 1.0, "delta": 1e-6}, "records-checked"),
        ("gopa", GOPA, "gopa-keep"),
        ("gopa", GOPA | {"on_dropout": "roll-back"} | UNCHECKED, "gopa-roll-back"),
        ("gopa", GOPA | {"on_dropout": "roll-back"}, "gopa-roll-back-checked"),
        ("gopa", GOPA | FORMS["direct"], "gopa-direct"),
        ("gopa", GOPA | FORMS["verifiable"] | {"length": 1, "epsilon": 8.0}, "verifiable"),
        ("gopa", COUNT, "gopa-records"),
        ("gopa", COUNT | FORMS["direct"], "gopa-direct-records"),
        ("gopa", COUNT | FORMS["verifiable"], "verifiable-records"),
        ("mpyc", SUM, "servers"),
        ("mpyc", COUNT, "servers"),
    ],
)
def test_parameters_name_what_members_see(protocol: str, parameters: dict[str, Any], view: str) -> None:
    assert view in VIEWS
    assert checked(protocol, parameters, 6).view == view


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "Total over 3 parties: each party checks it against commitments to all vectors"),
        (UNCHECKED, "Total over 3 parties: the aggregator's word: it may report any total within the bounds"),
        (
            {"length": 100_001},
            "Total over 3 parties: the aggregator's word: it may report any total within the bounds",
        ),
    ],
)
def test_a_report_says_whose_word_the_total_is(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    session = load_session(create_local_session(tmp_path, PARTIES, SUM | more))
    [asked] = asked_section(session, compared=True)
    [*_, total] = next(one.texts for one in asked.blocks if isinstance(one, Sentences))
    assert total.startswith(said)
    plan = session_plan(session)
    assert plan is not None
    assert f"Total over 3 parties: {plan.notes[0].removeprefix('total: ')}." == total


@pytest.mark.parametrize(("version", "notes"), [(3, []), (2, ["Version 2 of 'secagg' has the defaults of"])])
def test_a_report_says_that_a_session_has_earlier_defaults(
    version: int, notes: list[str], tmp_path: Path
) -> None:
    path = create_local_session(tmp_path, PARTIES, SUM)
    path.write_text(path.read_text("utf-8").replace("version = 3", f"version = {version}"), "utf-8")
    [asked] = asked_section(load_session(path), compared=True)
    texts = next(one.texts for one in asked.blocks if isinstance(one, Sentences))
    assert [text.partition(" an earlier")[0] for text in texts if text.startswith("Version")] == notes


def test_a_report_says_it_of_the_groups_of_a_learner(tmp_path: Path) -> None:
    session = load_session(create_local_session(tmp_path, NAMES, GROUPS, protocol="learn"))
    [asked] = asked_section(session, compared=True)
    texts = next(one.texts for one in asked.blocks if isinstance(one, Sentences))
    said = {text.partition(",")[0] for text in texts if text.startswith("Total")}
    assert said == {"Total over 3 parties: each party checks it against commitments to all vectors"}


def test_a_report_says_who_makes_a_total_that_nobody_reports(tmp_path: Path) -> None:
    given = {"topology": "direct"} | GOPA
    session = load_session(create_local_session(tmp_path, PARTIES, given, protocol="gopa"))
    [asked] = asked_section(session, compared=True)
    texts = next(one.texts for one in asked.blocks if isinstance(one, Sentences))
    assert [text for text in texts if text.startswith("Total")] == [
        f"Total over {len(PARTIES)} parties: each party adds it up itself."
    ]


def test_what_members_see_of_the_protocol_of_another_package_is_not_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its parameters inherit from those of a protocol of this package."""
    session = load_session(session_of(tmp_path, "vector"))
    assert task_of(session).views(session) == ["secagg-checked"]
    monkeypatch.setattr(tasks, "origin_of", lambda _: "other 1.0")
    assert task_of(session).views(session) == []


@pytest.mark.parametrize(
    ("kind", "arguments", "refusal"),
    [
        ("vector", ("run", "--labels", "l"), "--labels: is for --statistic"),
        ("vector", (*AGGREGATOR, "--requests", "0", "--out", "o"), "--out has no result of an aggregator"),
        ("records", ("run", "--operation", "sum"), "--operation: is not for statistics of records"),
        ("records", ("run", "--statistic", "gini"), "--statistic: is not for statistics of records"),
        ("records", (*BOB, "--audit", "a"), "--audit is not for statistics of records"),
        ("learner", ("run", "--weights", "w"), "--weights: is not for a session that learns"),
        ("learner", ("run", "--labels", "l"), "--labels: is not for a session that learns"),
        ("learner", (*BOB, "--clip"), "--clip is not for a session that learns"),
        ("learner", (*AGGREGATOR, "--requests", "2"), "--requests is not for a session that learns"),
        ("report", ("run", "--report", "r.html"), "--report: is not for a session of reports"),
        ("report", ("run",), "--ledgers: reports need one of each party"),
        ("report", (*BOB, "--number", "2"), "--number is not for a session of reports"),
        ("report", (*BOB, "--audit", "a"), "--audit is not for a session of reports"),
        # A statistic of pairs of records of their own is beside statistics of tables.
        ("records", (*BOB, "--statistic", "kendall_tau", "--epsilon", "1"), "no input file"),
    ],
)
def test_options_of_other_tasks_are_refused(
    kind: str, arguments: tuple[str, ...], refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *options = arguments
    done = CliRunner().invoke(app, [command, str(session_of(tmp_path, kind)), *options])
    assert done.exit_code in (1, 2)
    assert refusal in " ".join(done.output.replace("│", " ").split()) or refusal in str(done.exception)


@pytest.mark.parametrize(
    ("kind", "key"),
    [("vector", "fixed_point"), ("records", "estimates"), ("pairs", "value"), ("pairs", "evidence")],
)
def test_results_that_differ_are_no_result(kind: str, key: str) -> None:
    task = find_task(kind)
    same: dict[str, Any] = dict.fromkeys(task.agreed, 1)
    with pytest.raises(LocalError, match="differing results"):
        report_run(task, {}, None, {"alice": same, "bob": same | {key: 2}}, [], True, None)


def test_who_ends_a_run_and_who_has_a_result(tmp_path: Path) -> None:
    for kind, writers in (("vector", [*PARTIES]), ("learner", [*PARTIES]), ("report", ["aggregator"])):
        (tmp_path / kind).mkdir()
        session = load_session(session_of(tmp_path / kind, kind))
        task = task_of(session)
        assert (task.name, task.ends_run(session), task.members_with_result(session)) == (
            kind,
            "aggregator",
            writers,
        )


def test_servers_end_the_run_of_learners_on_shares() -> None:
    servers = [SimpleNamespace(name="s1"), SimpleNamespace(name="s2")]
    session = cast("SessionFile", SimpleNamespace(roster=SimpleNamespace(servers=servers, aggregator=None)))
    assert find_task("learner").ends_run(session) == "s1"
    assert find_task("vector").ends_run(session) is None


@pytest.mark.parametrize(
    ("kind", "topology", "is_logged", "has_log"),
    [
        ("pairs", "aggregator", True, True),
        ("pairs", "aggregator", False, True),
        ("pairs", "servers", True, False),
        ("vector", "aggregator", True, True),
        ("vector", "aggregator", False, False),
        ("learner", "aggregator", True, False),
    ],
)
def test_which_runs_leave_one_log(kind: str, topology: str, is_logged: bool, has_log: bool) -> None:
    session = cast("SessionFile", SimpleNamespace(topology=topology, is_logged=is_logged))
    assert find_task(kind).has_log(session) is has_log


def test_a_task_says_by_itself_which_requests_a_session_has() -> None:
    session = cast("SessionFile", SimpleNamespace(protocol="other"))
    assert "'other' has no such requests" in str(find_task("vector").error_of_other_request(session))
    assert "is 'other', which has no such requests" in str(
        find_task("vector").error_in_other_session(session)
    )


def test_a_release_that_cannot_be_audited_is_refused(tmp_path: Path) -> None:
    for kind in ("vector", "report"):
        (tmp_path / kind).mkdir()
        path = session_of(tmp_path / kind, kind)
        done = CliRunner().invoke(app, ["plan", "check", "--session", str(path)])
        assert "asks no statistics of records of parties that add noise" in str(done.exception)


def test_results_are_printed_by_their_task() -> None:
    sent = {"party": "bob", "analyst": "eve", "again": True, "clipped": 2}
    privacy = {"claim": "private", "not_protected": []}
    lines = find_task("report").text({"bob": json.loads(json.dumps(sent | {"privacy": privacy}))})
    assert lines.splitlines() == [
        "report of bob to eve: sent again, byte for byte",
        "clipped: 2 values of bob",
        "privacy: private",
    ]
