"""Selection of the session, request and run that an audit is about, and the conclusion about them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, BinaryIO

import msgspec

from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.begin import check_begin, session_head
from smpc_dp.engine.registry import built_in_protocols
from smpc_dp.errors import Check, ConfigCheck, ConfigError, ConfigIssue, LocalError, VerificationError
from smpc_dp.files import read_bounded
from smpc_dp.logs.checkpoint import check_witnesses, read_checkpoint
from smpc_dp.logs.log import MAX_LINE_BYTES, Header
from smpc_dp.logs.receipt import LogReceipt, read_receipt
from smpc_dp.logs.runs import SessionLog, read_all
from smpc_dp.logs.signed_note import COSIGNATURE, MAX_BYTES, NoteKey
from smpc_dp.session.session_file import load_session
from smpc_dp.session.tasks import BESIDE
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context

_DIGEST = re.compile(r"[0-9a-f]{64}")
# Exit codes: everything holds for the given session, request and run; it does not hold; no session was given;
# a session was given, but nothing determines which of its runs.
HOLDS, FAILS, NO_SESSION, SOME_RUN = 0, 1, 3, 4


@dataclass(frozen=True)
class CheckpointPolicy:
    """Arguments of an audit: a checkpoint of the session log, and how many witnesses must have cosigned.

    The witnesses are those that the auditor trusts; a log cannot name them.
    """

    path: str | os.PathLike[str]
    note: bytes
    witnesses: tuple[NoteKey, ...] = ()
    least: int = 0

    @classmethod
    def of(
        cls, checkpoint: str | os.PathLike[str], witnesses: Sequence[str] = (), least: int | None = None
    ) -> CheckpointPolicy:
        """Read a checkpoint file and check witnesses' keys, of which `least` (default: all) must sign.

        Raises ConfigError or LocalError.
        """
        keys = tuple(NoteKey.parse(text, "witness") for text in witnesses)
        for key in keys:
            if key.kind != COSIGNATURE:
                raise ConfigError.at("witness", f"{key.name}: not a witness's key", ConfigCheck.FORMAT)
        if len({key.public_key for key in keys}) < len(keys):
            raise ConfigError.at("witness", "two witnesses with one key", ConfigCheck.DUPLICATE)
        least = len(keys) if least is None else least
        if not 0 <= least <= len(keys):
            raise ConfigError.at(
                "witnesses", f"{least} of {len(keys)} witnesses cannot have cosigned", ConfigCheck.RANGE
            )
        return cls(checkpoint, read_bounded(checkpoint, "the checkpoint", MAX_BYTES), keys, least)


class LoggedCheckpoint(msgspec.Struct, frozen=True):
    """Result of comparing a checkpoint with a session log: its number of lines, and who cosigned."""

    size: int
    witnesses: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """Checked arguments of an audit: what the user says that the log must match (session, run, head...)."""

    session: str | None = None
    request: int | None = None
    run: str | None = None
    head: str | None = None
    log: SessionLog | None = None
    receipt: LogReceipt | None = None
    checkpoint: CheckpointPolicy | None = None

    @classmethod
    def of(
        cls,
        session: str | os.PathLike[str] | None = None,
        session_log: str | os.PathLike[str] | None = None,
        request: int | None = None,
        run: str | None = None,
        head: str | None = None,
        receipt: LogReceipt | str | os.PathLike[str] | None = None,
        checkpoint: CheckpointPolicy | str | os.PathLike[str] | None = None,
        *,
        keep: IO[bytes] | None = None,
    ) -> Wanted:
        """Read and check the arguments of an audit; raise ConfigError, LocalError or VerificationError.

        `keep` gets the bytes of the session log, as they were read.
        """
        faults = [
            ConfigIssue(name, f"{given!r} is not 64 lower-case hex digits", ConfigCheck.FORMAT)
            for name, given in (("run", run), ("head", head))
            if given is not None and not _DIGEST.fullmatch(given)
        ]
        if request is not None and request < 1:
            faults.append(ConfigIssue("request", f"must be 1 or more, is {request}", ConfigCheck.RANGE))
        if checkpoint is not None and session_log is None:
            reason = "a checkpoint is of the session log: give that too"
            faults.append(ConfigIssue("checkpoint", reason, ConfigCheck.MISSING))
        if faults:
            raise ConfigError(faults)
        policy = checkpoint
        if policy is not None and not isinstance(policy, CheckpointPolicy):
            policy = CheckpointPolicy.of(policy)
        digest = None if session is None else session_digest_of(session)
        log = None if session_log is None else read_session_log(session_log, keep)
        if receipt is None:
            return cls(digest, request, run, head, log, None, policy)
        receipt = receipt if isinstance(receipt, LogReceipt) else read_receipt(receipt)
        given = {"session": digest, "run": run, "head": head}
        own = {"session": receipt.session, "run": receipt.run_id}
        own["head"] = receipt.head if head is None else head
        issues = [
            ConfigIssue(name, f"the receipt of {receipt.party} is of {own[name]}", ConfigCheck.CONFLICT)
            for name in ("session", "run")
            if given[name] not in (None, own[name])
        ]
        if issues:
            raise ConfigError(issues)
        return cls(own["session"], request, own["run"], own["head"], log, receipt, policy)

    def check_checkpoint(self, header: Header, public_key: bytes | None) -> LoggedCheckpoint | None:
        """Return the user's checkpoint, checked by the session log, None if not given; raise if it is wrong.

        Raises VerificationError if it is not of the session log, does not cover the run of the log, or too
        few witnesses have cosigned it.
        """
        if self.checkpoint is None or self.log is None:
            return None
        if public_key is None:
            raise VerificationError("the session names no key of checkpoints", Check.NOT_SIGNED)
        logged, note = read_checkpoint(self.checkpoint.note, public_key)
        logged.check(self.log)
        if self.log.number_at(logged.size) < header.number:
            raise VerificationError(
                f"the checkpoint is of {logged.size} lines, without run {header.number}", Check.NOT_LOGGED
            )
        names = check_witnesses(note, self.checkpoint.witnesses, self.checkpoint.least)
        return LoggedCheckpoint(logged.size, names)

    def check_request(self, header: Header) -> None:
        """Raise VerificationError if the log's header has another request number than the user gave."""
        if self.request is not None and header.request != self.request:
            raise VerificationError(
                f"the log is of request {header.request}, not of request {self.request}", Check.OTHER_REQUEST
            )

    def check_run(self, run_id: str) -> None:
        """Raise VerificationError if the log's run id is not the one that the user gave."""
        if self.run is not None and run_id != self.run:
            raise VerificationError(f"the run is {run_id}, not {self.run}", Check.OTHER_RUN)


