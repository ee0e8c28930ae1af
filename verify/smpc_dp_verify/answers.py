"""Answers about records that a total gives [protocols/records/README.md]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from smpc_dp_verify.asked import Asked, selectors
from smpc_dp_verify.columns import Block
from smpc_dp_verify.reconciled import MOST_COLUMNS, Noisy, is_count, needed, reconciled
from smpc_dp_verify.record_plan import Request, deviation_of

# A count is shown from so many deviations of its noise on.
SHOWN = 3.0


@dataclass(frozen=True)
class Answer:
    """Computed answer to one statistic: by cell, in order, value and standard error; None if not shown."""

    statistic: str
    values: list[float | None]
    errors: list[float | None]


class Sums:
    """Noisy sums of all blocks of a session's total, with methods that compute statistics from these."""

    def __init__(self, request: Request, total: list[int], variance: int, counted: list[int]) -> None:
        self._request, self._rows, self._counted = request, 0, {*counted}
        if request.public_rows is not None:
            self._rows = sum(request.public_rows[party] for party in counted)
        self._sums: dict[Block, tuple[list[float], float]] = {}
        at, parties = 0, len(counted)
        for one in request.blocks:
            steps = total[at : at + one.block.cells]
            each = [float(value) / float(one.scale) for value in steps]
            self._sums[one.block] = each, deviation_of(one, parties * variance, parties)
            at += one.block.cells

    def of(self, block: Block, one: Asked) -> tuple[list[float], float]:
        """Return a block's sum in each cell, and the noise's deviation, over a row's greatest value."""
        block = block._replace(where=one.where)
        if self._request.table.is_public(block):
            return [float(self._rows)], 0.0
        sums, deviation = self._sums[block]
        greatest = self._request.table.greatest(block)
        return [value / greatest for value in sums], deviation / greatest

    def answers(self) -> list[Answer]:
        """Return answers to counts, tables, histograms, sums, means and variances; skip other kinds."""
        computed = [(one, ANSWERS.get(one.kind)) for one in self._request.asked]
        return [self._of_counted(answer(self, one), one) for one, answer in computed if answer is not None]

    def _of_counted(self, answer: Answer, one: Asked) -> Answer:
        """Return an answer without the cells that are about the rows of a party that is not counted."""
        left, columns = 1, self._request.table.columns
        for selector in reversed(selectors(one, self._request.table)):
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
        """Return the answer of a count, table or histogram; None in cells below three noise deviations."""
        by = selectors(one, self._request.table)
        values, error = self._reconciled(self._request.table.block(by=by), one)
        least = SHOWN * error if by else -math.inf
        most = self._rows if self._request.table.public and not one.where else math.inf
        shown = [None if value < least else min(max(value, 0.0), most) for value in values]
        return Answer(one.text, shown, [error] * len(values))

    def _reconciled(self, block: Block, one: Asked) -> tuple[list[float], float]:
        """Return a block's counts, made to agree with other counts of its rows; and their deviation."""
        table, where = self._request.table, one.where
        if (table.is_public(block) and not where) or len(block.selectors) > MOST_COLUMNS:
            return self.of(block, one)
        plain = [each._replace(where=()) for each in self._sums if each.where == where]
        columns = needed(block, table)
        used = [each for each in plain if is_count(each) and needed(each, table) == columns]
        is_known = table.public and not (columns or table.of_persons or where)
        noisy = [Noisy(each.selectors, *self.of(each, one)) for each in used]
        return reconciled(block.selectors, noisy, float(self._rows) if is_known else None)

    def _parts(self, one: Asked) -> tuple[list[tuple[float, ...]], list[float]]:
        """Return the noisy sums that a statistic needs, by cell, and the deviation of each kind of sum."""
        (name,), table, by = one.columns, self._request.table, selectors(one, self._request.table)
        blocks = [table.block(name, by=by), table.block(over=(name,), by=by)]
        if one.kind in ("variance", "robust variance"):
            blocks.insert(0, table.block(name, name, by=by))
        if one.kind == "sum" and table.columns[name].middle == 0:
            del blocks[1]
        each = [self.of(block, one) for block in blocks]
        return [*zip(*(values for values, _ in each), strict=True)], [error for _, error in each]

    def sums(self, one: Asked) -> Answer:
        """Return the answer of a sum: a column's sum in each cell, cut at 0 if values have one sign."""
        column = self._request.table.columns[one.columns[0]]
        factors = [column.width / 2, column.middle]
        cells, deviations = self._parts(one)
        values = [sum(factor * value for factor, value in zip(factors, cell, strict=False)) for cell in cells]
        error = math.hypot(*(factor * each for factor, each in zip(factors, deviations, strict=False)))
        low, high = 0.0 if column.low >= 0 else -math.inf, 0.0 if column.high <= 0 else math.inf
        return Answer(one.text, [min(max(value, low), high) for value in values], [error] * len(values))

    def means(self, one: Asked) -> Answer:
        """Return the answer of a mean; None in cells whose count is within three noise deviations."""
        column, (cells, (e, e_1)) = self._request.table.columns[one.columns[0]], self._parts(one)
        values: list[float | None] = []
        errors: list[float | None] = []
        for top, count in cells:
            is_shown = count > SHOWN * e_1
            t = top / count if is_shown else 0.0
            value = min(max(column.middle + column.width / 2 * t, column.low), column.high)
            values.append(value if is_shown else None)
            errors.append(column.width / 2 * math.hypot(e, t * e_1) / count if is_shown else None)
        return Answer(one.text, values, errors)

    def variances(self, one: Asked) -> Answer:
        """Return the answer of a variance; None in cells whose count is within three noise deviations."""
        column, (cells, (e_2, e, e_1)) = self._request.table.columns[one.columns[0]], self._parts(one)
        half = (column.width / 2) ** 2
        values: list[float | None] = []
        errors: list[float | None] = []
        for square, top, count in cells:
            if count <= SHOWN * e_1:
                values.append(None)
                errors.append(None)
                continue
            y, t = square / count, top / count
            value = y - t * t + (e * e + (t * e_1) ** 2) / count**2
            values.append(half * min(max(value, 0.0), 1.0))
            errors.append(half * math.hypot(e_2, 2 * t * e, (y - 2 * t * t) * e_1) / count)
        return Answer(one.text, values, errors)


ANSWERS: dict[str, Callable[[Sums, Asked], Answer]] = {
    "count": Sums.counts,
    "table": Sums.counts,
    "histogram": Sums.counts,
    "sum": Sums.sums,
    "mean": Sums.means,
    "variance": Sums.variances,
    "robust variance": Sums.variances,
}
