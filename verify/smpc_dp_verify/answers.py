"""Answers about records that a total gives [protocols/records/README.md]."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from smpc_dp_verify.asked import Asked, selectors
from smpc_dp_verify.columns import Block, Table
from smpc_dp_verify.distributions import NORMAL, Distribution, laplace_distribution
from smpc_dp_verify.reconciled import MOST_COLUMNS, Noisy, distribution_in_cell, is_count, needed, reconciled
from smpc_dp_verify.record_plan import Request, deviation_of
from smpc_dp_verify.split import Scaled

# Of counts in tables cells times sets of columns: what takes seconds.
MOST_WORK = 1 << 20
# A count is shown from so many deviations of its noise on.
SHOWN = 3.0


@dataclass(frozen=True)
class Answer:
    """Computed answer to one statistic: by cell, in order, value and standard error; None if not shown."""

    statistic: str
    values: list[float | None]
    errors: list[float | None]


@dataclass(frozen=True)
class Counts:
    """Noisy counts of a table's cells, with deviation and law of their noise.

    `is_fitted`: whether they are made to agree with other counts.
    """

    values: list[float]
    error: float
    distribution: Distribution = NORMAL
    is_fitted: bool = False


class Sums:
    """Noisy sums of all blocks of a total in steps over the counted parties, with the statistics that follow.

    `variance_of`: of one party's noise in a block. `counted`: parties, numbered from 0. `rows`: of all of
    these parties, where that is public. `hide`: a count is shown from so many deviations of its noise on.
    `shape_of`: of a block with Laplace noise the shares over those that are one noise, otherwise None.
    """

    def __init__(
        self,
        table: Table,
        scaled: Sequence[Scaled],
        total: Sequence[int],
        variance_of: Callable[[Block], float],
        counted: Sequence[int],
        rows: int | None,
        hide: float = SHOWN,
        shape_of: Callable[[Block], float | None] = lambda _: None,
    ) -> None:
        self.table, self.hide = table, hide
        self._rows = rows or 0
        self._distributions: dict[Block, Distribution] = {}
        self.parties, parties = {*counted}, len(counted)
        self._sums: dict[Block, tuple[list[float], float]] = {}
        self._fitted: dict[str, Counts] = {}
        at = 0
        for one in scaled:
            steps = total[at : at + one.block.cells]
            each = [float(value) / float(one.scale) for value in steps]
            self._sums[one.block] = each, deviation_of(one, parties * variance_of(one.block), parties)
            if (shape := shape_of(one.block)) is not None:
                self._distributions[one.block] = laplace_distribution(shape)
            at += one.block.cells
        # a count of complete rows that follows from one of all rows
        self._sources: dict[Block, Block] = {}
        for lacking in [block for block in self._sums if block.lacking]:
            complete = lacking._replace(lacking=False)
            if complete._replace(present=()) not in self._sums:
                # the numbers of missing values alone are asked for
                continue
            self._sources[complete] = complete._replace(present=())
            (every, first), (absent, second) = self._sums[self._sources[complete]], self._sums[lacking]
            pairs = zip(every, absent, strict=True)
            deviation = math.hypot(first, second)
            self._sums[complete] = [value - other for value, other in pairs], deviation
            if (shape := shape_of(lacking)) is not None:
                self._distributions[complete] = laplace_distribution(
                    shape, (first / deviation, second / deviation)
                )

    @classmethod
    def of_request(cls, request: Request, total: list[int], variance: int, counted: list[int]) -> Sums:
        """Return the sums of a verifiable average."""
        public = request.public_rows
        rows = None if public is None else sum(public[party] for party in counted)
        return cls(request.table, request.blocks, total, lambda _: variance, counted, rows)

    def distribution(self, block: Block, one: Asked) -> Distribution:
        """Return the law of the noise in a block's cells."""
        return self._distributions.get(block._replace(where=one.where), NORMAL)

    def has(self, block: Block, one: Asked) -> bool:
        """Tell whether there is a sum of this block over the rows of a question."""
        return block._replace(where=one.where) in self._sums

    def of(self, block: Block, one: Asked) -> tuple[list[float], float]:
        """Return a block's sum in each cell, and the noise's deviation, over a row's greatest value."""
        block = block._replace(where=one.where)
        if self.table.is_public(block):
            return [float(self._rows)], 0.0
        sums, deviation = self._sums[block]
        greatest = self.table.greatest(block)
        return [value / greatest for value in sums], deviation / greatest

    def answers(self, asked: Sequence[Asked]) -> list[Answer]:
        """Return the answers that are computed here; others follow from the totals too."""
        computed = [one for one in asked if is_computed(one, self.table)]
        return [self._of_counted(ANSWERS[one.kind](self, one), one) for one in computed]

    def _of_counted(self, answer: Answer, one: Asked) -> Answer:
        """Return an answer without the cells that are about the rows of parties that are not counted."""
        lost = [self.is_lost(one, cell) for cell in labels(one, self.table)]
        values, errors = (
            [None if is_lost else number for number, is_lost in zip(each, lost, strict=True)]
            for each in (answer.values, answer.errors)
        )
        return Answer(answer.statistic, values, errors)

    def is_lost(self, one: Asked, cell: Mapping[str, str]) -> bool:
        """Tell whether a cell, by its labels, has rows of parties alone that are not counted."""
        columns = self.table.columns
        of_where = [ranges for name, ranges in one.where if columns[name].is_party]
        for ranges in of_where:
            if not any(low <= party <= high for low, high in ranges for party in self.parties):
                return True
        of_parties = [(columns[name], label) for name, label in cell.items() if columns[name].is_party]
        return any(column.values.index(label) not in self.parties for column, label in of_parties)

    def counts(self, one: Asked) -> Answer:
        """Return the answer of a count, table or histogram; None in cells within the noise."""
        counts, least = self.fitted(one), self.least_count(one)
        most = self.most_rows(one)
        shown = [None if value < least else min(max(value, 0.0), most) for value in counts.values]
        return Answer(one.text, shown, [counts.error] * len(counts.values))

    def least_count(self, one: Asked) -> float:
        """Return from which noisy count on a cell is shown."""
        is_table = bool(selectors(one, self.table))
        return self.hide * self.fitted(one).error if is_table and self.hide > 0 else -math.inf

    def most_rows(self, one: Asked) -> float:
        """Return the greatest count that is possible."""
        return self._rows if self.table.public and not one.where else math.inf

    def fitted(self, one: Asked) -> Counts:
        """Return the counts of a count, table or histogram, made to agree with other counts of its rows."""
        if one.text not in self._fitted:
            self._fitted[one.text] = self._reconciled(self.table.block(by=selectors(one, self.table)), one)
        return self._fitted[one.text]

    def released(self, one: Asked) -> Counts:
        """Return the counts of a count, table or histogram as they were released."""
        block = self.table.block(by=selectors(one, self.table))
        return Counts(*self.of(block, one), self.distribution(block, one))

    def _reconciled(self, block: Block, one: Asked) -> Counts:
        table, where, own = self.table, one.where, self.released(one)
        if (table.is_public(block) and not where) or len(block.selectors) > MOST_COLUMNS:
            return own
        plain = [each._replace(where=()) for each in self._sums if each.where == where]
        columns = needed(block, table)
        alike = [each for each in plain if is_count(each) and needed(each, table) == columns]
        # of a count and what follows from it, and of two that follow, the first
        used = [*{self._sources.get(each._replace(where=where), each): each for each in alike[::-1]}.values()]
        is_known = table.public and not (columns or table.of_persons or where)
        if block not in used or (len(used) == 1 and not is_known):
            return own
        noisy = [Noisy(each.selectors, *self.of(each, one), self.distribution(each, one)) for each in used]
        values, error = reconciled(block.selectors, noisy, float(self._rows) if is_known else None)
        return Counts(
            values, error, distribution_in_cell(block.selectors, noisy, is_known=is_known), is_fitted=True
        )

    def parts(self, one: Asked) -> tuple[list[tuple[float, ...]], list[float], list[Distribution]]:
        """Return the noisy sums that a statistic needs, by cell; of each kind the deviation and the law."""
        (name,), table, by = one.columns, self.table, selectors(one, self.table)
        blocks = [table.block(name, by=by), table.block(over=(name,), by=by)]
        if one.kind in ("variance", "robust variance"):
            blocks.insert(0, table.block(name, name, by=by))
        if one.kind == "sum" and table.columns[name].middle == 0:
            del blocks[1]
        each, distributions = (
            [self.of(block, one) for block in blocks],
            [self.distribution(block, one) for block in blocks],
        )
        return (
            [*zip(*(values for values, _ in each), strict=True)],
            [error for _, error in each],
            distributions,
        )

    def sums(self, one: Asked) -> Answer:
        """Return the answer of a sum: a column's sum in each cell, cut at 0 if values have one sign."""
        column = self.table.columns[one.columns[0]]
        factors = [column.width / 2, column.middle]
        cells, deviations, _ = self.parts(one)
        values = [sum(factor * value for factor, value in zip(factors, cell, strict=False)) for cell in cells]
        error = math.hypot(*(factor * each for factor, each in zip(factors, deviations, strict=False)))
        low, high = 0.0 if column.low >= 0 else -math.inf, 0.0 if column.high <= 0 else math.inf
        return Answer(one.text, [min(max(value, low), high) for value in values], [error] * len(values))

    def means(self, one: Asked) -> Answer:
        """Return the answer of a mean; None in cells whose count is within the noise."""
        column, (cells, (e, e_1), _) = self.table.columns[one.columns[0]], self.parts(one)
        values: list[float | None] = []
        errors: list[float | None] = []
        for top, count in cells:
            is_shown = count > self.hide * e_1
            t = top / count if is_shown else 0.0
            value = min(max(column.middle + column.width / 2 * t, column.low), column.high)
            values.append(value if is_shown else None)
            errors.append(column.width / 2 * math.hypot(e, t * e_1) / count if is_shown else None)
        return Answer(one.text, values, errors)

    def variances(self, one: Asked) -> Answer:
        """Return the answer of a variance; None in cells whose count is within the noise."""
        column, (cells, (e_2, e, e_1), _) = self.table.columns[one.columns[0]], self.parts(one)
        half = (column.width / 2) ** 2
        values: list[float | None] = []
        errors: list[float | None] = []
        for square, top, count in cells:
            if count <= self.hide * e_1:
                values.append(None)
                errors.append(None)
                continue
            value, parts = variance_of(square, top, count, (e_2, e, e_1))
            values.append(half * min(max(value, 0.0), 1.0))
            errors.append(half * math.hypot(*parts))
        return Answer(one.text, values, errors)


