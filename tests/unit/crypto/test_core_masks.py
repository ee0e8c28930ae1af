"""Mask expansion: known answers, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.crypto.prg import add_masks, expand
from tests.reference import masks as reference

SEED = bytes(range(32))
OTHER = bytes(range(100, 132))


@pytest.mark.parametrize(
    ("seed", "block"),
    [
        (bytes(32), "dc95c078a2408989ad48a21492842087"),
        (b"\x80" + bytes(31), "e35a6dcb19b201a01ebcfa8aa22b5759"),
        (b"\xc0" + bytes(31), "b29169cdcf2d83e838125a12ee6aa400"),
    ],
    ids=["zero-key", "varkey-0", "varkey-1"],
)
def test_first_block_is_nists_known_answer(seed: bytes, block: str) -> None:
    """AESAVS, VarKey256: the zero block under each key, which is the first block of our stream."""
    assert expand(seed, 2, np.uint64).tobytes().hex() == block
    assert expand(seed, 4, np.uint32).tobytes().hex() == block


@pytest.mark.parametrize("dtype", [np.uint64, np.uint32])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 127, 128, 2047, 2048, 2049, 10_001, 2**33 - 1, 2**35 + 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_window_of_the_stream(
    dtype: type[np.uint64] | type[np.uint32], offset: int, threads: int
) -> None:
    window: NDArray[Any] = np.zeros(9_001, dtype=dtype)
    _core.add_keystreams(window, SEED, b"\0", offset, threads)
    expected = reference.keystream(SEED, offset * window.itemsize, window.nbytes)
    assert window.tobytes() == expected


def test_many_seeds_over_every_boundary() -> None:
    seeds = [bytes([j]) * 32 for j in range(130)]
    signs = [1 if j % 3 else -1 for j in range(130)]
    values = np.arange(300, dtype=np.uint64) * np.uint64(2**55)
    expected = reference.masked(values, seeds, signs, 7)
    add_masks(values, seeds, signs, offset=7)
    assert values.tolist() == expected


@pytest.mark.parametrize("dtype", [np.uint64, np.uint32])
def test_opposite_signs_cancel(dtype: type[np.uint64] | type[np.uint32]) -> None:
    values: NDArray[Any] = np.arange(5_000, dtype=dtype)
    add_masks(values, [SEED, OTHER], [1, -1])
    assert np.count_nonzero(values == np.arange(5_000)) < 5
    add_masks(values, [OTHER, SEED], [1, -1], threads=2)
    np.testing.assert_array_equal(values, np.arange(5_000))


def test_nothing_to_do() -> None:
    values = np.arange(3, dtype=np.uint64)
    add_masks(values, [], [])
    add_masks(values[:0], [SEED], [1])
    assert values.tolist() == [0, 1, 2]


READ_ONLY = np.zeros(4, dtype=np.uint64)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.zeros(4, dtype=np.int64), TypeError),
        (np.zeros(4, dtype=np.float64), TypeError),
        (np.zeros(4, dtype=">u8"), TypeError),
        (np.zeros((2, 2), dtype=np.uint64), ValueError),
        (np.zeros(8, dtype=np.uint64)[::2], ValueError),
        (READ_ONLY, ValueError),
        (np.ndarray((4,), dtype=np.uint64, buffer=bytearray(40), offset=1), ValueError),
    ],
    ids=["signed", "float", "big-endian", "matrix", "strided", "read-only", "misaligned"],
)
def test_other_arrays_are_refused(array: NDArray[Any], error: type[Exception]) -> None:
    before = array.tobytes()
    with pytest.raises(error, match=r"acc(umulator)?:"):
        add_masks(array, [SEED], [1])
    with pytest.raises((ValueError, TypeError), match="acc"):
        _core.add_keystreams(array, SEED, b"\0")
    assert array.tobytes() == before


@pytest.mark.parametrize(
    ("seeds", "signs", "offset", "threads", "message"),
    [
        ([SEED[:31]], [1], 0, 1, r"seeds\[0\]: 31 bytes"),
        ([SEED, SEED[:16], SEED + bytes(16)], [1, 1, 1], 0, 1, r"seeds\[1\]: 16 bytes"),
        ([SEED], [1, 1], 0, 1, "signs: 2 of them for 1 seeds"),
        ([SEED], [0], 0, 1, r"signs\[0\]: 0"),
        ([SEED, SEED], [1, 2], 0, 1, r"signs\[1\]: 2"),
        ([SEED], [1], -1, 1, "offset: -1"),
        ([SEED], [1], 2**64, 1, "offset"),
        ([SEED], [1], 2**64 - 1, 1, "offset"),
        ([SEED], [1], 0, 0, "threads: 0"),
        ([SEED], [1], 0, 257, "threads: 257"),
    ],
)
def test_other_arguments_are_refused(
    seeds: Sequence[bytes], signs: Sequence[int], offset: int, threads: int, message: str
) -> None:
    values = np.zeros(4, dtype=np.uint64)
    with pytest.raises(ValueError, match=message):
        add_masks(values, seeds, signs, offset=offset, threads=threads)
    assert not values.any()


@pytest.mark.parametrize(
    ("keys", "subtract", "message"),
    [
        (SEED[:31], b"\0", "keys: 31 bytes"),
        (SEED, b"", "subtract: 0 flags for 1 keys"),
        (SEED, b"\2", "subtract: flag 2"),
    ],
)
def test_the_core_checks_for_itself(keys: bytes, subtract: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.add_keystreams(np.zeros(4, dtype=np.uint64), keys, subtract)


def test_expand_refuses_a_negative_length() -> None:
    with pytest.raises(ValueError, match="length: -1"):
        expand(SEED, -1, np.uint64)
