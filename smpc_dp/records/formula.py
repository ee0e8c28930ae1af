"""Formulas of regressions, "y ~ arm * sex + age": which coefficients there are, and which sums they need.

Nothing is evaluated: a formula has names of declared columns, and `+`, `*` and `:`. docs/proofs/records.md
has the design matrix.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.asked import Product, Reader, Statistic
from smpc_dp.records.checks import cells_in, check_binary, check_cells, check_condition
from smpc_dp.records.features import Block, Selector, presence, selector
from smpc_dp.records.schema import Category, Schema
from smpc_dp.records.table import Integers, Table
from smpc_dp.records.terms import OF_SCALED, UNCORRELATED, Term

Floats = NDArray[np.float64]
# Columns of one product, products of a formula, coefficients and cells of all its sums.
MAX_ORDER, MAX_PRODUCTS, MAX_COEFFICIENTS, MAX_DESIGN_CELLS = 3, 100, 60, 1 << 12
# Of a product of numbers, and of its square: the greatest value on the grid.
MAX_PRODUCT = 1 << 48


def read_formula(reader: Reader, kind: str) -> Statistic:
    """Parse a formula `y ~ a * b + c` (`a * b` stands for `a + b + a:b`); ConfigError for a wrong one."""
    response = reader.name()
    reader.take("~")
    products: dict[Product, None] = {}
    written: set[frozenset[str]] = set()
    while True:
        factors = _factors(reader)
        whole = frozenset(itertools.chain(*factors))
        if whole in written:
            raise ConfigError(f"{':'.join(sorted(whole))} is there twice", ConfigCheck.DUPLICATE)
        written.add(whole)
        products |= dict.fromkeys(_expanded(factors, products))
        if len(products) > MAX_PRODUCTS:
            raise ConfigError(f"at most {MAX_PRODUCTS} products of columns", ConfigCheck.TOO_LARGE)
        if not reader.accepts("+"):
            break
    ordered = tuple(sorted(products, key=len))
    columns = dict.fromkeys(itertools.chain(*ordered))
    if response in columns:
        raise ConfigError(f"the response {response!r} is among its regressors", ConfigCheck.CONFLICT)
    known = {*map(frozenset, ordered)}
    for one in ordered:
        if any(len(one) > 1 and frozenset(one) - {name} not in known for name in one):
            reason = f"{':'.join(one)} needs each product of fewer of its columns: {' * '.join(one)} has them"
            raise ConfigError(reason, ConfigCheck.MISSING)
    return Statistic(reader.text, kind, (response, *columns), products=ordered)


def _factors(reader: Reader) -> list[Product]:
    """Parse one summand of a formula, such as `a * b:c`, into products between its stars; or ConfigError."""
    factors = [reader.names(":", MAX_ORDER)]
    while reader.accepts("*"):
        factors.append(reader.names(":", MAX_ORDER))
        if len(factors) > MAX_ORDER:
            break
    names = [*itertools.chain(*factors)]
    if len(names) > MAX_ORDER:
        raise ConfigError(f"a product of at most {MAX_ORDER} columns", ConfigCheck.TOO_LARGE)
    if len({*names}) < len(names):
        raise ConfigError(f"a column is twice in the product {':'.join(names)}", ConfigCheck.DUPLICATE)
    return factors


def _expanded(factors: list[Product], known: dict[Product, None]) -> Iterator[Product]:
    """Yield all products of subsets of a star term's factors, in the spelling of known ones if alike."""
    spelled = {frozenset(one): one for one in known}
    for size in range(1, len(factors) + 1):
        for some in itertools.combinations(factors, size):
            one = tuple(itertools.chain(*some))
            yield spelled.get(frozenset(one), one)


