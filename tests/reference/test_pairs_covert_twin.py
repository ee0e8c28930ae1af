"""Covert evaluations and the verdicts on their certificates, made again by the twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from smpc_dp_verify.errors import Refused
from tests.reference import pairs_covert_twin as twin
from tests.reference.published import sources_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "covert" / "vectors"
RUNS = sorted(PUBLISHED.glob("run-*.json"))
CERTIFICATES = sorted(PUBLISHED.glob("*certificate-*.json"))
# Two further copies of what other runs show.
LONG = {"run-evaluator"}
WHY_NOT = {
    "changed-session": "session",
    "circuit": "plan",
    "closed-copy": "closed copy",
    "copies": "plan",
    "copy": "commitment",
    "evaluator-first": "the evaluator deviated first",
    "evaluator-inputs": "plan",
    "first-message": "seeds",
    "first-seed": "commitment",
    "format": "format",
    "honest": "the garbler is honest",
    "instances": "plan",
    "mode": "plan",
    "no-such-copy": "copy",
    "seed": "commitment",
    "trailing-byte": "malformed",
    "truncated": "malformed",
}
LEARNS = {"garbler": ["alice"], "evaluator": ["bob"], "both": ["alice", "bob"], "aggregator": ["hub"]}


def sent(vector: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """The messages of a vector by sender and receiver."""
    messages: dict[tuple[str, str], list[str]] = {}
    for message in vector["messages"]:
        messages.setdefault((message["sender"], message["receiver"]), []).append(message["bytes"])
    return messages


def played(vector: dict[str, Any]) -> tuple[twin.Evaluation, dict[tuple[str, str], list[str]]]:
    """The twin's run of a vector, and its messages in the same form."""
    run = twin.Evaluation(vector)
    run.execute()
    return run, {ends: [data.hex() for data in messages] for ends, messages in run.sent.items()}


def test_the_twin_imports_nothing_of_the_library() -> None:
    source = sources_of(twin)
    assert "import smpc_dp" not in source
    assert "from smpc_dp" not in source


@pytest.mark.thin(7)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.long) if path.stem in LONG else path for path in RUNS],
    ids=lambda path: path.stem.removeprefix("run-"),
)
def test_published_run(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    run, messages = played(vector)
    assert messages == sent(vector)
    assert vector["intermediate"] == {
        "circuit_digest": run.circuit.digest().hex(),
        "plan_digest": run.plan_digest().hex(),
        "run_id": run.run_id.hex(),
        "transcript": run.value().hex(),
    }
    assert vector["plan"] == {"tile": run.tile, "block": vector["session"]["instances"]}
    assert all(party.has_drawn_all() for party in run.everyone), "random bytes are left over"
    for party in run.everyone:
        learned = party.name in LEARNS[vector["session"]["output"]]
        assert vector["result"][party.name] == (run.values() if learned else None)
    wires = range(run.circuit.plain.n_inputs)
    results = [run.circuit.plain.plain([run.inputs[n, wire] for wire in wires]) for n in run.instances]
    assert run.outputs == [list(column) for column in zip(*results, strict=True)]


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, draws in (("alice", 3), ("bob", 5)) for number in range(draws)],
)
def test_another_draw_gives_other_messages(name: str, number: int) -> None:
    vector = json.loads((PUBLISHED / "run-evaluator-has-no-input.json").read_bytes())
    draw = bytes.fromhex(vector["randomness"][name][number])
    vector["randomness"][name][number] = bytes([draw[0] ^ 1, *draw[1:]]).hex()
    run, messages = played(vector)
    assert messages != sent(vector)
    assert run.values() == vector["result"][name]


@pytest.mark.thin(7)
@pytest.mark.parametrize("path", CERTIFICATES, ids=lambda path: path.stem)
def test_published_certificate(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    content = bytes.fromhex(vector["certificate"])
    if vector["convicts"] is None:
        reason = WHY_NOT.get(path.stem.removeprefix("no-certificate-"), "signature")
        with pytest.raises(Refused, match=f"^{reason}$"):
            twin.judge(content)
    else:
        assert twin.judge(content) == vector["convicts"]
        of_session = msgspec.structs.replace(twin.read(content, twin.Certificate), session=b"{}")
        with pytest.raises(Refused, match=r"^session$"):
            twin.judge(msgspec.msgpack.encode(of_session))
