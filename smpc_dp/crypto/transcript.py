"""Labelled hash of everything that is signed, derived or committed to."""

from __future__ import annotations

from collections.abc import Iterable

from smpc_dp import _core
from smpc_dp.crypto.labels import Label

DIGEST_BYTES = 32
UINT_BYTES = 8


def digest(label: Label, *parts: bytes) -> bytes:
    """Return the 32-byte hash of byte strings, unambiguously joined, under a label of its purpose.

    TupleHash256 [NIST SP 800-185, section 5] with the label as customisation string: lengths are encoded, so
    different tuples never give the same input. Raises TypeError for a part that is not `bytes`.
    """
    return _core.tuple_hash(label.encode(), parts, DIGEST_BYTES)


class Digest:
    """Incremental form of `digest`: hashes byte strings that are added one by one."""

    def __init__(self, label: Label) -> None:
        self._core = _core.TupleHash(label.encode())

    def add(self, *parts: bytes) -> None:
        """Add byte strings to the hash, each with its length before it."""
        for part in parts:
            self.add_long(len(part), (part,))

    def add_long(self, length: int, pieces: Iterable[bytes]) -> None:
        """Add one byte string of exactly `length` bytes, given in pieces, to the hash; or ValueError.

        Raises ValueError for more bytes; `value` and the next part raise it for fewer.
        """
        self._core.begin(length)
        for piece in pieces:
            self._core.update(piece)

    def value(self) -> bytes:
        """Return the 32-byte hash of all byte strings that were added."""
        return self._core.digest()


def encode_uint(n: int) -> bytes:
    """Return `n` as 8 bytes, big-endian. Raises ValueError unless 0 <= n < 2**64."""
    if not 0 <= n < 1 << 8 * UINT_BYTES:
        raise ValueError(f"n: {n}, not between 0 and 2**64 - 1")
    return n.to_bytes(UINT_BYTES, "big")
