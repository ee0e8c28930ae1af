"""Vector commitments: generators, commitments and checks against plain integers, and what is refused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from Crypto.Hash import TupleHash256
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.crypto import commit as c
from smpc_dp.crypto.vector_commitments import BLOCK_BYTES, BLOCK_POINTS, Generators, Integers
from smpc_dp.errors import Check, VerificationError
from smpc_dp_verify import ristretto
from tests.examples import examples

ORDER = ristretto.ORDER


@cache
def generators() -> Generators:
    """The generators of one block."""
    result = Generators()
    result.make_block(2)
    return result


@cache
def generator(family: bytes, index: int) -> ristretto.Point:
    """A generator in plain integers."""
    hasher = TupleHash256.new(digest_bytes=64, custom=b"smpc-dp/1/vector-generator")
    wide = hasher.update(family).update(index.to_bytes(4, "big")).digest()
    return ristretto.add(ristretto.map_to_group(wide[:32]), ristretto.map_to_group(wide[32:]))


def expected(integers: list[int], blinding: int) -> bytes:
    """The commitment in plain integers."""
    result = ristretto.times(blinding % ORDER, generator(b"blinding", 0))
    for index, integer in enumerate(integers):
        multiple = ristretto.times(integer % ORDER, generator(b"value", index))
        result = ristretto.add(result, multiple)
    return ristretto.encode(result)


def scalar(number: int) -> bytes:
    """A scalar's encoding."""
    return (number % ORDER).to_bytes(32, "little")


def array(integers: list[int], signed: bool) -> Integers:
    """Elements of a vector."""
    return np.array(integers, np.int64) if signed else np.array(integers, np.uint64)


def test_generators_are_known() -> None:
    known = {
        (b"value", 0): "80e451d49bb3377681b452dce1e5b26463b07432c207120785963ff88b424b1b",
        (b"value", 2**20 - 1): "aa6b62a1be970ba3f8ce82bcf9e485db1dc33cf388246df58d4870e4dee0b129",
        (b"blinding", 0): "700abec0bda753851379bf88991ea36c33323cb6b6aa1b05e26511cb2e9b440f",
    }
    for (family, index), encoding in known.items():
        assert ristretto.encode(generator(family, index)).hex() == encoding


def test_blocks_hold_the_generators_as_summands() -> None:
    block = Generators().make_block()
    assert len(block) == BLOCK_BYTES
    for index in (0, 1, BLOCK_POINTS - 1):
        point = block[96 * index : 96 * index + 96]
        numbers = [int.from_bytes(point[32 * part : 32 * part + 32], "little") for part in range(3)]
        x, y, *_ = ristretto.decode(ristretto.encode(generator(b"value", index)))
        x, y = x % ristretto.P, y % ristretto.P
        assert numbers == [number % ristretto.P for number in (y + x, y - x, 2 * ristretto.D * x * y)]


@settings(max_examples=examples(40))
@given(st.data())
def test_commitments_are_those_of_plain_integers(data: st.DataObject) -> None:
    width, signed = data.draw(st.integers(1, 8)), data.draw(st.booleans())
    least = -(256**width) // 2 if signed else 0
    element = st.integers(least, least + 256**width - 1)
    integers = data.draw(st.lists(element, min_size=1, max_size=6))
    blinding = data.draw(st.integers(0, ORDER - 1))
    commitment = generators().commit(array(integers, signed), width, scalar(blinding), 1)
    assert commitment == expected(integers, blinding)
    generators().check_totals(array(integers, signed), width, scalar(blinding), [commitment], 2)


def test_only_the_true_totals_are_accepted() -> None:
    inputs = np.random.default_rng(5).integers(0, 2**30, (3, 90), np.uint64)
    blindings = [scalar(17**power) for power in (70, 71, 72)]
    commitments = [
        generators().commit(row, 4, blinding) for row, blinding in zip(inputs, blindings, strict=True)
    ]
    totals, blinding_sum = inputs.sum(axis=0, dtype=np.uint64), c.add_blindings(blindings)
    generators().check_totals(totals, 4, blinding_sum, commitments)
    false = [
        (totals, blinding_sum, commitments[1:]),
        (totals, blinding_sum, [*commitments, commitments[0]]),
        (totals, c.add_blindings([blinding_sum, scalar(1)]), commitments),
        (totals[:-1], blinding_sum, commitments),
        (totals[::-1].copy(), blinding_sum, commitments),
    ]
    for by in (1, 2**32):
        other = totals.copy()
        other[40] += by
        false.append((other, blinding_sum, commitments))
    for numbers, blinding, points in false:
        with pytest.raises(VerificationError) as error:
            generators().check_totals(numbers, 8, blinding, points)
        assert error.value.check is Check.BAD_OPENING
    malformed = [
        (other, blinding_sum, commitments, "totals: number 40 is not below 2**32"),
        (totals, scalar(-1)[:31] + b"\xff", commitments, "blinding_sum: not the encoding of a scalar"),
        (totals, blinding_sum, [commitments[0], scalar(1)], "commitments: number 1 is not the encoding"),
        (totals, blinding_sum, [bytes(31)], "commitments: number 0: 31 bytes, not 32"),
    ]
    for numbers, blinding, points, reason in malformed:
        with pytest.raises(VerificationError) as error:
            generators().check_totals(numbers, 4, blinding, points)
        assert reason in str(error.value)
        assert error.value.check is Check.BAD_COMMITMENT


def test_arguments_out_of_range_are_refused() -> None:
    some = np.array([5, 256], np.uint64)
    one = scalar(1)
    refused: list[tuple[Integers, int, bytes, int, str]] = [
        (some, 0, one, 1, "width: 0 bytes, not between 1 and 8"),
        (some, 1, one, 1, r"elements: one is not below 2\*\*8"),
        (some.astype(np.int64), 1, one, 1, r"elements: one is not between -2\*\*7 and 2\*\*7 - 1"),
        (some, 2, bytes(31), 1, "blinding: 31 bytes, not 32"),
        (some, 2, ORDER.to_bytes(32, "little"), 1, "blinding: not the encoding of a scalar"),
        (some, 2, one, 3, "threads: 3, not 1 or 2"),
        (some[:0], 2, one, 1, "vector: 0 elements, not between 1 and 1048576"),
        (np.zeros(4097, np.uint64), 2, one, 1, "vector: 4097 elements, and generators for 4096"),
        (np.zeros(8, np.uint64)[::2], 2, one, 1, "elements: .*contiguous"),
    ]
    for elements, width, blinding, threads, reason in refused:
        with pytest.raises(ValueError, match=reason):
            generators().commit(elements, width, blinding, threads)
    with pytest.raises(TypeError, match="uint64 or int64"):
        generators().commit(np.zeros(3, np.uint32), 2, one)  # type: ignore[arg-type]


def test_only_the_next_block_is_appended() -> None:
    block = Generators().make_block()
    some = Generators()
    assert not some.append_block(block[:-1])
    assert not some.append_block(block[:-1] + bytes([block[-1] ^ 1]))
    assert len(some) == 0
    assert some.append_block(block)
    assert not some.append_block(block)
    assert len(some) == BLOCK_POINTS
