"""`smpc-dp roster`: print the members in a session file, or assemble it from what members have sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import typer
from rich.table import Column, Table

from smpc_dp.console.output import console, print_as
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.identity.roster import Role
from smpc_dp.identity.words import entry_words, words_of
from smpc_dp.session.planned import SessionPlan, session_plan, tolerance_lines, total_notes
from smpc_dp.session.session_file import load_session
from smpc_dp.session.terms import assembled, write_new
from smpc_dp.session.tolerance import Tolerance, tolerances


class PrintedEntry(TypedDict):
    """JSON output: an entry of the roster (name, role, key, address), as in a session file."""

    name: str
    role: Role
    address: NotRequired[str]
    public_key: str
    certificate: str
    checkpoint_key: NotRequired[str]


class PrintedRoster(TypedDict):
    """JSON output: a checked session file, with its members, digests, words and plan."""

    session_digest: str
    session_words: str
    roster_digest: str
    entry_words: dict[str, str]
    tolerates: list[Tolerance]
    plan: SessionPlan | None
    protocol: str
    version: int
    parameters: dict[str, Any]
    roster: list[PrintedEntry]


def roster(
    session: Annotated[Path, typer.Argument(help="The session file, or with ENTRIES the terms.")],
    entries: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of members' roster entries, in the order that the roster is to have."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="With ENTRIES: the session file to write; never over an existing file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a session file, or assemble it, and print who takes part.

    Also prints the digests of session and roster, which participants compare, also as words to read aloud,
    how many losses and corrupt parties a request tolerates, what it will be charged, and the standard error
    of each answer.
    """
    if entries:
        if out is None:
            raise ConfigError.at(
                "--out", "is needed with ENTRIES: the session file to write", ConfigCheck.MISSING
            )
        write_new(out, assembled(session, entries))
        session = out
    elif out is not None:
        raise ConfigError.at("--out", "is for ENTRIES: there is nothing to write", ConfigCheck.UNSUPPORTED)
    loaded = load_session(session)
    plan = session_plan(loaded)
    words = {member.name: entry_words(member) for member in loaded.roster}
    if as_json:
        print_as(
            "roster",
            {
                "session_digest": loaded.digest.hex(),
                "session_words": words_of(loaded.digest),
                "roster_digest": loaded.roster.digest.hex(),
                "entry_words": words,
                "tolerates": tolerances(loaded),
                "plan": plan,
                **loaded.canonical(),
            },
        )
        return
    table = Table("name", "role", "address", Column("words of the entry", overflow="fold"))
    for member in loaded.roster:
        table.add_row(member.name, member.role, member.address or "", words[member.name])
    shown = console()
    shown.print(table)
    shown.print(f"session digest {loaded.digest.hex()}")
    shown.print(f"session words  {words_of(loaded.digest)}")
    shown.print(f"roster digest  {loaded.roster.digest.hex()}")
    for line in tolerance_lines(loaded):
        shown.print(line)
    if plan is not None:
        shown.print(str(plan))
        return
    for note in total_notes(loaded):
        shown.print(note)
