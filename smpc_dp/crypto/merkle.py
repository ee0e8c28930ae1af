"""Merkle trees: a root of 32 bytes commits to a list, and proofs show the leaves at given indices.

The shape is that of [RFC 6962, section 2.1]: a node without a sibling moves up unchanged. Every leaf binds
the tree's purpose and its own index, every node its level and index, the root the purpose and the number of
leaves; so for one root and one index at most one leaf can be shown, unless TupleHash256 collides. A proof for
several indices has each node that cannot be computed from the leaves shown, once: level by level from the
leaves up, from left to right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import DIGEST_BYTES, digest, encode_uint
from smpc_dp.errors import Check, VerificationError

Leaf = tuple[bytes, ...]


class MerkleTree:
    """Merkle tree whose leaves, at least one, are tuples of byte strings; has the root, proves leaves."""

    def __init__(self, purpose: Label, leaves: Sequence[Leaf]) -> None:
        row = [_leaf(purpose, index, leaf) for index, leaf in enumerate(leaves)]
        if not row:
            raise ValueError("leaves: there is none")
        self._rows: list[list[bytes]] = []
        while len(row) > 1:
            self._rows.append(row)
            level = len(self._rows)
            height = encode_uint(level)
            above = [_node(height, at // 2, row[at], row[at + 1]) for at in range(0, len(row) - 1, 2)]
            row = [*above, row[-1]] if len(row) % 2 else above
        self.root = _root(purpose, len(leaves), row[0])

    def prove(self, indices: Iterable[int]) -> bytes:
        """Return the proof that the leaves at these indices are in the tree."""
        known = sorted(set(indices))
        proof: list[bytes] = []
        for row in self._rows:
            shown = set(known)
            proof += [row[at ^ 1] for at in known if at ^ 1 not in shown and at ^ 1 < len(row)]
            known = sorted({at // 2 for at in known})
        return b"".join(proof)


def check_leaves(purpose: Label, root: bytes, size: int, leaves: Mapping[int, Leaf], proof: bytes) -> None:
    """Raise VerificationError unless the proof shows that these leaves, by index, are under `root`.

    Args:
        leaves: at least one, indices from 0 to size - 1.
        proof: of exactly these indices (`MerkleTree.prove`), without further nodes.
    """
    if not leaves or min(leaves) < 0 or max(leaves) >= size:
        raise VerificationError(f"no leaves, or places outside of a tree of {size}", Check.NOT_IN_TREE)
    if len(proof) % DIGEST_BYTES:
        raise VerificationError("a Merkle proof is not a whole number of digests", Check.NOT_IN_TREE)
    row = {index: _leaf(purpose, index, leaves[index]) for index in sorted(leaves)}
    level, used, width = 0, 0, size
    while width > 1:
        level += 1
        height = encode_uint(level)
        above: dict[int, bytes] = {}
        for at, node in row.items():
            if at // 2 in above:
                continue
            sibling = row.get(at ^ 1)
            if sibling is None and at ^ 1 < width:
                sibling = proof[used : used + DIGEST_BYTES]
                used += DIGEST_BYTES
            if sibling is None:
                above[at // 2] = node
            elif at % 2:
                above[at // 2] = _node(height, at // 2, sibling, node)
            else:
                above[at // 2] = _node(height, at // 2, node, sibling)
        row, width = above, (width + 1) // 2
    if used != len(proof):
        raise VerificationError(
            f"a Merkle proof has {len(proof) // DIGEST_BYTES} nodes, {used // DIGEST_BYTES} are due",
            Check.NOT_IN_TREE,
        )
    if _root(purpose, size, row[0]) != root:
        raise VerificationError("what is shown does not stand in the Merkle tree", Check.NOT_IN_TREE)


def _leaf(purpose: Label, index: int, leaf: Leaf) -> bytes:
    """Return the hash of a leaf, bound to the tree's purpose and the leaf's index."""
    return digest(Label.MERKLE_LEAF, purpose.encode(), encode_uint(index), *leaf)


def _node(height: bytes, index: int, left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node, bound to its height and index."""
    return digest(Label.MERKLE_NODE, height, encode_uint(index), left, right)


def _root(purpose: Label, size: int, top: bytes) -> bytes:
    """Return a Merkle tree's root: the top node hashed with the tree's purpose and number of leaves."""
    return digest(Label.MERKLE_ROOT, purpose.encode(), encode_uint(size), top)
