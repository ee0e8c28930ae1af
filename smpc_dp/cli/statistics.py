"""`smpc-dp statistics`: one party's part in statistics of records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smpc_dp.cli.connecting import CaFile, KeyFile
from smpc_dp.cli.member import exit_code, reported_member
from smpc_dp.cli.reporting import Reporting, ReportPath
from smpc_dp.console.output import check_can_write, deliver, print_note
from smpc_dp.console.schemas import with_schema
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.odd_values import odd_values
from smpc_dp.records.requests.records_task import check_columns, load_rows, records_text
from smpc_dp.records.result import estimate_lines, level_line
from smpc_dp.session.host import HostMember
from smpc_dp.session.inputs import TABLE_SUFFIXES
from smpc_dp.session.launcher import run_child
from smpc_dp.session.member import Membership
from smpc_dp.session.planned import session_plan
from smpc_dp.session.tasks import task_of
from smpc_dp.web_settings import WebSettings

if TYPE_CHECKING:
    from smpc_dp.records.record_result import RecordResult
    from smpc_dp.session.events import Event
    from smpc_dp.session.session_file import SessionFile


def statistics(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    name: Annotated[str, typer.Option("--as", help="Which party of the roster this host is.")],
    table: Annotated[
        Path | None, typer.Option(help="Its rows (.csv, .parquet); default inputs/NAME.csv or .parquet.")
    ] = None,
    key: KeyFile = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Its privacy ledger, charged before anything of its rows leaves.")
    ] = None,
    ca: CaFile = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="The level is that of all intervals together.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only read the table, and say what of it does not count.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the result there as JSON.")] = None,
    report: ReportPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Take part in statistics of records, as one party.

    Says what of the table does not count, to nobody else, before it connects. More rows than `max_rows` are
    refused then: others see an absent party. `--check` lists undeclared categories, and numbers out of
    bounds that repeat, which may be codes for missing values. It fails for a column in which no row has a
    number, or a declared category, too; without `--check` such a column refuses nothing, for others would see
    that.
    """
    if check and report is not None:
        raise ConfigError.at("--report", "is not for --check, which runs nothing", ConfigCheck.UNSUPPORTED)
    check_can_write(out)
    reporting = Reporting.of(report)
    watch = Reporting.watched(reporting, _show)
    web = None if ca is None else WebSettings(ca_file=ca)
    host = HostMember(session, name, table, key, None, ledger, None, None, watch, print_note, web)
    membership = Membership.load(session, name, key, web=web)
    results: list[RecordResult] = []
    problems: list[str] = []
    code = unwritten = 0
    asked = task_of(membership.session)
    with reported_member(reporting, membership.session, asked, host, results, problems):
        rows = load_rows(host, membership)
        for line in plan_lines(membership.session):
            print_note(line)
        if check:
            for line in odd_values(host.input_among(TABLE_SUFFIXES), rows.table.schema, host.name):
                print_note(line)
            check_columns(rows.table)
            return

        async def compute() -> None:
            async with host.connect() as opened:
                result = await opened.statistics(rows, level=level, simultaneous=simultaneous)
            results.append(result)

        try:
            code = run_child(
                partial(exit_code, compute, name, events=False, problems=problems), supervised=False
            )
        finally:
            # Also after Ctrl-C: a result may be there before the connection has ended.
            for result in results:
                printed = with_schema(result.schema, result.to_json())
                unwritten += not deliver(printed, out, partial(records_text, printed), as_json=as_json)
    raise typer.Exit(code or int(unwritten > 0))


def _show(event: Event) -> None:
    """Print an event of the run, except events about traffic."""
    if event.kind == "traffic":
        return
    print_note(f"{event.party}: {event.text}")


def plan_lines(session: SessionFile) -> list[str]:
    """Return lines of text on the plan of a session's requests; none if the session has no plan."""
    plan = session_plan(session)
    return [] if plan is None else list(plan.lines())


def answer_lines(answers: Mapping[str, Any]) -> list[str]:
    """Return a line of text for each answer with its interval, and one for the confidence level."""
    lines = [f"  {line}" for line in estimate_lines(answers["estimates"], exact=False)]
    return [*lines, level_line(answers["level"], answers["simultaneous"])]
