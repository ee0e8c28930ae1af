"""Kernels on shares: sums over pairs, of the same integers that the kernels' circuits compute.

A kernel of this package is compiled from its definition: a form in signs of differences, or in the values
themselves, whose sum over many pairs is one inner product. A party's own is compiled from its circuit. Over
small grids the sum over all pairs follows from counts, which grow with n instead of n**2; a variance follows
from two sums, and rank statistics from sorted records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from smpc_dp.capabilities.pairs.circuits.layers import Layers, layers_of
from smpc_dp.capabilities.pairs.garbled.draw import Pairs
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel
from smpc_dp.capabilities.pairs.kernels.described import table_of
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.servers.kernels.on_shares import Bilinear, Column, Distance, OnShares
from smpc_dp.capabilities.servers.kernels.share_gadgets import (
    Shared,
    exchanges,
    half,
    inner,
    join_bits,
    number,
    one_hot,
    public,
    sign,
    sort,
)
from smpc_dp.errors import ConfigCheck, ConfigError

Way = Literal["pairs", "counts", "sums", "sort", "circuit"]

SORTED = ("gini_mean_difference", "auc", "auc_private_labels")
# Shares of all parties' unit vectors, which are in memory at once: about 100 bytes each, a few times over.
MAX_UNITS = 1 << 20
# What a round costs in shared products, where sorting was measured beside all pairs: docs/proofs/servers.md.
ROUND = 200
# Shared products of one step, about: bounds the memory.
CHUNK = 1 << 18
MAX_GRID_BITS = 12
"""Bits of a field, or of two together for Kendall's tau, whose grid points are counted."""


MAX_PRODUCTS = 1 << 27
"""Shared products of a party's circuit over all pairs, at most: some minutes of three servers."""


