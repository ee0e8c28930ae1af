"""The circuit type: what it refuses, its digest, and evaluation in the clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.circuits.circuit import MAX_WIRES, Circuit, Op, pack, unpack
from smpc_dp.errors import ConfigError

# Inputs are the wires 0 and 1; then w2 = w0 & w1, w3 = ~w2, w4 = 1, w5 = w3 ^ w4.
GATES = [(Op.AND, 0, 1, 2), (Op.INV, 2, 0, 3), (Op.EQ, 1, 0, 4), (Op.XOR, 3, 4, 5)]


def circuit(
    gates: Sequence[tuple[int, int, int, int]],
    inputs: tuple[int, ...] = (1, 1),
    outputs: tuple[int, ...] = (2, 1),
    wires: int | None = None,
) -> Circuit:
    table = np.array(gates, dtype=np.uint32).reshape(len(gates), 4)
    columns: Any = (table[:, 0].astype(np.uint8), table[:, 1], table[:, 2], table[:, 3])
    return Circuit(inputs, outputs, sum(inputs) + len(gates) if wires is None else wires, *columns)


def test_it_evaluates_and_counts() -> None:
    made = circuit(GATES)
    assert [made.evaluate([a, b]) for a in (0, 1) for b in (0, 1)] == [[3, 0], [3, 0], [3, 0], [2, 1]]
    assert (made.and_count, made.xor_count, made.count(Op.INV), made.and_depth) == (1, 1, 1, 1)


def test_many_instances_give_what_each_gives() -> None:
    made = circuit(GATES)
    a, b = [index % 2 for index in range(130)], [index // 2 % 2 for index in range(130)]
    rows = made.evaluate_many([pack(a, 1), pack(b, 1)])
    assert [list(values) for values in zip(*(unpack(row, 130) for row in rows), strict=True)] == [
        made.evaluate(list(values)) for values in zip(a, b, strict=True)
    ]


def test_pack_puts_an_instance_in_a_column() -> None:
    rows = pack([0b01, 0b10, 0b11, *[0] * 61, 0b10], 2)
    assert rows.tolist() == [[0b101, 0], [0b110, 1]]
    assert unpack(rows, 65) == [1, 2, 3, *[0] * 61, 2]


def test_the_digest_binds_everything() -> None:
    made = circuit(GATES)
    others = [
        circuit(GATES, inputs=(2,)),
        circuit(GATES, outputs=(1, 2)),
        circuit(GATES, outputs=(2,)),
        circuit([*GATES[:3], (Op.AND, 3, 4, 5)]),
        circuit([*GATES[:3], (Op.XOR, 4, 3, 5)]),
        circuit([GATES[0], GATES[2], GATES[1], GATES[3]]),
        circuit([*GATES[:2], (Op.EQ, 0, 0, 4), GATES[3]]),
    ]
    assert len({made.digest, *(other.digest for other in others)}) == 1 + len(others)
    assert made == circuit(GATES)
    assert hash(made) == hash(circuit(GATES))
    assert made != others[0]


def test_arrays_are_copied_and_read_only() -> None:
    op = np.array([Op.AND], dtype=np.uint8)
    columns = [np.array([value], dtype=np.uint32) for value in (0, 1, 2)]
    made = Circuit((1, 1), (1,), 3, op, *columns)
    op[0] = Op.XOR
    assert made.and_count == 1
    with pytest.raises(ValueError, match="read-only"):
        made.op[0] = Op.XOR


@pytest.mark.parametrize(
    ("gates", "named"),
    [
        ([(5, 0, 0, 2)], "gate 0: op"),
        ([(Op.EQ, 2, 0, 2)], "gate 0: a"),
        ([(Op.INV, 0, 1, 2)], "gate 0: b"),
        ([(Op.XOR, 0, 1, 3)], "gate 0: out"),
        ([(Op.XOR, 0, 1, 1)], "gate 0: out"),
        ([(Op.XOR, 3, 1, 2)], "gate 0: a"),
        ([(Op.XOR, 0, 3, 2)], "gate 0: b"),
        ([(Op.XOR, 0, 2, 2)], "gate 0: b: used before"),
        ([(Op.XOR, 3, 0, 2), (Op.XOR, 2, 0, 3)], "gate 0: a: used before"),
        ([(Op.XOR, 0, 1, 2), (Op.XOR, 0, 1, 2)], "gate 0: out"),
    ],
)
def test_bad_gates_are_named(gates: list[tuple[int, int, int, int]], named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}"):
        circuit(gates, outputs=(1,))


@pytest.mark.parametrize(
    ("inputs", "outputs", "wires"),
    [
        ((1, 1), (), 6),
        ((1, 1), (7,), 6),
        ((2, 0), (1,), 6),
        ((1, 1), (0, 1), 6),
        ((1, 1), (1,), 7),
        ((MAX_WIRES, 1), (1,), MAX_WIRES + 5),
    ],
)
def test_bad_shapes_are_refused(inputs: tuple[int, ...], outputs: tuple[int, ...], wires: int) -> None:
    with pytest.raises(ConfigError, match=r"^circuit: "):
        circuit(GATES, inputs, outputs, wires)


def test_arrays_of_the_wrong_type_or_length_are_refused() -> None:
    op = np.array([Op.AND], dtype=np.uint8)
    good = np.zeros(1, dtype=np.uint32)
    wide: Any = np.zeros(1, dtype=np.int64)
    with pytest.raises(ConfigError, match=r"^a: "):
        Circuit((1, 1), (1,), 3, op, wide, good, good)
    with pytest.raises(ConfigError, match=r"^out: "):
        Circuit((1, 1), (1,), 3, op, good, good, np.zeros(2, dtype=np.uint32))


@pytest.mark.parametrize(
    ("inputs", "named"),
    [([1], "inputs: 1 values, not 2"), ([1, 2], r"inputs\[1\]: 2 bits"), ([-1, 0], r"inputs\[0\]: neg")],
)
def test_wrong_inputs_are_named(inputs: list[int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        circuit(GATES).evaluate(inputs)


def test_wrong_arrays_of_inputs_are_named() -> None:
    one = np.zeros((1, 2), dtype=np.uint64)
    with pytest.raises(ConfigError, match=r"inputs\[1\]"):
        circuit(GATES).evaluate_many([one, one[:, :1]])
    with pytest.raises(ConfigError, match="1 values, not 2"):
        circuit(GATES).evaluate_many([one])
    with pytest.raises(ConfigError, match=r"values\[1\]: 3 bits"):
        pack([1, 4], 2)
