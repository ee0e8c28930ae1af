"""Kernels on shares: forms in signs of differences, or in the values themselves.

The sum of a form over many pairs is one inner product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from smpc_dp.capabilities.servers.kernels.share_gadgets import Shared, inner, sign


class Column(NamedTuple):
    """One field of the records of many pairs: bits, shape (pairs, w), and the same as numbers, (pairs,)."""

    bits: Shared
    values: Shared


@dataclass(frozen=True, eq=False)
class Bilinear:
    """constant + factor * left * right, elementwise.

    A sum over pairs need not compute the single products.
    """

    constant: int
    factor: int
    left: Shared
    right: Shared = None

    def total(self) -> Shared:
        """Return the sum of all, shape (1,)."""
        whole = np.sum(self.left, keepdims=True) if self.right is None else inner(self.left, self.right)
        return self.factor * whole + self.constant * self.left.shape[0]


@dataclass(frozen=True, eq=False)
class Distance:
    """|x - y| of columns within their grid, not yet computed."""

    x: Column
    y: Column


class OnShares:
    """Arithmetic of programs on shares, on columns of pairs.

    See `capabilities.pairs.kernels.definitions.Arithmetic`. A sign is shares of -1, 0 and 1, or a product
    of two.
    """

    def sign(self, x: Column, y: Column) -> Bilinear:
        """Return the sign of x - y: 2 (w - 1) products for w bits."""
        return Bilinear(0, 1, sign(x.bits, y.bits))

    def product(self, s: Bilinear, t: Bilinear) -> Bilinear:
        """Return the product of two signs: no product by itself."""
        return Bilinear(0, 1, _made(s), _made(t))

    def raised(self, s: Bilinear) -> Bilinear:
        """Return 1 + s: no product."""
        return replace(s, constant=s.constant + 1)

    def decided(self, s: Bilinear, by: Bilinear) -> Bilinear:
        """Return by**2 (1 + by s) = by (by + s): no product by itself."""
        decisive = _made(by)
        return Bilinear(0, 1, decisive, decisive + _made(s))

    def equal(self, x: Column, y: Column) -> Bilinear:
        """Return whether two fields are equal: 2 (w - 1) products for w bits."""
        apart = sign(x.bits, y.bits)
        return Bilinear(1, -1, apart, apart)

    def distance(self, x: Column, y: Column, limit: int) -> Distance:  # noqa: ARG002
        """Return |x - y|: no product; the limit is that of codes within their bounds, which shares are."""
        return Distance(x, y)

    def square(self, distance: Distance) -> Bilinear:
        """Return the square of a distance: no product by itself."""
        apart = distance.x.values - distance.y.values
        return Bilinear(0, 1, apart, apart)


def _made(sign: Bilinear) -> Shared:
    """Return a sign as shares."""
    if sign.right is None:
        return sign.left
    return sign.left * sign.right
