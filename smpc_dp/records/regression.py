"""Linear regression from noisy second moments, with an interval for each coefficient.

docs/proofs/records.md: the residual of the noisy normal equations at the true coefficients is a sum of
independent noises, with a covariance that depends on these coefficients alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Block
from smpc_dp.records.formula import Coefficient, Design
from smpc_dp.records.intervals import (
    INFINITE,
    NORMAL,
    ErrorDistribution,
    around,
    is_positive_definite,
    normal_quantile,
    sum_quantile,
)
from smpc_dp.records.noisy import Display, NoisySums, cell_labels
from smpc_dp.records.population import Sampling
from smpc_dp.records.projected_noise import projected_square
from smpc_dp.records.result import Estimate, lost_note, near_zero
from smpc_dp.records.sandwich import follow_up_text

Floats = NDArray[np.float64]
# Laplace noises of a coefficient whose own distributions are in its interval, the greatest ones.
_APART = 32
REFUSED = "refused: the least eigenvalue of the second moments is within the noise"
NO_SAMPLING = "no sampling error: the variance of the residuals is within the noise"


def regressions(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield a linear regression's coefficients in each group, with intervals for noise and sampling."""
    design = Design(one, noisy.schema)
    absent = design.lost(noisy.lost)
    for group, cell in enumerate(cell_labels(design.groups, noisy.schema)):
        yield from _of_group(
            design, normal_equations(design, noisy, group), absent, cell, noisy.holders, display
        )


def _of_group(
    design: Design,
    equations: NormalEquations,
    absent: list[str | None],
    cell: dict[str, str],
    holders: int,
    display: Display,
) -> Iterator[Estimate]:
    """Yield the intercept and coefficients that solve one group's normal equations.

    `absent`: as of `Design.lost`; the others are those of the rows that are in the sum.
    `holders`: how many parties have such rows.
    """
    one = design.one
    y = design.schema.number(one.columns[0], one.text)
    there = [lost is None for lost in absent]
    contrasts = y.width / 2 * design.contrasts()[np.ix_(there, there)]
    solved = equations.of(there).solve(contrasts, display.outside) if any(there) else None
    follow_up = ""
    # without intervals there are too few rows for sampling errors of any residuals
    if solved is not None and solved.population is not None and all(there) and not design.groups:
        follow_up = follow_up_text(design, solved.scaled, solved.errors, solved.inverse, holders)
    for coefficient, lost, row in zip(design.coefficients, absent, np.cumsum(there) - 1, strict=True):
        label, unit = design.label(coefficient), design.unit(coefficient, one.columns[0])
        if lost is not None or solved is None:
            note = REFUSED if lost is None else lost_note([lost])
            yield Estimate.of(one, label, unit, INFINITE, cell=cell, over=equations.count, note=note)
            continue
        value = float(solved.values[row]) + (y.middle if coefficient == Coefficient() else 0.0)
        sampled, wide = solved.sampling, solved.population
        made = Estimate.of(
            one,
            label,
            unit,
            around(value, float(solved.wide[row]), 1.0),
            cell=cell,
            value=value,
            error=float(solved.errors[row]),
            sampled=Sampling(
                None if sampled is None else float(sampled[row]),
                None if wide is None else around(value, float(wide[row]), 1.0),
            ),
            over=equations.count,
            note=NO_SAMPLING if sampled is None else "",
        )
        yield msgspec.structs.replace(made, follow_up=follow_up if coefficient == Coefficient() else "")


@dataclass(frozen=True)
class Solution:
    """Result of noisy normal equations: coefficient estimates, interval half widths, and standard errors.

    Attributes:
        values, wide, errors: the estimates, half the widths of their intervals, and their standard errors,
            all for the noise alone.
        sampling: standard errors of the rows as a sample, if the variance of residuals is clear of the noise.
        population: half the widths of intervals for both together, where rows are more than coefficients; if
            that variance is not clear they are of one that is two standard errors larger.
        scaled, inverse: the coefficients of numbers in [-1, 1], and the inverse of the noisy A.
    """

    values: Floats
    wide: Floats
    errors: Floats
    sampling: Floats | None
    population: Floats | None
    scaled: Floats
    inverse: Floats


