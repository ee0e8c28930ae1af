"""Parts of documents: their blocks and text, the fields that the reference lists below a heading."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = "Fields of several commands"
# A fenced block: the words after the fence, and its text.
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def fields_below(page: str, heading: str) -> list[str]:
    """Return the names in code that begin rows of tables and items of lists below a heading of a page.

    A default may stand in brackets after a name.

    The section ends at the next heading of the same level or a higher one. Raises ValueError without it.
    """
    text = (ROOT / page).read_text("utf-8")
    result = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    if result is None:
        raise ValueError(f"{page} has no heading {heading!r}")
    section = re.split(rf"^#{{1,{len(result[1])}}} ", text[result.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    cells = re.findall(
        r"^(?:\| ([^|]*`[^|]*) \||- (`[^`\n]+`(?:, `[^`\n]+`)*)(?: \(.*?\))?:)", section, re.MULTILINE
    )
    return [code for cell in cells for code in re.findall(r"`([^`\n]+)`", "".join(cell))]


def assert_documented(page: str, heading: str, fields: Iterable[str]) -> None:
    """Fail unless the table has these fields in this order, but for those that several commands share."""
    own, shared = fields_below(page, heading), set(fields_below(page, SHARED))
    assert own == [field for field in fields if field in own or field not in shared]
