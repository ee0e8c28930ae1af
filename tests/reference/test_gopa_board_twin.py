"""The published logs of verifiable runs, audited by the second auditor."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.logs.audits.audit import audit
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.run import Audit
from smpc_dp_verify.session_log import Seen, SessionLog, shown

FOLDER = Path(__file__).resolve().parents[2] / "protocols" / "gopa" / "vectors"
BASES = {
    name: json.loads((FOLDER / name).read_text("utf-8"))
    for name in (
        "verifiable-run-honest-ball.json",
        "verifiable-run-honest.json",
        "verifiable-run-honest-box.json",
    )
}
# Without an edge, and of the version before: their proofs are of the same kinds.
MORE = {
    name: json.loads((FOLDER / name).read_text("utf-8"))
    for name in ("verifiable-run-edge-left-out.json", "verifiable-run-honest-of-version-2.json")
}
# Runs of nine parties with rounds of openings.
ROUNDS = {
    name: json.loads((FOLDER / name).read_text("utf-8"))
    for name in ("verifiable-run-false-openings.json", "verifiable-run-false-openings-in-two-rounds.json")
}


def log_of(name: str) -> tuple[list[str], dict[str, Any]]:
    vector = json.loads((FOLDER / f"verifiable-negative-{name}.json").read_text("utf-8"))
    base = (BASES | MORE | ROUNDS)[vector["base"]]
    lines = [base["log"][line] if isinstance(line, int) else line for line in vector["log"]]
    return lines, vector


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", BASES)
def test_the_twin_finds_the_same_total(name: str) -> None:
    base = BASES[name]
    audit = Audit(base["log"])
    # Lanes count from the lowest value.
    assert [total + 5 * audit.terms.lowest for total in audit.total] == base["total"]
    assert audit.excluded == {}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", MORE)
def test_the_twin_adds_up_the_same(name: str) -> None:
    audit = Audit(MORE[name]["log"], set())
    assert audit.total == MORE[name]["total"]
    assert (audit.excluded, audit.void) == ({}, [])


@pytest.mark.parametrize("name", ROUNDS)
def test_the_twin_excludes_who_opens_something_false(name: str) -> None:
    base = ROUNDS[name]
    audit = Audit(base["log"])
    assert audit.total == base["total"]
    assert audit.excluded == base["excluded"]
    assert audit.rounds == len(base["excluded"])


@pytest.mark.parametrize(
    "name",
    [
        "opening-out-of-bounds",
        "opening-malformed",
        "opening-too-long",
        "opening-left-out",
        "opening-of-an-honest-edge",
    ],
)
def test_the_twin_finds_the_same_openings_false(name: str) -> None:
    lines, vector = log_of(name)
    assert Audit(lines).excluded == {"dan": "sum", "ben": vector["check"]}


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "name",
    [
        "round-left-out",
        "rounds-left-out",
        "round-without-its-certificate",
        "opening-of-another-round",
        "opening-by-an-excluded-user",
        "honest-user-not-in-the-round",
        "round-without-a-quorum",
        "false-opener-counted",
        "opened-noise-in-the-total",
    ],
)
def test_the_twin_refuses_the_same_rounds(name: str) -> None:
    with pytest.raises(Refused):
        Audit(log_of(name)[0])


@pytest.mark.thin(4)
@pytest.mark.parametrize(
    "name",
    [
        "range-off-by-one",
        "noise-chosen",
        "noise-from-other-coins",
        "sum-off-by-one",
        "edge-left-out",
        "x-hat-out-of-bounds",
        "x-hat-at-its-bound",
        "version-2-range-off-by-one",
        "noise-proof-too-short",
        "publication-too-long",
        "commitments-of-nothing",
        "commitments-too-long",
        "commitment-of-no-point",
        "norm-one-step-too-large",
        "norm-coordinates-swapped",
        "norm-proof-of-another-run",
        "ball-sum-off-by-one",
        "box-below-its-own-range",
        "box-ranges-swapped",
        "box-range-of-all",
    ],
)
def test_the_twin_excludes_the_same(name: str, stride: int) -> None:
    lines, vector = log_of(name)
    # Proofs take seconds: those of dan, who cheats, or with --all of everybody.
    audit = Audit(lines, None if stride == 1 else {"dan"})
    assert audit.excluded == {"dan": vector["check"]}


def test_an_exclusion_for_the_bound_of_version_2_proves_nothing() -> None:
    lines, _ = log_of("version-2-x-hat-out-of-bounds")
    with pytest.raises(Refused, match="a bound that an honest party can exceed proves nothing"):
        Audit(lines, {"ann", "dan"})


def test_the_twin_finds_the_same_edge_void() -> None:
    audit = Audit(log_of("edge-on-one-side")[0])
    assert "dan" not in audit.edges["ann"]
    assert "ann" not in audit.edges["dan"]


@pytest.mark.parametrize(
    "name",
    [
        "line-dropped",
        "signature-by-another-key",
        "entry-of-another-run",
        "coin-exchanged",
        "certificate-reused",
        "commitments-exchanged",
        "tally-without-a-quorum",
        "honest-user-left-out",
        "cheat-counted",
        "total-changed",
        "opening-false-and-too-few-left",
        "round-without-a-reason",
        "edge-of-an-honest-user-opened",
        "nonce-changed",
        "log-truncated",
    ],
)
def test_the_twin_refuses_the_same(name: str) -> None:
    with pytest.raises(Refused):
        Audit(log_of(name)[0])


# the session log

LIST = json.loads((FOLDER / "session-log.json").read_text("utf-8"))
FALSIFIED = sorted(FOLDER.glob("session-log-negative-*.json"))
# Runs that ended.
ENDED = (2, 4, 5)


def listed(number: int) -> dict[str, Any]:
    result: dict[str, Any] = LIST["runs"][number - 1]
    return result


@functools.cache
def audited(number: int) -> Audit:
    """Return the twin's audit of a run; the proofs are in the other vectors."""
    return Audit(listed(number)["log"], proven=frozenset())


