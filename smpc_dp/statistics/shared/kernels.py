"""Kernels on shares: sums over pairs, of the same integers that the kernels' circuits compute.

Every kernel here is a form in signs of differences, or in the values themselves; its sum over many pairs is
one inner product. Over small grids the sum over all pairs follows from counts, which grow with n instead of
n**2; a variance follows from two sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.protocols.pairwise.draw import Pairs
from smpc_dp.statistics.kernels import Kernel
from smpc_dp.statistics.shared.arithmetic import Shared, inner, one_hot, sign

Way = Literal["pairs", "counts", "sums", "sort"]

NAMES = ("kendall_tau", "gini_mean_difference", "variance", "collision", "auc", "auc_private_labels")
# Shared products of one step, about: bounds the memory.
CHUNK = 1 << 18
MAX_GRID_BITS = 12
"""Bits of a field, or of two together for Kendall's tau, whose grid points are counted."""


def over_pairs(kernel: Kernel, bits: Sequence[Shared], values: Shared, pairs: Pairs) -> Iterator[Shared]:
    """Yield sums over chunks of pairs, shape (1,) each; the first of a pair has label 1 where that is public.

    `bits` has one array (n, w) for each field, `values` (n, fields) are the same codes.
    """
    size = max(1, CHUNK // sum(array.shape[1] for array in bits))
    for start in range(0, len(pairs), size):
        first, second = pairs[start : start + size].T
        yield _sum(kernel.name, bits, values, first, second)


def _sum(name: str, bits: Sequence[Shared], values: Shared, first: Pairs, second: Pairs) -> Shared:
    def order(field: int) -> Shared:
        return sign(bits[field][first], bits[field][second])

    def difference(field: int) -> Shared:
        return values[first, field] - values[second, field]

    match name:
        case "kendall_tau":
            return inner(order(0), order(1)) + len(first)
        case "gini_mean_difference":
            return inner(order(0), difference(0))
        case "variance":
            apart = difference(0)
            return inner(apart, apart)
        case "collision":
            signs = order(0)
            return len(first) - inner(signs, signs)
        case "auc":
            return np.sum(order(0), keepdims=True) + len(first)
        case "auc_private_labels":
            # With labels apart by d: d**2 + d sign = 1 + d sign where they differ, else 0.
            apart = difference(1)
            return inner(apart, apart + order(0))
        case _:
            raise ConfigError([Fault("kernel", f"'{name}' has no program on shares")])


def by_counts(kernel: Kernel, bits: Sequence[Shared], values: Shared, marks: Sequence[int]) -> Shared:
    """Return the sum over all pairs from how many records have each code, shape (1,)."""
    users = values.shape[0]
    units = one_hot(bits[0])
    match kernel.name:
        case "kendall_tau":
            table = units.T @ one_hot(bits[1])
            cells = table.reshape(table.shape[0] * table.shape[1])
            apart = inner(cells, _concordance(table).reshape(cells.shape[0]))
            return _half(apart) + users * (users - 1) // 2
        case "gini_mean_difference":
            up_to = np.cumsum(np.sum(units, axis=0))
            return inner(up_to, users - up_to)
        case "collision":
            counts = np.sum(units, axis=0)
            return _half(inner(counts, counts) - users)
        case "auc":
            high = np.array(marks) == 1
            return _ranked(np.sum(units[high], axis=0), np.sum(units[~high], axis=0))
        case "auc_private_labels":
            high = (values[:, 1].reshape(1, users) @ units).reshape(units.shape[1])
            return _ranked(high, np.sum(units, axis=0) - high)
        case _:
            raise ConfigError([Fault("kernel", f"'{kernel.name}' has no program on counts")])


def by_sums(values: Shared) -> Shared:
    """Return the sum of (x - x')**2 over all pairs, shape (1,): n sum x**2 - (sum x)**2."""
    column = values[:, 0]
    total = np.sum(column, keepdims=True)
    return values.shape[0] * inner(column, column) - total * total


def cheapest(kernel: Kernel, users: int, pairs: int, complete: bool) -> Way:
    """Return the way of fewest shared products for that many pairs."""
    if complete and kernel.name == "variance":
        return "sums"
    widths = grid_widths(kernel)
    if not complete or kernel.name == "variance" or sum(widths) > MAX_GRID_BITS:
        return "pairs"
    counted = users * sum(1 << width for width in widths) + (1 << sum(widths))
    return "counts" if counted < pairs * sum(2 * (width - 1) for width in widths) else "pairs"


def grid_widths(kernel: Kernel) -> list[int]:
    """Return the bits of each field whose order the kernel takes."""
    fields = kernel.fields[:-1] if kernel.labels == "private" else kernel.fields
    return [field.bits for field in fields]


def _ranked(high: Shared, low: Shared) -> Shared:
    """Return the sum of 1 + sign over a record of label 1 and one of label 0, from counts of each code."""
    return inner(high, 2 * np.cumsum(low) - low)


def _concordance(table: Shared) -> Shared:
    """Return for each cell how many records are concordant with it, less those that are discordant."""
    below = np.cumsum(table, axis=0)
    # How many records are in lower rows less those in higher ones, by column.
    lean = 2 * below - table - np.sum(table, axis=0, keepdims=True)
    left = np.cumsum(lean, axis=1)
    return 2 * left - lean - np.sum(lean, axis=1, keepdims=True)


def _half(even: Shared) -> Shared:
    """Return half of an even integer."""
    return even * ((type(even).sectype.field.modulus + 1) // 2)
