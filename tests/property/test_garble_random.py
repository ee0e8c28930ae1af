"""Random circuits: garbled and evaluated in any way they give what they mean, and the twin's bytes."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp import _core
from smpc_dp.crypto import garble
from tests.examples import examples
from tests.reference import garble_twin as twin


def random_circuit(generator: random.Random, n_inputs: int, n_gates: int, n_outputs: int) -> twin.Circuit:
    gates = []
    for out in range(n_inputs, n_inputs + n_gates):
        op = generator.choice((twin.XOR, twin.AND, twin.AND, twin.INV, twin.EQ, twin.EQW)) if out else twin.EQ
        a = generator.randrange(2 if op == twin.EQ else out)
        b = generator.randrange(out) if op in (twin.XOR, twin.AND) else 0
        gates.append(twin.Gate(op, a, b, out))
    n_wires = n_inputs + n_gates
    outputs = [generator.randrange(n_wires) for _ in range(n_outputs if n_wires else 0)]
    return twin.Circuit(n_wires, n_inputs, gates, outputs)


def compiled(circuit: twin.Circuit) -> garble.GarblingCircuit:
    op, a, b, out = np.array(circuit.gates, dtype=np.uint32).reshape(-1, 4).T.copy()
    return garble.compile_circuit(
        *(op.astype(np.uint8), a, b, out),
        n_wires=circuit.n_wires,
        n_inputs=circuit.n_inputs,
        outputs=np.array(circuit.outputs, dtype=np.uint32),
    )


@given(
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.integers(0, 40),
    st.integers(0, 6),
    st.sampled_from(garble.Mode),
    st.sampled_from((1, 2, 3, 8, 16)),
    st.integers(1, 19),
    st.integers(1, 3),
    st.sampled_from(_core.garbling_kernels()),
    st.integers(1, 3000),
)
@settings(max_examples=examples(60))
def test_random_circuits(
    seed: int,
    n_inputs: int,
    n_gates: int,
    n_outputs: int,
    mode: garble.Mode,
    tile: int,
    n: int,
    threads: int,
    kernel: str,
    piece: int,
) -> None:
    generator = random.Random(seed)
    circuit = random_circuit(generator, n_inputs, n_gates, n_outputs)
    start, secret = generator.randbytes(16), generator.randbytes(32)
    first = tile * generator.randrange(3)
    run = garble.Run(start, mode, tile, n, first_instance=first, threads=threads, kernel=kernel)
    core = compiled(circuit)
    garbler, evaluator = garble.Garbler(core, run, secret), garble.Evaluator(core, run)
    bits = np.array([[generator.randrange(2) for _ in range(n)] for _ in range(n_inputs)], dtype=np.uint8)
    bits = bits.reshape(n_inputs, n)
    evaluator.set_input_labels(0, garbler.encode(0, bits))
    tables = b""
    while (made := garbler.next_tables(max(piece, 32 * tile))) is not None:
        tables += made
    evaluator.feed(b"")
    for at in range(0, len(tables), piece):
        evaluator.feed(tables[at : at + piece])
    meant = [circuit.plain([int(bit) for bit in column]) for column in bits.T]
    active = evaluator.output_colours()
    assert (active ^ garbler.output_colours()).T.tolist() == meant
    assert np.array_equal(
        garble.check_labels(evaluator.output_labels(), garbler.output_hashes(), run), active
    )
    setting = twin.Setting(start, mode.value, tile, n, first)
    assert tables == twin.tables(circuit, setting, twin.garble(circuit, setting, secret))
