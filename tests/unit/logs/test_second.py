"""`smpc-dp audit --second`: a process of its own, bounds, and an exit code where the auditors disagree."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.cli import app
from smpc_dp.crypto import proofs
from smpc_dp.errors import LocalError
from smpc_dp.logs.audits import second
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.second import DISAGREE, audit_twice, differences, second_opinion
from smpc_dp.logs.opinion import Opinion, SecondAnswer
from smpc_dp_lab.vectors.verifiable_host import rewritten
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, out_of_range
from smpc_dp_lab.vectors.verifiable_runs import PARTIES, RELAY, execute, honest
from tests.audits import ONE
from tests.fuzz.audits import RECORDS, play_records
from tests.unit.pairs import test_statistic_audit as statistic

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "protocols" / "gopa" / "vectors"


def write(folder: Path, lines: Iterable[bytes]) -> Path:
    log = folder / "log.jsonl"
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    return log


@pytest.fixture
def right(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    ran = honest(setting=ONE)
    return write(tmp_path, ran.lines), {"session": ran.context.session_digest.hex(), "log": ran.lines}


def run(*arguments: str, stdin: bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["audit", *arguments], input=stdin)
    return result.exit_code, result.output


def test_both_find_that_all_holds(right: tuple[Path, dict[str, Any]]) -> None:
    log, content = right
    run_id = json.loads(content["log"][0])["run_id"]
    given = ["--session", content["session"], "--run", run_id, "--second"]
    code, text = run(str(log), *given, "--json")
    assert code == 0
    report = json.loads(text)
    assert report["second"] == {"code": 0, "reason": "", "differences": []}
    assert report["ok"]
    assert "the second auditor found the same" in run("-", *given, stdin=log.read_bytes())[1]


def test_both_find_that_a_log_with_a_column_of_the_parties_holds(tmp_path: Path) -> None:
    """The first auditor has the parties' names as a packed sequence, and not as a list."""
    columns = {**RECORDS["records"]["columns"], "place": {"kind": "party", "reference": PARTIES[0]}}
    case, lines = play_records({**RECORDS, "records": {**RECORDS["records"], "columns": columns}})
    given = ["--session", case.context.session_digest.hex(), "--run", json.loads(lines[0])["run_id"]]
    code, text = run(str(write(tmp_path, lines)), *given, "--second", "--json")
    assert (code, json.loads(text)["second"]) == (0, {"code": 0, "reason": "", "differences": []})


def test_both_refuse(tmp_path: Path) -> None:
    other_total = rewritten(v.TALLY, RELAY, {"total": lambda total: bytes([total[0] ^ 1]) + total[1:]})
    report = audit_twice(write(tmp_path, other_total(honest(setting=ONE))), threads=1)
    assert (report.code, report.second.code if report.second else None) == (1, 1)
    assert report.second is not None
    assert report.second.reason == "the total"


def test_a_bug_of_one_is_a_disagreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first auditor takes every range proof."""
    log = write(tmp_path, execute({CHEAT: out_of_range((5,))}, setting=ONE).lines)
    assert audit_twice(log, threads=1).code == 3
    monkeypatch.setattr(proofs.Batch, "add_range", lambda *_: None)
    code, text = run(str(log), "--second", "--threads", "1")
    assert code == DISAGREE
    assert "The two auditors disagree" in text
    assert "exit code 1" in text
    assert "no fault" in text
    assert "Self-consistent" not in text


def test_other_answers_about_records_are_a_disagreement(right: tuple[Path, dict[str, Any]]) -> None:
    log, content = right
    run_id = json.loads(content["log"][0])["run_id"]
    report = audit(log, session=content["session"], run=run_id)
    assert report.verdict is not None
    given = [f"--session={content['session']}", f"--run={run_id}"]
    opinion = second_opinion(log, given, seconds=600.0, memory=1024)
    assert not differences(report, opinion)
    cells = [{"statistic": "sex", "value": value, "standard_error": 2.0} for value in (50.0, None)]
    verdict = msgspec.structs.replace(report.verdict, answers={"estimates": cells})
    report = msgspec.structs.replace(report, verdict=verdict)
    assert differences(report, opinion) == ["kind of answers: False and True"]
    found: dict[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]] = {
        "": ((50.0, None), (2.0, 2.0)),
        "values of sex": ((50.1, None), (2.0, 2.0)),
        "standard errors of sex": ((50.0, None), (2.0, 2.1)),
        "values of sex: (50.0, None) and (50.0, 1.0)": ((50.0, 1.0), (2.0, 2.0)),
        "values of sex: (50.0, None) and (50.0,)": ((50.0,), (2.0, 2.0)),
    }
    for expected, (values, errors) in found.items():
        answers = (SecondAnswer("sex", values, errors),)
        named = differences(report, msgspec.structs.replace(opinion, answers=answers))
        assert [each[: len(expected)] for each in named] == ([expected] if expected else [])


def test_it_must_be_installed(right: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LocalError, match="not installed: it is in the folder verify"):
        audit_twice(right[0])


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [({"seconds": 0.001}, "did not end within 0.001 s"), ({"memory": 1}, "the second auditor failed")],
)
def test_it_is_bounded(right: tuple[Path, dict[str, Any]], bounds: dict[str, Any], reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        audit_twice(right[0], threads=1, **bounds)


def test_both_find_that_a_statistic_holds(tmp_path: Path) -> None:
    log, ran = tmp_path / "log.jsonl", statistic.execute()
    log.write_bytes(ran.log)
    code, text = run(str(log), "--session", ran.session, "--head", statistic.ended(ran), "--second", "--json")
    assert (code, json.loads(text)["second"]) == (0, {"code": 0, "reason": "", "differences": []})


def test_both_judge_the_same_session_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An aggregator appends to it while the first auditor is at work."""
    content = json.loads((FOLDER / "session-log.json").read_text("utf-8"))
    log, listed = tmp_path / "log.jsonl", tmp_path / "session.jsonl"
    log.write_text("".join(f"{line}\n" for line in content["runs"][1]["log"]), "utf-8")
    listed.write_text("".join(f"{line}\n" for line in content["log"]), "utf-8")
    ask = second.second_opinion

    def replaced(*given: Any) -> Opinion:
        listed.write_text("none")
        return ask(*given)

    monkeypatch.setattr(second, "second_opinion", replaced)
    head = content["runs"][1]["head"]
    report = audit_twice(log, session=content["session"], head=head, session_log=listed, threads=1)
    assert (report.code, report.tries) == (0, 2)
