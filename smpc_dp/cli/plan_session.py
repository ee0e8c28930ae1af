"""`smpc-dp plan session`: what a request of a session file costs, and how exact its answers will be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from smpc_dp.cli.plan_study import print_study
from smpc_dp.console.output import console, print_struct
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.planned import session_plan, tolerance_lines
from smpc_dp.session.session_file import load_session


def session(
    path: Annotated[Path, typer.Argument(metavar="SESSION", help="The session file.")],
    rows: Annotated[
        int | None,
        typer.Option(help="Of statistics of records: rows of all parties, in place of rows_expected."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            help="Of statistics of records: NAME=MEAN:DEVIATION of a column, from published figures; "
            "NAME=MEAN of a column of 0 and 1."
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Of statistics of records: epsilon of all questions about the rows together."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The same, from your ledger; nothing is charged.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan a request of a session: its charge, and the errors of its answers.

    Of statistics of records also what tests find with power .8, and what another party or more epsilon gives.
    No party's rows are read, nothing is sent, nothing is charged.
    """
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.session import study

    loaded = load_session(path)
    if rows is not None:
        loaded = study.with_rows(loaded, rows)
    plan = session_plan(loaded)
    if plan is None:
        reason = (
            f"is '{loaded.protocol}' with servers or a learner: these plan by themselves, rounds of groups "
            "with `smpc-dp plan groups`"
        )
        raise ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)
    if budget is not None and ledger is not None:
        raise ConfigError.at("--budget", "is not for a ledger, which has one", ConfigCheck.CONFLICT)
    expected = study.read_expected(expect or [], loaded)
    plan = replace(plan, study=study.study_of(loaded, expected))
    if budget is not None or ledger is not None:
        own = None if ledger is None else Ledger.open(ledger)
        plan = replace(plan, remaining=study.remaining(loaded, epsilon=budget, ledger=own))
    if as_json:
        print_struct(plan)
        return
    out = console()
    for line in tolerance_lines(loaded):
        out.print(line)
    out.print(str(plan))
    if plan.study is None and study.record_parameters(loaded) is not None:
        out.print("widths with sampling, and power: not known without rows_expected, or --rows")
    print_study(plan)
