"""The published session log holds, and each falsified one is refused by the check that is meant to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.engine.phases.begin import attest_begin
from smpc_dp.errors import Check, LocalError, PeerFault
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.seen import Seen
from smpc_dp.wire.sets import PartySet
from smpc_dp_lab.vectors.verifiable_listed import listed, packed
from smpc_dp_lab.vectors.verifiable_lists import all_falsified
from smpc_dp_lab.vectors.verifiable_runs import PARTIES, RELAY
from tests.vectors.reasons import CHECKS

FOLDER = Path(__file__).resolve().parents[2] / "protocols" / "gopa" / "vectors"
VALID = json.loads((FOLDER / "session-log.json").read_text("utf-8"))
NEGATIVE = sorted(FOLDER.glob("session-log-negative-*.json"))
# What each check says, without digests and the name of the file.
REASONS = json.loads(Path(__file__).with_name("session_log_reasons.json").read_text("utf-8"))
_VARIABLE = re.compile(r"line \d+, byte \d+: |[0-9a-f]{64}|^.*\.jsonl: ")
# Runs that ended.
ENDED = (2, 4, 5)


def run_of(number: int) -> dict[str, Any]:
    run: dict[str, Any] = VALID["runs"][number - 1]
    return run


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def audited(folder: Path, number: int, log: list[str], **requested: Any) -> Report:
    """Audit the log of a run with a session log."""
    board = written(folder / "board.jsonl", run_of(number)["log"])
    listing = written(folder / "session.jsonl", log)
    return audit(board, session=VALID["session"], session_log=listing, threads=1, **requested)


def attested(number: int, begin: str, seen: dict[str, Any]) -> Seen:
    """Return what ann keeps after it was shown a list at the beginning of a run."""
    context = listed().runs[number - 1].context
    retained = Seen(
        seen["number"], bytes.fromhex(seen["head"]), seen["closed"], bytes.fromhex(seen["closed_head"])
    )
    run_id = bytes.fromhex(json.loads(run_of(number)["log"][0])["run_id"])
    present = PartySet.unpack(packed(PARTIES), len(PARTIES), RELAY)
    after, _ = attest_begin(context, retained, run_id, present, bytes.fromhex(begin))
    return after


def refusal(vector: dict[str, Any], folder: Path) -> tuple[str, str, Check | None]:
    """Return who refuses a vector, why, and which check it is."""
    if "begin" in vector:
        with pytest.raises(PeerFault) as caught:
            attested(vector["run"], vector["begin"], vector["seen"])
        assert caught.value.culprit == RELAY
        return "party", str(caught.value), caught.value.check
    log = [VALID["log"][line] if isinstance(line, int) else line for line in vector["log"]]
    try:
        report = audited(folder, vector["run"], log, head=vector["head"])
    except LocalError as error:
        return "reader", str(error), getattr(error.__cause__, "check", None)
    assert (report.ok, report.code) == (False, 1)
    return "audit", report.conclusion, report.check


@pytest.mark.parametrize("number", ENDED)
def test_each_run_is_found_in_the_list(number: int, tmp_path: Path) -> None:
    position, tries = {2: (2, 2), 4: (2, 3), 5: (3, 3)}[number]
    run = run_of(number)
    for head in (run["head"], run["session_head"]):
        report = audited(tmp_path, number, VALID["log"], head=head)
        assert (report.ok, report.number, report.position, report.tries) == (True, number, position, tries)
        assert (report.head, report.session_head) == (run["head"], run["session_head"])


@pytest.mark.parametrize("number", [1, 3])
def test_a_run_that_stopped_is_listed_and_does_not_hold(number: int, tmp_path: Path) -> None:
    report = audited(tmp_path, number, VALID["log"], head=run_of(number)["head"])
    assert (report.ok, report.code) == (False, 1)
    assert "the run was not finished" in report.conclusion


@pytest.mark.parametrize("number", range(1, 6))
def test_a_party_goes_on_with_the_list(number: int) -> None:
    run = run_of(number)
    after = attested(number, run["begin"], run["seen"])
    assert (after.number, after.head.hex()) == (number, run["session_head"])
    assert after.closed == run["seen"]["closed"]


def test_there_are_enough() -> None:
    assert len(NEGATIVE) >= 50
    assert {path.stem.removeprefix("session-log-negative-") for path in NEGATIVE} == {*REASONS}
    assert len({item.check for item in all_falsified()}) == 9


@pytest.mark.parametrize("file", NEGATIVE, ids=lambda file: file.stem.removeprefix("session-log-negative-"))
def test_a_falsified_list_is_refused(file: Path, tmp_path: Path) -> None:
    vector = json.loads(file.read_text("utf-8"))
    by, reason, check = refusal(vector, tmp_path)
    assert by == vector["expect"]["refused_by"]
    assert _VARIABLE.sub("", reason) == REASONS[vector["name"]]
    assert (check or "") == CHECKS["gopa"][f"session-log-negative-{vector['name']}"]
