"""Merkle trees: every proof holds, for its own leaves, places, size and purpose alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.merkle import MerkleTree, check_leaves
from smpc_dp.errors import VerificationError
from tests.reference import merkle_twin

PURPOSE = Label.ADVERTISEMENTS


def leaf(index: int) -> tuple[bytes, ...]:
    return f"p{index}".encode(), bytes([index])


@st.composite
def shown(draw: st.DrawFn) -> tuple[int, list[int]]:
    size = draw(st.integers(1, 70))
    return size, sorted(draw(st.frozensets(st.integers(0, size - 1), min_size=1, max_size=12)))


@given(shown())
def test_the_twin_agrees(case: tuple[int, list[int]]) -> None:
    size, indices = case
    leaves = [leaf(index) for index in range(size)]
    tree, twin = MerkleTree(PURPOSE, leaves), merkle_twin.Tree("advertisements", leaves)
    assert tree.root == twin.root
    assert tree.prove(indices) == twin.prove(indices)
    check_leaves(PURPOSE, tree.root, size, {index: leaf(index) for index in indices}, tree.prove(indices))


@given(shown(), st.data())
def test_nothing_else_is_proved(case: tuple[int, list[int]], data: st.DataObject) -> None:
    size, indices = case
    tree = MerkleTree(PURPOSE, [leaf(index) for index in range(size)])
    leaves, proof = {index: leaf(index) for index in indices}, tree.prove(indices)
    at = data.draw(st.sampled_from(indices))
    elsewhere = {index: content for index, content in leaves.items() if index != at}
    faults: list[tuple[Label, bytes, int, dict[int, tuple[bytes, ...]], bytes]] = [
        (Label.NONCES, tree.root, size, leaves, proof),
        (PURPOSE, bytes(32), size, leaves, proof),
        (PURPOSE, tree.root, size + 1, leaves, proof),
        (PURPOSE, tree.root, size, leaves | {at: leaf(71)}, proof),
        (PURPOSE, tree.root, size, leaves | {at: (b"".join(leaf(at)),)}, proof),
        (PURPOSE, tree.root, size, leaves, proof + bytes(32)),
        (PURPOSE, tree.root, size, leaves, proof + b"\0"),
        (PURPOSE, tree.root, size, elsewhere | {size: leaf(at)}, proof),
        (PURPOSE, tree.root, size, elsewhere | {-1: leaf(at)}, proof),
        (PURPOSE, tree.root, size, {}, proof),
    ]
    free = sorted(set(range(size)) - set(indices))
    if free:
        # One place more or less has another proof; a leaf in another's place has another hash.
        moved = elsewhere | {data.draw(st.sampled_from(free)): leaf(at)}
        faults.append((PURPOSE, tree.root, size, moved, tree.prove(moved)))
    if proof:
        flipped = bytearray(proof)
        flipped[data.draw(st.integers(0, len(proof) - 1))] ^= 1
        faults += [(PURPOSE, tree.root, size, leaves, bytes(flipped))]
        faults += [(PURPOSE, tree.root, size, leaves, proof[:-32])]
    for fault in faults:
        with pytest.raises(VerificationError):
            check_leaves(*fault)


def test_an_inner_node_is_no_leaf() -> None:
    """The top of a tree of four passed off as one of two over its inner nodes."""
    tree = MerkleTree(PURPOSE, [leaf(index) for index in range(4)])
    left, right = (tree.prove(indices) for indices in ((2, 3), (0, 1)))
    with pytest.raises(VerificationError):
        check_leaves(PURPOSE, tree.root, 2, {0: (left,)}, right)


def test_a_tree_has_a_leaf() -> None:
    with pytest.raises(ValueError, match="there is none"):
        MerkleTree(PURPOSE, [])
