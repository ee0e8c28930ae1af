"""`smpc-dp audit`: reads the log of a run from a file or over HTTP, and checks it, in parallel.

The run is a verifiable one or a pairwise statistic.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from typing import Any, BinaryIO, Protocol

from smpc_dp.engine.registry import protocol_in
from smpc_dp.engine.session_protocol import Audit
from smpc_dp.errors import (
    Check,
    ConfigCheck,
    ConfigError,
    LocalError,
    SmpcError,
    VerificationError,
    printable,
)
from smpc_dp.logs.auditing import CHANGED, Again, LogAuditor, Verdict
from smpc_dp.logs.audits.audit_receipt import check_end, check_entry, check_log
from smpc_dp.logs.audits.audit_report import LoggedReceipt, Report
from smpc_dp.logs.audits.audit_selection import (
    FAILS,
    HOLDS,
    NO_SESSION,
    SOME_RUN,
    CheckpointPolicy,
    Selected,
    Wanted,
    check_one_log,
    conclusion,
    identify_run,
)
from smpc_dp.logs.audits.log_session import LogSession, parse_session_text, read_long_session
from smpc_dp.logs.log import Entry, Header
from smpc_dp.logs.log_http import HTTP_SECONDS
from smpc_dp.logs.log_source import Reopen, make_rereadable, open_log
from smpc_dp.logs.reader import BadLog, LogReader
from smpc_dp.logs.receipt import LogReceipt
from smpc_dp.session.tasks import BESIDE, Beside
from smpc_dp.wire.batch_verifier import EarlierFault, Workers
from smpc_dp.wire.signing import Context

Progress = Callable[[int, int, int | None], None]


class Observer(Protocol):
    """Interface of an observer that is told of each entry while a log is audited, on the same thread."""

    def began(self, header: Header, session: LogSession) -> None:
        """Called with the log's header (without a very long session) and session, before any entry."""

    def took(self, entry: Entry, byte: int, auditor: LogAuditor) -> None:
        """Called after the auditor accepted an entry; `byte` is its offset, and proofs may be pending."""


def audit(
    source: str | os.PathLike[str],
    *,
    session: str | os.PathLike[str] | None = None,
    session_log: str | os.PathLike[str] | None = None,
    request: int | None = None,
    run: str | None = None,
    head: str | None = None,
    receipt: LogReceipt | str | os.PathLike[str] | None = None,
    checkpoint: CheckpointPolicy | str | os.PathLike[str] | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    timeout: float = HTTP_SECONDS,
    progress: Progress | None = None,
) -> Report:
    """Audit the log of a run, from a file, URL or stdin, and return a report with the verdict.

    Args:
        source: path of a log as JSON lines, or an http(s) URL of one, or "-": standard input.
        session: the session digest in hex, or the session file; without it only that the log is
            self-consistent can be found.
        session_log: path of the aggregator's session log: how many runs of the request there were.
        request: its number. run: the run id. head: from a party's result, of the run's log or of the session
            log, in hex. `run`, such a head, or a head of the session log after the run with `request` and
            `session_log` say which run it is; an aggregator that starts again can make many of one number.
            Of a pairwise statistic only the last head of its log does.
        receipt: `result.receipt` of a party, or a file with it as JSON: the log must have its entry. It says
            which session and run are meant, where nothing else does.
        checkpoint: a file with a signed checkpoint of the session log, which must be of these lines and cover
            this run; or `CheckpointPolicy.of` the file and the keys of witnesses who must have cosigned it.
        threads: of this process, that verify what is in the log; by default one for each processor.
        executor: verifies signatures and proofs in their place; it is sent entries of the log alone.
        timeout: seconds from the first connection to the last byte of a URL, the audit included.
        progress: called with the line, the bytes read and the bytes there are (None: unknown).

    Raises:
        LocalError: a source cannot be read. ConfigError: an argument is wrong.
    """
    wanted = Wanted.of(session, session_log, request, run, head, receipt, checkpoint)
    with open_log(source, timeout) as (stream, size):
        return audit_stream(
            stream, size=size, wanted=wanted, threads=threads, executor=executor, progress=progress
        )


