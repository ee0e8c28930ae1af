"""`smpc-dp audit --second`: the second auditor, in a process of its own, and whether both found the same.

It is another distribution, smpc-dp-verify (verify/ in the repository), that shares no code with this one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from smpc_dp.decoding import decode_json
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, printable
from smpc_dp.log.receipt import LogReceipt
from smpc_dp.net.audit import Report, Second, audit_stream
from smpc_dp.net.audit_selection import FAILS, CheckpointPolicy, Wanted
from smpc_dp.net.log_http import HTTP_SECONDS
from smpc_dp.net.log_source import STORED_BYTES, open_log
from smpc_dp.protocols.gopa.verifiable.statements import FALSE
from smpc_dp.protocols.gopa.verifiable.verdict import Verdict
from smpc_dp.protocols.ustatistic.audit import StatisticVerdict

PACKAGE = "smpc_dp_verify"
SECONDS, MEMORY_MIB = 3_600.0, 1_024
DISAGREE = 5
"""Exit code: the two auditors did not find the same."""
# By how much figures may differ, relatively, and delta, beside that, where both convolve losses.
ROUNDED, CONVOLVED = 1e-9, 2e-12
# Exit codes of the second auditor that come with an opinion.
_OPINIONS = (0, 1, 3, 4)
# What is read of its answer and of its errors.
_MOST_ANSWER, _MOST_ERROR = 1 << 26, 1 << 12
_BLOCK = 1 << 20


class SecondAnswer(msgspec.Struct, frozen=True):
    """Values and standard errors of one statistic, by cell; see `smpc_dp_verify.answers.Answer`."""

    statistic: str
    values: tuple[float | None, ...]
    errors: tuple[float | None, ...]


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What the second auditor prints; see `smpc_dp_verify.verify.Opinion`."""

    code: int
    reason: str
    session: str | None
    run_id: str | None
    head: str | None
    session_head: str | None
    entries: int
    counted: tuple[str, ...]
    excluded: tuple[tuple[str, int, str], ...]
    silent: tuple[str, ...]
    void: tuple[tuple[str, str], ...]
    average: tuple[float, ...]
    answers: tuple[SecondAnswer, ...] | None
    standard_error: float | None
    bias: float | None
    epsilon: float | None
    delta: float | None
    position: int | None
    tries: int | None
    statistic: StatisticVerdict | None
    receipt: tuple[str, int, bool] | None


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
    """Audit a log by both auditors; `second` of the report has what the second found.

    Args:
        source, session, session_log, run, head, request, receipt, checkpoint, timeout: as of `audit`, and
            `rest`.
        seconds: that the second auditor may take. memory: in MiB.

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
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        raise LocalError(f"{file.name}: cannot keep the {name} ({error.strerror})") from None


def compared(report: Report, opinion: Opinion) -> Report:
    """Return the report with the second opinion; where they differ it fails, with an exit code of its own."""
    differing = differences(report, opinion)
    second = Second(opinion.code, printable(opinion.reason), tuple(map(printable, differing)))
    if not differing:
        return msgspec.structs.replace(report, second=second)
    reason = f"The two auditors disagree, so one of them is wrong: {'; '.join(second.differences)}."
    return msgspec.structs.replace(report, ok=False, code=DISAGREE, conclusion=reason, second=second)


def differences(report: Report, opinion: Opinion) -> list[str]:
    """Return in what the two auditors differ. Of a log that both refuse nothing else is compared."""
    if report.code != opinion.code:
        reason = f"'{opinion.reason}'" if opinion.reason else "no fault"
        return [f"exit code {report.code} ({report.conclusion}) and {opinion.code} (the second: {reason})"]
    if report.code == FAILS:
        return []
    verdict, drawn = report.verdict, report.statistic
    pairs: dict[str, tuple[object, object]] = {
        "session": (report.session, opinion.session),
        "run id": (report.run_id, opinion.run_id),
        "head": (report.head, opinion.head),
        "session head": (report.session_head, opinion.session_head),
        "entries": (report.entries, opinion.entries),
        "try": ((report.position, report.tries), (opinion.position, opinion.tries)),
    }
    if verdict is not None:
        pairs |= {
            "counted": (verdict.counted, opinion.counted),
            "excluded": (
                tuple((item.party, item.sequence, item.reason) for item in verdict.excluded),
                tuple((name, entry, FALSE.get(reason, reason)) for name, entry, reason in opinion.excluded),
            ),
            "silent": (verdict.silent, opinion.silent),
            "void edges": (verdict.void_edges, opinion.void),
            "average": (verdict.average, opinion.average),
            "delta": (verdict.delta, opinion.delta),
        }
        computed = {
            "standard error": (verdict.standard_error, opinion.standard_error, ROUNDED),
            "bias": (verdict.bias, opinion.bias, ROUNDED),
            # A part of delta moves epsilon by a smaller part.
            "epsilon": (verdict.epsilon, opinion.epsilon, 1e-8 + CONVOLVED / (verdict.delta or 1.0)),
        }
        pairs |= {
            name: (one, other) for name, (one, other, far) in computed.items() if not _near(one, other, far)
        }
        pairs |= _answers(verdict, opinion)
    logged = report.receipt
    contribution = None if logged is None else (logged.party, logged.index, logged.counted)
    pairs["receipt"] = (contribution, opinion.receipt)
    if drawn is None or opinion.statistic is None:
        pairs["kind of run"] = (drawn is None, opinion.statistic is None)
    else:
        names = StatisticVerdict.__struct_fields__
        pairs |= {name: (getattr(drawn, name), getattr(opinion.statistic, name)) for name in names}
    return [f"{name}: {one} and {other}" for name, (one, other) in pairs.items() if one != other]


def _answers(verdict: Verdict, opinion: Opinion) -> dict[str, tuple[object, object]]:
    """Return the answers about records that differ, with those of both, by what was asked."""
    if verdict.answers is None or opinion.answers is None:
        return {"kind of answers": (verdict.answers is None, opinion.answers is None)}
    own: dict[str, tuple[list[float | None], list[float | None]]] = {}
    for one in verdict.answers["estimates"]:
        values, errors = own.setdefault(one["statistic"], ([], []))
        values.append(one["value"])
        errors.append(one["standard_error"])
    differing: dict[str, tuple[object, object]] = {}
    for answer in opinion.answers:
        values, errors = own.get(answer.statistic, ([], []))
        if not _all_near(errors, answer.errors):
            differing[f"standard errors of {answer.statistic}"] = (tuple(errors), answer.errors)
        if not _all_near(values, answer.values, errors):
            differing[f"values of {answer.statistic}"] = (tuple(values), answer.values)
    return differing


def _all_near(
    first: Sequence[float | None], second: Sequence[float | None], errors: Sequence[float | None] = ()
) -> bool:
    """Tell whether numbers are the same, but for a part of themselves, or of their standard errors."""
    if len(first) != len(second):
        return False
    slack = [ROUNDED * (error or 0.0) for error in errors] or [0.0] * len(first)
    return all(
        _near(one, other, ROUNDED) or (one is not None and other is not None and abs(one - other) <= each)
        for one, other, each in zip(first, second, slack, strict=True)
    )


def _near(one: float | None, other: float | None, far: float) -> bool:
    """Tell whether two numbers, computed in different ways, are the same."""
    return one == other or (one is not None and other is not None and math.isclose(one, other, rel_tol=far))


def second_opinion(path: Path, options: list[str], seconds: float, memory: int) -> Opinion:
    """Run the second auditor on a file; raise LocalError if it has no opinion."""
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
    file.seek(0)
    return file.read(most)


@contextlib.contextmanager
def _as_file(source: str | os.PathLike[str], timeout: float) -> Iterator[Path]:
    """Yield a file with the log, which both auditors read: its own, or of a URL or a pipe a copy."""
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
