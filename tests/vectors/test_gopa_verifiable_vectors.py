"""Every cheat in a verifiable run is caught by the audit, and whoever it is is named."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from smpc_dp.capabilities.gopa.verifiable.statements import FALSE
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.audit_selection import Wanted
from smpc_dp_lab.vectors import check, verifiable
from tests.audits import of_itself
from tests.vectors.reasons import CHECKS

FOLDER = Path(__file__).resolve().parents[2] / "protocols" / "gopa" / "vectors"
BASES = {
    name: json.loads((FOLDER / name).read_text("utf-8"))
    for name in (
        "verifiable-run-honest.json",
        "verifiable-run-honest-ball.json",
        "verifiable-run-honest-box.json",
        "verifiable-run-honest-of-version-2.json",
        "verifiable-run-honest-of-version-4.json",
        "verifiable-run-honest-of-version-5.json",
        "verifiable-run-edge-left-out.json",
    )
}
# Runs in which parties open something false.
ROUNDS = {
    name: json.loads((FOLDER / name).read_text("utf-8"))
    for name in ("verifiable-run-false-openings.json", "verifiable-run-false-openings-in-two-rounds.json")
}
BASE = BASES["verifiable-run-honest.json"]
NEGATIVE = sorted(FOLDER.glob("verifiable-negative-*.json"))
# Of each log that is refused what the check says that catches it, without places and digests.
REASONS = json.loads(Path(__file__).with_name("gopa_verifiable_reasons.json").read_text("utf-8"))
_INDEX = re.compile(r"line \d+, byte \d+: |[0-9a-f]{64}")


def reason_of(report: Report) -> str:
    """Return why a log is refused, without what differs from run to run."""
    return _INDEX.sub("", report.conclusion)


def audited(
    lines: list[str | int], session: str | None = None, base: str | None = None, head: str | None = None
) -> Report:
    known = (BASES | ROUNDS)[base or "verifiable-run-honest.json"]["log"]
    log = "".join(f"{known[line] if isinstance(line, int) else line}\n" for line in lines)
    wanted = Wanted() if session is None else replace(of_itself(log.encode()), session=session, head=head)
    return audit_stream(io.BytesIO(log.encode()), wanted=wanted, threads=1)


def test_vectors_are_what_the_code_produces() -> None:
    assert check(FOLDER, "gopa") == []


@pytest.mark.parametrize("name", BASES)
def test_the_honest_run_holds(name: str) -> None:
    base = BASES[name]
    report = audited(base["log"], base["session"])
    assert report.ok, report.conclusion
    assert report.session_checked
    assert report.verdict is not None
    assert report.verdict.counted == ("ann", "ben", "cyd", "dan", "eve")
    assert report.verdict.average == tuple(value / 5 for value in base["total"])
    assert report.conclusion.startswith("Everything holds")


@pytest.mark.parametrize(("name", "epsilon"), list(zip(ROUNDS, (3.0, 3.1959), strict=True)))
def test_a_run_without_who_opens_something_false_holds(name: str, epsilon: float) -> None:
    """Two excluded parties are what the plan counts on as corrupt; for a third epsilon is computed anew."""
    base = ROUNDS[name]
    report = audited(base["log"], base["session"], name)
    # Of a run with more cheats than planned for there may be another log.
    assert report.code == (4 if len(base["excluded"]) > 2 else 0), report.conclusion
    report = audited(base["log"], base["session"], name, report.head)
    assert report.ok, report.conclusion
    assert report.verdict is not None
    assert {item.party: item.reason for item in report.excluded} == {
        party: FALSE[check] for party, check in base["excluded"].items()
    }
    assert len(report.verdict.counted) == 9 - len(base["excluded"])
    assert report.verdict.residual_pairs == 0
    assert report.verdict.average == (base["total"][0] / len(report.verdict.counted),)
    assert report.verdict.epsilon == pytest.approx(epsilon, abs=1e-4)


def test_there_are_enough() -> None:
    assert len(NEGATIVE) >= 70
    assert len({cheat.check for cheat in verifiable.all_cheats()}) >= 15


@pytest.mark.parametrize("file", NEGATIVE, ids=lambda file: file.stem.removeprefix("verifiable-negative-"))
def test_the_cheat_is_caught(file: Path) -> None:
    vector = json.loads(file.read_text("utf-8"))
    expect, culprits = vector["expect"]["audit"], vector["expect"]["culprits"]
    report = audited(vector["log"], (BASES | ROUNDS)[vector["base"]]["session"], vector["base"])
    check = report.excluded[0].check if expect == "excluded" else report.check
    assert (check or "") == CHECKS["gopa"][file.stem]
    if expect == "excluded":
        assert report.ok, report.conclusion
        assert [item.party for item in report.excluded] == culprits
        assert report.excluded[0].reason == FALSE[vector["check"]]
        assert report.verdict is not None
        assert not set(culprits) & set(report.verdict.counted)
        # the average is that of the rest, to within their noise: six bits a coordinate either way
        assert report.verdict.residual_pairs == 0
    elif expect == "void":
        assert report.ok, report.conclusion
        assert report.verdict is not None
        assert report.verdict.void_edges == (tuple(culprits),)
    else:
        assert report.code == 1
        assert report.conclusion.startswith("This log does not hold")
        assert all(culprit in report.conclusion for culprit in culprits), report.conclusion
        assert reason_of(report) == REASONS[file.stem.removeprefix("verifiable-negative-")]
    if expect == "session":
        alone = audited(vector["log"], base=vector["base"])
        assert (alone.ok, alone.code, alone.faults) == (False, 3, ())
        assert "no session was given" in alone.conclusion
        assert "the session is" in report.conclusion
