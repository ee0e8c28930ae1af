"""Merkle trees and samples from their specification alone (protocols/secagg/README.md): slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Sequence

from smpc_dp_verify.encodings import tuple_hash, uint


def floyd(size: int, count: int, words: list[bytes]) -> list[int]:
    """`count` places of 0 .. size - 1."""
    chosen: list[int] = []
    for top in range(size - count, size):
        bound = top + 1
        word = int.from_bytes(words.pop(0), "little")
        while word >= 2**64 - 2**64 % bound:
            word = int.from_bytes(words.pop(0), "little")
        pick = word % bound
        chosen.append(top if pick in chosen else pick)
    return sorted(chosen)


class Tree:
    """A Merkle tree, by recursion: of 2^level leaves and more, the first 2^level are to the left."""

    def __init__(self, purpose: str, leaves: Sequence[tuple[bytes, ...]]) -> None:
        label = f"smpc-dp/1/{purpose}".encode()
        self.hashes = [tuple_hash("merkle-leaf", label, uint(i), *leaf) for i, leaf in enumerate(leaves)]
        self.root = tuple_hash("merkle-root", label, uint(len(leaves)), self.node(0, len(leaves)))

    def node(self, first: int, count: int) -> bytes:
        """The node over `count` leaves from `first`."""
        if count == 1:
            return self.hashes[first]
        height = (count - 1).bit_length()
        left = 1 << (height - 1)
        below = self.node(first, left), self.node(first + left, count - left)
        return tuple_hash("merkle-node", uint(height), uint(first >> height), *below)

    def prove(self, indices: Sequence[int]) -> bytes:
        """Each node that has no shown leaf below and whose sibling has: lowest first, from left to right."""
        result: list[tuple[int, int, bytes]] = []

        def visit(first: int, count: int) -> None:
            height = (count - 1).bit_length()
            if height == 0:
                return
            left = 1 << (height - 1)
            halves = ((first, left), (first + left, count - left))
            below = [any(start <= index < start + size for index in indices) for start, size in halves]
            for (start, size), shown, sibling in zip(halves, below, reversed(below), strict=True):
                if shown:
                    visit(start, size)
                elif sibling:
                    result.append((height, start, self.node(start, size)))

        visit(0, len(self.hashes))
        return b"".join(node for _, _, node in sorted(result))


def expected_samples(claimed: int, quorum: int) -> int:
    """The least s with C(q - 1, s) / C(f, s) <= 2^-128."""
    return next(s for s in range(quorum + 1) if math.comb(quorum - 1, s) * 2**128 <= math.comb(claimed, s))


def sampled(seed: bytes, f: int, q: int) -> list[int]:
    """The places among f signers that a certificate of q must show, from the digest of all that it claims."""
    count = expected_samples(f, q)
    # One word in 2^50 is rejected, so twice as many as there are draws will do.
    blocks = [tuple_hash("certificate-sample", seed, uint(i)) for i in range(count)]
    stream = b"".join(blocks)
    return floyd(f, count, [stream[i : i + 8] for i in range(0, len(stream), 8)])
