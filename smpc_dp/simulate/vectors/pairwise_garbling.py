"""The known-answer vectors of garbling: made here, published in `protocols/pairwise/vectors`.

Each file holds a circuit, a run's parameters, seeds and inputs, and every byte that follows from them. That
folder is only ever read to be compared; the folder's other files are none of ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto import garble
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation

JsonObject = dict[str, object]
Bytes = NDArray[np.uint8]

SCHEMA = 1
PREFIX = "garbling-"
# op, a, b, out.
Gate = tuple[int, int, int, int]


@dataclass(frozen=True)
class Scenario:
    """One vector: `gates` over `n_inputs` inputs, every wire but these given by one gate."""

    name: str
    about: str
    n_inputs: int
    gates: Sequence[Gate]
    outputs: Sequence[int]
    mode: garble.Mode
    tile: int
    n_instances: int
    first_instance: int = 0


_ONE_AND: Sequence[Gate] = ((1, 0, 1, 2),)
# A full adder, a wire with itself, an inverse with its wire, both constants, a copy, and two levels.
_MIXED: Sequence[Gate] = (
    (0, 0, 1, 3),
    (0, 3, 2, 4),
    (1, 3, 2, 5),
    (1, 0, 1, 6),
    (0, 5, 6, 7),
    (1, 7, 7, 8),
    (2, 8, 0, 9),
    (1, 8, 9, 10),
    (3, 1, 0, 11),
    (3, 0, 0, 12),
    (1, 11, 4, 13),
    (1, 12, 13, 14),
    (4, 13, 0, 15),
    (1, 15, 0, 16),
)
_MIXED_OUTPUTS = (4, 7, 10, 11, 12, 16, 16, 0)

SCENARIOS = (
    Scenario("one-and", "One AND gate of one instance.", 2, _ONE_AND, (2,), garble.Mode.UNIQUE, 1, 1),
    Scenario(
        "unique-single",
        "Every kind of gate; a key for each half-gate and instance; tables level by level.",
        *(3, _MIXED, _MIXED_OUTPUTS, garble.Mode.UNIQUE, 1, 3, 5),
    ),
    Scenario(
        "unique-tiled",
        "Every kind of gate; a key for each half-gate and instance; tiles of four, the last not full.",
        *(3, _MIXED, _MIXED_OUTPUTS, garble.Mode.UNIQUE, 4, 6),
    ),
    Scenario(
        "tile",
        "Every kind of gate; a key for each half-gate and tile of four, the last not full.",
        *(3, _MIXED, _MIXED_OUTPUTS, garble.Mode.TILE, 4, 6, 8),
    ),
)


def generate() -> dict[str, bytes]:
    """Return the content of every published file by its name; the same bytes on every machine."""
    return {f"{PREFIX}{scenario.name}.json": _encode(to_json(scenario)) for scenario in SCENARIOS}


def compiled(scenario: Scenario) -> garble.GarblingCircuit:
    """Return the scenario's circuit, compiled."""
    op, a, b, out = np.array(scenario.gates, dtype=np.uint32).T
    return garble.compile_circuit(
        op.astype(np.uint8),
        np.ascontiguousarray(a),
        np.ascontiguousarray(b),
        np.ascontiguousarray(out),
        n_wires=scenario.n_inputs + len(scenario.gates),
        n_inputs=scenario.n_inputs,
        outputs=np.array(scenario.outputs, dtype=np.uint32),
    )


def to_json(scenario: Scenario) -> JsonObject:
    """Return one vector; arrays of labels are lists by wire, then by instance, of hex."""
    source = SeededRandomnessForSimulation(3, f"pairwise vectors garbling {scenario.name}")
    seed, start = source.bytes(garble.SEED_BYTES), source.bytes(garble.START_BYTES)
    drawn = np.frombuffer(source.bytes(scenario.n_inputs * scenario.n_instances), dtype=np.uint8)
    bits = np.bitwise_and(drawn, np.uint8(1)).reshape(scenario.n_inputs, scenario.n_instances)
    run = garble.Run(
        start, scenario.mode, scenario.tile, scenario.n_instances, first_instance=scenario.first_instance
    )
    circuit = compiled(scenario)
    garbler = garble.Garbler(circuit, run, seed)
    evaluator = garble.Evaluator(circuit, run)
    active = garbler.encode(0, bits)
    evaluator.set_input_labels(0, active)
    tables = garbler.next_tables(circuit.table_bytes(scenario.n_instances)) or b""
    evaluator.feed(tables)
    return {
        "schema": SCHEMA,
        "kind": "garbling",
        "name": scenario.name,
        "about": scenario.about,
        "circuit": {
            "n_wires": scenario.n_inputs + len(scenario.gates),
            "n_inputs": scenario.n_inputs,
            "gates": [list(gate) for gate in scenario.gates],
            "outputs": list(scenario.outputs),
        },
        "mode": scenario.mode.value,
        "tile": scenario.tile,
        "first_instance": scenario.first_instance,
        "n_instances": scenario.n_instances,
        "seed": seed.hex(),
        "start": start.hex(),
        "input_bits": bits.tolist(),
        "deltas": _hex(garbler.deltas()),
        "input_zero_labels": _hex(garbler.zero_labels(0, scenario.n_inputs)),
        "input_labels": _hex(active),
        "tables": tables.hex(),
        "output_zero_labels": _hex(garbler.output_zero_labels()),
        "output_labels": _hex(evaluator.output_labels()),
        "output_hashes": _hex(garbler.output_hashes()),
        "output_bits": garble.decode(evaluator.output_colours(), garbler.output_colours()).tolist(),
    }


def _hex(array: Bytes) -> object:
    """Return the last axis as hex, the others as lists."""
    return array.tobytes().hex() if array.ndim == 1 else [_hex(part) for part in array]


def _encode(content: JsonObject) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=True) + "\n").encode()