@dataclass(frozen=True)
class NormalEquations:
    """Noisy normal equations A b = y of a linear regression, and how each noise enters A and y.

    Attributes:
        matrix, right, square: the noisy A, y, and the sum of squares of the response.
        count: the noisy number of rows.
        into_matrix: for each noise with deviation 1 the change of A, shape (noises, size, size), times its
            deviation; into_right: of y, shape (noises, size); into_square: of the sum of squares.
        distributions: of each noise, over its deviation; all normal, or none is.
    """

    matrix: Floats
    right: Floats
    square: float
    count: float
    into_matrix: Floats
    into_right: Floats
    into_square: Floats
    distributions: tuple[ErrorDistribution, ...]

    def of(self, there: list[bool]) -> NormalEquations:
        """Return the normal equations of some of the coefficients, the others being 0 or without rows."""
        some = np.ix_(there, there)
        return replace(
            self,
            matrix=self.matrix[some],
            right=self.right[there],
            into_matrix=self.into_matrix[:, there][:, :, there],
            into_right=self.into_right[:, there],
        )

    def solve(self, contrasts: Floats, outside: float) -> Solution | None:
        """Return estimates of contrasts with intervals; None unless A is clearly positive definite.

        Otherwise no interval is bounded.
        """
        if not is_positive_definite(self.matrix):
            return None
        inverse = np.asarray(np.linalg.inv(self.matrix), np.float64)
        estimate = inverse @ self.right
        reach = math.sqrt(self._square_of(len(estimate), outside))
        own, each = self._spreads(inverse, estimate)
        growth = reach * each
        if np.abs(np.linalg.eigvals(growth)).max() >= 1:
            return None
        off = np.linalg.solve(np.eye(len(estimate)) - growth, reach * own)
        rows = contrasts @ inverse
        spread, slope = self._spreads(rows, estimate)
        values, wide = contrasts @ estimate, reach * (spread + slope @ off)
        left = self.count - len(estimate)
        if left <= 0:
            return Solution(values, wide, spread, None, None, estimate, inverse)
        squares, noise = self._residuals(inverse, estimate)
        is_clear = not near_zero(squares, noise)
        variance = (squares if is_clear else max(squares, 0.0) + 2 * noise) / left
        sampling = np.sqrt(variance * np.maximum((rows * contrasts).sum(axis=1), 0.0))
        z = [self._quantile(*one, outside) for one in zip(self._moved(rows, estimate), sampling, strict=True)]
        both = np.array(z) * np.hypot(spread, sampling)
        clear = sampling if is_clear else None
        return Solution(values, wide, spread, clear, np.asarray(both), estimate, inverse)

    def _residuals(self, inverse: Floats, estimate: Floats) -> tuple[float, float]:
        """Return the sum of squared residuals, corrected for bias, and its standard error.

        At the estimate it is too small by what the noise of A and y has fitted.
        """
        moved = self.into_right - self.into_matrix @ estimate
        fitted = float(((moved @ inverse) * moved).sum())
        squares = self.square - float(estimate @ self.right) + fitted
        noise = self.into_square - 2 * self.into_right @ estimate + (self.into_matrix @ estimate) @ estimate
        return squares, float(np.linalg.norm(noise))

    def _spreads(self, rows: Floats, estimate: Floats) -> tuple[Floats, Floats]:
        """Return the noise deviation of rows @ (y - A b), and its growth with each coefficient."""
        through = np.einsum("js,vsk->jvk", rows, self.into_matrix)
        at = self._moved(rows, estimate)
        return np.sqrt((at**2).sum(axis=1)), np.sqrt((through**2).sum(axis=1))

    def _moved(self, rows: Floats, estimate: Floats) -> Floats:
        """Return what each noise with its deviation moves rows @ (y - A b) by, shape (rows, noises)."""
        # residual = noise @ (into_right - into_matrix b)
        return np.asarray(rows @ (self.into_right - self.into_matrix @ estimate).T, np.float64)

    def _square_of(self, size: int, outside: float) -> float:
        """Return what the square of the residual seldom exceeds, over its covariance."""
        if all(distribution.is_normal for distribution in self.distributions):
            return chi_square(size, outside)
        return projected_square(size, outside)

    def _quantile(self, moved: Floats, sampling: float, outside: float) -> float:
        """Return the quantile of a coefficient's noise and sampling error, over its standard error."""
        if all(distribution.is_normal for distribution in self.distributions):
            return normal_quantile(outside)
        most = np.argsort(-np.abs(moved))
        parts = [(float(moved[index]), self.distributions[index]) for index in most[:_APART].tolist()]
        # many small noises together are as good as normal
        rest = math.hypot(float(np.linalg.norm(moved[most[_APART:]])), sampling)
        return sum_quantile([*parts, (rest, NORMAL)], outside)


