"""`smpc-dp roster`: print the members in a session file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from smpc_dp.console.output import console, print_json
from smpc_dp.session.planned import session_plan, tolerance_lines, total_notes
from smpc_dp.session.session_file import load_session
from smpc_dp.session.tolerance import tolerances


def roster(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a session file and print who takes part.

    Also prints the digests of session and roster, which participants compare, how many losses and corrupt
    parties a request tolerates, what it will be charged, and the standard error of each answer.
    """
    loaded = load_session(session)
    plan = session_plan(loaded)
    if as_json:
        print_json(
            {
                "session_digest": loaded.digest.hex(),
                "roster_digest": loaded.roster.digest.hex(),
                "tolerates": [msgspec.to_builtins(one) for one in tolerances(loaded)],
                "plan": None if plan is None else plan.to_json(),
                **loaded.canonical(),
            }
        )
        return
    table = Table("name", "role", "address", "public key")
    for member in loaded.roster:
        table.add_row(member.name, member.role, member.address or "", member.public_key.hex())
    out = console()
    out.print(table)
    out.print(f"session digest {loaded.digest.hex()}")
    out.print(f"roster digest  {loaded.roster.digest.hex()}")
    for line in tolerance_lines(loaded):
        out.print(line)
    if plan is not None:
        out.print(str(plan))
        return
    for note in total_notes(loaded):
        out.print(note)
