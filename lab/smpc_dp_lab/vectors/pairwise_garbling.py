"""Known-answer vectors of garbling: generated here, published in `protocols/pairwise/vectors`.

Each file holds a circuit, a run's parameters, seeds and inputs, and every byte that follows from them. That
folder is only ever read to be compared; its other files are generated elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto import garble
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.vectors.runs import header

JsonObject = dict[str, object]
Bytes = NDArray[np.uint8]

PREFIX = "garbling-"
# op, a, b, out.
Gate = tuple[int, int, int, int]


@dataclass(frozen=True)
class Scenario:
    """One vector: `gates` over `n_inputs` inputs; every other wire is given by one gate."""

    name: str
    about: str
    n_inputs: int
    gates: Sequence[Gate]
    outputs: Sequence[int]
    mode: garble.Mode
    tile: int
    n_instances: int
    first_instance: int = 0
    open_wires: Sequence[int] = ()
    """Inputs of the garbler whose active labels are drawn from a public seed."""
    transferred: Sequence[int] = ()
    """Inputs whose labels come of random transfers."""


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
    Scenario(
        "inputs",
        "As `tile`; inputs 2 and 0 are the garbler's, from an open seed, input 1 comes of transfers.",
        *(3, _MIXED, _MIXED_OUTPUTS, garble.Mode.TILE, 4, 6, 8, (2, 0), (1,)),
    ),
)


def generate() -> dict[str, JsonObject]:
    """Return the content of every published file by its name; the same on every host."""
    return {f"{PREFIX}{scenario.name}": to_json(scenario) for scenario in SCENARIOS}


def compiled(scenario: Scenario) -> garble.GarblingCircuit:
    """Return the circuit of the scenario's gates, compiled for garbling."""
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


def to_json(scenario: Scenario, kernel: str | None = None) -> JsonObject:
    """Return one vector; arrays of labels are lists by wire, then by instance, of hex.

    `kernel`: one of the core's, all of which make the same bytes; None for the fastest.
    """
    source = SeededRandomnessForSimulation(3, f"pairwise vectors garbling {scenario.name}")
    seed, start = source.bytes(garble.SEED_BYTES), source.bytes(garble.START_BYTES)
    drawn = np.frombuffer(source.bytes(scenario.n_inputs * scenario.n_instances), dtype=np.uint8)
    bits = np.bitwise_and(drawn, np.uint8(1)).reshape(scenario.n_inputs, scenario.n_instances)
    run = garble.Run(
        start,
        scenario.mode,
        scenario.tile,
        scenario.n_instances,
        first_instance=scenario.first_instance,
        kernel=kernel,
    )
    circuit = compiled(scenario)
    garbler = garble.Garbler(circuit, run, seed)
    evaluator = garble.Evaluator(circuit, run)
    inputs = _give_inputs(scenario, source, garbler, evaluator, bits)
    active = garbler.encode(0, bits)
    if not inputs:
        evaluator.set_input_labels(0, active)
    tables = garbler.next_tables(circuit.table_bytes(scenario.n_instances)) or b""
    evaluator.feed(tables)
    return {
        **header("garbling", scenario.name, scenario.about),
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
        **inputs,
        "deltas": _hex(garbler.deltas()),
        "input_zero_labels": _hex(garbler.zero_labels(0, scenario.n_inputs)),
        "input_labels": _hex(active),
        "tables": tables.hex(),
        "output_zero_labels": _hex(garbler.output_zero_labels()),
        "output_labels": _hex(evaluator.output_labels()),
        "output_hashes": _hex(garbler.output_hashes()),
        "output_bits": (evaluator.output_colours() ^ garbler.output_colours()).tolist(),
    }


def _give_inputs(
    scenario: Scenario,
    source: SeededRandomnessForSimulation,
    garbler: garble.Garbler,
    evaluator: garble.Evaluator,
    bits: Bytes,
) -> JsonObject:
    """Give labels to the inputs that are open or transferred, and return the data from which they follow."""
    if not scenario.open_wires:
        return {}
    wires = np.array(scenario.open_wires, np.uint32)
    seed = source.bytes(garble.START_BYTES)
    garbler.open_inputs(wires, bits[wires], seed)
    evaluator.open_inputs(wires, seed)
    wires = np.array(scenario.transferred, np.uint32)
    choices = bits[wires].reshape(-1)
    drawn = np.frombuffer(source.bytes(2 * choices.size * garble.LABEL_BYTES), np.uint8)
    pads = drawn.reshape(2, choices.size, garble.LABEL_BYTES)
    corrections = np.empty_like(pads[1])
    # In two chunks, the second of which begins within a wire.
    for part in (slice(0, 4), slice(4, choices.size)):
        both = np.ascontiguousarray(pads[:, part])
        chosen = both[choices[part], np.arange(both.shape[1])]
        garbler.transfer(wires, part.start, both)
        evaluator.transfer(wires, part.start, choices[part], chosen, both[1].reshape(-1))
        corrections[part] = both[1]
    return {
        "open": {"wires": list(scenario.open_wires), "seed": seed.hex()},
        "transferred": {
            "wires": list(scenario.transferred),
            "pads": _hex(pads),
            "corrections": _hex(corrections),
        },
    }


def _hex(array: Bytes) -> object:
    """Return an array of bytes as nested lists, with its last axis as hex text."""
    return array.tobytes().hex() if array.ndim == 1 else [_hex(part) for part in array]
