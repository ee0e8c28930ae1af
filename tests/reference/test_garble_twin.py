"""The published garbling vectors, made again by the twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.simulate.vectors import pairwise_garbling
from tests.reference import garble_twin as twin

PUBLISHED = Path(__file__).parents[2] / "protocols" / "pairwise" / "vectors"
NAMES = sorted(f"garbling-{scenario.name}.json" for scenario in pairwise_garbling.SCENARIOS)


def hexed(label: int) -> str:
    return label.to_bytes(16, "little").hex()


@pytest.mark.parametrize("name", NAMES)
def test_the_twin_makes_the_published_bytes(name: str) -> None:
    vector: dict[str, Any] = json.loads((PUBLISHED / name).read_bytes())
    shape = vector["circuit"]
    circuit = twin.Circuit(
        shape["n_wires"], shape["n_inputs"], [twin.Gate(*gate) for gate in shape["gates"]], shape["outputs"]
    )
    setting = twin.Setting(
        bytes.fromhex(vector["start"]),
        vector["mode"],
        vector["tile"],
        vector["n_instances"],
        vector["first_instance"],
    )
    garbled = twin.garble(circuit, setting, bytes.fromhex(vector["seed"]))
    stream = twin.tables(circuit, setting, garbled)
    inputs, bits = range(circuit.n_inputs), vector["input_bits"]
    assert vector["deltas"] == [hexed(one.delta) for one in garbled]
    assert vector["input_zero_labels"] == [[hexed(one.zeros[wire]) for one in garbled] for wire in inputs]
    active = [
        [one.zeros[wire] ^ one.delta * bits[wire][k] for wire in inputs] for k, one in enumerate(garbled)
    ]
    assert vector["input_labels"] == [[hexed(labels[wire]) for labels in active] for wire in inputs]
    assert vector["tables"] == stream.hex()
    assert vector["output_zero_labels"] == [
        [hexed(one.zeros[wire]) for one in garbled] for wire in circuit.outputs
    ]
    evaluated = [
        twin.evaluate_one(circuit, twin.keys_of(setting, instance), rows, labels)
        for instance, rows, labels in zip(
            setting.instances(), twin.rows_of(circuit, setting, stream), active, strict=True
        )
    ]
    assert vector["output_labels"] == [[hexed(one[wire]) for one in evaluated] for wire in circuit.outputs]
    assert vector["output_hashes"] == [
        [[hexed(label) for label in pair] for pair in row]
        for row in twin.output_hashes(circuit, setting, garbled)
    ]
    meant = [circuit.plain([bits[wire][k] for wire in inputs]) for k in range(len(garbled))]
    assert vector["output_bits"] == [
        [values[place] for values in meant] for place in range(len(circuit.outputs))
    ]
