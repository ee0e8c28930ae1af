"""Keyed BLAKE3 as its paper defines it [O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020]: slow and plain."""

from __future__ import annotations

CHUNK, BLOCK = 1024, 64
CHUNK_START, CHUNK_END, PARENT, ROOT, KEYED_HASH = 1, 2, 4, 8, 16
IV = (
    *(0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A),
    *(0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19),
)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
QUARTERS = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)
MASK = 0xFFFFFFFF


def words(data: bytes) -> list[int]:
    """Little-endian words of four bytes."""
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def rotate(word: int, count: int) -> int:
    """To the right."""
    return word >> count | word << 32 - count & MASK


def compress(chaining: list[int], block: bytes, counter: int, flags: int) -> list[int]:
    """The first eight words of the compression function's output."""
    message = words(block + bytes(BLOCK - len(block)))
    state = [*chaining, *IV[:4], counter & MASK, counter >> 32, len(block), flags]
    for _ in range(7):
        for number, (a, b, c, d) in enumerate(QUARTERS):
            for word, first, second in ((2 * number, 16, 12), (2 * number + 1, 8, 7)):
                state[a] = state[a] + state[b] + message[word] & MASK
                state[d] = rotate(state[d] ^ state[a], first)
                state[c] = state[c] + state[d] & MASK
                state[b] = rotate(state[b] ^ state[c], second)
        message = [message[place] for place in PERMUTATION]
    return [state[i] ^ state[i + 8] for i in range(8)]


def chunk_value(key: list[int], data: bytes, number: int, flags: int) -> list[int]:
    """The chaining value of one chunk; `flags` of its last block."""
    blocks = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)] or [b""]
    value = key
    for place, block in enumerate(blocks):
        own = KEYED_HASH | (CHUNK_START if place == 0 else 0)
        if place == len(blocks) - 1:
            own |= CHUNK_END | flags
        value = compress(value, block, number, own)
    return value


def tree(key: list[int], data: bytes, first: int, flags: int) -> list[int]:
    """The chaining value of some chunks: the left subtree is the largest power of two that leaves some."""
    chunks = max(1, -(-len(data) // CHUNK))
    if chunks == 1:
        return chunk_value(key, data, first, flags)
    left = 1 << (chunks - 1).bit_length() - 1
    children = [
        *tree(key, data[: left * CHUNK], first, 0),
        *tree(key, data[left * CHUNK :], first + left, 0),
    ]
    block = b"".join(word.to_bytes(4, "little") for word in children)
    return compress(key, block, 0, KEYED_HASH | PARENT | flags)


def keyed_hash(key: bytes, data: bytes) -> bytes:
    """32 bytes."""
    return b"".join(word.to_bytes(4, "little") for word in tree(words(key), data, 0, ROOT))
