"""The labelled hash that everything signed, derived or committed to goes through."""

from __future__ import annotations

from collections.abc import Iterable

from smpc_dp import _core
from smpc_dp.crypto.labels import Label

DIGEST_BYTES = 32
UINT_BYTES = 8


def digest(label: Label, *parts: bytes) -> bytes:
    """Hash `parts`, in order, under `label`: 32 bytes.

    TupleHash256 [NIST SP 800-185, section 5] with the label as customisation string: lengths are
    encoded, so different tuples never meet in one input. Raises TypeError for a part that is not `bytes`.
    """
    return _core.tuple_hash(label.encode(), parts, DIGEST_BYTES)


class Digest:
    """`digest` of parts that come one by one, in pieces where they are long: `value()` is the same."""

    def __init__(self, label: Label) -> None:
        self._core = _core.TupleHash(label.encode())

    def add(self, *parts: bytes) -> None:
        """Add whole parts."""
        for part in parts:
            self.add_long(len(part), (part,))

    def add_long(self, length: int, pieces: Iterable[bytes]) -> None:
        """Add one part of `length` bytes.

        Raises ValueError if its pieces have more; `value` and the next part do if they have less.
        """
        self._core.begin(length)
        for piece in pieces:
            self._core.update(piece)

    def value(self) -> bytes:
        """Return the 32 bytes."""
        return self._core.digest()


def encode_uint(n: int) -> bytes:
    """Encode `n` as 8 bytes, big-endian. Raises ValueError unless 0 <= n < 2**64."""
    if not 0 <= n < 1 << 8 * UINT_BYTES:
        raise ValueError(f"n: {n}, not between 0 and 2**64 - 1")
    return n.to_bytes(UINT_BYTES, "big")
