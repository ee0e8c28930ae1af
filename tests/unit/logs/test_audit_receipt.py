"""`smpc-dp audit --receipt`: a party finds its contribution, and no receipt passes for another."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.engine.result import Result
from smpc_dp.errors import Check, ConfigError, LocalError
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.second import audit_twice
from smpc_dp.logs.receipt import LogReceipt
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import RecordedRun, entry_of, execute, honest
from tests.audits import ONE


@functools.cache
def ran() -> RecordedRun:
    return execute({CHEAT: off_by_one}, setting=ONE)


@functools.cache
def another() -> RecordedRun:
    return honest(run=2, setting=ONE)


def receipt_of(run: RecordedRun, name: str) -> LogReceipt:
    receipt = Result.of(run.parties[name].result, "average").receipt
    assert receipt is not None
    return receipt


def written(folder: Path, run: RecordedRun) -> Path:
    log = folder / "log.jsonl"
    log.write_bytes(b"".join(line + b"\n" for line in run.lines))
    return log


HONEST = ("ann", "ben", "cyd", "eve")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_party_finds_its_entry(name: str, tmp_path: Path) -> None:
    log, receipt = written(tmp_path, ran()), receipt_of(ran(), name)
    entry = entry_of(ran(), "publish", name)
    assert (receipt.index, receipt.entry) == (entry.sequence, entry.digest().hex())
    report = audit(log, receipt=receipt, threads=1)
    # A receipt says which session and run are meant.
    assert (report.ok, report.code, report.session_checked) == (True, 0, True)
    assert report.receipt is not None
    found = (report.receipt.party, report.receipt.index, report.receipt.counted)
    assert found == (name, entry.sequence, True)


def test_the_command_takes_it_as_json(tmp_path: Path) -> None:
    log, receipt = written(tmp_path, ran()), receipt_of(ran(), "ann")
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt.to_json()), "utf-8")
    done = CliRunner().invoke(app, ["audit", str(log), "--receipt", str(file)])
    assert done.exit_code == 0
    assert f"the contribution of ann is entry {receipt.index}, and counted" in done.output
    report = audit_twice(log, receipt=file, threads=1)
    assert report.code == 0
    assert report.second is not None
    assert (report.second.code, report.second.differences) == (0, ())


def test_a_receipt_has_no_secret(tmp_path: Path) -> None:
    """All of it is in the log, or follows from the log, but for whose it is."""
    log, receipt = written(tmp_path, ran()), receipt_of(ran(), "ann")
    report = audit(log, threads=1)
    assert report.verdict is not None
    assert (receipt.session, receipt.run_id, receipt.head) == (report.session, report.run_id, report.head)
    assert receipt.attested == report.verdict.attested
    certificate = entry_of(ran(), "certify-tally").payload
    assert all(bytes.fromhex(signature) in certificate for signature in receipt.signatures.values())
    assert Result.of(ran().relay.result, "average").receipt is None


def test_a_receipt_of_another_run_is_refused_by_name(tmp_path: Path) -> None:
    log, receipt = written(tmp_path, ran()), receipt_of(another(), "ann")
    report = audit(log, receipt=receipt, threads=1)
    assert (report.code, report.check, report.receipt) == (1, Check.OTHER_RUN, None)
    assert f"the receipt of ann is of run {receipt.run_id}" in report.conclusion
    other = replace(receipt_of(ran(), "ann"), session="0" * 64)
    report = audit(log, receipt=other, threads=1)
    assert (report.code, report.check) == (1, Check.OTHER_SESSION)


CHANGES: list[tuple[dict[str, Any], Check]] = [
    ({"party": "ben"}, Check.LOG_DIFFERS),
    ({"entry": "0" * 64}, Check.LOG_DIFFERS),
    ({"index": 1}, Check.LOG_DIFFERS),
    ({"index": 10_000}, Check.LOG_CUT),
    ({"attested": "0" * 64}, Check.LOG_DIFFERS),
    ({"head": "0" * 64}, Check.NOT_LOGGED),
    ({"signatures": {}}, Check.NO_QUORUM),
    ({"signatures": dict.fromkeys(HONEST, "0" * 128)}, Check.BAD_CERTIFICATE),
    ({"signatures": dict.fromkeys(("relay", "x", "y", "z"), "0" * 128)}, Check.NO_QUORUM),
]


@pytest.mark.parametrize(("changes", "check"), CHANGES)
def test_a_changed_receipt_is_refused(changes: dict[str, Any], check: Check, tmp_path: Path) -> None:
    report = audit(written(tmp_path, ran()), receipt=replace(receipt_of(ran(), "ann"), **changes), threads=1)
    assert (report.code, report.check, report.receipt) == (1, check, None)


def test_what_is_given_beside_a_receipt_must_fit(tmp_path: Path) -> None:
    log, receipt = written(tmp_path, ran()), receipt_of(ran(), "ann")
    with pytest.raises(ConfigError, match="session: the receipt of ann is of"):
        audit(log, session="1" * 64, receipt=receipt)
    assert audit(log, session=receipt.session, run=receipt.run_id, receipt=receipt, threads=1).ok


NONE = ["", "{}", "[" * 100_000, '{"format":"x"}', "\x1b[2J", '"' + "x" * (1 << 23)]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_receipt(text: str, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_text(text, "utf-8")
    with pytest.raises(LocalError, match="not a receipt"):
        audit(tmp_path / "log", receipt=file)
    with pytest.raises(LocalError, match="cannot read the receipt"):
        audit(tmp_path / "log", receipt=tmp_path / "none")
