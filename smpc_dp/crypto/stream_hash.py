"""The hash of a long stream: keyed BLAKE3 [O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020].

Several times as fast as SHA-256, which matters where a stream is made or used nearly as fast as it can be
hashed. The key is public: a digest of what the stream is for (`crypto.transcript`), so that two streams share
no hash. The digest in turn becomes a part of a transcript. 128 bits of collision resistance.
"""

from __future__ import annotations

import numpy as np

from smpc_dp import _core

KEY_BYTES = 32


class StreamHash:
    """Hashes bytes in the order in which they come; where they are cut does not matter."""

    def __init__(self, key: bytes) -> None:
        """Start; raise ValueError unless `key` has 32 bytes."""
        self._core = _core.StreamHash(key)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`, which must be contiguous; the interpreter lock is released meanwhile."""
        self._core.update(np.frombuffer(data, np.uint8))

    def digest(self) -> bytes:
        """Return the 32 bytes of all that has come so far; more may come."""
        return self._core.digest()
