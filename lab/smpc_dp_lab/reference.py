"""Write the lists of docs/reference from settings, and those of specifications from the states.

In session-file.md a comment `<!-- settings: MODULE.CLASS without KEY KEY -->` stands before each list, which
ends at the next blank line; `own` in the place of `without ...` leaves out the keys of the class's bases.
Items of several keys are kept. For a comment `<!-- keys: MODULE.CLASS -->` docs/site/lists.py writes the
list, on the site alone.
In protocols/*/*.md a comment `<!-- states: MODULE.ROLE -->` stands before the table and the diagram of a
role's states, which end at a comment `<!-- end -->`; ` from STATE` behind the role leaves out those before.
docs/performance.md with its plots and benchmarks/tables.md have the stored results of benchmarks,
docs/scale.md what follows for many machines.
`python -m smpc_dp_lab.reference` writes the files anew.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from smpc_dp.engine import state_table
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.party import PartyRole
from smpc_dp.engine.peers import PeerRole
from smpc_dp.settings import items
from smpc_dp_lab.bench.page import all_figures, load_results
from smpc_dp_lab.bench.performance import performance, plots_of, stored
from smpc_dp_lab.bench.scale import markdown as scale

PAGE = Path("docs") / "reference" / "session-file.md"
_TABLE = re.compile(
    r"(<!-- settings: ([\w.]+)\.(\w+)(?: without ([\w ]+)| (own))? -->\n)(.*?)(?=\n\n)", re.DOTALL
)
BENCHMARKS = Path("benchmarks")
_STATES = re.compile(r"(<!-- states: ([\w.]+)\.(\w+)(?: from (\w+))? -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD = "| state | event | next state | sends | what can no longer happen |\n|---|---|---|---|---|"
_SHARED = re.compile(r"^- `[^`]*`, `.*$", re.MULTILINE)


def rendered(text: str) -> str:
    """Return a documentation page with each marked list of settings generated anew from its struct."""

    def table(match: re.Match[str]) -> str:
        head, module, name, without, own, before = match.groups()
        settings = getattr(import_module(module), name)
        left_out = [field for base in settings.__bases__ for field in base.__struct_fields__] if own else []
        lines = items(settings, left_out or (without or "").split())
        return head + "\n".join((*lines, *_SHARED.findall(before)))

    return _TABLE.sub(table, text)


def _states(role: PartyRole | CollectorRole | PeerRole, first: str | None = None) -> str:
    """Return the table and the diagram of a role's states in Markdown; from the state `first` on."""
    every = state_table.table(role)
    lines = every[[line.state for line in every].index(first or every[0].state) :]
    rows = [
        f"| {line.state} | {line.event} | {', '.join(line.next)} | {_steps(line.sends)} | {line.ends} |"
        for line in lines
    ]
    arrows = [
        f"    {line.state} --> {after}: {line.event.replace('`', '')}"
        for line in lines
        for after in line.next
    ]
    last = [after for after in lines[-1].next if after != lines[-1].state]
    diagram = [
        "stateDiagram-v2",
        f"    [*] --> {lines[0].state}",
        *arrows,
        *(f"    {s} --> [*]" for s in last),
    ]
    return "\n".join([_HEAD, *rows, "", "```mermaid", *diagram, "```"])


def _steps(steps: tuple[str, ...]) -> str:
    """Return step names as Markdown text, joined by commas; "-" if there are none."""
    return ", ".join(f"`{step}`" for step in steps) or "-"


def specified(text: str) -> str:
    """Return a specification's text with each marked table of states generated anew."""
    return _STATES.sub(
        lambda match: f"{match[1]}{_states(getattr(import_module(match[2]), match[3]), match[4])}\n", text
    )


def measured(root: Path) -> dict[Path, str]:
    """Return the pages and plots made from stored benchmark results, by path below a checkout."""
    results = load_results(root / BENCHMARKS)
    plots = {Path("docs") / name: plot.svg() for name, plot in plots_of(stored(results)).items()}
    pages = {
        Path("docs") / "performance.md": performance(results),
        Path("docs") / "scale.md": scale(results),
        BENCHMARKS / "tables.md": all_figures(results),
    }
    return pages | plots


if __name__ == "__main__":
    for path, text in measured(Path()).items():
        path.write_text(text, "utf-8")
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
    for page in Path("protocols").glob("*/*.md"):
        page.write_text(specified(page.read_text("utf-8")), "utf-8")
