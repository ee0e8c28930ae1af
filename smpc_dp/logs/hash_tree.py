"""The Merkle tree of RFC 6962, section 2.1: SHA-256 over the lines of a log, with its two kinds of proofs.

A proof of inclusion shows that a line stands at an index of a tree; a proof of consistency shows that a tree
is the beginning of a larger one. Both are lists of at most 63 hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from smpc_dp.errors import Check, VerificationError

HASH_BYTES = 32
MOST_HASHES = 63
"""No tree of fewer than 2⁶³ leaves has a longer proof."""
EMPTY_ROOT = hashlib.sha256().digest()


def leaf_hash(line: bytes) -> bytes:
    """Return the hash of a leaf that holds one line of the log [RFC 6962]."""
    return hashlib.sha256(b"\x00" + line).digest()


def _node(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node from those of its children [RFC 6962]."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class HashTree:
    """Merkle hash tree [RFC 6962] over the lines of a log, to which lines are appended."""

    def __init__(self) -> None:
        # In row h the hashes of all whole subtrees of 2^h leaves, from left to right.
        self._rows: list[list[bytes]] = [[]]

    def __len__(self) -> int:
        return len(self._rows[0])

    def append(self, line: bytes) -> None:
        """Append a line of the log as a new leaf."""
        node, height = leaf_hash(line), 0
        self._rows[0].append(node)
        while len(self._rows[height]) % 2 == 0:
            node = _node(*self._rows[height][-2:])
            height += 1
            if height == len(self._rows):
                self._rows.append([])
            self._rows[height].append(node)

    def copy(self) -> HashTree:
        """Return a copy of the tree, which grows independently."""
        copied = HashTree()
        copied._rows = [[*row] for row in self._rows]
        return copied

    def root(self, size: int | None = None) -> bytes:
        """Return the root hash of the first `size` leaves, by default of all."""
        return self._hash(0, self._checked(len(self) if size is None else size))

    def prove_inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the proof that leaf `index` (from 0) is among the first `size`; ValueError if it is not."""
        if not 0 <= index < self._checked(size):
            raise ValueError(f"index: no leaf {index} among {size}")
        first, last, proof = 0, size, list[bytes]()
        while last - first > 1:
            middle = _split(first, last)
            if index < middle:
                proof.append(self._hash(middle, last))
                last = middle
            else:
                proof.append(self._hash(first, middle))
                first = middle
        return proof[::-1]

    def prove_consistency(self, old: int, size: int) -> list[bytes]:
        """Return the proof that `old` leaves begin a tree of `size`, [] if 0 or all; ValueError."""
        if not 0 <= old <= self._checked(size):
            raise ValueError(f"old: {old} leaves are no part of {size}")
        if old in (0, size):
            return []
        first, last, proof = 0, size, list[bytes]()
        while last != old:
            middle = _split(first, last)
            if old <= middle:
                proof.append(self._hash(middle, last))
                last = middle
            else:
                proof.append(self._hash(first, middle))
                first = middle
        # The verifier has the root of the whole old tree.
        return ([self._hash(first, last)] if first else []) + proof[::-1]

    def _checked(self, size: int) -> int:
        """Return `size`; raise ValueError if the tree has fewer leaves."""
        if not 0 <= size <= len(self):
            raise ValueError(f"size: {size} leaves, there are {len(self)}")
        return size

    def _hash(self, first: int, last: int) -> bytes:
        """Return the root hash of the subtree of leaves `first` to `last - 1`."""
        count = last - first
        if not count:
            return EMPTY_ROOT
        height = count.bit_length() - 1
        if count == 1 << height:
            return self._rows[height][first >> height]
        middle = _split(first, last)
        return _node(self._hash(first, middle), self._hash(middle, last))


def _split(first: int, last: int) -> int:
    """Return the index of the first leaf in the right subtree of the tree of leaves first to last - 1."""
    return first + (1 << (last - first - 1).bit_length() - 1)


def check_inclusion(line: bytes, index: int, size: int, root: bytes, proof: Sequence[bytes]) -> None:
    """Raise VerificationError unless the proof shows that `line` is leaf `index` [RFC 9162, 2.1.3.2]."""
    left, right, node = index, size - 1, leaf_hash(line)
    if not 0 <= index < size:
        raise VerificationError(f"no leaf {index} in a tree of {size}", Check.NOT_IN_TREE)
    for other in proof:
        if not right:
            raise VerificationError("the proof of inclusion is too long", Check.NOT_IN_TREE)
        if left % 2 or left == right:
            node = _node(other, node)
            while left and not left % 2:
                left, right = left >> 1, right >> 1
        else:
            node = _node(node, other)
        left, right = left >> 1, right >> 1
    if right or node != root:
        raise VerificationError(f"line {index + 1} is not in the tree of {size} lines", Check.NOT_IN_TREE)


def check_consistency(old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> None:
    """Raise VerificationError unless a proof shows that the old tree begins the new [RFC 9162, 2.1.4.2]."""
    reason = f"the tree of {size} lines does not continue that of {old} lines"
    if not 0 <= old <= size or (old in (0, size) and proof):
        raise VerificationError(reason, Check.SPLIT_VIEW)
    if old in (0, size):
        if old_root != (root if old == size else EMPTY_ROOT):
            raise VerificationError(reason, Check.SPLIT_VIEW)
        return
    hashes = [old_root, *proof] if old & (old - 1) == 0 else [*proof]
    left, right = old - 1, size - 1
    while left % 2:
        left, right = left >> 1, right >> 1
    if not hashes:
        raise VerificationError(reason, Check.SPLIT_VIEW)
    of_old = of_new = hashes[0]
    for other in hashes[1:]:
        if not right:
            raise VerificationError(reason, Check.SPLIT_VIEW)
        if left % 2 or left == right:
            of_old, of_new = _node(other, of_old), _node(other, of_new)
            while left and not left % 2:
                left, right = left >> 1, right >> 1
        else:
            of_new = _node(of_new, other)
        left, right = left >> 1, right >> 1
    if right or (of_old, of_new) != (old_root, root):
        raise VerificationError(reason, Check.SPLIT_VIEW)
