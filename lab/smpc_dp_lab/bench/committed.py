"""Random vector of a benchmark, with its commitment and the check of it as a total."""

from __future__ import annotations

import numpy as np

from smpc_dp.crypto.vector_commitments import Generators, Integers

BLINDING = (1 << 251).to_bytes(32, "little")


class Vector:
    """Random vector of elements of `bits` bits; those of 64 have a sign, as elements with noise do."""

    def __init__(self, generators: Generators, length: int, bits: int) -> None:
        self._generators, self._width = generators, bits // 8
        random = np.random.default_rng(bits)
        self.words = random.integers(0, (1 << bits) - 1, length, np.uint64, endpoint=True)
        self._integers: Integers = self.words.view(np.int64) if bits == 64 else self.words

    def commit(self, threads: int = 1) -> bytes:
        """Return the 32-byte commitment to the vector, with a fixed blinding."""
        return self._generators.commit(self._integers, self._width, BLINDING, threads)

    def check(self, commitment: bytes, threads: int = 1) -> None:
        """Check the vector as a total; raise VerificationError if the commitment is to another one."""
        self._generators.check_totals(self._integers, self._width, BLINDING, [commitment], threads)
