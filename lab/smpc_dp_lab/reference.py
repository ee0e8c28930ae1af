"""Write the tables of docs/session-file.md from the settings that the checks use.

A comment `<!-- settings: MODULE.CLASS without KEY KEY -->` stands before each table, which ends at the next
blank line. Rows whose first cell names several keys are kept: they say what tables share.
`python -m smpc_dp_lab.reference` writes the file anew.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from smpc_dp.settings import rows

PAGE = Path("docs") / "session-file.md"
HEAD = "| key | type | range and meaning | default |\n|---|---|---|---|\n"
_TABLE = re.compile(r"(<!-- settings: ([\w.]+)\.(\w+)(?: without ([\w ]+))? -->\n)(.*?)(?=\n\n)", re.DOTALL)
_SHARED = re.compile(r"^\| `[^|]*`, `.*$", re.MULTILINE)


def rendered(text: str) -> str:
    """Return the page with every marked table written anew."""

    def table(match: re.Match[str]) -> str:
        marker, module, name, without, old = match.groups()
        settings = getattr(import_module(module), name)
        shared = "".join(f"\n{row}" for row in _SHARED.findall(old))
        return f"{marker}{HEAD}{rows(settings, (without or '').split())}{shared}"

    return _TABLE.sub(table, text)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
