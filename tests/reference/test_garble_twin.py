"""The published garbling vectors, made again by the twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.simulate.vectors import pairwise_garbling as vectors
from tests.reference import garble_twin as twin

PUBLISHED = Path(__file__).parents[2] / "protocols" / "pairwise" / "vectors"
NAMES = sorted(f"garbling-{scenario.name}.json" for scenario in vectors.SCENARIOS)


def test_published_is_generated() -> None:
    assert vectors.check(PUBLISHED) == []


def test_check_sees_every_difference(tmp_path: Path) -> None:
    names = vectors.write(tmp_path)
    assert names == NAMES
    assert vectors.check(tmp_path) == []
    (tmp_path / names[0]).unlink()
    (tmp_path / names[1]).write_bytes((tmp_path / names[1]).read_bytes() + b" ")
    (tmp_path / "garbling-other.json").write_text("{}")
    assert vectors.check(tmp_path) == [
        f"{names[0]}: is missing",
        "garbling-other.json: is not one of the vectors",
        f"{names[1]}: differs from what the code produces",
    ]


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
