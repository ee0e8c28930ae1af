"""Pairwise statistics without privacy: over all pairs, in O(n log n) where possible, or sampled ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.capabilities.pairs.kernels.fields import Floats
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import is_known
from smpc_dp.crypto.prg import expand
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.values import refuse_masked

__all__ = ["auc", "collision", "gini_mean_difference", "kendall_tau", "u_statistic", "variance"]

# Pairs in one block where all pairs are evaluated.
BLOCK = 1 << 22
MAX_SAMPLED = 1 << 28


def kendall_tau(x: ArrayLike, y: ArrayLike) -> float:
    """Return the mean of sign(x_u - x_v) sign(y_u - y_v) over all pairs, ties counted as 0 (tau-a).

    x, y: shape (n,), n >= 2, no NaN. O(n log n) [Knight 1966]. Raises ConfigError.
    """
    first, second = _column("x", x), _column("y", y)
    if len(first) != len(second):
        raise ConfigError.at("y", f"{len(second)} values, x has {len(first)}", ConfigCheck.SHAPE)
    n = len(first)
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    ranks = np.unique(second, return_inverse=True)[1].reshape(-1)
    both = np.unique(np.stack([first, second]), axis=1, return_counts=True)[1]
    pairs = n * (n - 1) // 2
    tied = _tied(first) + _tied(second) - _choose_two(both)
    # In order of x, and of y where x is tied, the discordant pairs are those whose y comes the wrong way.
    return (pairs - tied - 2 * _inversions(ranks)) / pairs


def gini_mean_difference(x: ArrayLike) -> float:
    """Return the mean of `|x_u - x_v|` over all pairs; shape (n,), n >= 2. O(n log n). Raises ConfigError."""
    values = np.sort(_column("x", x))
    n = len(values)
    weights = 2.0 * np.arange(n) - (n - 1)
    # Weights add up to 0: centred values lose fewer digits.
    return float(2.0 * (weights @ (values - values[n // 2])) / (n * (n - 1.0)))


def auc(positives: ArrayLike, negatives: ArrayLike) -> float:
    """Return the share of pairs (positive, negative) where the positive is greater, ties counted half.

    Shapes (n+,) and (n-,), both at least 1. O(n log n). Raises ConfigError.
    """
    high, low = _column("positives", positives, 1), np.sort(_column("negatives", negatives, 1))
    below = np.searchsorted(low, high, "left").sum() + np.searchsorted(low, high, "right").sum()
    return float(below) / (2.0 * len(high) * len(low))


def variance(x: ArrayLike) -> float:
    """Return the unbiased sample variance, the mean of (x_u - x_v)^2 / 2. Raises ConfigError."""
    return float(np.var(_column("x", x), ddof=1))


def collision(x: ArrayLike) -> float:
    """Return the share of pairs with equal values. O(n log n). Raises ConfigError."""
    values = np.sort(_column("x", x))
    return _tied(values) / (len(values) * (len(values) - 1) // 2)


def u_statistic(kernel: Kernel, records: Any) -> float:
    """Return the exact mean of a kernel over all pairs of records, without noise; or raise ConfigError.

    O(n log n) for the kernels of this package, O(n^2) time and O(n) memory for a party's own. A kernel with
    public labels takes (records, labels) with labels (n,) of 0 and 1. Values are rounded to the kernel's
    grid, like those of the protocol. Raises ConfigError, PrivacyError.
    """
    if kernel.labels == "public":
        data, labels = records
        public_labels = _column("labels", labels, 1)
        if not np.isin(public_labels, (0, 1)).all():
            raise ConfigError.at("labels", "not all 0 or 1", ConfigCheck.RANGE)
        values = kernel.values(kernel.codes(data))
        return auc(values[public_labels == 1, 0], values[public_labels == 0, 0])
    values = kernel.values(kernel.codes(records))
    n = len(values)
    if n < 2:
        raise ConfigError.at("data", f"{n} records, a pair needs 2", ConfigCheck.RANGE)
    match kernel.name if is_known(kernel) else "":
        case "kendall_tau":
            return kendall_tau(values[:, 0], values[:, 1])
        case "gini_mean_difference":
            return gini_mean_difference(values[:, 0])
        case "variance":
            return variance(values[:, 0])
        case "collision":
            return collision(values[:, 0])
        case "auc_private_labels":
            up, down = (values[values[:, 1] == label, 0] for label in (1, 0))
            share = 2.0 * len(up) * len(down) / (n * (n - 1.0))
            return share * auc(up, down) if share else 0.0
        case _:
            return _all_pairs(kernel, values)


def incomplete_u_statistic(kernel: Kernel, records: Any, pairs: NDArray[np.int64]) -> float:
    """Return the exact mean of a kernel over the given pairs of records, shape (m, 2) [Blom 1976].

    With `draw_pairs` or `garbled.draw.matchings` the mean over draws is that over all pairs.
    Raises ConfigError, PrivacyError.
    """
    codes = kernel.codes(records)
    shape = pairs.shape
    if len(shape) != 2 or shape[1] != 2 or not len(pairs) or not ((pairs >= 0) & (pairs < len(codes))).all():
        raise ConfigError.at(
            "pairs", f"shape {shape}: not pairs (m, 2) of records 0..{len(codes) - 1}", ConfigCheck.SHAPE
        )
    integers = kernel.integer(codes[pairs[:, 0]], codes[pairs[:, 1]])
    return float(kernel.decode(integers).mean())


def draw_pairs(parties: int, count: int, randomness: Randomness | None = None) -> NDArray[np.int64]:
    """Return `count` random pairs of two different parties of n, independent, shape (count, 2).

    Uniform up to a bias of n / 2^64. Raises ConfigError.
    """
    if parties < 2 or not 1 <= count <= MAX_SAMPLED:
        reason = f"{count} pairs of {parties}: needs 1 to {MAX_SAMPLED} pairs of at least 2"
        raise ConfigError.at("pairs", reason, ConfigCheck.RANGE)
    words = expand((randomness or SystemRandomness()).bytes(32), 2 * count, np.uint64).reshape(count, 2)
    first = (words[:, 0] % np.uint64(parties)).astype(np.int64)
    second = (words[:, 1] % np.uint64(parties - 1)).astype(np.int64)
    return np.stack([first, second + (second >= first)], axis=1)


def _all_pairs(kernel: Kernel, values: Floats) -> float:
    """Return the mean of a kernel over all pairs, block by block in O(n^2)."""
    n, total = len(values), 0.0
    step = max(1, BLOCK // n)
    for start in range(0, n, step):
        block = kernel.function(values[start : start + step, None, :], values[None, :, :])
        total += float(block.sum())
        total -= float(kernel.function(values[start : start + step], values[start : start + step]).sum())
    return total / (n * (n - 1.0))


def _inversions(ranks: NDArray[np.int64]) -> int:
    """Return the number of pairs u < v with ranks[u] > ranks[v]."""
    total = 0
    current = ranks.copy()
    for bit in range(max(1, int(ranks.max()).bit_length()) - 1, -1, -1):
        group = current >> (bit + 1)
        ones = (current >> bit) & 1
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        sizes = np.diff(np.r_[starts, len(current)])
        before = np.cumsum(ones) - ones
        before -= np.repeat(before[starts], sizes)
        total += int(before[ones == 0].sum())
        # Zeros of each group first, in order; groups stay where they are.
        zeros_before = np.arange(len(current)) - np.repeat(starts, sizes) - before
        zeros = np.repeat(sizes - np.add.reduceat(ones, starts), sizes)
        index = np.repeat(starts, sizes) + np.where(ones == 1, zeros + before, zeros_before)
        moved = np.empty_like(current)
        moved[index] = current
        current = moved
    return total


def _tied(values: Floats) -> int:
    """Return the number of pairs of entries that have equal values."""
    return _choose_two(np.unique(values, return_counts=True)[1])


def _choose_two(counts: NDArray[np.int64]) -> int:
    """Return the sum of n (n - 1) / 2 over counts n: the number of pairs within groups."""
    return int(np.sum(counts * (counts - 1) // 2))


def _column(name: str, values: ArrayLike, least: int = 2) -> Floats:
    """Return values as a vector of floats; raise ConfigError for NaN, or fewer than `least`."""
    refuse_masked(name, values)
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError.at(name, "not an array of numbers", ConfigCheck.TYPE) from None
    if column.ndim != 1 or len(column) < least:
        raise ConfigError.at(
            name, f"shape {column.shape}: not one dimension of at least {least}", ConfigCheck.SHAPE
        )
    if np.isnan(column).any():
        raise ConfigError.at(name, f"{int(np.isnan(column).sum())} values are not a number", ConfigCheck.TYPE)
    return column
