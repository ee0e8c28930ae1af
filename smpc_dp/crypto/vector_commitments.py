"""Pedersen commitments over ristretto255 [RFC 9496] to long vectors of small integers, and sums of them.

    commit(x, r) = sum of x_j G_j + r H

with generators hashed to the group, so that nobody knows a relation between them. A commitment is 32 bytes,
hides the vector perfectly and binds under the discrete logarithm assumption. Sums of commitments commit to
sums of elements with sums of blindings: `check_totals` compares announced totals with all commitments.
`crypto.commit` has fresh blindings and sums of blindings; its own commitments have other generators.

Generators are made in blocks, of some 70 ms of processor time each. `smpc_dp.generator_cache` stores them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.errors import Check, VerificationError

BLOCK_POINTS = _core.GENERATOR_BLOCK_POINTS
"""Generators of a block."""
BLOCK_BYTES = _core.GENERATOR_BLOCK_BYTES
"""Bytes of a block."""
MAX_LENGTH = _core.MAX_COMMITTED_VECTOR
"""Most elements of a vector."""

Integers = NDArray[np.uint64] | NDArray[np.int64]
"""A one-dimensional contiguous array; its type says whether elements have a sign."""


class Generators:
    """Group generators for commitments to long vectors, kept in memory and made or loaded in blocks.

    Threads may share one. `threads` is 1 or 2 everywhere; the interpreter lock is released meanwhile.
    """

    def __init__(self) -> None:
        """Start without generators."""
        self._core = _core.Generators()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the length of the longest vector that they serve."""
        return len(self._core)

    def append_block(self, block: bytes) -> bool:
        """Append the next block of generators from its stored bytes; return False if they are damaged."""
        try:
            self._core.append(len(self) // BLOCK_POINTS, block)
        except _core.DamagedBlock:
            return False
        return True

    def make_block(self, threads: int = 1) -> bytes:
        """Compute and append the next block of generators; return its bytes; ValueError after the last.

        Raises ValueError after the last one.
        """
        number = len(self) // BLOCK_POINTS
        block = _core.make_generator_block(number, threads)
        self._core.append(number, block)
        return block

    def extended(
        self, length: int, threads: int = 1, append: Callable[[int], object] | None = None
    ) -> Generators:
        """Append the blocks that vectors of this length still need; return this object; or ValueError.

        `append` appends the next block, with so many threads; by default `make_block`. Raises ValueError for
        a length that is not between 1 and MAX_LENGTH, or a number of threads that is not 1 or 2.
        """
        if not 1 <= length <= MAX_LENGTH:
            raise ValueError(f"length: {length}, not between 1 and {MAX_LENGTH}")
        with self._lock:
            while len(self) < length:
                (append or self.make_block)(threads)
        return self

    def commit(self, elements: Integers, width: int, blinding: bytes, threads: int = 1) -> bytes:
        """Return the 32-byte Pedersen commitment to a vector of at most len(self) integers, with a blinding.

        `width` is 1 to 8: elements of uint64 are below 256**width, those of int64 are from -256**width / 2 to
        256**width / 2 - 1. `blinding` is uniform and for this commitment alone, as
        `crypto.commit.fresh_blinding` gives it. The time depends on the length and the width alone. Raises
        ValueError for a length, width, element or blinding out of range, TypeError for another array.
        """
        return self._core.commit(elements, width, blinding, threads)

    def check_totals(
        self,
        totals: Integers,
        width: int,
        blinding_sum: bytes,
        commitments: Sequence[bytes],
        threads: int = 1,
    ) -> None:
        """Raise VerificationError unless the sum of commitments opens to the vector `totals`.

        Totals out of the range of `width` and encodings that are not canonical are refused alike; the error
        names the first. The time depends on the totals. Raises ValueError for a length or width out of range,
        TypeError for another array.
        """
        try:
            if self._core.check(totals, width, blinding_sum, commitments, threads):
                return
        except _core.FalseStatement as error:
            raise VerificationError(str(error), Check.BAD_COMMITMENT) from None
        raise VerificationError(
            "totals: the sum of the commitments is to other totals, or with another blinding",
            Check.BAD_OPENING,
        )


def count_additions(length: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the point additions ((a, b) to commit, (a, b) to check) of two kinds, for a benchmark.

    Each are so many of 7 and so many of 8 multiplications in the field. Raises ValueError for a width that is
    not between 1 and 8 bytes.
    """
    return _core.count_additions(length, width)


def make_additions(seven: int, eight: int) -> None:
    """Do so many point additions of two kinds, for a benchmark; return nothing."""
    _core.make_additions(seven, eight)


class PeerMultiples:
    """Reference computation of a multi-scalar sum by another library, for a benchmark."""

    def __init__(self, elements: NDArray[np.uint64]) -> None:
        """Make as many curve points as `elements`, which are their scalars."""
        self._core = _core.PeerMultiples(elements)

    def add(self, *, constant_time: bool) -> None:
        """Compute the multi-scalar sum in variable or constant time, for timing; return nothing."""
        self._core.add(constant_time)


IN_PROCESS = Generators()
"""The generators of this process."""
