"""Hash of a long stream: keyed BLAKE3 [O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020].

Several times as fast as SHA-256, which matters where a stream is produced or used nearly as fast as it can be
hashed. The key is public: a digest of the stream's purpose (`crypto.transcript`), so that two streams share
no hash. The digest becomes a part of a transcript. 128 bits of collision resistance.
"""

from __future__ import annotations

import numpy as np

from smpc_dp import _core


class StreamHash:
    """Incremental keyed hash of a stream of bytes, however the stream is cut into pieces."""

    def __init__(self, key: bytes) -> None:
        """Start a hash with a 32-byte `key`; raise ValueError for another length."""
        self._core = _core.StreamHash(key)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Append contiguous bytes to the hashed stream; long ones release the interpreter lock."""
        self._core.update(np.frombuffer(data, np.uint8))

    def digest(self) -> bytes:
        """Return the 32-byte digest of all data so far; more may be added."""
        return self._core.digest()
