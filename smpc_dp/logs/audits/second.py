"""`smpc-dp audit --second`: the second auditor, in a process of its own, and whether both found the same.

It is another distribution, smpc-dp-verify (verify/ in the repository), that shares no code with this one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from smpc_dp.decoding import decode_json
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, printable
from smpc_dp.logs.auditing import Verdict
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.audit_report import Report, Second
from smpc_dp.logs.audits.audit_selection import FAILS, CheckpointPolicy, Wanted
from smpc_dp.logs.log_http import HTTP_SECONDS
from smpc_dp.logs.log_source import STORED_BYTES, open_log
from smpc_dp.logs.opinion import Findings, Opinion
from smpc_dp.logs.receipt import LogReceipt

PACKAGE = "smpc_dp_verify"
SECONDS, MEMORY_MIB = 3_600.0, 1_024
DISAGREE = 5
"""Exit code: the two auditors did not find the same."""
# Exit codes of the second auditor that come with an opinion.
_OPINIONS = (0, 1, 3, 4)
# What is read of its answer and of its errors.
_MOST_ANSWER, _MOST_ERROR = 1 << 26, 1 << 12
_BLOCK = 1 << 20


def audit_twice(
    source: str | os.PathLike[str],
    *,
    session: str | os.PathLike[str] | None = None,
    session_log: str | os.PathLike[str] | None = None,
    run: str | None = None,
    head: str | None = None,
    request: int | None = None,
    receipt: LogReceipt | str | os.PathLike[str] | None = None,
    checkpoint: CheckpointPolicy | str | os.PathLike[str] | None = None,
    timeout: float = HTTP_SECONDS,
    seconds: float = SECONDS,
    memory: int = MEMORY_MIB,
    **rest: Any,
) -> Report:
    """Audit a log by this and an independent second auditor; the report holds both, and differences.

    Args:
        source, session, session_log, run, head, request, receipt, checkpoint, timeout: as of `audit`, and
            `rest`.
        seconds: that the second auditor may take. memory: in MiB, of each of its processes.

    Raises:
        LocalError: also if the second auditor is not installed, or came to no end within its bounds.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise LocalError(
            "the second auditor is not installed: it is in the folder verify of smpc-dp's repository"
        )
    if not seconds > 0 or memory < 1:
        raise ConfigError.at("second", "seconds and memory must be above 0", ConfigCheck.RANGE)
    temporary = tempfile.NamedTemporaryFile
    with _as_file(source, timeout) as path, temporary() as listed, temporary() as note, temporary() as own:
        # Both judge what was read once: an aggregator appends to the one, and replaces the other.
        wanted = Wanted.of(session, session_log, request, run, head, receipt, checkpoint, keep=listed)
        with open_log(path, timeout) as (stream, size):
            report = audit_stream(stream, size=size, wanted=wanted, **rest)
        given: dict[str, object] = {"session": wanted.session, "run": wanted.run, "head": wanted.head}
        given |= {"request": request, "session-log": None if session_log is None else listed.name}
        if wanted.receipt is not None:
            _keep(own, msgspec.json.encode(wanted.receipt.to_json()), "receipt")
            given["receipt"] = own.name
        if (policy := wanted.checkpoint) is not None:
            _keep(note, policy.note, "checkpoint")
            given |= {"checkpoint": note.name, "witnesses": policy.least}
        options = [f"--{name}={value}" for name, value in given.items() if value is not None]
        options += [f"--witness={key}" for key in (() if policy is None else policy.witnesses)]
        opinion = second_opinion(path, options, seconds, memory)
    return compared(report, opinion)


def _keep(file: IO[bytes], content: bytes, name: str) -> None:
    """Write `content` to a temporary file for the second auditor; raise LocalError if that fails."""
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        raise LocalError(f"{file.name}: cannot keep the {name} ({error.strerror})") from None


def compared(report: Report, opinion: Opinion) -> Report:
    """Return a copy of the report with the second auditor's result; where they differ it has failed."""
    differing = differences(report, opinion)
    second = Second(opinion.code, printable(opinion.reason), tuple(map(printable, differing)))
    if not differing:
        return msgspec.structs.replace(report, second=second)
    reason = f"The two auditors disagree, so one of them is wrong: {'; '.join(second.differences)}."
    return msgspec.structs.replace(report, ok=False, code=DISAGREE, conclusion=reason, second=second)


def differences(report: Report, opinion: Opinion) -> list[str]:
    """Return texts on where a report and the second auditor differ; [] also if both refuse the log.

    Raises LocalError for an opinion of another form.
    """
    if report.code != opinion.code:
        reason = f"'{opinion.reason}'" if opinion.reason else "no fault"
        return [f"exit code {report.code} ({report.conclusion}) and {opinion.code} (the second: {reason})"]
    if report.code == FAILS:
        return []
    logged = report.receipt
    contribution = None if logged is None else (logged.party, logged.index, logged.counted)
    findings: Findings = {
        "session": (report.session, opinion.session),
        "run id": (report.run_id, opinion.run_id),
        "head": (report.head, opinion.head),
        "session head": (report.session_head, opinion.session_head),
        "entries": (report.entries, opinion.entries),
        "try": ((report.position, report.tries), (opinion.position, opinion.tries)),
        **_findings(report, opinion),
        "receipt": (contribution, opinion.receipt),
        "kind of run": (report.statistic is None, opinion.statistic is None),
    }
    return [f"{name}: {one} and {other}" for name, (one, other) in findings.items() if one != other]


def _findings(report: Report, opinion: Opinion) -> Findings:
    """Return pairs of both auditors' findings, {} without a verdict; LocalError if the second failed."""
    verdict: Verdict | None = report.verdict or report.statistic
    try:
        return {} if verdict is None else verdict.compared(opinion)
    except msgspec.ValidationError:
        raise LocalError(f"the second auditor failed: it ended with {opinion.code}") from None


def second_opinion(path: Path, options: list[str], seconds: float, memory: int) -> Opinion:
    """Run the independent second auditor as a process on a log; LocalError if it gives no result."""
    command = [sys.executable, "-m", PACKAGE, "--json", f"--memory={memory}", *options, "--", str(path)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise LocalError(f"the second auditor did not end within {seconds:g} s") from None
        answer, error = _start_of(out, _MOST_ANSWER), _start_of(errors, _MOST_ERROR)
    if done.returncode in _OPINIONS:
        with contextlib.suppress(msgspec.MsgspecError):
            return decode_json(answer, Opinion)
    last = error.decode("utf-8", "replace").strip().rpartition("\n")[2].removeprefix("error: ")
    raise LocalError(f"the second auditor failed: {printable(last) or f'it ended with {done.returncode}'}")


def _start_of(file: IO[bytes], most: int) -> bytes:
    """Return the first `most` bytes of an open file."""
    file.seek(0)
    return file.read(most)


@contextlib.contextmanager
def _as_file(source: str | os.PathLike[str], timeout: float) -> Iterator[Path]:
    """Yield the path of a file with the log: the source itself, or a copy of a URL or pipe."""
    text = os.fspath(source)
    if text != "-" and not text.lower().startswith(("http://", "https://")):
        yield Path(text)
        return
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as copy:
        try:
            with open_log(text, timeout) as (stream, _):
                while block := stream.read(_BLOCK):
                    copy.write(block)
                    if copy.tell() > STORED_BYTES:
                        raise LocalError(f"the log is longer than {STORED_BYTES} bytes; give a file")
            copy.flush()
        except OSError as error:
            raise LocalError(f"{copy.name}: cannot keep the log ({error.strerror})") from None
        yield Path(copy.name)
