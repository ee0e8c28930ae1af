"""What `roster` says of a session: losses and corrupt parties that it tolerates, and who checks the total."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.session.local import create_local_session

NAMES = tuple(f"p{number}" for number in range(1, 11))
SUM: dict[str, object] = {"length": 1, "lower": 0.0, "upper": 1.0}
PRIVATE = {**SUM, "epsilon": 2.0, "delta": 1e-6}
SGD: dict[str, object] = {"learner": "sgd", "features": 2, "steps": 3, "epsilon": 5.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("protocol", "parties", "parameters", "lines"),
    [
        (
            "secagg",
            5,
            {**SUM, "precision": 0.5},
            ["tolerates 1 lost, 1 corrupt of 5 parties, quorum 4; after the first request 0 lost"],
        ),
        (
            "secagg",
            5,
            {**SUM, "precision": 0.5, "same_survivors": False, "dropout": 0.2},
            ["tolerates 1 lost, 1 corrupt of 5 parties, quorum 4"],
        ),
        (
            "secagg",
            5,
            {**SUM, "precision": 0.5, "corrupt": 0.0},
            ["tolerates 1 lost, 0 corrupt of 5 parties, quorum 3; after the first request 0 lost"],
        ),
        ("secagg", 10, {**PRIVATE, "corrupt": 0.2}, ["tolerates 1 lost, 2 corrupt of 10 parties, quorum 7"]),
        ("gopa", 4, PRIVATE, ["tolerates 0 lost, 1 corrupt of 4 parties, quorum 3"]),
        (
            "gopa",
            5,
            {**PRIVATE, "topology": "direct"},
            ["tolerates 1 lost, 1 corrupt of 5 parties, quorum 4"],
        ),
        ("gopa", 5, {**PRIVATE, "verifiable": True}, ["tolerates 1 lost, 1 corrupt of 5 parties, quorum 4"]),
        (
            "mpyc",
            5,
            {**SUM, "precision": 0.5, "epsilon": 1.0},
            ["tolerates 1 lost, 5 corrupt of 5 parties; 1 curious of 3 servers, none lost"],
        ),
        (
            "learn",
            10,
            SGD | {"averager": {"missing": 2, "colluders": 3}},
            ["tolerates 2 lost, 3 corrupt of 10 parties, quorum 7"],
        ),
    ],
)
def test_roster_says_what_a_request_tolerates(
    tmp_path: Path, protocol: str, parties: int, parameters: dict[str, object], lines: list[str]
) -> None:
    path = create_local_session(tmp_path, NAMES[:parties], parameters, protocol=protocol)
    shown = CliRunner().invoke(app, ["roster", str(path)]).stdout.splitlines()
    assert [line for line in shown if line.startswith("tolerates")] == lines
    reported = json.loads(CliRunner().invoke(app, ["roster", str(path), "--json"]).stdout)["tolerates"]
    assert [[one["lost"], one["parties"], one["later"]] for one in reported] == [
        [int(line.split()[1]), parties, 0 if "after the first" in line else int(line.split()[1])]
        for line in lines
    ]


@pytest.mark.parametrize("command", ["roster", "plan session"])
def test_an_earlier_version_is_said_to_have_earlier_defaults(tmp_path: Path, command: str) -> None:
    path = create_local_session(tmp_path, NAMES[:5], {**SUM, "precision": 0.5})

    def shown() -> str:
        return " ".join(CliRunner().invoke(app, [*command.split(), str(path)]).stdout.split())

    assert "1 corrupt of 5 parties, quorum 4" in shown()
    assert "earlier release" not in shown()
    path.write_text(path.read_text("utf-8").replace("version = 3", "version = 2"), "utf-8")
    assert "tolerates 1 lost, 0 corrupt of 5 parties, quorum 3; after the first request 0 lost" in shown()
    said = "Version 2 of 'secagg' has the defaults of an earlier release; those of this one are of version 3"
    assert said in shown()


EXACT = {**SUM, "precision": 0.5}
CHECKED = "each party checks it against commitments to all vectors, with"
WORD = "the aggregator's word: it may report any total within the bounds"


@pytest.mark.parametrize(
    ("protocol", "parameters", "lines"),
    [
        ("secagg", EXACT, [f"total: {CHECKED}"]),
        ("secagg", EXACT | {"total": "unchecked"}, [f"total: {WORD}"]),
        ("gopa", PRIVATE, [f"total: {WORD}"]),
        ("gopa", PRIVATE | {"on_dropout": "roll-back"}, [f"total: {CHECKED}"]),
        ("gopa", PRIVATE | {"topology": "direct"}, ["total: each party adds it up itself"]),
        ("gopa", PRIVATE | {"verifiable": True}, ["total: each party adds up what all have published"]),
        ("learn", SGD, [f"Total over 5 parties: {CHECKED}"]),
        ("learn", SGD | {"averager": {"total": "unchecked"}}, [f"Total over 5 parties: {WORD}"]),
    ],
)
def test_roster_says_who_checks_the_total(
    tmp_path: Path, protocol: str, parameters: dict[str, object], lines: list[str]
) -> None:
    path = create_local_session(tmp_path, NAMES[:5], parameters, protocol=protocol)
    shown = CliRunner().invoke(app, ["roster", str(path)]).stdout.splitlines()
    said = [line for line in shown if line.lower().startswith("total")]
    assert [line[: len(expected)] for line, expected in zip(said, lines, strict=True)] == lines


@pytest.mark.parametrize(
    ("arguments", "lost"), [([], 1), (["--dropout", "0.0"], 0), (["--dropout", "0.19"], 0)]
)
def test_the_plan_has_the_default_of_sessions(arguments: list[str], lost: int) -> None:
    planned = CliRunner().invoke(
        app, ["plan", "secagg", "--parties", "5", "--json", "--corrupt", "0", *arguments]
    )
    assert json.loads(planned.stdout)["max_dropouts"] == lost


def test_the_plan_of_exact_sums_says_that_later_ones_withstand_no_loss() -> None:
    shown = CliRunner().invoke(app, ["plan", "secagg", "--parties", "5"]).stdout
    text = " ".join(shown.replace("│", " ").split())
    assert "dropouts 1 at most; the run stops below 4 survivors; in a session's first exact sum" in text
