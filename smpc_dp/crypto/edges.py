"""Checks that the two commitments of each edge of a graph cancel, in constant memory.

Both ends of an edge publish a commitment to the noise that they add for it. Each commitment is multiplied by
a coefficient, a hash of a fresh seed and both ends, and all are summed: if each edge cancels, the sum is the
identity; if one does not, it is another point except with probability 2^-128, since the authors of the
commitments did not know the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core


class Claim(NamedTuple):
    """One party's claimed commitments to the pairwise noise on its edges in the graph of neighbours.

    Parties are numbers of 2 bytes, little-endian; points have 32 bytes. `others` are points whose encoding is
    checked, and which are not folded.
    """

    party: int
    neighbours: bytes
    edges: bytes
    others: bytes = b""


class EdgeFold:
    """Accumulator that checks that both ends' commitments of every edge cancel; threads may share it."""

    def __init__(self, counted: NDArray[np.bool_], *, locate: bool = False) -> None:
        """Start with no claims and a fresh random seed, which no author of a commitment knows.

        Args:
            counted: for each party, whether edges to it count.
            locate: keep a sum for each party, for `find_uncancelled`.
        """
        self._core = _core.EdgeFold(counted.astype(np.uint8).tobytes(), locate)

    def take(self, claims: Sequence[Claim]) -> list[tuple[bytes, str]]:
        """Add parties' claims; return for each (sum of counted commitments, ""), or (b"", error text).

        A claim with a point that is not canonical is not folded: its sum is empty, and the text gives the
        reason. One core call, without the interpreter lock. Raises ValueError for lengths and parties out of
        range.
        """
        return self._core.take(claims)

    def cancels(self) -> bool:
        """Return whether both ends claimed every counted edge with commitments that cancel."""
        return self._core.cancels()

    def find_uncancelled(self) -> list[int]:
        """Return the parties with an edge that does not cancel, ascending; none unless `locate` was set."""
        return self._core.apart()
