"""What gadgets cost in AND gates and depth, and what the builder leaves out."""

# ruff: noqa: ARG005  # gadgets of one operand are given two like the others

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from smpc_dp.capabilities.pairs.circuits import gadgets
from smpc_dp.capabilities.pairs.circuits.builder import ONE, ZERO, Bit, Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, Op
from smpc_dp.errors import ConfigError

Gadget = Callable[[Builder, Sequence[Bit], Sequence[Bit]], Sequence[Bit]]


def build(width: int, gadget: Gadget) -> Circuit:
    builder = Builder()
    x, y = builder.input(width), builder.input(width)
    builder.output(gadget(builder, x, y))
    return builder.build()


def hamming(n: int) -> int:
    return n.bit_count()


COSTS: list[tuple[str, Gadget, Callable[[int], int]]] = [
    ("add", gadgets.add, lambda n: n - 1),
    ("add one", lambda b, x, y: gadgets.add(b, x, y, ONE), lambda n: n - 1),
    ("add with carry", gadgets.add_with_carry, lambda n: n),
    ("subtract", gadgets.subtract, lambda n: n - 1),
    ("negate", lambda b, x, y: gadgets.negate(b, x), lambda n: max(n - 2, 0)),
    ("absolute", lambda b, x, y: gadgets.absolute(b, x), lambda n: n - 1),
    ("less than", lambda b, x, y: (gadgets.less_than(b, x, y),), lambda n: n),
    ("less than, signed", lambda b, x, y: (gadgets.less_than(b, x, y, signed=True),), lambda n: n),
    ("equal", lambda b, x, y: (gadgets.equal(b, x, y),), lambda n: n - 1),
    ("equal constant", lambda b, x, y: (gadgets.equal_constant(b, x, 1),), lambda n: n - 1),
    ("multiply", gadgets.multiply, lambda n: n * n - n + 1),
    ("multiply, wide", lambda b, x, y: gadgets.multiply(b, x, y, 2 * len(x)), lambda n: 2 * n * n - n),
    ("popcount", lambda b, x, y: gadgets.popcount(b, x), lambda n: n - hamming(n)),
    ("xor", gadgets.bitwise_xor, lambda n: 0),
    ("not", lambda b, x, y: gadgets.bitwise_not(b, x), lambda n: 0),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize("width", [1, 2, 3, 5, 16, 31, 64])
@pytest.mark.parametrize(("gadget", "cost"), [c[1:] for c in COSTS], ids=[c[0] for c in COSTS])
def test_and_gates(gadget: Gadget, cost: Callable[[int], int], width: int) -> None:
    assert build(width, gadget).and_count == cost(width)


@pytest.mark.parametrize("width", [1, 5, 64])
def test_multiplexer_costs_one_and_a_bit(width: int) -> None:
    builder = Builder()
    x, y, c = builder.input(width), builder.input(width), builder.input(1)
    builder.output(gadgets.multiplex(builder, c[0], x, y))
    assert builder.build().and_count == width


@pytest.mark.parametrize("index_bits", [0, 1, 3])
def test_select_costs_a_multiplexer_for_each_pair(index_bits: int) -> None:
    builder = Builder()
    values = [builder.input(4) for _ in range(1 << index_bits)]
    index = builder.input(index_bits) if index_bits else ()
    builder.output(gadgets.select(builder, index, values))
    circuit = builder.build()
    assert circuit.and_count == 4 * ((1 << index_bits) - 1)
    assert circuit.and_depth == index_bits


@pytest.mark.parametrize("width", [1, 2, 6])
@pytest.mark.parametrize("signed", [False, True])
def test_comparing_with_a_constant_costs_less(width: int, signed: bool) -> None:
    shift = 1 << (width - 1) if signed else 0
    for raised in range(1, 1 << width):
        circuit = build(
            width,
            lambda b, x, y, c=raised - shift: (gadgets.less_than_constant(b, x, c, signed=signed),),  # type: ignore[misc]
        )
        zeros = (raised & -raised).bit_length() - 1
        assert circuit.and_count == width - 1 - zeros


@pytest.mark.parametrize("width", [2, 3, 8, 64])
def test_equality_and_popcount_are_shallow(width: int) -> None:
    assert build(width, lambda b, x, y: (gadgets.equal(b, x, y),)).and_depth == (width - 1).bit_length()
    depth = build(width, lambda b, x, y: gadgets.popcount(b, x)).and_depth
    assert depth <= 2 * width.bit_length()


def test_constants_are_folded_and_not_is_free() -> None:
    builder = Builder()
    (x,) = builder.input(1)
    assert builder.and_(x, ZERO) == ZERO
    assert builder.and_(ONE, x) == x
    assert builder.xor(x, ONE) == builder.not_(x)
    assert builder.xor(x, builder.not_(x)) == ONE
    assert builder.and_(x, builder.not_(x)) == ZERO
    assert builder.and_(x, x) == x
    assert builder.or_(x, ONE) == ONE
    builder.output((x,))
    assert builder.build().n_gates == 1


def test_equal_gates_are_made_once_and_undone_xor_vanishes() -> None:
    builder = Builder()
    x, y, z = (builder.input(1)[0] for _ in range(3))
    both = builder.and_(x, y)
    assert builder.and_(y, x) == both
    assert builder.and_(both, y) == both
    assert builder.and_(builder.not_(x), both) == ZERO
    mixed = builder.xor(x, builder.not_(y))
    assert builder.xor(mixed, y) == builder.not_(x)
    assert builder.xor(builder.xor(x, y), ONE) == mixed
    assert builder.and_(z, mixed) != builder.and_(z, builder.not_(mixed))


def test_gates_that_no_output_needs_are_left_out() -> None:
    builder = Builder()
    x, y = builder.input(8), builder.input(8)
    gadgets.multiply(builder, x, y)
    builder.output(gadgets.bitwise_xor(builder, x, y))
    circuit = builder.build()
    assert (circuit.n_gates, circuit.xor_count) == (8, 8)


def test_outputs_may_be_inputs_constants_negations_and_the_same_bit_twice() -> None:
    builder = Builder()
    x, y = builder.input(1)[0], builder.input(1)[0]
    both = builder.and_(x, y)
    builder.output((x, ZERO, ONE, both))
    builder.output((both, builder.not_(both), builder.not_(x)))
    circuit = builder.build()
    assert circuit.count(Op.EQ) == 2
    assert circuit.count(Op.EQW) == 2
    for a in (0, 1):
        for b in (0, 1):
            both_value = a & b
            expected = [a | 4 | both_value << 3, both_value | (1 - both_value) << 1 | (1 - a) << 2]
            assert circuit.evaluate([a, b]) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        lambda b, x, y: gadgets.add(b, x, y[:-1]),
        lambda b, x, y: gadgets.negate(b, ()),
        lambda b, x, y: gadgets.multiply(b, x, y, 9),
        lambda b, x, y: gadgets.select(b, x[:1], [x]),
        lambda b, x, y: (gadgets.less_than_constant(b, x, 16),),
        lambda b, x, y: (gadgets.less_than_constant(b, x, 8, signed=True),),
        lambda b, x, y: (gadgets.equal_constant(b, x, -1),),
        lambda b, x, y: b.constant(16, 4),
        lambda b, x, y: (),
        lambda b, x, y: (gadgets.equal(b, x, y), *b.input(1)),
    ],
)
def test_wrong_widths_and_constants_are_refused(wrong: Gadget) -> None:
    with pytest.raises(ConfigError):
        build(4, wrong)
