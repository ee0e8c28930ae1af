"""Write the tables of docs/reference from settings and errors, and those of specifications from the states.

In session-file.md a comment `<!-- settings: MODULE.CLASS without KEY KEY -->` stands before each table, which
ends at the next blank line; `own` in the place of `without ...` leaves out the keys of the class's bases.
Rows whose first cell names several keys are kept: they say what tables share.
In docs/reference/errors.md a comment `<!-- checks: CLASS -->` stands before the table of an enum of
smpc_dp.errors, which ends at a comment `<!-- end -->`.
In docs/reference/commands.md the tables of options stand between a comment `<!-- options: MODULE.APP -->` and
`<!-- end -->`.
In protocols/*/*.md a comment `<!-- states: MODULE.ROLE -->` stands before the table and the diagram of a
role's states, which end at a comment `<!-- end -->`.
docs/performance.md has the results of benchmarks/.
`python -m smpc_dp_lab.reference` writes the files anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import typer

from smpc_dp import errors
from smpc_dp.protocols.engine.table import markdown
from smpc_dp.settings import rows
from smpc_dp_lab.bench.page import load_results
from smpc_dp_lab.bench.page import markdown as performance

PAGE = Path("docs") / "reference" / "session-file.md"
HEAD = "| key | type | range and meaning | default |\n|---|---|---|---|\n"
_TABLE = re.compile(
    r"(<!-- settings: ([\w.]+)\.(\w+)(?: without ([\w ]+)| (own))? -->\n)(.*?)(?=\n\n)", re.DOTALL
)
ERRORS = Path("docs") / "reference" / "errors.md"
_CHECKS = re.compile(r"(<!-- checks: (\w+) -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
COMMANDS = Path("docs") / "reference" / "commands.md"
_OPTIONS = re.compile(r"(<!-- options: ([\w.]+)\.(\w+) -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
PERFORMANCE, BENCHMARKS = Path("docs") / "performance.md", Path("benchmarks")
_COMMON = ("as_json", "install_completion", "show_completion")
_STATES = re.compile(r"(<!-- states: ([\w.]+)\.(\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_SHARED = re.compile(r"^\| `[^|]*`, `.*$", re.MULTILINE)


def rendered(text: str) -> str:
    """Return the page with every marked table rewritten."""

    def table(match: re.Match[str]) -> str:
        marker, module, name, without, own, old = match.groups()
        settings = getattr(import_module(module), name)
        left_out = [field for base in settings.__bases__ for field in base.__struct_fields__] if own else []
        shared = "".join(f"\n{row}" for row in _SHARED.findall(old))
        return f"{marker}{HEAD}{rows(settings, left_out or (without or '').split())}{shared}"

    return _TABLE.sub(table, text)


def listed(text: str) -> str:
    """Return the page of errors with every marked list rewritten."""

    def table(match: re.Match[str]) -> str:
        members = getattr(errors, match[2])
        lines = "\n".join(f"| `{member.value}` | `{member.name}` | {member.meaning} |" for member in members)
        return f"{match[1]}| code | name | what was found |\n|---|---|---|\n{lines}"

    return _CHECKS.sub(table, text)


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and command of each command of this package that is not hidden."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {word}".strip())
    if hasattr(command, "commands") or command.hidden or command.callback is None:
        return
    if command.callback.__module__.split(".")[0] == "smpc_dp":
        yield name, command


def _choices(kind: Any) -> str:
    """Return the values of a literal type, of alternatives or elements too."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if isinstance(kind, UnionType) or get_origin(kind) is list:
        return next((text for inner in get_args(kind) if (text := _choices(inner))), "")
    return ""


def _option(parameter: Any) -> str:
    """Return the row of an option or an argument."""
    names = parameter.opts if parameter.param_type_name == "option" else [parameter.name.upper()]
    name = ", ".join(f"`{option}`" for option in (*names, *parameter.secondary_opts))
    default = "required" if parameter.required else parameter.default
    if parameter.show_default not in (True, False, None):
        default = parameter.show_default
    is_given = isinstance(default, str | int | float) and not isinstance(default, bool)
    shown = f"{default}" if is_given else ""
    meaning = (parameter.help or "").strip().replace("|", "\\|")
    if choices := _choices(parameter.type_descriptor.annotation):
        meaning = f"{meaning} One of {choices}."
    return f"| {name} | {shown} | {meaning} |"


def optioned(text: str) -> str:
    """Return the page of commands with the tables of options written anew."""

    def tables(match: re.Match[str]) -> str:
        sections = []
        for name, command in _commands(typer.main.get_command(getattr(import_module(match[2]), match[3]))):
            parameters = [
                parameter
                for parameter in command.params
                if parameter.name not in _COMMON and not getattr(parameter, "hidden", False)
            ]
            if parameters:
                head = f"### Options of {name}\n\n| option | default | meaning |\n|---|---|---|"
                sections.append("\n".join((head, *map(_option, parameters))))
        return match[1] + "\n\n".join(sections)

    return _OPTIONS.sub(tables, text)


def specified(text: str) -> str:
    """Return a specification with every marked table of states rewritten."""
    return _STATES.sub(
        lambda match: f"{match[1]}{markdown(getattr(import_module(match[2]), match[3]))}\n", text
    )


if __name__ == "__main__":
    PERFORMANCE.write_text(performance(load_results(BENCHMARKS)), "utf-8")
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
    ERRORS.write_text(listed(ERRORS.read_text("utf-8")), "utf-8")
    COMMANDS.write_text(optioned(COMMANDS.read_text("utf-8")), "utf-8")
    for page in Path("protocols").glob("*/*.md"):
        page.write_text(specified(page.read_text("utf-8")), "utf-8")