def check_formula(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a regression whose response is no number, or with too many coefficients."""
    schema.number(one.columns[0], where)
    for name in one.columns[1:]:
        column = schema.column(name, where)
        if isinstance(column, Category) and len(column.values) < 2:
            reason = f"column {name!r} has one category: there is nothing to compare it with"
            raise ConfigError.at(where, reason, ConfigCheck.RANGE)
    count = 1 + sum(_size(product, schema) for product in one.products)
    if count > MAX_COEFFICIENTS:
        reason = f"{count} coefficients, at most {MAX_COEFFICIENTS}"
        raise ConfigError.at(where, reason, ConfigCheck.TOO_LARGE)
    count *= cells_in(one.by, schema)
    if schema.rows_expected is not None and count > schema.rows_expected:
        groups = " of all groups" if one.by else ""
        reason = f"{count} coefficients{groups}, more than rows_expected = {schema.rows_expected}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def check_linear(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a linear regression with a bad formula or group, or too large or many sums."""
    check_cells(one.by, schema, where)
    if twice := {*one.by} & {*one.columns}:
        reason = f"column {min(twice)!r} is in the formula, and makes groups"
        raise ConfigError.at(where, reason, ConfigCheck.DUPLICATE)
    check_formula(one, schema, where)
    _check_condition(one, schema, where)
    design = Design(one, schema)
    for product in one.products:
        numbers = design.numbers(product)
        greatest = Block((*numbers, *numbers)).greatest(schema)
        if len(numbers) > 1 and greatest > MAX_PRODUCT:
            reason = (
                f"the squares of {':'.join(numbers)} have {math.log2(greatest):.1f} bits on the grids, "
                f"at most {math.log2(MAX_PRODUCT):g}: declare a coarser `step`"
            )
            raise ConfigError.at(where, reason, ConfigCheck.TOO_LARGE)
    cells = sum(block.cells for block in design.factors)
    if cells > MAX_DESIGN_CELLS:
        reason = f"{cells} cells of sums, at most {MAX_DESIGN_CELLS}"
        raise ConfigError.at(where, reason, ConfigCheck.TOO_LARGE)


def _check_condition(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError if a row condition leaves a regressor without a category, or with one number."""
    names = one.columns[1:]
    check_condition(
        one, [name for name in names if isinstance(schema.columns[name], Category)], schema, where
    )
    for condition in one.where:
        (low, _), *_ = condition.ranges
        if condition.column in names and condition.ranges == ((low, low),):
            reason = f"its condition leaves one value of {condition.column!r}"
            raise ConfigError.at(where, reason, ConfigCheck.SHAPE)


def check_binary_response(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a logistic regression with a bad formula, or a response not 0 or 1."""
    check_formula(one, schema, where)
    check_binary(schema.number(one.columns[0], where), one.columns[0], where)


def check_positive_response(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError for a Poisson regression with a bad formula or a response below 0."""
    check_formula(one, schema, where)
    name = one.columns[0]
    response = schema.number(name, where)
    if response.lower < 0:
        reason = f"column {name!r} must not be negative: its lower is {response.lower:g}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)


def _size(product: Product, schema: Schema) -> int:
    """Return the number of coefficients of a product: of each category but the reference ones."""
    columns = [schema.columns[name] for name in product]
    return math.prod(len(one.values) - 1 for one in columns if isinstance(one, Category))


class Coefficient(msgspec.Struct, frozen=True):
    """Description of one column of a regression's design matrix: scaled numbers times category indicators.

    Attributes:
        numbers: the columns of the product; none: 1.
        levels: columns of categories with the index of one that is not the reference.
    """

    numbers: tuple[str, ...] = ()
    levels: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Design:
    """Design matrix of a regression formula, and the sums over rows that the normal equations need.

    A column of categories has an indicator for each but the reference. A sum that is needed in cells of
    several sets of columns is in the request for those sets alone that no other one contains. By groups each
    sum is needed in each group: their cells come first.
    """

    one: Statistic
    schema: Schema

    @functools.cached_property
    def coefficients(self) -> list[Coefficient]:
        """The descriptions of all columns of the design matrix, the intercept first."""
        result = [Coefficient()]
        for product in self.one.products:
            categories = self.categories(product)
            choices = [self._compared(name) for name in categories]
            result += [
                Coefficient(self.numbers(product), tuple(zip(categories, levels, strict=True)))
                for levels in itertools.product(*choices)
            ]
        return result

    @functools.cached_property
    def groups(self) -> tuple[Selector, ...]:
        """The partitions of the columns after `by`; none of one regression for all rows."""
        return tuple(selector(self.schema, name) for name in self.one.by)

    def numbers(self, product: Product) -> tuple[str, ...]:
        """Return the columns of a product that hold numbers, in order."""
        return tuple(name for name in product if name not in self.categories(product))

    def categories(self, product: Product) -> tuple[str, ...]:
        """Return the columns of a product that hold categories, in order."""
        return tuple(name for name in product if isinstance(self.schema.columns[name], Category))

    def _category(self, name: str) -> Category:
        """Return a declared column of categories; raise ConfigError if the column has none."""
        column = self.schema.columns[name]
        if not isinstance(column, Category):
            raise ConfigError.at(self.one.text, f"column {name!r} has no categories", ConfigCheck.TYPE)
        return column

    def _compared(self, name: str) -> list[int]:
        """Return the indices of a column's categories other than the reference category."""
        column = self._category(name)
        return [index for index in range(len(column.values)) if index != column.reference_index]

    def weight(self, product: Product) -> int:
        """Return the inverse of the assumed variance of a product's values, for planning errors.

        For a number it is a quarter of its squared half range. Each of k categories has 1/k of the rows.
        """
        categories = self.categories(product)
        return math.prod(2 * cells_in([name], self.schema) if name in categories else 4 for name in product)

    def _sums(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], float]]:
        """Yield each sum that the normal equations need: columns multiplied, grouping, error factor."""
        response, products = self.one.columns[0], self.one.products
        yield (), (), 0.25
        yield (response,), (), 1.0
        yield (response, response), (), 1.0
        for one in products:
            yield self.numbers(one), self.categories(one), self.weight(one) ** 2 / 16
        for one in products:
            yield (*self.numbers(one), response), self.categories(one), float(self.weight(one) ** 2)
        count = len(self.coefficients) - 1
        for one, other in itertools.combinations_with_replacement(products, 2):
            numbers = (*self.numbers(one), *self.numbers(other))
            factor = self.weight(one) * self.weight(other) / count
            yield numbers, (*self.categories(one), *self.categories(other)), factor

    @functools.cached_property
    def _cells(self) -> dict[tuple[str, ...], dict[tuple[str, ...], tuple[str, ...]]]:
        """Map from each product of numbers and needed grouping to the finer grouping that is requested."""
        needed: dict[tuple[str, ...], dict[tuple[str, ...], tuple[str, ...]]] = {}
        for powers, categories, _ in self._sums():
            needed.setdefault(tuple(sorted(powers)), {})[tuple(sorted({*categories}))] = ()
        for sets in needed.values():
            maximal: list[tuple[str, ...]] = []
            for length in sorted({*map(len, sets)}, reverse=True):
                own = [one for one in sets if len(one) == length]
                fitting = {one: [other for other in maximal if {*one} <= {*other}] for one in own}
                maximal += [one for one, others in fitting.items() if not others]
                for one, others in fitting.items():
                    sets[one] = min(others or [one], key=lambda each: (cells_in(each, self.schema), each))
        return needed

    def block(self, powers: tuple[str, ...], categories: tuple[str, ...]) -> Block:
        """Return the description of the requested sums that give a product's sums in these groups."""
        factors = tuple(sorted(powers))
        cells = self._cells[factors][tuple(sorted({*categories}))]
        selectors = tuple(selector(self.schema, name) for name in cells)
        return Block(factors, self._present(cells), (*self.groups, *selectors))

    @property
    def present(self) -> tuple[str, ...]:
        """The columns in which a row must have a value to count."""
        return self._present(())

    def _present(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns in which a row must have a value, besides the grouping columns."""
        categories = {*self.categories(self.one.columns)} - {*cells}
        return tuple(sorted((*presence(self.schema, *self.one.columns), *categories)))

    @functools.cached_property
    def factors(self) -> dict[Block, float]:
        """Map from each block of sums that the regression needs to its largest error factor."""
        result: dict[Block, float] = {}
        for powers, categories, factor in self._sums():
            block = self.block(powers, categories)
            result[block] = max(result.get(block, 0.0), factor)
        return result

    def lost(self, parties: Collection[str]) -> list[str | None]:
        """Return for each coefficient the lost party because of which it has no value, None if it has one.

        A lost party has no coefficient. Where others are compared with a lost party, none has a value: all
        would mean something else.
        """
        name = self.schema.party_column
        if name is None or name not in self.one.columns:
            return [None] * len(self.coefficients)
        values, reference = self._category(name).values, self._category(name).reference_index
        indices = [dict(one.levels).get(name, reference) for one in self.coefficients]
        if values[reference] in parties:
            indices = [reference] * len(indices)
        return [values[index] if values[index] in parties else None for index in indices]

    def matrix(self, table: Table, where: Integers) -> Floats:
        """Return the design matrix of a table's rows at these indices, numbers scaled to [-1, 1]."""
        columns = []
        for one in self.coefficients:
            values = np.ones(len(where))
            for name in one.numbers:
                values = values * (table.codes[name][where] / self.schema.number(name, name).steps)
            for name, level in one.levels:
                values = values * (table.codes[name][where] == level)
            columns.append(values)
        return np.stack(columns, axis=1)

    def contrasts(self) -> Floats:
        """Return the matrix that turns coefficients of scaled numbers into those of original columns.

        With x = m + h u, a product of some u has in each product of fewer x the part of 1/h and of -m/h.
        """
        size = len(self.coefficients)
        matrix = np.zeros((size, size))
        for row, own in enumerate(self.coefficients):
            for column, other in enumerate(self.coefficients):
                if own.levels == other.levels and {*own.numbers} <= {*other.numbers}:
                    value = 1.0
                    for name in other.numbers:
                        number = self.schema.number(name, self.one.text)
                        value *= (1.0 if name in own.numbers else -number.middle) / (number.width / 2)
                    matrix[row, column] = value
        return matrix

    def label(self, one: Coefficient) -> str:
        """Return a coefficient's display name, such as `slope of age` or `sex = f against m`."""
        if one == Coefficient():
            return "intercept"
        parts = [f"slope of {':'.join(one.numbers)}"] if one.numbers else []
        for name, level in one.levels:
            column = self._category(name)
            parts.append(f"{name} = {column.values[level]} against {column.values[column.reference_index]}")
        return ", ".join(parts)

    def unit(self, one: Coefficient, unit: str) -> str:
        """Return a coefficient's unit: the response's unit divided by the columns of numbers."""
        return " / ".join((unit, *one.numbers))


def regression_terms(one: Statistic, schema: Schema) -> list[Term]:
    """Return the planning term of a linear regression: how the noise of each sum enters its error."""
    design = Design(one, schema)
    assumed = f"{OF_SCALED}, in half ranges of {one.columns[0]}; {UNCORRELATED}"
    if design.categories(one.columns):
        assumed += ", and categories of equal size"
    if one.by:
        assumed += ", and groups of equal size"
    return [Term(one.text, 1.0, False, design.factors, cells_in(one.by, schema), assumed)]
