"""Both auditors find the same in logs of pairwise statistics and of learners' groups, true and false."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import msgspec
import pytest

from smpc_dp.kernels import Field
from smpc_dp.kernels.named import find_kernel
from smpc_dp.net.audit import audit_stream
from smpc_dp.net.audit_selection import Wanted as First
from smpc_dp.net.second import Opinion, differences
from smpc_dp_verify import Wanted, verify
from tests.unit.net.test_statistic_audit import CHEATS, RecordedRun, ended, execute

VECTORS = Path(__file__).resolve().parents[3] / "protocols" / "pairwise" / "vectors"


def both(log: bytes, folder: Path, **wanted: str) -> tuple[list[str], int]:
    """Return in what the auditors differ, and the exit code of the first."""
    path = folder / "log.jsonl"
    path.write_bytes(log)
    report = audit_stream(io.BytesIO(log), wanted=First(**wanted), threads=1)
    opinion = json.dumps(dataclasses.asdict(verify(path, Wanted(**wanted))))
    return differences(report, msgspec.json.decode(opinion, type=Opinion)), report.code


@pytest.fixture(scope="module")
def honest() -> RecordedRun:
    return execute()


RUNS = {
    "two matchings": {},
    "a second draw": {"withheld": ["cem coin"]},
    "wrong coins, three draws": {"wrong": ["ben coin", "eve coin-2"]},
    "left out": {"withheld": ["cem coin"], "lost": "ben coin"},
    "pairs that failed": {"unpaired": ["dot"]},
    "public labels": {"kernel": find_kernel("auc", Field(0, 9))},
    "no end": {"withheld": ["ada coin", "ben coin", "cem coin"]},
}


@pytest.mark.parametrize("case", RUNS)
def test_both_find_the_same_statistic(case: str, tmp_path: Path) -> None:
    ran = execute(**RUNS[case])  # type: ignore[arg-type]
    if case == "no end":
        assert both(ran.log, tmp_path) == ([], 1)
        return
    assert both(ran.log, tmp_path) == ([], 3)
    last = ended(ran)
    assert both(ran.log, tmp_path, session=ran.session, head=last) == ([], 0)
    run = ran.aggregator.run_id.hex()
    assert both(ran.log, tmp_path, session=ran.session, run=run) == ([], 4)
    assert both(ran.log, tmp_path, session=ran.session, run="0" * 64) == ([], 1)
    assert both(ran.log, tmp_path, session="0" * 64) == ([], 1)


@pytest.mark.parametrize("cheat", CHEATS)
def test_both_refuse_the_same_statistics(cheat: str, honest: RecordedRun, tmp_path: Path) -> None:
    assert both(CHEATS[cheat][0](honest), tmp_path, session=honest.session) == ([], 1)


def test_both_refuse_every_changed_byte(honest: RecordedRun, tmp_path: Path) -> None:
    for index in range(5, len(honest.log), 997):
        changed = bytearray(honest.log)
        changed[index] ^= 1
        assert both(bytes(changed), tmp_path) == ([], 1), index
