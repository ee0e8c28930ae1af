"""Every message of the published pairwise statistics, made again from the specification alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.reference import pairs_statistic_twin as twin
from tests.reference.published import sources_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "pairwise" / "vectors"
RUNS = sorted(PUBLISHED.glob("statistic-run-*.json"))


def test_the_twin_imports_nothing_of_the_library() -> None:
    source = sources_of(twin)
    assert "import smpc_dp" not in source
    assert "from smpc_dp" not in source


def test_every_kind_of_run_is_published() -> None:
    vectors = [json.loads(path.read_bytes()) for path in RUNS]
    assert len(vectors) >= 4
    assert any(vector["session"]["relayed"] for vector in vectors)
    assert any(vector["session"]["silent"] for vector in vectors)
    assert any(vector["labels"] for vector in vectors)


@pytest.mark.thin(4)
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_published_run(path: Path) -> None:
    vector: dict[str, Any] = json.loads(path.read_bytes())
    ran = twin.Statistic(vector)
    ran.execute()
    assert vector["intermediate"] == {
        "circuit_digest": ran.circuit.digest().hex(),
        "plan_digest": ran.plan.hex(),
        "run_id": ran.run.hex(),
        "beacon": ran.beacon.hex(),
        "pairs": [[list(pair) for pair in pairs] for pairs in ran.pairs],
    }
    assert vector["log"] == ran.lines
    assert vector["result"]["value"] == pytest.approx(ran.value)
    for published, evaluation in zip(vector["evaluations"], ran.evaluations, strict=True):
        made = {connection: list(messages) for connection, messages in evaluation.sent.items()}
        for message in published["messages"]:
            assert made[message["sender"], message["receiver"]].pop(0).hex() == message["bytes"]
        ends = (published["garbler"], published["evaluator"])
        assert not made[ends]
        assert not made[ends[::-1]]
    passed_on: list[tuple[str, bytes]] = []
    seen: dict[Any, list[int]] = {}
    for message in vector["messages"]:
        run, step, sender, receiver, body, _ = msgspec.msgpack.decode(bytes.fromhex(message["bytes"]))
        assert (step, sender, receiver) == (message["step"], message["sender"], message["receiver"])
        if step == "abort":
            # To whom a draw goes on without: its text is not specified.
            assert (sender, receiver in vector["session"]["silent"]) == ("hub", True)
            continue
        if step == "relay" and sender != "hub":
            ran.relayed(sender, body, seen)
            passed_on.append((sender, body))
            expected = (ran.run, body)
        elif step == "relay":
            peer, first = passed_on.pop(0)
            assert receiver == ran.partner(peer, first)
            expected = (ran.run, first)
        else:
            expected = ran.expected[step, sender, receiver].popleft()
        assert expected == (run, body)
        assert message["bytes"] == ran.envelope(*expected[:1], step, sender, receiver, expected[1]).hex()
    assert not any(ran.expected.values())
    assert not passed_on
    if vector["session"]["relayed"]:
        assert {(matching, name): len(ran.frames[name, peer]) for matching, name, peer in ran.ends()} == {
            where: sent for where, (sent, _) in seen.items()
        }
