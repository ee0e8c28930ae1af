"""The published vectors of computations on shares, by a twin that was written from the specification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference import merkle_twin, secagg_twin
from tests.reference import servers_twin as twin
from tests.reference.published import sources_of

PUBLISHED = Path(__file__).resolve().parents[2] / "protocols" / "mpyc" / "vectors"
RUNS = sorted(PUBLISHED.glob("run-*.json"))
NEGATIVE = sorted(PUBLISHED.glob("negative-*.json"))


def message(fields: dict[str, str]) -> tuple[twin.Key, twin.Message]:
    key = (fields["step"], fields["sender"], fields["receiver"])
    return key, twin.Message(fields["run_id"], fields["body"], fields["signature"])


def claimed(vector: dict[str, Any]) -> dict[twin.Key, twin.Message]:
    """Return the messages of a run, without those of who leaves or is left out."""
    reported = dict(map(message, vector["messages"]))
    return {key: content for key, content in reported.items() if key[0] not in ("abort", "leave")}


def test_twin_imports_nothing_of_the_library() -> None:
    source = sources_of(twin, merkle_twin, secagg_twin)
    assert "import smpc_dp" not in source
    assert "from smpc_dp" not in source


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_message_follows_from_the_inputs(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    run = twin.Run(vector)
    assert twin.execute(run) == claimed(vector)
    assert run.run_id.hex() == vector["run_id"]
    assert run.set_statement.hex() == vector["set_statement"]
    result = vector["result"]
    assert run.opened() == result["opened"]
    assert run.faults() == result["faults"]
    assert [run.parties[n - 1] for n in run.included] == result["included"]
    output = run.output_statement(run.set, run.opened(), run.faults())
    assert output.hex() == vector["output_statement"]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_what_is_opened_is_the_plain_sum_and_fits(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    columns = zip(*(vector["records"][who] for who in vector["result"]["included"]), strict=True)
    assert vector["result"]["opened"] == [str(sum(column)) for column in columns]
    terms = json.loads(vector["terms"])
    assert json.dumps(terms, sort_keys=True, separators=(",", ":")) == vector["terms"]
    prime = int(terms["modulus"], 16)
    assert prime.bit_length() >= terms["bits"] + terms["security"] + 2
    assert terms["users"] * max(terms["upper"]) < 1 << terms["bits"] - 1


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_nothing_that_was_said_is_a_fault(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    run = twin.Run(vector)
    assert {twin.at_fault(run, *each) for each in claimed(vector).items()} == {""}


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_the_twin_finds_the_same_at_fault(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    run = twin.Run(json.loads((PUBLISHED / vector["base"]).read_bytes()))
    expected = vector["expect"]
    assert twin.at_fault(run, *message(vector["message"])) == (expected["culprit"] or expected["left_out"])
