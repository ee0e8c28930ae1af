"""Schemas are the stored ones, and others than these fail; test_printed.py validates what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer.main
from jsonschema import Draft202012Validator

from smpc_dp.capabilities.reports.reports import ReportedEstimate, SentReport
from smpc_dp.capabilities.servers.secret_sharing.agreement import Opened
from smpc_dp.cli import app
from smpc_dp.cli.commands import COMMANDS
from smpc_dp.console.schemas import SCHEMA, SCHEMA_VERSION, SCHEMAS, meanings, schema_of
from smpc_dp.engine.result import Certificate, Privacy
from tests.baselines import printed, schemas
from tests.baselines.schemas import faults, faults_of_result
from tests.command import smpc_dp

# Results that no case has, made by hand or by a simulation.
PRIVACY = Privacy(1.0, 0.0, "claim", ("assumed",), ("not protected",))
CERTIFICATE = Certificate(bytes(32), {"ann": bytes(64)})


def sent(_: Path) -> Any:
    return SentReport("ann", "hub", "00", "11", again=False, clipped=0, privacy=PRIVACY)


def estimated(folder: Path) -> Any:
    return ReportedEstimate(printed.RESULTS["local pairwise"](folder), ("ann",), (), ())


def opened(_: Path) -> Any:
    terms = cast("Any", SimpleNamespace(kind="sum"))
    return Opened(terms, bytes(32), (1, 2), ("ann",), ("ann",), (), CERTIFICATE, CERTIFICATE)


OTHERS = {"a report that was sent": sent, "an estimate from reports": estimated, "of servers": opened}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("printed")
    printed.write_files(result)
    return result


def with_json(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the words of each command of this package that has `--json`."""
    for word, inner in getattr(command, "commands", {}).items():
        if words or word in COMMANDS:
            yield from with_json(inner, (*words, word))
    if any("--json" in parameter.opts for parameter in command.params):
        yield " ".join(words)


def test_every_command_with_json_has_a_case() -> None:
    cases = {*printed.COMMANDS.values()}
    # Members of a session, which `run` starts.
    started = {"party", "statistics"}
    missing = [
        words
        for words in with_json(typer.main.get_command(app))
        if words not in started and not any(f"{case} ".startswith(f"{words} ") for case in cases)
    ]
    assert missing == []


def test_every_schema_is_that_of_a_case() -> None:
    stored: Mapping[str, Any] = json.loads(printed.FILE.read_text("utf-8"))
    commands = [case["printed"] for case in stored["commands"].values() if "printed" in case]
    assert all("schema" in one for one in commands)
    assert all(one["schema_version"] == SCHEMAS[one["schema"]].version for one in commands)
    results = {"pairwise", "learned", "report-sent", "report-estimate", "report-names", "opened"}
    # Those of tests/processes/test_demo_verifiable.py, and of a test below.
    results |= {"demo-verifiable", "verify-log", "verify-result"}
    assert {one["schema"] for one in commands} | results == {*SCHEMAS}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_and_the_stored_one(name: str) -> None:
    Draft202012Validator.check_schema(schema_of(name))
    assert schema_of(name) == json.loads(schemas.FILE.read_text("utf-8"))[name]
    assert json.loads(smpc_dp("schema", name).stdout) == schema_of(name)


# Of those verify/README.md, other schemas and the specifications have the meaning.
UNEXPLAINED = {
    *("learned-by-party", "opened", "demo-verifiable"),
    *("report-sent", "report-estimate", "report-names", "verify-log", "verify-result"),
}


def test_a_schema_says_what_each_key_means() -> None:
    assert {*meanings()} == {*SCHEMAS} - UNEXPLAINED | {"common"}
    silent = {
        f"{name}: {key}"
        for name in {*SCHEMAS} - UNEXPLAINED
        for key, field in schema_of(name)["properties"].items()
        if key not in (SCHEMA, SCHEMA_VERSION) and not field.get("description")
    }
    assert silent == set()


def test_the_meaning_of_a_key_that_is_not_printed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    surplus = {**meanings(), "keygen": {"surplus": "nothing"}}
    monkeypatch.setattr("smpc_dp.console.schemas.meanings", lambda: surplus)
    with pytest.raises(KeyError, match="surplus"):
        schema_of("keygen")


@pytest.mark.parametrize("name", OTHERS)
def test_a_result_of_other_members_is_what_its_schema_says(name: str, folder: Path) -> None:
    assert faults_of_result(OTHERS[name](folder)) == []


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        pytest.param("verify-log", "request-1.jsonl", marks=[pytest.mark.long]),
        ("verify-log", "changed.jsonl"),
        ("verify-result", f"checked.json --session checked.toml --run {printed.CHECKED['run']}"),
        ("verify-result", "second.json --compare checked.json --session checked.toml"),
    ],
)
def test_the_second_auditor_prints_what_its_schema_says(schema: str, arguments: str, folder: Path) -> None:
    command = [sys.executable, "-m", "smpc_dp_verify", *arguments.split(), "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    value = json.loads(done.stdout)
    assert value["code"] == done.returncode
    assert (value["schema"], faults(value)) == (schema, [])


def test_a_schema_refuses_another_version_a_missing_key_and_another_kind(folder: Path) -> None:
    value = json.loads(printed.ran("plan budget", folder).stdout)
    assert faults(value) == []
    for change in ({"schema_version": 2}, {"noise": "much"}, {"surplus": 1}):
        assert len(faults(value | change)) == 1
    assert len(faults({key: one for key, one in value.items() if key != "mu"})) == 1


def test_a_schema_permits_further_keys_of_a_later_release(folder: Path) -> None:
    value = json.loads(printed.ran("plan budget", folder).stdout) | {"added": 1}
    assert Draft202012Validator(schema_of("plan-budget")).is_valid(value)


def test_an_unknown_schema_is_refused_by_name() -> None:
    done = smpc_dp("schema", "plan")
    assert done.returncode == 1
    assert done.stderr.startswith("smpc-dp: NAME: 'plan' is none of average, statistics, ")
    assert "plan-budget" in smpc_dp("schema").stdout
