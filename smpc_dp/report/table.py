"""A table of a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        caption: its heading.
        columns: heading and kind of each: "" for names, "long" for sentences, "number" or "code". The first
            cell heads its row.
        rows: all rows; a page may show the first of them only, and says so.
        note: below it.
    """

    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    block: ClassVar[str] = "table"

    def filled(self) -> Table:
        """Return the table without the columns that have nothing in any row."""
        there = [i for i in range(len(self.columns)) if any(row[i] for row in self.rows)]
        rows = tuple(tuple(row[i] for i in there) for row in self.rows)
        return replace(self, columns=tuple(self.columns[i] for i in there), rows=rows)

    def first(self, most: int) -> Table:
        """Return the table with at most so many rows, and a note about the others."""
        if len(self.rows) <= most:
            return self
        cut = f"The first {most:,} of {len(self.rows):,} rows."
        return replace(self, rows=self.rows[:most], note=f"{cut} {self.note}".strip())