def variance_of(
    square: float, top: float, count: float, errors: tuple[float, float, float]
) -> tuple[float, list[float]]:
    """Return a variance of values in [-1, 1] from noisy sums, and the error that each noise brings to it.

    `errors`: the deviations of the noise in the sums of squares, of values and of rows.
    """
    (e_2, e, e_1), y, t = errors, square / count, top / count
    value = y - t * t + (e * e + (t * e_1) ** 2) / count**2
    return value, [part / count for part in (e_2, 2 * t * e, (y - 2 * t * t) * e_1)]


def spreads(sums: Sums, one: Asked) -> list[float | None]:
    """Return a column's standard deviation in [-1, 1] by cell; None without squares or within the noise."""
    (name,), by = one.columns, selectors(one, sums.table)
    blocks = [sums.table.block(*powers, over=(name,), by=by) for powers in ((name, name), (name,), ())]
    if not sums.has(blocks[0], one):
        return [None] * blocks[0].cells
    (squares, e_2), (tops, e), (counts, e_1) = (sums.of(block, one) for block in blocks)
    result: list[float | None] = []
    for square, top, count in zip(squares, tops, counts, strict=True):
        value, parts = variance_of(square, top, count, (e_2, e, e_1)) if count > 0 else (0.0, [0.0])
        is_clear = count > 0 and value > 2 * math.hypot(*parts)
        result.append(math.sqrt(value) if is_clear else None)
    return result


def labels(answer: Asked, table: Table) -> list[dict[str, str]]:
    """Return for each cell of an answer, in order, by column its category or its bin, such as `[0, 10)`."""
    cells: list[dict[str, str]] = [{}]
    for one in selectors(answer, table):
        column = table.columns[one.column]
        ends = zip(one.edges, [*one.edges[1:], column.high], strict=True)
        texts = list(column.values) or [f"[{low:.12g}, {high:.12g})" for low, high in ends]
        if not column.values:
            texts[-1] = f"{texts[-1][:-1]}]"
        cells = [{**cell, one.column: text} for cell in cells for text in texts]
    return cells


def is_computed(one: Asked, table: Table) -> bool:
    """Tell whether an answer is computed here."""
    by = selectors(one, table) if one.kind in ANSWERS else ()
    return (
        one.kind in ANSWERS
        and math.prod(each.cells for each in by) << min(len(by), MOST_COLUMNS) <= MOST_WORK
    )


ANSWERS: dict[str, Callable[[Sums, Asked], Answer]] = {
    "count": Sums.counts,
    "table": Sums.counts,
    "histogram": Sums.counts,
    "sum": Sums.sums,
    "mean": Sums.means,
    "variance": Sums.variances,
    "robust variance": Sums.variances,
}
