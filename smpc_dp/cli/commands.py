"""The commands of `smpc-dp`: each is loaded when it is called, so that the others cost nothing.

Other packages add commands through the entry-point group `smpc_dp.commands`: the name is the command's, the
value a function that Typer can call, or a `typer.Typer` with commands of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
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

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - given by Typer
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy.help_of(name)) for name in self._lazy])


# Made once also where one process runs many commands: typer reads the hints of all options.
@functools.cache
def _command(name: str, target: Any) -> Any:
    """Return the command of a function, or of a `typer.Typer`."""
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(target, typer.Typer):
        parent.add_typer(target, name=name)
    else:
        parent.command(name)(target)
    return get_group(parent).commands[name]
