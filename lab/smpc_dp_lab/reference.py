"""Write the lists of docs/reference from settings and errors, and those of specifications from the states.

In session-file.md a comment `<!-- settings: MODULE.CLASS without KEY KEY -->` stands before each list, which
ends at the next blank line; `own` in the place of `without ...` leaves out the keys of the class's bases.
Items of several keys are kept. A comment `<!-- common -->` stands before the items that several lists of
learners have, which these lists only name; of two with one name it says whose they are.
In docs/reference/errors.md a comment `<!-- checks: CLASS -->` stands before the list of an enum of
smpc_dp.errors, which ends at a comment `<!-- end -->`.
In docs/reference/commands.md the lists of options stand between a comment `<!-- options: MODULE.APP -->` and
`<!-- end -->`.
In protocols/*/*.md a comment `<!-- states: MODULE.ROLE -->` stands before the table and the diagram of a
role's states, which end at a comment `<!-- end -->`; ` from STATE` behind the role leaves out those before.
docs/performance.md with its plots and benchmarks/tables.md have the stored results of benchmarks,
docs/scale.md what follows for many machines.
`python -m smpc_dp_lab.reference` writes the files anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import typer

from smpc_dp import errors
from smpc_dp.capabilities.learn.registry import LEARNERS
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
ERRORS = Path("docs") / "reference" / "errors.md"
_CHECKS = re.compile(r"(<!-- checks: (\w+) -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
COMMANDS = Path("docs") / "reference" / "commands.md"
_OPTIONS = re.compile(r"(<!-- options: ([\w.]+)\.(\w+) -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
BENCHMARKS = Path("benchmarks")
_COMMON = ("as_json", "install_completion", "show_completion")
_STATES = re.compile(r"(<!-- states: ([\w.]+)\.(\w+)(?: from (\w+))? -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD = "| state | event | next state | sends | what can no longer happen |\n|---|---|---|---|---|"
_COMMON_TABLE = re.compile(r"(<!-- common -->\n).*?(?=\n\n)", re.DOTALL)
_SHARED = re.compile(r"^- `[^`]*`, `.*$", re.MULTILINE)


def _items(match: re.Match[str]) -> list[str]:
    """Return the items of the settings that a comment names."""
    _, module, name, without, own, _ = match.groups()
    settings = getattr(import_module(module), name)
    left_out = [field for base in settings.__bases__ for field in base.__struct_fields__] if own else []
    return items(settings, left_out or (without or "").split())


def _learners(match: re.Match[str]) -> list[str]:
    """Return the names of the learners whose settings have a table."""
    settings = getattr(import_module(match[2]), match[3])
    names = [name for name, learner in LEARNERS.items() if issubclass(learner, settings)]
    # The keys of sgd are those of block-gossip but for the group, and stand in one list.
    return ["sgd", *names] if names == ["block-gossip"] else names


def _named(lines: list[str]) -> list[str]:
    """Return the line that names the items that stand elsewhere, if there are any."""
    return [f"- Also {', '.join(re.findall(r'^- (`[^`]*`)', line)[0] for line in lines)}."] if lines else []


def rendered(text: str) -> str:
    """Return the page with every marked list of settings rewritten."""
    tables = [match for match in _TABLE.finditer(text) if _learners(match)]
    counts = Counter(row for match in tables for row in _items(match))
    common: dict[str, list[str]] = {row: [] for row, count in counts.items() if count > 1}
    for match in tables:
        for row in common.keys() & {*_items(match)}:
            common[row] += [f"`{name}`" for name in _learners(match)]

    def table(match: re.Match[str]) -> str:
        shared = _SHARED.findall(match[6])
        rows = _items(match)
        own = [row for row in rows if row not in common]
        elsewhere = [row for row in rows if row in common]
        return match[1] + "\n".join((*own, *shared, *_named(elsewhere)))

    def shared(match: re.Match[str]) -> str:
        keys = Counter(item.split()[1].strip(":") for item in common)
        return match[1] + "\n".join(
            item if keys[item.split()[1].strip(":")] == 1 else f"{item} Of {', '.join(names)}."
            for item, names in sorted(common.items())
        )

    return _COMMON_TABLE.sub(shared, _TABLE.sub(table, text))


def listed(text: str) -> str:
    """Return the page of errors with every marked list rewritten."""

    def items_of(match: re.Match[str]) -> str:
        members = getattr(errors, match[2])
        return match[1] + "\n".join(f"- `{member.value}`: {member.meaning}" for member in members)

    return _CHECKS.sub(items_of, text)


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and command of each command of this package that is not hidden."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {word}".strip())
    if hasattr(command, "commands") or command.hidden or command.callback is None:
        return
    if command.callback.__module__.split(".")[0] == "smpc_dp":
        yield name, command


def _values(kind: Any) -> str:
    """Return the values of a literal type, else its kind: of the first alternative, of elements with dots."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, UnionType):
        return _values(get_args(kind)[0])
    if get_origin(kind) is list:
        return f"{_values(get_args(kind)[0])}..."
    return str(kind.__name__).upper()


def _option(parameter: Any) -> str:
    """Return an option or an argument with its values and its default, in bold letters if it is required."""
    values = _values(parameter.type_descriptor.annotation)
    if parameter.param_type_name == "option":
        text = "/".join((*parameter.opts, *parameter.secondary_opts))
        text += "" if parameter.is_flag else f"={values}"
    else:
        text = parameter.metavar or parameter.name.upper()
        text += f": {values}" if "|" in values else ""
    default = parameter.default
    if parameter.show_default not in (True, False, None):
        default = parameter.show_default
    if parameter.required:
        return f"**`{text}`**"
    is_given = isinstance(default, str | int | float) and not isinstance(default, bool)
    return f"`{text}` ({default})" if is_given else f"`{text}`"


def optioned(text: str) -> str:
    """Return the page of commands with the lists of options written anew; `--help` has their meaning."""

    def lists(match: re.Match[str]) -> str:
        app = typer.main.get_command(getattr(import_module(match[2]), match[3]))
        options = {
            name: [
                _option(parameter)
                for parameter in command.params
                if parameter.name not in _COMMON and not getattr(parameter, "hidden", False)
            ]
            for name, command in _commands(app)
        }
        return match[1] + "\n".join(
            f"- `{name}`: {', '.join(texts)}" for name, texts in options.items() if texts
        )

    return _OPTIONS.sub(lists, text)


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
    """Return steps as text."""
    return ", ".join(f"`{step}`" for step in steps) or "-"


def specified(text: str) -> str:
    """Return a specification with every marked table of states rewritten."""
    return _STATES.sub(
        lambda match: f"{match[1]}{_states(getattr(import_module(match[2]), match[3]), match[4])}\n", text
    )


def measured(root: Path) -> dict[Path, str]:
    """Return the pages and plots of stored results by their paths below a checkout."""
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
    ERRORS.write_text(listed(ERRORS.read_text("utf-8")), "utf-8")
    COMMANDS.write_text(optioned(COMMANDS.read_text("utf-8")), "utf-8")
    for page in Path("protocols").glob("*/*.md"):
        page.write_text(specified(page.read_text("utf-8")), "utf-8")
