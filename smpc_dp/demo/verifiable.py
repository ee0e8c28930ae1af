"""The demonstration of verifiable statistics: lenders as processes, one cheats, is named, and is left out."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from rich.console import Console

from smpc_dp.demo.lenders import LENDERS, MAX_LOANS, TARGET, read_loans, rows
from smpc_dp.demo.report import print_heading, print_prose, print_table
from smpc_dp.demo.run import Files, run_members
from smpc_dp.errors import Check, VerificationError
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.report.sections import NUMBER, TEXT
from smpc_dp.report.table import Table
from smpc_dp.session.events import OnEvent, ignore
from smpc_dp.session.launcher import member_command
from smpc_dp.session.local import AGGREGATOR
from smpc_dp.session.session_file import Timeouts

# "range": a negative number of loans. "noise": noise that pulls the average rate up.
CHEATS: Mapping[str, str] = {
    "range": "gives a negative number of loans",
    "noise": "gives its own noise: none for the loans, and all upwards for the rate",
}

CHEAT_OF = {"range": "mountain", "noise": "pacific"}
# What the lenders agree on: nobody has more loans, or a higher rate.
PARAMETERS: dict[str, object] = {
    "ask": ["count", "mean(int_rate)"],
    "epsilon": 1.0,
    "delta": 1e-6,
    "dropout": 1 / len(LENDERS),
    "corrupt": 1 / len(LENDERS),
    "verifiable": True,
    "records": {
        "rows": "private",
        "max_rows": MAX_LOANS,
        "rows_expected": 10_000,
        "columns": {"int_rate": {"lower": 0, "upper": 40, "step": 0.01, "missing": False}},
    },
}
TIMEOUTS = Timeouts(connect=60.0, step=30.0)
LOG = "board.jsonl"
PROTECTED = (
    f"One loan of an honest lender is protected in each run, with epsilon = {PARAMETERS['epsilon']} and "
    f"delta = {PARAMETERS['delta']}, so the noise is small beside thousands of them. Proven of each lender: "
    f"each of its sums is one that 0 to {MAX_LOANS:,} loans can have, and its noise is as declared; not that "
    "a sum is that of its own loans."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A released statistic of the verifiable demonstration: noisy value, interval, and the true value.

    `truth`: the same over the loans of the counted lenders without noise, known to the demonstration alone.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float
    truth: float

    @classmethod
    def of(cls, name: str, unit: str, estimate: Mapping[str, Any], truth: float) -> Answer:
        """Make an answer from a result's JSON estimate and the true value."""
        return cls(name, unit, estimate["value"], estimate["low"], estimate["high"], truth)


@dataclass(frozen=True, slots=True)
class VerifiableRun:
    """Result of one run with a cheating lender: answers, who was caught, and audits of the log.

    Attributes:
        cheat: the kind of the cheat; culprit: the cheating lender; reason: why it was excluded, from the log.
        answers: the number of loans, and their mean rate in percent.
        log, session: their files. byte: which one was changed.
    """

    cheat: str
    culprit: str
    reason: str
    answers: tuple[Answer, ...]
    log: Path
    session: Path
    audit: Report
    byte: int
    changed: Report
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the run's answers and audits as plain JSON data."""
        return {
            "cheat": self.cheat,
            "culprit": self.culprit,
            "reason": self.reason,
            "answers": [asdict(answer) for answer in self.answers],
            "log": str(self.log),
            "session": str(self.session),
            "audit": {"ok": self.audit.ok, "conclusion": self.audit.conclusion},
            "changed": {
                "byte": self.byte,
                "ok": self.changed.ok,
                "line": self.changed.line,
                "conclusion": self.changed.conclusion,
            },
            "seconds": self.seconds,
        }


class PrintedAnswer(TypedDict):
    """Part of the demonstration's JSON output: a noisy statistic, its interval, and the true value."""

    name: str
    unit: str
    value: float
    low: float
    high: float
    truth: float


class PrintedAudit(TypedDict):
    """Part of the demonstration's JSON output: the audit of the run's log."""

    ok: bool
    conclusion: str


class PrintedChange(PrintedAudit):
    """Part of the demonstration's JSON output: the audit of a log in which a byte was changed."""

    byte: int
    line: int | None


class PrintedVerifiableRun(TypedDict):
    """Part of the demonstration's JSON output: one run with a cheating lender, and its audits."""

    cheat: str
    culprit: str
    reason: str
    answers: list[PrintedAnswer]
    log: str
    session: str
    audit: PrintedAudit
    changed: PrintedChange
    seconds: float


class PrintedDemonstration(TypedDict):
    """JSON output of `smpc-dp demo --verifiable --json`: the runs with their audits."""

    runs: list[PrintedVerifiableRun]


async def demonstrate_verifiable(
    folder: Path, *, on_event: OnEvent = ignore, on_run: Callable[[str], None] = lambda _heading: None
) -> list[VerifiableRun]:
    """Run the demonstration once for each of two cheats, and audit the logs; return both runs.

    `on_run` is called with a heading before each run.

    Raises:
        LocalError: a process failed unexpectedly.
        VerificationError: the cheat was not named and left out, or an audit found something else.
    """
    runs = []
    for number, (cheat, index) in enumerate((("range", folder), ("noise", folder / "chosen-noise")), 1):
        on_run(f"run {number} of 2: {CHEAT_OF[cheat]} {CHEATS[cheat]}")
        runs.append(await _run(index, cheat, on_event))
    return runs


