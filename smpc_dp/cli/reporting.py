"""`--report FILE.html`: the option, the trace of a run from its events, and the frame of a report."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import smpc_dp
from smpc_dp.console.output import check_can_write, report_error
from smpc_dp.errors import LocalError

if TYPE_CHECKING:
    from smpc_dp.report.document import Report, Section
    from smpc_dp.report.trace import Trace
    from smpc_dp.session.events import Event, OnEvent

ReportPath = Annotated[Path | None, typer.Option("--report", help="Write an HTML report there.")]
# What every report has within its first bytes.
HEADING, START = b'<p class="product">smpc-dp</p>', 1 << 15
ONE_MACHINE = (
    "Here one user on one machine ran all processes, and could read them all. Between hosts each member runs "
    "its own: smpc-dp party."
)


class Reporting:
    """The report file that a command was asked for, with the trace of the run's events for the report."""

    def __init__(self, path: Path) -> None:
        """Raise LocalError for a file that cannot be written: before anything runs or is charged."""
        # Not at the top: most calls write no report.
        from smpc_dp.report.trace import Trace

        _check_path(path)
        self.path = path
        self.trace = Trace()

    @classmethod
    def of(cls, path: Path | None) -> Reporting | None:
        """Return an object that records a run for the file of `--report`; None without that option."""
        return None if path is None else cls(path)

    def watch(self, event: Event) -> None:
        """Add an event of a run to the trace for the report."""
        add_event(self.trace, event)

    def write(self, report: Report, *, own: bool = False) -> None:
        """Write the report to its file, readable by nobody else if `own`; raise LocalError on failure."""
        from smpc_dp.report.document import write

        # Again: the command may have written its result there.
        _check_path(self.path)
        write(report, self.path, own=own)

    @staticmethod
    def watched(reporting: Reporting | None, watch: OnEvent) -> OnEvent:
        """Return an event function that records each event for the report, if any, and calls `watch`."""
        if reporting is None:
            return watch

        def both(event: Event) -> None:
            reporting.watch(event)
            watch(event)

        return both


@contextlib.contextmanager
def reported_below(problem: str) -> Iterator[None]:
    """Context manager that prints a LocalError of writing a report if there is a `problem`, else raises."""
    try:
        yield
    except LocalError as error:
        if not problem:
            raise
        report_error(error)


def _check_path(path: Path) -> None:
    """Raise LocalError if a report's file cannot be written, or holds anything but an earlier report."""
    check_can_write(path, name="the report")
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            start = file.read(START)
    except OSError as error:
        raise LocalError(f"{path}: cannot write the report ({error.strerror})") from None
    if start and not (start.startswith(b"<!DOCTYPE html>") and HEADING in start):
        raise LocalError(f"{path}: cannot write the report (the file exists, and is no report of smpc-dp)")


def add_event(trace: Trace, event: Event) -> None:
    """Add an event of a member, with the present time, to the trace for the report of a run."""
    match event.kind:
        case "step":
            trace.begin(event.party, event.step)
        case "traffic":
            trace.count(event.party, event.detail, event.sent, event.received)
        case "done":
            trace.begin(event.party, "")
        case "lost" | "refused":
            trace.lose(event.text, event.party, event.step)
        case "failed" | "ended":
            trace.begin(event.party, "")
            detail = event.detail or event.text
            named = detail if detail.startswith(f"{event.party}:") else f"{event.party}: {detail}"
            # The end of a process is reported by the command that started it.
            reporter = event.party if event.kind == "failed" else "this command"
            trace.lose(named, reporter, "" if event.step == "done" else event.step)


def make_report(
    title: str,
    conclusion: str,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    *,
    state: str = "good",
    privacy: Mapping[str, Any] | None = None,
) -> Report:
    """Return a report with date, version and, if `privacy` is claimed, the meaning of its epsilon."""
    from smpc_dp.report.document import Facts, Report
    from smpc_dp.report.sections import epsilon_meaning

    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    footer = f"Written by smpc-dp {smpc_dp.__version__}, {now}. This file loads nothing and sends nothing."
    dated = (("date", now.partition(" ")[0]), *facts)
    meaning = "" if privacy is None else epsilon_meaning(privacy)
    return Report(title, conclusion, state, Facts(dated), tuple(sections), footer, meaning)
