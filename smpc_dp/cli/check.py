"""`smpc-dp check`: a dry run of one member's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Column, Table

import smpc_dp
from smpc_dp.cli.connecting import CaFile, KeyFile, ListenOn
from smpc_dp.console.output import console, print_struct
from smpc_dp.session.check.host import HostOptions
from smpc_dp.session.check.lines import Line
from smpc_dp.session.check.member import check_member
from smpc_dp.web_settings import WebSettings

_STYLES = {"ok": "", "note": "yellow", "fix": "red"}


class PrintedCheck(msgspec.Struct, frozen=True):
    """JSON output: the checks of one member's files and connections; `ok` if there is nothing to fix."""

    member: str
    release: str
    ok: bool
    lines: tuple[Line, ...]


def check(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    name: Annotated[str, typer.Option("--as", help="Which member of the roster this host is.")],
    key: KeyFile = None,
    listen: ListenOn = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Party: its privacy ledger; nothing is charged.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder of this member's saved states, as of party.")
    ] = None,
    counter: Annotated[
        Path | None, typer.Option(help="Folder of the counter of --state, as of party.")
    ] = None,
    board: Annotated[
        Path | None,
        typer.Option(help="Aggregator: folder for logs; default board beside the session file."),
    ] = None,
    ca: CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check files, folders and connections of one member.

    Says what to do where something is wrong. Calls the aggregator, or whom else this member calls, and asks
    whether it would be welcome: it joins no request, charges nothing, and disturbs no process of the member.
    """
    options = HostOptions(key, listen, ledger, state, counter, board, None if ca is None else WebSettings(ca))
    lines = asyncio.run(check_member(session, name, options))
    faults = sum(line.state == "fix" for line in lines)
    if as_json:
        print_struct(PrintedCheck(name, smpc_dp.__version__, not faults, tuple(lines)))
    else:
        out = console()
        out.print(_table(lines))
        verdict = f"{faults} to fix" if faults else "nothing to fix"
        out.print(f"smpc-dp {smpc_dp.__version__}, {name}: {verdict}")
    raise typer.Exit(int(faults > 0))


def _table(lines: Sequence[Line]) -> Table:
    """Return the results of checks as a table to print, with skipped checks of a member in one row."""
    table = Table("check", "state", Column("result, and what to do", overflow="fold"))
    for (member, state), group in groupby(lines, lambda line: (line.member, line.state)):
        together = [*group]
        if state == "skipped":
            checks = ", ".join(line.check for line in together)
            table.add_row(member, state, f"{checks}: {together[0].text}")
            continue
        for line in together:
            row = (f"{member} {line.check}".strip(), state, f"{line.text}\n{line.todo}".strip())
            table.add_row(*row, style=_STYLES[state])
    return table
