"""A table of a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Table:
    """Block of a report: a table with title, columns and rows.

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
        """Return the table without columns that are empty in every row."""
        there = [i for i in range(len(self.columns)) if any(row[i] for row in self.rows)]
        rows = tuple(tuple(row[i] for i in there) for row in self.rows)
        return replace(self, columns=tuple(self.columns[i] for i in there), rows=rows)

    def first(self, most: int) -> Table:
        """Return the table cut to `most` rows, with a note on how many are left out."""
        if len(self.rows) <= most:
            return self
        cut = f"The first {most:,} of {len(self.rows):,} rows."
        return replace(self, rows=self.rows[:most], note=f"{cut} {self.note}".strip())
