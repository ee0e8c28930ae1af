"""An auditor's check of a run's edges, folded as they are read, without storing any.

If all cancel, and all lead to participants, a party's edges are their sum. Otherwise the commitments are read
again, as often as needed to find the edges that do not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.disk_store import StoredBytes
from smpc_dp.capabilities.gopa.verifiable.statements import agreements
from smpc_dp.crypto import commit
from smpc_dp.crypto.edges import Claim, EdgeFold
from smpc_dp.errors import VerificationError
from smpc_dp.wire.batch_verifier import BatchVerifier, Position, Workers
from smpc_dp.wire.sets import PartySet

POINT = commit.POINT_BYTES
# Parties whose edges are held at a time, where some do not cancel.
HELD = 256

# Reads the commitments of the log again: party, message.
Again = Callable[[], Iterator[tuple[int, v.Commit]]]
Edges = dict[int, dict[int, bytes]]


class EdgeAudit:
    """Checks for an auditor which pairs' commitments to pairwise noise cancel, so that their noise counts.

    Args:
        names: of the parties.
        workers: run expensive work.
        again: reads all commitments from the beginning.
    """

    def __init__(self, names: Sequence[str], workers: Workers, again: Again) -> None:
        self._names, self._workers, self._again = names, workers, again
        self._fold = EdgeFold(np.ones(len(names), dtype=np.bool_))
        self._claimed = np.zeros(len(names), dtype=np.bool_)
        self._sums = StoredBytes(len(names), POINT)
        self._void: set[tuple[int, int]] = set()
        # Parties with a malformed point in a commitment; complete once `checks` are settled.
        self.malformed: set[int] = set()
        self.checks = self._checks()

    def add(self, position: Position, party: int, message: v.Commit) -> None:
        """Queue a party's commitments to pairwise noise for the check that both ends of each edge cancel."""
        self._claimed[_parties(message.neighbours) - 1] = True
        claim = Claim(party, message.neighbours, message.edges, message.value + message.noise_secret)
        self.checks.add(position, claim, len(message.neighbours) + len(message.edges))

    def _checks(self) -> BatchVerifier[Claim]:
        """Return a verifier that checks parties' commitments to pairwise noise in batches."""
        return BatchVerifier(functools.partial(self._workers.here, self._take))

    def _take(self, claims: Sequence[Claim]) -> list[VerificationError | None]:
        """Add a batch of parties' commitments to the fold, and note malformed ones; return None for each."""
        for claim, (total, fault) in zip(claims, self._fold.take(claims), strict=True):
            if fault:
                self.malformed.add(claim.party)
            else:
                self._sums[claim.party] = total
        return [None] * len(claims)

    def begin(self, participants: PartySet) -> list[tuple[int, int]]:
        """Find which edges of the participants count; return those that do not, as ascending pairs.

        An edge counts if both ends participate and claim it, with commitments that cancel.
        """
        self.checks.settle()
        counted = participants.flags()
        same = len(self._sums) == len(participants) and not (self._claimed & ~counted).any()
        if not (same and self._fold.cancels()):
            fold = self._folded(participants, EdgeFold(counted))
            if not fold.cancels():
                self._search(self._folded(participants, EdgeFold(counted, locate=True)).find_uncancelled())
        del self._fold
        return sorted(self._void)

    def _folded(self, participants: PartySet, fold: EdgeFold) -> EdgeFold:
        """Add the participants' commitments, read again, to a new fold, and return it."""
        self._sums.clear()
        self._fold = fold
        checks = self._checks()
        for party, message in self._again():
            if party in participants:
                claim = Claim(party, message.neighbours, message.edges)
                checks.add((0, 0), claim, len(message.edges))
        checks.settle()
        return fold

    def _search(self, apart: Sequence[int]) -> None:
        """Find edges between these parties that do not cancel; note them, and subtract them from the sums."""
        suspects = set(apart)
        for start in range(0, len(apart), HELD):
            held = set(apart[start : start + HELD])
            claims: Edges = {party: {} for party in apart}
            for party, message in self._again():
                if party in suspects:
                    claims[party] = _picked(message, suspects if party in held else held)
            agreed = agreements(claims)
            for party, edges in claims.items():
                for peer in edges.keys() - agreed[party].keys():
                    pair = self._pair(party, peer)
                    if pair not in self._void:
                        self._void.add(pair)
                        self._take_out(pair, claims)

    def _take_out(self, pair: tuple[int, int], claims: Edges) -> None:
        """Subtract an edge's commitments from the sums of commitments of its two ends."""
        for party, peer in (pair, pair[::-1]):
            if (edge := claims[party].get(peer)) is not None:
                self._sums[party] = commit.combine([self._sums[party]], [edge])

    def sum_of(self, party: int) -> bytes:
        """Return the commitment to the sum of a party's pairwise noise, of the edges that count."""
        return self._sums[party]

    def around(
        self, good: Collection[int], false: Collection[int], silent: Collection[int]
    ) -> tuple[Edges, int]:
        """Return good parties' counted edges to false ones, by party and peer, and how many go to silent."""
        claims: Edges = {}
        gone, quiet = set(false), np.zeros(len(self._names) + 1, dtype=np.bool_)
        quiet[list(silent)] = True
        left = 0
        if not gone and not quiet.any():
            return {}, 0
        inside = set(good)
        for party, message in self._again():
            if party in gone:
                claims[party] = dict.fromkeys(_parties(message.neighbours).tolist(), b"")
            elif party in inside:
                claims[party] = _picked(message, gone)
                left += sum(
                    self._pair(party, peer) not in self._void
                    for peer in _parties(message.neighbours).tolist()
                    if quiet[peer]
                )
        retained = {
            party: {peer: edge for peer, edge in claims[party].items() if self._counts(party, peer, claims)}
            for party in inside & claims.keys()
        }
        return {party: edges for party, edges in retained.items() if edges}, left

    def _counts(self, party: int, peer: int, claims: Edges) -> bool:
        """Tell whether an edge counts: both ends have committed to its noise, and the commitments cancel."""
        return party in claims.get(peer, {}) and self._pair(party, peer) not in self._void

    @staticmethod
    def _pair(party: int, peer: int) -> tuple[int, int]:
        """Return the two ends of an edge in ascending order."""
        return min(party, peer), max(party, peer)


def _parties(packed: bytes) -> NDArray[np.uint16]:
    """Return the party numbers in a packed list as an array."""
    return np.frombuffer(packed, dtype="<u2")


def _picked(message: v.Commit, wanted: Collection[int]) -> dict[int, bytes]:
    """Return a party's commitments to its edges with the given neighbours, by neighbour."""
    return {
        peer: message.edges[POINT * position : POINT * (position + 1)]
        for position, peer in enumerate(_parties(message.neighbours).tolist())
        if peer in wanted
    }
