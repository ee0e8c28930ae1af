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
    """Pairs of a name and a short value that stand out."""

    pairs: tuple[tuple[str, str], ...]
    block: ClassVar[str] = "facts"


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `kind`: "lead", "note" or ""."""

    text: str
    kind: str = ""
    block: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class Sentences:
    """A list of sentences; `kind`: "limits" for what does not hold, or ""."""

    texts: tuple[str, ...]
    kind: str = ""
    block: ClassVar[str] = "sentences"


@dataclass(frozen=True, slots=True)
class Code:
    """A command to copy."""

    text: str
    block: ClassVar[str] = "code"


Block = Table | Facts | Text | Sentences | Code | Chart


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report with a heading."""

    id: str
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its title, a sentence that says how it ended (`state`: good, bad or ""), facts, sections."""

    title: str
    conclusion: str
    state: str
    facts: Facts
    sections: tuple[Section, ...]
    footer: str = ""


def section(id: str, heading: str, blocks: Iterable[Block | None]) -> list[Section]:
    """Return a section in a list, which is empty without blocks."""
    retained = tuple(block for block in blocks if block is not None)
    return [Section(id, heading, retained)] if retained else []


def render(report: Report) -> str:
    """Return the HTML of a report, below MOST_BYTES: tables show fewer rows where it would be longer."""
    template = environment().get_template("report.html")
    text = ""
    for most in ROWS:
        text = template.render(report=report, sections=_cut(report.sections, most))
        if len(text.encode()) < MOST_BYTES:
            return text
    # Many long texts: sections are left out from the end, which say less of the result.
    for count in range(len(report.sections) - 1, -1, -1):
        note = Text("Sections are missing here: the file would be longer than 300 kB.", "note")
        shown = (*_cut(report.sections[:count], ROWS[-1]), Section("missing", "Left out", (note,)))
        text = template.render(report=report, sections=shown)
        if len(text.encode()) < MOST_BYTES:
            break
    return text


def write(report: Report, path: Path, *, own: bool = False) -> None:
    """Write a report to a file, which is `own`: for nobody else to read; raise LocalError."""
    if own:
        with suppress(OSError):
            path.touch(mode=0o600)
            path.chmod(0o600)
    write_file(path, render(report).encode(), "the report")


def _cut(sections: Sequence[Section], most: int) -> tuple[Section, ...]:
    """Return sections whose tables have at most so many rows, those behind charts too."""
    return tuple(replace(one, blocks=tuple(_first(block, most) for block in one.blocks)) for one in sections)


def _first(block: Block, most: int) -> Block:
    if isinstance(block, Lines | Intervals):
        return replace(block, table=block.table.first(most))
    return block.first(most) if isinstance(block, Table) else block
