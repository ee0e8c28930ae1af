"""What the library logs: by one logger for each package, shown only if a program wants it, in whole lines."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.cli.logs import LineFormatter, shown_logs
from smpc_dp.privacy.accountant.events import exact_release
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event, with_logging
from smpc_dp.session.local import create_local_session

PACKAGE = Path(__file__).resolve().parents[3] / "smpc_dp"


def test_each_logger_is_that_of_its_package() -> None:
    result: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        folders = file.relative_to(PACKAGE).parts[:-1]
        expected = ".".join(["smpc_dp", *folders[: 2 if "capabilities" in folders else 1]])
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "getLogger" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger" and node.args:
                name = ast.literal_eval(node.args[0])
                result.setdefault(name, set()).add(expected)
    # The command line shows what all packages log.
    assert result.pop("smpc_dp") == {"smpc_dp", "smpc_dp.cli"}
    # A node's operator reads Flower's own logger.
    assert result.pop("flwr") == {"smpc_dp.integrations"}
    assert set(result) >= {
        f"smpc_dp.{name}"
        for name in ("capabilities.pairs", "identity", "logs", "privacy", "session", "transport")
    }
    assert result == {name: {name} for name in result}


@pytest.mark.parametrize(
    ("configured", "shown"), [("", ""), ("logging.basicConfig();", "ERROR:smpc_dp.x:y\n")]
)
def test_nothing_is_shown_unless_the_program_wants_it(configured: str, shown: str) -> None:
    program = f"import logging, smpc_dp; {configured} logging.getLogger('smpc_dp.x').error('y')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == shown


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (Event("ann", "connected", detail="hub"), "INFO", "ann: connected to hub"),
        (Event("hub", "refused", detail="1.2.3.4:5: no"), "WARNING", "hub: refused 1.2.3.4:5: no"),
        (Event("hub", "waiting", 2, "hello", 1, "ben"), "INFO", "hub: request 2: waits for ben"),
        (Event("ann", "warned", detail="used twice"), "WARNING", "ann: used twice"),
        (Event("hub", "step", 0, "hello", 3), "DEBUG", "hub: hello: waits for 3"),
        (Event("hub", "lost", 2, "shares", detail="ben"), "WARNING", "hub: request 2: lost ben"),
        (
            Event("ann", "failed", 2, detail="ben: no", code="late"),
            "ERROR",
            "ann: request 2: failed with code late: ben: no",
        ),
        (
            Event("ann", "failed", 2, detail="x.ledger", code="own"),
            "ERROR",
            "ann: request 2: failed with code own",
        ),
        (
            Event("hub", "done", 2, "done", detail="ben: late", survivors=("ann", "cat"), absent=("ben",)),
            "INFO",
            "hub: request 2: done, 2 took part, without ben: ben: late",
        ),
        (Event("ann", "done", 7, "done"), "INFO", "ann: request 7: done"),
    ],
)
def test_an_event_is_logged_and_told(
    event: Event, level: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "smpc_dp")
    reported: list[Event] = []
    with_logging(reported.append)(event)
    assert reported == [event]
    assert caplog.record_tuples == [("smpc_dp.session", logging.getLevelNamesMapping()[level], text)]


def test_a_request_begins_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "smpc_dp")
    watch = with_logging(lambda _: None)
    for request in (1, 1, 2, 1):
        watch(Event("ann", "step", request, "hello", 1))
    assert caplog.messages == ["ann: request 1: begins", "ann: request 2: begins"]


def test_a_charge_is_logged_without_the_file_and_the_data_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "smpc_dp")
    path = tmp_path / "canary.ledger"
    terms = {"party": "ann", "dataset": "canaries", "delta": 1e-5, "exact": "outside"}
    Ledger.create(path, relation="substitution", epsilon=2.0, **terms)  # type: ignore[arg-type]
    Ledger.open(path).charge(bytes(8), exact_release("sum", "substitution"), "request 3")
    charged = "charged sum as entry 1 of the ledger (request 3): epsilon 0 of 2 spent at delta 1e-05"
    assert caplog.record_tuples == [
        ("smpc_dp.privacy", logging.DEBUG, "ann: opened the ledger"),
        ("smpc_dp.privacy", logging.INFO, f"ann: {charged}"),
    ]


def test_a_record_is_one_line_whatever_is_in_it() -> None:
    record = logging.LogRecord("smpc_dp", logging.INFO, "", 0, "%s", ("refused a\n12:00 INFO\x1b[2J",), None)
    assert LineFormatter("%(message)s").format(record) == r"refused a\n12:00 INFO\x1b[2J"


def test_what_is_shown_ends_with_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("smpc_dp.session")
    with shown_logs("info"):
        log.debug("one")
        log.info("two")
    log.error("three")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" INFO smpc_dp.session: two")


@pytest.mark.parametrize(("level", "count"), [("debug", 1), ("info", 0), ("warning", 0)])
def test_a_command_logs_from_its_level_on(level: str, count: int, tmp_path: Path) -> None:
    parameters = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.5}
    path = create_local_session(tmp_path, ["ann", "ben", "cat"], parameters)
    result = CliRunner().invoke(app, ["--log-level", level, "roster", str(path)])
    assert result.exit_code == 0
    lines = [line for line in result.stderr.splitlines() if " smpc_dp: " in line]
    assert len(lines) == count
    assert all(line.endswith("DEBUG smpc_dp: opens the session file, session.toml") for line in lines)


def test_another_level_is_refused() -> None:
    result = CliRunner().invoke(app, ["--log-level", "loud", "circuits", "list"])
    assert result.exit_code == 2
