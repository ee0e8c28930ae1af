"""Keyed BLAKE3, word by word [O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020, section 2]."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

IV = (
    *(0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A),
    *(0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19),
)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
# Operands of the mixing function: the columns, then the diagonals.
QUARTERS = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)
CHUNK_START, CHUNK_END, PARENT, ROOT, KEYED_HASH = 1, 2, 4, 8, 16
BLOCK, CHUNK = 64, 1024
WORD = 0xFFFFFFFF


def rotate(word: int, count: int) -> int:
    return (word >> count | word << 32 - count) & WORD


def compress(chaining: Sequence[int], block: bytes, counter: int, flags: int) -> list[int]:
    """The first eight words of the compression function's output, for up to 64 bytes."""
    words = list(struct.unpack("<16I", block.ljust(BLOCK, b"\0")))
    v = [*chaining, *IV[:4], counter & WORD, counter >> 32, len(block), flags]
    for _ in range(7):
        for number, (a, b, c, d) in enumerate(QUARTERS):
            for word, effects in ((words[2 * number], (16, 12)), (words[2 * number + 1], (8, 7))):
                v[a] = v[a] + v[b] + word & WORD
                v[d] = rotate(v[d] ^ v[a], effects[0])
                v[c] = v[c] + v[d] & WORD
                v[b] = rotate(v[b] ^ v[c], effects[1])
        words = [words[index] for index in PERMUTATION]
    return [v[number] ^ v[number + 8] for number in range(8)]


def node(data: bytes, first: int, key: Sequence[int], root: int) -> list[int]:
    """The chaining value of the tree over `data`, whose first chunk has the number `first`."""
    if len(data) <= CHUNK:
        chaining = list(key)
        starts = range(0, max(len(data), 1), BLOCK)
        for start in starts:
            ends = CHUNK_END | root if start == starts[-1] else 0
            flags = KEYED_HASH | (CHUNK_START if start == 0 else 0) | ends
            chaining = compress(chaining, data[start : start + BLOCK], first, flags)
        return chaining
    # The left subtree is the largest full one that leaves something for the right.
    chunks = 1 << ((len(data) - 1) // CHUNK).bit_length() - 1
    left, right = data[: chunks * CHUNK], data[chunks * CHUNK :]
    both = [*node(left, first, key, 0), *node(right, first + chunks, key, 0)]
    return compress(key, struct.pack("<16I", *both), 0, KEYED_HASH | PARENT | root)


@lru_cache(64)
def keyed_hash(key: bytes, data: bytes) -> bytes:
    """32 bytes; kept, as it takes long and transcripts are hashed again and again."""
    return struct.pack("<8I", *node(data, 0, struct.unpack("<8I", key), ROOT))
