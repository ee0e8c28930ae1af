"""An auditor's check of the rounds of openings.

The author of a false statement is excluded, and the others open their edges to it. The author of a false
opening is excluded in the same way, in the next round.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.disk_store import StoredBytes
from smpc_dp.capabilities.gopa.verifiable.edges import EdgeAudit, Edges
from smpc_dp.capabilities.gopa.verifiable.statements import Rules
from smpc_dp.encoding import RingVector


class Left(NamedTuple):
    """Correction of the total after openings: noise to subtract, and pairs whose noise stays unknown."""

    opened: RingVector
    unopened: list[tuple[int, int]]


class OpeningAudit:
    """Checks, for all rounds, the parties' openings of pairwise noise with excluded parties.

    Vectors have `ring_vector` ring elements, and the run `parties` parties.
    """

    def __init__(self, rules: Rules, edges: EdgeAudit, parties: int, ring_vector: int) -> None:
        self._rules, self._edges, self._ring_vector = rules, edges, ring_vector
        self.number = 0
        self._owed: Edges = {}
        self._expected: set[tuple[int, int]] = set()
        # By party the sum of its opened Delta, and the neighbours to which they belong.
        self._sums = StoredBytes(parties, 8 * ring_vector)
        self._opened: set[tuple[int, int]] = set()

    @property
    def kinds(self) -> tuple[str, str]:
        """Kinds of the next round's two log entries: the aggregator's, which begins it, and the parties'."""
        return v.in_round(v.CERTIFY_EXCLUSIONS, self.number + 1), v.in_round(v.OPEN, self.number + 1)

    def begin(self, good: Collection[int], false: Collection[int]) -> None:
        """Begin a round in which good parties open their pairwise noise with those just shown false."""
        self.number += 1
        self._owed, _ = self._edges.around(good, false, ())
        self._expected |= {(party, peer) for party, own in self._owed.items() for peer in own}

    def take(self, party: int, body: bytes, name: str) -> str:
        """Add up a party's right opening and return "", else a code; ValueError for a right one of nothing.

        Raises:
            ValueError: it is right, of nothing, and so no entry of a board.
        """
        opened = self._rules.check_open(party, body, name, self._owed.get(party, {}))
        if isinstance(opened, str):
            return opened
        if not opened:
            raise ValueError("opens nothing")
        self._opened |= {(party, peer) for peer in opened}
        self._sums[party] = np.sum([self._sum_of(party), *opened.values()], axis=0, dtype=np.uint64).tobytes()
        return ""

    def left(self, good: Collection[int]) -> Left:
        """Return noise of good parties to subtract from the total, and pairs not opened, after all rounds."""
        total = np.zeros(self._ring_vector, dtype=np.uint64)
        for party in good:
            total += self._sum_of(party)
        expected = sorted(pair for pair in self._expected if pair[0] in good)
        return Left(total, [pair for pair in expected if pair not in self._opened])

    def _sum_of(self, party: int) -> RingVector:
        """Return the sum of the pairwise noise that a party has opened."""
        retained = self._sums.get(party)
        return (
            np.zeros(self._ring_vector, dtype=np.uint64)
            if retained is None
            else np.frombuffer(retained, np.uint64)
        )
