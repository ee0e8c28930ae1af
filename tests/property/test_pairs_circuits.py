"""Random circuits and values: the builder keeps meanings, gadgets are arithmetic, files read back."""

# ruff: noqa: ARG005  # gadgets of one operand are given two like the others

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.capabilities.pairs.circuits import gadgets
from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol, parse_bristol
from smpc_dp.capabilities.pairs.circuits.builder import ONE, ZERO, Bits, Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, Op, pack, unpack
from smpc_dp.capabilities.pairs.circuits.layers import layers_of
from smpc_dp.errors import ConfigError
from tests.examples import examples

INPUTS = 4
# A step: which gate, and which two of the bits so far.
STEPS = st.lists(
    st.tuples(st.sampled_from("xaon"), st.integers(0, 1 << 20), st.integers(0, 1 << 20)), max_size=40
)
OUTPUTS = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=6)
TRUTH: dict[str, Callable[[int, int], int]] = {
    "x": lambda a, b: a ^ b,
    "a": lambda a, b: a & b,
    "o": lambda a, b: a | b,
    "n": lambda a, b: 1 - a,
}


def assemble(steps: list[tuple[str, int, int]], outputs: list[int]) -> Circuit:
    builder = Builder()
    bits = [ZERO, ONE, *builder.input(INPUTS)]
    for kind, a, b in steps:
        x, y = bits[a % len(bits)], bits[b % len(bits)]
        make = {"x": builder.xor, "a": builder.and_, "o": builder.or_}
        bits.append(builder.not_(x) if kind == "n" else make[kind](x, y))
    builder.output([bits[index % len(bits)] for index in outputs])
    return builder.build()


def naive(steps: list[tuple[str, int, int]], outputs: list[int], value: int) -> int:
    bits = [0, 1, *(value >> index & 1 for index in range(INPUTS))]
    for kind, a, b in steps:
        bits.append(TRUTH[kind](bits[a % len(bits)], bits[b % len(bits)]))
    return sum(bits[index % len(bits)] << i for i, index in enumerate(outputs))


@given(STEPS, OUTPUTS, st.booleans())
def test_layers_of_products_and_circuits_in_circuits_keep_the_meaning(
    steps: list[tuple[str, int, int]], outputs: list[int], literal: bool
) -> None:
    """On integers in place of shares, for every input; also for a circuit that nobody has simplified."""
    circuit = written_out(steps, outputs) if literal else assemble(steps, outputs)
    wanted = [naive(steps, outputs, value) for value in range(1 << INPUTS)]
    layers = layers_of(circuit)
    bits = np.array([[value >> index & 1 for value in range(1 << INPUTS)] for index in range(INPUTS)], object)
    result = layers.evaluate(bits)
    assert [sum(int(bit) << index for index, bit in enumerate(row)) for row in result.T] == wanted
    assert layers.depth <= layers.products <= circuit.and_count + circuit.xor_count
    builder = Builder()
    for value in builder.insert(circuit, [builder.input(INPUTS)]):
        builder.output(value)
    again = builder.build()
    assert [again.evaluate([value])[0] for value in range(1 << INPUTS)] == wanted


def written_out(steps: list[tuple[str, int, int]], outputs: list[int]) -> Circuit:
    """Every step as it is, by gates of all five kinds."""
    rows = [(Op.EQ, 0, 0, INPUTS), (Op.EQ, 1, 0, INPUTS + 1)]
    wires = [INPUTS, INPUTS + 1, *range(INPUTS)]
    free = INPUTS + 2

    def gate(op: Op, a: int, b: int = 0) -> int:
        nonlocal free
        rows.append((op, a, b, free))
        free += 1
        return free - 1

    for kind, a, b in steps:
        x, y = wires[a % len(wires)], wires[b % len(wires)]
        if kind == "o":
            wires.append(gate(Op.INV, gate(Op.AND, gate(Op.INV, x), gate(Op.INV, y))))
        else:
            wires.append(gate(Op.INV, x) if kind == "n" else gate(Op.XOR if kind == "x" else Op.AND, x, y))
    for index in outputs:
        gate(Op.EQW, wires[index % len(wires)])
    table = np.array(rows, np.uint32)
    columns = [table[:, column] for column in (1, 2, 3)]
    return Circuit((INPUTS,), (len(outputs),), free, table[:, 0].astype(np.uint8), *columns)


@given(STEPS, OUTPUTS)
def test_simplification_keeps_the_meaning(steps: list[tuple[str, int, int]], outputs: list[int]) -> None:
    circuit = assemble(steps, outputs)
    values = range(1 << INPUTS)
    wanted = [naive(steps, outputs, value) for value in values]
    assert [circuit.evaluate([value])[0] for value in values] == wanted
    (rows,) = circuit.evaluate_many([pack(list(values), INPUTS)])
    assert unpack(rows, len(values)) == wanted
    assert circuit.and_count <= sum(kind in "ao" for kind, _, _ in steps)
    assert circuit.xor_count <= sum(kind in "xo" for kind, _, _ in steps)


@given(STEPS, OUTPUTS)
def test_files_read_back_and_are_stable(steps: list[tuple[str, int, int]], outputs: list[int]) -> None:
    circuit = assemble(steps, outputs)
    text = format_bristol(circuit)
    again = parse_bristol(text)
    assert again == circuit
    assert format_bristol(again) == text


GATES = format_bristol(assemble([("a", 2, 3), ("x", 4, 6), ("n", 7, 0), ("o", 8, 5)], [9, 8, 0]))


