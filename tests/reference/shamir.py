"""Shamir's sharing over GF(2^128) by its definitions, on plain integers: slow and obvious."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

POLYNOMIAL = 1 << 128 | 1 << 7 | 1 << 2 | 1 << 1 | 1
BLOCK = 16


def multiply(a: int, b: int) -> int:
    """The product of two field elements: bit i is the coefficient of x^i."""
    product = 0
    for bit in range(128):
        if b >> bit & 1:
            product ^= a << bit
    for bit in reversed(range(128, 255)):
        if product >> bit & 1:
            product ^= POLYNOMIAL << (bit - 128)
    return product


def inverse(a: int) -> int:
    """a^(2^128 - 2)."""
    result = 1
    for _ in range(127):
        a = multiply(a, a)
        result = multiply(result, a)
    return result


def split(secret: bytes, threshold: int, xs: Sequence[int], coefficients: bytes) -> list[bytes]:
    """The value at each x of the polynomial with these coefficients, highest power first, then `secret`."""
    rows = coefficients + secret
    width = len(secret)
    shares = []
    for x in xs:
        share = b""
        for column in range(0, width, BLOCK):
            value = 0
            for row in range(threshold):
                start = row * width + column
                value = multiply(value, x) ^ int.from_bytes(rows[start : start + BLOCK], "big")
            share += value.to_bytes(BLOCK, "big")
        shares.append(share)
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Lagrange interpolation at 0."""
    width = len(next(iter(shares.values())))
    secret = b""
    for column in range(0, width, BLOCK):
        value = 0
        for x, share in shares.items():
            term = int.from_bytes(share[column : column + BLOCK], "big")
            for other in shares:
                if other != x:
                    term = multiply(term, multiply(other, inverse(x ^ other)))
            value ^= term
        secret += value.to_bytes(BLOCK, "big")
    return secret
