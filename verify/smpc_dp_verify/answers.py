"""Answers about records that a total gives [protocols/records/README.md]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smpc_dp_verify.asked import Asked, selectors
from smpc_dp_verify.columns import Block, Table
from smpc_dp_verify.reconciled import MOST_COLUMNS, Noisy, is_count, needed, reconciled
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


class Sums:
    """Noisy sums of all blocks of a total in steps over the counted parties, with the statistics that follow.

    `variance_of`: of one party's noise in a block. `counted`: parties, numbered from 0. `rows`: of all of
    these parties, where that is public. `hide`: a count is shown from so many deviations of its noise on.
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
    ) -> None:
        self._table, self._rows, self._hide = table, rows or 0, hide
        self._counted, parties = {*counted}, len(counted)
        self._sums: dict[Block, tuple[list[float], float]] = {}
        at = 0
        for one in scaled:
            steps = total[at : at + one.block.cells]
            each = [float(value) / float(one.scale) for value in steps]
            self._sums[one.block] = each, deviation_of(one, parties * variance_of(one.block), parties)
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
            self._sums[complete] = [value - other for value, other in pairs], math.hypot(first, second)

    @classmethod
    def of_request(cls, request: Request, total: list[int], variance: int, counted: list[int]) -> Sums:
        """Return the sums of a verifiable average."""
        public = request.public_rows
        rows = None if public is None else sum(public[party] for party in counted)
        return cls(request.table, request.blocks, total, lambda _: variance, counted, rows)

    def of(self, block: Block, one: Asked) -> tuple[list[float], float]:
        """Return a block's sum in each cell, and the noise's deviation, over a row's greatest value."""
        block = block._replace(where=one.where)
        if self._table.is_public(block):
            return [float(self._rows)], 0.0
        sums, deviation = self._sums[block]
        greatest = self._table.greatest(block)
        return [value / greatest for value in sums], deviation / greatest

    def answers(self, asked: Sequence[Asked]) -> list[Answer]:
        """Return the answers that are computed here; others follow from the totals too."""
        computed = [one for one in asked if is_computed(one, self._table)]
        return [self._of_counted(ANSWERS[one.kind](self, one), one) for one in computed]

    def _of_counted(self, answer: Answer, one: Asked) -> Answer:
        """Return an answer without the cells that are about the rows of parties that are not counted."""
        left, columns = 1, self._table.columns
        for ranges in (ranges for name, ranges in one.where if columns[name].is_party):
            if not any(low <= party <= high for low, high in ranges for party in self._counted):
                nothing: list[float | None] = [None] * len(answer.values)
                return Answer(answer.statistic, nothing, nothing)
        for selector in reversed(selectors(one, self._table)):
            if columns[selector.column].is_party:
                cells = range(len(answer.values))
                lost = {cell for cell in cells if cell // left % selector.cells not in self._counted}
                values, errors = (
                    [None if cell in lost else each[cell] for cell in cells]
                    for each in (answer.values, answer.errors)
                )
                return Answer(answer.statistic, values, errors)
            left *= selector.cells
        return answer

    def counts(self, one: Asked) -> Answer:
        """Return the answer of a count, table or histogram; None in cells within the noise."""
        by = selectors(one, self._table)
        values, error = self._reconciled(self._table.block(by=by), one)
        least = self._hide * error if by and self._hide > 0 else -math.inf
        most = self._rows if self._table.public and not one.where else math.inf
        shown = [None if value < least else min(max(value, 0.0), most) for value in values]
        return Answer(one.text, shown, [error] * len(values))

    def _reconciled(self, block: Block, one: Asked) -> tuple[list[float], float]:
        """Return a block's counts, made to agree with other counts of its rows; and their deviation."""
        table, where = self._table, one.where
        if (table.is_public(block) and not where) or len(block.selectors) > MOST_COLUMNS:
            return self.of(block, one)
        plain = [each._replace(where=()) for each in self._sums if each.where == where]
        columns = needed(block, table)
        alike = [each for each in plain if is_count(each) and needed(each, table) == columns]
        # of a count and what follows from it, and of two that follow, the first
        used = [*{self._sources.get(each._replace(where=where), each): each for each in alike[::-1]}.values()]
        if block not in used:
            return self.of(block, one)
        is_known = table.public and not (columns or table.of_persons or where)
        noisy = [Noisy(each.selectors, *self.of(each, one)) for each in used]
        return reconciled(block.selectors, noisy, float(self._rows) if is_known else None)

    def _parts(self, one: Asked) -> tuple[list[tuple[float, ...]], list[float]]:
        """Return the noisy sums that a statistic needs, by cell, and the deviation of each kind of sum."""
        (name,), table, by = one.columns, self._table, selectors(one, self._table)
        blocks = [table.block(name, by=by), table.block(over=(name,), by=by)]
        if one.kind in ("variance", "robust variance"):
            blocks.insert(0, table.block(name, name, by=by))
        if one.kind == "sum" and table.columns[name].middle == 0:
            del blocks[1]
        each = [self.of(block, one) for block in blocks]
        return [*zip(*(values for values, _ in each), strict=True)], [error for _, error in each]

    def sums(self, one: Asked) -> Answer:
        """Return the answer of a sum: a column's sum in each cell, cut at 0 if values have one sign."""
        column = self._table.columns[one.columns[0]]
        factors = [column.width / 2, column.middle]
        cells, deviations = self._parts(one)
        values = [sum(factor * value for factor, value in zip(factors, cell, strict=False)) for cell in cells]
        error = math.hypot(*(factor * each for factor, each in zip(factors, deviations, strict=False)))
        low, high = 0.0 if column.low >= 0 else -math.inf, 0.0 if column.high <= 0 else math.inf
        return Answer(one.text, [min(max(value, low), high) for value in values], [error] * len(values))

    def means(self, one: Asked) -> Answer:
        """Return the answer of a mean; None in cells whose count is within the noise."""
        column, (cells, (e, e_1)) = self._table.columns[one.columns[0]], self._parts(one)
        values: list[float | None] = []
        errors: list[float | None] = []
        for top, count in cells:
            is_shown = count > self._hide * e_1
            t = top / count if is_shown else 0.0
            value = min(max(column.middle + column.width / 2 * t, column.low), column.high)
            values.append(value if is_shown else None)
            errors.append(column.width / 2 * math.hypot(e, t * e_1) / count if is_shown else None)
        return Answer(one.text, values, errors)

    def variances(self, one: Asked) -> Answer:
        """Return the answer of a variance; None in cells whose count is within the noise."""
        column, (cells, (e_2, e, e_1)) = self._table.columns[one.columns[0]], self._parts(one)
        half = (column.width / 2) ** 2
        values: list[float | None] = []
        errors: list[float | None] = []
        for square, top, count in cells:
            if count <= self._hide * e_1:
                values.append(None)
                errors.append(None)
                continue
            y, t = square / count, top / count
            value = y - t * t + (e * e + (t * e_1) ** 2) / count**2
            values.append(half * min(max(value, 0.0), 1.0))
            errors.append(half * math.hypot(e_2, 2 * t * e, (y - 2 * t * t) * e_1) / count)
        return Answer(one.text, values, errors)


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
