"""Write the tables of settings in docs/reference/, and the tables of states in the specifications.

In session-file.md a comment `<!-- settings: MODULE.CLASS without KEY KEY -->` stands before each table, which
ends at the next blank line; `own` in the place of `without ...` leaves out the keys of the class's bases.
Rows whose first cell names several keys are kept: they say what tables share.
In protocols/*/*.md a comment `<!-- states: MODULE.ROLE -->` stands before the table and the diagram of a
role's states, which end at a comment `<!-- end -->`.
`python -m smpc_dp_lab.reference` writes the files anew.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from smpc_dp.protocols.engine.table import markdown
from smpc_dp.settings import rows

PAGE = Path("docs") / "reference" / "session-file.md"
HEAD = "| key | type | range and meaning | default |\n|---|---|---|---|\n"
_TABLE = re.compile(
    r"(<!-- settings: ([\w.]+)\.(\w+)(?: without ([\w ]+)| (own))? -->\n)(.*?)(?=\n\n)", re.DOTALL
)
_STATES = re.compile(r"(<!-- states: ([\w.]+)\.(\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_SHARED = re.compile(r"^\| `[^|]*`, `.*$", re.MULTILINE)


def rendered(text: str) -> str:
    """Return the page with every marked table written anew."""

    def table(match: re.Match[str]) -> str:
        marker, module, name, without, own, old = match.groups()
        settings = getattr(import_module(module), name)
        left_out = [field for base in settings.__bases__ for field in base.__struct_fields__] if own else []
        shared = "".join(f"\n{row}" for row in _SHARED.findall(old))
        return f"{marker}{HEAD}{rows(settings, left_out or (without or '').split())}{shared}"

    return _TABLE.sub(table, text)


def specified(text: str) -> str:
    """Return a specification with every marked table of states written anew."""
    return _STATES.sub(
        lambda match: f"{match[1]}{markdown(getattr(import_module(match[2]), match[3]))}\n", text
    )


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
    for page in Path("protocols").glob("*/*.md"):
        page.write_text(specified(page.read_text("utf-8")), "utf-8")
