"""The report of an audit, and its sections: the verdict, what it shows and what not, how to audit again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from smpc_dp.errors import Check
from smpc_dp.logs.auditing import Excluded
from smpc_dp.logs.audits.audit_selection import LoggedCheckpoint
from smpc_dp.report import sections
from smpc_dp.report.chart import Intervals
from smpc_dp.report.document import Code, Section, Sentences, Text, section
from smpc_dp.report.sections import number
from smpc_dp.report.table import Table
from smpc_dp.summary import rounded

AGREED = "What the members agreed on"
# Without a session file the log may be made up.
CLAIMED = "What the members agreed on, as the log says"
PAIRS = (("what", ""), ("value", ""))


class Second(msgspec.Struct, frozen=True):
    """Result of the second, independent auditor: exit code, reason for a refusal, and differences found."""

    code: int
    reason: str
    differences: tuple[str, ...]


class LoggedReceipt(msgspec.Struct, frozen=True):
    """Result of checking a party's receipt against a log: the entry's number, and if its value is counted."""

    party: str
    index: int
    counted: bool


class Report(msgspec.Struct, frozen=True, kw_only=True, rename={"position": "place"}):
    """Report of an audit of a log, as `smpc-dp audit --json` prints it.

    Attributes:
        ok: everything holds for the session, request and run that were given; `code` is 0.
        code: the exit code. 0: ok. 1: the log is invalid. 3: it is self-consistent, but neither a
            session nor a receipt was given, so it may be made up. 4: it holds for the session, but the
            arguments do not determine which of its runs it is, or which log of a run that may have two. 5:
            the two auditors disagree.
        conclusion: the result in one sentence. limits: what the audit does not show, in further sentences.
        session: its digest in hex; session_checked: whether it is the given one.
        request: its number; place, tries: the run's place among the runs of this request and their number,
            where a session log was given. number: of its line in the session log; session_head: after that
            line, in hex.
        roster: its digest in hex.
        parameters: of the session, as written: bounds, epsilon, part of corrupt parties.
        head: of the log, in hex; that of a pairwise statistic is `log` in the evidence of its result.
        line, byte: of the first line that is no part of a right log (from 1, from 0), else None.
        check: the check that refused this line, else None: docs/reference/errors.md.
        verdict: of a verifiable run, statistic: of a pairwise statistic; None where the log could not be read
            to its end.
        entries, bytes, seconds: what was read, and how long it took.
        second: what the second auditor found, where it was asked; None otherwise.
        receipt: whose receipt the log has, where one was given and all holds; None otherwise.
        checkpoint: the checkpoint that the session log fits, where one was given and all holds; else None.
    """

    ok: bool
    code: int
    conclusion: str
    limits: str
    session: str | None
    session_checked: bool
    request: int | None = None
    number: int | None = None
    session_head: str | None = None
    position: int | None = None
    tries: int | None = None
    roster: str | None
    parameters: dict[str, Any] | None
    run_id: str | None
    head: str | None = None
    line: int | None
    byte: int | None
    check: Check | None = None
    faults: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    verdict: Any
    statistic: Any = None
    entries: int
    bytes: int
    seconds: float
    second: Second | None = None
    receipt: LoggedReceipt | None = None
    checkpoint: LoggedCheckpoint | None = None

    @property
    def statement(self) -> str:
        """Sentences for a person: first what the audit cannot show, then its conclusion."""
        return " ".join(part for part in (self.limits, self.conclusion) if part)

    def _repr_html_(self) -> str:
        """Return the report as HTML with its verdict, for display in notebooks."""
        # Not at the top: most reports are shown by no notebook.
        from smpc_dp.report.notebook import sections_html

        verdict = "the audit holds" if self.ok else f"the audit does not hold: exit code {self.code}"
        return sections_html([verdict, self.statement], audit_sections(self))

    @property
    def digest_lines(self) -> tuple[str, ...]:
        """Lines that state the known digests of session, run and log; unknown ones are left out."""
        lines = [
            f"{name}: {value}" for name, value in (("session", self.session), ("run", self.run_id)) if value
        ]
        if self.head is not None:
            lines.append(f"head: {self.head}; session head: {self.session_head}, of run {self.number}")
        return tuple(lines)


def audit_sections(
    report: Report, command: Sequence[str] = (), introduced: str = "The command that made this page:"
) -> list[Section]:
    """Return the sections of an audit's report; `command` is shown as the way to repeat the audit."""
    verdict, statistic = report.verdict, report.statistic
    result = [] if verdict is None else _verdict_sections(verdict)
    result += [] if statistic is None else _statistic_sections(statistic)
    again = shlex.join(command)
    return [
        *section("faults", "What does not hold", [Sentences(report.faults)] if report.faults else []),
        *result,
        *sections.limits_section([report.limits] if report.limits else []),
        *_roles(report),
        *section(
            "log", "The log", [_log_table(report), *_receipt(report), *_checkpoint(report), *_second(report)]
        ),
        *section("asked", AGREED if report.session_checked else CLAIMED, _parameters(report)),
        *section("again", "Audit it yourself", [Text(introduced), Code(again)] if again else []),
    ]


