"""Whether the two commitments of each edge of a graph cancel, in memory that does not grow with the edges.

Both ends of an edge publish a commitment to what they add for it. Every claim is multiplied by a coefficient,
a hash of a fresh seed and both ends, and all are summed: if each edge cancels the sum is nothing, and if one
does not it is something else but for a chance of 2^-128, as whoever committed did not know the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core


class Claim(NamedTuple):
    """What one party, from 1, claims: parties as numbers of 2 bytes, little-endian; points of 32 bytes.

    `others` are points that must be canonical as well, and are not folded.
    """

    party: int
    neighbours: bytes
    edges: bytes
    others: bytes = b""


class EdgeFold:
    """Folds claims as they come. Threads may share one."""

    def __init__(self, counted: NDArray[np.bool_], *, locate: bool = False) -> None:
        """Draw a seed. `counted` tells of each party whether edges to it count; `locate` is for `apart`."""
        self._core = _core.EdgeFold(counted.astype(np.uint8).tobytes(), locate)

    def take(self, claims: Sequence[Claim]) -> list[tuple[bytes, str]]:
        """Fold claims, each party's once, and return for each the sum of its commitments that count.

        What has a point that is not canonical is not folded: then its sum is empty, and the text says why.
        One core call, without the interpreter lock. Raises ValueError for lengths and parties out of range.
        """
        return self._core.take(claims)

    def cancels(self) -> bool:
        """Tell whether every edge that counts is claimed by both ends, with commitments that cancel."""
        return self._core.cancels()

    def apart(self) -> list[int]:
        """Return the parties that have an edge that does not cancel, ascending; `locate` only."""
        return self._core.apart()
