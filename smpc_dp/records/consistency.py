"""Makes the noisy counts of a request agree: least squares over all that have the same rows.

Two blocks that each have every row of one set in one cell have equal margins in the columns that they share.
A table is the sum of its components: for each set of its columns what deviates from all margins in fewer of
them. The noise of a block is alike in all cells, so the errors of a component are multiples of one covariance
in all blocks that have it, and their weighted mean is the least-squares estimate.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.features import Block, Lacking, Selector
from smpc_dp.records.intervals import ErrorDistribution, Part, SumDistribution, distribution_of
from smpc_dp.records.noisy import NoisySums, laplace_distribution
from smpc_dp.records.schema import Schema
from smpc_dp.records.terms import is_public

Floats = NDArray[np.float64]
# Columns of a table that is reconciled: it has a component for each set of them.
MOST_COLUMNS = 8


@dataclass(frozen=True)
class Counts:
    """Noisy counts of a table's cells, with the standard deviation and distribution of each error."""

    values: Floats
    deviation: float
    distribution: ErrorDistribution | SumDistribution


@dataclass(frozen=True)
class Margin:
    """Description of one noisy table of counts: its axes, and its noise per cell, which must not be 0.

    Raises ConfigError for counts without noise: a hidden count would follow from them and exact totals.
    """

    axes: tuple[Selector, ...]
    deviation: float
    distribution: ErrorDistribution

    def __post_init__(self) -> None:
        if not 0 < self.deviation < math.inf:
            reason = f"exact counts are not reconciled: the deviation of their noise is {self.deviation:g}"
            raise ConfigError.at("counts", reason, ConfigCheck.UNSUPPORTED)


def counts_of(block: Block, noisy: NoisySums) -> Counts:
    """Return a table's noisy counts as they were released, without fitting them to other tables."""
    return Counts(noisy.sums(block), noisy.deviation(block), noisy.distribution(block))


def reconciled(block: Block, noisy: NoisySums) -> Counts | None:
    """Return a table's counts fitted to all noisy tables of its rows; None without others, or if too wide.

    None where no other counts are of these rows, for the public number of rows, and for a table of more than
    `MOST_COLUMNS` columns.
    """
    if len(block.selectors) > MOST_COLUMNS:
        return None
    schema = noisy.schema
    needed = _needed(block, schema)
    counts = [each for each in noisy.blocks if _is_count(each, schema) and _needed(each, schema) == needed]
    # what follows from a count of all rows has its noise: of both, and of two that follow, the first is used
    sources = {each.others: each.all_rows for each in noisy.blocks if isinstance(each, Lacking)}
    used = [*{sources.get(each, each): each for each in reversed(counts)}.values()]
    # a public number of rows has those beyond a person's too, which are in no cell
    rows = None if needed or schema.unit == "person" else noisy.public_rows
    if block not in used or (len(used) == 1 and rows is None):
        return None
    margins = [Margin(each.selectors, noisy.deviation(each), noisy.distribution(each)) for each in used]
    agreement = agreement_of(block.selectors, tuple(margins), rows is not None)
    values = agreement.values([noisy.sums(each) for each in used], rows)
    return Counts(values, agreement.deviation, agreement.distribution)


def _is_count(block: Block, schema: Schema) -> bool:
    """Tell whether a block is a noisy table that counts each row in one cell at most."""
    others = block.powers or block.is_survival or isinstance(block, Lacking)
    return not others and not is_public(block, schema)


def _needed(block: Block, schema: Schema) -> frozenset[str]:
    """Return the columns of a block in which rows may lack a value, and then are in none of its cells."""
    return frozenset(name for name in block.columns if schema.columns[name].missing)