@given(st.integers(0, len(GATES) - 1), st.integers(0, 8), st.binary(max_size=8))
def test_a_damaged_file_is_refused_or_is_a_circuit(index: int, removed: int, added: bytes) -> None:
    text = GATES[:index] + added + GATES[index + removed :]
    try:
        circuit = parse_bristol(text, "it.txt")
    except ConfigError as error:
        named = [fault.where.split(":")[0] for fault in error.issues]
    else:
        named = ["it.txt"]
        assert parse_bristol(format_bristol(circuit)) == circuit
    assert named == ["it.txt"]


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


Gadget = Callable[[Builder, Bits, Bits], Bits]
Meaning = Callable[[int, int, int], int]
GADGETS: dict[str, tuple[Gadget, Meaning]] = {
    "add": (gadgets.add, lambda n, x, y: (x + y) % 2**n),
    "add and carry": (lambda b, x, y: gadgets.add(b, x, y, y[0]), lambda n, x, y: (x + y + y % 2) % 2**n),
    "add with carry": (gadgets.add_with_carry, lambda n, x, y: x + y),
    "subtract": (gadgets.subtract, lambda n, x, y: (x - y) % 2**n),
    "negate": (lambda b, x, y: gadgets.negate(b, x), lambda n, x, y: -x % 2**n),
    "absolute": (lambda b, x, y: gadgets.absolute(b, x), lambda n, x, y: abs(signed(x, n))),
    "less": (lambda b, x, y: (gadgets.less_than(b, x, y),), lambda n, x, y: int(x < y)),
    "less, signed": (
        lambda b, x, y: (gadgets.less_than(b, x, y, signed=True),),
        lambda n, x, y: int(signed(x, n) < signed(y, n)),
    ),
    "equal": (lambda b, x, y: (gadgets.equal(b, x, y),), lambda n, x, y: int(x == y)),
    "multiplex": (lambda b, x, y: gadgets.multiplex(b, x[0], x, y), lambda n, x, y: y if x % 2 else x),
    "multiply": (gadgets.multiply, lambda n, x, y: x * y % 2**n),
    "multiply by half more": (
        lambda b, x, y: gadgets.multiply(b, x, y, len(x) + len(x) // 2),
        lambda n, x, y: x * y % 2 ** (n + n // 2),
    ),
    "multiply, wide": (lambda b, x, y: gadgets.multiply(b, x, y, 2 * len(x)), lambda n, x, y: x * y),
    "popcount": (lambda b, x, y: gadgets.popcount(b, x), lambda n, x, y: x.bit_count()),
    "and": (lambda b, x, y: (gadgets.conjunction(b, x),), lambda n, x, y: int(x == 2**n - 1)),
    "xor": (gadgets.bitwise_xor, lambda n, x, y: x ^ y),
}


def check(gadget: Gadget, meaning: Meaning, width: int, pairs: list[tuple[int, int]]) -> None:
    builder = Builder()
    x, y = builder.input(width), builder.input(width)
    builder.output(gadget(builder, x, y))
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    (rows,) = builder.build().evaluate_many([pack(left, width), pack(right, width)])
    assert unpack(rows, len(pairs)) == [meaning(width, a, b) for a, b in pairs]


@pytest.mark.parametrize("name", GADGETS)
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_gadgets_on_every_small_input(name: str, width: int) -> None:
    check(*GADGETS[name], width, [(a, b) for a in range(1 << width) for b in range(1 << width)])


@pytest.mark.thin(2)
@settings(max_examples=examples(25))
@given(st.data())
@pytest.mark.parametrize("name", GADGETS)
def test_gadgets_on_wide_inputs(name: str, data: st.DataObject) -> None:
    width = data.draw(st.integers(5, 40))
    value = st.integers(0, (1 << width) - 1)
    pair = st.one_of(st.tuples(value, value), value.map(lambda v: (v, v)))
    check(*GADGETS[name], width, data.draw(st.lists(pair, min_size=1, max_size=20)))


@settings(max_examples=examples(50))
@given(st.integers(1, 12), st.booleans(), st.data())
def test_constants_compare_as_numbers(width: int, is_signed: bool, data: st.DataObject) -> None:
    low = -(1 << width >> 1) if is_signed else 0
    constant = data.draw(st.integers(low, low + (1 << width) - 1))
    builder = Builder()
    x = builder.input(width)
    builder.output((gadgets.less_than_constant(builder, x, constant, signed=is_signed),))
    builder.output((gadgets.equal_constant(builder, x, constant, signed=is_signed),))
    values = list(range(1 << width))
    less, same = builder.build().evaluate_many([pack(values, width)])
    numbers = [signed(value, width) if is_signed else value for value in values]
    assert unpack(less, len(values)) == [int(number < constant) for number in numbers]
    assert unpack(same, len(values)) == [int(number == constant) for number in numbers]


@settings(max_examples=examples(25))
@given(st.integers(0, 4), st.data())
def test_select_takes_the_value_at_the_index(index_bits: int, data: st.DataObject) -> None:
    table = data.draw(st.lists(st.integers(0, 255), min_size=1 << index_bits, max_size=1 << index_bits))
    builder = Builder()
    values = [builder.input(8) for _ in table]
    index = builder.input(index_bits) if index_bits else ()
    builder.output(gadgets.select(builder, index, values))
    circuit = builder.build()
    for position, value in enumerate(table):
        assert circuit.evaluate([*table, position] if index_bits else table) == [value]
