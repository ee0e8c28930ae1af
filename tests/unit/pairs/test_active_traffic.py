"""Bytes and rounds that are planned of an evaluation secure against both sides are those that are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.active import plan as planning
from smpc_dp.capabilities.pairs.active.traffic import STORED_SECONDS, Traffic, traffic_of, typical_pair
from smpc_dp.capabilities.pairs.circuits.bristol import parse_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp_lab.bench.active import PAIR, counted
from tests.active_pairs import HUB, Pair, plan_of

FREE = """2 5
3 1 1 1
1 2

2 1 0 1 3 XOR
2 1 3 2 4 XOR
"""
WIDE = find(PAIR).build()
LESS = find("less_u16").build()


def traffic(plan: planning.ActivePlan) -> Traffic:
    """What is counted of a first evaluation."""
    widths = [plan.circuit.inputs[index] for index in plan.given(range(len(plan.circuit.inputs)))]
    roles = Pair().roles(plan, [[0] * plan.parameters.instances for _ in widths])
    return counted(roles)


@pytest.mark.parametrize(
    ("circuit", "instances", "group", "fields"),
    [
        *(
            (LESS, 5, 1 << 16, {"output": output})
            for output in ("garbler", "evaluator", "both", "aggregator")
        ),
        *((LESS, 5, 40, {"output": output}) for output in ("garbler", "evaluator", "both", "aggregator")),
        (LESS, 1, 1 << 16, {"k": 2}),
        (LESS, 3, 1 << 16, {"evaluator_inputs": [0, 1]}),
        (LESS, 3, 10, {}),
        (WIDE, 40, 1 << 16, {"random_inputs": [2, 5], "evaluator_inputs": [3, 4, 5], "output": "aggregator"}),
        (parse_bristol(FREE.encode()), 7, 1 << 16, {"output": "aggregator"}),
        (parse_bristol(FREE.encode()), 7, 1 << 16, {"evaluator_inputs": []}),
    ],
)
def test_planned_bytes_and_rounds_are_those_that_are_counted(
    monkeypatch: pytest.MonkeyPatch, circuit: Circuit, instances: int, group: int, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(planning, "GROUP", group)
    plan = plan_of(circuit, instances, **fields)
    assert traffic_of(plan, HUB) == traffic(plan)


def test_the_typical_pair_is_that_of_the_stored_benchmark() -> None:
    """The benchmark's pair has output to both, so that it sends less and waits for fewer messages."""
    stored = json.loads((Path(__file__).parents[3] / "benchmarks" / "results-active.json").read_bytes())
    medians = {figure["name"]: figure["median"] for figure in stored["figures"]}
    pair = typical_pair()
    name = f"fresh pair, {pair.gates} ANDs"
    assert medians[name] == pytest.approx(STORED_SECONDS, rel=0.2)
    assert medians[f"{name}, sent"] < pair.sent < 1.05 * medians[f"{name}, sent"]
    assert medians[f"{name}, rounds"] + 3 == pair.rounds
    assert pair.seconds == pytest.approx(STORED_SECONDS / 2 + pair.rounds * 0.025)
