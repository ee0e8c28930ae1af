"""One member of a session on this host: its report, and its exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from smpc_dp.cli.reporting import Reporting, reported_below
from smpc_dp.console.output import progress_console, report_error
from smpc_dp.errors import SmpcError
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import print_event

if TYPE_CHECKING:
    from smpc_dp.logs.audits.audit_report import Report
    from smpc_dp.session.host import HostMember
    from smpc_dp.session.session_file import SessionFile
    from smpc_dp.session.tasks import Task


@contextlib.contextmanager
def reported_member(
    reporting: Reporting | None,
    session: SessionFile,
    task: Task,
    host: HostMember,
    results: Sequence[Any],
    problems: list[str],
) -> Iterator[None]:
    """Context manager that, given `reporting`, writes a party's report at its end, also after an error.

    `task`: what it computes; `results`: at most one, with `to_json`; `problems`: what was printed as errors,
    and what the block raises.
    """
    try:
        yield
    except SmpcError as error:
        problems.append(str(error))
        raise
    finally:
        if reporting is not None:
            # Not at the top: most calls write no report.
            from smpc_dp.cli.run_report import write_run_report

            ended = {host.name: results[0].to_json()} if results else {}
            problem = "; ".join(problems) or ("" if ended else f"{host.name} has no result")
            alone = f"{host.name} ran its own process alone: this page has what that process saw."
            books = {} if host.ledger is None else {host.name: host.ledger}
            with reported_below(problem):
                write_run_report(reporting, session, task, {}, ended, problem, books, notes=(alone,))


async def exit_code(
    compute: Callable[[], Awaitable[Report | None]],
    name: str,
    *,
    events: bool,
    problems: list[str] | None = None,
) -> int:
    """Run a member's computation, report errors; return the exit code, 1 after an error or a bad audit.

    1 after an error, which is shown, or a bad audit; both are added to `problems`.
    """
    problems = [] if problems is None else problems
    try:
        report = await compute()
        if report is None:
            return 0
        for line in (report.statement, *report.digest_lines):
            progress_console().print(line)
        if report.ok:
            return 0
        problems.append(report.conclusion)
        return 1
    except SmpcError as error:
        problems.append(str(error))
        if events:
            print_event(Event(name, "failed", detail=str(error)))
        report_error(error)
        return 1
