"""Whole evaluations that are secure against both sides, made again by the twin, and their faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference import active_twin
from tests.reference import pairs_active_twin as twin
from tests.reference.published import sources_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "active" / "vectors"
RUNS = sorted(PUBLISHED.glob("run-*.json"))
FAULTS = sorted(PUBLISHED.glob("negative-*.json"))
LEARNS = {"garbler": ["alice"], "evaluator": ["bob"], "both": ["alice", "bob"], "aggregator": ["hub"]}


def sent(vector: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """The messages of a vector by sender and receiver."""
    messages: dict[tuple[str, str], list[str]] = {}
    for message in vector["messages"]:
        messages.setdefault((message["sender"], message["receiver"]), []).append(message["bytes"])
    return messages


def made(vector: dict[str, Any], fault: dict[str, Any] | None = None) -> twin.Evaluation:
    """The twin's run of a vector, before it is executed."""
    before = None
    if vector["before"]:
        before = made(json.loads((PUBLISHED / vector["before"]).read_bytes()))
        before.execute()
    return twin.Evaluation(vector, before, fault)


def test_the_twins_import_nothing_of_the_library() -> None:
    source = sources_of(twin, active_twin)
    assert "import smpc_dp" not in source
    assert "from smpc_dp" not in source


@pytest.mark.long
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem.removeprefix("run-"))
def test_published_run(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    run = made(vector)
    run.execute()
    messages = {ends: [data.hex() for data in listed] for ends, listed in run.sent.items()}
    assert messages == sent(vector)
    assert run.both is not None
    block, names = run.block, [party.name for party in run.everyone[:2]]
    assert vector["intermediate"] == {
        "circuit_digest": run.circuit.digest().hex(),
        "plan_digest": run.plan_digest().hex(),
        "run_id": run.run_id.hex(),
        "transcript": run.value().hex(),
        "contexts": {name: one.context.hex() for name, one in zip(names, run.both.setups, strict=True)},
        "deltas": {name: one.delta.hex() for name, one in zip(names, run.both.setups, strict=True)},
        "keys": active_twin.octets(run.both.start).hex(),
        "groups": [
            {"triples": block.l, "size": block.B, "key": block.shuffle.hex(), "order": block.order}
            for _ in block.gates[:1]
        ],
    }
    assert vector["plan"] == {"tile": run.tile, "block": vector["session"]["instances"]}
    assert all(party.has_drawn_all() for party in run.everyone), "random bytes are left over"
    for party in run.everyone:
        learned = party.name in LEARNS[vector["session"]["output"]]
        assert vector["result"][party.name] == (run.values() if learned else None)
    plain = run.circuit.plain
    results = []
    for n in range(vector["session"]["instances"]):
        bits = [block.inputs[0].get(wire, block.inputs[1].get(wire)) for wire in range(plain.n_inputs)]
        drawn = [block.masks[wire, n].opened() if row is None else row[n] for wire, row in enumerate(bits)]
        results.append(plain.plain(drawn))
    assert run.outputs == [list(column) for column in zip(*results, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem.removeprefix("negative-"))
def test_published_fault(path: Path) -> None:
    fault = json.loads(path.read_bytes())
    run = made(json.loads((PUBLISHED / fault["base"]).read_bytes()), fault)
    with pytest.raises(active_twin.Stopped) as stopped:
        run.execute()
    side = [party.name for party in run.everyone].index(fault["receiver"])
    assert (stopped.value.side, stopped.value.check) == (side, fault["expect"]["layer"])
