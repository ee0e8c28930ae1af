"""A verdict is about one session, request and run: what a relay could show instead is refused."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import LocalError
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.audit_selection import Wanted, read_session_log
from smpc_dp.logs.log import MAX_LINE_BYTES, Chain, Entry, Header, decode_line, encode_line
from smpc_dp.logs.runs import NO_HEAD, CertifiedLine, MemorySessionLog, SessionLog
from smpc_dp.wire.canonical_session import canonical_session, session_json
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.verifiable_parties import off_by_one
from smpc_dp_lab.vectors.verifiable_runs import NINE, RecordedRun, execute, honest, members


def lines_of(ran: RecordedRun) -> bytes:
    return b"".join(line + b"\n" for line in ran.lines)


def session_of(ran: RecordedRun) -> str:
    return ran.context.session_digest.hex()


def judge(content: bytes, /, **requested: Any) -> Report:
    return audit_stream(io.BytesIO(content), wanted=Wanted(**requested), threads=1)


def ends(ran: RecordedRun) -> bytes:
    """Return the last head of a log."""
    chain = Chain(decode_line(ran.lines[0], Header))
    for line in ran.lines[1:]:
        chain.follow(decode_line(line, Entry))
    return chain.head


def listed(ran: RecordedRun, *later: bytes, certified: bool = True, before: bytes = b"") -> SessionLog:
    """Return a session log of a run, and of later ones of the same request."""
    context, header = ran.context, ran.header
    log = MemorySessionLog(context.session_digest, context.session_digest)
    log.begin(header.request, bytes.fromhex(header.run_id), NO_HEAD)
    made = decode(ran.entries[0].payload, m.Certified, "")
    if certified:
        log.keep(CertifiedLine(1, "gopa", 4, made.members, made.signers, made.signatures))
    for run_id in later:
        log.begin(header.request, run_id, before or ends(ran))
    return log


def test_a_session_of_the_same_people_with_other_bounds_is_another() -> None:
    other = honest(ball=True)
    report = judge(lines_of(other), session=session_of(honest()))
    assert (report.code, report.line) == (1, 1)
    assert "the session is" in report.conclusion
    assert judge(lines_of(other), session=session_of(other), head=ends(other).hex()).ok


def test_a_made_up_learner_of_three_colluders_is_another_session() -> None:
    """With no colluders, wide bounds and a seed that draws the three, it passed against the real parties."""
    parameters = {
        "learner": "block-gossip",
        "group": 3,
        "clip": 1000.0,
        "averager": {"method": "gopa", "verifiable": True, "colluders": 0},
    }
    session = session_json(canonical_session("learn", 2, parameters, members()))
    header = msgspec.structs.replace(honest().header, session=session.decode("ascii"))
    log = encode_line(header) + b"\n"
    for requested in ({"session": session_of(honest())}, {}):
        report = judge(log, **requested)
        assert (report.ok, report.code) == (False, 1)
    assert "the session is" in judge(log, session=session_of(honest())).conclusion


def test_without_a_session_nothing_holds() -> None:
    report = judge(lines_of(honest()), head=ends(honest()).hex())
    assert (report.ok, report.code) == (False, 3)


def test_a_number_of_a_request_selects_no_run() -> None:
    ran = honest()
    report = judge(lines_of(ran), session=session_of(ran), request=ran.header.request)
    assert (report.ok, report.code, report.tries) == (False, 4, None)
    assert "a restart repeats requests" in report.conclusion


def test_a_run_id_does_not_excuse_another_head() -> None:
    """A party with this run id and another head was shown another log of the run."""
    ran = honest()
    requested: dict[str, Any] = {"session": session_of(ran), "run": ran.header.run_id}
    assert judge(lines_of(ran), **requested).ok
    assert judge(lines_of(ran), **requested, head=ends(ran).hex()).ok
    report = judge(lines_of(ran), **requested, head=ends(honest(run=2)).hex())
    assert (report.ok, report.code) == (False, 1)
    assert "the head that was given is not of this run" in report.conclusion


def test_an_earlier_try_of_a_request_is_named_as_such() -> None:
    ran = honest()
    requested: dict[str, Any] = {"session": session_of(ran), "request": ran.header.request}
    log = listed(ran, b"2" * 32)
    report = judge(lines_of(ran), **requested, log=log)
    assert (report.code, report.position, report.tries) == (4, 1, 2)
    assert "try 1 of 2" in report.conclusion
    # A head of the session log after both says nothing else.
    assert judge(lines_of(ran), **requested, log=log, head=log.head().hex()).code == 4


def test_a_session_log_that_was_cut_selects_no_run() -> None:
    """Without a head from a party the relay could show the list as it was after the try that it likes."""
    ran = honest()
    requested: dict[str, Any] = {
        "session": session_of(ran),
        "request": ran.header.request,
        "log": listed(ran),
    }
    assert judge(lines_of(ran), **requested).code == 4
    assert judge(lines_of(ran), **requested, head=listed(ran).head().hex()).code == 0


def test_the_bias_is_for_the_tries_that_there_were() -> None:
    ran = honest()
    requested: dict[str, Any] = {"session": session_of(ran), "head": ends(ran).hex()}
    alone, twice = (judge(lines_of(ran), **requested, log=log) for log in (None, listed(ran, b"2" * 32)))
    assert alone.ok
    assert twice.ok
    assert alone.verdict is not None
    assert twice.verdict is not None
    assert (alone.verdict.tries, alone.verdict.tries_listed) == (1000, False)
    assert (twice.verdict.tries, twice.verdict.tries_listed) == (2, True)
    assert alone.verdict.bias is not None
    assert twice.verdict.bias is not None
    assert twice.verdict.bias < alone.verdict.bias
    assert "1000 tries, which is an assumption" in alone.limits
    assert "2 tries, as many as the session log lists runs" in twice.limits


def test_a_failed_run_is_a_try_whatever_request_came_after_it() -> None:
    """A party that withholds a coin ends a request; the next call has the next number and is the next try."""
    ran = honest()
    header, log = ran.header, listed(ran)
    for request in (2, 3, 4):
        log.begin(request + header.request, bytes([request]) * 32, ends(ran))
    report = judge(lines_of(ran), session=session_of(ran), head=ends(ran).hex(), log=log)
    assert (report.code, report.position, report.tries) == (0, 1, 1)
    assert report.verdict is not None
    assert (report.verdict.tries, report.verdict.tries_listed) == (4, True)


def test_with_more_cheats_than_planned_a_run_id_does_not_say_which_log() -> None:
    """Two quorums need not share an honest party then: the head of the end is what a party has of its own."""
    ran = execute(dict.fromkeys(("ann", "ben", "cyd"), off_by_one), setting=NINE)
    chain = ends(ran)
    requested: dict[str, Any] = {"session": session_of(ran), "run": ran.header.run_id}
    report = judge(lines_of(ran), **requested)
    assert report.verdict is not None
    assert len(report.excluded) > report.verdict.corrupt
    assert (report.ok, report.code) == (False, 4)
    assert "there may be another log" in report.conclusion
    assert judge(lines_of(ran), **requested, head=chain.hex()).ok
    planned = execute(dict.fromkeys(("ann", "ben"), off_by_one), setting=NINE)
    assert judge(lines_of(planned), session=session_of(planned), run=planned.header.run_id).ok


def test_a_session_log_has_no_line_without_an_end(tmp_path: Path) -> None:
    """It comes from the relay: what it says is not read into memory without a bound."""
    file = tmp_path / "session.jsonl"
    with file.open("wb") as sparse:
        sparse.truncate(MAX_LINE_BYTES + 2)
    with pytest.raises(LocalError, match=f"longer than {MAX_LINE_BYTES} bytes"):
        read_session_log(file)


@pytest.mark.parametrize("reason", ["omitted", "another-end", "without-a-quorum", "of-another-session"])
def test_a_session_log_that_does_not_list_the_run_is_refused(reason: str) -> None:
    ran = honest()
    if reason == "omitted":
        log: SessionLog = listed(honest(run=2))
        fault = "does not list this run"
    elif reason == "another-end":
        log, fault = listed(ran, b"2" * 32, before=b"x" * 32), "ended with another log"
    elif reason == "without-a-quorum":
        log, fault = listed(ran, certified=False), "no quorum has signed"
    else:
        log, fault = listed(honest(ball=True)), "of another session"
    requested: dict[str, Any] = {"session": session_of(ran), "head": ends(ran).hex()}
    report = judge(lines_of(ran), **requested, log=log)
    assert report.code == 1
    assert fault in report.conclusion


def test_a_forged_certificate_of_the_session_log_is_refused() -> None:
    ran = honest()
    log = listed(ran)
    assert log.certified is not None
    signatures = log.certified.signatures[:-1] + bytes([log.certified.signatures[-1] ^ 1])
    log.certified = msgspec.structs.replace(log.certified, signatures=signatures)
    report = judge(lines_of(ran), session=session_of(ran), head=ends(ran).hex(), log=log)
    assert report.code == 1
    assert "attest-begin" in report.conclusion


def test_every_user_has_the_heads_that_select_its_run() -> None:
    ran = honest()
    logged = {dataclasses.astuple(party.result.evidence.log) for party in ran.parties.values()}  # type: ignore[arg-type]
    assert len(logged) == 1
    [(number, session_head, head)] = logged
    report = judge(lines_of(ran), session=session_of(ran), head=session_head.hex())
    assert (report.ok, report.number, report.head) == (True, number, head.hex())
