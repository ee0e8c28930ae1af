"""Linear regressions with normal noise [docs/proofs/records.md, "Intervals"]."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from smpc_dp_verify.answers import Sums, labels
from smpc_dp_verify.asked import Asked, selectors
from smpc_dp_verify.columns import Block, Table
from smpc_dp_verify.distributions import NORMAL, OF_NORMAL, solved
from smpc_dp_verify.formula import blocks_of_sums
from smpc_dp_verify.intervals import around
from smpc_dp_verify.matrices import Matrix, applied, eigen, has_small_radius, inverse
from smpc_dp_verify.numbers import Estimate, bounded
from smpc_dp_verify.population import is_clear, of_population

# An eigenvalue below this part of the greatest one may be 0.
LEAST = 1e-12
Levels = dict[str, int]


class Coefficient(NamedTuple):
    """A product of columns of numbers, and the category of each of its other columns."""

    numbers: tuple[str, ...]
    levels: tuple[tuple[str, int], ...]


# A cell of a block, whose noise is one number.
Noise = tuple[Block, int]


class Entry(NamedTuple):
    """A sum of the normal equations, the noises in it, and the deviation of each."""

    value: float
    noises: tuple[Noise, ...]
    deviation: float


class Solution(NamedTuple):
    """Coefficients of columns as declared, less the middle of the response: values, errors, half widths.

    `sampling`: standard errors of the rows as a sample; `both`: half widths for noise and sampling.
    """

    values: list[float]
    errors: list[float]
    wide: list[float]
    sampling: list[float] | None
    both: list[float] | None


def coefficients(one: Asked, table: Table) -> list[Coefficient]:
    """Return the coefficients of a regression, the intercept first."""
    result = [Coefficient((), ())]
    for product in one.products:
        categories = [name for name in product if table.columns[name].values]
        choices = (
            [
                (name, at)
                for at in range(len(table.columns[name].values))
                if at != table.columns[name].reference
            ]
            for name in categories
        )
        numbers = tuple(name for name in product if name not in categories)
        result += [Coefficient(numbers, levels) for levels in itertools.product(*choices)]
    return result


def regressions(sums: Sums, one: Asked, outside: float) -> tuple[list[Estimate], float]:
    """Return the estimates of the coefficients in each group."""
    table, made = sums.table, list[Estimate]()
    every, response = coefficients(one, table), table.columns[one.columns[0]]
    there = [not _is_lost(each, sums, one) for each in every]
    used = [each for each, is_there in zip(every, there, strict=True) if is_there]
    contrasts = [[response.width / 2 * value for value in row] for row in _contrasts(used, table)]
    row_error = 0.0
    for group, cell in enumerate(labels(one, table)):
        equations = _Equations(sums, one, group)
        count = equations.sum((), {})
        row_error = count.deviation * math.sqrt(len(count.noises))
        fit = equations.fit(used) if used else None
        solution = None if fit is None else fit.solve(contrasts, count.value, outside)
        rows = iter(range(len(used)))
        for each, is_there in zip(every, there, strict=True):
            numbers: dict[str, float | None] = {"over": count.value}
            row = next(rows) if is_there else None
            if solution is not None and row is not None:
                value = solution.values[row] + (0.0 if each.numbers or each.levels else response.middle)
                numbers |= {"value": value, "standard_error": solution.errors[row]}
                numbers |= bounded(around(value, solution.wide[row], 1.0))
                sampled = None if solution.sampling is None else solution.sampling[row]
                ends = None if solution.both is None else around(value, solution.both[row], 1.0)
                numbers |= of_population(sampled, ends)
            unit = " / ".join((one.columns[0], *each.numbers))
            made.append(Estimate(_label(each, table), unit, cell, numbers))
    return made, row_error


def _label(one: Coefficient, table: Table) -> str:
    parts = [f"slope of {':'.join(one.numbers)}"] if one.numbers else []
    for name, level in one.levels:
        column = table.columns[name]
        parts.append(f"{name} = {column.values[level]} against {column.values[column.reference]}")
    return ", ".join(parts) or "intercept"


def _is_lost(coefficient: Coefficient, sums: Sums, one: Asked) -> bool:
    """Tell whether a coefficient is of a party, or compares with one, that is not counted."""
    for name in one.columns:
        column = sums.table.columns[name]
        if column.is_party:
            level = dict(coefficient.levels).get(name, column.reference)
            return not {level, column.reference} <= sums.parties
    return False


def _contrasts(used: list[Coefficient], table: Table) -> Matrix:
    """Return the matrix K that turns coefficients of numbers in [-1, 1] into those of columns as declared."""

    def entry(own: Coefficient, other: Coefficient) -> float:
        if own.levels != other.levels or not {*own.numbers} <= {*other.numbers}:
            return 0.0
        columns = [(table.columns[name], name in own.numbers) for name in other.numbers]
        return math.prod(
            (1.0 if is_own else -column.middle) / (column.width / 2) for column, is_own in columns
        )

    return [[entry(own, other) for other in used] for own in used]


class _Equations:
    """Noisy normal equations of a regression in one group, of numbers in [-1, 1]."""

    def __init__(self, sums: Sums, one: Asked, group: int) -> None:
        self._sums, self._one, self._group = sums, one, group
        by = selectors(one, sums.table)
        self._groups = math.prod(each.cells for each in by)
        self._blocks = blocks_of_sums(one.columns, one.products, sums.table, by)

    def sum(self, numbers: tuple[str, ...], levels: Levels) -> Entry:
        """Return the sum of a product over the rows of some categories."""
        block = self._blocks[tuple(sorted(numbers)), frozenset(levels)]
        values, deviation = self._sums.of(block, self._one)
        own = block.selectors[len(selectors(self._one, self._sums.table)) :]
        ranges = [[levels[each.column]] if each.column in levels else list(range(each.cells)) for each in own]
        size = block.cells // self._groups
        cells = []
        for chosen in itertools.product(*ranges):
            at = 0
            for each, cell in zip(own, chosen, strict=True):
                at = at * each.cells + cell
            cells.append(self._group * size + at)
        return Entry(math.fsum(values[at] for at in cells), tuple((block, at) for at in cells), deviation)

    def _entries(self, used: list[Coefficient]) -> Iterator[tuple[int, int, Entry]]:
        """Yield the entries of the matrix on and below the diagonal."""
        for row, one in enumerate(used):
            for column, other in enumerate(used[: row + 1]):
                levels = dict(one.levels) | dict(other.levels)
                # no row has two categories of one column
                if all(levels[name] == level for name, level in one.levels):
                    yield row, column, self.sum((*one.numbers, *other.numbers), levels)

    def fit(self, used: list[Coefficient]) -> _Fit | None:
        """Return the solution; None unless the least eigenvalue of the matrix is clearly above 0."""
        response = self._one.columns[0]
        entries = [*self._entries(used)]
        rights = [self.sum((*one.numbers, response), dict(one.levels)) for one in used]
        matrix = [[0.0] * len(used) for _ in used]
        for row, column, entry in entries:
            matrix[row][column] = matrix[column][row] = entry.value
        eigenvalues, _ = eigen(matrix)
        if not min(eigenvalues) > LEAST * max(eigenvalues):
            return None
        return _Fit(inverse(matrix), entries, rights, self.sum((response, response), {}))


class _Fit:
    """Solution of noisy normal equations, and what each noise moves the equations by at it.

    `inverted`: the inverse of the matrix. `entries`: of the matrix; `rights`: of the right side; `square`:
    the sum of squares of the response.
    """

    def __init__(
        self, inverted: Matrix, entries: list[tuple[int, int, Entry]], rights: list[Entry], square: Entry
    ) -> None:
        self._inverted, self._entries, self._rights, self._square = inverted, entries, rights, square
        self.estimate = applied(inverted, [entry.value for entry in rights])
        self._moved: dict[Noise, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        # of each coefficient what each noise in its column of the matrix moves
        self._by_column: list[dict[Noise, list[tuple[int, float]]]] = [defaultdict(list) for _ in rights]
        for row, entry in enumerate(rights):
            for noise in entry.noises:
                self._moved[noise][row] += entry.deviation
        for row, column, entry in entries:
            for i, j in {(row, column), (column, row)}:
                for noise in entry.noises:
                    self._moved[noise][i] -= entry.deviation * self.estimate[j]
                    self._by_column[j][noise].append((i, entry.deviation))

    def _spread(self, line: Sequence[float]) -> float:
        """Return the noise's deviation in this contrast of the equations."""
        every = self._moved.values()
        return math.hypot(*(math.fsum(line[i] * part for i, part in each.items()) for each in every))

    def _slopes(self, line: Sequence[float]) -> list[float]:
        """Return how much the deviation grows with the error of each coefficient."""
        return [
            math.hypot(*(math.fsum(line[i] * part for i, part in each) for each in own.values()))
            for own in self._by_column
        ]

    def solve(self, contrasts: Matrix, count: float, outside: float) -> Solution | None:
        """Return contrasts of the coefficients; None where no interval is bounded.

        `count`: the noisy number of rows.
        """
        size, inverted = len(self.estimate), self._inverted
        reach = math.sqrt(chi_square(size, outside))
        growth = [[reach * slope for slope in self._slopes(line)] for line in inverted]
        if not has_small_radius(growth):
            return None
        within = inverse([[float(i == j) - growth[i][j] for j in range(size)] for i in range(size)])
        off = applied(within, [reach * self._spread(line) for line in inverted])
        # the inverse is symmetric
        lines = [applied(inverted, row) for row in contrasts]
        errors = [self._spread(line) for line in lines]
        steps = [math.fsum(map(operator.mul, self._slopes(line), off)) for line in lines]
        wide = [reach * (error + step) for error, step in zip(errors, steps, strict=True)]
        made = Solution(applied(contrasts, self.estimate), errors, wide, None, None)
        if count <= size:
            return made
        squares, error = self._residuals()
        is_known = is_clear(squares, error)
        variance = (squares if is_known else max(squares, 0.0) + 2 * error) / (count - size)
        of_rows = [math.fsum(map(operator.mul, *pair)) for pair in zip(lines, contrasts, strict=True)]
        sampling = [math.sqrt(variance * max(one, 0.0)) for one in of_rows]
        z = NORMAL.quantile(outside)
        both = [z * math.hypot(*pair) for pair in zip(errors, sampling, strict=True)]
        return made._replace(sampling=sampling if is_known else None, both=both)

    def _residuals(self) -> tuple[float, float]:
        """Return the sum of squared residuals, without the noise that is fitted, and its standard error."""
        estimate = self.estimate
        rights = [entry.value for entry in self._rights]
        squares = self._square.value - math.fsum(map(operator.mul, estimate, rights))
        for each in self._moved.values():
            pairs = itertools.product(each.items(), repeat=2)
            squares += math.fsum(a * self._inverted[i][j] * b for (i, a), (j, b) in pairs)
        noises: dict[Noise, float] = defaultdict(float)
        slopes = [(self._square, 1.0)]
        slopes += [(entry, -2 * slope) for entry, slope in zip(self._rights, estimate, strict=True)]
        for row, column, entry in self._entries:
            slopes.append((entry, (1 if row == column else 2) * estimate[row] * estimate[column]))
        for entry, slope in slopes:
            for noise in entry.noises:
                noises[noise] += slope * entry.deviation
        return squares, math.hypot(*noises.values())


@functools.lru_cache(maxsize=256)
def chi_square(freedom: int, outside: float) -> float:
    """Return what a chi-square number with so many degrees of freedom exceeds with this probability."""
    high, wanted = 2.0 * freedom, math.log(outside)
    while chi_square_above(freedom, high) > outside:
        high *= 2
    value = solved(lambda x: wanted - math.log(max(chi_square_above(freedom, x), 1e-300)), 0.0, high)
    return value * (1 + OF_NORMAL)


def chi_square_above(freedom: int, value: float) -> float:
    """Return the probability that a chi-square number with so many degrees of freedom is above a value."""
    half = value / 2
    if freedom % 2:
        total, term, at = math.erfc(math.sqrt(half)), math.sqrt(half / math.pi) * math.exp(-half) * 2, 1.5
    else:
        total, term, at = 0.0, math.exp(-half), 1.0
    while at <= freedom / 2:
        total += term
        term *= half / at
        at += 1
    return total