def over_pairs(kernel: Kernel, bits: Sequence[Shared], values: Shared, pairs: Pairs) -> Iterator[Shared]:
    """Yield shared sums of a kernel over chunks of pairs; ConfigError if it has no definition by pairs.

    The first record of a pair has label 1 where labels are public. `bits` has one array (n, w) for each
    field, `values` (n, fields) are the same codes.
    """
    if kernel.definition is None:
        raise ConfigError.at(
            "kernel", f"'{kernel.name}' has no definition, only a circuit", ConfigCheck.UNSUPPORTED
        )
    size = max(1, CHUNK // sum(array.shape[1] for array in bits))
    for start in range(0, len(pairs), size):
        records = [
            [Column(array[side], values[side, field]) for field, array in enumerate(bits)]
            for side in pairs[start : start + size].T
        ]
        result: Bilinear | Distance = kernel.definition(OnShares(), records[0], records[1])
        if isinstance(result, Distance):
            signs = sign(result.x.bits, result.y.bits)
            result = Bilinear(0, 1, signs, result.x.values - result.y.values)
        yield result.total()


def over_circuit(kernel: Kernel, bits: Sequence[Shared], pairs: Pairs) -> Iterator[Shared]:
    """Yield shared sums of a kernel over chunks of pairs, computed pair by pair from its circuit."""
    layers = compiled_layers(kernel)
    whole = join_bits(bits)
    size = max(1, CHUNK // layers.widest)
    for start in range(0, len(pairs), size):
        first, second = pairs[start : start + size].T
        result = layers.evaluate(np.concatenate((whole[first], whole[second]), axis=1).T)
        yield number(np.sum(result, axis=1, keepdims=True).T)


@lru_cache(maxsize=16)
def compiled_layers(kernel: Kernel) -> Layers:
    """Return a kernel's circuit as rounds of multiplications, cached; raise ConfigError without one."""
    return layers_of(compile_kernel(kernel, None))


def by_counts(kernel: Kernel, bits: Sequence[Shared], values: Shared, public_labels: Sequence[int]) -> Shared:
    """Return the shared sum of a kernel over all pairs, from counts of codes; ConfigError for others."""
    parties = values.shape[0]
    units = one_hot(bits[0])
    match kernel.name:
        case "kendall_tau":
            table = units.T @ one_hot(bits[1])
            cells = table.reshape(table.shape[0] * table.shape[1])
            apart = inner(cells, _concordance(table).reshape(cells.shape[0]))
            return half(apart) + parties * (parties - 1) // 2
        case "gini_mean_difference":
            up_to = np.cumsum(np.sum(units, axis=0))
            return inner(up_to, parties - up_to)
        case "collision":
            counts = np.sum(units, axis=0)
            return half(inner(counts, counts) - parties)
        case "auc":
            high = np.array(public_labels) == 1
            return _ranked(np.sum(units[high], axis=0), np.sum(units[~high], axis=0))
        case "auc_private_labels":
            high = (values[:, 1].reshape(1, parties) @ units).reshape(units.shape[1])
            return _ranked(high, np.sum(units, axis=0) - high)
        case _:
            raise ConfigError.at(
                "kernel", f"'{kernel.name}' has no program on counts", ConfigCheck.UNSUPPORTED
            )


def by_table(kernel: Kernel, bits: Sequence[Shared]) -> Shared:
    """Return a kernel's shared sum over pairs from table and counts; ConfigError if no symmetric table."""
    table = table_of(kernel)
    if table is None or not (table == table.T).all():
        raise ConfigError.at("kernel", f"'{kernel.name}' has no symmetric table", ConfigCheck.UNSUPPORTED)
    counts = np.sum(one_hot(join_bits(bits)), axis=0)
    twice = inner(np.sum(counts * public(table.tolist()), axis=1), counts)
    return half(twice - np.sum(counts * public(table.diagonal().tolist()), keepdims=True))


def by_sums(values: Shared) -> Shared:
    """Return the shared sum of (x - x')**2 over all pairs, from the sums of x and x**2."""
    column = values[:, 0]
    total = np.sum(column, keepdims=True)
    return values.shape[0] * inner(column, column) - total * total


def by_sort(mpc: Any, kernel: Kernel, bits: Sequence[Shared], public_labels: Sequence[int]) -> Shared:
    """Return Gini's mean difference or the AUC, as a shared sum by sorting; ConfigError for others."""
    parties, width = bits[0].shape
    if kernel.name == "gini_mean_difference":
        ordered = number(sort(mpc, bits[0], width))
        weights = public([2 * index - parties + 1 for index in range(parties)])
        return np.sum(ordered * weights, keepdims=True)
    if kernel.name not in SORTED:
        raise ConfigError.at("kernel", f"'{kernel.name}' has no program that sorts", ConfigCheck.UNSUPPORTED)
    labels = bits[1] if kernel.labels == "private" else _constants(bits[0], public_labels)
    total = 0
    # Ties count half: once records of label 0 come first among equal scores, once those of label 1.
    for last in (labels, 1 - labels):
        ordered = sort(mpc, np.concatenate((labels, last, bits[0]), axis=1), width + 1)[:, 0]
        before = np.cumsum(1 - ordered)
        total = inner(ordered, before) + total
    return total


def cheapest(kernel: Kernel, parties: int, pairs: int, complete: bool) -> Way:
    """Return which way to sum a kernel over so many pairs takes the fewest multiplications.

    Costs are shared products, and rounds where they are many.
    """
    if kernel.definition is None:
        return _cheapest_of_circuit(kernel, parties, pairs, complete)
    if complete and kernel.name == "variance":
        return "sums"
    widths = grid_widths(kernel)
    compared = sum(2 * (width - 1) for width in widths)
    costs: dict[Way, int] = {"pairs": pairs * compared}
    if complete and kernel.name != "variance" and sum(widths) <= MAX_GRID_BITS:
        units = parties * sum(1 << width for width in widths)
        if units <= MAX_UNITS:
            costs["counts"] = units + (1 << sum(widths))
    if complete and kernel.name in SORTED:
        rows = [len(indices) for indices, _ in exchanges(parties)]
        passes = 1 if kernel.labels == "none" else 2
        products = passes * sum(rows) * (compared + widths[0] + 2 * passes)
        costs["sort"] = products + ROUND * len(rows) * (2 * widths[0].bit_length() + 3)
    return min(costs, key=lambda way: costs[way])


def _cheapest_of_circuit(kernel: Kernel, parties: int, pairs: int, complete: bool) -> Way:
    """Return the cheapest way to sum a kernel that has a circuit, but no definition."""
    codes = 1 << sum(field.bits for field in kernel.fields)
    layers = compiled_layers(kernel)
    # A public factor costs about a thirtieth of a shared product.
    cost = parties * codes + codes * codes // 32
    if complete and kernel.symmetric and parties * codes <= MAX_UNITS and cost <= pairs * layers.products:
        table = table_of(kernel)
        if table is not None and (table == table.T).all():
            return "counts"
    return "circuit"


def grid_widths(kernel: Kernel) -> list[int]:
    """Return the number of bits of each field of a kernel, without a private label."""
    fields = kernel.fields[:-1] if kernel.labels == "private" else kernel.fields
    return [field.bits for field in fields]


def _constants(like: Shared, values: Sequence[int]) -> Shared:
    """Return public labels as shared values, shape (n, 1)."""
    return like[:, :1] * 0 + public(list(values)).reshape(-1, 1)


def _ranked(high: Shared, low: Shared) -> Shared:
    """Return the shared sum of 1 + sign(x - y), x of label 1 and y of label 0, from counts of codes."""
    return inner(high, 2 * np.cumsum(low) - low)


def _concordance(table: Shared) -> Shared:
    """Return, for each cell, the number of records concordant with it less those that are discordant."""
    below = np.cumsum(table, axis=0)
    # How many records are in lower rows less those in higher ones, by column.
    lean = 2 * below - table - np.sum(table, axis=0, keepdims=True)
    left = np.cumsum(lean, axis=1)
    return 2 * left - lean - np.sum(lean, axis=1, keepdims=True)