class Agreement:
    """Least-squares estimator of a table's counts from several noisy tables that count the same rows.

    Args:
        axes: the selectors of these cells.
        margins: of all noisy counts, those of these cells among them.
        is_known: whether the number of the rows is known exactly.
    """

    def __init__(self, axes: tuple[Selector, ...], margins: tuple[Margin, ...], is_known: bool) -> None:
        self._axes, self._margins = axes, margins
        precisions = [self._precision(each) for each in margins]
        whole = np.sum(precisions, axis=0)
        # of each component, by the columns in it, the weight of each margin
        self._weights = [np.asarray(each / whole) for each in precisions]
        if is_known:
            for each in self._weights:
                each[(0,) * len(axes)] = 0.0
        noises = [noise for pair in zip(margins, self._weights, strict=True) for noise in self._noises(*pair)]
        self.deviation = math.hypot(*(deviation for deviation, _ in noises))
        self.distribution = distribution_of(noises)

    def values(self, counts: Sequence[Floats], rows: float | None = None) -> Floats:
        """Return the fitted counts, from noisy counts and the number of rows, if known; or ConfigError.

        Raises ConfigError for a count that is not there.
        """
        if not all(np.isfinite(each).all() for each in counts):
            reason = "counts with hidden cells are not reconciled: these would follow from the totals"
            raise ConfigError.at("counts", reason, ConfigCheck.UNSUPPORTED)
        fitted = np.zeros([one.cells + 1 for one in self._axes])
        for margin, own, weights in zip(self._margins, counts, self._weights, strict=True):
            for index, one in enumerate(self._axes):
                weights = np.repeat(weights, [1, one.cells], axis=index)
            fitted += weights * self._components(margin, own)
        if rows is not None:
            fitted[(0,) * len(self._axes)] = rows
        for index, one in enumerate(self._axes):
            total, rest = np.split(fitted, [1], axis=index)
            fitted = rest + total / one.cells
        return np.asarray(fitted.ravel())

    def _precision(self, margin: Margin) -> Floats:
        """Return a noisy table's precision for each component of the fitted table, 0 where it has none."""
        left = math.prod(one.cells for one in margin.axes if one not in self._axes)
        result: Floats = np.array(1 / (margin.deviation**2 * left))
        for one in self._axes:
            own = [1 / one.cells, 1.0] if one in margin.axes else [1.0, 0.0]
            result = np.multiply.outer(result, np.array(own))
        return result

    def _components(self, margin: Margin, counts: Floats) -> Floats:
        """Return a table's counts split into totals and deviations from means, along each axis."""
        shared = [one for one in margin.axes if one in self._axes]
        left = tuple(index for index, one in enumerate(margin.axes) if one not in self._axes)
        array = counts.reshape([one.cells for one in margin.axes]).sum(axis=left)
        array = array.transpose([shared.index(one) for one in self._axes if one in shared])
        array = array.reshape([one.cells if one in shared else 1 for one in self._axes])
        for index, one in enumerate(self._axes):
            total = array.sum(axis=index, keepdims=True)
            shape = [*array.shape[:index], one.cells, *array.shape[index + 1 :]]
            deviations = np.broadcast_to(array - total / array.shape[index], shape)
            array = np.concatenate([total, deviations], axis=index)
        return np.asarray(array)

    def _noises(self, margin: Margin, weights: Floats) -> list[Part]:
        """Return the independent error parts that one noisy table's noise brings to one fitted cell.

        A cell of the margin counts by the axes in which it is the same as the fitted one.
        """
        factors = weights
        equal = np.array(math.prod(one.cells for one in margin.axes if one not in self._axes))
        for index, one in enumerate(self._axes):
            without, within = np.take(factors, 0, index), np.take(factors, 1, index)
            if one in margin.axes:
                pair = [(without - within) / one.cells, (without - within) / one.cells + within]
                equal = np.multiply.outer(equal, np.array([one.cells - 1, 1]))
            else:
                pair = [without / one.cells]
                equal = np.multiply.outer(equal, np.ones(1))
            factors = np.stack(pair, axis=index)
        own, result = margin.distribution, []
        for factor, count in zip(factors.ravel().tolist(), equal.ravel().tolist(), strict=True):
            if factor and count:
                # equal noises are together one of as many times the shares
                summed = own if own.shape is None else laplace_distribution(own.shape * count, own.parts)
                result.append((abs(factor) * margin.deviation * math.sqrt(count), summed))
        return result


@functools.lru_cache(maxsize=256)
def agreement_of(axes: tuple[Selector, ...], margins: tuple[Margin, ...], is_known: bool) -> Agreement:
    """Return a cached least-squares estimator of a table from noisy tables with these axes and noises."""
    return Agreement(axes, margins, is_known)
