"""`smpc-dp plan session`: what a request of a session file costs, and how exact its answers will be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.console.output import console, print_struct
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.planned import session_plan, tolerance_lines
from smpc_dp.session.session_file import load_session


def session(
    path: Annotated[Path, typer.Argument(metavar="SESSION", help="The session file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan a request of a session: what it is charged, and the standard error of each answer.

    Nothing is sent and nothing is charged.
    """
    loaded = load_session(path)
    plan = session_plan(loaded)
    if plan is None:
        reason = (
            f"is '{loaded.protocol}' with servers or a learner: these plan by themselves, rounds of groups "
            "with `smpc-dp plan groups`"
        )
        raise ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)
    if as_json:
        print_struct(plan)
        return
    out = console()
    for line in tolerance_lines(loaded):
        out.print(line)
    out.print(str(plan))
