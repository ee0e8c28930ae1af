"""The commands of `smpc-dp`: each is loaded when it is called, so that the others cost nothing.

Other packages add commands through the entry-point group `smpc_dp.commands`: the name is the command's, the
value a function that Typer can call, or a `typer.Typer` with commands of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from smpc_dp.extensions import Group, load, registered

# What `smpc-dp --help` lists, in this order. `smpc_dp.cli.NAME` has `app`, or the function NAME.
COMMANDS = {
    "demo": "Show the main job on real data, on this machine.",
    "keygen": "Make a new identity and print its roster entry.",
    "roster": "Check a session file and print who takes part.",
    "run": "Run a whole session on this machine.",
    "party": "Run one member of a session on this host.",
    "statistics": "Take part in statistics of records, as one party.",
    "audit": "Check the log of a verifiable run or of a pairwise statistic, or a certificate of cheating.",
    "plan": "Plan a run before anything is sent.",
    "ledger": "A party's privacy ledger.",
    "simulate": "Run many parties in one process.",
    "circuits": "List, export and check the published circuits.",
    "board": "The bulletin board of verifiable runs.",
}


class Commands(MutableMapping[str, Any]):
    """The commands by name, each loaded when it is looked up."""

    @functools.cached_property
    def _added(self) -> Mapping[str, Any]:
        """The entry points of other packages' commands, which no command of this package needs."""
        return {entry.name: entry for entry in registered(Group.COMMANDS) if entry.name not in COMMANDS}

    def __getitem__(self, name: str) -> Any:
        return _command(name, self._target(name))

    def _target(self, name: str) -> Any:
        """Import the function or Typer app of a command."""
        if name in COMMANDS:
            module = import_module(f"smpc_dp.cli.{name}")
            return getattr(module, "app", None) or getattr(module, name)
        return load(Group.COMMANDS, self._added[name])

    def help_of(self, name: str) -> str:
        """Return the line of help of a command; of this package's without loading the command."""
        return COMMANDS.get(name) or str(self[name].get_short_help_str(100))

    def __iter__(self) -> Iterator[str]:
        yield from COMMANDS
        yield from self._added

    def __len__(self) -> int:
        return len(COMMANDS) + len(self._added)

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("commands are added through entry points")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands cannot be removed")


class CommandGroup(TyperGroup):
    """The command `smpc-dp` itself."""

    def __init__(self, **attributes: Any) -> None:
        attributes["commands"] = {}
        super().__init__(**attributes)
        self._lazy = Commands()
        self.commands = self._lazy

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` included."""
        return _with_plain_values(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - given by Typer
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy.help_of(name)) for name in self._lazy])


class Command(TyperCommand):
    """A command of one function."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` included."""
        return _with_plain_values(super().get_params(ctx))


# Made once also where one process runs many commands: typer reads the hints of all options.
@functools.cache
def _command(name: str, target: Any) -> Any:
    """Return the command of a function, or of a `typer.Typer`."""
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(target, typer.Typer):
        parent.add_typer(target, name=name)
    else:
        parent.command(name, cls=Command)(target)
    return get_group(parent).commands[name]


def _with_plain_values(parameters: Sequence[Any]) -> list[Any]:
    """Let parameters take texts, paths and small numbers as they are, and Typer convert the rest.

    It does so by pydantic, which it loads for options that are not given too: a fifth of a command's start.
    Versions of it that convert by themselves are left alone.
    """
    for parameter in parameters:
        if hasattr(parameter, "type_descriptor") and "process_value" not in vars(parameter):
            parameter.process_value = functools.partial(_processed, parameter, parameter.process_value)
    return [*parameters]


def _processed(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Return the value of a parameter, by Typer's `process` if it is not plain."""
    several = parameter.nargs != 1 or getattr(parameter, "multiple", False)
    converted: Any
    if value is None and not parameter.required:
        converted = () if several else None
    elif type(value) is str and not several and (plain := _plain_value(parameter, value)) is not None:
        converted = plain
    else:
        return process(context, value)
    return converted if parameter.callback is None else parameter.callback(context, parameter, converted)


def _plain_value(parameter: Any, text: str) -> str | int | Path | None:
    """Return a text as what a parameter takes, or None for what Typer converts or refuses."""
    info, kind = parameter.type_descriptor.parameter_info, parameter.type_descriptor.annotation
    if info.parser is not None:
        return None
    if kind is str or (get_origin(kind) is Literal and text in get_args(kind)):
        return text
    if kind is int:
        # As int() and pydantic read alike.
        is_number = len(text) < 10 and text.isascii() and text.isdigit() and info.max is None
        return int(text) if is_number and int(text) >= (info.min or 0) else None
    if kind is Path:
        checks = (info.exists, info.writable, info.resolve_path, info.allow_dash, info.path_type)
        takes_any = info.file_okay and info.dir_okay and info.readable and not any(checks)
        return Path(text) if takes_any and (not os.path.exists(text) or os.access(text, os.R_OK)) else None
    return None
