"""Exact building blocks on shared bits: no masked opening, so nothing here has a statistical error.

A shared array is one of mpyc's secure integers, numpy-like. Bits are in the last axis, the lowest first.
Counts are of shared products, the only cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.circuit_noise import Coin

Shared = Any
"""A secure array of mpyc."""
Public = NDArray[np.object_]


def join_bits(columns: Sequence[Shared]) -> Shared:
    """Return the shared bits of all fields side by side, as one array of shape (n, w)."""
    return np.concatenate(list(columns), axis=1) if len(columns) > 1 else columns[0]


def public(values: Any) -> Public:
    """Return values as an array of Python integers, which do not overflow in a large field."""
    return np.array(values, dtype=object)


def sign(x: Shared, y: Shared) -> Shared:
    """Return the shared sign of x - y, of unsigned numbers given as shared bits: 2 (w - 1) multiplications.

    Digits are -1, 0 and 1; of two neighbours the higher decides unless it is 0.
    """
    digits = x - y
    while (width := digits.shape[-1]) > 1:
        even = width - width % 2
        low, high = digits[..., 0:even:2], digits[..., 1:even:2]
        joined = high + (1 - high * high) * low
        digits = np.concatenate((joined, digits[..., even:]), axis=-1) if width % 2 else joined
    return digits[..., 0]


def is_less(x: Shared, y: Shared) -> Shared:
    """Return shared bits of x < y, for numbers given as shared bits; one multiplication more than `sign`."""
    order = sign(x, y)
    return half(order * (order - 1))


def below(bits: Shared, thresholds: Sequence[Coin]) -> Shared:
    """Return shared bits: 1 where a biased coin's random bits are below its threshold, else 0.

    `bits` has shape (.., sum of the coins' bits); the result (.., coins). Less than twice as many products.
    """
    starts = np.cumsum([0, *(coin.bits for coin in thresholds)])
    less, equal = _digits([(coin.threshold, coin.bits) for coin in thresholds])
    index = np.minimum(starts[:-1, None] + np.arange(less.shape[-1]), starts[-1] - 1)
    return _tree(bits[..., index.reshape(-1)].reshape(*bits.shape[:-1], *index.shape), less, equal)


def below_each(bits: Shared, cuts: Sequence[int]) -> Shared:
    """Return shared bits: for each public cut, whether the number in `bits` is below the cut.

    Less than 2 w products a cut, w rounded up to a power of 2.
    """
    used = bits.shape[-1]
    less, equal = _digits([(cut, used) for cut in cuts])
    index = np.minimum(np.arange(less.shape[-1]), used - 1)
    return _tree(bits[..., index].reshape(*bits.shape[:-1], 1, len(index)), less, equal)


def exchanges(size: int) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield rounds (indices, distance) of Batcher's sorting network: compare i with i + distance."""
    top = 1 << max(0, (size - 1).bit_length() - 1)
    half = top if size > 1 else 0
    while half:
        distance, apart, rest = half, top, 0
        while distance:
            indices = np.arange(size - distance)
            indices = indices[indices & half == rest]
            if len(indices):
                yield indices, distance
            distance, apart, rest = apart - half, apart >> 1, half
        half >>= 1


def sort(mpc: Any, rows: Shared, key: int) -> Shared:
    """Return shared rows sorted, by a sorting network, by the numbers that their last `key` bits encode.

    Oblivious: 2 key + w products for each of about (n / 4) log2(n)**2 exchanges.
    """
    for indices, distance in exchanges(rows.shape[0]):
        low, high = rows[indices], rows[indices + distance]
        wrong = is_less(high[..., -key:], low[..., -key:])
        moved = wrong.reshape(*wrong.shape, 1) * (high - low)
        rows = mpc.np_update(rows, indices, low + moved)
        rows = mpc.np_update(rows, indices + distance, high - moved)
    return rows


def half(even: Shared) -> Shared:
    """Return the halves of shared even integers, by a public factor."""
    return even * ((type(even).sectype.field.modulus + 1) // 2)


def one_hot(bits: Shared) -> Shared:
    """Return the unit vector that each shared number selects: shape (n, w) bits to (n, 2**w)."""
    rows, width = bits.shape
    last = bits[:, width - 1 : width]
    units = np.concatenate((1 - last, last), axis=1)
    for index in range(width - 2, -1, -1):
        odd = units * bits[:, index : index + 1]
        both = np.stack((units - odd, odd), axis=2)
        units = both.reshape(rows, 2 * units.shape[1])
    return units


def number(bits: Shared) -> Shared:
    """Return the shared numbers that shared bits encode: shape (.., w) to (..)."""
    weights = public([1 << index for index in range(bits.shape[-1])])
    return np.sum(bits * weights, axis=-1)


def inner(x: Shared, y: Shared) -> Shared:
    """Return the inner product of two shared vectors, shape (1,), at the price of one multiplication."""
    size = x.shape[0]
    return (x.reshape(1, size) @ y.reshape(size, 1)).reshape(1)


def _digits(cuts: Sequence[tuple[int, int]]) -> tuple[Public, Public]:
    """Return how each bit of a number decides its comparison with public cuts: (less, equal) coefficients.

    As (constant, factor) of the bit, shape (2, cuts, digits). Where the cut's digit is c: less if c and not
    bit, equal if bit == c. Above a cut's bits both are equal.
    """
    width = 1 << (max(bits for _, bits in cuts) - 1).bit_length()
    less, equal = (np.zeros((2, len(cuts), width), dtype=object) for _ in range(2))
    equal[0] = 1
    for number, (cut, bits) in enumerate(cuts):
        for digit in range(bits):
            sign = cut >> digit & 1
            less[:, number, digit] = (sign, -sign)
            equal[:, number, digit] = (1 - sign, 2 * sign - 1)
    return less, equal


def _tree(bits: Shared, less: Public, equal: Public) -> Shared:
    """Combine comparisons of single bits into one shared bit for each cut, the higher bit deciding."""
    below_, same = bits * less[1] + less[0], bits * equal[1] + equal[0]
    while below_.shape[-1] > 1:
        high = same[..., 1::2]
        below_ = below_[..., 1::2] + high * below_[..., 0::2]
        if below_.shape[-1] > 1:
            same = high * same[..., 0::2]
    return below_[..., 0]