async def _run(folder: Path, cheat: str, on_event: OnEvent) -> VerifiableRun:
    """Run members with one cheat, audit the log and a damaged copy; VerificationError if not caught."""
    begun = time.perf_counter()
    culprit = CHEAT_OF[cheat]
    files = Files(folder)
    files.prepare(PARAMETERS, "gopa", TIMEOUTS)
    session = files.session
    commands = {AGGREGATOR: member_command("party", str(session), "--as", AGGREGATOR)}
    for name in LENDERS:
        shard, out = str(files.shard(name)), str(files.result(name))
        commands[name] = member_command("party", str(session), "--as", name, "--input", shard, "--out", out)
        if name == culprit:
            program = [sys.executable, "-m", "smpc_dp.demo.cheating_lender", cheat]
            commands[name] = [*program, str(session), name, shard, out]
    await run_members(commands, on_event, {(culprit, 1)})
    reported = [files.reported(name) for name in LENDERS if name != culprit]
    [log] = sorted((folder / "board").glob("request-*.jsonl"))
    shutil.copyfile(log, folder / LOG)
    head = reported[0]["evidence"]["log"]["head"]
    report = audit(folder / LOG, session=session, head=head)
    if not report.ok or [item.party for item in report.excluded] != [culprit] or report.verdict is None:
        raise VerificationError(f"{culprit} was to be excluded: {report.conclusion}", Check.WRONG_RESULT)
    estimates = [*(report.verdict.answers or {})["estimates"]]
    if any(other["estimates"] != estimates for other in reported):
        raise VerificationError("the lenders do not have the answers that the log shows", Check.WRONG_RESULT)
    byte, changed = _change(folder, session, head)
    if changed.ok:
        raise VerificationError("a log with a changed byte was taken for a right one", Check.WRONG_RESULT)
    loans = np.concatenate([rows(read_loans(files.shard(name), name)) for name in report.verdict.counted])
    rates = loans[:, -1] / 10**TARGET.decimals
    return VerifiableRun(
        cheat=cheat,
        culprit=culprit,
        reason=report.excluded[0].reason,
        answers=(
            Answer.of("number of loans", "", estimates[0], len(rates)),
            Answer.of("mean interest rate", " %", estimates[1], float(rates.mean())),
        ),
        log=folder / LOG,
        session=session,
        audit=report,
        byte=byte,
        changed=changed,
        seconds=time.perf_counter() - begun,
    )


def _change(folder: Path, session: Path, head: str) -> tuple[int, Report]:
    """Flip a bit in a copy of the log; return (index of the changed byte, audit of the copy)."""
    log = bytearray((folder / LOG).read_bytes())
    byte = len(log) // 2
    log[byte] ^= 1
    index = folder / "changed.jsonl"
    index.write_bytes(log)
    return byte, audit(index, session=session, head=head)


def reported(run: VerifiableRun) -> tuple[str, ...]:
    """Return sentences that say who cheated in a run, and what the audits found."""
    return (
        f"{run.culprit} {CHEATS[run.cheat]}.",
        f"Excluded by name: {run.culprit}: {run.reason}.",
        f"The audit: {run.audit.statement}",
        f"The audit with one bit of byte {run.byte} changed: {run.changed.conclusion}",
    )


def answers_table(run: VerifiableRun) -> Table:
    """Return the table of a run's noisy statistics beside the true values."""
    counted = len(run.audit.verdict.counted) if run.audit.verdict is not None else 0
    rows = tuple(
        (one.name, *(f"{value:,.2f}{one.unit}" for value in (one.value, one.low, one.high, one.truth)))
        for one in run.answers
    )
    columns = (
        ("answer", TEXT),
        ("with noise", NUMBER),
        ("low", NUMBER),
        ("high", NUMBER),
        ("without noise", NUMBER),
    )
    caption = f"Answers over the other {counted} lenders, at level 95 %"
    return Table(caption, columns, rows, "Those without noise are known to this demonstration alone.")


def audit_command(run: VerifiableRun) -> list[str]:
    """Return the command line, as words, with which a user can audit the log of a run."""
    return ["smpc-dp", "audit", str(run.log), "--session", str(run.session), "--head", str(run.audit.head)]


def report_verifiable(console: Console, runs: list[VerifiableRun]) -> None:
    """Print the results and audits of the runs with cheating lenders."""
    for number, run in enumerate(runs, 1):
        print_heading(console, f"Run {number}: {run.culprit} cheats")
        for sentence in reported(run):
            print_prose(console, sentence, "  ")
        print_table(console, answers_table(run))
        # Without --out the log is gone.
        if run.log.exists():
            console.print()
            console.print(shlex.join(audit_command(run)))
    console.print()
    print_prose(console, PROTECTED)