@dataclass(frozen=True)
class Selected:
    """Result of finding a log's run in the session log: its place, and whether the arguments determine it."""

    session_head: bytes
    # The run's place among the runs of its request that the session log lists, and the number of all runs
    # that it lists: a failed request is asked for again under another number.
    position: int | None
    tries: int | None
    runs: int | None
    # Whether the arguments determine this run.
    certain: bool
    # The reason if not.
    why: str


def session_digest_of(text: str | os.PathLike[str]) -> str:
    """Return a session's hex digest: the text itself, or of the session file there; else ConfigError."""
    given = os.fspath(text)
    if _DIGEST.fullmatch(given):
        return given
    # Not Path.exists, which raises for a name that no file can have.
    if not os.path.exists(given):
        raise ConfigError.at(
            "session", f"{given!r} is neither 64 lower-case hex digits nor a file", ConfigCheck.FORMAT
        )
    return load_session(given, audited=True).digest.hex()


def read_session_log(path: str | os.PathLike[str], keep: IO[bytes] | None = None) -> SessionLog:
    """Read a session log from a file, copying it to `keep`; LocalError if unreadable or invalid.

    Raises LocalError if the file cannot be read or is no session log.
    """
    try:
        with open(path, "rb") as file:
            log = read_all(_lines(file, keep))
        if keep is not None:
            keep.flush()
        return log
    except OSError as error:
        raise LocalError(f"{path}: cannot read the session log ({error.strerror})") from None
    except VerificationError as error:
        raise LocalError(f"{path}: not a session log ({error})") from error


