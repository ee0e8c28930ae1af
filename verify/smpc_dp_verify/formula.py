"""Formulas of regressions, and the sums that they need [protocols/records/README.md]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from smpc_dp_verify.columns import Block, Selector, Table
from smpc_dp_verify.errors import required

MOST_PRODUCTS, MOST_ORDER, MOST_COEFFICIENTS, MOST_SUMS = 100, 3, 60, 4096
# Bits of the square of a product of several numbers.
MOST_GREATEST = 1 << 48
Names = tuple[str, ...]


def read_products(terms: list[list[Names]]) -> tuple[Names, ...]:
    """Expand a formula's terms to distinct products of columns, small ones first; or raise Refused."""
    products: dict[frozenset[str], Names] = {}
    written: set[frozenset[str]] = set()
    for factors in terms:
        names = [*itertools.chain(*factors)]
        required(len(names) <= MOST_ORDER and len({*names}) == len(names), "what is asked")
        required(frozenset(names) not in written, "what is asked")
        written.add(frozenset(names))
        for size in range(len(factors)):
            for some in itertools.combinations(factors, size + 1):
                product = tuple(itertools.chain(*some))
                products.setdefault(frozenset(product), product)
        required(len(products) <= MOST_PRODUCTS, "what is asked")
    for whole in products:
        parts = [whole - {name} for name in whole if len(whole) > 1]
        required(all(part in products for part in parts), "what is asked")
    return tuple(sorted(products.values(), key=len))


def check_formula(
    columns: Names, products: tuple[Names, ...], table: Table, groups: tuple[Selector, ...] = ()
) -> None:
    """Raise Refused if columns do not allow a regression, or it has too many coefficients or sums."""
    levels = {name: len(table.columns[name].values) for name in columns}
    every = check_coefficients(columns, products, table) * math.prod(one.cells for one in groups)
    required(table.expected is None or every <= table.expected, "coefficients")
    for product in products:
        numbers = [name for name in product if not levels[name]]
        size = math.prod(table.columns[name].steps for name in numbers)
        required(len(numbers) < 2 or size * size <= MOST_GREATEST, "the product of columns")
    cells = sum(block.cells for block in factors_of(columns, products, table, groups))
    required(cells <= MOST_SUMS, "the sums")


def check_coefficients(columns: Names, products: tuple[Names, ...], table: Table) -> int:
    """Return the number of coefficients with the intercept, or refuse a response, a category, or too many."""
    table.number(columns[0])
    levels = {name: len(table.columns[name].values) for name in columns}
    required(1 not in levels.values(), "the categories of a regressor")
    count = 1 + _coefficients(products, levels)
    required(count <= MOST_COEFFICIENTS and count <= (table.expected or count), "coefficients")
    return count


def coefficients_of(products: tuple[Names, ...], table: Table) -> int:
    """Return the number of a regression's coefficients, with the intercept."""
    levels = {name: len(table.columns[name].values) for product in products for name in product}
    return 1 + _coefficients(products, levels)


def _coefficients(products: tuple[Names, ...], levels: dict[str, int]) -> int:
    """Return the number of a regression's coefficients, without the intercept."""
    return sum(math.prod(levels[name] - 1 for name in product if levels[name]) for product in products)


def factors_of(
    columns: Names, products: tuple[Names, ...], table: Table, groups: tuple[Selector, ...] = ()
) -> dict[Block, float]:
    """Return the sums (blocks) of a regression, X'X, X'y and y'y, each with its greatest factor c_b."""
    levels = {name: len(table.columns[name].values) for name in columns}
    blocks, result = blocks_of_sums(columns, products, table, groups), dict[Block, float]()
    for powers, cells, factor in _sums(columns[0], products, levels):
        block = blocks[powers, cells]
        result[block] = max(result.get(block, 0.0), factor)
    return result


def blocks_of_sums(
    columns: Names, products: tuple[Names, ...], table: Table, groups: tuple[Selector, ...] = ()
) -> dict[tuple[Names, frozenset[str]], Block]:
    """Return the block of each sum of a regression, by its factors and the columns that it is split by."""
    levels = {name: len(table.columns[name].values) for name in columns}
    sums = [*_sums(columns[0], products, levels)]
    maximal: dict[Names, list[frozenset[str]]] = {}
    for powers, cells, _ in sorted(sums, key=lambda one: -len(one[1])):
        sets = maximal.setdefault(powers, [])
        if cells not in sets and not any(cells < other for other in sets if len(other) > len(cells)):
            sets.append(cells)
    blocks: dict[tuple[Names, frozenset[str]], Block] = {}
    for powers, cells, _ in sums:
        if (powers, cells) not in blocks:
            fitting = [one for one in maximal[powers] if cells <= one]
            sizes = [(math.prod(levels[name] for name in one), tuple(sorted(one))) for one in fitting]
            block = _block(powers, min(sizes)[1], levels, table)
            blocks[powers, cells] = block._replace(selectors=(*groups, *block.selectors))
    return blocks


def _block(powers: Names, cells: Names, levels: dict[str, int], table: Table) -> Block:
    present = {name for name in levels if table.columns[name].missing}
    present |= {name for name, count in levels.items() if count and name not in cells}
    return Block(powers, tuple(sorted(present)), tuple(map(table.selector, cells)))


def _sums(
    response: str, products: tuple[Names, ...], levels: dict[str, int]
) -> Iterator[tuple[Names, frozenset[str], float]]:
    """Yield each sum of a regression: its factors, the columns that it is split by, and its c_b."""

    def parts(*some: Names) -> tuple[list[str], frozenset[str]]:
        names = [*itertools.chain(*some)]
        return [name for name in names if not levels[name]], frozenset(name for name in names if levels[name])

    weights = {one: math.prod(2 * levels[name] if levels[name] else 4 for name in one) for one in products}
    for power in ((), (response,), (response, response)):
        yield power, frozenset(), 1.0 if power else 0.25
    for one in products:
        numbers, cells = parts(one)
        yield tuple(sorted(numbers)), cells, weights[one] ** 2 / 16
    for one in products:
        numbers, cells = parts(one)
        yield tuple(sorted([*numbers, response])), cells, float(weights[one] ** 2)
    count = _coefficients(products, levels)
    for one, other in itertools.combinations_with_replacement(products, 2):
        numbers, cells = parts(one, other)
        yield tuple(sorted(numbers)), cells, weights[one] * weights[other] / count
