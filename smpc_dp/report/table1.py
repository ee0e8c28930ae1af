"""The table of a study's groups as it is printed, from the estimates that it stands for.

A row of the table stands for each number, and for each category; a column for each group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

BRACKETS = (
    "In brackets: after a mean the standard deviation, after a number of rows its share of the group's rows."
)
NOISE = "± is the standard error of the noise; JSON and CSV have the intervals."
# Notes about sampling errors, which the table does not print, begin with this.
_OF_SAMPLING = "sampling error"
# Whose a note is that stands beside a mean, and is not about the mean.
_OF_VARIANCE = "of the variance"
_PART = re.compile(r"(mean|variance|missing)\((\w+)\)")

Json = Mapping[str, Any]


class Printed(NamedTuple):
    """A table as text: column headings, rows that begin with their heading, and notes below the table."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def printed(parts: Sequence[Json]) -> Printed:
    """Return the table of a study's groups as it is printed, from its estimates (JSON data)."""
    by = tuple(parts[0]["cell"])
    groups = list(dict.fromkeys(_group(one, by) for one in parts))
    rows: dict[tuple[str, ...], dict[tuple[str, ...], Json]] = {}
    for one in parts:
        rows.setdefault(_row(one, by), {})[_group(one, by)] = one
    totals = rows[("rows",)]
    numbers: dict[str, int] = {}
    lines = []
    for row, cells in rows.items():
        if row[0] == "variance":
            continue
        variances = rows[("variance", *row[1:])] if row[0] == "mean" else {}
        shown = [_cell(cells[each], variances.get(each), totals[each], numbers) for each in groups]
        lines.append((_heading(row), *shown))
    headings = (" x ".join(by), *(" x ".join(each) or "all" for each in groups))
    about = (BRACKETS, *([NOISE] if any(one["standard_error"] for one in parts) else []))
    return Printed(
        headings, tuple(lines), (*about, *(f"[{index}] {note}" for note, index in numbers.items()))
    )


def table_lines(text: str, parts: Sequence[Json]) -> list[str]:
    """Return a table in lines of text, its question first."""
    made = printed(parts)
    rows = [made.headings, *made.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [text, *(f"  {line}" for line in (*lines, *made.notes))]


def _group(one: Json, by: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of an estimate's cell in the columns `by`, which name its group."""
    return tuple(one["cell"][name] for name in by)


def _row(one: Json, by: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key of an estimate's table row: kind and column, or a category of a column, or ("rows",)."""
    if matched := _PART.match(one["name"]):
        return matched[1], matched[2]
    others = [("category", name, value) for name, value in one["cell"].items() if name not in by]
    return others[0] if others else ("rows",)


def _heading(row: tuple[str, ...]) -> str:
    """Return the first cell of a table row from the row's key, such as "mean of age"."""
    known = {"rows": "rows", "mean": "mean of {}", "missing": "{} missing", "category": "{} = {}"}
    return known[row[0]].format(*row[1:])


def _cell(one: Json, variance: Json | None, total: Json, numbers: dict[str, int]) -> str:
    """Return the text of a table cell: value, error, brackets, note numbers; put new notes in `numbers`."""
    is_count, error, brackets = variance is None, one["standard_error"], ""
    value = "-" if one["value"] is None else f"{one['value']:.0f}" if is_count else f"{one['value']:.4g}"
    if error and one["value"] is not None:
        value += f" ± {float(f'{error:.2g}'):g}"
    if variance is not None and variance["value"] is not None:
        brackets = f" ({math.sqrt(variance['value']):.4g})"
    elif is_count and one is not total and one["value"] is not None and total["value"]:
        brackets = f" ({min(one['value'] / total['value'], 1.0):.1%})"
    notes = [one["note"]] if _says(one) else []
    if variance is not None and _says(variance) and variance["note"] != one["note"]:
        notes.append(f"{_OF_VARIANCE}: {variance['note']}")
    return value + brackets + "".join(f" [{numbers.setdefault(note, len(numbers) + 1)}]" for note in notes)


def _says(one: Json) -> bool:
    """Tell whether an estimate has a note about a number that the table prints."""
    return bool(one["note"]) and not one["note"].startswith(_OF_SAMPLING)