def audit_stream(
    stream: BinaryIO,
    *,
    size: int | None = None,
    wanted: Wanted = Wanted(),  # noqa: B008 - it is frozen
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    reopen: Reopen | None = None,
    observer: Observer | None = None,
) -> Report:
    """Audit the log of a run that is read from a binary stream, and return a report with the verdict.

    `reopen` opens the same log again, up to where it has been read at least; without it the stream itself is
    read again. `observer` is told of the header and of each entry.

    `wanted.session` is the digest of the session that the auditor knows. Another session may be anybody's, so
    the work for its plan is bounded: LocalError beyond that.

    After a fault the log may have to be read again: the stream is then rewound, and set back to its position.
    A stream that cannot be rewound, such as a pipe, is copied to a temporary file; LocalError where the copy
    is needed and there was no room for it, or it would exceed `STORED_BYTES`.
    """
    if threads is not None and threads < 1:
        raise ConfigError.at("threads", f"must be 1 or more, is {threads}", ConfigCheck.RANGE)
    begun = time.perf_counter()
    requested = ["roster", "parameters", "run_id", "head", "verdict", "statistic", "session", "header"]
    known: dict[str, Any] = dict.fromkeys([*requested, "selected", "checkpoint", "checkpoint_key"])
    known |= {"entries": 0, "bytes": 0, "noted": ()}
    bad: BadLog | None = None
    try:
        readable, again = make_rereadable(stream) if reopen is None else (stream, reopen)
        with LogReader(readable) as reader, Workers(threads or os.cpu_count() or 1, executor) as pool:
            known["run_id"], known["header"] = reader.header.run_id, reader.header
            _read(reader, functools.partial(_entries, again), pool, wanted, known, size, progress, observer)
    except BadLog as error:
        bad = error
    ended: Verdict | None = known["verdict"] or known["statistic"]
    selected: Selected | None = known["selected"]
    faults = (str(bad), *known["noted"]) if bad is not None else () if ended is None else ended.faults
    # Parts come from the log: control characters are removed for terminals.
    faults = tuple(map(printable, faults))
    code = FAILS
    if not faults and selected is not None:
        code = SOME_RUN if not selected.certain else HOLDS
        code = NO_SESSION if wanted.session is None else code
    result = None if ended is None else ended.summary
    return Report(
        ok=code == HOLDS,
        code=code,
        conclusion=conclusion(
            faults, result, known["header"], code, "" if selected is None else selected.why
        ),
        limits="" if ended is None or selected is None else ended.limits(known["corrupt"]) + _appended(known),
        session=known["session"],
        session_checked=wanted.session is not None and wanted.session == known["session"],
        request=None if known["header"] is None else known["header"].request,
        number=None if known["header"] is None else known["header"].number,
        session_head=None if selected is None else selected.session_head.hex(),
        position=None if selected is None else selected.position,
        tries=None if selected is None else selected.tries,
        roster=known["roster"],
        parameters=known["parameters"],
        run_id=known["run_id"],
        head=known["head"],
        line=None if bad is None else bad.line,
        byte=None if bad is None else bad.byte,
        check=None if bad is None else bad.check,
        faults=faults,
        excluded=() if ended is None else ended.excluded,
        verdict=known["verdict"],
        statistic=known["statistic"],
        entries=known["entries"],
        bytes=known["bytes"],
        seconds=time.perf_counter() - begun,
        receipt=None if code == FAILS else _receipt(wanted, ended),
        checkpoint=None if code == FAILS else known["checkpoint"],
    )


def _receipt(wanted: Wanted, verdict: Verdict | None) -> LoggedReceipt | None:
    """Return the receipt's party, its entry, and if the verdict counts it; None without one of the two."""
    receipt = wanted.receipt
    if receipt is None or verdict is None:
        return None
    return LoggedReceipt(receipt.party, receipt.index, receipt.party in verdict.counted)


def _read(
    reader: LogReader,
    again: Again,
    pool: Workers,
    wanted: Wanted,
    known: dict[str, Any],
    size: int | None,
    progress: Progress | None,
    observer: Observer | None,
) -> None:
    """Read and audit a log to its end; put results in `known` as they come; raise BadLog for a bad line."""
    try:
        session = _session(reader)
        known["roster"], known["parameters"] = session.roster_digest.hex(), dict(session.parameters)
        known["session"], known["checkpoint_key"] = session.digest.hex(), session.checkpoint_key
        if observer is not None:
            observer.began(reader.header, session)
        if wanted.receipt is None and wanted.session not in (None, known["session"]):
            raise VerificationError(
                f"the session is {known['session']}, not {wanted.session}", Check.OTHER_SESSION
            )
        if wanted.receipt is not None:
            check_log(wanted.receipt, known["session"], reader.header.run_id)
        wanted.check_request(reader.header)
        kind = find_audit(reader.header, session)
        if not (kind and kind.redraws):
            wanted.check_run(reader.header.run_id)
        digest = None if wanted.session is None else session.digest
        auditor = _auditor(kind, reader.header, session, digest, again, pool)
    except LocalError:
        raise
    except SmpcError as error:
        raise reader.locate(error) from None
    try:
        _take_all(reader, auditor, wanted, known, size, progress, observer)
    except BadLog:
        # Checks on other threads may have found an earlier line wrong.
        _settle(auditor)
        known["noted"] = auditor.noted
        raise


def _settle(auditor: LogAuditor) -> None:
    """Wait until the auditor's parallel checks are done; raise BadLog at the first entry with a fault."""
    try:
        auditor.settle()
    except EarlierFault as fault:
        raise BadLog(*fault.position, str(fault), fault.check) from None


