"""Blocks of vectors: how much memory they need, when sums are decoded, and what the kernels refuse."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest

from smpc_dp import _core
from smpc_dp.encoding import Encoding
from smpc_dp.engine.result import Certificate, Evidence, Outcome, Privacy, Result
from smpc_dp.fixed_point import BLOCK, GridTotal, blocks_of, slices_of
from smpc_dp.trees import flatten
from smpc_dp.when_read import WhenRead, compute_when_read

LENGTH = 16 * BLOCK
# Of a few blocks, each in float64.
ROOM = 12 * 8 * BLOCK
PRIVACY = Privacy(None, None, "", (), ())
EVIDENCE = Evidence("secagg", 2, b"", b"", b"", (), Certificate(b"", {}), None)


def encoding(**options: Any) -> Encoding:
    given = {"length": LENGTH, "lower": -1.0, "upper": 1.0, "precision": 1e-6, "parties": 3, **options}
    return Encoding.plan(**given)


def peak_of(function: Callable[[], object]) -> int:
    """Return the most bytes that were allocated while a function ran, its result included."""
    tracemalloc.start()
    try:
        kept = function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        del kept


@pytest.mark.parametrize("precision", [1e-8, 1e-17])
def test_a_total_may_begin_at_any_byte_of_a_message(precision: float) -> None:
    session = encoding(length=2 * BLOCK + 1, precision=precision)
    vector = session.encode(np.linspace(-1, 1, session.length), party="alice")[0]
    packed = session.pack(3 * vector)
    assert session.element_bytes == vector.dtype.itemsize
    for offset in range(8):
        total, weight = session.decoded(session.unpack(memoryview(bytes(offset) + packed)[offset:]), 3)
        averages = session.averages(total, weight, noisy=False)
        read = np.concatenate([averages[part] for part in slices_of(session.length)])
        expected = session.average(session.decode(3 * vector, 3)[0], 3, noisy=False)
        np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize("bounds", [None, (-2.0, 2.0)])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_tree_is_encoded_without_another_array_of_its_size(kind: Any, bounds: Any) -> None:
    session = encoding()
    half = np.linspace(-1, 1, LENGTH // 2).astype(kind)
    tree = flatten({"a": half, "b": half.reshape(2, -1).T}, session, party="alice", bounds=bounds)
    assert peak_of(tree.encode) < LENGTH * session.dtype(0).itemsize + ROOM


def test_an_average_is_restored_without_another_array_of_its_size() -> None:
    session = encoding()
    leaf = np.linspace(-1, 1, LENGTH, dtype=np.float32)
    tree = flatten({"a": leaf}, session, party="alice")
    total, weight = session.decoded(3 * tree.encode()[0], 3)

    def restored() -> Any:
        return tree.restore(session.averages(total, weight, noisy=False), exact=True)

    assert peak_of(restored) < leaf.nbytes + ROOM
    np.testing.assert_allclose(restored()["a"], leaf, atol=session.step)


@pytest.mark.parametrize("weight", [0, 3])
def test_a_sum_is_checked_and_averaged_without_an_array_of_its_size(weight: int) -> None:
    session = encoding(max_weight=weight)
    vector, _ = session.encode(np.zeros(LENGTH), party="alice", weight=weight or None)

    def averages() -> Any:
        total, counted = session.decoded(vector, 1)
        return session.averages(total, counted, noisy=False)

    assert peak_of(averages) < ROOM


@pytest.mark.parametrize("upper", [1.0, 2.0**-14, 2.0**-6, 2.0**12, 2.0**40])
def test_a_packed_vector_is_added_without_a_copy(upper: float) -> None:
    session = encoding(lower=0.0, upper=upper, precision=2.0**-20)
    packed = memoryview(session.pack(session.zeros()))
    total = session.zeros()
    assert peak_of(lambda: session.add_packed(total, packed)) < ROOM
    if session.element_bytes == total.dtype.itemsize:
        unpacked = session.unpack(packed)
        assert np.shares_memory(unpacked, np.frombuffer(packed, np.uint8))
        assert not unpacked.flags.writeable


def test_blocks_of_a_contiguous_array_are_views() -> None:
    values = np.zeros((4, BLOCK), np.float32)
    blocks = list(blocks_of(values, np.float32))
    assert sum(map(len, blocks)) == values.size
    assert all(np.shares_memory(block, values) for block in blocks)


def test_a_sum_is_decoded_once() -> None:
    total = GridTotal(np.array([3, 1 << 24], np.uint32), -5, 24)
    assert (len(total), total[1:].tolist()) == (2, [-5])
    assert total.values.tolist() == [-2, -5]
    assert total.values is total.values
    given = np.array([1, -1])
    assert GridTotal.of(given).values is given


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("precision", [None, 0.25])
@pytest.mark.parametrize("kind", ["sum", "average"])
def test_each_array_of_a_result_is_the_caller_s_own(
    kind: Literal["sum", "average"], precision: float | None, decoded: bool
) -> None:
    session = encoding(length=3, lower=-4, upper=4, precision=precision)
    total, weight = session.decoded(2 * session.encode([1, 2, -3], party="alice")[0], 2)
    step, divisor = 1.0 if precision is None else precision, 2 if kind == "average" else 1
    value, grid = [2 / divisor, 4 / divisor, -6 / divisor], [2 / step, 4 / step, -6 / step]
    given: Any = total.values if decoded else total
    outcome = Outcome(given, weight, session, ("alice", "bob"), (), (), PRIVACY, EVIDENCE)
    one, two = (Result.of(outcome, kind) for _ in range(2))
    one.fixed_point[:] = 7
    assert one.value.tolist() == two.value.tolist() == value
    two.value[:] = 7
    assert two.fixed_point.tolist() == grid
    assert Result.of(outcome, kind).value.tolist() == value


@dataclass(frozen=True, slots=True)
class Computed:
    value: Any
    other: int = 0


compute_when_read(Computed, "value")


def test_a_field_is_computed_where_it_is_first_read() -> None:
    calls: list[None] = []

    def compute() -> int:
        calls.append(None)
        return 7

    made = Computed(WhenRead(compute), 1)
    assert not calls
    assert (made.value, made.value, len(calls)) == (7, 7, 1)
    assert repr(Computed(WhenRead(compute), 1)) == "Computed(value=7, other=1)"
    assert made == replace(Computed(WhenRead(compute)), other=1) == Computed(7, 1)
    assert pickle.loads(pickle.dumps(Computed(WhenRead(compute), 1))) == made  # noqa: S301
    with pytest.raises(AttributeError):
        made.value = 8  # type: ignore[misc]


ELEMENTS = np.zeros(3, np.uint32)
SIDE = np.ones(1)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((np.zeros(3), ELEMENTS[:2], -SIDE, SIDE, 0.5, 0, 0), ValueError, "elements: 2 of them, not 3"),
        ((np.zeros(3), ELEMENTS, np.zeros(2), np.ones(2), 0.5, 0, 0), ValueError, "bounds: 2 and 2"),
        ((np.zeros(3), ELEMENTS, SIDE, np.ones(3), 0.5, 0, 0), ValueError, "bounds: 1 and 3"),
        ((np.zeros(3), ELEMENTS, -SIDE, SIDE, 0.5, 1023, 0), ValueError, "fractional_bits: 1023"),
        ((np.zeros(6)[::2], ELEMENTS, -SIDE, SIDE, 0.5, 0, 0), ValueError, "values: "),
        ((np.zeros(3, np.float16), ELEMENTS, -SIDE, SIDE, 0.5, 0, 0), TypeError, "values: not"),
        ((np.zeros(3, ">f8"), ELEMENTS, -SIDE, SIDE, 0.5, 0, 0), TypeError, "values: not"),
        ((np.zeros(3), np.zeros(3), -SIDE, SIDE, 0.5, 0, 0), TypeError, "elements: not"),
    ],
)
def test_the_encoding_kernel_refuses(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        _core.encode_fixed_point(*arguments)


@pytest.mark.parametrize("width", [0, 5])
def test_the_kernel_that_adds_refuses_a_width(width: int) -> None:
    with pytest.raises(ValueError, match=f"width: {width}, not between 1 and 4"):
        _core.add_packed(ELEMENTS.copy(), np.zeros(3 * width, np.uint8), width)


@pytest.mark.parametrize(("bits", "bounds"), [(0, None), (65, None), (32, (np.zeros(2), np.ones(2)))])
def test_the_kernel_of_averages_refuses(bits: int, bounds: Any) -> None:
    with pytest.raises(ValueError, match=r"bits|bounds"):
        _core.average_fixed_point(ELEMENTS, np.zeros(3), bits, 0, 1.0, 0, bounds)
