"""Exact tables of counts, whose cells of few records or parties are not shown.

This is a disclosure rule, and not differential privacy. One table, the base, has the columns of all others:
they are its margins, and are added up from shown cells alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.ask import Ask, Statistic, read_ask
from smpc_dp.records.features import Block, Selector, product
from smpc_dp.records.intervals import INFINITE
from smpc_dp.records.noisy import cell_labels
from smpc_dp.records.result import TOO_MANY_ROWS, Answers, Estimate
from smpc_dp.records.schema import Schema
from smpc_dp.records.table import Integers, Table
from smpc_dp.records.terms import counted_cells

# Fewer parties than this could work out each other's counts.
LEAST_PARTIES = 3
# What stands for a cell that is not shown, where a count is never negative.
NOT_SHOWN = -1
NOTE = "not shown: too few records or parties"
MAX_CELLS = 1 << 12


@dataclass(frozen=True)
class ExactTables:
    """One request for exact tables; made by `plan_tables`.

    Attributes:
        statistics: what is asked for: counts, histograms and tables of counts.
        base: the counts of the finest table.
        smallest: the least count that is shown.
    """

    schema: Schema
    statistics: tuple[Statistic, ...]
    base: Block
    smallest: int

    @property
    def length(self) -> int:
        """The number of cells of the base."""
        return self.base.cells

    @property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest count of a party in each cell."""
        least = np.zeros(self.length, dtype=np.int64)
        return least, np.full(self.length, self.schema.max_rows, dtype=np.int64)

    def vector(self, table: Table) -> Integers:
        """Return a party's counts, shape (length,); those above max_rows count as that."""
        counts = [min(int(count), self.schema.max_rows) for count in self.base.sums(table)]
        return np.array(counts, dtype=np.int64)

    def answers(self, cells: NDArray[np.int64], level: float) -> Answers:
        """Return the counts of all tables from those of the base, in which NOT_SHOWN stands for no count."""
        estimates = [one for statistic in self.statistics for one in self._counts(statistic, cells.tolist())]
        return Answers(
            estimates=tuple(estimates),
            level=level,
            simultaneous=False,
            unit=self.schema.unit,
            relation=self.schema.relation,
            present=0,
            counted=0,
            rows=None,
            guarantee=None,
            not_protected=self.not_protected,
        )

    def _counts(self, one: Statistic, cells: Sequence[int]) -> list[Estimate]:
        """Return the cells of one table: each is shown if all cells of the base beneath it are."""
        selectors = tuple(counted_cells(one, self.schema))
        beneath: dict[tuple[str, ...], list[int]] = {}
        labels = [tuple(cell.values()) for cell in self._labels(selectors)]
        for cell, count in zip(self._labels(self.base.selectors), cells, strict=True):
            beneath.setdefault(tuple(cell[chosen.column] for chosen in selectors), []).append(count)
        names = [chosen.column for chosen in selectors]
        return [self._estimate(one, dict(zip(names, label, strict=True)), beneath[label]) for label in labels]

    def _labels(self, selectors: tuple[Selector, ...]) -> list[dict[str, str]]:
        return cell_labels(selectors, self.schema)

    def _estimate(self, one: Statistic, cell: dict[str, str], counts: Sequence[int]) -> Estimate:
        shown = None if NOT_SHOWN in counts else float(sum(counts))
        ends = INFINITE if shown is None else (shown, shown)
        note = NOTE if shown is None else ""
        return Estimate.of(one, "count", "rows", ends, cell=cell, value=shown, error=0.0, note=note)

    @functools.cached_property
    def rule(self) -> str:
        """Which cells are shown, in words."""
        return (
            f"cells of at least {self.smallest} records, from at least {LEAST_PARTIES} parties, and margins "
            "of which all cells are shown"
        )

    @property
    def not_protected(self) -> tuple[str, ...]:
        """What a reader of the tables should be told."""
        rows, parties = self.schema.person_factor, self.schema.party_factor
        fewest = max(math.ceil(self.smallest / (rows * parties)), math.ceil(LEAST_PARTIES / parties))
        persons = f": those of {fewest} may do" if self.schema.unit == "person" else ""
        return (
            "a disclosure rule, and not differential privacy: counts that are shown are exact, and who knows "
            "all records of a cell but one learns that one",
            f"persons: records are counted, and one person may have several in a cell{persons}",
            "a party can subtract its own counts from each cell that is shown, and colluding parties theirs",
            "a party that adds records that it does not have can have a cell shown",
            "which cells are not shown is public: they have fewer records, or fewer parties",
            "other tables of these records, wherever they are published: also by a party that gives the rows "
            "another name of a data set, or deletes its file of opened tables",
            "how long a party takes to read and sum its rows: others see it where it does so while they wait",
            TOO_MANY_ROWS,
        )


def plan_tables(schema: Schema, ask: Ask, smallest: int) -> ExactTables:
    """Plan exact tables of counts.

    Raises ConfigError for other statistics, public rows, and tables that are not margins of one of them: a
    cell that is not shown in one could be worked out from the other.
    """
    statistics = read_ask(ask, schema)
    for one in statistics:
        if one.kind not in ("count", "table", "histogram"):
            reason = f"{one.text!r} is no table of counts: smallest_count is for these alone"
            raise ConfigError.at("ask", reason, ConfigCheck.UNSUPPORTED)
    if schema.rows == "public":
        reason = "must be 'private' with smallest_count: public totals would show single cells"
        raise ConfigError.at("records.rows", reason, ConfigCheck.CONFLICT)
    cells = [counted_cells(one, schema) for one in statistics]
    base = max(cells, key=len)
    for one, selectors in zip(statistics, cells, strict=True):
        if not set(selectors) <= set(base):
            finest = statistics[cells.index(base)].text
            reason = (
                f"{one.text!r} overlaps {finest!r} and is no margin of it: a cell that one does not show "
                "could be worked out from both"
            )
            raise ConfigError.at("ask", reason, ConfigCheck.CONFLICT)
    block = product(schema, by=base)
    if block.cells > MAX_CELLS:
        raise ConfigError.at("ask", f"{block.cells} cells, at most {MAX_CELLS}", ConfigCheck.TOO_LARGE)
    return ExactTables(schema, statistics, block, smallest)
