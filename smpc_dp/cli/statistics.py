"""`smpc-dp statistics`: one party's part in statistics of records, and how their results are printed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smpc_dp.cli.member import exit_code, reported_member
from smpc_dp.cli.output import (
    check_can_write,
    deliver,
    logged_lines,
    privacy_lines,
    progress_console,
)
from smpc_dp.cli.reporting import Reporting, ReportPath
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.net.host import HostMember
from smpc_dp.net.inputs import TABLE_SUFFIXES
from smpc_dp.net.launcher import run_child
from smpc_dp.net.member import Membership
from smpc_dp.net.planned import session_plan
from smpc_dp.net.record_requests import ready_rows, record_parameters
from smpc_dp.net.tasks import task_of
from smpc_dp.protocols.record_result import residual_lines
from smpc_dp.records.result import estimate_line, level_line
from smpc_dp.records.schema import Number

if TYPE_CHECKING:
    from smpc_dp.net.events import Event
    from smpc_dp.net.record_requests import ReadyRows
    from smpc_dp.net.session_file import SessionFile
    from smpc_dp.protocols.record_result import RecordResult
    from smpc_dp.records.table import Table


def statistics(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    name: Annotated[str, typer.Option("--as", help="Which party of the roster this host is.")],
    table: Annotated[
        Path | None, typer.Option(help="Its rows (.csv, .parquet); default inputs/NAME.csv or .parquet.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Identity file; default keys/NAME.key.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Its privacy ledger, charged before anything of its rows leaves.")
    ] = None,
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
    refused then: others see an absent party. `--check` fails for a column in which no row has a number, or a
    declared category, too; without it such a column refuses nothing, for others would see that.
    """
    if check and report is not None:
        raise ConfigError.at("--report", "is not for --check, which runs nothing", ConfigCheck.UNSUPPORTED)
    check_can_write(out)
    reporting = Reporting.of(report)
    host = HostMember(
        session, name, table, key, None, ledger, None, None, Reporting.watched(reporting, _show)
    )
    membership = Membership.load(session, name, key)
    results: list[RecordResult] = []
    problems: list[str] = []
    code = unwritten = 0
    asked = task_of(membership.session)
    with reported_member(reporting, membership.session, asked, host, results, problems):
        rows = load_rows(host, membership)
        for line in plan_lines(membership.session):
            progress_console().print(line)
        if check:
            check_columns(rows.table)
            return

        async def compute() -> None:
            results.append(await take_part(host, rows, level=level, simultaneous=simultaneous))

        try:
            code = run_child(
                partial(exit_code, compute, name, events=False, problems=problems), supervised=False
            )
        finally:
            # Also after Ctrl-C: a result may be there before the connection has ended.
            for result in results:
                printed = result.to_json()
                unwritten += not deliver(printed, out, partial(records_text, printed), as_json=as_json)
    raise typer.Exit(code or int(unwritten > 0))


def _show(event: Event) -> None:
    """Print an event but traffic."""
    if event.kind == "traffic":
        return
    progress_console().print(f"{event.party}: {event.text}")


def plan_lines(session: SessionFile) -> list[str]:
    """Return what is planned for a session's requests, in lines; nothing where no plan is made."""
    plan = session_plan(session)
    return [] if plan is None else list(plan.lines())


def load_rows(host: HostMember, membership: Membership) -> ReadyRows:
    """Read and sum a party's table, and say to it alone what does not count; nothing is sent.

    Raises ConfigError for more rows than `max_rows`, besides the errors of `read_rows`.
    """
    path = host.input_among(TABLE_SUFFIXES)
    ready = ready_rows(path, record_parameters(membership), membership)
    # Of a table that is refused nothing counts.
    ready.table.check_rows(host.name)
    for line in dropped_lines(ready.table):
        progress_console().print(line)
    return ready


def dropped_lines(rows: Table) -> list[str]:
    """Return what of a table does not count, or not as it is."""
    dropped = rows.dropped
    lines: list[str] = []
    for kind, words in (
        ("missing", "missing, or no number"),
        ("clipped", "outside the bounds, and clipped"),
        ("undeclared", "no declared category"),
    ):
        lines += [f"{column}: {count} values are {words}" for column, count in getattr(dropped, kind).items()]
    if dropped.unclosed:
        lines.append(
            f"{dropped.unclosed} lines have a quote that does not close on them: all of their values are "
            "missing (cells with line breaks need a Parquet file)"
        )
    if dropped.ragged:
        lines.append(
            f"{dropped.ragged} lines have other cells than the header: of longer ones (a decimal comma?) all "
            "values are missing, of shorter ones the last"
        )
    if dropped.shortened:
        lines.append(f"{dropped.shortened} rows are longer than the bound of the norm, and shortened")
    lines += [_without(name, rows) for name in dropped.without_values()]
    if dropped.beyond_person:
        filled = f", but as the middle of {', '.join(rows.schema.filled)}" if rows.schema.filled else ""
        reason = f"rows without an id, or beyond rows_per_person, do not count{filled}"
        lines.append(f"{dropped.beyond_person} {reason}")
    return [f"{dropped.rows} rows" + ("" if lines else ", all of which count"), *lines]


def check_columns(rows: Table) -> None:
    """Raise ConfigError naming each column in which no row has a value that counts."""
    names = rows.dropped.without_values()
    if names:
        raise ConfigError([ConfigIssue(name, _without(name, rows), ConfigCheck.TYPE) for name in names])


def _without(name: str, rows: Table) -> str:
    kind = "number" if isinstance(rows.schema.columns[name], Number) else "declared category"
    return f"no row has a {kind} in column {name!r}: is it of another type, or under another name?"


async def take_part(
    host: HostMember, rows: ReadyRows, *, level: float = 0.95, simultaneous: bool = False
) -> RecordResult:
    """Connect a party, and return the answers."""
    async with host.connect() as opened:
        return await opened.statistics(rows, level=level, simultaneous=simultaneous)


def records_text(result: Mapping[str, Any]) -> str:
    """Return a result, as `RecordResult.to_json` gives it, in lines for a person."""
    survivors, absent = result["survivors"], result["absent"]
    exact = result["privacy"]["epsilon"] is None
    about = "exact: no differential privacy" if exact else level_line(result["level"], result["simultaneous"])
    lines = [
        f"statistics over {len(survivors)} of {len(survivors) + len(absent)} parties",
        *(f"  {estimate_line(one, exact)}" for one in result["estimates"]),
        about,
        f"without: {', '.join(absent)}" if absent else "nobody was missing",
        *residual_lines(result["residual_pairs"]),
        *(f"fault: {line}" for line in result["faults"]),
        *privacy_lines(result),
        *logged_lines(result),
    ]
    return "\n".join(lines)


def answer_lines(answers: Mapping[str, Any]) -> list[str]:
    """Return a line for each answer with its interval, and the level, as `Answers.to_json` gives them."""
    lines = [f"  {estimate_line(one, exact=False)}" for one in answers["estimates"]]
    return [*lines, level_line(answers["level"], answers["simultaneous"])]
