"""`--report` of commands that start processes: the page has what the command printed, and more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smpc_dp.cli.reporting import add_event
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.report.document import MOST_BYTES
from smpc_dp.report.roles import VIEWS
from smpc_dp.report.sections import written
from smpc_dp.report.trace import Trace
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.accessibility import check_accessible
from tests.command import smpc_dp
from tests.pages import Page

PARTIES = ("alice", "bob", "carol", "dave", "erin")
NOISY: dict[str, object] = {"length": 2, "lower": 0.0, "upper": 1.0, "epsilon": 3.0, "delta": 1e-6}


def read(path: Path) -> Page:
    html = path.read_text("utf-8")
    assert len(html.encode()) < MOST_BYTES
    page = Page(html)
    assert page.faults == page.loads == []
    return page


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = create_local_session(tmp_path, PARTIES, NOISY, timeouts=Timeouts(connect=20.0, step=20.0))
    (tmp_path / "inputs").mkdir()
    (tmp_path / "ledgers").mkdir()
    for name in PARTIES:
        (tmp_path / "inputs" / f"{name}.json").write_text("[0.25, 0.75]")
        create_ledger(path, name, 9.0)
    return path


def create_ledger(session: Path, name: str, epsilon: float) -> None:
    file = session.parent / "ledgers" / f"{name}.ledger"
    file.unlink(missing_ok=True)
    Ledger.create(
        file, party=name, dataset="<b>rows</b>", relation="substitution", epsilon=epsilon, delta=1e-5
    )


def spent(session: Path) -> list[int]:
    return [
        len(Ledger.open(session.parent / "ledgers" / f"{name}.ledger", party=name).entries())
        for name in PARTIES
    ]


def run(session: Path, report: Path, *more: str) -> tuple[int, str, str]:
    ledgers = str(session.parent / "ledgers")
    done = smpc_dp("run", str(session), "--ledgers", ledgers, "--report", str(report), *more)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long
def test_a_run_with_noise_is_reported_with_intervals_ledgers_and_traffic(
    session: Path, subtests: pytest.Subtests
) -> None:
    code, printed, errors = run(session, session.parent / "r.html", "--json")
    assert code == 0, errors
    result = json.loads(printed)
    page = read(session.parent / "r.html")
    with subtests.test("accessible"):
        check_accessible(session.parent / "r.html")
    for value in result["value"]:
        digits = f"{result['standard_error']:.1e}"
        assert any(abs(float(cell) - value) <= 10 ** int(digits[-3:]) for cell in page.cells if number(cell))
    receipt = result["privacy"]["receipt"]
    assert f"{receipt['spent']['epsilon']:.6g}" in page.cells
    assert f"{9.0 - receipt['spent']['epsilon']:.6g}" in page.cells
    assert page.cells.count("<b>rows</b>") == len(PARTIES)
    assert all(line in page.text for line in result["privacy"]["not_protected"])
    assert result["privacy"]["claim"] in page.text
    assert result["evidence"]["run_id"] in page.cells
    assert "survivors-certificate" in page.cells
    # A row of seconds, of bytes and of the ledger for each.
    assert all(page.cells.count(name) == 3 for name in PARTIES)


def number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.long
def test_a_run_that_fails_is_reported_with_the_reason(session: Path) -> None:
    for name in PARTIES[:3]:
        create_ledger(session, name, 0.125)
    code, _, errors = run(session, session.parent / "r.html")
    assert code == 1
    assert "alice" in errors
    page = read(session.parent / "r.html")
    assert "The run failed" in page.text
    assert "Why there is no result" in page.text
    assert any("alice" in cell and "0.125" in cell for cell in page.cells)
    # Nothing is said of a result that is not there; what each ledger has left is.
    assert "Nobody is missing" not in page.text
    assert "This run failed: each role saw at most" in page.text
    assert page.cells.count("<b>rows</b>") == len(PARTIES)


@pytest.mark.parametrize("name", ["session.toml", "keys/alice.key", "ledgers/alice.ledger", "page.html"])
def test_a_file_that_is_no_report_is_not_overwritten(session: Path, name: str) -> None:
    (session.parent / "page.html").write_text("<!DOCTYPE html>\n<p>mine")
    before = (session.parent / name).read_bytes()
    code, printed, errors = run(session, session.parent / name)
    assert (code, printed) == (1, "")
    assert "the file exists, and is no report of smpc-dp" in errors
    assert (session.parent / name).read_bytes() == before
    assert spent(session) == [0] * len(PARTIES)


def test_the_end_of_a_process_is_reported_by_the_command() -> None:
    trace = Trace()
    add_event(trace, Event("bob", "ended", step="done", detail="killed (SIGKILL)"))
    add_event(trace, Event("carol", "failed", step="masked", code="timeout"))
    shown = [(loss.step, loss.text, loss.reporter) for loss in trace.losses]
    assert shown == [
        ("", "bob: killed (SIGKILL)", "this command"),
        ("masked", "carol: failed with code timeout", "carol"),
    ]


def test_nested_parameters_are_written_with_brackets() -> None:
    columns = {"age": {"lower": 18, "upper": 90}, "sex": {"values": ["f", "m"]}}
    text = written({"unit": "record", "columns": columns})
    assert text == "unit = record; columns = {age = {lower = 18; upper = 90}; sex = {values = [f, m]}}"


@pytest.mark.parametrize(
    "more", [(), ("--method", "gopa", "--epsilon", "2", "--delta", "1e-5")], ids=["exact", "gopa"]
)
def test_a_simulation_is_reported_with_its_losses(
    tmp_path: Path, more: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    options = ["--parties", "12", "--length", "3", "--dropout", "0.09", "--seed-for-simulation", "4", *more]
    done = smpc_dp("simulate", "average", *options, "--report", str(tmp_path / "r.html"), "--json")
    assert done.returncode == 0, done.stderr
    page = read(tmp_path / "r.html")
    with subtests.test("accessible"):
        check_accessible(tmp_path / "r.html")
    assert json.loads(done.stdout)["survivors"] == 11
    assert "11 of 12" in page.text
    assert any("killed before it sent" in cell for cell in page.cells)
    # In the times, and in the traffic.
    assert page.cells.count("party-00001") == 2
    assert ("circle" in [tag for tag, _ in page.tags]) is bool(more)
    # No network was there, and settings of GOPA are of GOPA alone.
    assert "the network" not in page.cells
    assert ("on_dropout" in page.cells) is bool(more)
    # By default each party checks a sum, for which the aggregator sees commitments; not where noise is kept.
    assert VIEWS["gopa-keep" if more else "secagg-checked"][0].saw in page.cells


@pytest.mark.parametrize(
    "command",
    [
        ("demo",),
        ("simulate", "average"),
        ("audit", "board.jsonl"),
        ("statistics", "session.toml", "--as", "alice"),
    ],
)
def test_each_command_refuses_a_report_that_cannot_be_written_first(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = smpc_dp(*command, "--report", str(tmp_path / "no" / "r.html"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "cannot write the report" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["no/such/r.html", ".", "keys/alice.key/r.html"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(session: Path, path: str) -> None:
    code, printed, errors = run(session, session.parent / path)
    assert (code, printed) == (1, "")
    assert "cannot write the report" in errors
    assert "connected" not in errors
    assert spent(session) == [0] * len(PARTIES)
