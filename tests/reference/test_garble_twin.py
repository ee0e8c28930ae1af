"""The published garbling vectors, made again by the twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp import _core
from smpc_dp_lab.vectors import pairwise_garbling
from tests.reference import garble_twin as twin

PUBLISHED = Path(__file__).parents[2] / "protocols" / "pairwise" / "vectors"
NAMES = sorted(f"garbling-{scenario.name}.json" for scenario in pairwise_garbling.SCENARIOS)


def hexed(label: int) -> str:
    return label.to_bytes(16, "little").hex()


def given_labels(vector: dict[str, Any], setting: twin.Setting) -> dict[tuple[int, int], int]:
    """The zero labels that do not come from the secret seed; the vector's corrections are checked."""
    if "open" not in vector:
        return {}
    given, bits, secret = {}, vector["input_bits"], bytes.fromhex(vector["seed"])
    seed = bytes.fromhex(vector["open"]["seed"])
    for wire in vector["open"]["wires"]:
        for index, instance in enumerate(setting.instances()):
            active = twin.open_label(seed, instance, wire)
            given[instance, wire] = active ^ bits[wire][index] * twin.delta(secret, instance)
    chosen = vector["transferred"]
    rows = zip(*chosen["pads"], chosen["corrections"], strict=True)
    pairs = ((wire, instance) for wire in chosen["wires"] for instance in setting.instances())
    for (wire, instance), row in zip(pairs, rows, strict=True):
        first, second, correction = (int.from_bytes(bytes.fromhex(label), "little") for label in row)
        given[instance, wire] = first
        assert correction == first ^ second ^ twin.delta(secret, instance)
    return given


@pytest.mark.parametrize("scenario", pairwise_garbling.SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_kernel_makes_the_published_bytes(scenario: pairwise_garbling.Scenario) -> None:
    """The portable one, which machines without AES instructions take, among them."""
    vector = json.loads((PUBLISHED / f"garbling-{scenario.name}.json").read_bytes())
    assert _core.garbling_kernels()[0] == "portable"
    for kernel in _core.garbling_kernels():
        assert pairwise_garbling.to_json(scenario, kernel) == vector


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
    garbled = twin.garble(circuit, setting, bytes.fromhex(vector["seed"]), given_labels(vector, setting))
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
        [values[index] for values in meant] for index in range(len(circuit.outputs))
    ]
