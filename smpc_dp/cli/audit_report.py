"""The report of `smpc-dp audit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from smpc_dp.cli.reporting import Reporting, make_report
from smpc_dp.logs.audits.audit_report import audit_sections
from smpc_dp.report import sections
from smpc_dp.report.sections import number

if TYPE_CHECKING:
    from smpc_dp.logs.audits.audit_report import Report


def write_audit_report(reporting: Reporting, report: Report, command: Sequence[str]) -> None:
    """Write an audit's report to a file; `command` is the command that made the audit."""
    facts = [("exit code", str(report.code)), ("entries", number(report.entries))]
    facts += [("log", sections.amount(report.bytes)), ("time", f"{report.seconds:.2f} s")]
    if report.verdict is not None:
        facts.insert(1, ("parties counted", str(len(report.verdict.counted))))
    state = "good" if report.ok else "bad" if report.faults or report.code == 1 else ""
    reporting.write(
        make_report("Audit of a log", report.statement, facts, audit_sections(report, command), state=state)
    )
