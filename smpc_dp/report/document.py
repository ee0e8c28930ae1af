"""A report: sections of facts, texts, tables and charts, and how it becomes one HTML file.

Nothing is loaded by the file: styles and pictures are in it. Behind each chart stands its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from smpc_dp.files import write_file
from smpc_dp.report.chart import Chart, Intervals, Lines
from smpc_dp.report.pages import environment
from smpc_dp.report.table import Table

# Of a file, in bytes; and the rows that a table has, fewer where all of them would be too long.
MOST_BYTES = 300_000
ROWS = (200, 50, 10, 3)


@dataclass(frozen=True, slots=True)
class Facts:
    """Block of a report: pairs of a name and a short value, shown prominently."""

    pairs: tuple[tuple[str, str], ...]
    block: ClassVar[str] = "facts"


@dataclass(frozen=True, slots=True)
class Text:
    """Block of a report: a paragraph; `kind` is "lead", "note" or ""."""

    text: str
    kind: str = ""
    block: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class Sentences:
    """Block of a report: a list of sentences; `kind` "limits" marks what does not hold."""

    texts: tuple[str, ...]
    kind: str = ""
    block: ClassVar[str] = "sentences"


@dataclass(frozen=True, slots=True)
class Code:
    """Block of a report: a command to copy."""

    text: str
    block: ClassVar[str] = "code"


Block = Table | Facts | Text | Sentences | Code | Chart


@dataclass(frozen=True, slots=True)
class Section:
    """Section of a report: a heading and its blocks."""

    id: str
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Content of an HTML report: title, a sentence on how the run ended, facts and sections.

    `state`: "good", "bad" or "". `meaning`: a sentence on what epsilon means here; "" where nothing was
    released.
    """

    title: str
    conclusion: str
    state: str
    facts: Facts
    sections: tuple[Section, ...]
    footer: str = ""
    meaning: str = ""


def section(id: str, heading: str, blocks: Iterable[Block | None]) -> list[Section]:
    """Return a list with one section of a report; an empty list if it would have no blocks."""
    retained = tuple(block for block in blocks if block is not None)
    return [Section(id, heading, retained)] if retained else []


def render(report: Report) -> str:
    """Return a report as one HTML page; tables, then sections are cut while it has MOST_BYTES or more."""
    template = environment().get_template("report.html")
    text = ""
    for most in ROWS:
        text = template.render(report=report, sections=cut_tables(report.sections, most))
        if len(text.encode()) < MOST_BYTES:
            return text
    # Many long texts: sections are left out from the end, which say less of the result.
    for count in range(len(report.sections) - 1, -1, -1):
        note = Text("Sections are missing here: the file would be longer than 300 kB.", "note")
        shown = (*cut_tables(report.sections[:count], ROWS[-1]), Section("missing", "Left out", (note,)))
        text = template.render(report=report, sections=shown)
        if len(text.encode()) < MOST_BYTES:
            break
    return text


def write(report: Report, path: Path, *, own: bool = False) -> None:
    """Write a report as an HTML file, readable by its owner alone if `own`; LocalError on failure."""
    if own:
        with suppress(OSError):
            path.touch(mode=0o600)
            path.chmod(0o600)
    write_file(path, render(report).encode(), "the report")


def cut_tables(sections: Sequence[Section], most: int) -> tuple[Section, ...]:
    """Return sections of a report with tables cut to `most` rows."""
    return tuple(replace(one, blocks=tuple(_first(block, most) for block in one.blocks)) for one in sections)


def _first(block: Block, most: int) -> Block:
    """Return a block of a report with its table cut to `most` rows."""
    if isinstance(block, Lines | Intervals):
        return replace(block, table=block.table.first(most))
    return block.first(most) if isinstance(block, Table) else block
