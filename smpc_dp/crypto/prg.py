"""Mask expansion: seeds to vectors of integers modulo 2**32 or 2**64.

The expansion of a 32-byte seed is the AES-256-CTR keystream under it, from an all-zero counter block,
read as little-endian integers of the given dtype. It is fixed by the seed and the dtype alone: a seed
serves one vector of one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core

SEED_BYTES = 32

Word = TypeVar("Word", np.uint32, np.uint64)


def add_masks(
    accumulator: NDArray[np.uint64] | NDArray[np.uint32],
    seeds: Sequence[bytes],
    signs: Sequence[int],
    *,
    offset: int = 0,
    threads: int = 1,
) -> None:
    """Add each seed's expansion (subtract for sign -1) to `accumulator` in place; ValueError for bad input.

    `accumulator` is one-dimensional, contiguous and writable, of native uint64 or uint32; it stands for
    elements [offset, offset + len(accumulator)) of a longer vector. `seeds` are 32 bytes each; `signs`,
    as many, are +1 or -1. Memory is O(1) beyond the accumulator; the interpreter lock is released, and
    `threads` (1 to 256) threads share the work.

    Raises ValueError for wrong lengths, signs, layout, offset or threads, TypeError for another dtype.
    """
    if accumulator.dtype not in (np.uint64, np.uint32):
        raise TypeError(f"accumulator: dtype {accumulator.dtype}, not native uint64 or uint32")
    if accumulator.ndim != 1 or not accumulator.flags.c_contiguous or not accumulator.flags.writeable:
        raise ValueError("accumulator: not a one-dimensional, contiguous, writable array")
    if len(seeds) != len(signs):
        raise ValueError(f"signs: {len(signs)} of them for {len(seeds)} seeds")
    for index, seed in enumerate(seeds):
        if len(seed) != SEED_BYTES:
            raise ValueError(f"seeds[{index}]: {len(seed)} bytes, not {SEED_BYTES}")
    for index, sign in enumerate(signs):
        if sign not in (1, -1):
            raise ValueError(f"signs[{index}]: {sign}, not +1 or -1")
    if not 0 <= offset < 1 << 64:
        raise ValueError(f"offset: {offset}, not between 0 and 2**64 - 1")
    if not 1 <= threads <= 256:
        raise ValueError(f"threads: {threads}, not between 1 and 256")
    subtract = bytes(sign == -1 for sign in signs)
    _core.add_keystreams(accumulator, b"".join(seeds), subtract, offset, threads)


def expand(seed: bytes, length: int, dtype: type[Word]) -> NDArray[Word]:
    """Return the first `length` pseudorandom integers that a 32-byte seed expands to; or ValueError.

    `dtype` is `numpy.uint64` or `numpy.uint32`. Raises ValueError for a wrong length, TypeError for
    another dtype.
    """
    if length < 0:
        raise ValueError(f"length: {length} is negative")
    words = np.zeros(length, dtype=dtype)
    add_masks(words, [seed], [1])
    return words
