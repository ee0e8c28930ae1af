"""Both auditors find the same receipts in a log, and refuse the same."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.second import differences
from smpc_dp.logs.opinion import Opinion
from smpc_dp.logs.receipt import LogReceipt
from smpc_dp_lab.vectors.verifiable_parties import CHEAT
from smpc_dp_verify import Wanted, verify
from smpc_dp_verify import run as second
from smpc_dp_verify.__main__ import main
from tests.fuzz.audits import judge
from tests.unit.logs.test_audit_receipt import CHANGES, HONEST, NONE, another, ran, receipt_of, written
from tests.unit.pairs.test_statistic_audit import execute as statistic


def both(log: Path, receipt: LogReceipt, **wanted: Any) -> tuple[list[str], int]:
    """Return in what the auditors differ, and the exit code of the first."""
    file = log.with_name("receipt.json")
    file.write_text(json.dumps(receipt.to_json(), indent=2), "utf-8")
    report = audit(log, receipt=file, threads=1, **wanted)
    opinion = dataclasses.asdict(verify(log, Wanted(receipt=file, **wanted)))
    return differences(report, msgspec.convert(opinion, Opinion)), report.code


@pytest.fixture(autouse=True)
def _without_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs of these logs are verified by other tests; a false one excludes the cheat alone."""
    monkeypatch.setattr(second.Audit, "_is_proven", lambda _, name: name == CHEAT)


@pytest.mark.parametrize("name", HONEST)
def test_both_find_a_contribution(name: str, tmp_path: Path) -> None:
    log, receipt = written(tmp_path, ran()), receipt_of(ran(), name)
    assert both(log, receipt) == ([], 0)
    opinion = verify(log, Wanted(receipt=tmp_path / "receipt.json"))
    assert opinion.receipt == (name, receipt.index, True)


@pytest.mark.parametrize("changes", [changes for changes, _ in CHANGES], ids=str)
def test_both_refuse_a_changed_receipt(changes: dict[str, Any], tmp_path: Path) -> None:
    assert both(written(tmp_path, ran()), replace(receipt_of(ran(), "ann"), **changes)) == ([], 1)


def test_both_refuse_receipts_of_others(tmp_path: Path) -> None:
    log, receipt = written(tmp_path, ran()), receipt_of(ran(), "ann")
    assert both(log, receipt_of(another(), "ann")) == ([], 1)
    assert both(log, replace(receipt, session="0" * 64)) == ([], 1)
    # Also beside a head that is right: the end of the receipt's log is its own.
    session_head = audit(log, threads=1).session_head
    assert both(log, receipt, head=session_head) == ([], 0)
    assert both(log, replace(receipt, head="1" * 64), head=receipt.head) == ([], 1)
    assert both(log, replace(receipt, head=str(session_head))) == ([], 1)
    log.write_bytes(statistic().log)
    assert both(log, receipt) == ([], 1)


SPELLINGS: dict[str, tuple[Callable[[str], bytes], bool]] = {
    "as it is": (str.encode, True),
    "with white space": (lambda text: f"\n{text}\t \r\n".encode(), True),
    "with escapes": (lambda text: text.replace('"ann"', '"\\u0061nn"').encode(), True),
    "UTF-16": (lambda text: text.encode("utf-16"), False),
    "UTF-32, without a mark": (lambda text: text.encode("utf-32-le"), False),
    "a byte order mark": (lambda text: text.encode("utf-8-sig"), False),
    "Latin-1": (lambda text: text.replace('"ann"', '"\xe4nn"').encode("latin-1"), False),
    "a field twice": (lambda text: text.replace('"index"', '"index": 7, "index"').encode(), False),
    "a field twice, first false": (
        lambda text: text.replace('"index"', '"index": "", "index"').encode(),
        False,
    ),
    "a version twice": (lambda text: text.replace('"version"', '"version": 2, "version"').encode(), False),
    "a signature twice": (lambda text: text.replace('{"ann"', '{"ann": "00", "ann"').encode(), False),
    "a number with a fraction": (lambda text: re.sub('("index": [0-9]+)', r"\1.0", text).encode(), False),
    "a number with an exponent": (lambda text: re.sub('("index": [0-9]+)', r"\1e0", text).encode(), False),
    "an unknown field": (lambda text: text.replace('"index"', '"other": 1, "index"').encode(), False),
    "more after it": (lambda text: f"{text}{{}}".encode(), False),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_both_take_the_same_spellings_of_a_receipt(case: str, tmp_path: Path) -> None:
    log, file = written(tmp_path, ran()), tmp_path / "receipt.json"
    spell, right = SPELLINGS[case]
    file.write_bytes(spell(json.dumps(receipt_of(ran(), "ann").to_json())))
    assert judge(log.read_bytes(), {"receipt": file}) == (0 if right else 1)


@pytest.mark.parametrize("text", NONE)
def test_the_second_refuses_what_is_no_receipt(text: str, tmp_path: Path) -> None:
    log, file = written(tmp_path, ran()), tmp_path / "receipt.json"
    file.write_text(text, "utf-8")
    assert verify(log, Wanted(receipt=file)).reason == "the format of the receipt"


def test_the_second_tells_whose_contribution_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("smpc_dp_verify.__main__.MEMORY", 1 << 20)
    log, receipt, file = written(tmp_path, ran()), receipt_of(ran(), "eve"), tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt.to_json()), "utf-8")
    assert main([str(log), "--receipt", str(file)]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first.startswith("Not detected: false values within their bounds.")
    assert "only if at most c = 1 of the parties are corrupt. " in first
    assert last.startswith("head: ")
    assert f"receipt: entry {receipt.index} of eve, counted" in lines
    assert main([str(log), "--receipt", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
