"""Both auditors find of every published result what the file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.results.audit import audit_result, compare_results
from smpc_dp_lab.vectors.signed_results import FAULTS, SCENARIOS
from smpc_dp_verify import result as second

PUBLISHED = Path(__file__).parents[2] / "protocols" / "secagg" / "vectors"
COMPARED = PUBLISHED / "result-compared.json"
SINGLE = sorted(path for path in PUBLISHED.glob("result-*.json") if path != COMPARED)


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def write(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_every_vector_is_there() -> None:
    assert len(SINGLE) == len(SCENARIOS) + len(FAULTS)
    assert {fault.check for fault in FAULTS} == {read(path)["expect"]["check"] for path in SINGLE} - {None}


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.stem)
def test_both_auditors_find_it(path: Path, tmp_path: Path) -> None:
    vector = read(path)
    base = read(PUBLISHED / vector["base"]) if "base" in vector else vector
    session = write(tmp_path, "session.toml", base["session"])
    result, expected = write(tmp_path, "result.json", vector["result"]), vector["expect"]
    first = audit_result(result, session=session, run=base["run"])
    assert {"code": first.code, "check": first.check, "culprit": first.culprit} == expected
    other = second.audit_result(result, session, base["run"])
    assert {"code": other.code, "check": other.check, "culprit": other.culprit} == expected
    assert (first.run_id, first.digest, first.corrupt) == (
        other.run_id,
        *(other.digests or (None,)),
        other.corrupt,
    )


@pytest.mark.parametrize("index", [0, 1], ids=["one total", "two totals"])
def test_both_auditors_compare(index: int, tmp_path: Path) -> None:
    vector = read(COMPARED)
    base, expected = read(PUBLISHED / vector["base"]), vector["results"][index]["expect"]
    session = write(tmp_path, "session.toml", base["session"])
    paths = [
        write(tmp_path, f"{number}.json", result)
        for number, result in enumerate([base["result"], vector["results"][index]["result"]])
    ]
    first = compare_results(paths[0], paths[1], session=session)
    assert {"code": first.code, "check": first.check, "culprit": first.culprit} == expected
    other = second.compare_results(paths[0], paths[1], session)
    assert {"code": other.code, "check": other.check, "culprit": other.culprit} == expected
    assert first.digests == other.digests
    assert len({*first.digests}) == 1 + index
