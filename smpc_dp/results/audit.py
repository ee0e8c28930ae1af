"""`smpc-dp audit RESULT`: the audit of a party's stored result, and the comparison of two of them.

Specification: protocols/secagg/signed-results.md.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec

from smpc_dp.errors import Check, ConfigCheck, ConfigError, PeerFault, SmpcError, VerificationError, printable
from smpc_dp.logs.audits.audit_selection import FAILS, HOLDS, NO_SESSION, SOME_RUN
from smpc_dp.results.signed_total import SignedTotal
from smpc_dp.results.stored import StoredFile, read_result
from smpc_dp.session.session_file import SessionFile, load_session

# Exit codes beside those of logs: the file has no total that anybody has signed, or there is nothing to
# compare; the aggregator has signed two results of one run.
NOTHING_SIGNED, TWO_RESULTS = 6, 8
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Checks of the body alone: whoever is corrupt, the aggregator has signed what fails one.
OF_BODY = (Check.MALFORMED, Check.NOT_CANONICAL)
# Threads of a check of commitments.
THREADS = 2
PRIVATE = (
    "Nothing else in the file was checked: claims in words, clipped values, faults, ledger and budget, which "
    "are the party's word, and fields that a signed result does not have."
)

UNAUDITED = "That it is right, and that a quorum agreed on its parties, is what an audit of each finds."


class ResultReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of an audit of a party's stored result, as `smpc-dp audit RESULT --json` prints it.

    Attributes:
        ok: everything holds for the session and run that were given; `code` is 0.
        code: the exit code. 0: ok. 1: the result does not hold. 3: no session file was given. 4: it holds,
            and no run id was given. 6: the aggregator has signed no total in it.
        conclusion: the verdict in one sentence. limits: what it needs, and does not show.
        session: its digest in hex, as the result says; session_checked: whether it is that of the file.
        request: its number; operation: its question, kind and label; run_id: in hex.
        receiver: the party that the aggregator signed for.
        checked: whether the total was checked against commitments; None where it was not reached.
        checkers: how many survivors at least have attested that they checked it for all, of more than 10,000
            parties; else None.
        corrupt: c, of the session; with more corrupt parties the result proves nothing.
        survivors, parties: how many there are.
        digest: SHA-256, in hex, of the body that the aggregator signed.
        check: the check that failed, else None. culprit: the aggregator, where its signature shows the fault.
        faults: what does not hold.
    """

    ok: bool
    code: int
    conclusion: str
    limits: str = ""
    session: str | None = None
    session_checked: bool = False
    request: int | None = None
    operation: str | None = None
    run_id: str | None = None
    receiver: str | None = None
    checked: bool | None = None
    checkers: int | None = None
    corrupt: int | None = None
    survivors: int | None = None
    parties: int | None = None
    digest: str | None = None
    check: Check | None = None
    culprit: str | None = None
    faults: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def statement(self) -> str:
        """Sentences for a person: first what the audit cannot show, then its conclusion."""
        return " ".join(part for part in (self.limits, self.conclusion) if part)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Report of comparing two parties' results of one run, as `smpc-dp audit --compare --json` prints it.

    Attributes:
        ok: both have one total; `code` is 0.
        code: the exit code. 0: ok. 1: one of the files does not hold. 3: no session file was given. 6: there
            is nothing to compare. 8: the aggregator has signed two results of one run.
        conclusion: in one sentence.
        session, run_id: in hex, of both; operation: the question.
        receivers: whom the aggregator signed for. digests: SHA-256, in hex, of what it signed in each.
        check: the check that failed, else None. culprit: the aggregator, with the code 8.
    """

    ok: bool
    code: int
    conclusion: str
    session: str | None = None
    operation: str | None = None
    run_id: str | None = None
    receivers: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    check: Check | None = None
    culprit: str | None = None


def audit_result(
    path: str | os.PathLike[str],
    *,
    session: str | os.PathLike[str] | None = None,
    run: str | None = None,
    request: int | None = None,
) -> ResultReport:
    """Audit a party's stored result against the session file: signatures and numbers; return a report.

    Args:
        path: of the file, as `smpc-dp party --out` writes it.
        session: the session file. run: the run id, in hex, from a party. request: its number.

    Raises:
        LocalError: a file cannot be read. ConfigError: an argument, or the session file, is wrong.
    """
    if run is not None and not _DIGEST.fullmatch(run):
        raise ConfigError.at("run", f"{run!r} is not 64 lower-case hex digits", ConfigCheck.FORMAT)
    begun = time.perf_counter()
    known: dict[str, Any] = {}
    try:
        report = _audited(read_result(path), session_of(session), run, request, known)
    except (PeerFault, VerificationError) as error:
        report = _refused(error, known)
    return msgspec.structs.replace(report, seconds=time.perf_counter() - begun)


def compare_results(
    one: str | os.PathLike[str],
    other: str | os.PathLike[str],
    *,
    session: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Compare two parties' stored results of one run; report whether the aggregator signed two totals."""
    loaded, totals = session_of(session), list[SignedTotal]()
    for path in (one, other):
        try:
            stored = read_result(path)
            if loaded is None:
                return without_session()
            if stored.result is None or stored.session_digest != loaded.digest.hex():
                reason = "has no signed result" if stored.result is None else "is of another session"
                return _nothing(f"{path} {reason}")
            total = SignedTotal.of(stored, stored.result, loaded)
            total.check_names()
            total.check_run_id()
            total.check_signature()
        except (PeerFault, VerificationError) as error:
            return _bad_file(path, error)
        totals.append(total)
    left, right = totals
    if left.run_id != right.run_id:
        return _nothing(f"they are of two runs, {left.run_id.hex()} and {right.run_id.hex()}")
    if left.body != right.body:
        return _two_results(left, right)
    if left.receiver == right.receiver:
        return _nothing(f"both are of {left.receiver}")
    for path, total in ((one, left), (other, right)):
        try:
            total.check_sets()
            total.check_numbers(total.check_digests())
        except (PeerFault, VerificationError) as error:
            return _bad_file(path, error)
    reason = (
        f"One total: {left.context.aggregator} has signed the same for {left.receiver} and {right.receiver}."
    )
    return Comparison(ok=True, code=HOLDS, conclusion=f"{reason} {UNAUDITED}", **_of_both(left, right))


