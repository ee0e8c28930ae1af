"""The report of `smpc-dp audit`: the verdict, what it shows and what not, and how to audit again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from smpc_dp.cli.reporting import Reporting, make_report
from smpc_dp.report import sections
from smpc_dp.report.document import Code, Section, Sentences, Text, section
from smpc_dp.report.sections import number
from smpc_dp.report.table import Table
from smpc_dp.summary import rounded

if TYPE_CHECKING:
    from smpc_dp.capabilities.gopa.verifiable.verdict import Verdict
    from smpc_dp.capabilities.pairs.ustatistic.audit import StatisticVerdict
    from smpc_dp.logs.audits.audit import Report

AGREED = "What the members agreed on"
# Without a session file the log may be made up.
CLAIMED = "What the members agreed on, as the log says"
PAIRS = (("what", ""), ("value", ""))


def write_audit_report(reporting: Reporting, report: Report, command: Sequence[str]) -> None:
    """Write the report of an audit that `command` made."""
    facts = [("exit code", str(report.code)), ("entries", number(report.entries))]
    facts += [("log", sections.amount(report.bytes)), ("time", f"{report.seconds:.2f} s")]
    if report.verdict is not None:
        facts.insert(1, ("parties counted", str(len(report.verdict.counted))))
    state = "good" if report.ok else "bad" if report.faults or report.code == 1 else ""
    reporting.write(
        make_report("Audit of a log", report.statement, facts, audit_sections(report, command), state=state)
    )


def audit_sections(
    report: Report, command: Sequence[str], introduced: str = "The command that made this page:"
) -> list[Section]:
    """Return the sections of an audit, which `command`, introduced by a sentence, does again."""
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
        *section("again", "Audit it yourself", [Text(introduced), Code(again)]),
    ]


def _result(verdict: Verdict) -> list[Section]:
    """Return the section of the average, or of the answers about records."""
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
    blocks = [Table(f"The average over {len(verdict.counted)} parties", columns, rows, note)] if rows else []
    return section("result", "Result", blocks)


def _verdict_sections(verdict: Verdict) -> list[Section]:
    """Return the sections of a verifiable run."""
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


def _statistic_sections(result: StatisticVerdict) -> list[Section]:
    """Return the sections of a statistic of pairs."""
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
    """Return the section of what a log shows; none of a log that shows no run that holds."""
    if report.statistic is not None:
        return sections.roles_section(["log-of-pairs"])
    if report.verdict is None:
        return []
    return sections.roles_section(["log-of-records" if "records" in (report.parameters or {}) else "log"])


def _log_table(report: Report) -> Table:
    """Return the table that identifies the log."""
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
    if report.receipt is None:
        return []
    counted = "and counted" if report.receipt.counted else "and not counted"
    return [Text(f"The contribution of {report.receipt.party} is entry {report.receipt.index}, {counted}.")]


def _checkpoint(report: Report) -> list[Text]:
    if report.checkpoint is None:
        return []
    names = ", ".join(report.checkpoint.witnesses) or "nobody that was given"
    return [
        Text(f"The session log fits the checkpoint of {report.checkpoint.size} lines, cosigned by {names}.")
    ]


def _second(report: Report) -> list[Text | Sentences]:
    if report.second is None:
        return []
    if not report.second.differences:
        return [Text("The second auditor found the same.")]
    return [Text("The two auditors differ:"), Sentences(report.second.differences)]


def _parameters(report: Report) -> list[Table]:
    given = report.parameters or {}
    rows = tuple((key, sections.written(value)) for key, value in given.items())
    return [Table("Parameters of the session", (("parameter", ""), ("value", "long")), rows)] if rows else []
