"""The SHA-256 compression function [FIPS 180-4, section 6.2.2], as a circuit and in the clear."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.builder import Bit, Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import add, bitwise_xor, multiplex

ROUNDS = 64
WORD_BITS = 32
MESSAGE_BITS = 512
STATE_BITS = 256
# The longest message that fills one block with its padding.
ONE_BLOCK_BYTES = 55


def _primes(count: int) -> list[int]:
    """Return the first `count` prime numbers."""
    result: list[int] = []
    candidate = 2
    while len(result) < count:
        if all(candidate % prime for prime in result):
            result.append(candidate)
        candidate += 1
    return result


def _root_fraction(n: int, degree: int) -> int:
    """Return the first 32 bits of the fractional part of the `degree`-th root of n, a SHA-256 constant."""
    target = n << WORD_BITS * degree
    low, high = 0, target
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= target else (low, middle - 1)
    return low % (1 << WORD_BITS)


ROUND_CONSTANTS = tuple(_root_fraction(prime, 3) for prime in _primes(ROUNDS))
INITIAL_STATE = tuple(_root_fraction(prime, 2) for prime in _primes(8))


def compress(builder: Builder, message: Sequence[Bit], state: Sequence[Bit]) -> Bits:
    """Add gates of the SHA-256 compression of a 512-bit block into a 256-bit state; return the new state.

    Both are the integers that their bytes are in big-endian order, least significant bit first.
    """
    schedule = _split(message)
    for index in range(16, ROUNDS):
        sigma_0 = _sigma(builder, schedule[index - 15], (7, 18), 3)
        sigma_1 = _sigma(builder, schedule[index - 2], (17, 19), 10)
        total = add(builder, schedule[index - 16], sigma_0)
        schedule.append(add(builder, add(builder, total, schedule[index - 7]), sigma_1))
    before = _split(state)
    a, b, c, d, e, f, g, h = before
    for word, constant in zip(schedule, ROUND_CONSTANTS, strict=True):
        keyed = add(builder, word, builder.constant(constant, WORD_BITS))
        total = add(builder, add(builder, h, keyed), _choose(builder, e, f, g))
        first = add(builder, total, _sigma(builder, e, (6, 11, 25)))
        second = add(builder, _sigma(builder, a, (2, 13, 22)), _majority(builder, a, b, c))
        a, b, c, d, e, f, g, h = add(builder, first, second), a, b, c, add(builder, d, first), e, f, g
    after = [add(builder, x, y) for x, y in zip(before, (a, b, c, d, e, f, g, h), strict=True)]
    return tuple(bit for word in reversed(after) for bit in word)


def meaning(message: int, state: int) -> tuple[int]:
    """Return the SHA-256 compression of one block as a tuple of one integer, computed without a circuit."""
    (result,) = meaning_many(
        [
            np.frombuffer(value.to_bytes(bits // 8, "little"), dtype=np.uint8).reshape(1, -1)
            for value, bits in ((message, MESSAGE_BITS), (state, STATE_BITS))
        ]
    )
    return (int.from_bytes(result.tobytes(), "little"),)


def meaning_many(inputs: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Return the SHA-256 compressions of many blocks and states, in plain numpy without a circuit.

    Message and state are little-endian bytes of shape (instances, 64) and (instances, 32).
    """
    # Backwards, so that the word of the first bytes, the most significant ones, comes first.
    schedule, before = (list(np.ascontiguousarray(value).view("<u4").T[::-1]) for value in inputs)
    for index in range(16, ROUNDS):
        w = schedule[index - 15]
        sigma_0 = _rotate(w, 7) ^ _rotate(w, 18) ^ w >> np.uint32(3)
        w = schedule[index - 2]
        sigma_1 = _rotate(w, 17) ^ _rotate(w, 19) ^ w >> np.uint32(10)
        schedule.append(schedule[index - 16] + sigma_0 + schedule[index - 7] + sigma_1)
    a, b, c, d, e, f, g, h = before
    for word, constant in zip(schedule, ROUND_CONSTANTS, strict=True):
        sum_1 = _rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25)
        first = h + sum_1 + (e & f ^ ~e & g) + np.uint32(constant) + word
        sum_0 = _rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22)
        second = sum_0 + (a & b ^ a & c ^ b & c)
        a, b, c, d, e, f, g, h = first + second, a, b, c, d + first, e, f, g
    after = [x + y for x, y in zip(before, (a, b, c, d, e, f, g, h), strict=True)]
    return [np.stack(after[::-1], axis=1).astype("<u4").view(np.uint8)]


def known_answers() -> Iterator[tuple[tuple[int, int], tuple[int]]]:
    """Yield test inputs and outputs from `hashlib`: one message of each length that fits a block."""
    initial = int.from_bytes(b"".join(word.to_bytes(4, "big") for word in INITIAL_STATE), "big")
    for length in range(ONE_BLOCK_BYTES + 1):
        message = hashlib.sha512(bytes([length])).digest()[:length]
        block = message + b"\x80" + bytes(ONE_BLOCK_BYTES - length) + (8 * length).to_bytes(8, "big")
        expected = hashlib.sha256(message).digest()
        yield (int.from_bytes(block, "big"), initial), (int.from_bytes(expected, "big"),)


def _split(value: Sequence[Bit]) -> list[Bits]:
    """Return the 32-bit words of a big-endian integer given as bits, the first word first."""
    return [tuple(value[low : low + WORD_BITS]) for low in range(len(value) - WORD_BITS, -1, -WORD_BITS)]


def _sigma(builder: Builder, word: Bits, rotations: tuple[int, ...], shift: int | None = None) -> Bits:
    """Return the XOR of a word rotated right by several amounts, and shifted right if `shift` is given."""
    parts = [(*word[amount:], *word[:amount]) for amount in rotations]
    if shift is not None:
        parts.append((*word[shift:], *builder.constant(0, shift)))
    total = parts[0]
    for part in parts[1:]:
        total = bitwise_xor(builder, total, part)
    return total


def _choose(builder: Builder, e: Bits, f: Bits, g: Bits) -> Bits:
    """Return f where e is 1, else g, bit by bit on 32-bit words."""
    return tuple(multiplex(builder, bit, (zero,), (one,))[0] for bit, one, zero in zip(e, f, g, strict=True))


def _majority(builder: Builder, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return the bitwise majority of three words, with one AND gate for each bit.

    Where a differs from c, b decides, otherwise c.
    """
    return tuple(
        builder.xor(z, builder.and_(builder.xor(x, z), builder.xor(y, z)))
        for x, y, z in zip(a, b, c, strict=True)
    )


def _rotate(words: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """Return 32-bit words of a numpy array rotated to the right by `count` bits."""
    return words >> np.uint32(count) | words << np.uint32(WORD_BITS - count)