def normal_equations(design: Design, noisy: NoisySums, group: int = 0) -> NormalEquations:
    """Return the normal equations of a linear regression in a group from noisy sums, numbers in [-1, 1].

    `group`: the index of the cell of all columns after `by`.
    """
    response, coefficients = design.one.columns[0], design.coefficients
    size, sums = len(coefficients), _Sums(design, noisy, group)
    matrix, right = np.zeros((size, size)), np.zeros(size)
    into_matrix, into_right = np.zeros((sums.noises, size, size)), np.zeros((sums.noises, size))
    for row, one in enumerate(coefficients):
        right[row], into_right[:, row] = sums.of((*one.numbers, response), one.levels)
        for column, other in enumerate(coefficients[: row + 1]):
            levels = dict(one.levels) | dict(other.levels)
            if any(levels[name] != level for name, level in one.levels):
                # no row has two categories of one column
                continue
            value, noise = sums.of((*one.numbers, *other.numbers), tuple(levels.items()))
            for i, j in {(row, column), (column, row)}:
                matrix[i, j], into_matrix[:, i, j] = value, noise
    square, into_square = sums.of((response, response), ())
    count, _ = sums.of((), ())
    return NormalEquations(
        matrix, right, square, count, into_matrix, into_right, into_square, sums.distributions
    )


class _Sums:
    """Access to a regression's noisy sums in one group, with each independent noise's deviation in them."""

    def __init__(self, design: Design, noisy: NoisySums, group: int) -> None:
        self._design, self._noisy, self._group = design, noisy, group
        self._first: dict[Block, int] = {}
        self.noises = 0
        for block in design.factors:
            self._first[block] = self.noises
            self.noises += len(self._of_group(block))
        distributions = ([noisy.distribution(block)] * len(self._of_group(block)) for block in design.factors)
        self.distributions = tuple(itertools.chain.from_iterable(distributions))

    def _of_group(self, block: Block) -> NDArray[np.int64]:
        """Return the indices of the group's cells in a block; they are next to each other."""
        groups = math.prod(one.cells for one in self._design.groups)
        size = block.cells // groups
        return np.arange(self._group * size, (self._group + 1) * size)

    def of(self, numbers: tuple[str, ...], levels: tuple[tuple[str, int], ...]) -> tuple[float, Floats]:
        """Return the noisy sum of a product over rows in some categories, and each noise's deviation."""
        wanted = dict(levels)
        block = self._design.block(numbers, tuple(wanted))
        own = self._of_group(block)
        selectors = block.selectors[len(self._design.groups) :]
        cells = np.arange(len(own)).reshape([one.cells for one in selectors])
        inside = cells[tuple(wanted.get(one.column, slice(None)) for one in selectors)].ravel()
        greatest = block.greatest(self._noisy.schema)
        noise = np.zeros(self.noises)
        noise[self._first[block] + inside] = self._noisy.deviation(block) / greatest
        return float(self._noisy.sums(block)[own[inside]].sum()) / greatest, noise


def chi_square(freedom: int, outside: float) -> float:
    """Return the value that a chi-square variable with so many degrees exceeds with this probability."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import gammainccinv

    return 2 * float(gammainccinv(freedom / 2, outside)) * (1 + 1e-12)