def _take_all(
    reader: LogReader,
    auditor: LogAuditor,
    wanted: Wanted,
    known: dict[str, Any],
    size: int | None,
    progress: Progress | None,
    observer: Observer | None,
) -> None:
    """Pass every entry of a log to the auditor in order; raise BadLog at the first invalid one."""

    def check(entry: Entry) -> None:
        auditor.check_signature(entry, (reader.line, reader.byte))

    head = reader.chain.head
    for entry in reader.entries(check, auditor.longest):
        try:
            auditor.take(entry, head, (reader.line, reader.byte))
            if wanted.receipt is not None:
                check_entry(wanted.receipt, entry)
        except LocalError:
            raise
        except EarlierFault as fault:
            raise BadLog(*fault.position, str(fault), fault.check) from None
        except SmpcError as error:
            raise reader.locate(error) from None
        head = reader.chain.head
        known["entries"], known["bytes"] = reader.chain.length, reader.bytes_read
        if observer is not None:
            observer.took(entry, reader.byte, auditor)
        if progress is not None:
            progress(reader.line, reader.bytes_read, size)
    _settle(auditor)
    _judge(reader, auditor, wanted, known, head)
    known["head"] = head.hex()


def _judge(
    reader: LogReader,
    auditor: LogAuditor,
    wanted: Wanted,
    known: dict[str, Any],
    head: bytes,
) -> None:
    """Check run, receipt and checkpoint, and put the verdict in `known`; raise BadLog if a check fails."""
    try:
        wanted.check_run(auditor.last_run_id())
        result = identify_run(wanted, reader.header, head, auditor.context, auditor.quorum)
        known["checkpoint"] = wanted.check_checkpoint(reader.header, known["checkpoint_key"])
        known[auditor.part] = auditor.verdict(result.runs)
        if wanted.receipt is not None:
            end = (known[auditor.part].attested, head.hex(), reader.chain.length)
            check_end(wanted.receipt, auditor.context, auditor.quorum, *end)
        known["selected"], known["corrupt"] = (
            check_one_log(result, wanted, head, auditor.doubt),
            auditor.corrupt,
        )
    except SmpcError as error:
        raise reader.locate(error) from None


def _session(reader: LogReader) -> LogSession:
    """Return the session in a log's header, checked; raise if the header or the session is invalid."""
    text = reader.session
    long = read_long_session(text) if text.long else None
    return parse_session_text(text.whole()) if long is None else long


def find_audit(header: Header, session: LogSession) -> Audit | None:
    """Return the kind of audit for a log with this header in this session; None if such runs have no log."""
    described = protocol_in(session.protocol, session.version)
    if described is None:
        return None
    if described.is_sum:
        for beside in BESIDE.values():
            if header.operation.startswith(f"{beside.protocol} "):
                return _audit_of(beside)
    return described.audit if described.is_logged(session.parameters) else None


def _audit_of(beside: Beside) -> Audit:
    """Return the kind of audit of a protocol run beside sums; LocalError if it is not installed."""
    if not beside.is_there:
        raise LocalError(f"the log needs the capability '{beside.task}', which is not in this installation")
    return beside.find().audit


def _auditor(
    kind: Audit | None,
    header: Header,
    session: LogSession,
    known: bytes | None,
    again: Again,
    pool: Workers,
) -> LogAuditor:
    """Return a new auditor for a log with this header; VerificationError if the session does not fit."""
    if kind is None or session.aggregator is None:
        raise VerificationError(f"a run of '{session.protocol}' that is not verifiable", Check.NOT_VERIFIABLE)
    context = functools.partial(
        Context,
        protocol=kind.protocol or session.protocol,
        version=session.version,
        session_digest=session.digest,
        request=header.request,
        aggregator=session.aggregator,
        keys=session.keys,
        operation=header.operation,
        grouped=kind.group_of is not None,
    )
    names: Sequence[str] = session.names
    kind.check_run_id(context(names=names), header)
    parameters: Any = session.planned(known) if kind.planned else session.most_corrupt(known)
    if kind.group_of is not None:
        names, parameters = kind.group_of(session, parameters, header)
    return kind.auditor(context(names=names), parameters, header, again, pool)


def _entries(reopen: Reopen) -> Generator[tuple[Entry, bytes], None, None]:
    """Yield a log's entries read anew, each with the hash before it; VerificationError if it has changed."""
    try:
        with reopen() as stream, LogReader(stream) as reader:
            head = reader.chain.head
            for entry in reader.entries():
                yield entry, head
                head = reader.chain.head
    except BadLog:
        raise VerificationError(CHANGED, Check.LOG_DIFFERS) from None


def _appended(known: dict[str, Any]) -> str:
    """Return the sentence on what witnesses' cosignatures do not show; "" without cosignatures."""
    if known["checkpoint"] is None or not known["checkpoint"].witnesses:
        return ""
    return " A witness's cosignature says that the session log was only appended to, not that it is right."
