"""The published logs of verifiable runs, audited by a twin that was written from the specification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.board_twin import NINE, Audit
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
# Runs of nine users with rounds of openings.
ROUNDS = {
    name: json.loads((FOLDER / name).read_text("utf-8"))
    for name in ("verifiable-run-false-openings.json", "verifiable-run-false-openings-in-two-rounds.json")
}


def log_of(name: str) -> tuple[list[str], dict[str, Any]]:
    vector = json.loads((FOLDER / f"verifiable-negative-{name}.json").read_text("utf-8"))
    base = (BASES | ROUNDS)[vector["base"]]
    lines = [base["log"][line] if isinstance(line, int) else line for line in vector["log"]]
    return lines, vector


@pytest.mark.parametrize("name", BASES)
def test_the_twin_finds_the_same_total(name: str) -> None:
    base = BASES[name]
    audit = Audit(base["log"])
    # Lanes count from the lowest value.
    assert [total + 5 * audit.lowest for total in audit.total] == base["total"]
    assert audit.excluded == {}


@pytest.mark.parametrize("name", ROUNDS)
def test_the_twin_excludes_who_opens_something_false(name: str) -> None:
    base = ROUNDS[name]
    audit = Audit(base["log"], NINE)
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
    assert Audit(lines, NINE).excluded == {"dan": "sum", "ben": vector["check"]}


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
        Audit(log_of(name)[0], NINE)


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
