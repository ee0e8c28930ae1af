"""The commands of `smpc-dp`: each is loaded when it is called, so that the others cost nothing.

A command of an absent capability is unknown. Other packages add commands through the entry-point group
`smpc_dp.commands`: the name is the command's, the value a function that Typer can call, or a `typer.Typer`
with commands of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from smpc_dp.extensions import CAPABILITIES, Group, imported, load, registered


class Listed(NamedTuple):
    """Entry of the list of commands: a command's module, its capability and its line of help.

    Attributes:
        help: its line in the list of commands.
        module: has `app`, a `typer.Typer`, or a function with the name of the command.
    """

    help: str
    module: str

    @property
    def capability(self) -> str:
        """The name of the capability package that has the command; "" for the core."""
        folder, _, below = self.module.partition(f"{CAPABILITIES}.")
        return "" if folder else below.partition(".")[0]

    @property
    def is_there(self) -> bool:
        """Whether the capability that has the command is installed."""
        return not self.capability or imported(f"{CAPABILITIES}.{self.capability}") is not None


# What `smpc-dp --help` lists, in this order.
COMMANDS: Mapping[str, Listed] = {
    "demo": Listed("Show the main job on real data, on this machine.", "smpc_dp.cli.demo"),
    "init": Listed("Write the terms of a session, or an example that runs.", "smpc_dp.cli.init"),
    "keygen": Listed("Make a new identity and print its roster entry.", "smpc_dp.cli.keygen"),
    "roster": Listed("Check a session file, or assemble it, and print who takes part.", "smpc_dp.cli.roster"),
    "check": Listed("Check files, folders and connections of one member.", "smpc_dp.cli.check"),
    "run": Listed("Run a whole session on this machine.", "smpc_dp.cli.run"),
    "party": Listed("Run one member of a session on this host.", "smpc_dp.cli.party"),
    "serve": Listed("Serve several sessions in one process, until it is stopped.", "smpc_dp.cli.serve"),
    "statistics": Listed("Take part in statistics of records, as one party.", "smpc_dp.cli.statistics"),
    "audit": Listed(
        "Check the log of a verifiable run or of a pairwise statistic, a party's result, or a certificate.",
        "smpc_dp.cli.audit",
    ),
    "plan": Listed("Plan a run before anything is sent.", "smpc_dp.cli.plan"),
    "ledger": Listed("A party's privacy ledger.", "smpc_dp.cli.ledger"),
    "simulate": Listed("Run many parties in one process.", "smpc_dp.cli.simulate"),
    "circuits": Listed(
        "List, export and check the published circuits.",
        "smpc_dp.capabilities.pairs.commands.circuits",
    ),
    "schema": Listed(
        "Print the JSON Schema of what --json prints, or the keys of a learner.", "smpc_dp.cli.schema"
    ),
    "board": Listed("The bulletin board of verifiable runs.", "smpc_dp.cli.board"),
}


class Commands(MutableMapping[str, Any]):
    """Read-only mapping of a group's commands by name, each imported when it is looked up.

    Args:
        own: those of this package, in their order; here are those whose capability is there.
        are_all: whether other packages add none.
    """

    def __init__(self, own: Mapping[str, Listed] = COMMANDS, *, are_all: bool = False) -> None:
        self._own = own
        self._are_all = are_all

    @functools.cached_property
    def _added(self) -> Mapping[str, Any]:
        """The commands that other packages add, by name, as entry points."""
        entries = () if self._are_all else registered(Group.COMMANDS)
        return {entry.name: entry for entry in entries if entry.name not in self._own}

    def __getitem__(self, name: str) -> Any:
        return _click_command(name, self._target(name))

    def _target(self, name: str) -> Any:
        """Import a command's function or Typer app; KeyError if it is unknown or of an absent capability."""
        if name not in self._own:
            return load(Group.COMMANDS, self._added[name])
        listed = self._own[name]
        if not listed.is_there:
            raise KeyError(name)
        module = import_module(listed.module)
        return getattr(module, "app", None) or getattr(module, name.replace("-", "_"))

    def help_of(self, name: str) -> str:
        """Return a command's line of help; only a command of another package is imported for it."""
        return self._own[name].help if name in self._own else str(self[name].get_short_help_str(100))

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, listed in self._own.items() if listed.is_there)
        yield from self._added

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("commands are added through entry points")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands cannot be removed")


class CommandGroup(TyperGroup):
    """Typer group that imports a command only when it is called; by default that of `smpc-dp`.

    Attributes:
        own, are_all: as of `Commands`.
        are_cut: whether lines of help end where the list does; else they go on below.
    """

    own: ClassVar[Mapping[str, Listed]] = COMMANDS
    are_all: ClassVar[bool] = False
    are_cut: ClassVar[bool] = False

    def __init__(self, **attributes: Any) -> None:
        attributes["commands"] = {}
        super().__init__(**attributes)
        self._lazy = Commands(self.own, are_all=self.are_all)
        self.commands = self._lazy

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - given by Typer
        """Write the list of commands with their lines of help into the help text."""
        lines = {name: self._lazy.help_of(name) for name in self._lazy}
        if self.are_cut:
            # As Typer cuts them: the margins take 6 columns.
            room = formatter.width - 6 - max(map(len, lines))
            lines = {
                name: TyperCommand(name, help=line).get_short_help_str(room) for name, line in lines.items()
            }
        with formatter.section("Commands"):
            formatter.write_dl([*lines.items()])


# Made once also where one process runs many commands: typer reads the hints of all options.
@functools.cache
def _click_command(name: str, target: Any) -> Any:
    """Return the click command `name` made from a function or from a `typer.Typer` app."""
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(target, typer.Typer):
        parent.add_typer(target, name=name)
    else:
        parent.command(name)(target)
    return get_group(parent).commands[name]
