"""Kernels of pairwise statistics, each written once: the integer 0..steps of two records.

A definition takes an arithmetic and two records, and is interpreted by handing it one: `on_bits` makes
circuits of it, `on_shares` programs on shares, `on_arrays` functions of NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Record = Sequence[Any]
"""The fields of a record, as the arithmetic has them."""


class Arithmetic(Protocol):
    """Interface of the operations that define kernels, implemented on numbers and on circuit bits.

    A sign is -1, 0 or 1; all other results are integers of at least 0.
    """

    def sign(self, x: Any, y: Any) -> Any:
        """Return the sign (-1, 0 or 1) of the difference x - y of two fields."""

    def product(self, s: Any, t: Any) -> Any:
        """Return the product of two signs, which is -1, 0 or 1."""

    def raised(self, s: Any) -> Any:
        """Return 1 + s, from 0 to 2, for a sign s of -1, 0 or 1."""

    def decided(self, s: Any, by: Any) -> Any:
        """Return 1 + by * s for two signs where `by` is not 0, else 0."""

    def equal(self, x: Any, y: Any) -> Any:
        """Return 1 where the fields x and y are equal, else 0."""

    def distance(self, x: Any, y: Any, limit: int) -> Any:
        """Return min(|x - y|, limit) of two fields."""

    def square(self, distance: Any) -> Any:
        """Return the square of the distance of two fields."""


Definition = Callable[[Arithmetic, Record, Record], Any]


def kendall_tau(on: Arithmetic, x: Record, y: Record) -> Any:
    """Return 1 + sign(x0 - y0) sign(x1 - y1), the integer kernel of Kendall's tau on two records."""
    first = on.sign(x[0], y[0])
    return on.raised(on.product(first, on.sign(x[1], y[1])))


def absolute_difference(steps: int) -> Definition:
    """Return the kernel definition min(|x0 - y0|, steps), a function on two records."""
    return lambda on, x, y: on.distance(x[0], y[0], steps)


def squared_difference(side: int) -> Definition:
    """Return the kernel definition min(|x0 - y0|, side)**2, a function on two records."""
    return lambda on, x, y: on.square(on.distance(x[0], y[0], side))


def collision(on: Arithmetic, x: Record, y: Record) -> Any:
    """Return 1 where the first fields of two records are equal, else 0, the kernel of collisions."""
    return on.equal(x[0], y[0])


def auc(on: Arithmetic, x: Record, y: Record) -> Any:
    """Return 1 + sign(x0 - y0), the integer kernel of the AUC of scores with public labels."""
    return on.raised(on.sign(x[0], y[0]))


def auc_private_labels(on: Arithmetic, x: Record, y: Record) -> Any:
    """Return AUC's kernel with private labels: 1 + sign(x1 - y1) sign(x0 - y0), or 0 for equal labels."""
    compared = on.sign(x[0], y[0])
    return on.decided(compared, by=on.sign(x[1], y[1]))
