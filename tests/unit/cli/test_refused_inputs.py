"""`--report` of commands whose input is refused: the page says why, and nothing was sent."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.errors import LocalError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.host import HostMember
from smpc_dp.session.local import create_local_session
from tests.command import smpc_dp
from tests.pages import Page

PARTIES = ("alice", "bob", "carol")
SUMS: dict[str, Any] = {
    "length": 1,
    "lower": 0.0,
    "upper": 1.0,
    "precision": 0.5,
    "dropout": 0.0,
    "corrupt": 0.0,
}
RECORDS: dict[str, Any] = {
    "epsilon": 4.0,
    "delta": 1e-6,
    "ask": ["mean(age)"],
    "dropout": 0.0,
    "corrupt": 0.0,
    "records": {"max_rows": 20, "rows_expected": 40, "columns": {"age": {"lower": 0.0, "upper": 100.0}}},
}


def written(folder: Path, parameters: dict[str, Any], suffix: str, right: str, wrong: str) -> Path:
    path = create_local_session(folder, PARTIES, parameters)
    (folder / "inputs").mkdir()
    for name in PARTIES:
        (folder / "inputs" / f"{name}.{suffix}").write_text(wrong if name == "bob" else right)
    return path


@pytest.mark.parametrize("command", [("run",), ("party", "--as", "bob")])
def test_a_refused_vector_is_in_the_report(command: tuple[str, ...], tmp_path: Path) -> None:
    path = written(tmp_path, SUMS, "json", json.dumps([0.5]), json.dumps([7.5]))
    name, *options = command
    done = smpc_dp(name, str(path), *options, "--report", str(tmp_path / "report.html"))
    assert (done.returncode, done.stdout) == (1, "")
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    refused = done.stderr.removeprefix("smpc-dp: ").strip()
    assert refused.startswith("bob: ")
    assert f"The run failed: {refused}" in page.text
    # Nobody has compared a digest, and no role has seen anything.
    assert "have compared it" not in page.text
    assert "What each role" not in page.text


@pytest.mark.parametrize("command", ["run", "statistics", "party"])
def test_a_refused_table_is_in_the_report(command: str, tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS, "csv", "age\n40\n", "weight\n70\n")
    own = [] if command == "run" else ["--as", "bob"]
    done = smpc_dp(command, str(path), *own, "--report", str(tmp_path / "report.html"))
    assert done.returncode == 1
    assert "the table has no column 'age'" in done.stderr
    assert "the table has no column 'age'" in Page((tmp_path / "report.html").read_text("utf-8")).text


@pytest.mark.parametrize("command", [("run", "--ledgers"), ("party", "--as", "bob", "--ledger")])
def test_a_ledger_that_cannot_be_read_is_in_the_report_and_named_once(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = written(tmp_path, {**SUMS, "epsilon": 1.0, "delta": 1e-6}, "json", "[0.5]", "[0.5]")
    name, *options = command
    where = tmp_path / "ledgers" / "bob.ledger"
    where.parent.mkdir()
    for party in PARTIES:
        Ledger.create(
            where.with_name(f"{party}.ledger"),
            party=party,
            dataset="d",
            relation="substitution",
            epsilon=2.0,
            delta=1e-6,
        )
    where.write_text("damaged")
    given = str(where.parent if name == "run" else where)
    done = smpc_dp(name, str(path), *options, given, "--report", str(tmp_path / "report.html"))
    assert done.returncode == 1
    assert done.stderr.count("damaged, and left as it is") == 1
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert "The run failed: " in page.text
    assert f"A ledger that cannot be read is not in this section: {where}: damaged" in page.text
    # Those of others are.
    assert (page.cells.count("carol") == 1) == (name == "run")


def test_a_report_that_cannot_be_written_does_not_hide_the_refusal(tmp_path: Path) -> None:
    path = written(tmp_path, SUMS, "json", json.dumps([0.5]), json.dumps([7.5]))
    report = tmp_path / "report.html"

    def gone(*_: object, **__: object) -> None:
        raise LocalError(f"{report}: cannot write the report (No space left on device)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smpc_dp.cli.run_report.write_run_report", gone)
        done = smpc_dp("run", str(path), "--report", str(report))
    first, second = done.stderr.splitlines()
    assert "cannot write the report" in first
    assert second.startswith("smpc-dp: bob: ")
    assert done.returncode == 1


def test_the_report_of_a_party_is_for_parties(tmp_path: Path) -> None:
    path = written(tmp_path, SUMS, "json", json.dumps([0.5]), json.dumps([0.5]))
    done = smpc_dp("party", str(path), "--as", "aggregator", "--report", str(tmp_path / "report.html"))
    assert done.returncode == 2
    assert "--report is for parties" in done.stderr


@pytest.mark.parametrize("number", [None, 2])
def test_the_command_of_a_party_asks_for_the_request_of_its_number(
    number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, SUMS, "json", json.dumps([0.5]), json.dumps([0.5]))
    asked: list[int | None] = []

    class Opened:
        async def sum_encoded(self, *_: object, number: int | None) -> None:
            asked.append(number)
            raise LocalError("enough is known")

    monkeypatch.setattr(HostMember, "connect", lambda _: contextlib.nullcontext(Opened()))
    given = [] if number is None else ["--number", str(number)]
    done = CliRunner().invoke(app, ["party", str(path), "--as", "alice", *given])
    assert done.exit_code == 1
    assert asked == [number]