def without_session() -> Comparison:
    """Return the report that says that nothing was compared since no session file was given."""
    reason = "Without the session file nobody knows the aggregator's key: give --session."
    return Comparison(ok=False, code=NO_SESSION, conclusion=reason)


def _of_both(one: SignedTotal, other: SignedTotal) -> dict[str, Any]:
    """Return fields of a comparison's report that two results of a run share: names, run and digests."""
    return {
        "session": one.context.session_digest.hex(),
        "operation": one.context.operation,
        "run_id": one.run_id.hex(),
        "receivers": (one.receiver, other.receiver),
        "digests": tuple(hashlib.sha256(total.body).hexdigest() for total in (one, other)),
    }


def _two_results(one: SignedTotal, other: SignedTotal) -> Comparison:
    """Return the report that the aggregator has signed two different results of one run."""
    aggregator = one.context.aggregator
    receivers = f"{one.receiver} and {other.receiver}"
    reason = f"Two totals: {aggregator} has signed two results of one run, for {receivers}."
    return Comparison(
        ok=False,
        code=TWO_RESULTS,
        conclusion=reason,
        check=Check.EQUIVOCATION,
        culprit=aggregator,
        **_of_both(one, other),
    )


def _bad_file(path: str | os.PathLike[str], error: PeerFault | VerificationError) -> Comparison:
    """Return the report that one of two result files fails a check; it accuses nobody."""
    text = error.reason if isinstance(error, PeerFault) else str(error)
    reason = printable(f"{path}: {text}")
    return Comparison(ok=False, code=FAILS, conclusion=f"A file does not hold: {reason}.", check=error.check)


def _nothing(reason: str) -> Comparison:
    """Return the report that two results cannot be compared, with the reason."""
    return Comparison(
        ok=False, code=NOTHING_SIGNED, conclusion=f"There is nothing to compare: {printable(reason)}."
    )


def session_of(path: str | os.PathLike[str] | None) -> SessionFile | None:
    """Load and return a session file; None if no file, or only a digest, was given."""
    if path is None or (_DIGEST.fullmatch(os.fspath(path)) and not os.path.exists(path)):
        return None
    return load_session(path, audited=True)


