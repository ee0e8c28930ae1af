"""Exact tables of counts, whose cells of few records or parties are not shown.

This is a disclosure rule, and not differential privacy. One table, the base, has the columns of all others,
its margins. A missing value is a level of a column: rows that some tables count and others do not are cells
of their own, so that each table is a sum of disjoint cells, and each cell that is opened obeys the rule.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.records.ask import Ask, read_ask
from smpc_dp.records.asked import Statistic
from smpc_dp.records.checks import check_no_party
from smpc_dp.records.features import Selector
from smpc_dp.records.noisy import cell_labels
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.result import TOO_MANY_ROWS, Answers, Estimate
from smpc_dp.records.schema import Schema
from smpc_dp.records.table import Integers, Table
from smpc_dp.records.terms import count_selectors

# Fewer parties than this could work out each other's counts.
LEAST_PARTIES = 3
# What stands for a cell that is not shown, where a count is never negative.
NOT_SHOWN = -1
NOTE = "not shown: too few records or parties"
MAX_CELLS = 1 << 12
Parts = tuple[tuple[Selector, ...], ...]


@dataclass(frozen=True)
class ExactTables:
    """Plan of one request for exact tables of counts, in which small cells are hidden instead of noised.

    Attributes:
        statistics: what is asked for: counts, histograms and tables of counts.
        parts: sets of columns, the base first. A row is in a cell of the set of all columns of those tables
            that count it: in one of the base if it lacks none.
        smallest: the least count that is shown.
    """

    schema: Schema
    statistics: tuple[Statistic, ...]
    parts: Parts
    smallest: int

    @functools.cached_property
    def length(self) -> int:
        """The number of counts in a party's vector."""
        return sum(map(cells_of_part, self.parts))

    @property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest count that a party may have in each cell, 0 and `max_rows`."""
        least = np.zeros(self.length, dtype=np.int64)
        return least, np.full(self.length, self.schema.max_rows, dtype=np.int64)

    def vector(self, table: Table) -> Integers:
        """Return a party's count of rows in each cell, each cut at `max_rows`.

        A row is in one cell at most: that of the columns of all tables that count it.
        """
        tables = [frozenset(count_selectors(one, self.schema)) for one in self.statistics]
        base = self.parts[0]
        indices = {chosen: chosen.index(table) for chosen in base}
        inside = np.array([index >= 0 for index in indices.values()]).reshape(len(base), table.rows).T
        kinds, kind = np.unique(inside, axis=0, return_inverse=True)
        counts = {frozenset(part): np.zeros(cells_of_part(part), dtype=np.int64) for part in self.parts}
        for number, row in enumerate(kinds.tolist()):
            there = frozenset(chosen for chosen, has in zip(base, row, strict=True) if has)
            used = [each for each in tables if each <= there]
            if not used:
                continue
            part, rows = frozenset[Selector]().union(*used), table.counted & (kind.ravel() == number)
            cell = np.zeros(np.count_nonzero(rows), dtype=np.int64)
            for chosen in (chosen for chosen in base if chosen in part):
                cell = cell * chosen.cells + indices[chosen][rows]
            counts[part] += np.bincount(cell, minlength=len(counts[part]))
        cells = np.concatenate(list(counts.values()))
        return np.asarray(np.minimum(cells, self.schema.max_rows), dtype=np.int64)

    def answers(self, cells: NDArray[np.int64], level: float) -> Answers:
        """Return the counts of all requested tables from opened cells, some of which may be NOT_SHOWN."""
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
            not_protected=self.not_protected.sentences,
        )

    def _counts(self, one: Statistic, cells: Sequence[int]) -> list[Estimate]:
        """Return the counts of one table's cells from the finest cells: none, or a bound, if one is hidden.

        It counts the rows that have the table's columns, but those that lack others and are not shown.
        """
        selectors = tuple(count_selectors(one, self.schema))
        labels = cell_labels(selectors, self.schema)
        complete, lacking = ({tuple(cell.values()): list[int]() for cell in labels} for _ in range(2))
        start = 0
        for part in self.parts:
            counts = cells[start : start + cells_of_part(part)]
            start += len(counts)
            if set(selectors) <= set(part):
                beneath = complete if part == self.parts[0] else lacking
                for cell, count in zip(cell_labels(part, self.schema), counts, strict=True):
                    beneath[tuple(cell[chosen.column] for chosen in selectors)].append(count)
        return [
            self._cell_estimate(one, cell, complete[tuple(cell.values())], lacking[tuple(cell.values())])
            for cell in labels
        ]

    def _cell_estimate(
        self, one: Statistic, cell: dict[str, str], complete: list[int], lacking: list[int]
    ) -> Estimate:
        """Return one cell's count: exact, a lower bound, or none if a finest cell below is hidden."""
        value, high, note = None, math.inf, NOTE
        if NOT_SHOWN not in complete:
            shown = [count for count in lacking if count != NOT_SHOWN]
            value, note = sum(complete) + sum(shown), self._at_least(cell)
            if len(shown) == len(lacking):
                high, note = value, ""
        return Estimate.of(
            one,
            "count",
            "rows",
            (-math.inf if value is None else value, high),
            cell=cell,
            value=None if value is None else float(value),
            error=None if note else 0.0,
            note=note,
        )

    def _at_least(self, cell: dict[str, str]) -> str:
        """Return the note on a count that is a lower bound, as some rows are in cells that are not shown."""
        others = [chosen.column for chosen in self.parts[0] if chosen.column not in cell]
        lacking = others[0] if len(others) == 1 else f"one of {', '.join(others)}"
        few = "are in cells of too few records or parties"
        return f"at least: rows that lack {lacking} and {few} are not counted"

    @functools.cached_property
    def rule(self) -> str:
        """The disclosure rule in words: which cells of the tables are shown."""
        return (
            f"cells of at least {self.smallest} records, from at least {LEAST_PARTIES} parties, and margins "
            "of which all cells are shown; rows that lack a value of another table's column are cells too"
        )

    @property
    def not_protected(self) -> NamedSentences:
        """Sentences that tell readers what the disclosure rule does not protect."""
        rows, parties = self.schema.person_factor, self.schema.party_factor
        fewest = max(math.ceil(self.smallest / (rows * parties)), math.ceil(LEAST_PARTIES / parties))
        persons = f": those of {fewest} may do" if self.schema.unit == "person" else ""
        return NamedSentences.of(
            exact="a disclosure rule, and not differential privacy: counts that are shown are exact, and who "
            "knows all records of a cell but one learns that one",
            persons=f"persons: records are counted, and one person may have several in a cell{persons}",
            own_counts="a party can subtract its own counts from each cell that is shown, and colluding "
            "parties theirs",
            false_records="a party that adds records that it does not have can have a cell shown",
            hidden_cells="which cells are not shown is public: they have fewer records, or fewer parties, "
            "and together at most max_rows of each party less what is shown",
            other_tables="other tables of these records, wherever they are published: also by a party that "
            "gives the rows another name of a data set, or deletes its file of opened tables",
            reading_time="how long a party takes to read and sum its rows: others see it where it does so "
            "while they wait",
            many_rows=TOO_MANY_ROWS,
        )