def _result(verdict: Any) -> list[Section]:
    """Return the report's section on the average, or on the statistics of records; [] without either."""
    if verdict.answers is not None:
        deviations = (verdict.bias or 0.0) / verdict.standard_error
        note = (
            "Cheats who see their noise first can have moved each sum that they are computed from by "
            f"{deviations:.2g} standard deviations of its noise at most, in expectation."
        )
        return sections.statistics_section(verdict.answers, exact=False, note=note)
    average = verdict.average or ()
    error = verdict.standard_error
    shown = rounded(average, "average", error, 1.0)
    columns = (("coordinate", ""), ("average", "number"), ("standard error", "number"))
    rows = tuple((str(index), str(value), f"{error:.2g}") for index, value in enumerate(shown, 1))
    moved = f"{verdict.bias or 0:.2g}"
    note = f"Cheats who see their noise first can have moved each by {moved} at most, in expectation."
    if not rows:
        return []
    table = Table(f"The average over {len(verdict.counted)} parties", columns, rows, note)
    drawn = tuple((str(index), value - error, value, value + error) for index, value in enumerate(average, 1))
    caption = "Each coordinate, and one standard error of the noise to either side"
    return section("result", "Result", [Intervals(caption, "average", drawn, table)])


def _verdict_sections(verdict: Any) -> list[Section]:
    """Return the report's sections on the verdict of a verifiable run: result, parties and privacy spent."""
    members = [
        *((name, "counted", "") for name in verdict.counted),
        *((item.party, "excluded", f"entry {item.sequence}: {item.reason}") for item in verdict.excluded),
        *((name, "silent", "takes part, and the log has no publication of it") for name in verdict.silent),
    ]
    state = Table(
        "Each party in the log", (("party", ""), ("state", ""), ("why", "long")), tuple(members)
    ).filled()
    void = tuple(
        f"{one} and {other} committed to different noise; at least one of the two deviated"
        for one, other in verdict.void_edges
    )
    claim = "no claim" if verdict.epsilon is None else number(verdict.epsilon)
    unit = "honest party" if verdict.answers is None else verdict.answers["unit"]
    spent = ((f"epsilon of each {unit}", claim), ("delta", number(verdict.delta)))
    return [
        *_result(verdict),
        *section("parties", "Parties", [state, Sentences(void) if void else None]),
        *section("privacy", "Privacy spent", [Table(f"Privacy of each {unit}", PAIRS, spent)]),
    ]


def _statistic_sections(result: Any) -> list[Section]:
    """Return the report's sections on a statistic of pairs of parties, of an audited log."""
    rows = (
        ("kernel", str(result.terms.get("kernel"))),
        ("the aggregator's estimate; nobody else can check it", number(result.value)),
        ("standard error", number(result.standard_error)),
        ("standard error of the noise alone", number(result.noise_error)),
        ("partners of each party", number(result.partners)),
    )
    draws = tuple(
        (
            str(index),
            number(attempt.present),
            ", ".join(attempt.silent) or "nobody",
            ", ".join(attempt.false) or "nobody",
            ", ".join(attempt.dropped) or "nobody",
        )
        for index, attempt in enumerate(result.attempts, 1)
    )
    columns = (
        ("draw", ""),
        ("present", "number"),
        ("no coin", ""),
        ("a wrong coin", ""),
        ("left out after it", ""),
    )
    failed = [
        (str(matching + 1), one, other, reason)
        for reason, pairs in (("failed", result.failed), ("failed, but both say not", result.disputed))
        for matching, one, other in pairs
    ]
    pairs = Table(
        "Pairs that failed", (("matching", ""), ("one", ""), ("other", ""), ("how", "")), tuple(failed)
    )
    return [
        *section("result", "Result", [Table("The estimate", PAIRS, rows)]),
        *section("draws", "Draws of the pairs", [Table("Draws; the last counts", columns, draws)]),
        *section("pairs", "Pairs", [pairs if failed else None]),
    ]


def _roles(report: Report) -> list[Section]:
    """Return the section that says who learns what from a log; none if the audit came to no verdict."""
    if report.statistic is not None:
        return sections.roles_section(["log-of-pairs"])
    if report.verdict is None:
        return []
    return sections.roles_section(["log-of-records" if "records" in (report.parameters or {}) else "log"])


def _log_table(report: Report) -> Table:
    """Return a table of what identifies the log (digests, run, heads), and of any line that is wrong."""
    rows = (
        ("session digest", report.session),
        ("session", "as it was given" if report.session_checked else "not compared with one that was given"),
        ("roster digest", report.roster),
        ("run id", report.run_id),
        ("request", report.request),
        ("head", report.head),
        ("session head", report.session_head),
        ("try of the request", None if report.tries is None else f"{report.position} of {report.tries}"),
        ("line that is wrong", report.line),
        ("check that refused it", report.check),
    )
    shown = tuple((name, str(value)) for name, value in rows if value is not None)
    return Table("What identifies it", (("property", ""), ("value", "code")), shown)


def _receipt(report: Report) -> list[Text]:
    """Return a sentence on the entry of the user's receipt, and if it counted; no text without one."""
    if report.receipt is None:
        return []
    counted = "and counted" if report.receipt.counted else "and not counted"
    return [Text(f"The contribution of {report.receipt.party} is entry {report.receipt.index}, {counted}.")]


def _checkpoint(report: Report) -> list[Text]:
    """Return a sentence about the user's checkpoint and its witnesses; no text without a checkpoint."""
    if report.checkpoint is None:
        return []
    names = ", ".join(report.checkpoint.witnesses) or "nobody that was given"
    return [
        Text(f"The session log fits the checkpoint of {report.checkpoint.size} lines, cosigned by {names}.")
    ]


def _second(report: Report) -> list[Text | Sentences]:
    """Return text on where the second auditor agrees and differs; no text if it did not run."""
    if report.second is None:
        return []
    if not report.second.differences:
        return [Text("The second auditor found the same.")]
    return [Text("The two auditors differ:"), Sentences(report.second.differences)]


def _parameters(report: Report) -> list[Table]:
    """Return a table of the session's parameters; no table if the session has none."""
    given = report.parameters or {}
    rows = tuple((key, sections.written(value)) for key, value in given.items())
    return [Table("Parameters of the session", (("parameter", ""), ("value", "long")), rows)] if rows else []
