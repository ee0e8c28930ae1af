"""The core and its slow twins give the same bytes."""

from __future__ import annotations

import numpy as np
from Crypto.Hash import TupleHash256
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp import _core
from smpc_dp.crypto.prg import add_masks
from tests.examples import examples
from tests.reference import masks, shamir

SEEDS = st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.sampled_from((1, -1))), max_size=4)
POINTS = st.lists(st.integers(1, 65535), min_size=1, max_size=6, unique=True)


@given(st.binary(max_size=300), st.lists(st.binary(max_size=300), max_size=6), st.integers(16, 300))
def test_tuple_hash(custom: bytes, parts: list[bytes], length: int) -> None:
    reference = TupleHash256.new(digest_bytes=length, custom=custom)
    for part in parts:
        reference.update(part)
    assert _core.tuple_hash(custom, parts, length) == reference.digest()


@given(
    st.sampled_from(("uint64", "uint32")),
    st.integers(0, 400),
    st.one_of(st.integers(0, 400), st.integers(0, 2**62)),
    SEEDS,
    st.integers(1, 3),
    st.integers(0, 2**64 - 1),
)
@settings(max_examples=examples(100))
def test_masks(
    dtype: str, length: int, offset: int, signed: list[tuple[bytes, int]], threads: int, start: int
) -> None:
    values = np.full(length, start % 2 ** (8 * np.dtype(dtype).itemsize), dtype=dtype)
    seeds = [seed for seed, _ in signed]
    signs = [sign for _, sign in signed]
    expected = masks.masked(values, seeds, signs, offset)
    add_masks(values, seeds, signs, offset=offset, threads=threads)
    assert values.tolist() == expected


@given(POINTS, st.integers(1, 3), st.data())
@settings(max_examples=examples(60))
def test_shamir(xs: list[int], blocks: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, len(xs)))
    secret = data.draw(st.binary(min_size=16 * blocks, max_size=16 * blocks))
    size = (threshold - 1) * len(secret)
    coefficients = data.draw(st.binary(min_size=size, max_size=size))
    shares = _core.shamir_split(secret, threshold, xs, coefficients)
    assert shares == shamir.split(secret, threshold, xs, coefficients)
    chosen = data.draw(st.permutations(list(zip(xs, shares, strict=True))))[:threshold]
    assert _core.shamir_combine([x for x, _ in chosen], [share for _, share in chosen]) == secret
    assert Shamir.combine([(x, share[:16]) for x, share in chosen]) == secret[:16]


@given(st.dictionaries(st.integers(1, 65535), st.binary(min_size=32, max_size=32), min_size=1, max_size=5))
@settings(max_examples=examples(30))
def test_combining_any_values_is_interpolation(shares: dict[int, bytes]) -> None:
    assert _core.shamir_combine(list(shares), list(shares.values())) == shamir.combine(shares)
