"""The rounds of openings of a run as an auditor checks them.

Who was shown false is excluded, and its edges are opened by the others. Whoever opens something false is then
excluded in the same way, in the next round.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from smpc_dp.encoding import RingVector
from smpc_dp.protocols.gopa.verifiable import messages as v
from smpc_dp.protocols.gopa.verifiable.disk_store import StoredBytes
from smpc_dp.protocols.gopa.verifiable.edges import EdgeAudit, Edges
from smpc_dp.protocols.gopa.verifiable.statements import Rules


class Left(NamedTuple):
    """What is left to do to the total: Delta to take out of it, and pairs of which it is not known."""

    opened: RingVector
    unopened: list[tuple[int, int]]


class OpeningAudit:
    """Takes the openings of each round; `number` is that of the last round, 0 before the first.

    Values have so many `ring_vector`, names are of so many `parties`.
    """

    def __init__(self, rules: Rules, edges: EdgeAudit, parties: int, ring_vector: int) -> None:
        self._rules, self._edges, self._ring_vector = rules, edges, ring_vector
        self.number = 0
        self._owed: Edges = {}
        self._expected: set[tuple[int, int]] = set()
        # By party the sum of what it has opened, and to whom that was.
        self._sums = StoredBytes(parties, 8 * ring_vector)
        self._opened: set[tuple[int, int]] = set()

    @property
    def kinds(self) -> tuple[str, str]:
        """The kinds of the two entries of the next round: the relay's, which begins it, and the parties'."""
        return v.in_round(v.CERTIFY_EXCLUSIONS, self.number + 1), v.in_round(v.OPEN, self.number + 1)

    def begin(self, good: Collection[int], false: Collection[int]) -> None:
        """Begin a round in which those who are good open their edges to those who were just shown false."""
        self.number += 1
        self._owed, _ = self._edges.around(good, false, ())
        self._expected |= {(party, peer) for party, own in self._owed.items() for peer in own}

    def take(self, party: int, body: bytes, name: str) -> str:
        """Take a party's opening; return which of `FALSE` it is, or nothing if it is right.

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
        """Return what follows from all rounds, for those who are good in the end."""
        total = np.zeros(self._ring_vector, dtype=np.uint64)
        for party in good:
            total += self._sum_of(party)
        expected = sorted(pair for pair in self._expected if pair[0] in good)
        return Left(total, [pair for pair in expected if pair not in self._opened])

    def _sum_of(self, party: int) -> RingVector:
        retained = self._sums.get(party)
        return (
            np.zeros(self._ring_vector, dtype=np.uint64)
            if retained is None
            else np.frombuffer(retained, np.uint64)
        )
