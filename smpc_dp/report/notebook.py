"""What notebooks show of a result: the sections of its report, without the report's styles."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from smpc_dp.report.document import Section, cut_tables
from smpc_dp.report.pages import environment
from smpc_dp.report.sections import evidence_section, limits_section, privacy_section

# Rows of a table in a notebook.
ROWS = 40
# Anchors are of one page, which may show many results of one process.
_NUMBERS = itertools.count(1)


def result_html(
    lines: Iterable[str],
    own: Sequence[Section],
    privacy: Mapping[str, Any],
    evidence: Mapping[str, Any] | None,
) -> str:
    """Return HTML of a result for notebooks: its lines, and sections on privacy and evidence to unfold."""
    receipt = privacy.get("receipt")
    charged = {} if receipt is None else {receipt["party"]: receipt}
    sections = [
        *own,
        *privacy_section(privacy, charged),
        *limits_section(privacy["not_protected"]),
        *evidence_section(evidence),
    ]
    return sections_html(lines, sections)


def sections_html(lines: Iterable[str], sections: Sequence[Section]) -> str:
    """Return HTML of lines and sections for notebooks; all sections but the first are folded."""
    template = environment().get_template("result.html")
    shown = cut_tables(sections, ROWS)
    return template.render(lines=tuple(lines), sections=shown, prefix=f"smpc-dp-{next(_NUMBERS)}-")
