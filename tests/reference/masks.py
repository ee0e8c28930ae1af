"""Mask expansion through OpenSSL's AES-256-CTR, the whole stream at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

BLOCK = 16


def keystream(seed: bytes, start: int, length: int) -> bytes:
    """Bytes [start, start + length) of the keystream of `seed` from an all-zero counter block."""
    counter = (start // BLOCK).to_bytes(BLOCK, "big")
    encryptor = Cipher(algorithms.AES(seed), modes.CTR(counter)).encryptor()
    skip = start % BLOCK
    return encryptor.update(bytes(skip + length))[skip:]


def masked(
    values: NDArray[np.uint64] | NDArray[np.uint32], seeds: Sequence[bytes], signs: Sequence[int], offset: int
) -> list[int]:
    """The values plus every signed mask, in unbounded integers reduced at the end."""
    width = values.dtype.itemsize
    result = [int(value) for value in values]
    for seed, sign in zip(seeds, signs, strict=True):
        stream = keystream(seed, offset * width, len(values) * width)
        for i in range(len(result)):
            result[i] += sign * int.from_bytes(stream[i * width : (i + 1) * width], "little")
    return [value % (1 << 8 * width) for value in result]
