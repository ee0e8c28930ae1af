"""The published vectors of computations on shares are what the code produces, and every fault is refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from smpc_dp.capabilities.pairs.circuits.bristol import parse_bristol
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.simulation.shared import run_alone
from smpc_dp.capabilities.servers.statistics.plan import Program
from smpc_dp.identity.keys import verify
from smpc_dp.wire.envelope import Envelope
from smpc_dp_lab import vectors
from smpc_dp_lab.vectors.servers import end_of
from tests.vectors.reasons import check_code, check_reason

PUBLISHED = Path(__file__).parents[2] / "protocols" / "mpyc" / "vectors"
NEGATIVE = sorted(PUBLISHED.glob("negative-*.json"))


def envelope(fields: dict[str, str]) -> Envelope:
    run_id, body, signature = (bytes.fromhex(fields[key]) for key in ("run_id", "body", "signature"))
    return Envelope(
        run_id=run_id,
        step=fields["step"],
        sender=fields["sender"],
        receiver=fields["receiver"],
        body=body,
        signature=signature,
    )


def test_published_is_generated() -> None:
    assert vectors.check(PUBLISHED, "mpyc") == []
    assert len(NEGATIVE) >= 20


@pytest.mark.parametrize(("name", "opened"), [("all", ["10", "18"]), ("shares-with-two", ["6", "14"])])
def test_runs_open_what_was_shared(name: str, opened: list[str]) -> None:
    """What the servers sign is in the run's own file, and holds under their keys."""
    run = json.loads((PUBLISHED / f"run-{name}.json").read_bytes())
    assert run["result"]["opened"] == opened
    assert len(run["result"]["faults"]) == 4 - len(run["result"]["included"])
    outputs = [message for message in run["messages"] if message["step"] == "output"]
    assert {message["sender"] for message in outputs} == set(run["session"]["servers"])
    statement = bytes.fromhex(run["output_statement"])
    for message in outputs:
        key = bytes.fromhex(run["members"][message["sender"]]["public_key"])
        # The signature is the last field of the body.
        verify(key, statement, bytes.fromhex(message["body"])[-64:])


@pytest.mark.parametrize("name", ["of-a-table", "cut-to-its-range"])
def test_a_users_kernel_opens_what_its_circuit_gives(name: str) -> None:
    """From the file alone: its circuit, evaluated gate by gate on each pair, cut to the declared range."""
    vector = json.loads((PUBLISHED / f"kernel-{name}.json").read_bytes())
    described = vector["kernel"]
    circuit = parse_bristol(described["circuit"].encode())
    assert circuit.digest.hex() == described["digest"]
    assert json.loads(json.loads(vector["terms"])["kernel_terms"]) == described
    pairs = [[vector["codes"][party] for party in pair] for pair in vector["pairs"]]
    integers = [min(circuit.evaluate([*x, *y])[0], described["steps"]) for x, y in pairs]
    assert vector["opened"] == [str(sum(integers))]
    terms = msgspec.json.decode(vector["terms"], type=ProgramTerms)
    assert terms.digest.hex() == vector["terms_digest"]
    assert run_alone(Program(terms=terms), vector["codes"]) == [sum(integers)]


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem.removeprefix("negative-"))
def test_fault_is_refused(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    culprit, left_out, error = end_of(envelope(vector["message"]))
    if vector["expect"]["left_out"]:
        assert left_out == (vector["expect"]["left_out"],)
    else:
        assert culprit == vector["expect"]["culprit"]
    check_reason(path, str(error))
    check_code(path, error)
