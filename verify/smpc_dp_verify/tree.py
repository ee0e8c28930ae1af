"""Merkle trees over what each party of a set gave [protocols/secagg/README.md, "Trees"]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smpc_dp_verify.encodings import tuple_hash, uint

PREFIX = b"smpc-dp/1/"


def leaf(purpose: str, number: int, name: str, given: bytes) -> bytes:
    """Return the hash of leaf `number` (from 0) of a Merkle tree: a party's name and its value."""
    return tuple_hash("merkle-leaf", PREFIX + purpose.encode(), uint(number), name.encode(), given)


def root_of(purpose: str, names: Sequence[str], given: Sequence[bytes]) -> bytes | None:
    """Return the Merkle root over all parties' values, in this order."""
    leaves = {i: leaf(purpose, i, *each) for i, each in enumerate(zip(names, given, strict=True))}
    return root_from(purpose, len(leaves), leaves, b"")


def root_from(purpose: str, size: int, leaves: Mapping[int, bytes], proof: bytes) -> bytes | None:
    """Return the Merkle root that some leaves and a proof give; None if the proof does not fit."""
    if len(proof) % 32:
        return None
    nodes = [proof[i : i + 32] for i in range(0, len(proof), 32)]
    row, height, width = dict(sorted(leaves.items())), 0, size
    while width > 1:
        height += 1
        above: dict[int, bytes] = {}
        for index in row:
            half, pair = index // 2, []
            if half in above:
                continue
            for each in (2 * half, 2 * half + 1):
                if each in row:
                    pair.append(row[each])
                elif each < width:
                    if not nodes:
                        return None
                    pair.append(nodes.pop(0))
            alone = len(pair) == 1
            above[half] = pair[0] if alone else tuple_hash("merkle-node", uint(height), uint(half), *pair)
        row, width = above, (width + 1) // 2
    if nodes:
        return None
    return tuple_hash("merkle-root", PREFIX + purpose.encode(), uint(size), row[0])