def _lines(file: BinaryIO, keep: IO[bytes] | None) -> Iterator[bytes]:
    """Yield the lines of an untrusted session log, copied to `keep`; VerificationError for a long one."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise VerificationError(f"a line is longer than {MAX_LINE_BYTES} bytes", Check.TOO_LONG)
        if keep is not None:
            keep.write(line)
        yield line.removesuffix(b"\n")


def identify_run(wanted: Wanted, header: Header, head: bytes, context: Context, quorum: int) -> Selected:
    """Return the run's place in the session log, and if the arguments determine it; raise if unlisted.

    Raises VerificationError or PeerFault if the session log does not list it so, or the given head is that of
    neither log.
    """
    own = session_head(header, context.scope)
    position = tries = runs = None
    later: set[str] = set()
    last = True
    if (log := wanted.log) is not None:
        _check_listed(log, header, head, own, context, quorum)
        same = [line.number for line in log.lines if line.request == header.request]
        position, tries, last = same.index(header.number) + 1, len(same), header.number == same[-1]
        runs = len(log.lines)
        later = {log.head(number).hex() for number in range(header.number, len(log.lines) + 1)}
    ended = wanted.head in (head.hex(), own.hex())
    # Also with a run id: a party with another head of the run has seen another log of it.
    if wanted.head is not None and not ended and wanted.head not in later:
        raise VerificationError(
            "the head that was given is not of this run, nor of a session log after it", Check.NOT_LOGGED
        )
    certain = (
        wanted.run is not None or ended or (wanted.head in later and wanted.request is not None and last)
    )
    if certain:
        why = ""
    elif tries is None:
        why = "a restart repeats requests, and no run id or head from a party was given"
    elif not last:
        why = f"it is try {position} of {tries} of this request"
    else:
        why = "a session log can be cut short, and no run id or head from a party was given"
    return Selected(own, position, tries, runs, certain, why)


def check_one_log(selected: Selected, wanted: Wanted, head: bytes, doubt: str) -> Selected:
    """Return `selected`, or a copy marked as not certain if by `doubt` the run may have a second log.

    Then only the last head of the log, from a party's result, determines the log.
    """
    if not doubt or not selected.certain or wanted.head == head.hex():
        return selected
    why = f"of which there may be another log, since {doubt}, and no head of the end of its log was given"
    return replace(selected, certain=False, why=why)


def _check_listed(
    log: SessionLog, header: Header, head: bytes, own: bytes, context: Context, quorum: int
) -> None:
    """Raise VerificationError unless a quorum signed that this run, with this head, is in the list."""
    first = (context.session_digest.hex(), context.scope.hex())
    if (log.first.session, log.first.scope) != first:
        raise VerificationError("the session log is of another session or group", Check.OTHER_SESSION)
    if header.number > len(log.lines) or log.head(header.number) != own:
        raise VerificationError("the session log does not list this run", Check.NOT_LOGGED)
    if header.number < len(log.lines) and log.lines[header.number].before != head.hex():
        raise VerificationError(
            "the session log says that this run ended with another log", Check.LOG_DIFFERS
        )
    certified = log.certified
    if certified is None or certified.certifies < header.number:
        raise VerificationError("no quorum has signed the session log with this run", Check.NO_QUORUM)
    audits = (one.audit for one in built_in_protocols() if one.audit is not None)
    known = {pair for audit in audits for pair in audit.certifies}
    known |= {(beside.protocol, beside.version) for beside in BESIDE.values()}
    if (certified.protocol, certified.version) not in known:
        raise VerificationError(
            "the session log has a certificate of another protocol", Check.BAD_CERTIFICATE
        )
    signed = replace(context, protocol=certified.protocol, version=certified.version)
    check_begin(
        signed,
        quorum,
        bytes.fromhex(log.lines[certified.certifies - 1].run_id),
        log.head(certified.certifies),
        PartySet.unpack(certified.members, len(context.names), context.aggregator),
        m.Certified(certified.members, certified.signers, certified.signatures),
    )


def conclusion(
    faults: tuple[str, ...], result: str | None, header: Header | None, code: int, why: str
) -> str:
    """Return the sentence that concludes an audit, from the faults, the result and the exit code."""
    if code == FAILS or result is None or header is None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return f"This log does not hold: {faults[0] if faults else 'it has no end'}{more}."
    if code == HOLDS:
        return f"Everything holds for the session and run that were given: {result}."
    if code == SOME_RUN:
        return f"This is a run of request {header.request} of the session that was given, {why}: {result}."
    return (
        "Self-consistent; no session was given to compare: identities, bounds, epsilon and c are what its "
        f"writer chose: {result}."
    )