def seen_of(vector: dict[str, Any]) -> Seen:
    seen = vector["seen"]
    return Seen(
        seen["number"], bytes.fromhex(seen["head"]), seen["closed"], bytes.fromhex(seen["closed_head"])
    )


def shown_in(vector: dict[str, Any], number: int) -> bytes:
    """Return what the party signs that is shown the list of a vector when a run begins."""
    header = json.loads(listed(number)["log"][0])
    run = bytes.fromhex(header["run_id"])
    scope, body = bytes.fromhex(LIST["scope"]), bytes.fromhex(vector["begin"])
    return shown(seen_of(vector), scope, body, header["request"], run)


def test_the_twin_reads_the_session_log() -> None:
    log = SessionLog(LIST["log"])
    assert log.session.hex() == LIST["session"]
    assert [head.hex() for head in log.heads[1:]] == [run["session_head"] for run in LIST["runs"]]
    assert [line.request for line in log.runs] == [1, 1, 2, 2, 2]
    for number in ENDED:
        log.check(audited(number))
        assert audited(number).head.hex() == listed(number)["head"]


@pytest.mark.parametrize("number", range(1, 6))
def test_the_twin_signs_the_same_list(number: int) -> None:
    assert shown_in(listed(number), number).hex() == listed(number)["session_head"]


def refusal(vector: dict[str, Any]) -> tuple[str, str]:
    """Return who refuses a falsified list, and which check."""
    if "begin" in vector:
        with pytest.raises(Refused) as caught:
            shown_in(vector, vector["run"])
        return "party", str(caught.value)
    lines = [LIST["log"][line] if isinstance(line, int) else line for line in vector["log"]]
    try:
        log = SessionLog(lines)
    except Refused as refused:
        return "reader", str(refused)
    with pytest.raises(Refused) as caught:
        log.select(audited(vector["run"]), head=bytes.fromhex(vector["head"]))
    return "audit", str(caught.value)


@pytest.mark.parametrize("file", FALSIFIED, ids=lambda file: file.stem.removeprefix("session-log-negative-"))
def test_the_twin_refuses_the_same_list_for_the_same_reason(file: Path) -> None:
    vector = json.loads(file.read_text("utf-8"))
    assert refusal(vector) == (vector["expect"]["refused_by"], vector["check"])


@pytest.mark.parametrize("number", ENDED)
def test_the_twin_selects_the_run_that_the_audit_selects(number: int, tmp_path: Path) -> None:
    """Whatever an auditor has from a party: run id, request, and a head of any run or list."""
    board, session_log = tmp_path / "board.jsonl", tmp_path / "session.jsonl"
    board.write_text("".join(f"{line}\n" for line in listed(number)["log"]), "utf-8")
    session_log.write_text("".join(f"{line}\n" for line in LIST["log"]), "utf-8")
    # Its own and another one.
    both = (number, ENDED[ENDED.index(number) - 1])
    runs = [None, *(json.loads(listed(other)["log"][0])["run_id"] for other in both)]
    heads = [None, *(listed(other)[kind] for other in ENDED for kind in ("head", "session_head"))]
    log, codes = SessionLog(LIST["log"]), set()
    for run, request, head in itertools.product(runs, (None, 1, 2), heads):
        report = audit(
            board,
            session=LIST["session"],
            session_log=session_log,
            run=run,
            request=request,
            head=head,
            threads=1,
        )
        codes.add(report.code)
        given = [None if digest is None else bytes.fromhex(digest) for digest in (run, head)]
        try:
            position, tries, certain = log.select(audited(number), given[0], request, given[1])
        except Refused:
            assert report.code == 1, (run, request, head)
        else:
            assert (report.position, report.tries) == (position, tries)
            assert report.code == (0 if certain else 4), (run, request, head)
    assert codes == {0, 1, 4}
