"""Kernels on shares: forms in signs of differences, or in the values themselves.

The sum of a form over many pairs is one inner product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from smpc_dp.capabilities.servers.kernels.share_gadgets import Shared, inner, sign


class Column(NamedTuple):
    """Secret-shared values of one field for many pairs: as bits, shape (pairs, w), and as numbers."""

    bits: Shared
    values: Shared


@dataclass(frozen=True, eq=False)
class Bilinear:
    """Unevaluated expression constant + factor * left * right on secret shares, elementwise.

    A sum over pairs need not compute the single products.
    """

    constant: int
    factor: int
    left: Shared
    right: Shared = None

    def total(self) -> Shared:
        """Return the shared sum of the expression over all pairs, by one inner product."""
        whole = np.sum(self.left, keepdims=True) if self.right is None else inner(self.left, self.right)
        return self.factor * whole + self.constant * self.left.shape[0]


@dataclass(frozen=True, eq=False)
class Distance:
    """Unevaluated |x - y| of two secret-shared columns."""

    x: Column
    y: Column


class OnShares:
    """Implementation of kernel arithmetic on secret-shared columns of pairs, by multiplications.

    See `capabilities.pairs.kernels.definitions.Arithmetic`. A sign is shares of -1, 0 and 1, or a product
    of two.
    """

    def sign(self, x: Column, y: Column) -> Bilinear:
        """Return the sign of x - y of secret-shared columns: 2 (w - 1) multiplications for w bits."""
        return Bilinear(0, 1, sign(x.bits, y.bits))

    def product(self, s: Bilinear, t: Bilinear) -> Bilinear:
        """Return the product of two signs, unevaluated; operands that are products are multiplied first."""
        return Bilinear(0, 1, _made(s), _made(t))

    def raised(self, s: Bilinear) -> Bilinear:
        """Return 1 + s of a shared sign, without a multiplication."""
        return replace(s, constant=s.constant + 1)

    def decided(self, s: Bilinear, by: Bilinear) -> Bilinear:
        """Return 1 + by * s where the shared sign `by` is not 0, else 0, as an unevaluated product."""
        decisive = _made(by)
        return Bilinear(0, 1, decisive, decisive + _made(s))

    def equal(self, x: Column, y: Column) -> Bilinear:
        """Return 1 where two shared columns are equal, else 0: 2 (w - 1) multiplications for w bits."""
        apart = sign(x.bits, y.bits)
        return Bilinear(1, -1, apart, apart)

    def distance(self, x: Column, y: Column, limit: int) -> Distance:  # noqa: ARG002
        """Return |x - y| of shared columns, unevaluated; ignores `limit`, which records satisfy."""
        return Distance(x, y)

    def square(self, distance: Distance) -> Bilinear:
        """Return the square of a distance, as an unevaluated product."""
        apart = distance.x.values - distance.y.values
        return Bilinear(0, 1, apart, apart)


def _made(sign: Bilinear) -> Shared:
    """Return an expression's value as shares, multiplying its factors if it is a product."""
    if sign.right is None:
        return sign.left
    return sign.left * sign.right
