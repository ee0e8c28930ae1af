"""Questions about the errors of a public regression [protocols/records/README.md]."""

from __future__ import annotations

import itertools
import math
import zlib
from typing import Any

import msgspec

from smpc_dp_verify.columns import Block, Influence, Table
from smpc_dp_verify.errors import required
from smpc_dp_verify.formula import coefficients_of

SANDWICH = "sandwich"
# The greatest coefficient and entry of the inverse, deviation of noise, and combinations of categories.
LARGEST, LARGEST_NOISE, MOST_PATTERNS = 1e9, 1e150, 1 << 12
Names = tuple[str, ...]
Numbers = tuple[tuple[float, ...], ...]


def check_numbers(
    columns: Names, products: tuple[Names, ...], condition: str, numbers: Numbers, table: Table
) -> None:
    """Raise Refused unless numbers are as many as a formula needs, within bounds, with their checksum.

    `numbers`: coefficients, deviations, the upper triangle of the inverse, and the number of parties
    with the checksum.
    """
    size = coefficients_of(products, table)
    coefficients, deviations, inverse, (parties, checksum) = numbers
    required(parties.is_integer(), "the number of parties of a regression")
    lengths = [size, size, size * (size + 1) // 2]
    required([len(each) for each in numbers[:3]] == lengths, "the numbers of a regression")
    fits = all(-LARGEST <= one <= LARGEST for one in (*coefficients, *inverse))
    required(fits and all(0 <= one <= LARGEST_NOISE for one in deviations), "the numbers of a regression")
    starts = itertools.accumulate(range(size, 1, -1), initial=0)
    required(all(inverse[at] > 0 for at in starts), "the numbers of a regression")
    declared: list[list[Any]] = []
    for column, name in ((table.columns[name], name) for name in columns):
        own = [*column.values, column.reference] if column.values else [column.low, column.high]
        declared.append([name, column.lacks, *own])
    text = msgspec.json.encode([products, declared, condition, numbers[:3]])
    required(checksum == zlib.crc32(text), "the checksum of a regression")
    cells = [len(table.columns[name].values) or 1 for name in columns]
    required(math.prod(cells) <= MOST_PATTERNS, "the categories of a regression")


def blocks_of_influence(
    columns: Names, products: tuple[Names, ...], numbers: Numbers, table: Table
) -> list[Block]:
    """Return the sums of the rows' squared influence on each coefficient."""
    present = {name for name in columns if table.columns[name].missing or table.columns[name].values}
    return [
        Block(
            (columns[0],) * 4,
            tuple(sorted(present)),
            influence=Influence(products, (numbers[0], numbers[2]), at),
        )
        for at in range(coefficients_of(products, table))
    ]
