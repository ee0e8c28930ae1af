"""`smpc-dp audit RESULT`, and `--compare`: prints what was found in the results of parties."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from smpc_dp.console.output import console, print_struct, report_line
from smpc_dp.errors import ConfigCheck, ConfigError, printable
from smpc_dp.results.audit import Comparison, ResultReport, audit_result, compare_results
from smpc_dp.results.refusal import audit_refusal, is_refusal


def audit(
    result: str,
    other: Path | None,
    session: str | None,
    run: str | None,
    request: int | None,
    *,
    as_json: bool,
) -> None:
    """Check a party's result file or evidence of a refusal, or compare two results, and print a report.

    Raises typer.Exit with the code if it is not 0.
    """
    report: ResultReport | Comparison
    if is_refusal(result):
        if (other, run, request) != (None, None, None):
            reason = "of the evidence of a refusal only --session and --json"
            raise ConfigError.at("audit", reason, ConfigCheck.CONFLICT)
        report = audit_refusal(result, session=session)
    elif other is None:
        report = audit_result(result, session=session, run=run, request=request)
    else:
        if (run, request) != (None, None):
            reason = "with it only --session and --json"
            raise ConfigError.at("--compare", reason, ConfigCheck.CONFLICT)
        report = compare_results(other, result, session=session)
    if as_json:
        print_struct(report)
    elif isinstance(report, ResultReport):
        _print(report)
    else:
        _print_comparison(report)
    if report.code:
        raise typer.Exit(report.code)


def _print(report: ResultReport) -> None:
    """Print the report of the audit of one result file."""
    out = console()
    out.print(report.statement)
    for fault in report.faults:
        report_line(fault)
    shown = {"session": report.session, "run": report.run_id, "question": report.operation}
    shown |= {"signed for": report.receiver, "SHA-256 of what was signed": report.digest}
    _print_fields(shown)


def _print_fields(fields: Mapping[str, str | None]) -> None:
    """Print each name and value of a report, without values that are None; control characters escaped."""
    for name, value in fields.items():
        if value is not None:
            console().print(f"{name}: {printable(value)}")


def _print_comparison(report: Comparison) -> None:
    """Print the report of the comparison of two parties' results."""
    out = console()
    out.print(report.conclusion)
    _print_fields({"session": report.session, "run": report.run_id, "question": report.operation})
    for digest in report.digests:
        out.print(f"SHA-256 of what was signed: {digest}")
