"""The demonstration of verifiable averaging: lenders as processes, one cheats, is named, and is left out."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from smpc_dp.demo.lenders import DATA, LENDERS, Loan, read_loans, shards
from smpc_dp.demo.run import Files
from smpc_dp.errors import Check, LocalError, VerificationError
from smpc_dp.net.audit import Report, audit
from smpc_dp.net.events import OnEvent, ignore
from smpc_dp.net.launcher import Launcher, member_command
from smpc_dp.net.local import AGGREGATOR, create_local_session
from smpc_dp.net.session_file import Timeouts

# What the lenders agree on: nobody has more loans, or a higher average rate.
MOST_LOANS, HIGHEST_RATE = 4096, 40.0

# "range": a negative number of loans. "noise": noise that pulls the average rate up.
CHEATS: Mapping[str, str] = {
    "range": "gives a negative number of loans",
    "noise": "gives its own noise: none for the loans, and all upwards for the rate",
}

CHEAT_OF = {"range": "mountain", "noise": "pacific"}
PARAMETERS: dict[str, object] = {
    "length": 2,
    "lower": 0,
    "upper": 1,
    "epsilon": 4.0,
    "delta": 1e-5,
    "dropout": 1 / len(LENDERS),
    "corrupt": 1 / len(LENDERS),
    "verifiable": True,
}
TIMEOUTS = Timeouts(connect=60.0, step=30.0)
LOG = "board.jsonl"
FEW = (
    "The noise is large beside the averages: each lender is protected from all others, and there are only "
    f"{len(LENDERS)}."
)


def lender_values(loans: Sequence[Loan]) -> tuple[float, float]:
    """Return a lender's number of loans and its average interest rate, as parts of their upper bounds."""
    rates = [float(loan["int_rate"]) for loan in loans]
    return len(loans) / MOST_LOANS, sum(rates) / len(rates) / HIGHEST_RATE


@dataclass(frozen=True, slots=True)
class VerifiableRun:
    """One run, its audit, and the audit of its log with one byte changed.

    Attributes:
        cheat: the kind of the cheat; culprit: the cheating lender; reason: why it was excluded, from the log.
        value: average number of loans and average rate in percent; error: their standard errors.
        truth: the same over the counted lenders without noise, known to the demonstration alone.
        log, session: their files. byte: which one was changed.
    """

    cheat: str
    culprit: str
    reason: str
    value: tuple[float, float]
    error: tuple[float, float]
    truth: tuple[float, float]
    log: Path
    session: Path
    audit: Report
    byte: int
    changed: Report
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "cheat": self.cheat,
            "culprit": self.culprit,
            "reason": self.reason,
            "loans": self.value[0],
            "rate": self.value[1],
            "standard_error": list(self.error),
            "truth": list(self.truth),
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


async def demonstrate_verifiable(
    folder: Path, *, on_event: OnEvent = ignore, on_run: Callable[[str], None] = lambda _heading: None
) -> list[VerifiableRun]:
    """Run both cheats, in `folder` and in `folder`/chosen-noise, and audit the logs.

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
    """Run one cheat, audit its log, and audit the log with one byte changed."""
    begun = time.perf_counter()
    culprit = CHEAT_OF[cheat]
    parts = shards(read_loans(DATA))
    session = create_local_session(
        folder, LENDERS, PARAMETERS, protocol="gopa", aggregator=AGGREGATOR, timeouts=TIMEOUTS
    )
    files = Files(folder)
    files.prepare(parts)
    commands = {AGGREGATOR: member_command("party", str(session), "--as", AGGREGATOR)}
    for name in LENDERS:
        commands[name] = files.lender_command("verifiable_lender", name)
        commands[name] += ["--cheat", cheat] if name == culprit else []
    outcomes = await Launcher(on_event).run(commands, AGGREGATOR)
    for outcome in outcomes.values():
        if not outcome.ok and outcome.name != culprit:
            raise LocalError(f"the process of {outcome.name} failed: {outcome.reason}")
    reported = [files.reported(name) for name in LENDERS if name != culprit]
    [log] = sorted((folder / "board").glob("request-*.jsonl"))
    shutil.copyfile(log, folder / LOG)
    head = reported[0]["evidence"]["log"]["head"]
    report = audit(folder / LOG, session=session, head=head)
    if not report.ok or [item.party for item in report.excluded] != [culprit] or report.verdict is None:
        raise VerificationError(f"{culprit} was to be excluded: {report.conclusion}", Check.WRONG_RESULT)
    if any(tuple(other["value"]) != report.verdict.average for other in reported):
        raise VerificationError("the lenders do not have the average that the log shows", Check.WRONG_RESULT)
    byte, changed = _change(folder, session, head)
    if changed.ok:
        raise VerificationError("a log with a changed byte was taken for a right one", Check.WRONG_RESULT)
    scale = np.array([MOST_LOANS, HIGHEST_RATE])
    true = np.mean([lender_values(parts[name]) for name in report.verdict.counted], axis=0)
    return VerifiableRun(
        cheat=cheat,
        culprit=culprit,
        reason=report.excluded[0].reason,
        value=_pair(scale * report.verdict.average),
        error=_pair(scale * report.verdict.standard_error),
        truth=_pair(scale * true),
        log=folder / LOG,
        session=session,
        audit=report,
        byte=byte,
        changed=changed,
        seconds=time.perf_counter() - begun,
    )


def _pair(values: Any) -> tuple[float, float]:
    """Return two numbers as floats."""
    first, second = (float(value) for value in values)
    return first, second


def _change(folder: Path, session: Path, head: str) -> tuple[int, Report]:
    """Audit the log with one bit of its middle byte changed."""
    log = bytearray((folder / LOG).read_bytes())
    byte = len(log) // 2
    log[byte] ^= 1
    index = folder / "changed.jsonl"
    index.write_bytes(log)
    return byte, audit(index, session=session, head=head)


def report_verifiable(console: Console, runs: list[VerifiableRun]) -> None:
    """Print the results of the runs."""
    for run in runs:
        console.print(f"{run.culprit} {CHEATS[run.cheat]}.", style="bold")
        console.print(f"  excluded by name: {run.culprit}: {run.reason}")
        counted = len(run.audit.verdict.counted) if run.audit.verdict is not None else 0
        for index, (label, unit) in enumerate((("loans a lender", ""), ("interest rate", " %"))):
            console.print(
                f"  average {label} over the other {counted}: {run.value[index]:.1f}{unit}, standard error "
                f"{run.error[index]:.1f}; without noise, which nobody sees, {run.truth[index]:.1f}{unit}"
            )
        console.print(f"  smpc-dp audit {run.log} --session {run.session} --head {run.audit.head}")
        console.print(f"    {run.audit.conclusion}")
        console.print(f"  the same with one bit of byte {run.byte} changed:")
        console.print(f"    {run.changed.conclusion}")
        console.print()
    console.print(FEW)
