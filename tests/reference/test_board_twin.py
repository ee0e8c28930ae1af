"""The published logs of verifiable runs, audited by a twin that was written from the specification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reference.board_twin import Audit
from tests.reference.proofs_twin import Refused

FOLDER = Path(__file__).resolve().parents[2] / "protocols" / "gopa" / "vectors"
BASES = {
    name: json.loads((FOLDER / name).read_text("utf-8"))
    for name in (
        "verifiable-run-honest.json",
        "verifiable-run-honest-ball.json",
        "verifiable-run-honest-box.json",
    )
}


def log_of(name: str) -> tuple[list[str], dict[str, object]]:
    vector = json.loads((FOLDER / f"verifiable-negative-{name}.json").read_text("utf-8"))
    base = BASES[vector["base"]]
    lines = [base["log"][line] if isinstance(line, int) else line for line in vector["log"]]
    return lines, vector


@pytest.mark.parametrize("name", BASES)
def test_the_twin_finds_the_same_total(name: str) -> None:
    base = BASES[name]
    audit = Audit(base["log"])
    # Lanes count from the lowest value.
    assert [total + 5 * audit.lowest for total in audit.total] == base["total"]
    assert audit.excluded == {}


@pytest.mark.parametrize(
    "name",
    [
        "range-off-by-one",
        "noise-chosen",
        "noise-from-other-coins",
        "sum-off-by-one",
        "edge-left-out",
        "x-hat-out-of-bounds",
        "noise-proof-too-short",
        "norm-one-step-too-large",
        "norm-coordinates-swapped",
        "norm-proof-of-another-run",
        "ball-sum-off-by-one",
        "box-below-its-own-range",
        "box-ranges-swapped",
        "box-range-of-all",
    ],
)
def test_the_twin_excludes_the_same(name: str) -> None:
    lines, vector = log_of(name)
    audit = Audit(lines)
    assert audit.excluded == {"dan": vector["check"]}


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
        "opening-false",
        "opening-out-of-bounds",
        "edge-of-an-honest-user-opened",
        "nonce-changed",
        "log-truncated",
    ],
)
def test_the_twin_refuses_the_same(name: str) -> None:
    with pytest.raises(Refused):
        Audit(log_of(name)[0])
