"""GOPA's published vectors are what the code produces, and every machine refuses every published fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smpc_dp_lab.vectors.gopa_runs import SCENARIOS
from tests.vectors.test_secagg_vectors import assert_refused, assert_taken_without

PUBLISHED = Path(__file__).parents[2] / "protocols" / "gopa" / "vectors"
NEGATIVE = sorted(PUBLISHED.glob("negative-*.json"))


def test_every_kind_is_there() -> None:
    files = [json.loads(path.read_bytes()) for path in PUBLISHED.glob("*.json")]
    runs = [content for content in files if content["kind"] == "run"]
    assert {(run["session"]["on_dropout"], len(run["session"]["names"])) for run in runs} == {
        (mode, parties) for mode in ("keep", "roll-back") for parties in (4, 6)
    }
    lost = [run["session"]["on_dropout"] for run in runs if run["result"]["absent"]]
    assert (lost.count("keep"), lost.count("roll-back")) == (3, 3)
    assert [run["session"]["on_dropout"] for run in runs if "total" in run["session"]] == ["roll-back"]
    assert {content["expect"]["layer"] for content in files if content["kind"] == "negative"} == {
        "envelope",
        "order",
        "content",
    }
    assert len(NEGATIVE) >= 15


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_fault_is_refused(path: Path) -> None:
    assert_refused(path, SCENARIOS)


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_without_the_fault_it_is_taken(path: Path) -> None:
    assert_taken_without(json.loads(path.read_bytes()), SCENARIOS)
