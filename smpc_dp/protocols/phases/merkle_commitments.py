"""What each party of a set gave once, under one root: nonces, commitments, signatures.

Leaf number j is of the set's j-th member in roster order, and has its name beside what it gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.merkle import MerkleTree, check_leaves
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context


class MerkleCommitment:
    """The tree over what the parties in `given` gave, as the aggregator keeps it."""

    def __init__(self, context: Context, purpose: Label, given: Mapping[int, bytes]) -> None:
        members = sorted(given)
        self._given = dict(given)
        self._index = {party: index for index, party in enumerate(members)}
        leaves = [(context.names[party - 1].encode(), given[party]) for party in members]
        self._tree = MerkleTree(purpose, leaves)
        context.remember(("roll", purpose, self.root, pack_set(members, len(context.names))), lambda: self)

    @property
    def root(self) -> bytes:
        """The 32 bytes that bind everyone's."""
        return self._tree.root

    def prove(self, parties: Iterable[int]) -> bytes:
        """Return the proof of what these parties gave; without parties there is nothing to prove."""
        return self._tree.prove(self._index[party] for party in parties)

    def shows(self, given: Mapping[int, bytes], proof: bytes) -> bool:
        """Say whether these parties gave this and `proof` is their proof."""
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
    """Raise VerificationError unless `root` binds that the parties in `given`, all `members`, gave this."""
    # A simulation whose aggregator made this very tree need not hash its way up again.
    known = (context.memo or {}).get(("roll", purpose, root, members.packed))
    if known is not None and known.shows(given, proof):
        return
    leaves = {
        members.index(party): (context.names[party - 1].encode(), content) for party, content in given.items()
    }
    check_leaves(purpose, root, len(members), leaves, proof)