def _audited(
    stored: StoredFile,
    session: SessionFile | None,
    run: str | None,
    request: int | None,
    known: dict[str, Any],
) -> ResultReport:
    """Check a stored result step by step and return the report; put facts for any report in `known`."""
    known["session"] = stored.session_digest
    if session is None:
        reason = "No session file was given: names, keys and plan are not known, and nothing was checked."
        return ResultReport(ok=False, code=NO_SESSION, conclusion=reason, **known)
    if stored.session_digest not in (None, session.digest.hex()):
        reason = f"the session is {stored.session_digest}, not {session.digest.hex()}"
        raise VerificationError(reason, Check.OTHER_SESSION)
    known["session_checked"] = stored.session_digest is not None
    if stored.result is None:
        return ResultReport(
            ok=False, code=NOTHING_SIGNED, conclusion=_unsigned(stored, session), limits="", **known
        )
    total = SignedTotal.of(stored, stored.result, session)
    total.check_names()
    total.check_run_id()
    message = stored.result.evidence.signed_result
    known |= {"request": message.request, "operation": message.operation}
    known |= {"run_id": total.run_id.hex(), "receiver": message.receiver}
    known["corrupt"] = total.parameters.plan.max_corrupt
    total.check_sets()
    participation = total.check_digests()
    total.check_certificates()
    total.check_signature()
    known["digest"] = hashlib.sha256(total.body).hexdigest()
    if total.parameters.is_checked and not total.parameters.has_checkers:
        # Not at the top: most results need none.
        from smpc_dp import generator_cache

        generator_cache.load_generators(total.parameters.encoding.ring_length, THREADS)
    total.check_commitments()
    total.check_numbers(participation)
    if request not in (None, message.request):
        reason = f"the result is of request {message.request}, not of request {request}"
        raise VerificationError(reason, Check.OTHER_REQUEST)
    if run not in (None, total.run_id.hex()):
        raise VerificationError(f"the run is {total.run_id.hex()}, not {run}", Check.OTHER_RUN)
    known |= {"survivors": len(total.survivors), "parties": len(total.context.names)}
    known["checked"] = total.parameters.is_checked
    if total.parameters.has_checkers:
        known["checkers"] = total.parameters.plan.check_quorum
    return _held(total, known, certain=run is not None)


def _held(total: SignedTotal, known: dict[str, Any], *, certain: bool) -> ResultReport:
    """Return the report on a result that passed all checks; the code says if the run is certain."""
    context, corrupt = total.context, total.parameters.plan.max_corrupt
    over = f"over {known['survivors']} of {known['parties']} parties"
    if total.parameters.has_checkers:
        result = (
            f"{known['checkers']} survivors or more have checked the total {over} for all, and signed that"
        )
    elif total.parameters.is_checked:
        result = f"the total {over} was checked against the commitments of the survivors"
    else:
        result = f"the total {over} is {context.aggregator}'s word and was not checked"
    proves = f"With more than c = {corrupt} corrupt parties this proves nothing."
    limits = f"{proves} {_not_checked(total)}"
    if certain:
        begin = "Everything holds" if total.parameters.is_checked else "The signatures hold"
        conclusion = f"{begin} for the session and run that were given: {result}."
        return ResultReport(ok=True, code=HOLDS, conclusion=conclusion, limits=limits, **known)
    why = "a restart repeats requests, and no run id from a party was given"
    conclusion = f"This is a run of request {context.request} of the session that was given, {why}: {result}."
    return ResultReport(ok=False, code=SOME_RUN, conclusion=conclusion, limits=limits, **known)


def _not_checked(total: SignedTotal) -> str:
    """Return sentences on what in a result file the audit did not check."""
    if total.parameters.steps > 1:
        return f"The estimates follow from several requests, and were not computed again. {PRIVATE}"
    return PRIVATE


def _unsigned(stored: StoredFile, session: SessionFile) -> str:
    """Return a sentence on how else to audit a result that has no signed total."""
    if not stored.evidence:
        return (
            "This result has no evidence: what it was computed from is audited by the logs of the runs, "
            "where these have any (smpc-dp audit LOG), and else by nothing that was stored."
        )
    if log := stored.evidence.get("log"):
        head = log.get("head") if isinstance(log, dict) else None
        return (
            "This result has no signed total: the log of its run is audited, by smpc-dp audit LOG "
            f"--session FILE --head {printable(str(head))}."
        )
    if session.roster.aggregator is None:
        return "This result has no signed total: without an aggregator each party adds up by itself."
    return (
        f"This result has no signed total: it is {session.roster.aggregator.name}'s own, or the signed total "
        "was taken out. Audit the result of a party."
    )


def _refused(error: SmpcError, known: dict[str, Any]) -> ResultReport:
    """Return the report on a result that fails a check; it names the aggregator if that signed the fault."""
    culprit = error.culprit if isinstance(error, PeerFault) else None
    text, limits, check = printable(str(error)), "", getattr(error, "check", None)
    if culprit is not None:
        unless = f" unless more than c = {known.get('corrupt')} parties are corrupt"
        limits = f"It has signed this, and is at fault{'' if check in OF_BODY else unless}."
    return ResultReport(
        ok=False,
        code=FAILS,
        conclusion=f"This result does not hold: {text}.",
        limits=limits,
        check=check,
        culprit=culprit,
        faults=(text,),
        **known,
    )


def is_result(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file looks like a stored result (one JSON object) and not like a log."""
    file = Path(path)
    if not file.is_file() or file.suffix == ".jsonl":
        return False
    with file.open("rb") as opened:
        first = opened.read(64).lstrip()
    return bool(re.match(rb'\{\s*"(?!format")', first))