def plan_tables(schema: Schema, ask: Ask, smallest: int) -> ExactTables:
    """Plan exact tables of counts, all of them margins of the largest; ConfigError for any other table.

    Raises ConfigError for other statistics, public rows, and tables that are not margins of one of them: a
    cell that is not shown in one could be worked out from the other.
    """
    statistics = read_ask(ask, schema)
    for one in statistics:
        if not statistic_of(one).counts:
            reason = f"{one.text!r} is no table of counts: smallest_count is for these alone"
            raise ConfigError.at("ask", reason, ConfigCheck.UNSUPPORTED)
        if one.where:
            reason = f"{one.text!r} has a condition: cells that are not shown could be worked out from others"
            raise ConfigError.at("ask", reason, ConfigCheck.UNSUPPORTED)
    if schema.rows == "public":
        reason = "must be 'private' with smallest_count: public totals would show single cells"
        raise ConfigError.at("records.rows", reason, ConfigCheck.CONFLICT)
    tables = [count_selectors(one, schema) for one in statistics]
    base = max(tables, key=len)
    for one in statistics:
        check_no_party(one, schema)
    for one, selectors in zip(statistics, tables, strict=True):
        if not set(selectors) <= set(base):
            finest = statistics[tables.index(base)].text
            reason = (
                f"{one.text!r} overlaps {finest!r} and is no margin of it: a cell that one does not show "
                "could be worked out from both"
            )
            raise ConfigError.at("ask", reason, ConfigCheck.CONFLICT)
    return ExactTables(schema, statistics, _parts(schema, tables, base), smallest)


def _parts(schema: Schema, tables: Sequence[list[Selector]], base: list[Selector]) -> Parts:
    """Return the sets of columns by which a row may be counted, that of the largest table first.

    They are unions of tables' columns. Rows that have all columns of such a set, and none of the others that
    may be missing, are counted by further tables if these need no such column: then the set is none.
    """
    unions, cells = {frozenset(base)}, 0
    for table in tables:
        unions |= {union | frozenset(table) for union in ({frozenset[Selector]()} | unions)}
        _check_cells(len(unions))
    always = {chosen for chosen in base if not may_lack(chosen, schema)}
    parts: list[tuple[Selector, ...]] = []
    for union in unions:
        if all(set(table) <= union or not set(table) <= union | always for table in tables):
            parts.append(tuple(chosen for chosen in base if chosen in union))
            cells += cells_of_part(parts[-1])
            _check_cells(cells)
    position = {chosen: index for index, chosen in enumerate(base)}
    return tuple(sorted(parts, key=lambda part: (-len(part), [position[chosen] for chosen in part])))


def _check_cells(cells: int) -> None:
    """Raise ConfigError if tables together have more cells than are allowed."""
    if cells > MAX_CELLS:
        reason = f"{cells} cells or more, those of rows that lack a column included, at most {MAX_CELLS}"
        raise ConfigError.at("ask", reason, ConfigCheck.TOO_LARGE)


def cells_of_part(part: Sequence[Selector]) -> int:
    """Return the number of cells in the cross product of some columns."""
    return math.prod(chosen.cells for chosen in part)


def may_lack(chosen: Selector, schema: Schema) -> bool:
    """Tell whether a row that is counted may have no value, and so no cell, in a column."""
    return schema.columns[chosen.column].missing
