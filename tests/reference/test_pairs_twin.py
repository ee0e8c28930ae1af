"""Whole two-party evaluations, made again by the twin: what is published, and runs of random circuits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.circuits.builder import Builder
from smpc_dp.capabilities.pairs.garbled.params import Mode, Output, PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp_lab.vectors import pairwise_runs as runs
from smpc_dp_verify import ristretto
from tests.reference import blake3_twin, garble_twin, ot_twin
from tests.reference import pairs_twin as twin
from tests.reference.published import sources_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "pairwise" / "vectors"
RUNS = sorted(PUBLISHED.glob("run-*.json"))
LEARNS = {"garbler": ["alice"], "evaluator": ["bob"], "both": ["alice", "bob"], "aggregator": ["hub"]}


OUTPUTS: list[Output] = ["garbler", "evaluator", "both", "aggregator"]
MODES: list[Mode] = ["tile", "unique"]
USUAL = twin.Limits()


def agrees(vector: dict[str, Any], limits: twin.Limits = USUAL) -> None:
    """Play a vector and compare every message, digest and result."""
    before = None
    if vector["before"]:
        before = twin.Evaluation(json.loads((PUBLISHED / vector["before"]).read_bytes()), limits)
        before.execute()
    ran = twin.Evaluation(vector, limits, before)
    ran.execute()
    sent: dict[tuple[str, str], list[str]] = {}
    for message in vector["messages"]:
        sent.setdefault((message["sender"], message["receiver"]), []).append(message["bytes"])
    assert {
        connection: [data.hex() for data in messages] for connection, messages in ran.sent.items()
    } == sent
    assert vector["intermediate"] == {
        "circuit_digest": ran.circuit.digest().hex(),
        "plan_digest": ran.plan_digest().hex(),
        "run_id": ran.run_id.hex(),
        "transcript": ran.value().hex(),
    }
    assert vector["plan"] == {"tile": ran.tile, "block": len(ran.blocks()[0])}
    assert all(party.has_drawn_all() for party in ran.everyone), "random bytes are left over"
    for party in ran.everyone:
        learned = party.name in LEARNS[vector["session"]["output"]]
        assert vector["result"][party.name] == (ran.values() if learned else None)
    results: list[Sequence[int]] = []
    for n in range(vector["session"]["instances"]):
        indices = range(len(ran.circuit.inputs))
        bits = [row[0] for index in indices for row in ran.bits(index, range(n, n + 1))]
        results.append(ran.circuit.plain.plain(bits))
    assert ran.outputs == [list(column) for column in zip(*results, strict=True)]


def test_the_twins_import_nothing_of_the_library() -> None:
    for module in (twin, blake3_twin, garble_twin, ot_twin, ristretto):
        source = sources_of(module)
        assert "import smpc_dp" not in source
        assert "from smpc_dp" not in source


def test_every_kind_of_run_is_published() -> None:
    sessions = [json.loads(path.read_bytes())["session"] for path in RUNS]
    assert {session["output"] for session in sessions} == set(LEARNS)
    assert {session["mode"] for session in sessions} == {"tile", "unique"}
    assert len(sessions) == len(runs.SCENARIOS) >= 10


@pytest.mark.parametrize(
    "name", ["add64", "mul64", "popcount64", "aes128", pytest.param("sha256", marks=pytest.mark.long)]
)
def test_both_cut_a_batch_alike(name: str) -> None:
    built = find(name).build()
    circuit = twin.Circuit.parse(format_bristol(built).decode())
    assert circuit.digest() == built.digest
    held = twin.slots(circuit.plain)
    for instances in (1, 15, 16, 5_000, 1_000_000):
        parameters = PairwiseParameters(name, "alice", "bob", instances=instances)
        plan = Plan(built, parameters)
        most = USUAL.block_labels // max(*built.inputs, built.n_outputs)
        assert twin.tile_of(held, instances, most) == plan.tile


@pytest.mark.thin(8)
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem.removeprefix("run-"))
def test_published_run(path: Path) -> None:
    agrees(json.loads(path.read_bytes()))


@pytest.mark.parametrize("output", ["both", pytest.param("aggregator", marks=pytest.mark.long)])
def test_blocks_and_chunks(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks, the last not full, and chunks of transfers that end anywhere."""
    limits = twin.Limits(block_labels=48, transfers=10)
    monkeypatch.setattr("smpc_dp.capabilities.pairs.garbled.plan.BLOCK_LABELS", limits.block_labels)
    for module in ("plan", "garbler", "evaluator"):
        monkeypatch.setattr(f"smpc_dp.capabilities.pairs.garbled.{module}.TRANSFERS", limits.transfers)
    run = runs.new_run(runs.Scenario("blocks", "", output, 40)).execute()
    assert [block.count for block in run.plan.blocks()] == [16, 16, 8]
    agrees(runs.run_json(run), limits)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_random_circuits(seed: int) -> None:
    random = Random(seed)
    builder = Builder()
    bits = [bit for width in (3, 1, 4) for bit in builder.input(width)] + list(builder.constant(2, 2))
    for _ in range(30):
        a, b = random.choice(bits), random.choice(bits)
        bits.append(random.choice([builder.and_(a, b), builder.xor(a, b), builder.not_(a)]))
    for width in (2, 5):
        builder.output(random.choices(bits, k=width))
    theirs = tuple(sorted(random.sample(range(3), random.randint(1, 3))))
    scenario = runs.Scenario(
        f"random {seed}",
        "",
        output=random.choice(OUTPUTS),
        instances=random.choice([1, 7, 20]),
        mode=random.choice(MODES),
        evaluator_inputs=theirs,
        circuit=format_bristol(builder.build()).decode(),
    )
    agrees(runs.to_json(scenario))
