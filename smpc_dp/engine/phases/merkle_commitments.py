"""Merkle commitment to one value per party: nonces, commitments, signatures.

Leaf number j is of the set's j-th member in roster order, and contains its name and its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.merkle import MerkleTree, check_leaves
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context


class MerkleCommitment:
    """Merkle tree over one value of each party, built by the aggregator to commit to all values."""

    def __init__(self, context: Context, purpose: Label, given: Mapping[int, bytes]) -> None:
        members = sorted(given)
        self._given = dict(given)
        self._index = {party: index for index, party in enumerate(members)}
        leaves = [(context.names[party - 1].encode(), given[party]) for party in members]
        self._tree = MerkleTree(purpose, leaves)
        context.remember(("roll", purpose, self.root, pack_set(members, len(context.names))), lambda: self)

    @property
    def root(self) -> bytes:
        """The 32-byte Merkle root that commits to all parties' values."""
        return self._tree.root

    def prove(self, parties: Iterable[int]) -> bytes:
        """Return the proof that these parties' values are in the tree; empty without parties."""
        return self._tree.prove(self._index[party] for party in parties)

    def shows(self, given: Mapping[int, bytes], proof: bytes) -> bool:
        """Tell whether the tree holds these values of parties, and `proof` is their proof."""
        same = all(self._given.get(party) == content for party, content in given.items())
        return same and proof == self.prove(given)


def check_merkle_commitment(
    context: Context,
    purpose: Label,
    root: bytes,
    members: PartySet,
    given: Mapping[int, bytes],
    proof: bytes,
) -> None:
    """Raise VerificationError unless the Merkle root commits to these parties' values."""
    # A simulation whose aggregator made this tree need not hash its path again.
    known = (context.memo or {}).get(("roll", purpose, root, members.packed))
    if known is not None and known.shows(given, proof):
        return
    leaves = {
        members.index(party): (context.names[party - 1].encode(), content) for party, content in given.items()
    }
    check_leaves(purpose, root, len(members), leaves, proof)
